# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A root directory for programs of guests, which is all busybox but for what a test puts there."""

from __future__ import annotations

import pathlib
import shutil
import typing as t


class BusyboxRoot:
    """The root directory of a guest.

    Args:
        root: which is empty so far.
        directories: to make below it; `bin` and `dev` are there, too.
        applets: of busybox.
    """

    def __init__(self, root: pathlib.Path, directories: t.Iterable[str], applets: t.Iterable[str]) -> None:
        self.root = root
        for name in ("bin", "dev", *directories):
            (root / name).mkdir(parents=True)
        (root / "dev/null").touch(mode=0o666)
        shutil.copy("/bin/busybox", root / "bin/busybox")
        for name in applets:
            (root / "bin" / name).symlink_to("busybox")

    def program(self, name: str, text: str) -> None:
        (self.root / "bin" / name).write_text(text)
        (self.root / "bin" / name).chmod(0o755)

    @property
    def asked(self) -> list[str]:
        """What the test's own programs note that they were asked."""
        path = self.root / "asked"
        return path.read_text().splitlines() if path.exists() else []
