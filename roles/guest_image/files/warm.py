# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In the guest, as root: the program of an image whose guests start warm, see `vtorque_warm/program.py`."""

from __future__ import annotations

import os
import pathlib
import sys

if __name__ == "__main__":
    # the interpreter is isolated (`install_warm.sh`), and looks beside no program by itself
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    from vtorque_warm import guest, program

    os.environ.update(PATH="/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL="C.UTF-8")
    os.umask(0o022)
    sys.exit(program.main(guest.Guest()))
