# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr node`: devices of this node that guests may have, and the end of a quarantine."""

from __future__ import annotations

import argparse
import os
import typing as t

from ....module_utils.errors import UserFault
from ....module_utils.node.devices import host_devices, leases
from ...bridge.node_settings import LoadPolicy, read_settings
from ..output.json_output import add_json, tell
from ..output.tables import table
from ..output.verbs import add_verb

if t.TYPE_CHECKING:
    from ....module_utils.node.devices.pci.examination import Examined

HELP = "devices of this node that guests may have (root)"
DEVICES_EPILOG = """\
A device is free, of a start of a job, in quarantine, or something speaks against it: then a line below says what, and
what to do.

examples:
  vmgr node devices                               a row a device
  vmgr node devices --query '[?!usable].address'  which no guest can have
"""
RELEASE_EPILOG = """\
A device that did not come back after a job is in quarantine, and no guest gets it.  Release it when it is well again:
after a power cycle of the node, or when its driver has it and it answers.  A node that is offline for it comes back by
itself at the next check.

example:
  vmgr node release 0000:3b:00.0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `vmgr node`."""
    verbs = parser.add_subparsers(dest="verb", required=True)
    add_json(add_verb(verbs, "devices", "devices that the site lists for this node, and who has them", DEVICES_EPILOG))
    release = add_verb(verbs, "release", "end the quarantine of a device", RELEASE_EPILOG)
    release.add_argument("device", metavar="DEVICE", help="its address, such as 0000:3b:00.0")


def run(call: argparse.Namespace, load: LoadPolicy) -> int:
    """Do what was asked for; see `Subject` of `main.py`.

    Raises:
        UserFault: who calls is not root; the device is not in quarantine.
        VTorqueError: the configuration or what starts have cannot be read.
    """
    if os.geteuid() != 0:
        raise UserFault(f"node {call.verb}", "is root's alone", "call it as root")
    settings = read_settings(load)
    if call.verb == "release":
        if not leases.release(call.device, settings):
            names = ", ".join(one.device for one in leases.read_quarantine(settings)) or "none"
            raise UserFault(f"device {call.device}", f"is not in quarantine (in quarantine: {names})")
        print(f"device {call.device} may be handed to guests again")
        return 0
    found = host_devices.examine(settings)
    if call.json:
        tell(call, [_facts(one) for one in found])
    else:
        _print_table(found)
    return 0


def _facts(one: Examined) -> dict[str, t.Any]:
    return {
        "address": one.address,
        "class": one.pci_class.name,
        "usable": one.is_usable,
        "start": one.lease.key if one.lease else None,
        "quarantine": one.quarantined or None,
        "faults": [{"of": fault.owner, "why": fault.why, "hint": fault.hint} for fault in one.faults],
    }


def _print_table(found: t.Sequence[Examined]) -> None:
    if not found:
        print("the site lists no devices for this node (pci_classes)")
        return
    table([{"device": one.address, "class": one.pci_class.name, "state": _state(one)} for one in found])
    for one in found:
        for text in filter(None, [one.quarantined, *(f"{fault.why} ({fault.hint})" for fault in one.faults)]):
            print(f"  {one.address}: {text}")


def _state(one: Examined) -> str:
    if one.quarantined:
        return "in quarantine"
    if one.lease:
        return f"start {one.lease.key}"
    return "not usable" if one.faults else "free"
