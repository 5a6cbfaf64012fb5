# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Security updates are bounded by the prologue's time, and what comes of them is told and ends nothing."""

from __future__ import annotations

import dataclasses
import pathlib
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.guest_kinds import OSV
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import security_updates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.agent import Channel, OrderResult
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import (
    GuestFile,
    write_guest_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import clock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import from_dict, to_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.update_result import GuestUpdates
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import settings_of

JOB = "7.head"
LONG = 1000.0


class Node:
    """A node with two guests, which end as they are told here."""

    def __init__(self, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = NodeSettings(
            "n1", 1, state_dir=place / "state", run_dir=place / "run", template_dir=None, updates_s=60
        )
        self.reported: dict[str, str] = {}
        self.left_s = 0.0
        self.done: dict[str, OrderResult] = {}
        self.silent: VTorqueError | None = None
        monkeypatch.setattr(security_updates, "order_all", self._order_all)
        for rank in (0, 1):
            stored = GuestFile(rank, rank + 1, f"vn1-{rank + 1}", "52:54:00:00:01:01", "u", "f00d", 1001, "d")
            directory = self.settings.start_dir(JOB, 1) / stored.name
            directory.mkdir(parents=True)
            write_guest_file(directory, stored)

    def _order_all(self, orders: t.Sequence[tuple[Channel, str]], deadline: Deadline) -> dict[str, OrderResult]:
        self.reported = {channel.name: script for channel, script in orders}
        self.left_s = deadline.left_s()
        if self.silent is not None:
            raise self.silent
        return {name: self.done.get(name, OrderResult(0, "vtorque-updates done 0 1 ")) for name in self.reported}

    def install(self, seconds: float = LONG) -> tuple[GuestUpdates, ...]:
        return security_updates.install(JOB, 1, self.settings, Deadline.after(seconds))


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_none_are_installed_unless_the_site_wants_some(node: Node) -> None:
    node.settings = dataclasses.replace(node.settings, updates_s=0)
    assert node.install() == ()
    assert node.reported == {}
    assert settings_of(Policy(), "n1").updates_s == 0
    assert settings_of(Policy(security_updates=True), "n1").updates_s == 60


@pytest.mark.parametrize(
    ("left_s", "seconds"),
    [
        pytest.param(LONG, 60, id="what the site gives"),
        pytest.param(55.5, 30, id="what the prologue has left, but for what comes after"),
    ],
)
def test_every_guest_is_told_how_long_it_has(
    node: Node, monkeypatch: pytest.MonkeyPatch, left_s: float, seconds: int
) -> None:
    monkeypatch.setattr(clock, "time", types.SimpleNamespace(monotonic=lambda: 1000.0))  # the clock stands
    node.install(left_s)
    assert set(node.reported) == {"vn1-1", "vn1-2"}
    for order in node.reported.values():
        first, _newline, program = order.partition("\n")
        assert (first, program[:9]) == (f"set -- {seconds}", "#!/bin/sh")
    assert seconds < node.left_s <= seconds + security_updates.UPDATES_ANSWER_S


def test_updates_without_time_left_are_not_begun(node: Node) -> None:
    report = node.install(29.0)
    assert [(one.name, one.outcome, one.reason) for one in report] == [
        (name, "timed out", "the prologue had no time left for them") for name in ("vn1-1", "vn1-2")
    ]
    assert node.reported == {}


@pytest.mark.parametrize(
    ("done", "outcome", "packages", "message"),
    [
        (OrderResult(0, "a\n\nvtorque-updates done 12 33 "), "done", 12, ""),
        (OrderResult(0, "vtorque-updates done 12 33"), "done", 12, ""),
        (
            OrderResult(0, "vtorque-updates timed out 8 60 3 more were not begun"),
            "timed out",
            8,
            "3 more were not begun",
        ),
        (OrderResult(0, "vtorque-updates failed 0 1 the lists: E: no"), "failed", 0, "the lists: E: no"),
        (OrderResult(124, "Reading"), "timed out", 0, "it was ended, and told nothing"),
        (OrderResult(2, "sh: syntax error"), "failed", 0, "ended with status 2: sh: syntax error"),
        (OrderResult(0, ""), "failed", 0, "ended with status 0: "),
        (
            OrderResult(0, "vtorque-updates done 123456 1 "),
            "failed",
            0,
            "ended with status 0: vtorque-updates done 123456 1 ",
        ),
        (OrderResult(0, "x" * 9000), "failed", 0, f"ended with status 0: {'x' * 279}"),
    ],
)
def test_answer_about_updates_is_read_strictly(
    node: Node, done: OrderResult, outcome: str, packages: int, message: str
) -> None:
    """And it can be told to a mother superior, whatever it is."""
    node.done = {"vn1-2": done}
    first, second = node.install()
    assert (first.outcome, first.packages, first.reason) == ("done", 0, "")
    assert (second.name, second.outcome, second.packages, second.reason) == ("vn1-2", outcome, packages, message)
    assert from_dict(GuestUpdates, to_dict(second)) == second


def test_guest_of_osv_has_no_packages(node: Node) -> None:
    """And no root that could be asked."""
    stored = GuestFile(0, 1, "vn1-1", "52:54:00:00:01:01", "u", "f00d", 1001, "d", kind=OSV.name)
    write_guest_file(node.settings.start_dir(JOB, 1) / stored.name, stored)
    assert [one.name for one in node.install()] == ["vn1-2"]
    assert set(node.reported) == {"vn1-2"}


def test_guest_that_is_silent_ends_nothing(node: Node) -> None:
    node.silent = VTorqueError("guest vn1-1", "its channel broke:\n\x1b[2J")
    report = node.install()
    assert [(one.outcome, one.reason) for one in report] == [("failed", "guest vn1-1: its channel broke:??[2J")] * 2
    assert [from_dict(GuestUpdates, to_dict(one)) for one in report] == list(report)


def test_template_of_the_sites_that_is_wrong_is_its_fault(node: Node, tmp_path: pathlib.Path) -> None:
    (tmp_path / "guest").mkdir()
    (tmp_path / "guest/updates.sh").write_text("{{ nothing }}")
    node.settings = dataclasses.replace(node.settings, template_dir=tmp_path)
    with pytest.raises(SiteFault, match=r"guest/updates\.sh"):
        node.install()
