# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr node`: what a node has, which of its devices guests may have, and the end of a quarantine."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import occupancy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import leases
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.pci import passthrough, usage
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import degrading
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import health_sources
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import topologies
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import clock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import form, node_topology, pci
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.moves import Evacuee
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import host_name
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main, node
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import handlers, serve, site_requests
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.site import compute_nodes, evacuation
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.site import node_topology as asking

from .run_vmgr import run_vmgr

FIXTURE = pathlib.Path(__file__).resolve().parents[5] / "fixtures/topology/gn1.json"
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


def test_health_has_a_row_a_source_and_forgets_one_after_a_repair(
    settings: NodeSettings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    assert "lists no sources of health" in run_vmgr(capsys, "node", "health")[1]
    lines = ("message mom", f"counter memory {tmp_path}/count limit=1", f"program nhc {tmp_path}/nhc")
    watched = dataclasses.replace(
        settings, health_sources=health_sources.sources_on(lines, "gn1"), run_dir=tmp_path / "run"
    )
    monkeypatch.setattr(node, "read_settings", lambda _load: watched)
    assert run_vmgr(capsys, "node", "health")[1].count("not read yet") == 3
    (tmp_path / "count").write_text("7", "ascii")
    degrading.read_sources(watched, lambda: "ERROR: \x1b[2Jfan", clock.Deadline.after(60))
    status, output = run_vmgr(capsys, "node", "health")
    assert status == 1
    rows = {line.split()[0]: line for line in output.splitlines()[1:]}
    assert "degrading" in rows["mom"]
    assert "ERROR: ?[2Jfan" in rows["mom"]
    assert "well" in rows["memory"]
    assert "unknown" in rows["nhc"]
    status, output = run_vmgr(capsys, "node", "health", "--json")
    assert status == 1
    assert [(one["name"], one["degrading"], bool(one["unknown"])) for one in json.loads(output)] == [
        ("mom", True, False), ("memory", False, False), ("nhc", False, True),
    ]  # fmt: skip
    with pytest.raises(UserFault, match="health_sources: mom, memory, nhc"):
        run_vmgr(capsys, "node", "health", "--forget", "fan")
    assert run_vmgr(capsys, "node", "health", "--forget", "mom")[0] == 0
    assert run_vmgr(capsys, "node", "health")[0] == 0


@pytest.mark.usefixtures("settings")
def test_node_is_for_root_alone(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserFault, match="root's alone"):
        run_vmgr(capsys, "node", "devices")


@pytest.fixture
def topology(monkeypatch: pytest.MonkeyPatch, settings: NodeSettings) -> node_topology.NodeTopology:
    """What this node has."""
    found = node_topology.topology_from_dict(json.loads(FIXTURE.read_text(encoding="utf-8")))
    monkeypatch.setattr(occupancy, "read_occupancy", lambda asked: found if asked is settings else None)
    monkeypatch.setattr(main, "load", lambda _path: Policy(ssh_timeout=5))
    monkeypatch.setattr(compute_nodes, "is_compute_node", lambda _load: True)
    return found


def stand_in_ssh(tmp_path: pathlib.Path, script: str) -> str:
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("arguments", [(), (host_name(),)])
def test_topology_of_this_node_is_drawn(
    arguments: tuple[str, ...], topology: node_topology.NodeTopology, capsys: pytest.CaptureFixture[str]
) -> None:
    status, output = run_vmgr(capsys, "node", "topology", *arguments)
    assert (status, output.splitlines()[0]) == (
        0,
        f"{topology.node}: 2 NUMA cells, 16 cores, 32 threads, 128G of memory",
    )
    assert "A  4711.head.1" in output


def test_topology_as_a_picture_goes_to_the_file_or_to_standard_output(
    topology: node_topology.NodeTopology, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    assert run_vmgr(capsys, "node", "topology", "--svg", str(tmp_path / "n.svg")) == (0, "")
    assert (tmp_path / "n.svg").read_text() == run_vmgr(capsys, "node", "topology", "--svg")[1]
    with pytest.raises(UserFault, match="No such file"):
        run_vmgr(capsys, "node", "topology", "--svg", str(tmp_path / "none/n.svg"))
    assert topology


def test_topology_for_programs_is_the_nodes_answer(
    topology: node_topology.NodeTopology, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads(run_vmgr(capsys, "node", "topology", "--json")[1]) == json.loads(FIXTURE.read_text("utf-8"))
    assert json.loads(run_vmgr(capsys, "node", "topology", "--query", "guests[].name")[1]) == [
        guest.name for guest in topology.guests
    ]


def test_topology_of_another_node_is_asked_of_its_agent(
    topology: node_topology.NodeTopology,
    settings: NodeSettings,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line that goes out is answered by the agent; what comes back is read."""
    monkeypatch.setattr(site_requests, "read_settings", lambda _load: settings)
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    ssh = stand_in_ssh(tmp_path, f'echo "$*" >> {tmp_path}/words; cat > {asked}; cat {answered}')
    answered.write_text("")
    with pytest.raises(NodeFault, match="no answer"):
        asking.query_node("gn1", Policy(), ssh)
    with asked.open("rb") as stream:
        answer = serve.respond(stream, handlers.Call({}, Policy))
    answered.write_text(json.dumps(answer))
    assert asking.query_node("gn1", Policy(), ssh) == topology
    assert "/opt/vtorque/bin/vtorque-node" in (tmp_path / "words").read_text()
    with pytest.raises(NodeFault, match="gn1 has answered"):
        asking.query_node("gn2", Policy(), ssh)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Connection refused' >&2; exit 255", "no answer by ssh: Connection refused"),
        ("echo '[]'", "it gave none"),
        ("""echo '{"error": {"what": "the request", "why": "unknown"}}'""", "it gave none: the request: unknown"),
        ("echo '{'", "no answer"),
        ("""echo '{"topology": {}}'""", "is missing"),
    ],
)
def test_topology_of_a_node_that_gives_none_says_why(script: str, why: str, tmp_path: pathlib.Path) -> None:
    found = asking.query_nodes(["gn1", "gn2"], Policy(), ssh=stand_in_ssh(tmp_path, f"cat >/dev/null; {script}"))
    assert [why in str(one) for one in found] == [True, True]


def test_topology_of_all_nodes_is_remembered_for_users_and_who_is_silent_is_named(
    topology: node_topology.NodeTopology,
    capsys: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = tmp_path / "answer"
    answer.write_text(json.dumps({"topology": form.to_dict(topology)}))
    script = f'case "$*" in *gn1*) cat {answer};; *) echo gone >&2; exit 255;; esac'
    ssh = stand_in_ssh(tmp_path, script)
    real = asking.query_nodes
    monkeypatch.setattr(asking, "query_nodes", lambda names, policy, advance: real(names, policy, advance, ssh))
    monkeypatch.setattr(compute_nodes, "list_nodes", lambda _policy: ("gn1", "gn2"))
    write, forget = topologies.write_topology, topologies.forget_others
    monkeypatch.setattr(topologies, "write_topology", lambda one: write(one, tmp_path))
    monkeypatch.setattr(topologies, "forget_others", lambda nodes: forget(nodes, tmp_path))
    for name in ("gn2", "gn3"):
        write(dataclasses.replace(topology, node=name), tmp_path)
    status = main.run_subject(["node", "topology", "--all"])
    streams = capsys.readouterr()
    assert (status, streams.out) == (4, "remembered what gn1 has, for vsub --dry-run\n")
    assert "the topology of gn2: no answer by ssh: gone" in streams.err
    assert topologies.read_topology("gn1", tmp_path) == topology.without_jobs()
    assert topologies.list_nodes(tmp_path) == ("gn1", "gn2")  # the one that is silent now, and not the one that is gone


@pytest.mark.usefixtures("topology")
def test_topology_of_all_nodes_is_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserFault, match="draws one node"):
        run_vmgr(capsys, "node", "topology", "--all", "--svg")


@pytest.mark.usefixtures("topology")
def test_topology_of_a_front_end_asks_for_a_node(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_nodes, "is_compute_node", lambda _load: False)
    with pytest.raises(UserFault, match="this host is no compute node"):
        run_vmgr(capsys, "node", "topology")


EVACUEES = (
    Evacuee("7.head", 1, "vgn1-1", "cn3", "", 1.94, 0.351),
    Evacuee("8.head", 2, "vgn1-2", why="it has a PCI device of its node"),
)


@pytest.mark.usefixtures("settings")
def test_evacuate_prints_where_each_guest_went_and_why_others_stay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "load", Policy)
    monkeypatch.setattr(evacuation, "evacuate_node", lambda _node, _policy, *, dry_run: EVACUEES[dry_run:])
    status, output = run_vmgr(capsys, "node", "evacuate", "gn1")
    assert (status, output.splitlines()) == (
        node.STAYS,
        [
            "job 7.head, guest vgn1-1: went to cn3 in 1.9 s, and stood still for 0.35 s of it",
            "job 8.head, guest vgn1-2: stays: it has a PCI device of its node",
        ],
    )
    status, output = run_vmgr(capsys, "node", "evacuate", "gn1", "--dry-run")
    assert (status, output) == (node.STAYS, "job 8.head, guest vgn1-2: would stay: it has a PCI device of its node\n")
    found = json.loads(run_vmgr(capsys, "node", "evacuate", "gn1", "--json")[1])
    assert [(one["guest"], one["target"]) for one in found] == [("vgn1-1", "cn3"), ("vgn1-2", "")]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (b'{"ok": true, "evacuees": [{"job_id": "x"}]}', "of another form"),
        (b'{"ok": true}', "status 3"),
        (b"garbage", "status 3"),
        (b'{"ok": false, "error": {"fault": "site", "what": "the evacuation", "why": "no", "hint": ""}}', "no"),
    ],
)
def test_evacuate_believes_no_answer_of_another_form(monkeypatch: pytest.MonkeyPatch, output: bytes, why: str) -> None:
    done = subprocess.CompletedProcess([], 3, output, b"")
    monkeypatch.setattr(evacuation, "call", lambda *_arguments: done)
    with pytest.raises(VTorqueError, match=why):
        evacuation.evacuate_node("cn1", Policy(), dry_run=True)
