# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page of a site reports, out of records, jobs and nodes."""

from __future__ import annotations

import dataclasses
import json
import random
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.site_report import facts
from ansible_collections.mikelangelo.vtorque.tests import made_up_week
from ansible_collections.mikelangelo.vtorque.tests.made_up_week import NOW

DAY = 86400.0


def week_of(*changes: dict[str, t.Any], **sources: t.Any) -> facts.SiteFacts:
    """Return the facts of one record for each of these changes."""
    dice = random.Random(1)
    raw = [made_up_week.record(1 + number, NOW - 60, dice) | one for number, one in enumerate(changes)]
    read = [made_up_week.read(one) for one in raw]
    return facts.collect(made_up_week.sources(0, **{"records": read, "jobs": (), **sources}))


def test_collect_counts_starts_by_day_and_outcome() -> None:
    found = week_of(
        {"ended": NOW - 60},
        {"ended": NOW - 60, "exit_status": 1},
        {"ended": NOW - DAY, **made_up_week.failed("user", "refuse")},
        {"ended": NOW - DAY, **made_up_week.failed("node", "requeue", "cn07")},
        {"ended": NOW - 6 * DAY, **made_up_week.failed("site", "hold")},
        {"ended": NOW - 6 * DAY, "lost": {"guest": "vcn1-1", "node": "cn1"}},
        {"ended": NOW - 7 * DAY},
        {"ended": None, "phases": {}},
    )
    assert [(day.date, day.counts) for day in found.days if day.counts] == [
        ("2026-11-20", {"lost": 1, "held": 1}),
        ("2026-11-25", {"refused": 1, "requeued": 1}),
        ("2026-11-26", {"finished": 2}),
    ]
    assert [day.date for day in found.days] == [f"2026-11-{number}" for number in range(20, 27)]
    assert (found.starts, found.undated) == (6, 1)


def test_collect_counts_verdicts_with_the_nodes_that_went_offline() -> None:
    found = week_of(
        {"ended": NOW - 300, **made_up_week.failed("node", "requeue", "cn07")},
        {"ended": NOW - 100, **made_up_week.failed("node", "requeue", "cn03")},
        {"ended": NOW - 200, **made_up_week.failed("node", "requeue")},
        {"lost": {"guest": "vcn1-1", "node": "cn1"}},
    )
    assert found.verdicts == (
        facts.VerdictCount("node", "requeue", 3, ("cn03", "cn07"), NOW - 100),
        facts.VerdictCount("guest", "lost", 1, (), NOW - 60),
    )


def test_collect_gives_start_times_of_jobs_that_ran_by_image() -> None:
    def start(image: str, seconds: float, **more: t.Any) -> dict[str, t.Any]:
        guests = [{"rank": 0, "node": "cn1", "image": image}, {"rank": 1, "node": "cn1", "image": image}]
        return {"guests": guests, "phases": {"prologue": {"began": NOW - 900, "seconds": seconds}}, **more}

    found = week_of(
        start("a@1", 3.0),
        start("a@1", 1.0),
        start("a@1", 9.0, verdict={"action": "requeue"}),
        start("/home/alice/secret.img", 2.0),
        {"guests": [{"image": "b@1"}], "phases": {}},
    )
    assert found.images == (
        facts.ImageStarts("a@1", (1.0, 3.0)),
        facts.ImageStarts("image of a user", (2.0,)),
    )
    assert "secret" not in json.dumps(found.to_dict())


@pytest.mark.parametrize(("share", "seconds"), [(0.5, 51.0), (0.9, 91.0), (1.0, 100.0), (0.0, 1.0)])
def test_quantile_is_a_time_within_which_that_share_was_over(share: float, seconds: float) -> None:
    starts = facts.ImageStarts("a", tuple(float(number) for number in range(1, 101)))
    assert starts.quantile(share) == seconds


def test_collect_divides_a_job_into_its_parts() -> None:
    """The start's are those of the guest whose node answered last; together they are the whole time."""
    phases = {
        "prologue": {"began": NOW - 100, "seconds": 10.0},
        "present.cn1": {"began": NOW - 99, "seconds": 3.0},
        "present.cn2": {"began": NOW - 99, "seconds": 7.0},
        "epilogue": {"began": NOW - 30, "seconds": 2.0},
    }
    guests = [
        {"rank": 0, "node": "cn1", "seconds": {"disk": 0.1, "ready": 2.0}},
        {"rank": 1, "node": "cn2", "seconds": {"disk": 0.5, "start": 0.5, "address": 2.0, "ready": 3.0}},
    ]
    (job,) = week_of({"phases": phases, "guests": guests}).listed
    assert [(one.kind, round(one.seconds, 3)) for one in job.pieces] == [
        ("prepare", 2.0),
        ("disk", 0.5),
        ("start", 0.5),
        ("address", 2.0),
        ("ready", 3.0),
        ("finish", 2.0),
        ("run", 60.0),
        ("end", 2.0),
    ]


@pytest.mark.parametrize(
    "phases",
    [
        pytest.param({}, id="none"),
        pytest.param({"epilogue": {"began": NOW, "seconds": 1}}, id="no prologue"),
        pytest.param({"prologue": {"began": NOW, "seconds": 5}, "present.cn1": {"began": NOW + 50, "seconds": 9}},
                     id="clocks differ"),
        pytest.param({"prologue": {"began": NOW, "seconds": 5}, "present.cn1": {"began": 0, "seconds": 0}},
                     id="before all"),
        pytest.param({"prologue": {"began": NOW, "seconds": 5}, "epilogue": {"began": NOW - 9, "seconds": 1}},
                     id="the end before the beginning"),
        pytest.param({"prologue": "no", "epilogue": [], "x": {"began": "1"}}, id="other forms"),
    ],
)  # fmt: skip
def test_collect_of_times_that_cannot_be_gives_no_negative_part(phases: dict[str, t.Any]) -> None:
    guests = [{"rank": 0, "node": "cn1", "seconds": {"disk": 1, "ready": 400}}]
    (job,) = week_of({"phases": phases, "guests": guests}).listed
    assert all(one.seconds > 0 for one in job.pieces)


def test_collect_lists_running_jobs_of_vtorque_alone_and_counts_those_that_wait() -> None:
    found = week_of(jobs=made_up_week.jobs())
    assert [(job.job_id, job.state, job.nodes) for job in found.running] == [
        ("6000.head", "running", ("cn01",)),
        ("6001.head", "running", ("cn02", "cn07")),
        ("6002.head", "suspended", ("cn03",)),
        ("6003.head", "running", ("cn04", "cn09")),
    ]
    assert (found.waiting, found.held) == (2, 0)


def test_collect_without_a_server_lists_jobs_whose_record_says_that_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.job_record._runs",
                        lambda _job, _start: True)  # fmt: skip
    found = week_of({"ended": None}, fault="no answer")
    assert [job.job_id for job in found.running] == ["1.head"]
    assert found.starts == 0


def test_collect_reports_nodes_with_their_notes() -> None:
    found = {node.name: node for node in week_of().nodes}
    assert (found["cn07"].offline, found["cn07"].noted_by_vtorque) == (True, True)
    assert (found["cn08"].note, found["cn08"].noted_by_vtorque) == ("new kernel on Monday", False)
    assert (found["cn01"].jobs, found["cn09"].note) == (1, "")


def test_collect_lists_the_latest_and_counts_the_others() -> None:
    found = facts.collect(made_up_week.sources(900))
    assert (len(found.listed), found.starts) == (facts.MOST_LISTED, 900)
    moments = [job.moment for job in found.listed]
    assert moments == sorted(moments, reverse=True)
    assert sum(sum(day.counts.values()) for day in found.days) == 900


@pytest.mark.parametrize(("ended", "incomplete"), [(NOW - 60, True), (NOW - 20 * DAY, False)])
def test_collect_says_whether_records_of_these_days_were_left_out(ended: float, incomplete: bool) -> None:
    assert week_of({"ended": ended}, unread=5).incomplete is incomplete


def test_collect_keeps_what_is_the_owners_alone_out() -> None:
    """Reasons, requests, addresses and consoles are in a record, and never among the facts."""
    owned = {
        "request": {"metadata": "/home/alice/CANARY"},
        "refusal": {"what": "CANARY", "why": "CANARY", "lines": ["CANARY"]},
        "error": {"what": "CANARY"},
        "lost": {"guest": "CANARY", "console": "CANARY", "reason": "CANARY"},
        "vm_prologue": {"CANARY": "CANARY"},
        "left": ["CANARY"],
    }
    dice = random.Random(1)
    raw = made_up_week.record(1, NOW - 60, dice, **owned)
    raw["guests"][0] |= {"address": "CANARY", "mac": "CANARY", "name": "CANARY", "devices": "CANARY"}
    found = facts.collect(made_up_week.sources(0, records=[made_up_week.read(raw)]))
    assert found.starts == 1
    assert "CANARY" not in json.dumps(found.to_dict())


def test_collect_reports_figures_only_where_the_record_has_them() -> None:
    energy = {"cn1": {"joules": 5000.0, "how": "measured"}, "cn2": {"joules": 400, "how": "estimated"}, "cn3": {}}
    found = {
        job.job_id: job for job in week_of({"guests": [], "energy": {}}, {"energy": energy}, {"energy": "5 kJ"}).listed
    }
    bare, rich, odd = (found[f"{number}.head"] for number in (1, 2, 3))
    assert (bare.cpu_share, bare.wait_share, bare.energy_j, bare.energy_estimated) == (None, None, None, False)
    assert (rich.energy_j, rich.energy_estimated) == (5400.0, True)
    assert 0 < (rich.cpu_share or 0) <= 1
    assert odd.energy_j is None


@pytest.mark.parametrize("value", [None, 7, "text", [1], {"a": [2]}, True, -1.5, "x" * 10_000])
@pytest.mark.parametrize("key", [*sorted(made_up_week.record(1, NOW, random.Random(1))), "verdict", "lost", "refusal"])
def test_collect_of_a_record_of_another_form_fails_nowhere(key: str, value: object) -> None:
    if key in ("job_id", "start"):  # the name of its directory has these
        return
    found = week_of({key: value})
    assert found.starts + found.undated + len(found.running) <= 1
    assert json.dumps(dataclasses.asdict(found))
