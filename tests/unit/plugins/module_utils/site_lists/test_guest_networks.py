# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Further networks: what the site may list, what a request may choose of it, and which addresses there are."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resolve import (
    ImageFacts,
    Offers,
    ResolvedRequest,
    parts_in_the_way,
    resolve,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_file import PolicyErrors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import RequestErrors, parse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import guest_networks

FAST = "fast bridge bridge=br1 addresses=10.9.0.0/16 mtu=9000"
MINE = "mine vxlan addresses=172.31.0.0/16 mtu=1400"
TAGGED = "tagged vlan device=eth1 tag=120 addresses=10.11.0.0/16 mtu=9000"
STORE = "store bridge bridge=br2 addresses=10.10.0.0/16 confined=no"
POOL = Offers(images=(ImageFacts("debian12@1", "debian", "x86_64"), ImageFacts("osv@1", "osv", "x86_64")))
SITE = dataclasses.replace(Policy(), networks=(FAST, STORE), checkpoint_dir="/shared")


def ask(text: str, policy: Policy = SITE) -> ResolvedRequest:
    return resolve(parse([(text, "command line")]), policy, POOL)


def faults_of(text: str) -> list[tuple[str, str]]:
    with pytest.raises(PolicyErrors) as caught:
        policy_file.parse(text, "vtorque.yml")
    return [(fault.key, fault.message) for fault in caught.value.faults]


@pytest.mark.parametrize("line", [FAST, STORE, MINE, TAGGED])
def test_line_is_written_as_it_is_read(line: str) -> None:
    assert guest_networks.format_line(guest_networks.read_line(f"  {line.replace(' ', '   ')} ")) == line


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("Fast bridge bridge=br1 addresses=10.9.0.0/16", "small letters and digits"),
        ("fast-1 bridge bridge=br1 addresses=10.9.0.0/16", "small letters and digits"),
        ("fast ipvlan bridge=br1 addresses=10.9.0.0/16", "the kind is one of bridge, vlan, vxlan"),
        ("fast macvtap device=eth1 addresses=10.9.0.0/16", "pass no bridge, where guests are confined; give the card"),
        ("fast vlan parent=eth1 id=120 addresses=10.9.0.0/16", "options of vlan: device, tag, addresses, mtu"),
        ("fast vlan device=eth1 addresses=10.9.0.0/16", "tag= is missing"),
        ("fast vlan tag=120 addresses=10.9.0.0/16", "device= is missing"),
        ("fast vlan device=eth1 tag=4095 addresses=10.9.0.0/16", "tag=4095: from 1 to 4094"),
        ("fast vlan device=eth1 tag=0 addresses=10.9.0.0/16", "tag=0: not so"),
        ("fast vlan device=eth1 tag=120 addresses=10.9.0.0/16 confined=no", "options of vlan"),
        ("fast bridge addresses=10.9.0.0/16", "bridge= is missing"),
        ("fast bridge bridge=br1", "addresses= is missing"),
        ("fast bridge bridge=br1 addresses=dhcp", "addresses=dhcp: not so"),
        ("fast bridge bridge=br1 addresses=10.9.0.0/16 id=7", "id=7: not so; options of bridge: bridge, addresses"),
        ("fast bridge bridge=br1 bridge=br2 addresses=10.9.0.0/16", "each once"),
        ("mine vxlan bridge=br1 addresses=10.9.0.0/16", "bridge=br1: not so; options of vxlan: addresses, mtu"),
        ("mine vxlan", "addresses= is missing"),
        ("mine vxlan addresses=10.9.0.0/16 confined=no", "options of vxlan"),
        ("fast bridge bridge=br1 addresses=10.9.1.0/16", "the network is 10.9.0.0/16"),
        ("fast bridge bridge=br1 addresses=10.9.0.256/16", "an IPv4 network from /8 to /29"),
        ("fast bridge bridge=br1 addresses=10.9.0.0/30", "an IPv4 network from /8 to /29"),
        ("fast bridge bridge=br1 addresses=224.0.0.0/8", "no addresses for hosts"),
        ("fast bridge bridge=br1 addresses=10.9.0.0/16 mtu=100", "mtu=100: from 576 to 65535"),
        ("fast", "the kind is one of"),
    ],
)
def test_line_that_cannot_be_is_refused_with_what_can(line: str, sentence: str) -> None:
    [(key, message)] = faults_of(f"networks: ['{line}']\n")
    assert key == "networks"
    assert sentence in message


@pytest.mark.parametrize(
    ("text", "key", "sentence"),
    [
        (f"networks: ['{FAST}', '{FAST.replace('br1', 'br2').replace('10.9', '10.8')}']", "networks", "fast is there"),
        (f"bridge: br1\nnetworks: ['{FAST}']", "networks", "br1 is the bridge of another network, too"),
        (f"networks: ['{FAST}', 'b {STORE[6:].replace('10.10', '10.9')}']", "networks", "are those of"),
        (f"node_number: 256\nnetworks: ['{FAST}']", "networks", "no addresses for guests of node_number 256"),
        (f"allow_user_images: true\nnetworks: ['{STORE}']", "networks", "confined=no does not go with allow_user_im"),
        (f"confine_guests: false\nnetworks: ['{MINE}']", "networks", "mine: kind vxlan needs confine_guests"),
        (f"confine_guests: false\nnetworks: ['{TAGGED}']", "networks", "tagged: kind vlan needs confine_guests"),
        (f"networks: ['{TAGGED}', '{STORE}']", "networks", "tagged: kind vlan does not go with confined=no of store"),
        (f"node_number: 256\nnetworks: ['{TAGGED}']", "networks", "no addresses for guests of node_number 256"),
        (f"networks: ['{MINE}', '{STORE}']", "networks", "does not go with confined=no of store"),
        (f"network_default: [slow]\nnetworks: ['{FAST}']", "network_default", "this site has no network slow"),
        ("network_default: [fast]", "network_default", "this site has no further networks"),
    ],
)
def test_networks_that_do_not_go_together_are_refused(text: str, key: str, sentence: str) -> None:
    [found] = faults_of(f"{text}\n")
    assert (found[0], sentence in found[1]) == (key, True), found


def test_vlan_of_a_device_is_one_network_and_its_device_may_carry_others() -> None:
    other = TAGGED.replace("tagged", "other").replace("10.11", "10.12")
    found = faults_of(f"networks: ['{TAGGED}', '{other}']\n")
    assert [message for _key, message in found] == [
        "tagged: eth1.120 is the VLAN of another network, too",
        "other: eth1.120 is the VLAN of another network, too",
    ]
    text = f"bridge: eth1\nnetworks: ['{TAGGED}', '{other.replace('120', '121')}']\n"
    assert len(policy_file.parse(text, "vtorque.yml").policy.networks) == 2


def test_number_of_the_last_node_has_addresses_and_the_next_one_has_not() -> None:
    fast = guest_networks.read_line(FAST)
    assert fast.address(255 << 8 | 254) == "10.9.255.254"
    assert (fast.address(0), fast.address(255 << 8 | 255), fast.address(256 << 8 | 1)) == ("", "", "")
    small = guest_networks.read_line("s bridge bridge=br1 addresses=192.168.4.0/22")
    assert small.address(3 << 8 | 7) == "192.168.7.7"


def test_number_of_a_node_does_not_matter_where_each_job_has_addresses_of_its_own() -> None:
    text = f"node_number: 16383\nnetworks: ['{MINE}', 'yours {MINE[5:].replace('31', '30')}']\n"
    assert len(policy_file.parse(text, "vtorque.yml").policy.networks) == 2


def test_request_chooses_networks_in_its_order() -> None:
    found = ask("img=debian12,network=store+FAST")
    assert found.text("network") == "store+fast"
    assert ask("img=debian12").values["network"] is None


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ("slow", "this site has no network slow; it has fast, store"),
        (
            "fast+fast",
            "allowed: a network of the site's (vmgr config show networks); several are joined by +; nothing twice",
        ),
    ],
)
def test_request_for_a_network_that_is_not_listed_is_refused(chosen: str, sentence: str) -> None:
    with pytest.raises(RequestErrors) as caught:
        ask(f"img=debian12,network={chosen}")
    assert [(fault.key, fault.message) for fault in caught.value.faults] == [("network", sentence)]


def test_site_without_networks_or_with_too_many_in_a_request_says_so() -> None:
    with pytest.raises(RequestErrors, match="this site has no further networks"):
        ask("img=debian12,network=fast", Policy())
    many = tuple(f"n{n} bridge bridge=b{n} addresses=10.{n}.0.0/16" for n in range(1, 5))
    with pytest.raises(RequestErrors, match="at most 3 networks"):
        ask("img=debian12,network=n1+n2+n3+n4", dataclasses.replace(SITE, networks=many))


def test_guest_of_osv_has_one_card_and_gives_up_a_default_without_a_word() -> None:
    with pytest.raises(RequestErrors, match="OSv has one network card"):
        ask("img=osv,network=fast")
    default = dataclasses.replace(SITE, network_default=("fast",))
    assert ask("img=osv", default).values["network"] is None
    assert ask("img=debian12", default).values["network"] == ("fast",)


def test_job_on_a_further_network_cannot_begin_again_from_a_checkpoint() -> None:
    with pytest.raises(RequestErrors, match="its addresses on further networks are those of its node"):
        ask("img=debian12,network=fast,checkpoint=on")
    found = ask("img=debian12,network=fast")
    assert "networks" in parts_in_the_way(found.values, found.origins, SITE, POOL)
