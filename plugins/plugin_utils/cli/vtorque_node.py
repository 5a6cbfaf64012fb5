# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque-node`: one node's part of a job (`node_work.py`)."""

from __future__ import annotations

import sys


def main() -> int:
    """The program; returns its exit status."""
    from .. import node_work

    return node_work.main()


if __name__ == "__main__":
    sys.exit(main())
