# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On the front end, as a user: submit a job.

submit REQUEST SCRIPT [ARGUMENTS]     says the job's id; arguments of vsub: [word, ...]
"""

from __future__ import annotations

import json
import subprocess
import sys


def main() -> None:
    """Submit."""
    request, script, *more = map(json.loads, sys.argv[1:])
    done = subprocess.run(
        ["vsub", *(more[0] if more else []), "-vm", request, script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    print(json.dumps(done.stdout.strip()), flush=True)


if __name__ == "__main__":
    main()
