# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hook leaves the cgroups of the job for which it works, before it works.

A MOM that makes cgroups puts itself into the job's before it runs a prologue: root's hook would live under the user's
`mem=` and on his cores, its worker would be killed with the job, and a prologue that ran out of memory is a success
for Torque.  The hook goes to `vtorque`, beside the MOM's `torque`; without systemd's help, which costs a talk over
D-Bus, and knows nothing of what the MOM has made.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

OF_MOM, OURS = "torque", "vtorque"
PROC = "/proc/self"
INHERITED = ("cpuset.mems", "cpuset.cpus", "mems", "cpus")
"""Of version 1, with a prefix or without: nobody may come in before they are set."""


def leave(job_id: str, proc: str = PROC) -> str:
    """Move this process, and what it will start, out of the cgroups of a job; elsewhere it stays.

    Args:
        job_id: names them.
        proc: of this process.

    Returns:
        What did not go well, in words; "" when all did.
    """
    trouble = []
    try:
        for place in _places(job_id, proc):
            try:
                _join(place)
            except OSError as error:
                trouble.append(f"{place}: {error.strerror}")
    except (OSError, ValueError) as error:
        trouble.append(str(error))
    return f"the hook stays in cgroups of job {job_id}: {'; '.join(trouble)}" if trouble else ""


def _places(job_id: str, proc: str) -> Iterator[str]:
    """Where we belong instead, in each hierarchy in which we are the job's."""
    marker = f"/{OF_MOM}/{job_id}/"
    mounts: list[tuple[str, str, str, set[str]]] = []
    for line in _lines(f"{proc}/cgroup"):
        _number, controllers, path = line.split(":", 2)
        if marker not in f"{path}/":
            continue
        mounts = mounts or [_mount(line) for line in _lines(f"{proc}/mountinfo")]
        above = f"{path}/".partition(marker)[0]
        for kind, root, where, options in mounts:
            names = {"cpuset"} if kind == "cpuset" else options if kind == "cgroup" else set()
            same = names.issuperset(controllers.split(",")) if controllers else kind == "cgroup2"
            if same and f"{above}/".startswith(f"{root.rstrip('/')}/"):
                yield f"{where}{above[len(root.rstrip('/')) :]}/{OURS}"
                break
        else:
            raise ValueError(f"{controllers or 'version 2'} is mounted nowhere")


def _lines(path: str) -> list[str]:
    # pathlib takes its time, here and below
    with open(path, encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123
        return stream.read().splitlines()


def _mount(line: str) -> tuple[str, str, str, set[str]]:
    """Its kind, what of it is mounted, where, and the options of the whole (proc(5))."""
    before, _dash, after = line.partition(" - ")
    root, where = before.split(" ")[3:5]
    kind, _source, options = after.split(" ", 2)
    return kind, root, where, set(options.split(","))


def _join(place: str) -> None:
    if not os.path.isdir(place):  # noqa: PTH112
        try:  # noqa: SIM105 - what it imports is not there yet
            os.mkdir(place, 0o755)  # noqa: PTH102
        except FileExistsError:  # another hook's
            pass
    for name in INHERITED:
        if os.path.exists(f"{place}/{name}") and not "".join(_lines(f"{place}/{name}")).strip():  # noqa: PTH110
            _write(f"{place}/{name}", "\n".join(_lines(f"{place}/../{name}")))
    _write(f"{place}/cgroup.procs", str(os.getpid()))


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as stream:  # noqa: PTH123
        stream.write(text)
