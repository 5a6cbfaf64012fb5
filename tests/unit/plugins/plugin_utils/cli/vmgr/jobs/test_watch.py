# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs as they go on, looked at as a user does: on a terminal of their own, and as lines in a pipe."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.jobs import watch

from tests.screen import read_screen

HOSTILE = "evil\x1b[2J[bold]name"


def batch_job(state: str, **changes: t.Any) -> BatchJob:
    facts: dict[str, t.Any] = dict.fromkeys(
        ("owner_host", "euser", "egroup", "queue", "jobtype", "init_work_dir", "submit_args", "account"), ""
    )
    facts |= dict.fromkeys(("start_count", "session_id", "substate", "walltime_s"), 0)
    facts |= {
        "job_id": "7.head", "name": HOSTILE, "owner_user": "alice", "state": state, "slot_hosts": (), "x": "vtorque:",
        "interactive": False, "variables": {}, "resource_list": {}, **changes,
    }  # fmt: skip
    return BatchJob(**facts)


class Batch:
    """A server that tells one thing after the other, and the last for ever."""

    def __init__(self, *report: BatchJob | Exception | tuple[BatchJob, ...]) -> None:
        self.reported = list(report)

    def _next(self) -> t.Any:
        report = self.reported.pop(0) if len(self.reported) > 1 else self.reported[0]
        if isinstance(report, Exception):
            raise report
        return report

    def job(self, _job_id: str) -> BatchJob:
        return t.cast(BatchJob, self._next())

    def all_jobs(self) -> tuple[BatchJob, ...]:
        return t.cast("tuple[BatchJob, ...]", self._next())


GONE = UnknownJob("7.head", "is not known")
LIFE = (
    batch_job("Q"),
    batch_job("R", slot_hosts=("cn1", "cn1", "cn2")),
    batch_job("S", slot_hosts=("cn1", "cn2")),
    batch_job("C", slot_hosts=("cn1", "cn2"), exit_status=3),
    GONE,
)


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> t.Callable[..., Batch]:
    """A batch server, and no records."""
    monkeypatch.setattr(watch, "PREFIX", "vtorque:")
    monkeypatch.setattr(watch, "RECORD_S", 0.0)
    monkeypatch.setattr(watch.location, "find_id", lambda job, _policy: {"7": "7.head"}.get(job, ""))
    monkeypatch.setattr(watch, "find_record", lambda _job_id: None)

    def live(*report: t.Any) -> Batch:
        batch = Batch(*report)
        monkeypatch.setattr(watch, "open_batch", lambda *_policy, **_how: batch)
        return batch

    return live


def call(job: str | None = "7") -> argparse.Namespace:
    return argparse.Namespace(job=job, every=0.1)


def test_watch_in_a_pipe_prints_a_line_for_each_change(
    life: t.Callable[..., Batch], capsys: pytest.CaptureFixture[str]
) -> None:
    life(*LIFE[:2], LIFE[1], *LIFE[2:])
    assert watch.run(call(), Policy) == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [line[3] for line in lines] == ["queued", "running", "suspended", "ended, exit status 3"]
    assert [line[5] for line in lines] == ["-", "cn1,cn2", "cn1,cn2", "cn1,cn2"]
    assert "\x1b" not in str(lines)


def test_watch_of_a_job_that_is_not_known_says_so(life: t.Callable[..., Batch]) -> None:
    life(GONE)
    with pytest.raises(UserFault, match="does not know it"):
        watch.run(call(), Policy)
    with pytest.raises(UserFault, match="does not know it"):
        watch.run(call("8"), Policy)


def test_watch_of_a_server_that_is_silent_fails_at_first_and_waits_later(
    life: t.Callable[..., Batch], capsys: pytest.CaptureFixture[str]
) -> None:
    silent = SiteFault("qstat", "no answer")
    life(silent)
    with pytest.raises(SiteFault):
        watch.run(call(), Policy)
    life(LIFE[0], silent, silent, *LIFE[3:])
    assert watch.run(call(), Policy) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[2] for line in lines][1] == "qstat: no answer"
    assert len(lines) == 3


def test_watch_of_all_jobs_lists_those_of_the_user_in_guests(
    life: t.Callable[..., Batch], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch.os, "getuid", lambda: 4711)
    monkeypatch.setattr(watch.pwd, "getpwuid", lambda _uid: argparse.Namespace(pw_name="alice"))
    others = (batch_job("R", job_id="8.head", owner_user="bob"), batch_job("R", job_id="9.head", x=""))
    life((LIFE[0], *others), others)
    assert watch.run(call(None), Policy) == 0
    out = capsys.readouterr().out
    assert "8.head" not in out
    assert "9.head" not in out
    assert [line.split("  ")[3] for line in out.splitlines()] == ["queued", "gone"]


def test_watch_without_jobs_ends_at_once(life: t.Callable[..., Batch], capsys: pytest.CaptureFixture[str]) -> None:
    life(())
    assert watch.run(call(None), Policy) == 0
    assert "no jobs in guests" in capsys.readouterr().out


def test_phase_of_a_node_is_named_without_the_node(
    life: t.Callable[..., Batch],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`present.cn1` and `absent.cn1` are keys of the record, and no words for a user."""
    for last, expected in (("plan", "plan"), ("present.cn1", "guests"), ("absent.cn1", "gone")):
        phases = {name: {"began": 1.0, "seconds": 1.0} for name in ("prologue", last)}
        record = job_record.JobRecord("7.head", 1, tmp_path, "", {"guests": [], "phases": phases})
        monkeypatch.setattr(watch, "find_record", lambda _job_id, record=record: record)
        life(LIFE[1], *LIFE[3:])
        assert watch.run(call(), Policy) == 0
        assert capsys.readouterr().out.split("  ")[4] == expected


def test_work_is_a_bar_for_each_of_the_last_samples(tmp_path: pathlib.Path) -> None:
    lines = [{"began": 1.0, "every_s": 30, "guests": {}}]
    total = 0.0
    for number, share in enumerate([0.0, *[0.0] * 20, 0.5, 1.0, 3.0]):
        total += share * 2 * 30
        lines.append({"at": 30.0 * number, "guests": {"vcn1-1": [total, None, 1, 1, 1, 1, 1]}, "energy": None})
    (tmp_path / layout.SAMPLES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    guests = [{"rank": 0, "name": "vcn1-1", "vcpus": 2}]
    record = job_record.JobRecord("7.head", 1, tmp_path, "", {"guests": guests})
    bars = watch.work_of(record)
    assert len(bars) == watch.LAST_SAMPLES
    assert bars[-4:] == "▁▅██"
    (tmp_path / layout.SAMPLES).write_text("{}\n{}\n[3]\n")
    assert watch.work_of(record) == ""


PROGRAM = """
import argparse, sys, time
sys.path.insert(0, {checkout!r})
from tests.unit.plugins.plugin_utils.cli.vmgr.jobs import test_watch as here
watch = here.watch
watch.PREFIX, watch.RECORD_S = "vtorque:", 0.0
watch.location.find_id = lambda job, _policy: "7.head"
watch.find_record = lambda _job_id: None
batch = here.Batch(*here.LIFE)
watch.open_batch = lambda *_policy, **_how: batch
sys.exit(watch.run(argparse.Namespace(job="7", every=0.3), here.Policy))
"""


def test_watch_on_a_terminal_draws_a_job_from_queued_to_gone() -> None:
    checkout = pathlib.Path(__file__).resolve().parents[7]
    paths = ":".join([f"{checkout}/build/import", str(checkout), os.environ.get("PYTHONPATH", "")]).rstrip(":")
    status, screen = read_screen(
        [sys.executable, "-c", PROGRAM.format(checkout=str(checkout))], (24, 100), checkout=checkout, PYTHONPATH=paths
    )
    assert status == 0, screen.text
    seen = ("asking the batch server", "queued", "running", "suspended", "ended, exit status 3")
    moments = [next(n for n, frame in enumerate(screen.frames) if text in frame) for text in seen]
    assert moments == sorted(moments)
    heading, _line, row = screen.lines[-3:]
    assert heading.split() == ["job", "name", "user", "state", "nodes"]
    assert row.split() == ["7.head", "evil?[2J[bold]name", "alice", "ended,", "exit", "status", "3", "cn1,cn2"]
    assert next(line for line in screen.lines if line) == heading, "it was drawn over what was there before"


def write_record(directory: pathlib.Path, start: int, **facts: object) -> None:
    place = directory / f"7.head.{start}"
    place.mkdir(parents=True)
    record = {"version": 1, "job_id": "7.head", "start": start, **facts}
    (place / "record.json").write_text(json.dumps(record))


def test_job_that_runs_elsewhere_stands_as_its_node_has_shown_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Its former start has a whole record here; when that of this start comes, it counts."""
    monkeypatch.setattr(watch.job_record, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(watch, "RUNNING", tmp_path / "running")
    assert watch.find_record("7.head") is None
    write_record(tmp_path / "records", 1, ended=5.0)
    found = watch.find_record("7.head")
    assert found is not None
    assert (found.start, found.ended) == (1, 5.0)
    guests = [{"rank": 0, "name": "vcn1-1", "vcpus": 2}]
    write_record(tmp_path / "running", 2, phases={"prologue": {"began": 1.0, "seconds": 2.0}}, guests=guests)
    found = watch.find_record("7.head")
    assert found is not None
    assert (found.start, found.ended, list(found.phases)) == (2, None, ["prologue"])
    write_record(tmp_path / "records", 2, ended=9.0)
    found = watch.find_record("7.head")
    assert found is not None
    assert (found.start, found.ended) == (2, 9.0)


def test_samples_that_came_long_ago_say_so(tmp_path: pathlib.Path) -> None:
    write_record(tmp_path, 1, guests=[{"rank": 0, "name": "vcn1-1", "vcpus": 2}])
    lines = [{"began": 1.0}, *({"at": at, "guests": {"vcn1-1": [at * 2, 0, 0, 0, 0, 0, 0]}} for at in (0, 30, 60))]
    samples = tmp_path / "7.head.1/samples.jsonl"
    samples.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    record = watch.job_record.find("7.head", tmp_path)
    assert watch.work_of(record) == "██"
    os.utime(samples, (time.time() - 600,) * 2)
    assert watch.work_of(record) == "██ 10 min ago"


BEGINNING = """
import os, sys
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.jobs import watch

def print_modules(*_arguments):
    print(*{module.partition(".")[0] for module in sys.modules}, file=sys.__stderr__)
    sys.__stderr__.flush()
    os._exit(0)

watch._watch = print_modules  # what follows is the server's time
sys.stdout.isatty = lambda: True
main.run_subject(["job", "watch", "7"])
"""
SLOW = set(["ansible", "jinja2", "libvirt", "lxml", "requests", "oslo_utils", "jsonschema", "http", "asyncio", "email"])
"""What takes long to load; `make bench PART=page` measures how soon the command begins (`job_watch_s`)."""


def test_watch_begins_without_what_takes_long_to_load() -> None:
    done = subprocess.run([sys.executable, "-c", BEGINNING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert {"rich", "ansible_collections"} <= loaded
    assert loaded & SLOW == set()
