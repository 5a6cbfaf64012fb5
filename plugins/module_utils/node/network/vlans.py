# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VLANs of the site on a node (IEEE 802.1Q): for each a device that adds and takes its tag, and a bridge for guests.

The rules of guests hold on that bridge as on any other, and guests meet no tag (docs/adr/0031).  The first start that
needs a VLAN creates both devices.  They stay until the node boots, or until the site lists the network no more: the
guests of all jobs share them, as they share a bridge of the site's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import typing as t

from ...errors import NodeFault, VTorqueError
from ...site_lists.guest_networks import Network
from ...system.clock import Deadline
from ...time_budget import ADDRESSES_ANSWER_S
from ..state import start_lock
from ..state.settings import NodeSettings
from . import addresses, iproute

_BRIDGE, _TAGGER = "vtb", "vtv"
_DEVICE = re.compile(rf"({_BRIDGE}|{_TAGGER})([0-9]{{1,4}}x[0-9a-f]{{4}})")
KERNEL_HAS = pathlib.Path("/proc/net/vlan")
"""There as soon as the kernel has VLANs loaded (Documentation/networking, 8021q)."""
MODULE = "8021q"
MODULES = pathlib.Path("/lib/modules")


def bridge_of(network: Network) -> str:
    """Return the name of the bridge of a VLAN: it has the tag, and differs where two devices carry one tag."""
    return f"{_BRIDGE}{_number(network)}"


def _number(network: Network) -> str:
    return f"{network.tag}x{hashlib.sha256(network.place.encode()).hexdigest()[:4]}"


def check(network: Network) -> None:
    """Check that this node can connect guests to a VLAN.

    Args:
        network: of kind vlan.

    Raises:
        NodeFault: it cannot; the text says why, and what to do.
        VTorqueError: `bridge` does not answer.
    """
    why, hint = _lack(network)
    if why:
        raise NodeFault(f"{network.device}, which carries network {network.name},", why, hint, cause="bridge")


def _lack(network: Network) -> tuple[str, str]:
    device, tag, hint = network.device, network.tag, "see networks in vtorque.yml"
    place = addresses.SYS_NET / device
    if not place.exists():
        return "is missing on this node", hint
    if not addresses.is_up(device):
        return "is down", f"ip link set {device} up"
    mtu = int((place / "mtu").read_text(encoding="ascii"))
    if mtu < network.mtu:
        return f"has an MTU of {mtu}, and guests there {network.mtu}", f"ip link set {device} mtu {network.mtu}"
    if (place / "bridge").exists():
        if (place / "bridge/vlan_filtering").read_text(encoding="ascii").strip() != "1":
            why = "does not filter VLANs, so what is at any of its ports could send with any tag"
            return why, f"ip link set {device} type bridge vlan_filtering 1"
        tagged = iproute.read_tagged(Deadline.after(ADDRESSES_ANSWER_S))
        carrying = {name for name, spans in tagged.items() if any(tag in span for span in spans)}
        if device not in carrying:
            return f"does not take part in VLAN {tag} itself", f"bridge vlan add dev {device} vid {tag} self"
        if not carrying & {*addresses.bridge_members(device)}:
            return f"has no port that carries VLAN {tag} with its tag", f"bridge vlan add dev UPLINK vid {tag}"
    if not _kernel_has_vlans():
        why = f"cannot have VLAN {tag}: the kernel of this node has no VLANs"
        return why, f"load its module {MODULE}, or boot a kernel that has it"
    return "", ""


def _kernel_has_vlans() -> bool:
    if KERNEL_HAS.exists():
        return True
    for table in ("modules.dep", "modules.builtin"):  # what depmod(8) lists
        with contextlib.suppress(OSError):
            if f"/{MODULE}.ko" in (MODULES / os.uname().release / table).read_text(encoding="utf-8"):
                return True
    return False


def create(networks: t.Sequence[Network], settings: NodeSettings, deadline: Deadline) -> None:
    """Create the bridges of VLANs, where they are not there yet.

    Args:
        networks: of kind vlan.
        settings: NodeSettings of this node.
        deadline: of the making.

    Raises:
        VTorqueError: the kernel refuses, or another start does not get done with it.
    """
    with _alone(settings, deadline):
        for network in networks:
            iproute.run_batch("ip", _lines(network), deadline)


def _lines(network: Network) -> list[str]:
    bridge, tagger, lines = bridge_of(network), f"{_TAGGER}{_number(network)}", []
    if not addresses.any_device([bridge]):
        lines += [f"link add {bridge} type bridge forward_delay 0 stp_state 0 mcast_snooping 0"]
    if not addresses.any_device([tagger]):
        lines += [f"link add link {network.device} name {tagger} type vlan id {network.tag}"]
    return [
        *lines,
        # a device that is up before has an address of IPv6
        f"link set {bridge} addrgenmode none",
        f"link set {tagger} addrgenmode none",
        f"link set {tagger} master {bridge} up",
        f"link set {bridge} up",
    ]


def tidy(settings: NodeSettings) -> tuple[str, ...]:
    """Remove the devices of VLANs that the site lists no more, once no guest is on them; failing, the next call does.

    Args:
        settings: NodeSettings of this node.

    Returns:
        What was removed, each as a text for people.
    """
    listed = {_number(network) for network in settings.networks if network.tag}
    found = map(_DEVICE.fullmatch, sorted(path.name for path in addresses.SYS_NET.glob("vt[bv]*")))
    unlisted = sorted({match[2] for match in found if match} - listed)
    removed = []
    for number in unlisted:
        bridge, tagger = f"{_BRIDGE}{number}", f"{_TAGGER}{number}"
        try:
            with _alone(settings, deadline := Deadline.after(ADDRESSES_ANSWER_S)):
                if {*addresses.bridge_members(bridge)} <= {tagger}:
                    here = [device for device in (tagger, bridge) if addresses.any_device([device])]
                    iproute.run_batch("ip", [f"link del {device}" for device in here], deadline)
                    removed.append(f"bridge {bridge} of a VLAN")
        except (VTorqueError, OSError):
            continue
    return tuple(removed)


def _alone(settings: NodeSettings, deadline: Deadline) -> t.ContextManager[object]:
    return start_lock.lock_alone(settings.run_dir / "locks" / "vlans", settings, deadline)
