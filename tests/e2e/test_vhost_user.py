# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cards of guests on Open vSwitch with DPDK (`vrdma_kind: vhostuser`): the distribution's, without hardware.

Seen to fail: with flows that let all through of a guest.
"""

from __future__ import annotations

import contextlib
import re
import typing as t

import pytest

from .conftest import Site
from .test_confined import HOOK
from .trouble import WAITS, changed, check_offline, check_well, finish, left_on, revive, sweep, wait_in_guest

BRIDGE = "brv"
SETTINGS = {"vrdma_kind": "vhostuser", "vrdma_bridge": BRIDGE, "vrdma_addresses": "10.80.0.0/16"}
CONTROL = "ovs-appctl -t /run/openvswitch/vswitchd.ctl"
END = f"""
{CONTROL} exit --cleanup; ovs-appctl -t ovsdb-server exit
until [ ! -e /sys/class/net/ovs-netdev ] && [ ! -e /sys/class/net/{BRIDGE} ]; do sleep 0.1; done
"""
FORGED, ANOTHERS = "5a:54:00:aa:bb:cc", "10.80.1.99"
HOSTILE = f"""#!/bin/sh
# root of a guest, who sends as another on the card of the switch: with a MAC address, and with an address of another's
exec >/dev/null 2>&1
for place in /sys/class/net/*; do
    [ "$(cat "$place/address")" != {{}} ] || dev=${{{{place##*/}}}}
done
ip addr add {ANOTHERS}/16 dev $dev
arping -U -c 1 -w 1 -I $dev {ANOTHERS}
ip addr del {ANOTHERS}/16 dev $dev
ip link set $dev down; ip link set $dev address {FORGED}; ip link set $dev up
arping -c 1 -w 1 -I $dev 10.80.1.2
ip link set $dev down; ip link set $dev address {{}}; ip link set $dev up
exit 0
"""
TALK = """
peer=$(sort -u "$PBS_NODEFILE" | grep -vxF "$(hostname)")
ssh "$peer-vrdma" 'echo "$(hostname) heard $(echo $SSH_CONNECTION | sed s/::ffff://g)"' </dev/null
"""
PORTS = "ovs-vsctl --columns=name find Interface type=dpdkvhostuserclient"


@contextlib.contextmanager
def switch(site: Site, node: str) -> t.Iterator[None]:
    """Open vSwitch runs on a node, for as long as it takes: its thread of packets has a processor's time."""
    site.root(node, revive("switch"))
    try:
        yield
    finally:
        site.root(node, END)


def flows(site: Site, node: str) -> dict[str, int]:
    """How many packets each flow of a node's bridge has met."""
    found = re.findall(
        r"n_packets=([0-9]+),.* (priority=\S+ actions=\S+)", site.root(node, f"ovs-ofctl dump-flows {BRIDGE}")
    )
    return {flow: int(packets) for packets, flow in found}


OWN = "dl_src=5a:54:00:00:01:01,dl_dst=5a:54:00:00:01:02"
FRAMES = {
    f"{OWN},arp,arp_sha=5a:54:00:00:01:01,arp_spa=10.80.1.1": True,
    f"{OWN},ip,nw_src=10.80.1.1,nw_dst=10.80.1.2": True,
    f"{OWN},arp,arp_sha=5a:54:00:00:01:01,arp_spa={ANOTHERS}": False,
    f"{OWN},arp,arp_sha={FORGED},arp_spa=10.80.1.1": False,
    f"{OWN},ip,nw_src={ANOTHERS},nw_dst=10.80.1.2": False,
    f"{OWN},ip,nw_src=10.80.1.1,nw_dst=10.80.1.3": False,
    f"dl_src={FORGED},dl_dst=5a:54:00:00:01:02,ip,nw_src=10.80.1.1,nw_dst=10.80.1.2": False,
    f"{OWN},dl_vlan=7,ip,nw_src=10.80.1.1,nw_dst=10.80.1.2": False,
    f"{OWN},ipv6": False,
}
"""Frames of a guest whose job has one other guest, and whether they may pass."""
PRODUCT = """
import pathlib
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices.vrdma import open_vswitch
"""
HOLD = f"""{PRODUCT}
names = ("vtv1", "vtv2")
print(open_vswitch.find_problem("{BRIDGE}", confine=True))
ports = [open_vswitch.NewPort(name, "7.fe.1", pathlib.Path("/run/lab", name)) for name in names]
open_vswitch.add_ports("{BRIDGE}", ports)
sender = open_vswitch.Sender("vtv1", "5a:54:00:00:01:01", "10.80.1.1", ("10.80.1.2",))
open_vswitch.confine_ports("{BRIDGE}", [sender], pathlib.Path("/run/lab/flows"))
print(*(f"{{port.name}} {{port.key}}" for port in open_vswitch.list_ports()))
"""
REMOVE = f"""{PRODUCT}
open_vswitch.remove_ports("{BRIDGE}", ["vtv1", "vtv2"])
"""


def play(site: Site, program: str) -> str:
    """What the product prints on a node."""
    return site.root("cn1", f"/opt/vtorque/venv/bin/python - <<'END'\n{program}\nEND")


def test_switch_lets_through_of_a_guest_what_is_its_own(site: Site) -> None:
    """Without guests: what the switch itself says of frames, by the flows and ports that the product makes."""
    with switch(site, "cn1"):
        assert sorted(play(site, HOLD).split()) == ["7.fe.1", "7.fe.1", "vtv1", "vtv2"]
        number = site.root("cn1", "ovs-vsctl get Interface vtv1 ofport").strip()
        for frame, passes in FRAMES.items():
            done = site.root("cn1", f"{CONTROL} ofproto/trace {BRIDGE} in_port={number},{frame}")
            assert (done.strip().splitlines()[-1] != "Datapath actions: drop") == passes, done
        play(site, REMOVE)
        assert site.root("cn1", PORTS) == ""
        assert flows(site, "cn1") == {}


@pytest.mark.full
def test_two_guests_talk_over_the_switch_and_send_as_nobody_else(site: Site) -> None:
    """By name, each from its own address; what root of one sends as another is dropped; no port and socket stay."""
    own = "5a:54:00:00:01:01"
    with switch(site, "cn1"), changed(site, ("fe", "cn1"), **SETTINGS):
        site.root(
            "cn1",
            f"mkdir -p {HOOK.rpartition('/')[0]}; cat >{HOOK} <<'END'\n{HOSTILE.format(own, own)}END\nchmod 755 {HOOK}",
        )
        try:
            request = ("-l", "nodes=cn1:ppn=2", "-vm", "vrdma=true,vms_per_node=2,vcpus=1")
            job_id = site.submit(*request, stdin=TALK + WAITS)
            wait_in_guest(site, job_id)
            seen = flows(site, "cn1")
            known = site.root("cn1", f"{CONTROL} fdb/show {BRIDGE}")
            ended = finish(site, job_id)
        finally:
            site.root("cn1", f"rm {HOOK}")
        assert ended.exit_status == 0, ended.err
        name, address, port = re.findall(r"^(\S+) heard (\S+) [0-9]+ (\S+) 22$", ended.out, re.MULTILINE)[0]
        assert {name: port, "vcn1-1": address} == {"vcn1-1": "10.80.1.1", "vcn1-2": "10.80.1.2"}
        assert set(re.findall(r"[0-9a-f:]{17}", known)) == {own, "5a:54:00:00:01:02"}
        let = [packets for flow, packets in seen.items() if f"dl_src={own}" in flow]
        [number] = {found[1] for flow in seen if (found := re.search(f"in_port=([0-9]+),.*dl_src={own}", flow))}
        dropped = seen[f"priority=60000,in_port={number} actions=drop"]
        assert (len(let), min(let) > 0, dropped > 0) == (2, True, True), seen
        assert site.root("cn1", PORTS) == ""
        assert flows(site, "cn1") == {}
    assert left_on(site, "cn1") == []


@pytest.mark.full
def test_node_whose_switch_is_down_makes_nothing_and_is_noted_until_it_runs(site: Site) -> None:
    """The job starts on the other node; the first takes jobs again when its switch has come."""
    with switch(site, "cn2"), changed(site, ("fe", "cn1", "cn2"), **SETTINGS):
        job_id = site.submit("-vm", "vrdma=true", stdin="hostname\n")
        ended = site.end(job_id)
        assert (ended.node, ended.exit_status, ended.err) == ("cn2", 0, "")
        check_offline(site.nodes()["cn1"], "devices", job_id, "database connection failed")
        assert left_on(site, "cn1") == []
        with switch(site, "cn1"):
            assert sweep(site, "cn1").returncode == 0
            check_well(site, "cn1")
    assert left_on(site, "cn1", "cn2") == []
