# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m lab.guests tiny --pool DIR`: put a guest into a pool, unless it is there already."""

from __future__ import annotations

import argparse
import pathlib
import sys

from ..system.places import CHECKOUT, POOL
from ..system.state import LabError
from . import tiny


def main() -> int:
    """The exit status: 2 when the guest cannot be made."""
    parser = argparse.ArgumentParser(prog="lab.guests", description=__doc__)
    parser.add_argument("guest", choices=list(tiny.KERNELS), help="which guest")
    parser.add_argument("--pool", type=pathlib.Path, default=POOL, help="%(default)s")
    parser.add_argument(
        "--cache", type=pathlib.Path, default=CHECKOUT / "build/cache", help="where downloads stay (%(default)s)"
    )
    arguments = parser.parse_args()
    try:
        print(tiny.make(arguments.pool.absolute(), arguments.cache.absolute(), arguments.guest))
    except LabError as error:
        print(f"lab.guests: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
