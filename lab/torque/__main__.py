# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One program under many names: the commands, and `server`, `mom`, `install`."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # the commands start without typing
    import typing as t


def main(arguments: t.Sequence[str]) -> int:
    """Be the command by whose name the program was called, else the one named first."""
    name = os.path.basename(arguments[0])  # noqa: PTH119
    rest = list(arguments[1:])
    if name == "qsub":
        from .commands.submit import main as qsub

        return qsub(rest)
    if name in ("qdel", "qsig", "qhold", "qrls", "qrerun", "qalter", "qmgr", "momctl"):
        from .commands import control

        return int(getattr(control, name)(rest))
    from .daemons import main as daemon

    return daemon(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
