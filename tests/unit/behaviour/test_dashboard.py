# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboard for Grafana asks for what nodes write, and nothing else, and a real Prometheus answers it."""

from __future__ import annotations

import json
import re
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.telemetry import textfile

from tests.unit.prometheus import MOMENTS, STEP_S, Ask, load_dashboard, opened, queries, with_any

LABELS = {"jobid", "rank", "node", "user", "image", "tag", "source"}
LANGUAGE = {"sum", "rate", "by", "on", "group_left"}
VARIABLES = {"jobid", "node", "datasource"}
TOKEN = re.compile(r"""\s+|"[^"\n]*"|\[[0-9]+[smhd]\]|=~|[a-zA-Z_][a-zA-Z0-9_]*|[(){},/*=]""")


def tokens_of(query: str) -> list[str]:
    found, at = [], 0
    while at < len(query):
        match = TOKEN.match(query, at)
        assert match, f"not understood: {query[at:]}"
        found.append(match[0])
        at = match.end()
    return [token for token in found if not token.isspace()]


@pytest.mark.parametrize("query", queries())
def test_query_asks_for_metrics_and_labels_that_there_are(query: str) -> None:
    tokens = tokens_of(query)
    names = {token for token in tokens if re.fullmatch(r"[a-zA-Z_]\w*", token)}
    metrics = {name for name in names if name.startswith("vtorque_")}
    assert metrics
    assert metrics <= set(textfile.METRICS)
    assert names - metrics - LANGUAGE <= LABELS
    for left, right in (("(", ")"), ("{", "}")):
        assert tokens.count(left) == tokens.count(right)


@pytest.mark.parametrize("query", queries())
def test_rates_are_of_counters_alone(query: str) -> None:
    rated = set(re.findall(r"rate\((\w+)", query))
    counters = {name for name, (kind, _meaning) in textfile.METRICS.items() if kind == "counter"}
    assert rated == set(re.findall(r"vtorque_\w+", query)) & counters


def test_every_metric_is_on_the_dashboard() -> None:
    assert set(re.findall(r"vtorque_\w+", " ".join(queries()))) == set(textfile.METRICS)


def test_panels_are_distinct_and_variables_are_defined() -> None:
    dashboard = load_dashboard()
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {one["name"] for one in dashboard["templating"]["list"]} == VARIABLES
    used = set(re.findall(r"\$\{?([a-z]+)", " ".join(json.dumps(panel) for panel in panels)))
    assert used <= VARIABLES


def samples_at(moment: int) -> list[textfile.Sample]:
    """Each metric of two guests of a job on two nodes; counters grow by a second's worth each second."""
    found = []
    for metric, (kind, _meaning) in textfile.METRICS.items():
        for rank, node in enumerate(("cn1", "cn2")):
            labels = [("node", node)]
            if metric.startswith(("vtorque_guest_", "vtorque_job_")):
                labels += [("jobid", "7.head"), ("rank", str(rank))]
            if metric == "vtorque_guest_info":
                labels += [("user", "alice"), ("image", "debian12"), ("tag", "")]
            if metric == "vtorque_job_energy_joules_total":
                labels += [("source", "measured")]
            value = float(moment * STEP_S) if kind == "counter" else 1.0
            found.append(textfile.Sample(metric, tuple(labels), value))
    return found


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Ask]:
    """A question to a Prometheus that has read the figures of a job."""
    texts = [textfile.format_samples(samples_at(moment)) for moment in range(MOMENTS)]
    with opened(tmp_path_factory.mktemp("prometheus"), texts) as question:
        yield question


@pytest.mark.parametrize("query", queries())
def test_prometheus_answers_query_with_figures_of_the_job(query: str, ask: Ask) -> None:
    found = ask("query", {"query": with_any(query)})["result"]
    values = [float(series["value"][1]) for series in found]
    assert values
    summed = query.startswith(("sum(", "sum by (jobid", "sum by (user"))
    assert values == pytest.approx([2.0] if summed else [1.0, 1.0])


def test_variables_of_the_dashboard_are_labels_that_prometheus_has(
    ask: Ask,
) -> None:
    asked = [one["query"] for one in load_dashboard()["templating"]["list"] if one["type"] == "query"]
    found = {}
    for query in asked:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]
        found[label] = ask(f"label/{label}/values", {"match[]": metric})
    assert found == {"jobid": ["7.head"], "node": ["cn1", "cn2"]}
