# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Out of the cgroups of a job: what root does for it must not live by its limits, nor end with it.

A MOM that makes cgroups puts itself into the job's before it runs a prologue: root's hook would live under the user's
`mem=` and on their cores, its worker would be killed with the job, and a prologue that ran out of memory is a success
for Torque.  The hook goes to `vtorque`, beside the MOM's `torque`; without systemd's help, which costs a talk over
D-Bus, and knows nothing of what the MOM has made.  What a hook leaves behind to work for others than the job goes
to the root of each hierarchy.

This module goes when no supported MOM makes cgroups of its own beside systemd's.

The hook (`cli/hook.py`) comes here before anything else has loaded: without pathlib and contextlib, which take their
time.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = "/sys/fs/cgroup"
OF_MOM, OURS = "torque", "vtorque"
PROC = "/proc/self"
INHERITED = ("cpuset.mems", "cpuset.cpus", "mems", "cpus")
"""Of version 1, with a prefix or without: nobody may come in before they are set."""


def leave_job(job_id: str, proc: str = PROC) -> str:
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


def leave_all(root: str | os.PathLike[str] = ROOT, own: str | os.PathLike[str] = f"{PROC}/cgroup") -> None:
    """Move this process to the root of each hierarchy that lets it.

    What cannot be left is stayed in: then the work may end with the job, and the next who wants it goes on with it.

    Args:
        root: where hierarchies are mounted.
        own: the kernel's word on where this process is.
    """
    for line in _lines(own):
        _number, controllers, path = line.split(":", 2)
        # version 2 alone is mounted at the root itself, beside version 1 in `unified` (systemd's layout)
        places = [f"{root}/{controllers.removeprefix('name=')}"] if controllers else [f"{root}/unified", f"{root}"]
        for place in places if path != "/" else []:
            try:
                _write(f"{place}/cgroup.procs", str(os.getpid()))
            except OSError:
                continue
            break


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


def _lines(path: str | os.PathLike[str]) -> list[str]:
    with open(path, encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123
        return stream.read().splitlines()


def _mount(line: str) -> tuple[str, str, str, set[str]]:
    """Return kind, root, place and options of a mount (proc(5))."""
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
