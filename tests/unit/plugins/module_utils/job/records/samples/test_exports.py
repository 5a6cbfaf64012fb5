# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job in the forms of other programs, checked against what their documentation demands."""

from __future__ import annotations

import csv
import io
import json
import pathlib
import re
import typing as t

import jsonschema
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.job_record import JobRecord
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.samples import (
    clustercockpit,
    otlp,
    rates,
    table,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import series

EVIL = '=cmd|"</script>\x1b[2J,\n'
NUMBER = {"type": "number", "minimum": 0}
# https://github.com/ClusterCockpit/cc-backend/tree/master/pkg/schema/schemas: unit, job-metric-statistics,
# job-metric-data, job-meta, job-data; what each demands, and no more
UNIT = {
    "type": "object",
    "required": ["base", "base_unit"],
    "properties": {
        "base": {"enum": ["B", "F", "B/s", "F/s", "CPI", "IPC", "Hz", "W", "J", ""]},
        "base_unit": {"enum": ["B", "F", "B/s", "F/s", "CPI", "IPC", "cpu_used", "cpu_load", "Hz", "W"]},
    },
}
STATISTICS = {"avg": NUMBER, "min": NUMBER, "max": NUMBER}
JOB_STATISTICS = {
    "type": "object", "required": ["unit", "avg", "min", "max"], "properties": {"unit": UNIT, **STATISTICS},
}  # fmt: skip
METRIC = {
    "type": "object",
    "required": ["node"],
    "properties": {
        "node": {
            "type": "object",
            "required": ["unit", "timestep", "series"],
            "properties": {
                "unit": UNIT,
                "timestep": {"type": "integer"},
                "series": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["hostname", "statistics", "data"],
                        "properties": {
                            "hostname": {"type": "string"},
                            "statistics": {"type": "object", "required": [*STATISTICS], "properties": STATISTICS},
                            "data": {"type": "array", "minItems": 1, "contains": NUMBER},
                        },
                    },
                },
            },
        }
    },
}
POSITIVE = {"type": "integer", "exclusiveMinimum": 0}
TEXT = {"type": "string"}
NEEDED = ["cpu_user", "cpu_load", "mem_used", "flops_any", "mem_bw"]
META = {
    "type": "object",
    "required": ["jobId", "user", "project", "cluster", "subCluster", "numNodes", "exclusive", "startTime", "jobState",
                 "duration", "resources", "statistics"],
    "properties": {
        "jobId": {"type": "integer"}, "user": TEXT, "project": TEXT, "cluster": TEXT, "subCluster": TEXT,
        "arrayJobId": {"type": "integer"}, "numNodes": POSITIVE, "numHwthreads": POSITIVE,
        "exclusive": {"type": "integer", "minimum": 0, "maximum": 2},
        "jobState": {"enum": ["completed", "failed", "cancelled", "stopped", "out_of_memory", "node_fail", "timeout"]},
        "startTime": POSITIVE, "duration": POSITIVE,
        "resources": {"type": "array",
                      "items": {"type": "object", "required": ["hostname"], "properties": {"hostname": TEXT}}},
        "metaData": {"type": "object", "properties": {"jobName": TEXT}},
        "statistics": {"type": "object", "required": NEEDED, "additionalProperties": JOB_STATISTICS},
    },
}  # fmt: skip
FILE_SYSTEM = {
    "type": "object", "required": ["name", "type", "read_bw", "write_bw"],
    "properties": {"name": TEXT, "type": {"enum": ["nfs", "lustre", "gpfs", "nvme", "ssd", "hdd", "beegfs"]},
                   "read_bw": METRIC, "write_bw": METRIC},
}  # fmt: skip
DATA = {
    "type": "object", "required": ["cpu_used", *NEEDED, "net_bw", "filesystems"],
    "properties": {"filesystems": {"type": "array", "minItems": 1, "items": FILE_SYSTEM}},
    "additionalProperties": METRIC,
}  # fmt: skip


def of_guest(name: str, rank: int, cpus: t.Iterable[float | None], tag: str = "tag") -> series.GuestSeries:
    points = [(30.0 * n, (cpu, 0.5 * n, 2**20 * n, 3000 * n, None, 600 * n, 300 * n)) for n, cpu in enumerate(cpus)]
    return series.GuestSeries(name, rank, tag, series.format_points(points))


def job_series() -> series.JobSeries:
    first = (of_guest("vcn1-1", 0, [0, 30, 90]), of_guest("vcn1-2", 1, [0, 15, 30]))
    second = (of_guest("vcn2-1", 2, [0, None, 30], tag="=1+1"),)
    return series.JobSeries(1, (
        series.NodeSeries("cn1", 1.8e9, 30, 100.0, series.MEASURED, first),
        series.NodeSeries("cn2", 1.8e9, 30, series.NOT_KNOWN, "", second),
    ))  # fmt: skip


def job(job_id: str = "4711.head", **changes: t.Any) -> JobRecord:
    guests = [
        {"rank": rank, "name": name, "node": node, "vcpus": 2, "ram_mib": 512, "seconds": {"disk": 1.0, "start": 2.5}}
        for rank, (name, node) in enumerate((("vcn1-1", "cn1"), ("vcn1-2", "cn1"), ("vcn2-1", "cn2")))
    ]
    raw = {
        "user": "alice", "name": EVIL, "nodes": ["cn1", "cn2"], "guests": guests, "ended": 1.8e9 + 70, "exit_status": 0,
        "phases": {"prologue": {"began": 1.8e9 - 10, "seconds": 9.5},
                   "present.cn1": {"began": 1.8e9 - 9, "seconds": 4.0},
                   "epilogue": {"began": 1.8e9 + 65, "seconds": 5.0}},
        "energy": {"cn1": {"joules": 100, "how": "measured"}}, **changes,
    }  # fmt: skip
    return JobRecord(job_id, 1, pathlib.Path("/nonexistent"), "", raw)


def test_rates_are_differences_and_what_is_not_known_stays_so() -> None:
    found = rates.rates_of(job_series())
    assert [one.name for one in found] == ["vcn1-1", "vcn1-2", "vcn2-1"]
    assert [one.rates["cpu_load"] for one in found[0].intervals] == [1.0, 2.0]
    assert [one.rates["cpu_load"] for one in found[2].intervals] == [None, None]
    assert found[0].intervals[1].rates == {
        "cpu_load": 2.0, "vcpus_waiting": 0.017, "memory_bytes": 2 * 2**20, "read_bw": 100.0, "write_bw": None,
        "receive_bw": 20.0, "send_bw": 10.0,
    } | {"vcpus_waiting": pytest.approx(1 / 60)}  # fmt: skip


def test_archive_is_what_clustercockpit_demands() -> None:
    archive = clustercockpit.archive_of(job(), job_series(), "hpc1")
    meta, data = json.loads(json.dumps(archive.meta)), json.loads(json.dumps(archive.data))
    jsonschema.validate(meta, META)
    jsonschema.validate(data, DATA)
    assert (meta["jobId"], meta["cluster"], meta["numNodes"], meta["duration"]) == (4711, "hpc1", 2, 80)
    assert (meta["jobState"], meta["exclusive"], meta["numHwthreads"]) == ("completed", 1, 6)
    (first, second) = data["cpu_load"]["node"]["series"]
    assert (first["hostname"], first["data"]) == ("cn1", [1.5, 2.5])
    assert second["hostname"] == "cn2"
    assert data["cpu_load"]["node"]["timestep"] == 30
    assert data["mem_used"]["node"]["series"][0]["data"] == [2 * 2**20, 4 * 2**20]
    assert data["net_bw"]["node"]["series"][0]["data"] == [60.0, 60.0]


@pytest.mark.parametrize(
    ("changes", "state"),
    [({"exit_status": 3}, "failed"), ({"lost": {"guest": "vcn1-1"}}, "node_fail"),
     ({"refusal": {"what": "x"}}, "stopped"),
     ({"exit_status": None, "verdict": {"action": "requeue"}}, "stopped")],
)  # fmt: skip
def test_archive_of_a_job_that_ended_otherwise_says_so(changes: dict[str, t.Any], state: str) -> None:
    meta = clustercockpit.archive_of(job(**changes), job_series(), "hpc1").meta
    jsonschema.validate(meta, META)
    assert meta["jobState"] == state


def test_archive_of_an_array_member_and_of_an_empty_record_is_one() -> None:
    meta = clustercockpit.archive_of(job("72[3].head"), job_series(), "hpc1").meta
    jsonschema.validate(meta, META)
    assert (meta["jobId"], meta["arrayJobId"]) == (72, 72)
    empty = JobRecord("1.head", 1, pathlib.Path("/nonexistent"), "", {})
    jsonschema.validate(clustercockpit.archive_of(empty, job_series(), "c").meta, META)


def test_archive_of_a_long_job_has_few_steps() -> None:
    points = [(3000.0 * n, (30.0 * n, 0.0, 1, 1, 1, 1, 1)) for n in range(series.MOST_POINTS)]
    guest = series.GuestSeries("vcn1-1", 0, "", series.format_points(points))
    node = series.NodeSeries("cn1", 1.8e9, 30, series.NOT_KNOWN, "", (guest,))
    data = clustercockpit.archive_of(job(), series.JobSeries(1, (node,)), "c").data
    assert len(data["cpu_load"]["node"]["series"][0]["data"]) <= clustercockpit.MOST_STEPS + 1
    jsonschema.validate(data, DATA)


def test_trace_has_the_form_of_otlp_and_a_span_for_each_phase() -> None:
    """https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding"""
    trace = json.loads(json.dumps(otlp.trace_of(job())))
    ((resource,), (scope,)) = trace["resourceSpans"], trace["resourceSpans"][0]["scopeSpans"]
    spans = scope["spans"]
    names = [span["name"] for span in spans]
    assert names[:4] == ["job", "prologue", "present.cn1", "epilogue"]
    assert names[4:6] == ["vcn1-1 disk", "vcn1-1 start"]
    assert len({span["traceId"] for span in spans}) == 1
    assert len({span["spanId"] for span in spans}) == len(spans)
    ids = {span["spanId"] for span in spans}
    for span in spans:
        assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
        assert re.fullmatch("[0-9a-f]{16}", span["spanId"])
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert span["kind"] == 1
        assert span.get("parentSpanId", spans[0]["spanId"]) in ids
    assert "parentSpanId" not in spans[0]
    assert spans[4]["parentSpanId"] == spans[2]["spanId"]
    assert spans[0]["status"] == {"code": 1}
    report = {one["key"]: one["value"] for one in resource["resource"]["attributes"]}
    assert report["service.name"] == {"stringValue": "vtorque"}
    assert report["vtorque.start"] == {"intValue": "1"}
    assert otlp.trace_of(job(exit_status=2))["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["status"] == {"code": 2}


def test_table_has_a_line_for_each_guest_and_moment_and_no_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(table.format_csv(job_series()))))
    assert len(rows) == 9
    assert rows[1] == {
        "time": "1800000030.000", "node": "cn1", "guest": "vcn1-1", "rank": "0", "tag": "tag", "cpu_s": "30",
        "wait_s": "0.5", "memory_bytes": "1048576", "read_bytes": "3000", "written_bytes": "", "received_bytes": "600",
        "sent_bytes": "300",
    }  # fmt: skip
    assert {row["tag"] for row in rows} == {"tag", "'=1+1"}


def test_name_of_a_job_is_data_in_every_form_and_never_more() -> None:
    """Nothing but a JSON text, where the form has a place for it."""
    assert EVIL not in table.format_csv(job_series())
    meta = clustercockpit.archive_of(job(), job_series(), "c").meta
    assert set(meta["metaData"]) == {"jobName"}
    assert "\x1b" not in json.dumps(meta, ensure_ascii=False)
    assert "script" not in json.dumps(otlp.trace_of(job()))
