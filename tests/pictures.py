# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Screens of the product for the documentation: its own programs draw a job and a site that do not exist.

A block `text` of a page that is marked `screen=NAME` is a part of such a screen; tests/unit/test_pictures.py compares
them.  To see one: PYTHONPATH=build/import build/venv/bin/python -m tests.pictures NAME
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import (
    BAD,
    CHECKS,
    WARN,
    Finding,
    Report,
)
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import checks_table
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import doctor, main
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.jobs import watch

from .made_up_job import BEGAN, EVERY_S, JOB, record, store
from .screen import Screen, read_screen
from .unit.loaded_program import load_program

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]


def draw_show(place: pathlib.Path) -> int:
    """`vmgr job show` of that job."""
    store(place)
    return main.run_subject(["job", "show", "4711"], pathlib.Path("/nonexistent"))


class Batch:
    """A batch server that knows two jobs of alice's, one of them for a while.

    Args:
        end: called when the other one has ended.
    """

    def __init__(self, end: t.Callable[[], None]) -> None:
        self._end, self._asked = end, 0

    def all_jobs(self) -> tuple[BatchJob, ...]:
        """Return the jobs: the second one is queued, runs and is gone; the first one runs until the last question."""
        self._asked += 1
        second = {1: ("Q", ()), 2: ("R", ("cn3",))}.get(self._asked)
        found = [_job("4711", "relax", "R", ("cn1", "cn2"))] if self._asked < 4 else []
        if not found:
            self._end()
        return (*found, *([_job("4712", "train-43", *second)] if second else ()))

    def job(self, job_id: str) -> BatchJob:
        """Return a job.

        Raises:
            UnknownJob: always, since nobody asks for one.
        """
        raise UnknownJob(job_id, "is not known")


def _job(number: str, name: str, state: str, nodes: tuple[str, ...]) -> BatchJob:
    return BatchJob(
        job_id=f"{number}.head", name=name, owner_user="alice", owner_host="fe", euser="alice", egroup="users",
        queue="batch", jobtype="", init_work_dir="/home/alice", submit_args="", account="", start_count=1,
        session_id=0, substate=42, walltime_s=7200, state=state, slot_hosts=nodes, x="vtorque:", interactive=False,
        variables={}, resource_list={},
    )  # fmt: skip


def draw_watch(place: pathlib.Path) -> int:
    """`vmgr job watch`: two jobs, one of them on this host, until they are gone."""
    store(place)
    running = place / f"{JOB}.1"
    raw = record()
    raw.pop("ended")
    raw["phases"] = {name: raw["phases"][name] for name in ("prologue", "plan", "present.cn1", "present.cn2")}
    (running / layout.RECORD).write_text(json.dumps(raw))
    lines: list[dict[str, t.Any]] = [{"began": BEGAN, "every_s": EVERY_S, "guests": {}}]
    total = 0.0
    for number, share in enumerate((0.02, 0.1, 0.3, 0.6, 0.8, 0.95, 0.9, 0.95, 0.97, 0.5, 0.92, 0.97, 0.96)):
        total += share * 12 * EVERY_S
        lines.append({"at": EVERY_S * number, "guests": {"vcn1-1": [total, 0, 1, 1, 1, 1, 1]}, "energy": None})
    (running / layout.SAMPLES).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    batch = Batch(lambda: store(place))

    def find_record(job_id: str) -> job_record.JobRecord | None:
        try:
            return job_record.find(job_id, place)
        except VTorqueError:
            return None

    watch.find_record = find_record
    watch.PREFIX = "vtorque:"
    watch.RECORD_S = 0.0
    watch.open_batch = lambda *_policy, **_how: batch
    return watch.run(argparse.Namespace(job=None, every=0.2), Policy)


def draw_doctor(_place: pathlib.Path) -> int:
    """`vmgr doctor` of a front end and sixteen nodes, one of which is ill."""
    refused = Finding(
        "libvirt", BAD, BAD, "libvirt at qemu:///system: Connection refused",
        "is libvirtd (or virtqemud) running? journalctl -u libvirtd says more",
    )  # fmt: skip
    worn = Finding("disk", WARN, "91%", "/var/lib/vtorque has 11 GiB left", "free space, or a smaller cache_max")
    reports = [Report("fe", (Finding("policy"), Finding("server")))]
    for number in range(1, 17):
        libvirt = refused if number == 2 else Finding("libvirt")
        disk = worn if number == 9 else Finding("disk", cell=f"{12 + number}%")
        reports.append(Report(f"cn{number:02}", (Finding("policy"), libvirt, disk)))
    checks_table.print_table(reports, CHECKS)
    print(doctor.total_of(reports))
    return 1


def draw_host_profile(_place: pathlib.Path) -> int:
    """The report of the role `host_profile` on a node."""
    program = load_program(CHECKOUT / "roles/host_profile/files/set_profile.py")
    before = {"running_services": 31, "memory_used_mib": 612, "noise_percent": 0.41, "switches_per_s": 812,
              "interrupts_per_s": 640}  # fmt: skip
    after = {"running_services": 22, "memory_used_mib": 548, "noise_percent": 0.12, "switches_per_s": 301,
             "interrupts_per_s": 255}  # fmt: skip
    changed = ["masked apt-daily.timer", "masked man-db.timer", f"/{program.HUGEPAGES} = madvise"]
    host = argparse.Namespace(changed=changed, faults=[])
    print(*program.format_report(host, (before, after)), sep="\n")
    return 0


class Picture(t.NamedTuple):
    """A screen.

    Attributes:
        draw: has the product draw it on standard output, with a directory of its own; returns the exit status.
        size: rows and columns.
    """

    draw: t.Callable[[pathlib.Path], int]
    size: tuple[int, int]


PICTURES = {
    "job-show": Picture(draw_show, (40, 120)),
    "job-watch": Picture(draw_watch, (12, 100)),
    "host-profile": Picture(draw_host_profile, (12, 80)),
    "doctor": Picture(draw_doctor, (24, 110)),
}


def screen_of(name: str) -> tuple[int, Screen]:
    """Return the exit status of a picture's program, and its screen.

    Args:
        name: of the picture.
    """
    paths = ":".join([f"{CHECKOUT}/build/import", str(CHECKOUT), os.environ.get("PYTHONPATH", "")]).rstrip(":")
    return read_screen(
        [sys.executable, "-m", "tests.pictures", name], PICTURES[name].size, checkout=CHECKOUT, PYTHONPATH=paths
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        sys.exit(PICTURES[sys.argv[1]].draw(pathlib.Path(directory) / "records"))
