# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job that does not exist, for pictures: its record, and what its nodes have measured."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import series
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import to_dict

MIB, GIB = 2**20, 2**30
JOB = "4711.head"
RUN_S = 3600.0
BEGAN = 1.8e9
EVERY_S = 30


def record() -> dict[str, t.Any]:
    """Return the record of a job of an hour over two nodes, whose second guest had little to do."""
    guests = []
    for rank, (cpu_s, wait_s, peak) in enumerate(((5.4, 0.07, 0.9), (0.6, 0.02, 0.7))):
        node = f"cn{rank + 1}"
        guests.append({
            "rank": rank, "name": f"v{node}-1", "node": node, "image": "debian12@4", "address": f"10.0.{rank + 1}.1",
            "vcpus": 6, "ram_mib": 24576,
            "seconds": {"disk": 0.1, "seed": 0.1, "start": 0.4, "address": 4.8, "ready": 3.9},
            "used": {"cpu_s": cpu_s * RUN_S, "wait_s": wait_s * RUN_S, "ram_peak_bytes": peak * GIB,
                     "read_bytes": 9.0 * GIB, "written_bytes": 0.4 * GIB, "received_bytes": 2.1 * GIB,
                     "sent_bytes": 2.1 * GIB},
        })  # fmt: skip
    phases: dict[str, tuple[float, float]] = {
        "prologue": (0.0, 10.0), "plan": (0.3, 0.1), "present.cn1": (0.4, 9.3), "present.cn2": (0.4, 9.4),
        "absent.cn1": (10.0 + RUN_S, 0.5), "absent.cn2": (10.0 + RUN_S, 0.6), "epilogue": (10.0 + RUN_S, 1.0),
    }  # fmt: skip
    return {
        "job_id": JOB, "start": 1, "user": "alice", "name": "relax", "request": {"vcpus": "6", "img": "debian12"},
        "nodes": ["cn1", "cn2"], "exit_status": 0, "ended": BEGAN + RUN_S + 11, "guests": guests,
        "energy": {"cn1": {"joules": 290_000, "how": "measured"}, "cn2": {"joules": 122_000, "how": "measured"}},
        "phases": {name: {"began": BEGAN + begin, "seconds": length} for name, (begin, length) in phases.items()},
    }  # fmt: skip


def samples() -> series.JobSeries:
    """Return what the nodes of that job have measured."""
    nodes = []
    for rank, (disk, net) in enumerate(((6, 2), (1, 2))):
        points, read = [], 0.0
        for number in range(120):
            read += disk * (0.25 if number % 12 else 1.0) * EVERY_S * MIB
            moved = net * number * EVERY_S * MIB / 2
            points.append((EVERY_S * 1.0 * number, (0.0, 0.0, float(GIB), read, 0.0, moved, moved)))
        guest = series.GuestSeries(f"vcn{rank + 1}-1", rank, "", series.format_points(points))
        nodes.append(series.NodeSeries(f"cn{rank + 1}", BEGAN, EVERY_S, series.NOT_KNOWN, "", (guest,)))
    return series.JobSeries(1, tuple(nodes))


def store(place: pathlib.Path) -> None:
    """Have that job in a directory of records, in place of those of this machine."""
    directory = place / f"{JOB}.1"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / layout.RECORD).write_text(json.dumps(record()))
    (directory / layout.SERIES).write_text(json.dumps(to_dict(samples())))
    job_record.RECORDS = place
