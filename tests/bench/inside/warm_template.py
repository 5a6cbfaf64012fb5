# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: make the template of a guest with one processor.

warm_template IMAGE RAM_MIB     says {"seconds"}: how long the node took
"""

from __future__ import annotations

import json
import subprocess
import sys
import time


def main() -> None:
    """Make it.

    Raises:
        SystemExit: it was not made; says why.
    """
    image, ram_mib = map(json.loads, sys.argv[1:])
    began = time.monotonic()
    command = ["vmgr", "image", "warm", "make", image, "--vcpus", "1", "--ram", f"{ram_mib}M"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout)
    print(json.dumps({"seconds": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main()
