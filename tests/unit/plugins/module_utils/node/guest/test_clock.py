# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What root of a guest is to do when it has stood still."""

from __future__ import annotations

import pathlib
import subprocess
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import clock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

RECORDER = '#!/bin/sh\necho "${0##*/} $*" >>"$LOG"\n'


@pytest.fixture
def set_clock(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., list[str]]:
    """A function that sets the clock of a guest whose programs log their calls; returns what they were."""
    log, bin_ = tmp_path / "log", tmp_path / "bin"
    bin_.mkdir()

    def order_all(orders: t.Sequence[tuple[t.Any, str]], _deadline: Deadline) -> dict[str, t.Any]:
        ((_channel, script),) = orders
        environment = {"PATH": str(bin_), "LOG": str(log)}
        done = subprocess.run(["/bin/sh", "-c", script], env=environment, timeout=60, check=False)
        return {"vcn1-1": types.SimpleNamespace(status=done.returncode, output="")}

    monkeypatch.setattr(clock, "with_channel", lambda *_words: [types.SimpleNamespace(name="vcn1-1")])
    monkeypatch.setattr(clock, "channel_to", lambda *_words: None)
    monkeypatch.setattr(clock, "order_all", order_all)

    def call(*programs: str, reconnect: bool) -> list[str]:
        for name in programs:
            (bin_ / name).write_text(RECORDER)
            (bin_ / name).chmod(0o755)
        found = clock.set_clocks(
            "7.fe", 1, NodeSettings(node_name="cn1", node_number=1), ["vcn1-1"], Deadline.after(60), reconnect=reconnect
        )
        assert found == ()
        return [line.split(" @")[0] for line in log.read_text().splitlines()]

    return call


def test_guest_that_has_returned_makes_its_connections_to_file_servers_anew(
    set_clock: t.Callable[..., list[str]],
) -> None:
    assert set_clock("date", "ss", reconnect=True) == ["ss -K dport = :2049", "date -u -s"]


def test_guest_without_the_program_has_its_clock_set(set_clock: t.Callable[..., list[str]]) -> None:
    assert set_clock("date", reconnect=True) == ["date -u -s"]


def test_guest_that_only_stood_still_keeps_its_connections(set_clock: t.Callable[..., list[str]]) -> None:
    assert set_clock("date", "ss", reconnect=False) == ["date -u -s"]
