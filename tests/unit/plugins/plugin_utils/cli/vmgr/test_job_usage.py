# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `vmgr job show` draws and advises, for records as jobs leave them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.job_record import JobRecord
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.samples.rates import GuestRates, Interval
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import series
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import to_dict
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import job_usage

GIB = 2**30
MIB = 2.0**20


def record(
    *guests: tuple[float, float], vcpus: int = 4, ram_mib: int = 8192, seconds: float = 1000.0, start: float = 10.0
) -> JobRecord:
    """A job that ended well.

    Args:
        guests: seconds of processor time and GiB of memory that each used.
        seconds: that the job ran.
        start: seconds that its start took.
    """
    made = [
        {"rank": rank, "name": f"vcn{rank}-1", "node": f"cn{rank}", "vcpus": vcpus, "ram_mib": ram_mib,
         "used": {"cpu_s": cpu_s, "ram_peak_bytes": gib * GIB}}
        for rank, (cpu_s, gib) in enumerate(guests)
    ]  # fmt: skip
    phases = {
        "prologue": {"began": 0.0, "seconds": start},
        "present.cn0": {"began": 0.0, "seconds": start},
        "epilogue": {"began": start + seconds, "seconds": 1.0},
    }
    raw = {"guests": made, "phases": phases, "ended": 2000.0, "exit_status": 0}
    return JobRecord("1.head", 1, pathlib.Path("/nonexistent"), "", raw)


@pytest.mark.parametrize(
    ("one", "advice"),
    [
        (record((3600, 6)), []),
        (record((980, 6)), ["vCPUs: 1.0 of 4 worked on average; vcpus=1 would do"]),
        (record((3600, 0.8)), ["memory: at most 10 % of 8G was used; ram=1536M would do"]),
        (
            record((3900, 6), (20, 5), (20, 5), (20, 5)),
            ["guests: vcn0-1 did 98 % of the work of 4 guests; does the program use all hosts of the job?"],
        ),
        (
            record((900, 0.8), (5, 0.1)),
            [
                "guests: vcn0-1 did 99 % of the work of 2 guests; does the program use all hosts of the job?",
                "vCPUs: 0.9 of 4 worked on average; vcpus=1 would do",
                "memory: at most 10 % of 8G was used; ram=1536M would do",
            ],
        ),
        (
            record((3, 0.1), seconds=2.0, start=45.0),
            [
                "start: the guests took 45 s to start and the job ran for 2.0 s; "
                "several short steps in one job start them once"
            ],
        ),
        (record((3, 0.1), seconds=2.0), []),
        (record((100, 6), vcpus=1), []),
        (record((3600, 0.1), ram_mib=512), []),
    ],
    ids=["balanced", "vcpus", "memory", "one guest", "three", "start", "short", "one vCPU", "least memory"],
)  # fmt: skip
def test_advise_by_what_was_used(one: JobRecord, advice: list[str]) -> None:
    assert job_usage.advise(one) == advice


@pytest.mark.parametrize(
    "change",
    [{"refusal": {"what": "no"}}, {"lost": {"guest": "vcn0-1"}}, {"ended": None}, {"phases": {}}, {"guests": []}],
    ids=["refused", "lost", "running", "no phases", "no guests"],
)
def test_advise_nothing_of_a_job_that_did_not_run_to_its_end(change: dict[str, t.Any]) -> None:
    one = record((10, 0.1))
    one.raw.update(change)
    assert job_usage.advise(one) == []


def test_draw_a_bar_for_each_use() -> None:
    one = record((2020, 2), (404, 8.1))
    assert job_usage.draw(job_usage.uses_of(one), plain=True) == [
        "vcn0-1  vcpus   ############............   50 % of 4 vCPUs, 2.0 on average",
        "        memory  ######..................   25 % of 8.0G, 2.0G at most",
        "vcn1-1  vcpus   ##......................   10 % of 4 vCPUs, 0.4 on average",
        "        memory  ########################  100 % of 8.0G, 8.1G at most with qemu itself",
    ]
    assert job_usage.draw(job_usage.uses_of(one), plain=False)[1].count("█") == 6


def test_draw_leaves_out_what_is_not_known() -> None:
    one = record((2020, 2))
    one.raw["guests"][0]["used"] = {"cpu_s": 2020}
    assert [use.kind for use in job_usage.uses_of(one)] == ["vcpus"]
    one.raw["phases"] = {}
    assert job_usage.uses_of(one) == ()
    assert job_usage.draw((), plain=True) == []


def test_draw_of_many_guests_the_most_and_the_least_busy() -> None:
    one = record(*((rank * 40.0, 0.1) for rank in range(1, 101)))
    lines = job_usage.draw(job_usage.uses_of(one), plain=True)
    assert len(lines) == 2 * job_usage.MOST_GUESTS + 1
    assert lines[-1] == "92 guests between them are not listed: --json has all"
    names = {line.split()[0] for line in lines[:-1] if line.startswith("v")}
    assert {"vcn0-1", "vcn99-1"} <= names


def waiting(*waits_s: float) -> JobRecord:
    one = record(*((3600.0, 6.0) for _guest in waits_s))
    for guest, wait_s in zip(one.raw["guests"], waits_s, strict=True):
        guest["used"]["wait_s"] = wait_s
    return one


def test_advise_cores_of_their_own_where_vcpus_waited() -> None:
    assert job_usage.advise(waiting(100.0, 200.0)) == []
    assert job_usage.advise(waiting(100.0, 804.0)) == [
        "vCPUs: those of vcn1-1 waited 20 % of the time for a core of the node; "
        "vcpu_pinning=true gives each a core of its own"
    ]


def test_draw_a_bar_of_waits_where_they_are_known() -> None:
    lines = job_usage.draw(job_usage.uses_of(waiting(2020.0)), plain=True)
    assert lines[1] == "        waits   ############............   50 % of 4 vCPUs, 2.0 waited for a core on average"
    assert not any("waits" in line for line in job_usage.draw(job_usage.uses_of(record((3600, 6))), plain=True))


@pytest.mark.parametrize(
    ("energy", "line"),
    [
        (None, ""),
        ({}, ""),
        ({"cn0": {"joules": 820.4, "how": "measured"}, "cn1": {"joules": 11_480, "how": "measured"}},
         "energy: 12.3 kJ, measured"),
        ({"cn0": {"joules": 4.56e6, "how": "measured"}, "cn1": {"joules": 0, "how": "estimated"}},
         "energy: 4.56 MJ, estimated by processor time"),
        ({"cn0": {"joules": 820, "how": "measured"}}, "energy: 820 J, measured, of 1 of 2 nodes"),
        ({"cn0": {"joules": "much"}, "cn1": 3}, ""),
    ],
)  # fmt: skip
def test_energy_is_measured_estimated_or_absent(energy: object, line: str) -> None:
    one = record((3600, 6), (3600, 6))
    one.raw.update({"energy": energy, "nodes": ["cn0", "cn1"]})
    assert job_usage.format_energy(one) == line


def guest_rates(name: str, *moved: tuple[float, float | None, float | None]) -> GuestRates:
    """Return the rates of a guest: for each interval its seconds, and bytes per second of disks and of the network."""
    intervals, begin = [], 0.0
    for seconds, disk, net in moved:
        rates = {"read_bw": disk, "write_bw": None, "receive_bw": net, "send_bw": net}
        intervals.append(Interval(begin, begin + seconds, rates))
        begin += seconds
    return GuestRates(name, 0, "cn1", "", 0.0, tuple(intervals))


def test_traffic_is_measured_by_the_most_that_a_guest_has_reached() -> None:
    rates = (
        guest_rates("a", (30, 40 * MIB, 10.0), (90, 0.0, 10.0)),
        guest_rates("b", (60, 20 * MIB, None), (60, None, 10.0)),
    )
    assert job_usage.traffic_of(rates) == (
        job_usage.Use("a", "disk", 10 * MIB, 40 * MIB),
        job_usage.Use("b", "disk", 20 * MIB, 40 * MIB),
    )
    assert job_usage.draw(job_usage.traffic_of(rates), plain=True) == [
        "a  disk    ######..................   25 % of 40M/s at most, 10M/s on average",
        "b  disk    ############............   50 % of 40M/s at most, 20M/s on average",
    ]


def test_traffic_of_a_guests_own_start_has_no_bar() -> None:
    assert job_usage.traffic_of((guest_rates("a", (30, 2.0 * MIB, 1.0 * MIB)),)) == ()
    assert job_usage.traffic_of((guest_rates("a"),)) == ()
    (net,) = job_usage.traffic_of((guest_rates("a", (30, 2.0 * MIB, 2.0 * MIB)),))
    assert (net.kind, net.used, net.given) == ("net", 4 * MIB, 4 * MIB)


def test_uses_of_a_guest_stand_together(tmp_path: pathlib.Path) -> None:
    points = [(30.0 * n, (0.0, 0.0, MIB, n * 900 * MIB, 0, 0, 0)) for n in range(3)]
    guests = tuple(series.GuestSeries(f"vcn{rank}-1", rank, "", series.format_points(points)) for rank in range(2))
    whole = series.JobSeries(1, (series.NodeSeries("cn0", 1.0, 30, series.NOT_KNOWN, "", guests),))
    (tmp_path / layout.SERIES).write_text(json.dumps(to_dict(whole)))
    one = dataclasses.replace(record((2020, 2), (404, 8.1)), directory=tmp_path)
    assert [(use.guest, use.kind) for use in job_usage.all_uses(one)] == [
        (name, kind) for name in ("vcn0-1", "vcn1-1") for kind in ("vcpus", "memory", "disk")
    ]
    assert job_usage.all_uses(record((2020, 2))) == job_usage.uses_of(record((2020, 2)))
