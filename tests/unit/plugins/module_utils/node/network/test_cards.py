# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cards of guests on further networks: addresses that no other guest has, and the bridges that must be there."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import (
    addresses,
    cards,
    nft_rules,
    private,
    vlans,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import guest_networks

FAST = guest_networks.read_line("fast bridge bridge=br1 addresses=10.0.0.0/10 mtu=9000")
STORE = guest_networks.read_line("store bridge bridge=br2 addresses=10.64.0.0/10 confined=no")
MINE = guest_networks.read_line("mine vxlan addresses=172.31.0.0/24 mtu=1400")
TAGGED = guest_networks.read_line("tagged vlan device=eth1 tag=120 addresses=10.128.0.0/10 mtu=9000")
NODE = NodeSettings("cn1", 258, networks=(FAST, STORE, MINE, TAGGED))
KEY = "7.head.1"


def test_cards_follow_from_number_and_slot() -> None:
    first, second = cards.cards_of(cards.find_networks("store+fast", NODE), 7, 0, KEY, NODE)
    assert (first.tap, first.bridge, first.mac, first.interface) == (
        "vtq7n1", "br2", "42:54:00:01:02:07", "10.65.2.7/10",
    )  # fmt: skip
    assert (second.tap, second.bridge, second.mac, second.interface) == (
        "vtq7n2", "br1", "72:54:00:01:02:07", "10.1.2.7/10",
    )  # fmt: skip
    assert cards.format_addresses((first, second)) == "store=10.65.2.7 fast=10.1.2.7"
    assert cards.find_networks("", NODE) == ()


def test_no_two_guests_of_a_site_have_a_mac_address_or_an_address_in_common() -> None:
    found = [
        card
        for number in (0, 1, 255, 256, 16383)
        for slot in (1, 2, 254)
        for card in cards.cards_of((FAST, STORE), slot, 0, KEY, dataclasses.replace(NODE, node_number=number))
    ]
    for one in ({card.mac for card in found}, {card.address for card in found}):
        assert len(one) == len(found) == 30
    # also beside those of first cards; none is for a group, and all are locally administered
    assert all(int(card.mac[:2], 16) & 3 == 2 and not card.mac.startswith("52:") for card in found)
    assert NODE.mac(7) == "52:54:00:01:02:07"


def test_card_on_a_network_of_the_job_follows_from_start_and_rank() -> None:
    [card] = cards.cards_of((MINE,), 7, 3, KEY, NODE)
    bridge = private.bridge_of(KEY, "mine")
    assert (card.tap, card.bridge, card.mac, card.interface, card.mtu) == (
        "vtq7n1", bridge, "02:76:71:00:00:03", "172.31.0.4/24", 1400,
    )  # fmt: skip
    assert card.guest.private
    # nobody has to be let in where nobody else is
    assert dict(cards.confined("mine=172.31.0.4", 7, NODE)) == {}
    with pytest.raises(UserFault, match="no address for the guest of rank 254"):
        cards.cards_of((MINE,), 7, 254, KEY, NODE)


def test_card_in_a_vlan_is_that_of_a_bridge_of_the_site_which_the_node_does_not_hear() -> None:
    [card] = cards.cards_of((TAGGED,), 7, 3, KEY, NODE)
    assert (card.tap, card.bridge, card.mac, card.interface, card.mtu) == (
        "vtq7n1", vlans.bridge_of(TAGGED), "42:54:00:01:02:07", "10.129.2.7/10", 9000,
    )  # fmt: skip
    assert card.guest == nft_rules.Guest("vtq7n1", card.mac, "10.129.2.7", private=False, tagged=True)
    # whom its job may reach is let in, as on a bridge of the site
    assert dict(cards.confined("tagged=10.129.2.7", 7, NODE)).keys() == {"tagged"}
    assert cards.list_confined_devices("tagged=10.129.2.7", 7, NODE) == ("vtq7n1",)


def test_number_without_addresses_is_the_sites_fault() -> None:
    small = guest_networks.read_line("small bridge bridge=br1 addresses=10.9.0.0/16")
    with pytest.raises(SiteFault, match=r"small: 10\.9\.0\.0/16 has no address for a guest of cn1.*node_number is 258"):
        cards.cards_of((small,), 1, 0, KEY, NODE)


def test_network_that_the_nodes_own_list_lacks_is_refused() -> None:
    with pytest.raises(UserFault, match="network=slow: cn1 has no such network; it has fast, store, mine, tagged"):
        cards.find_networks("fast+slow", NODE)


def test_cards_that_rules_hold_are_found_by_their_numbers() -> None:
    held = dict(cards.confined("store=10.65.2.7 fast=10.1.2.7", 7, NODE))
    assert list(held) == ["fast"]
    assert held["fast"] == nft_rules.Guest("vtq7n2", "72:54:00:01:02:07", "10.1.2.7")


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ((), "is missing on this node"),
        (("br1",), "is an interface of another kind"),
        (("br1", "br1/bridge"), "is down"),
    ],
)
def test_bridge_that_cannot_serve_is_the_nodes_fault(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, made: tuple[str, ...], sentence: str
) -> None:
    for name in made:
        (tmp_path / name).mkdir()
        (tmp_path / name.partition("/")[0] / "flags").write_text("0x1002\n")
    monkeypatch.setattr(addresses, "SYS_NET", tmp_path)
    monkeypatch.setattr(addresses.socket, "if_nametoindex", lambda _name: 7)
    with pytest.raises(NodeFault, match=f"bridge br1 of network fast: {sentence}") as caught:
        cards.check_networks((FAST,))
    assert caught.value.cause == "bridge"
    if "br1/bridge" in made:
        (tmp_path / "br1/flags").write_text("0x1003\n")
        cards.check_networks((FAST,))


@pytest.mark.parametrize(
    ("device", "slot"), [("vtq7", 7), ("vtq255n3", 255), ("vtq7n4", None), ("vtqwarm", None), ("eth0", None)]
)
def test_device_of_a_guest_tells_its_slot(device: str, slot: int | None) -> None:
    assert NodeSettings.slot_of(device) == slot
    assert slot is None or device in NODE.tap_names(slot)
