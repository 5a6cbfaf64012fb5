# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On the front end, as a user: vsub and qsub in turn, or Slurm's, each for a job that is held and then deleted.

submit_cost REQUEST SCRIPT TIMES [torque|slurm]     says [[seconds of vsub, seconds of qsub], ...]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

COMMANDS = {
    "torque": (("vsub", "-h"), ("qsub", "-h"), "qdel"),
    "slurm": (("vsbatch", "--parsable", "-H"), ("sbatch", "--parsable", "-H"), "scancel"),
}
"""Of each batch system: ours, its own, and what takes a job back."""


def submit(delete: str, *command: str) -> float:
    """Submit, take the job back; seconds of the former alone."""
    begin = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begin
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    subprocess.run([delete, done.stdout.strip()], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return seconds


def main() -> None:
    """Both, so many times; the first pair only reads the files from the disk."""
    request, script, times, *system = map(json.loads, sys.argv[1:])
    ours, theirs, delete = COMMANDS[system[0] if system else "torque"]
    pairs = [
        (submit(delete, *ours, "-vm", request, script), submit(delete, *theirs, script)) for _number in range(times + 1)
    ]
    print(json.dumps(pairs[1:]), flush=True)


if __name__ == "__main__":
    main()
