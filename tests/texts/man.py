# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manual pages as `man` reads them, out of the Markdown beside them: docs/man/*.md, by Sphinx."""

from __future__ import annotations

import functools
import pathlib
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
HEADER = r"""'\" t
.\" Copyright (c) 2026, The vTorque authors
.\" GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
.\" SPDX-License-Identifier: GPL-3.0-or-later
.\" Made by `make generated` out of {source}
"""
# man reads whether a page has tables in its first line alone
FIRST = "'\\\" t\n"


def page(name: str) -> str:
    """One manual page.

    Args:
        name: of the file in docs/man, such as `vsub.1`.
    """
    body = _pages()[name].removeprefix(FIRST)
    return HEADER.format(source=f"docs/man/{name}.md") + body


@functools.cache
def _pages() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "-E", "-b", "man", "-c", str(DOCS)]
        # a page of this small source is its root, and the others hang from nothing
        command += ["-d", f"{out}/.doctrees", "-D", "root_doc=vsub.1", "-D", "suppress_warnings=toc.not_included"]
        done = subprocess.run([*command, str(DOCS / "man"), out], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"sphinx: {done.stderr}")
        return {path.name: path.read_text(encoding="utf-8") for path in pathlib.Path(out).glob("*.[158]")}
