# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m ...cli.vmgr`, as the launcher calls it."""

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main())
