# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a site with many records: the whole program, from its start to the file."""

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


def measure(progress: Progress) -> dict[str, list[float]]:
    """Write the page of a made-up week several times.

    Raises:
        Trouble: it was not written.
    """
    runs: dict[str, list[float]] = {"site_report_s": [], "site_report_cpu_s": [], "site_report_mib": []}
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        progress(f"{RECORDS} records", 0, RUNS)
        _write_records(place / "records")
        for number in range(RUNS):
            progress("the page", number, RUNS)
            begin = time.monotonic()
            command = [sys.executable, "-c", PROGRAM, str(place / "records"), str(place / "page")]
            with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
                _pid, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise Trouble(f"vmgr site report ended with status {process.returncode}")
            runs["site_report_s"].append(time.monotonic() - begin)
            runs["site_report_cpu_s"].append(used.ru_utime + used.ru_stime)
            runs["site_report_mib"].append((place / "page/index.html").stat().st_size / 2**20)
    return runs


def _write_records(place: pathlib.Path) -> None:
    """As root leaves them, of this week."""
    late = time.time() - made_up_week.NOW
    for raw in made_up_week.records(RECORDS):
        directory = place / f"{raw['job_id']}.{raw['start']}"
        directory.mkdir(parents=True)
        path = directory / "record.json"
        path.write_text(json.dumps({**raw, "ended": raw["ended"] + late}))
        path.chmod(0o400)
