# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dashboard for Grafana asks for what nodes write, and nothing else, and a real Prometheus answers it."""

from __future__ import annotations

import functools
import http
import json
import pathlib
import re
import subprocess
import threading
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.telemetry import textfile

from tests.unit.exposition import PROGRAMS

ROOT = pathlib.Path(__file__).resolve().parents[3]
DASHBOARD = ROOT / "docs/admin/vtorque-grafana.json"
LABELS = {"jobid", "rank", "node", "user", "image", "tag", "source"}
LANGUAGE = {"sum", "rate", "by", "on", "group_left"}
VARIABLES = {"jobid", "node", "datasource"}
LISTENING = re.compile(r'msg="Listening on" address=(\S+)')
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


POINTS = 8  # more than the five minutes that the queries look back
STEP_S = 60


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


def with_time(text: str, time_s: int) -> str:
    """The text of a node as Prometheus keeps it: each sample with the time at which it was read."""
    return "".join(line if line.startswith("#") else f"{line.rstrip()} {time_s}\n" for line in text.splitlines(True))


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[t.Callable[[str, dict[str, str]], t.Any]]:
    """A question to a Prometheus that has read the figures of a job."""
    place = tmp_path_factory.mktemp("prometheus")
    begin = int(time.time()) - POINTS * STEP_S
    by_metric: dict[str, list[str]] = {}
    for moment in range(POINTS):
        read = with_time(textfile.format_samples(samples_at(moment)), begin + moment * STEP_S)
        for line in read.splitlines():
            name = line.split()[2] if line.startswith("#") else line.partition("{")[0]
            if line not in by_metric.setdefault(name, []):
                by_metric[name].append(line)
    history = place / "history.txt"
    history.write_text("\n".join(line for lines in by_metric.values() for line in lines) + "\n# EOF\n")
    promtool = [PROGRAMS / "promtool", "tsdb", "create-blocks-from", "openmetrics", history, place / "data"]
    subprocess.run(promtool, check=True, capture_output=True)
    (place / "prometheus.yml").write_text("{}")
    command = [PROGRAMS / "prometheus", f"--config.file={place}/prometheus.yml", f"--storage.tsdb.path={place}/data",
               "--web.listen-address=127.0.0.1:0"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=place) as server:
        try:
            assert server.stderr
            address = next(match[1] for line in server.stderr if (match := LISTENING.search(line)))
            threading.Thread(target=server.stderr.read, daemon=True).start()  # a full pipe would stop it
            yield functools.partial(ask_server, f"http://{address}/api/v1", begin + (POINTS - 1) * STEP_S)
        finally:
            server.terminate()


def ask_server(address: str, now_s: int, path: str, arguments: dict[str, str]) -> t.Any:
    query = urllib.parse.urlencode({**arguments, "time": str(now_s)})
    while True:
        try:
            with urllib.request.urlopen(f"{address}/{path}?{query}") as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.SERVICE_UNAVAILABLE:  # it listens before it has read its files
                raise AssertionError(error.read().decode()) from error
            time.sleep(0.05)


@pytest.mark.parametrize("query", queries())
def test_prometheus_answers_query_with_figures_of_the_job(
    query: str, ask: t.Callable[[str, dict[str, str]], t.Any]
) -> None:
    found = ask("query", {"query": re.sub(r"\$(jobid|node)", ".*", query)})["result"]
    values = [float(series["value"][1]) for series in found]
    assert values
    summed = query.startswith(("sum(", "sum by (jobid", "sum by (user"))
    assert values == pytest.approx([2.0] if summed else [1.0, 1.0])


def test_variables_of_the_dashboard_are_labels_that_prometheus_has(
    ask: t.Callable[[str, dict[str, str]], t.Any],
) -> None:
    asked = [one["query"] for one in load_dashboard()["templating"]["list"] if one["type"] == "query"]
    found = {}
    for query in asked:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]
        found[label] = ask(f"label/{label}/values", {"match[]": metric})
    assert found == {"jobid": ["7.head"], "node": ["cn1", "cn2"]}
