# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: the longest time in which a file that is written all the time did not grow.

gap_watch PATTERN     says `true` when it is watching; after the end of its input {"gap_s"}
"""

from __future__ import annotations

import glob
import json
import os
import select
import sys
import time

LOOK_S = 0.01


def main() -> None:
    """Watch one file.

    Raises:
        SystemExit: there is not exactly one.
    """
    found = glob.glob(json.loads(sys.argv[1]))
    if len(found) != 1:
        raise SystemExit(f"{sys.argv[1]}: {len(found)} files")
    gap_s, size, grown = 0.0, -1, time.monotonic()
    print("true", flush=True)
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        now = time.monotonic()
        if (there := os.stat(found[0]).st_size) != size:
            gap_s = max(gap_s, now - grown if size >= 0 else 0.0)
            size, grown = there, now
    print(json.dumps({"gap_s": gap_s}), flush=True)


if __name__ == "__main__":
    main()
