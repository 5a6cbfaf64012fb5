# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: processor time of a job's hooks, children included, called as a MOM or slurmd calls them.

hook_cost CALLS TIMES     CALLS: [[argv, environment], ...]; says [seconds of all calls together, ...]
"""

from __future__ import annotations

import json
import os
import sys


def cost(argv: list[str], environment: dict[str, str]) -> float:
    """Run a hook; seconds of the processor, its own and its children's."""
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    pid = os.posix_spawn(argv[0], argv, environment, file_actions=null)
    _pid, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{argv[0]} ended with {status}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """All hooks, so many times; the first time only reads the files from the disk."""
    calls, times = map(json.loads, sys.argv[1:])
    os.chdir(os.path.dirname(calls[0][0][0]))
    totals = [sum(cost(argv, environment) for argv, environment in calls) for _number in range(times + 1)]
    print(json.dumps(totals[1:]), flush=True)


if __name__ == "__main__":
    main()
