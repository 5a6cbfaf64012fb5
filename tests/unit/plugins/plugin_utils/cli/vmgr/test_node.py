# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr node`: which devices of this node guests may have, and the end of a quarantine."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import leases
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.pci import passthrough, usage
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import pci
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import node

from .run_vmgr import run_vmgr

FIRST, SECOND = "0000:3b:00.0", "0000:5e:00.0"


@pytest.fixture
def settings(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> NodeSettings:
    here = NodeSettings("gn1", 1, state_dir=tmp_path / "state", pci_classes=(pci.read_line(f"gpu {FIRST} {SECOND}"),))
    monkeypatch.setattr(node, "read_settings", lambda _load: here)
    monkeypatch.setattr(passthrough, "HOST", usage.Host(tmp_path, tmp_path, tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return here


def test_devices_says_who_has_each_and_what_speaks_against_it(
    settings: NodeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    leases.write_lease(leases.Lease(FIRST, "7.head.1", 0, "pci", "nvidia"), settings)
    leases.quarantine(SECOND, "it answers no more", settings)
    status, output = run_vmgr(capsys, "node", "devices")
    assert status == 0
    assert "gpu    start 7.head.1" in output
    assert "gpu    in quarantine" in output
    assert "there is no such device (see lspci and pci_classes)" in output
    found = json.loads(run_vmgr(capsys, "node", "devices", "--json")[1])
    assert [(one["address"], one["usable"], one["start"]) for one in found] == [
        (FIRST, True, "7.head.1"), (SECOND, False, None),
    ]  # fmt: skip


@pytest.mark.usefixtures("settings")
def test_devices_of_a_node_that_has_none_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "read_settings", lambda _load: NodeSettings("cn1", 1))
    assert "the site lists no devices for this node" in run_vmgr(capsys, "node", "devices")[1]


def test_release_ends_a_quarantine_once(settings: NodeSettings, capsys: pytest.CaptureFixture[str]) -> None:
    leases.quarantine(SECOND, "it answers no more", settings)
    assert run_vmgr(capsys, "node", "release", SECOND) == (0, f"device {SECOND} may be handed to guests again\n")
    assert leases.read_quarantine(settings) == ()
    for name in (SECOND, "../leases", FIRST):
        with pytest.raises(UserFault, match="is not in quarantine"):
            run_vmgr(capsys, "node", "release", name)


@pytest.mark.usefixtures("settings")
def test_node_is_for_root_alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserFault, match="root's alone"):
        run_vmgr(capsys, "node", "devices")
