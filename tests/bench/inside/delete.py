# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On the front end, as a user: delete a job.

delete JOB [torque|slurm]     says `true`
"""

from __future__ import annotations

import json
import subprocess
import sys

COMMANDS = {"torque": "qdel", "slurm": "scancel"}


def main() -> None:
    """Delete it; one that has ended by itself is none to delete."""
    job_id, *system = map(json.loads, sys.argv[1:])
    command = COMMANDS[system[0] if system else "torque"]
    subprocess.run([command, job_id], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    print("true", flush=True)


if __name__ == "__main__":
    main()
