# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Series of figures on the wire: read as they were written, never longer than their bounds, tags that are plain."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import series
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError, from_dict, to_dict
from hypothesis import given
from hypothesis import strategies as st

SECONDS = st.floats(0, 1e9).map(lambda value: round(value, 3))
COUNT = st.none() | st.integers(0, 2**53)
POINTS = st.lists(
    st.tuples(SECONDS, st.tuples(st.none() | SECONDS, st.none() | SECONDS, COUNT, COUNT, COUNT, COUNT, COUNT)),
    max_size=series.MOST_POINTS,
)


def node_series(count: int, points: t.Sequence[t.Any], node: str = "cn1") -> series.NodeSeries:
    text = series.format_points(points)
    guests = tuple(series.GuestSeries(f"v{node}-{slot}", slot, "tag", text) for slot in range(count))
    return series.NodeSeries(node, 1.8e9, 30, 12.5, series.MEASURED, guests)


@given(POINTS)
def test_points_are_of_the_form_and_read_back(points: list[t.Any]) -> None:
    one = node_series(2, points)
    assert from_dict(series.NodeSeries, json.loads(json.dumps(to_dict(one)))) == one
    assert series.read_points(one.guests[0].points) == tuple(points)


@given(st.integers(0, 500).map(range), st.integers(2, series.MOST_POINTS))
def test_thinning_keeps_both_ends_and_the_bound(points: range, most: int) -> None:
    thinner = series.thin(points, most)
    assert len(thinner) == min(len(points), most)
    assert thinner[:1] + thinner[-1:] == [*points[:1], *points[-1:]]
    assert thinner == sorted(set(thinner))


@pytest.mark.parametrize(("nodes", "guests"), [(1, 1), (1, 4), (300, 4), (50, 200)])
def test_series_of_a_job_stay_within_their_limit(nodes: int, guests: int) -> None:
    widest = (999_999_999.999, (999_999_999_999.0, 999_999_999_999.0, *[2**63 - 1] * 5))
    one = node_series(guests, [widest] * series.MOST_POINTS)
    joined = series.join_series([one] * nodes)
    assert sum(len(guest.points) for node in joined.nodes for guest in node.guests) <= series.JOB_LIMIT
    assert joined.nodes[0].guests, "something is there"
    assert from_dict(series.JobSeries, json.loads(json.dumps(to_dict(joined)))) == joined


@pytest.mark.parametrize(
    "points",
    ["0 1", "0 1 2 3 4 5 6 -1", "0 1 2 3 4 5 6 7;", "x 1 2 3 4 5 6 7", "0 1 2 3 4 5 6 7 8", "nan 1 2 3 4 5 6 7"],
)
def test_points_of_another_form_are_refused(points: str) -> None:
    good = to_dict(series.GuestSeries("vcn1-1", 0, "", ""))
    with pytest.raises(FormError):
        from_dict(series.GuestSeries, {**good, "points": points})


def test_tag_is_the_sites_form_with_what_it_names() -> None:
    report = {"user": "alice", "job_id": "7.head", "node": "cn1", "rank": 2}
    form = "snapTask-[username]-[jobid]-[node].[rank]-[other]"
    assert series.format_tag(form, **report) == "snapTask-alice-7.head-cn1.2-[other]"  # type: ignore[arg-type]


@given(st.text())
def test_tag_of_any_form_is_plain(form: str) -> None:
    tag = series.format_tag(form, user="[jobid]", job_id="7.head", node="cn1", rank=0)
    assert from_dict(series.GuestSeries, {"name": "vcn1-1", "rank": 0, "tag": tag, "points": ""}).tag == tag
