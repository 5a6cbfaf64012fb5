# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""libvirt's domains, on libvirt's own test driver: a hypervisor that boots nothing."""

from __future__ import annotations

import dataclasses
import pathlib
import select
import socket
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.connection import Domains
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import (
    DomainSpec,
    render_xml,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.events import DomainEvent

SPEC = DomainSpec(
    name="vcn1-1", uuid="3b33ef89-55f0-47d0-bcf7-e06aa1dd1806", job_id="7.head", start=1, owner="alice", rank=0,
    node="cn1", hypervisor="test", arch="x86_64", ram_mib=256, vcpus=1, disk=pathlib.Path("/g/disk.qcow2"),
    image=pathlib.Path("/pool/disk.qcow2"), image_format="qcow2", seed=pathlib.Path("/g/seed.iso"),
    console=pathlib.Path("/g/console.log"), agent=pathlib.Path("/g/agent"),
    bridge="br0", tap="vtq1", mac="52:54:00:00:01:01",
)  # fmt: skip


# a connection to a file of its own shares nothing with the connections of other tests
NODE = """<node><domain type='test'><name>test</name><memory unit='MiB'>8</memory><os><type>hvm</type></os></domain>
</node>"""


@pytest.fixture
def domains(tmp_path: pathlib.Path) -> t.Iterator[Domains]:
    (tmp_path / "node.xml").write_text(NODE)
    with Domains(f"test://{tmp_path}/node.xml") as connection:
        yield connection


def xml(**changes: t.Any) -> str:
    return render_xml(dataclasses.replace(SPEC, **changes), site_dir=None)


def test_figures_are_of_those_that_are_asked_for_and_there(domains: Domains) -> None:
    domains.create(xml())
    found = domains.figures({"vcn1-1", "vcn1-2"}, within_s=60)
    assert set(found) == {"vcn1-1"}
    assert found["vcn1-1"]["cpu.process"] > 0


def test_created_domain_is_transient_and_carries_whose_it_is(domains: Domains) -> None:
    made = domains.create(xml())
    assert (made.name, made.uuid, made.state, made.persistent) == (SPEC.name, SPEC.uuid, "running", False)
    assert made.mark is not None
    assert dataclasses.astuple(made.mark) == ("7.head", 1, "alice", 0, "cn1")
    assert made.macs == (SPEC.mac,)
    assert domains.facts("vcn1-1") == made


def test_list_holds_ours_alone_unless_all_are_asked_for(domains: Domains) -> None:
    domains.create(xml())
    assert [facts.name for facts in domains.list()] == ["vcn1-1"]
    assert [facts.name for facts in domains.list(ours=False)] == ["test", "vcn1-1"]


def test_names_are_exact(domains: Domains) -> None:
    domains.create(xml(name="vcn1-10"))
    assert domains.facts("vcn1-1") is None


def test_destroy_is_idempotent(domains: Domains) -> None:
    domains.create(xml())
    assert domains.destroy("vcn1-1") is True
    assert domains.destroy("vcn1-1") is False
    assert domains.facts("vcn1-1") is None


def test_persistent_domain_is_forgotten_too(domains: Domains) -> None:
    assert domains.destroy("test") is True
    assert domains.facts("test") is None


def test_events_wake_a_poll_and_are_told_in_order(domains: Domains) -> None:
    domains.listen()
    domains.listen()
    domains.create(xml())
    assert select.select([domains], [], [], 30)[0]
    heard = list(domains.events())
    domains.destroy("vcn1-1")
    while not any(event.kind == "stopped" for event in heard):
        assert select.select([domains], [], [], 30)[0]
        heard += domains.events()
    assert heard == [DomainEvent("vcn1-1", "started"), DomainEvent("vcn1-1", "stopped", "it was destroyed")]
    assert domains.events() == ()


def test_xml_that_libvirt_refuses_is_the_sites_fault(domains: Domains, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SiteFault, match="schema"):
        domains.create(xml().replace("<devices>", "<devices><bogus/>"))
    # libvirt would print its errors on what is the job's standard error
    assert capfd.readouterr() == ("", "")


def test_name_that_is_taken_is_an_error_that_blames_nobody(domains: Domains) -> None:
    domains.create(xml())
    with pytest.raises(VTorqueError) as caught:
        domains.create(xml(uuid="3b33ef89-55f0-47d0-bcf7-e06aa1dd1807"))
    assert caught.value.fault == "unclear"


def test_libvirt_that_is_not_there_is_the_nodes_fault(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NodeFault, match="is libvirtd"):
        Domains(f"qemu+unix:///system?socket={tmp_path}/none")


def test_libvirt_that_accepts_and_stays_silent_is_not_waited_for_beyond_the_bound(tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        with pytest.raises(NodeFault, match=r"gave no answer within 0\.2 s") as caught:
            Domains(f"qemu+unix:///system?socket={tmp_path}/silent", connect_s=0.2)
    assert caught.value.cause == "libvirt"


def test_silence_of_libvirt_is_never_a_missing_domain(domains: Domains) -> None:
    domains._connection.close()
    with pytest.raises(NodeFault):
        domains.facts("vcn1-1")
    with pytest.raises(NodeFault):
        domains.destroy("vcn1-1")
    with pytest.raises(NodeFault):
        domains.list()


def test_connection_that_was_lost_is_there_again_with_its_events(domains: Domains) -> None:
    domains.listen()
    domains._on_close(None, 1, domains._number)
    domains._connection.close()
    domains.reconnect(60)
    assert domains.events() == ()
    domains._on_close(None, 1, domains._number - 1)  # of the former connection
    assert domains.events() == ()
    domains.create(xml())
    assert select.select([domains], [], [], 30)[0]
    assert domains.events() == (DomainEvent("vcn1-1", "started"),)


def test_connection_that_lives_is_not_opened_again(domains: Domains) -> None:
    before = domains._connection
    domains.reconnect(60)
    assert domains._connection is before


def test_call_that_a_restart_of_libvirt_broke_is_made_again(domains: Domains) -> None:
    domains._connection.close()
    found: list[str] = []
    domains.repeat_if_lost(lambda: found.extend(facts.name for facts in domains.list(ours=False)), 60)
    assert found == ["test"]


def test_libvirt_that_does_not_return_is_the_nodes_fault(domains: Domains, tmp_path: pathlib.Path) -> None:
    domains._connection.close()
    (tmp_path / "node.xml").unlink()
    with pytest.raises(NodeFault):
        domains.repeat_if_lost(domains.list, 0.3)


def test_ensure_running_does_nothing_the_second_time(domains: Domains) -> None:
    first = domains.ensure_running(xml())
    second = domains.ensure_running(xml())
    assert (first.changed, first.before) == (True, None)
    assert (second.changed, second.after) == (False, first.after)


def test_ensure_running_in_check_mode_makes_nothing(domains: Domains) -> None:
    assert domains.ensure_running(xml(), check=True).changed is True
    assert domains.facts("vcn1-1") is None


def test_ensure_running_replaces_only_when_allowed(domains: Domains) -> None:
    domains.ensure_running(xml())
    with pytest.raises(VTorqueError, match="memory"):
        domains.ensure_running(xml(ram_mib=512))
    outcome = domains.ensure_running(xml(ram_mib=512), replace=True)
    assert outcome.changed is True
    assert any("memory" in line for line in outcome.differences)
    assert domains.ensure_running(xml(ram_mib=512)).changed is False


def test_ensure_absent_says_whether_there_was_one(domains: Domains) -> None:
    domains.ensure_running(xml())
    assert domains.ensure_absent("vcn1-1", check=True).changed is True
    assert domains.facts("vcn1-1") is not None
    assert domains.ensure_absent("vcn1-1").changed is True
    assert domains.ensure_absent("vcn1-1").changed is False


def test_capabilities_name_kinds_by_architecture(domains: Domains) -> None:
    assert "test" in {kind for kinds in domains.capabilities().domains.values() for kind in kinds}


def test_closing_twice_is_closing(domains: Domains) -> None:
    domains.listen()
    domains.close()
    domains.close()
    with pytest.raises(NodeFault):
        domains.list()
