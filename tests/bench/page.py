# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people look at: the page of a site with many records, and the live view of a job until it has begun."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from .. import made_up_week
from .measure import Progress
from .site import Trouble

RECORDS, RUNS = 10_000, 5
PROGRAM = """
import pathlib, sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main
job_record.RECORDS = pathlib.Path(sys.argv[1])
sys.exit(main.run_subject(["site", "report", "--html", sys.argv[2]], pathlib.Path("/nonexistent")))
"""
"""`vmgr site report` with records of another place; no batch server is here, so that none is measured."""
LIVE = """
import os, sys
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.jobs import watch
watch._watch = lambda *_asked: os._exit(0)
sys.stdout.isatty = lambda: True
main.run_subject(["job", "watch", "7"])
"""
"""`vmgr job watch` on a terminal until it would ask the batch server, whose time it is from then on."""


def measure(progress: Progress) -> dict[str, list[float]]:
    """Write the page of a made-up week, and begin a live view, several times.

    Raises:
        Trouble: it was not written.
    """
    keys = ("site_report_s", "site_report_cpu_s", "site_report_mib", "job_watch_s", "job_watch_cpu_s")
    runs: dict[str, list[float]] = {key: [] for key in keys}
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        progress(f"{RECORDS} records", 0, RUNS)
        _write_records(place / "records")
        for number in range(RUNS):
            progress("the page", number, RUNS)
            seconds, cpu_s = _run("vmgr site report", PROGRAM, str(place / "records"), str(place / "page"))
            runs["site_report_s"].append(seconds)
            runs["site_report_cpu_s"].append(cpu_s)
            runs["site_report_mib"].append((place / "page/index.html").stat().st_size / 2**20)
            progress("the live view", number, RUNS)
            seconds, cpu_s = _run("vmgr job watch", LIVE)
            runs["job_watch_s"].append(seconds)
            runs["job_watch_cpu_s"].append(cpu_s)
    return runs


def _run(what: str, program: str, *arguments: str) -> tuple[float, float]:
    """Run a program of Python's.

    Returns:
        Seconds from its start to its end, and of processor time.

    Raises:
        Trouble: it failed.
    """
    begin = time.monotonic()
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _pid, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Trouble(f"{what} ended with status {process.returncode}")
    return time.monotonic() - begin, used.ru_utime + used.ru_stime


def _write_records(place: pathlib.Path) -> None:
    """As root leaves them, of this week."""
    late = time.time() - made_up_week.NOW
    for raw in made_up_week.records(RECORDS):
        directory = place / f"{raw['job_id']}.{raw['start']}"
        directory.mkdir(parents=True)
        path = directory / "record.json"
        path.write_text(json.dumps({**raw, "ended": raw["ended"] + late}))
        path.chmod(0o400)
