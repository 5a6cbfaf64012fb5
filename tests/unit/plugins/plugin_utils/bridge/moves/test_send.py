# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest runs here or there, and never at both, whatever becomes of whoever moves it."""

from __future__ import annotations

import pathlib
import types
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import (
    moves,
    pause_order,
    slots,
    start_lock,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import (
    GuestFile,
    write_guest_file,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.moves import send, survey

FIXTURES = pathlib.Path(__file__).parents[5] / "fixtures"
JOB, KEY = "7.head", "7.head.1"
NO_MACHINES = ET.Element("capabilities")
FILE = GuestFile(0, 1, "vcn1-1", "52:54:00:00:01:01", "30961d7b-768a-414b-9a36-5480a1f20b51", "a" * 32, 65534, "d")


class Spare:
    """The other node: what runs there, and what it was asked to remove."""

    def __init__(self, states: list[str], *, awaited: bool = True, silent: bool = False, arrived: bool = False) -> None:
        self.states, self.awaited, self.silent, self.asked = states, awaited, silent, []
        self.arrived = arrived

    def __call__(self, _host: str, message: t.Any, _timeout_s: float = 0) -> dict[str, t.Any]:
        if self.silent:
            raise VTorqueError("vtorque-node on cn3", "gave no answer in time")
        self.asked.append(message.do)
        return {"ok": True, "left": [], "states": self.states, "awaited": self.awaited, "arrived": self.arrived}


class Domains:
    """libvirt here."""

    def __init__(self, state: str | None) -> None:
        self.state, self.ended = state, []

    def facts(self, _name: str) -> types.SimpleNamespace | None:
        return None if self.state is None else types.SimpleNamespace(state=self.state, uuid=FILE.uuid)

    def pause(self, _name: str, *, paused: bool) -> None:
        self.state = "paused" if paused else "running"

    def destroy(self, name: str) -> None:
        self.ended.append(name)
        self.state = None


@pytest.fixture
def settings(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> NodeSettings:
    monkeypatch.setattr(send.spares, "give_back", lambda *_arguments: True)
    found = NodeSettings(
        node_name="cn1", node_number=1, run_dir=tmp_path / "run", state_dir=tmp_path / "state", confine_guests=False
    )
    guest = found.start_dir(JOB, 1) / "vcn1-1"
    guest.mkdir(parents=True)
    write_guest_file(guest, FILE)
    moves.order_move(guest, "cn3")
    found.slots_dir.mkdir(parents=True)
    (found.slots_dir / "1").symlink_to(f"{KEY}/vcn1-1")
    return found


def settle(settings: NodeSettings, domains: Domains, spare: Spare, patch: pytest.MonkeyPatch) -> t.Any:
    patch.setattr(send, "send_request", spare)
    return send.finish_move(settings.start_dir(JOB, 1) / "vcn1-1", JOB, 1, settings, None, domains)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ["paused", None])
def test_guest_that_runs_there_ends_here(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    domains, spare = Domains(state), Spare(["running"])
    moved = settle(settings, domains, spare, monkeypatch)
    assert (moved.guest, moved.source, moved.target) == ("vcn1-1", "cn1", "cn3")
    assert domains.ended == (["vcn1-1"] if state else [])
    assert spare.asked == ["stream"]
    assert not (settings.start_dir(JOB, 1) / "vcn1-1").exists()
    assert moves.read_moved(settings.record_dir(JOB, 1)) == (moved,)
    assert slots.read_slots(settings) == {1: f"{KEY}/vcn1-1"}, "its name and MAC are given to no other guest"


@pytest.mark.parametrize("states", [["paused"], []], ids=["paused", "saved"])
def test_guest_that_came_there_and_stands_still_since_is_not_removed(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, states: list[str]
) -> None:
    """Its job was suspended before the node from which it came heard of its arrival: there is no other copy."""
    spare = Spare(states, arrived=True)
    moved = settle(settings, Domains(None), spare, monkeypatch)
    assert (moved.target, spare.asked) == ("cn3", ["stream"])


def test_guest_that_stands_still_there_and_is_gone_here_is_not_removed(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare, guest = Spare(["paused"]), settings.start_dir(JOB, 1) / "vcn1-1"
    with pytest.raises(VTorqueError, match="has ended here, and stands still there"):
        settle(settings, Domains(None), spare, monkeypatch)
    assert (spare.asked, moves.target_of(guest)) == (["stream"], "cn3")


@pytest.mark.parametrize("state", ["paused", "running", None])
def test_guest_that_is_to_stand_still_does_not_begin_its_move(settings: NodeSettings, state: str | None) -> None:
    """The moves of others took minutes since it was looked at."""
    resident = survey.Resident(KEY, JOB, 1, settings.start_dir(JOB, 1) / "vcn1-1")
    if state == "running":
        send._demand_running(resident, settings, Domains(state))  # type: ignore[arg-type]
        pause_order.order_pause(settings, KEY)
    with pytest.raises(VTorqueError, match="it stands still meanwhile"):
        send._demand_running(resident, settings, Domains(state))  # type: ignore[arg-type]


@pytest.mark.parametrize("removed", [False, True])
def test_guest_that_came_there_when_its_job_had_ended_is_removed_there(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    start_lock.bury(settings, KEY)
    if removed:
        (settings.start_dir(JOB, 1) / "vcn1-1" / "guest.json").unlink()
    spare = Spare(["running"])
    with pytest.raises(VTorqueError, match="its job has ended meanwhile"):
        settle(settings, Domains(None), spare, monkeypatch)
    assert spare.asked == ["stream", "absent"]
    assert moves.read_moved(settings.record_dir(JOB, 1)) == ()


@pytest.mark.parametrize(("awaited", "asked"), [(True, ["stream", "absent"]), (False, ["stream"])])
def test_guest_that_does_not_run_there_is_removed_there_before_it_goes_on_here(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, awaited: bool, asked: list[str]
) -> None:
    domains, spare = Domains("paused"), Spare([], awaited=awaited)
    assert settle(settings, domains, spare, monkeypatch) is None
    assert (domains.state, spare.asked) == ("running", asked)
    assert moves.target_of(settings.start_dir(JOB, 1) / "vcn1-1") == ""
    assert moves.read_moved(settings.record_dir(JOB, 1)) == ()


def test_guest_that_stands_still_by_an_order_does_not_go_on_by_the_end_of_a_move(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_order.order_pause(settings, KEY)
    domains = Domains("paused")
    settle(settings, domains, Spare([]), monkeypatch)
    assert domains.state == "paused"


@pytest.mark.parametrize("state", ["paused", "running", None])
def test_move_whose_outcome_nobody_knows_changes_nothing_until_the_spare_answers(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    domains, guest = Domains(state), settings.start_dir(JOB, 1) / "vcn1-1"
    with pytest.raises(VTorqueError, match="gave no answer"):
        settle(settings, domains, Spare([], silent=True), monkeypatch)
    assert (domains.state, domains.ended, moves.target_of(guest)) == (state, [], "cn3")


def test_move_that_does_not_begin_gives_the_spare_back_and_leaves_the_guest(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> float:
        raise VTorqueError("vtorque-node on cn3", "its note is another")

    guest = settings.start_dir(JOB, 1) / "vcn1-1"
    monkeypatch.setattr(send, "_bring", refuse)
    monkeypatch.setattr(send, "send_request", Spare([], awaited=False))
    monkeypatch.setattr(send.spares, "claim", lambda *_arguments: None)
    domains = Domains("running")
    with pytest.raises(VTorqueError, match="its note is another"):
        send.move(survey.Resident(KEY, JOB, 1, guest), "cn3", settings, None, domains)  # type: ignore[arg-type]
    assert (domains.state, moves.target_of(guest)) == ("running", "")


def test_change_makes_of_a_domain_what_the_spare_has_of_it(settings: NodeSettings) -> None:
    xml = ET.fromstring(
        f"""<domain><metadata><v:guest xmlns:v='{send.NAMESPACE}' job='7.head' start='1' node='cn1'/></metadata>
        <vcpu cpuset='0-1'>1</vcpu><cputune><emulatorpin cpuset='0-1'/></cputune><devices>
        <interface type='bridge'><target dev='vtq1'/></interface>
        <channel><source mode='bind' path='{settings.agent_socket(1)}'/></channel></devices></domain>"""
    )
    send._change(xml, file=FILE, slot=4, target="cn3", settings=settings, host=NO_MACHINES)
    mark = xml.find(f"metadata/{{{send.NAMESPACE}}}guest")
    assert mark is not None
    assert (mark.get("node"), xml.find("cputune"), xml.find("vcpu[@cpuset]")) == ("cn3", None, None)
    assert [one.get("dev") for one in xml.iter("target")] == ["vtq4"]
    assert [one.get("path") for one in xml.iter("source")] == [str(settings.agent_socket(4))]
    with pytest.raises(VTorqueError, match="bears no mark"):
        send._change(ET.Element("domain"), file=FILE, slot=4, target="cn3", settings=settings, host=NO_MACHINES)


def test_guest_goes_to_no_spare_whose_qemu_does_not_know_its_machine(settings: NodeSettings) -> None:
    host = ET.parse(FIXTURES / "libvirt/machines-9.0.0-qemu-7.2.22.xml").getroot()
    xml = ET.fromstring("<domain><os><type arch='x86_64' machine='pc-q35-10.0'>hvm</type></os></domain>")
    with pytest.raises(send.GuestRejected, match=r"QEMU of cn3 does not know its machine pc-q35-10\.0"):
        send._change(xml, file=FILE, slot=4, target="cn3", settings=settings, host=host)


def test_what_a_guest_has_besides_its_disk_is_sent_and_nothing_else(settings: NodeSettings) -> None:
    guest = settings.start_dir(JOB, 1) / "vcn1-1"
    for name in ("seed.iso", "disk.qcow2", "part.json"):
        (guest / name).write_bytes(name.encode())
    domains = types.SimpleNamespace(figures=lambda *_arguments: {})
    assert send._contents(guest, domains) == {"seed.iso": b"seed.iso"}  # type: ignore[arg-type]
