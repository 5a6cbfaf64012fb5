# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboard for Grafana asks for what nodes write, and nothing else; promtool reads it where that is installed."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.telemetry import textfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "docs/admin/vtorque-grafana.json"
LABELS = {"jobid", "rank", "node", "user", "image", "tag", "source"}
LANGUAGE = {"sum", "rate", "by", "on", "group_left"}
VARIABLES = {"jobid", "node", "datasource"}
TOKEN = re.compile(r"""\s+|"[^"\n]*"|\[[0-9]+[smhd]\]|=~|[a-zA-Z_][a-zA-Z0-9_]*|[(){},/*=]""")


def load_dashboard() -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(DASHBOARD.read_text(encoding="utf-8")))


def queries() -> list[str]:
    return [target["expr"] for panel in load_dashboard()["panels"] for target in panel["targets"]]


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


def test_queries_are_valid_for_prometheus_itself(tmp_path: pathlib.Path) -> None:
    """As rules, whose expressions promtool parses; without it the reader above is what there is."""
    rules = [
        {"record": f"dashboard:query{number}", "expr": re.sub(r"\$[a-z]+", ".*", query)}
        for number, query in enumerate(queries())
    ]
    assert not any("$" in rule["expr"] for rule in rules)
    program = shutil.which("promtool")
    if program:
        path = tmp_path / "rules.yml"
        path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
        done = subprocess.run([program, "check", "rules", str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
