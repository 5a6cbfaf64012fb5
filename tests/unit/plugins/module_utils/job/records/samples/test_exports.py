# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job in the forms of other programs, checked against their public forms."""

from __future__ import annotations

import csv
import io
import json
import pathlib
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
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.unit import clustercockpit_forms as forms
from tests.unit.opentelemetry_form import read_trace

EVIL = '=cmd|"</script>\x1b[2J,\n'


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


@pytest.mark.parametrize(
    ("form", "public"), [(clustercockpit.NOW, forms.NOW), (clustercockpit.FORMER, forms.FORMER)], ids=["now", "former"]
)
def test_archive_is_what_clustercockpit_demands(form: clustercockpit.Form, public: forms.Form) -> None:
    archive = clustercockpit.archive_of(job(), job_series(), "hpc1", form)
    meta, data = json.loads(json.dumps(archive.meta)), json.loads(json.dumps(archive.data))
    public.check(meta, data)
    assert (meta["jobId"], meta["cluster"], meta["numNodes"], meta["duration"]) == (4711, "hpc1", 2, 80)
    assert (meta["jobState"], meta["numHwthreads"]) == ("completed", 6)
    (first, second) = data["cpu_load"]["node"]["series"]
    assert (first["hostname"], first["data"]) == ("cn1", [1.5, 2.5])
    assert second["hostname"] == "cn2"
    assert data["cpu_load"]["node"]["timestep"] == 30
    assert data["mem_used"]["node"]["series"][0]["data"] == [2 * 2**20, 4 * 2**20]
    assert data["net_bw"]["node"]["series"][0]["data"] == [60.0, 60.0]


def test_archive_of_one_form_is_refused_by_the_other() -> None:
    for form, other in ((clustercockpit.NOW, forms.FORMER), (clustercockpit.FORMER, forms.NOW)):
        archive = clustercockpit.archive_of(job(), job_series(), "hpc1", form)
        with pytest.raises(jsonschema.ValidationError):
            other.check(archive.meta, archive.data)


def test_archive_says_whether_the_job_was_alone() -> None:
    estimated = {"cn1": {"joules": 100, "how": "estimated"}, "cn2": {"joules": 20, "how": "estimated"}}
    for changes, now, former in (({}, "none", 1), ({"energy": estimated}, "multi_user", 0)):
        shared = clustercockpit.archive_of(job(**changes), job_series(), "c").meta["shared"]
        exclusive = clustercockpit.archive_of(job(**changes), job_series(), "c", clustercockpit.FORMER).meta
        assert (shared, exclusive["exclusive"]) == (now, former)


def test_archive_has_the_energy_of_all_nodes_or_none() -> None:
    both = {"cn1": {"joules": 100, "how": "measured"}, "cn2": {"joules": 20.25, "how": "estimated"}}
    assert clustercockpit.archive_of(job(energy=both), job_series(), "c").meta["energy"] == 120.2
    assert "energy" not in clustercockpit.archive_of(job(), job_series(), "c").meta


@pytest.mark.parametrize(
    ("changes", "now", "former"),
    [({"exit_status": 3}, "failed", "failed"), ({"lost": {"guest": "vcn1-1"}}, "node_fail", "failed"),
     ({"refusal": {"what": "x"}}, "boot_fail", "stopped"),
     ({"exit_status": None, "verdict": {"action": "requeue"}}, "boot_fail", "stopped")],
)  # fmt: skip
def test_archive_of_a_job_that_ended_otherwise_says_so(changes: dict[str, t.Any], now: str, former: str) -> None:
    for form, public, state in ((clustercockpit.NOW, forms.NOW, now), (clustercockpit.FORMER, forms.FORMER, former)):
        archive = clustercockpit.archive_of(job(**changes), job_series(), "hpc1", form)
        public.check(archive.meta, archive.data)
        assert archive.meta["jobState"] == state


def test_archive_of_an_array_member_and_of_an_empty_record_is_one() -> None:
    archive = clustercockpit.archive_of(job("72[3].head"), job_series(), "hpc1")
    forms.NOW.check(archive.meta, archive.data)
    assert (archive.meta["jobId"], archive.meta["arrayJobId"]) == (72, 72)
    empty = JobRecord("1.head", 1, pathlib.Path("/nonexistent"), "", {})
    jsonschema.validate(clustercockpit.archive_of(empty, job_series(), "c").meta, forms.NOW.meta)


def test_archive_of_a_long_job_has_few_steps() -> None:
    points = [(3000.0 * n, (30.0 * n, 0.0, 1, 1, 1, 1, 1)) for n in range(series.MOST_POINTS)]
    guest = series.GuestSeries("vcn1-1", 0, "", series.format_points(points))
    node = series.NodeSeries("cn1", 1.8e9, 30, series.NOT_KNOWN, "", (guest,))
    archive = clustercockpit.archive_of(job(), series.JobSeries(1, (node,)), "c")
    assert len(archive.data["cpu_load"]["node"]["series"][0]["data"]) <= clustercockpit.MOST_STEPS + 1
    forms.NOW.check(archive.meta, archive.data)


def parse_trace(record: JobRecord) -> trace_pb2.ResourceSpans:
    return read_trace(json.dumps(otlp.trace_of(record)))


def test_trace_is_read_by_opentelemetry_and_has_a_span_for_each_phase() -> None:
    found = parse_trace(job())
    (scope,) = found.scope_spans
    spans = scope.spans
    assert [span.name for span in spans][:6] == [
        "job", "prologue", "present.cn1", "epilogue", "vcn1-1 disk", "vcn1-1 start"
    ]  # fmt: skip
    assert {len(span.trace_id) for span in spans} == {16}
    assert {len(span.span_id) for span in spans} == {8}
    assert len({span.trace_id for span in spans}) == 1
    assert len({span.span_id for span in spans}) == len(spans)
    ids = {span.span_id for span in spans}
    for span in spans[1:]:
        assert span.parent_span_id in ids
    for span in spans:
        assert 1.8e18 - 1e11 < span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.kind == trace_pb2.Span.SPAN_KIND_INTERNAL
    assert spans[0].parent_span_id == b""
    assert spans[4].parent_span_id == spans[2].span_id
    assert spans[1].end_time_unix_nano - spans[1].start_time_unix_nano == 9_500_000_000
    assert spans[0].status.code == trace_pb2.Status.STATUS_CODE_OK
    facts = {one.key: one.value for one in found.resource.attributes}
    assert facts["service.name"].string_value == "vtorque"
    assert facts["vtorque.start"].int_value == 1
    assert facts["enduser.id"].string_value == "alice"
    failed = parse_trace(job(exit_status=2)).scope_spans[0].spans[0]
    assert failed.status.code == trace_pb2.Status.STATUS_CODE_ERROR


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
