# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job over many nodes costs by itself: its guests are real domains that boot nothing, one on each node.

What would wait for them answers at once (`inside/stand_in.py`), in the lab of this measurement alone.
"""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import publish, revision

from .measure import SCRIPT, TEXT
from .site import USER, Site, Trouble

COUNTS = (1, 2, 4, 8, 16, 32)
RUNS = {1: 3, 2: 3, 4: 3, 8: 3, 16: 2, 32: 2}
MOST = max(COUNTS)
IMAGE = "nothing"
REQUEST = f"img={IMAGE},vcpus=1,ram=64M"
NAMES = tuple(f"cn{number}" for number in range(1, MOST + 1))
HALT = b"\xfa\xf4\xeb\xfd".ljust(510, b"\0") + b"\x55\xaa"
"""A boot sector: cli, hlt, jmp to the hlt; nothing reads it, for the guests' firmware is a stand-in too."""
STAND_IN = (
    "the guests' firmware is a stand-in that stops the processor; discovery, readiness and the guests' answers\n    "
    "are stand-ins that answer at once (inside/stand_in.py)"
)

Progress = t.Callable[[str, int, int], None]


def make_image(pool: pathlib.Path) -> None:
    """An image whose disk holds nothing but a boot sector that stops the processor.

    Raises:
        Trouble: it cannot be published.
    """
    if list(pool.glob(f"{IMAGE}@*")):
        return
    pool.mkdir(parents=True, exist_ok=True)
    raw, disk = pool / ".nothing.raw", pool / ".nothing.qcow2"
    raw.write_bytes(HALT.ljust(1 << 20, b"\0"))
    command = ["/usr/bin/qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(disk)]
    try:
        subprocess.run(command, capture_output=True, timeout=60, check=True)
        publish.publish(revision.RevisionSpec(IMAGE, disk, distro="debian", made="a benchmark"), pool)
    except (subprocess.SubprocessError, VTorqueError) as error:
        raise Trouble(f"{IMAGE} cannot be published: {error}") from error
    finally:
        raw.unlink()
        disk.unlink(missing_ok=True)


def measure(site: Site, progress: Progress, counts: t.Sequence[int] = COUNTS) -> dict[str, list[float]]:
    """The figures of jobs over so many nodes, by key.

    Args:
        site: with the nodes `NAMES`.

    Raises:
        Trouble: a job did not become ready.
    """
    stand_in(site, NAMES[: max(counts)])
    runs: dict[str, list[float]] = {}
    # every node makes its first guest now: its libvirt asks qemu what it can, and files are read from the disk
    progress(f"memory of a job over {max(counts)} nodes", 0, 1)
    with site.program("cn1", "memory_watch") as memory:
        memory.line()
        _job(site, max(counts))
        memory.finish()
        runs[f"nodes_{max(counts)}_ms_peak_mib"] = [memory.line()["peak_mib"]]
    for count in counts:
        for number in range(RUNS[count]):
            progress(f"a job over {count} nodes that boots nothing", number, RUNS[count])
            overhead_s, cpu_s = _job(site, count)
            runs.setdefault(f"nodes_{count}_overhead_s", []).append(overhead_s)
            runs.setdefault(f"nodes_{count}_ms_cpu_per_node_s", []).append(cpu_s / count)
    return runs


def stand_in(site: Site, names: t.Sequence[str]) -> None:
    """Have guests of these nodes boot nothing, and a script that a job may have."""
    for name in names:
        site.ask(name, "stand_in")
    site.ask("fe", "write_file", SCRIPT, TEXT, user=USER)


def on_first(count: int) -> list[str]:
    """Return the options of qsub for a job over the first so many nodes."""
    return ["-l", "nodes=" + "+".join(f"{name}:ppn=2" for name in NAMES[:count])]


def _job(site: Site, count: int) -> tuple[float, float]:
    """From the start of the prologue to the ready record, and the mother superior's processor time."""
    with contextlib.ExitStack() as stack:
        over = stack.enter_context(site.program("cn1", "job_watch"))
        over.line()
        ready = stack.enter_context(site.program("cn1", "ready_watch"))
        ready.line()
        job_id = site.ask("fe", "submit", REQUEST, SCRIPT, on_first(count), user=USER)
        seen = ready.line()
        # nobody is in the guest to run it
        site.ask("fe", "delete", job_id, user=USER)
        record = over.line()["record"]
    if seen["job"] != job_id or len({guest["node"] for guest in record["guests"]}) != count:
        raise Trouble(f"{seen['job']} became ready, and not {job_id} with a guest on each of {count} nodes: {record}")
    return seen["ready"] - record["phases"]["prologue"]["began"], seen["cpu_s"]
