# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Prometheus that has read the files of nodes, and the queries of the dashboard."""

from __future__ import annotations

import contextlib
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

from .exposition import PROGRAMS

DASHBOARD = pathlib.Path(__file__).resolve().parents[2] / "docs/admin/vtorque-grafana.json"
LISTENING = re.compile(r'msg="Listening on" address=(\S+)')
MOMENTS = 8
"""More than the five minutes that the queries look back."""
STEP_S = 60
Ask = t.Callable[[str, dict[str, str]], t.Any]


def load_dashboard() -> dict[str, t.Any]:
    """Return the dashboard as Grafana reads it."""
    return t.cast("dict[str, t.Any]", json.loads(DASHBOARD.read_text(encoding="utf-8")))


def queries() -> list[str]:
    """Return what the dashboard asks for, with its variables."""
    return [target["expr"] for panel in load_dashboard()["panels"] for target in panel["targets"]]


def with_any(query: str) -> str:
    """Return a query for all jobs and nodes."""
    return re.sub(r"\$(jobid|node)", ".*", query)


@contextlib.contextmanager
def opened(place: pathlib.Path, texts: t.Sequence[str]) -> t.Iterator[Ask]:
    """Run a Prometheus that has read files of nodes in the last minutes, and ask it about now.

    Args:
        place: a directory for its data.
        texts: of all files at each moment, `STEP_S` apart, the last one now.
    """
    begin = int(time.time()) - len(texts) * STEP_S
    by_metric: dict[str, list[str]] = {}
    for moment, text in enumerate(texts):
        for line in _with_time(text, begin + moment * STEP_S).splitlines():
            name = line.split()[2] if line.startswith("#") else line.partition("{")[0]
            if line not in by_metric.setdefault(name, []):
                by_metric[name].append(line)
    history = place / "history.txt"
    history.write_text("\n".join(line for lines in by_metric.values() for line in lines) + "\n# EOF\n")
    promtool: list[str | pathlib.Path] = [
        PROGRAMS / "promtool",
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        history,
        place / "data",
    ]
    subprocess.run(promtool, check=True, capture_output=True)
    (place / "prometheus.yml").write_text("{}")
    command: list[str | pathlib.Path] = [
        PROGRAMS / "prometheus",
        f"--config.file={place}/prometheus.yml",
        f"--storage.tsdb.path={place}/data",
        "--web.listen-address=127.0.0.1:0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=place) as server:
        try:
            assert server.stderr
            address = next(match[1] for line in server.stderr if (match := LISTENING.search(line)))
            threading.Thread(target=server.stderr.read, daemon=True).start()  # a full pipe would stop it
            yield functools.partial(_ask, f"http://{address}/api/v1", begin + (len(texts) - 1) * STEP_S)
        finally:
            server.terminate()


def _with_time(text: str, time_s: int) -> str:
    """The text of a node as Prometheus keeps it: each sample with the time at which it was read."""
    return "".join(line if line.startswith("#") else f"{line.rstrip()} {time_s}\n" for line in text.splitlines(True))


def _ask(address: str, now_s: int, path: str, arguments: dict[str, str]) -> t.Any:
    query = urllib.parse.urlencode({**arguments, "time": str(now_s)})
    while True:
        try:
            with urllib.request.urlopen(f"{address}/{path}?{query}") as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code != http.HTTPStatus.SERVICE_UNAVAILABLE:  # it listens before it has read its files
                raise AssertionError(error.read().decode()) from error
            time.sleep(0.05)
