# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is degrading gets our note, tells the administrators and its jobs, and is taken back when it is well."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import offline_note
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import causes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import (
    GuestFile,
    write_guest_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import health_sources
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import event_log
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.upkeep import node_health

REPORT = "ERROR: nhc: memory \x1b[2J of $(reboot) | worn\nout"
NOTE = "vtorque: degrading: nhc: ERROR: nhc: memory [2J of (reboot) worn"


class Server:
    """A batch server with some nodes, of which the first is the node that is looked at."""

    def __init__(self, nodes: int = 5) -> None:
        self.known = {f"cn{number}": self._node(f"cn{number}") for number in range(1, nodes + 1)}
        self.states: dict[str, tuple[str, int]] = {}
        self.asked: list[str] = []
        self.others_meanwhile: t.Callable[[], None] = lambda: None

    @staticmethod
    def _node(name: str) -> BatchNode:
        return BatchNode(name, frozenset({"free"}), 4, 0, frozenset(), "")

    def change(self, name: str, **values: t.Any) -> None:
        self.known[name] = dataclasses.replace(self.known[name], **values)

    def node(self, name: str) -> BatchNode:
        return self.known[name]

    def nodes(self) -> tuple[BatchNode, ...]:
        return tuple(self.known.values())

    def note(self, name: str) -> str:
        return self.known[name].note

    def jobs(self, name: str) -> frozenset[str]:
        return self.known[name].jobs

    def offline(self, name: str, note: str) -> BatchNode:
        self.others_meanwhile()
        self.change(name, note=note, states=frozenset({"offline"}))
        return self.known[name]

    def clear(self, name: str, note: str) -> bool:
        if self.known[name].note != note:
            return False
        self.change(name, note="", states=frozenset({"free"}))
        return True

    def job(self, job_id: str) -> types.SimpleNamespace:
        if job_id not in self.states:
            raise UnknownJob(f"job {job_id}")
        state, start = self.states[job_id]
        return types.SimpleNamespace(job_id=job_id, state=state, start_count=start)

    def request_checkpoint(self, job_id: str) -> None:
        self.asked.append(job_id)


class Site:
    """A node with a stand-in for a health program, and what a sweep does with it."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        directory.chmod(0o755)
        self.server, self.policy = Server(), Policy(offline_brake="2")
        self.program = directory / "nhc"
        line = health_sources.read_line(f"program nhc {self.program}")
        self.settings = NodeSettings(
            node_name="cn1", node_number=1, run_dir=directory / "run", state_dir=directory / "state",
            health_sources=(line,), metrics="both", metrics_dir=directory,
        )  # fmt: skip
        self.messages: list[tuple[str, str]] = []
        patch.setattr(causes, "troubles", lambda *_words: ())
        patch.setattr(event_log, "report", lambda text, level="info", _of="": self.messages.append((level, text)))
        self.report("")

    def report(self, text: str) -> None:
        self.program.unlink(missing_ok=True)
        self.program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n", "utf-8")
        self.program.chmod(0o755)

    def look(self) -> node_health.HealthChange:
        """As the sweep does it, with the end of our note."""
        found = node_health.follow_health(self.policy, self.settings, t.cast(t.Any, self.server), Deadline.after(60))
        offline_note.take_back(
            t.cast(t.Any, self.server), "cn1", lambda cause: node_health.find_faults(self.settings, cause)
        )
        return found

    def start(self, key: str, *, checkpoint: bool = True) -> pathlib.Path:
        """A start with a guest here; returns its log."""
        guest = self.settings.guests_dir / key / "vcn1-1"
        guest.mkdir(parents=True)
        facts = GuestFile(0, 1, "vcn1-1", "52:54:00:00:01:01", "u", "t", 0, "d", checkpoint=checkpoint)
        write_guest_file(guest, facts)
        log = self.settings.state_dir / "records" / key / "vtorque.log"
        log.parent.mkdir(parents=True)
        log.touch()
        return log

    def gauge(self) -> str:
        return (self.settings.metrics_dir / "vtorque_health.prom").read_text("utf-8").splitlines()[-1]


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_program_that_reports_degrading_and_then_well_brings_note_and_message_and_takes_the_note_back(
    site: Site,
) -> None:
    assert site.look() == node_health.WELL
    assert site.gauge() == 'vtorque_node_degrading{node="cn1"} 0'
    log = site.start("7.head.1")
    site.report(REPORT)
    found = site.look()
    assert (found.note, found.problems, found.ordered) == (NOTE, (), ())
    assert site.server.known["cn1"].note == NOTE
    assert site.server.known["cn1"].offline
    assert site.gauge() == 'vtorque_node_degrading{node="cn1"} 1'
    ((level, text),) = site.messages
    assert (level, text) == ("error", "node cn1 is degrading: nhc: ERROR: nhc: memory ?[2J of $(reboot) | worn")
    (line,) = log.read_text("utf-8").splitlines()
    assert line.endswith(f"warning health: {text}")
    assert site.look().note == ""
    assert len(site.messages) == 1
    site.report("")
    for _look in range(2):
        site.look()
        assert site.server.known["cn1"].note == NOTE
    site.look()
    assert site.server.known["cn1"] == BatchNode("cn1", frozenset({"free"}), 4, 0, frozenset(), "")
    assert site.messages[1][0] == "info"
    assert site.messages[1][1].startswith("node cn1 is well again")
    assert len(log.read_text("utf-8").splitlines()) == 2
    assert site.gauge() == 'vtorque_node_degrading{node="cn1"} 0'


@pytest.mark.parametrize(
    ("brake", "noted", "message"),
    [
        ("2", ("cn2", "cn3"), "2 of 5 nodes carry a note of vTorque already"),
        ("0", (), "sets no node offline"),
        ("5", ("cn2", "cn3", "cn4", "cn5"), "last node that takes jobs"),
    ],
)
def test_brake_keeps_a_degrading_node_in_use_and_it_is_reported_loudly(
    site: Site, brake: str, noted: tuple[str, ...], message: str
) -> None:
    site.policy = Policy(offline_brake=brake)
    for name in noted:
        site.server.change(name, note="vtorque: disk: full", states=frozenset({"offline"}))
    site.report(REPORT)
    found = site.look()
    assert found.degrading
    assert message in found.problems[0]
    assert (site.server.known["cn1"].note, site.server.known["cn1"].offline) == ("", False)
    assert [level for level, _text in site.messages] == ["error", "error"]
    assert message in site.messages[1][1]
    assert message in site.look().problems[0]
    assert len(site.messages) == 2
    if noted:
        site.server.clear(noted[0], "vtorque: disk: full")
        assert site.look().note == NOTE


def test_brake_holds_where_other_nodes_become_degrading_at_the_same_moment(site: Site) -> None:
    def others() -> None:
        for name in ("cn2", "cn3"):
            site.server.change(name, note="vtorque: degrading: nhc: x", states=frozenset({"offline"}))

    site.server.others_meanwhile = others
    site.report(REPORT)
    assert "2 of 5 nodes carry a note of vTorque already" in site.look().problems[0]
    assert site.server.known["cn1"].note == ""


@pytest.mark.parametrize(("note", "states"), [("new disk on Monday", "free"), ("new disk", "offline"), ("", "offline")])
def test_node_of_an_administrator_is_left_as_it_is(site: Site, note: str, states: str) -> None:
    site.server.change("cn1", note=note, states=frozenset({states}))
    before = site.server.known["cn1"]
    site.report(REPORT)
    found = site.look()
    assert (found.note, bool(found.degrading)) == ("", True)
    assert bool(found.problems) == (states == "free")
    assert site.server.known["cn1"] == before


def test_note_of_another_cause_is_followed_by_ours_while_the_node_is_degrading(site: Site) -> None:
    site.server.change("cn1", note="vtorque: disk: full", states=frozenset({"offline"}))
    site.report(REPORT)
    assert site.look().note == ""
    assert site.server.known["cn1"].note == "", "the disk tests good"
    assert site.look().note == NOTE


def test_message_of_the_batch_systems_own_check_is_a_source(site: Site) -> None:
    site.settings = dataclasses.replace(site.settings, health_sources=(health_sources.read_line("message mom"),))
    site.server.change("cn1", message="EVENT: fan 3 is slow")
    assert site.look().note == "vtorque: degrading: mom: fan 3 is slow"


def test_server_that_is_silent_keeps_no_sweep_from_its_end(site: Site) -> None:
    def silent(*_words: object) -> t.NoReturn:
        raise SiteFault("pbsnodes", "gave no answer")

    site.server.nodes = silent  # type: ignore[method-assign]
    site.report(REPORT)
    found = site.look()
    assert found.degrading
    assert "pbsnodes: gave no answer" in found.problems[0]


def test_site_without_sources_any_more_has_no_note_no_figure_and_no_file(site: Site) -> None:
    site.report(REPORT)
    assert site.look().note == NOTE
    site.settings = dataclasses.replace(site.settings, health_sources=())
    assert site.look() == node_health.WELL
    assert site.server.known["cn1"].note == ""
    assert not (site.settings.metrics_dir / "vtorque_health.prom").exists()
    assert not (site.settings.state_dir / "health.json").exists()


def test_site_that_wants_notes_alone_has_no_checkpoint_ordered(site: Site) -> None:
    site.start("7.head.1")
    site.server.states["7.head"] = ("R", 1)
    site.report(REPORT)
    site.look()
    assert site.server.asked == []


def test_checkpoint_is_ordered_once_of_each_job_that_can_have_one(site: Site) -> None:
    site.policy = Policy(on_degrading="checkpoint", offline_brake="0")
    for number, state in enumerate(("R", "S", "R", "R"), 1):
        site.start(f"{number}.head.1", checkpoint=number != 3)
        site.server.states[f"{number}.head"] = (state, 2 if number == 4 else 1)
    log = site.start("5.head.1")
    site.server.states["5.head"] = ("R", 1)
    site.start("6.head.1")  # nobody knows it any more
    site.report(REPORT)
    assert site.look().ordered == ("1.head.1", "5.head.1")
    assert site.server.asked == ["1.head", "5.head"]
    assert "a checkpoint was ordered" in log.read_text("utf-8")
    site.server.states["2.head"] = ("R", 1)
    assert site.look().ordered == ("2.head.1",)
    assert site.look().ordered == ()
    site.report("")
    for _look in range(3):
        site.look()
    site.report(REPORT)
    assert site.look().ordered == ("1.head.1", "2.head.1", "5.head.1"), "it is degrading anew"


def test_checkpoint_that_the_batch_system_refuses_is_reported_and_tried_again(site: Site) -> None:
    def refuse(_job_id: str) -> t.NoReturn:
        raise SiteFault("qsig", "unauthorized request")

    site.policy = Policy(on_degrading="checkpoint")
    site.start("7.head.1")
    site.server.states["7.head"] = ("R", 1)
    site.server.request_checkpoint = refuse  # type: ignore[method-assign]
    site.report(REPORT)
    assert "no checkpoint of start 7.head.1 was ordered: qsig" in site.look().problems[0]
    del site.server.request_checkpoint
    assert site.look().ordered == ("7.head.1",)


def test_guests_are_moved_once_for_each_start_as_soon_as_a_spare_node_is_free(
    site: Site, tmp_path: pathlib.Path
) -> None:
    asked = tmp_path / "asked"
    program = tmp_path / "bin" / "vtorque-node"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat >>{asked}.new && mv {asked}.new {asked}\n", "utf-8")
    program.chmod(0o755)
    site.policy = Policy(on_degrading="evacuate", offline_brake="0", spare_nodes=("cn5",), prefix_nodes=str(tmp_path))
    log = site.start("7.head.1", checkpoint=False)
    site.report(REPORT)
    found = site.look()
    assert found.ordered == ()
    assert any("no spare node is free: cn5 is not offline" in problem for problem in found.problems)
    site.server.change("cn5", note="vtorque: spare", states=frozenset({"offline"}))
    assert site.look().ordered == ("7.head.1",)
    until = time.monotonic() + 30
    while not asked.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    question = json.loads(asked.read_text("utf-8"))
    assert (question["do"], question["node"], question["dry_run"]) == ("evacuate", "cn1", False)
    assert "a move to a spare node was ordered" in log.read_text("utf-8")
    asked.unlink()
    assert (site.look().ordered, asked.exists()) == ((), False)
    site.start("8.head.1")
    program.unlink()
    assert any("no evacuate was ordered" in problem for problem in site.look().problems)
