# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a hook may begin anything before it has read the site's configuration (`fast_start`).

A hook whose configuration allows it leaves a mark, which names the file that it read.  The next hook begins early
where the mark names the very file that is there: after a change of the configuration, and after a boot, the first job
starts the straight way.  All that this package imports loads quickly.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pathlib

NAME = "fast_start"
MARK = f"/run/vtorque/{NAME}"
CONFIG = "/etc/vtorque/vtorque.yml"
EARLY = "--early"
"""Argument of `vtorque-node` with which it loads what guests need before it reads a request."""
EARLY_REMOVAL = "--early-removal"
"""The same for a request that takes guests away."""
LIMIT = 200
"""Bytes of a mark that are read."""


def name_of(config: str | os.PathLike[str]) -> str:
    """Return what names one state of the configuration: each change of the file gives another; "": there is none."""
    try:
        facts = os.stat(config)  # noqa: PTH116 - pathlib takes its time
    except OSError:
        return ""
    return f"{facts.st_dev}.{facts.st_ino}.{facts.st_size}.{facts.st_mtime_ns}.{facts.st_ctime_ns}"


def allows(mark: str | os.PathLike[str] = MARK, config: str | os.PathLike[str] = CONFIG) -> bool:
    """Return whether an earlier hook read this very configuration, and it allows an early begin.

    Args:
        mark: the file that such a hook leaves.
        config: the site's configuration.
    """
    found = _read(mark)
    return found != "" and found == name_of(config)


def set_to(name: str, mark: pathlib.Path) -> None:
    """Leave a mark, or take it away.

    Args:
        name: of the configuration that allows an early begin (`name_of`, before it was read); "": it does not.
        mark: the file.

    Raises:
        OSError, VTorqueError: it was not written, or not removed.
    """
    if _read(mark) == name:
        return
    if name:
        from ...module_utils.system import files  # once after each change of the configuration

        files.write(mark, name)
    else:
        os.unlink(mark)


def _read(mark: str | os.PathLike[str]) -> str:
    """Return what a mark names; "": there is none, or none that can be read."""
    try:
        descriptor = os.open(mark, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, LIMIT).decode("ascii", "replace")
    finally:
        os.close(descriptor)
