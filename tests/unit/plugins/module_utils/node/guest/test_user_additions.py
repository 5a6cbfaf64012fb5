# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user adds to their guests is ordered where there is some, and its end says whose fault it is."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import types

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.registry import open_guest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import user_additions
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.agent import OrderResult
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import clock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

from .ordered_node import OrderedNode

JOB = "72[1].head"


class Node(OrderedNode):
    def __init__(self, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(place, user_additions, monkeypatch, JOB)
        variables = tuple(open_guest("torque").GUEST_VARIABLES.items())
        self.settings = dataclasses.replace(self.settings, guest_variables=variables)

    def guest(self, rank: int, *, has: bool = True) -> None:
        self.add_guest(rank)
        if has:
            (self.directory(rank) / user_additions.HAS).touch()

    def make(self, seconds: float = 60) -> None:
        user_additions.make(JOB, 1, self.settings, Deadline.after(seconds))


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_guests_without_any_are_not_asked(node: Node) -> None:
    node.guest(0, has=False)
    node.make()
    assert node.reported == {}


def test_every_guest_is_told_to_begin_and_for_how_long(
    node: Node, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "time", types.SimpleNamespace(monotonic=lambda: 1000.0))  # the clock stands
    node.guest(0)
    node.guest(1)
    node.make(60.9)
    assert set(node.reported) == {"vn1-1", "vn1-2"}
    (tmp_path / "program").write_text('#!/bin/sh\necho "$1 $PBS_JOBID $PBS_NODEFILE $VTORQUE_RANK"\n')
    (tmp_path / "program").chmod(0o755)
    order = node.reported["vn1-2"].replace(user_additions.PROGRAM, str(tmp_path / "program"))
    output = subprocess.run(["/bin/sh"], input=order, capture_output=True, text=True, check=True).stdout
    assert output == "55 72[1].head /var/spool/torque/aux/72[1].head 1\n"


@pytest.mark.parametrize(
    ("done", "kind", "why", "hint"),
    [
        (
            OrderResult(90, "a\nb\n\ncommand 1 ended with status 3"),
            UserFault,
            "command 1 ended with status 3",
            "its last lines: a | b",
        ),
        (OrderResult(90, "\nfile /tmp/x: no"), UserFault, "file /tmp/x: no", ""),
        (
            OrderResult(91, "\npackages: x: not installed: E"),
            SiteFault,
            "packages: x: not installed: E",
            "guest_may_reach",
        ),
        (OrderResult(124, "still at it"), UserFault, "was not done in time", "its last lines: still at it"),
        (OrderResult(143, ""), UserFault, "was not done in time", ""),
        (OrderResult(1, ""), UserFault, "ended with status 1", ""),
    ],
)
def test_end_says_whose_fault_it_is(node: Node, done: OrderResult, kind: type[UserFault], why: str, hint: str) -> None:
    node.guest(0)
    node.done = {"vn1-1": done}
    with pytest.raises(kind) as caught:
        node.make()
    assert (caught.value.what, caught.value.why) == ("metadata in guest vn1-1", why)
    assert hint in caught.value.hint


def test_faults_of_the_user_come_before_faults_of_the_site(node: Node) -> None:
    node.guest(0)
    node.guest(1)
    node.done = {"vn1-1": OrderResult(91, "packages: x"), "vn1-2": OrderResult(90, "command 1 ended with status 3")}
    with pytest.raises(UserFault, match="vn1-2"):
        node.make()
