# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque-sweep: what it says, to whom, and how it ends."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import time
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import mom_files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import parameters, policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import retention
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer import delivery
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import doctor, sweep
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import delivery_queue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import clock, files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_id
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.upkeep import node_sweep
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vtorque_sweep

OURS = "vtorque: bridge: bridge br0: is missing on this node (job 7.head)"
EARLIER = "00000000-0000-4000-8000-000000000000"


def sweeping_by(load: t.Callable[[], parameters.Policy]) -> t.Callable[..., node_sweep.Report]:
    """The sweep of a node whose site's policy is read so."""
    return functools.partial(node_sweep.sweep_by_policy, load=load)


class Server:
    """A batch server that knows no job, and one node."""

    def __init__(self) -> None:
        self.stored = ""
        self.silent = False

    def job(self, job_id: str) -> t.NoReturn:
        self._answer()
        raise UnknownJob(f"job {job_id}", "the batch server does not know it")

    def note(self, _node: str) -> str:
        self._answer()
        return self.stored

    def clear(self, _node: str, _note: str) -> bool:
        self._answer()
        self.stored = ""
        return True

    def _answer(self) -> None:
        if self.silent:
            raise SiteFault("qstat", "the batch server did not answer within 10 s")


class Site:
    """A node that can be swept, and what is said meanwhile."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.server = Server()
        self.wrong: tuple[NodeFault, ...] = ()
        self.logged: list[str] = []
        self.noted: list[tuple[str, int]] = []
        self.over: list[tuple[str, int]] = []
        self.settings = NodeSettings(
            node_name="cn1", node_number=1, state_dir=directory / "state", run_dir=directory / "run",
            libvirt_uri="test:///default", torque_home=directory / "torque",
        )  # fmt: skip
        (self.settings.torque_home / "mom_priv/jobs").mkdir(parents=True)
        patch.setattr(vtorque_sweep, "host_name", lambda: "cn1")
        patch.setattr(node_sweep, "settings_of", lambda _policy, _node: self.settings)
        patch.setattr(node_sweep, "NodeSettings", lambda **_names: self.settings)
        patch.setattr(node_sweep, "open_batch", lambda _policy, **_how: self.server)
        self.files = types.SimpleNamespace(
            alive_here=lambda _policy: mom_files.by_files(self.settings.torque_home),
            remove_notes=lambda is_over: self.over.extend(job for job in self.noted if is_over(*job)),
        )
        patch.setattr(node_sweep, "open_node", lambda _system: self.files)
        patch.setattr(node_sweep.node_health.causes, "troubles", lambda *_words: self.wrong)
        patch.setattr(vtorque_sweep.syslog, "syslog", lambda _level, line: self.logged.append(line))
        self.patch = patch

    def run(self, *arguments: str) -> int:
        return vtorque_sweep.run(arguments, sweeping_by(parameters.Policy))

    def leave(self, key: str = "7.head.1", boot: str = "") -> None:
        guest = self.settings.guests_dir / key / "vcn1-1"
        guest.mkdir(parents=True)
        (guest / "guest.json").write_text(json.dumps({"boot_id": boot or process_id.boot_id()}))

    @property
    def marked(self) -> bool:
        return (self.settings.run_dir / doctor.SWEPT).exists()

    def look_twice(self, seconds: float) -> None:
        self.patch.setattr(node_sweep.sweep, "sweep", functools.partial(sweep.sweep, twice_s=seconds))


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


Capture = pytest.CaptureFixture[str]


def test_sweep_that_did_nothing_prints_nothing_without_a_terminal(site: Site, capsys: Capture) -> None:
    assert site.run() == 0
    assert capsys.readouterr() == ("", "")
    assert site.logged == []
    assert site.marked


def test_person_is_told_that_there_was_nothing(site: Site, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtorque_sweep.sys.stdout, "isatty", lambda: True)
    assert site.run() == 0
    assert capsys.readouterr().out == "nothing of a job is on cn1\n"


def test_notes_of_the_hook_go_with_starts_that_neither_the_mom_nor_the_server_has(site: Site) -> None:
    site.noted = [("7.head", 1), ("8.head", 1)]
    (site.settings.torque_home / "mom_priv/jobs/8.head.JB").touch()
    assert site.run() == 0
    assert site.over == [("7.head", 1)]


def test_note_of_the_hook_that_stays_is_named(site: Site, capsys: Capture) -> None:
    def fail(_is_over: object) -> t.NoReturn:
        raise PermissionError(1, "Operation not permitted")

    site.files.remove_notes = fail
    assert site.run() == 1
    assert "a note of a job that is over stays: [Errno 1]" in capsys.readouterr().out


def test_suspect_is_left_at_the_first_look_and_gone_after_the_second(site: Site, capsys: Capture) -> None:
    site.leave()
    assert site.run() == 1
    assert capsys.readouterr().out.startswith("left     7.head.1: found over 0 s ago")
    assert site.run() == 1
    site.look_twice(0.0)
    assert site.run() == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1].startswith("removed  7.head.1: directory 7.head.1 (found over twice")
    assert site.logged[-1] == out[-1]


def test_no_name_of_whomever_moves_a_terminal(site: Site, capsys: Capture) -> None:
    (site.settings.guests_dir / "4712.\x1b[2J\x9bhead.1").mkdir(parents=True)
    assert site.run() == 1
    printed = capsys.readouterr().out
    assert "4712.?[2J?head.1" in printed
    assert all(line.isprintable() for line in (*printed.splitlines(), *site.logged))


def test_part_of_it_that_is_asked_for(site: Site, capsys: Capture) -> None:
    site.leave()
    assert site.run("--query", "left[].key") == 1
    assert json.loads(capsys.readouterr().out) == ["7.head.1"]


def test_form_for_programs(site: Site, capsys: Capture) -> None:
    site.leave()
    site.server.stored = OURS
    site.wrong = (NodeFault("bridge br0", "is missing on this node", cause="bridge"),)
    assert site.run("--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "version": 1,
        "node": "cn1",
        "ok": False,
        "removed": [],
        "left": [{"key": "7.head.1", "why": report["left"][0]["why"], "things": []}],
        "living": [],
        "note": {"note": OURS, "taken_back": False, "why": "bridge br0: is missing on this node"},
        "retired": [],
        "lost": [],
        "handed_over": [],
        "health": {"degrading": "", "note": "", "ordered": [], "problems": [], "order": ""},
    }


def test_old_records_go_and_that_is_said(site: Site, capsys: Capture) -> None:
    old = site.settings.state_dir / "records" / "1.head.1"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    assert site.run() == 0
    assert capsys.readouterr().out == "retired  1 old records: 1.head.1\n"
    assert not old.exists()


def keep_record(site: Site, key: str, age_s: float = 1000.0) -> pathlib.Path:
    """A record on this node."""
    path = site.settings.state_dir / "records" / key / "record.json"
    files.make_record_directory(path.parent)
    files.write(path, "{}")
    for one in (path, path.parent):
        os.utime(one, (time.time() - age_s,) * 2)
    return path


def test_records_that_wait_are_handed_over_and_that_is_said(site: Site, capsys: Capture) -> None:
    """Whatever becomes of them, the status of a sweep is that of what is left on the node."""
    sent: list[tuple[pathlib.Path, pathlib.Path]] = []

    def send(
        _policy: parameters.Policy, _deadline: clock.Deadline, **places: pathlib.Path
    ) -> tuple[delivery.Delivery, ...]:
        sent.append((places["state_dir"], places["run_dir"]))
        message = "was not handed over to fe: Connection refused; it waits on this node"
        return (
            delivery.Delivery("7.head.1", delivery.TAKEN, "was handed over to fe"),
            delivery.Delivery("8.head.1", delivery.AWAY, message),
        )

    site.patch.setattr(node_sweep.delivery, "send_waiting", send)
    assert site.run() == 0
    assert sent == [(site.settings.state_dir, site.settings.run_dir)]
    taken, waits = capsys.readouterr().out.splitlines()
    assert taken == "record   7.head.1: was handed over to fe"
    assert waits.startswith("record   8.head.1: was not handed over to fe: Connection refused")
    assert site.logged == [taken, waits]


def test_record_of_a_start_whose_epilogue_was_lost_waits_for_the_front_end(site: Site) -> None:
    keep_record(site, "7.head.1")
    site.leave("7.head.1")
    site.leave("8.head.1")  # of which this node was no mother superior
    site.look_twice(0.0)
    site.patch.setattr(node_sweep.delivery, "send_waiting", lambda *_words, **_places: ())
    site.run()
    site.run()
    assert os.listdir(site.settings.guests_dir) == []
    assert os.listdir(site.settings.state_dir / "spool") == ["7.head.1"]


def test_record_of_a_start_that_a_boot_ended_waits_for_the_front_end(site: Site) -> None:
    keep_record(site, "7.head.1")
    site.leave("7.head.1", EARLIER)
    vtorque_sweep.run(["--boot"], sweeping_by(parameters.Policy))
    assert os.listdir(site.settings.state_dir / "spool") == ["7.head.1"]


def test_record_that_goes_before_the_front_end_got_it_is_a_loud_word(site: Site, capsys: Capture) -> None:
    keep_record(site, "7.head.1", 1e9)
    delivery_queue.mark_pending("7.head.1", site.settings.state_dir)
    site.patch.setattr(node_sweep.delivery, "send_waiting", lambda *_words, **_places: ())
    assert site.run() == 0
    assert site.logged[-1] == "lost     7.head.1: this record is too old to be kept, and the front end never got it"
    assert site.logged[-1] in capsys.readouterr().out
    assert os.listdir(site.settings.state_dir / "spool") == []


def test_our_note_is_taken_back_and_that_is_said(site: Site, capsys: Capture) -> None:
    site.server.stored = OURS
    assert site.run() == 0
    assert capsys.readouterr().out == f"note     cn1: taken back: {OURS} (bridge tests good)\n"
    assert site.server.stored == ""
    assert len(site.logged) == 1


def test_our_note_stays_with_its_reason(site: Site, capsys: Capture) -> None:
    site.server.stored = OURS
    site.wrong = (NodeFault("bridge br0", "is missing on this node", cause="bridge"),)
    assert site.run() == 1
    assert capsys.readouterr().out == f"note     cn1: stays: {OURS} (bridge br0: is missing on this node)\n"


def test_silent_server_is_unknown_and_nothing_goes(site: Site, capsys: Capture) -> None:
    site.leave()
    site.server.silent = True
    site.look_twice(0.0)
    assert site.run() == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("left     7.head.1: whether it lives is not known: qstat: the batch server did not answer")
    assert second.startswith("left     whether this node carries a note of ours is not known")
    assert (site.settings.guests_dir / "7.head.1").is_dir()


def test_sweep_of_many_starts_needs_the_option(site: Site, capsys: Capture) -> None:
    for number in range(sweep.MASS + 1):
        site.leave(f"{number}.head.1")
    site.look_twice(0.0)
    assert site.run() == 1
    assert capsys.readouterr().out.count("more than 4") == sweep.MASS + 1
    assert site.run("--all") == 0
    assert list(site.settings.guests_dir.iterdir()) == []


def test_at_boot_no_configuration_is_read_and_nobody_asked(site: Site, capsys: Capture) -> None:
    def load() -> t.NoReturn:
        raise AssertionError("the configuration is read")

    site.leave("7.head.1", EARLIER)
    site.leave("8.head.1")
    site.server.silent = True
    site.patch.setattr(sweep, "Domains", load)
    assert vtorque_sweep.run(["--boot"], sweeping_by(load)) == 0
    assert [path.name for path in site.settings.guests_dir.iterdir()] == ["8.head.1"]
    assert "it is of an earlier boot" in capsys.readouterr().out


def test_broken_configuration_keeps_nothing_that_is_nobodys(site: Site, capsys: Capture) -> None:
    def load() -> t.NoReturn:
        raise SiteFault("the site's configuration", "not YAML")

    site.leave()
    site.look_twice(0.0)
    site.server.stored = OURS
    old = site.settings.state_dir / "records" / "1.head.1"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    log = site.settings.state_dir / "log/hooks.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (retention.LOG_BYTES + 1))
    assert vtorque_sweep.run([], sweeping_by(load)) == 1
    assert os.listdir(log.parent) == ["hooks.log.1"]  # it grows with every job that meets this configuration
    assert vtorque_sweep.run([], sweeping_by(load)) == 1
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.startswith("removed  7.head.1: directory 7.head.1 (found over twice")]
    assert out[-1].startswith("left     the site's configuration: not YAML; until it is mended no record is retired")
    assert site.logged[-1] == out[-1]
    assert os.listdir(site.settings.guests_dir) == []
    assert (site.server.stored, old.exists(), site.marked) == (OURS, True, True)  # both are the site's wish


def test_sweep_uses_the_good_values_of_a_broken_configuration(site: Site) -> None:
    policies: list[parameters.Policy] = []

    def settings_of(given: parameters.Policy, _node: str) -> NodeSettings:
        policies.append(given)
        return site.settings

    site.patch.setattr(node_sweep, "settings_of", settings_of)
    text = "torque_home: /t\nbrigde: br1\n"
    assert vtorque_sweep.run([], sweeping_by(lambda: policy_file.parse(text, "vtorque.yml").policy)) == 1
    assert {given.torque_home for given in policies} == {"/t"}


def test_help_says_what_goes_when_and_what_the_statuses_mean(site: Site, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        site.run("--help")
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for message in ("--boot", "--all", "--json", "60 s apart", "exit status:", "examples:", "more than 4 starts"):
        assert message in out, message
    assert max(map(len, out.splitlines())) <= 120


def test_unknown_option_is_a_usage_error(site: Site) -> None:
    with pytest.raises(SystemExit) as caught:
        site.run("--force")
    assert caught.value.code == 2
