# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr node`: what a node has and jobs have of it, its health, devices of guests, and the end of a quarantine."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
import typing as t

from ....module_utils.errors import UserFault, VTorqueError
from ....module_utils.node import occupancy
from ....module_utils.node.devices import host_devices, leases
from ....module_utils.node.health import degrading
from ....module_utils.state import topologies
from ....module_utils.text import printable
from ....module_utils.wire.form import to_dict
from ...bridge.node_settings import LoadPolicy, read_settings
from ...site import compute_nodes, evacuation, node_topology
from ..output import messages
from ..output.json_output import add_json, print_json
from ..output.named_file import write_file
from ..output.node_drawing import print_node
from ..output.node_names import fold_names
from ..output.node_picture import draw_picture
from ..output.progress import counted
from ..output.tables import table
from ..output.verbs import add_verb

if t.TYPE_CHECKING:
    from ....module_utils.node.devices.pci.examination import ExaminedDevice
    from ....module_utils.node.state.settings import NodeSettings
    from ....module_utils.wire.node_topology import NodeTopology

HELP = "what a node has, and what jobs and guests have of it (root)"
UNASKED = 4
TOPOLOGY_EPILOG = """\
A letter at a processor is the job that has it: a capital one is a vCPU with a core of its own, a small one all other
threads of its guest.  NODE is asked over ssh; without it, it is this node.

Users cannot ask nodes.  With --all the host remembers what all nodes have, but nothing of jobs, and vsub --dry-run of
this host shows where a job would be placed.  Call it once on each front end, and again when nodes have changed.

exit status:
  0  all is well
  4  with --all: a node could not be asked; what it said before is still remembered

examples:
  vmgr node topology                         this node, on a terminal
  vmgr node topology cn1 --svg cn1.svg       a picture of another one; --svg alone: on standard output
  vmgr node topology cn1 --query 'guests[].[start,name,vcpu_cores]'
  vmgr node topology --all                   on a front end, for vsub --dry-run
"""
DEVICES_EPILOG = """\
A device is free, of a start of a job, in quarantine, or something speaks against it: then a line below says what, and
what to do.

examples:
  vmgr node devices                               a row a device
  vmgr node devices --query '[?!usable].address'  which no guest can have
"""
HEALTH_EPILOG = """\
What the last vtorque-sweep found of the sources of this node's health (health_sources).  A node that is degrading gets
no new jobs; it is well again when each source has reported well at three sweeps.  Nothing is read by this command.

exit status:
  0  the node is well, or the site has no such sources
  1  it is degrading

examples:
  vmgr node health                     a row a source
  vmgr node health --forget memory     after a repair: forget what the source has reported and counted
"""
RELEASE_EPILOG = """\
A device that did not come back after a job is in quarantine, and no guest gets it.  Release it when it is well again:
after a power cycle of the node, or when its driver has it and it answers.  A node that is offline for it comes back by
itself at the next check.

example:
  vmgr node release 0000:3b:00.0
"""


EVACUATE_EPILOG = """\
Each guest of a job on NODE goes on, on a node of spare_nodes that nobody has: without an end, with its memory, its
disk, its address and its connections.  What cannot move stays, and the reason is printed.  NODE itself is left as
it is: set it offline first, and no new job begins there.

exit status:
  0  no guest of a job is left on NODE
  1  NODE did not answer, or refused
  5  some stay there; with --dry-run: would stay

examples:
  vmgr node evacuate cn2                     all guests that can go, once it is offline
  vmgr node evacuate cn2 --dry-run           what would go where, and what would stay
  vmgr node evacuate cn2 --query '[?why].job_id'
"""
STAYS = 5
"""Exit status where a guest stays on its node."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `vmgr node`."""
    verbs = parser.add_subparsers(dest="verb", required=True)
    add_json(add_verb(verbs, "devices", "devices that the site lists for this node, and who has them", DEVICES_EPILOG))
    topology = add_verb(
        verbs, "topology", "cells, cores, pages and devices of a node, and who has them", TOPOLOGY_EPILOG
    )
    which = topology.add_mutually_exclusive_group()
    which.add_argument("node", metavar="NODE", nargs="?", help="of the batch system; without it: this node")
    which.add_argument("--all", action="store_true", help="ask all nodes, and remember what they have")
    how = topology.add_mutually_exclusive_group()
    how.add_argument("--svg", metavar="FILE", nargs="?", const="-", help="as a picture; without FILE: standard output")
    add_json(topology, group=how)
    health = add_verb(verbs, "health", "what makes this node degrading, and since when", HEALTH_EPILOG)
    how = health.add_mutually_exclusive_group()
    how.add_argument("--forget", metavar="SOURCE", help="forget what a source has reported and counted")
    add_json(health, group=how)
    evacuate = add_verb(verbs, "evacuate", "move guests of jobs to spare nodes while they run", EVACUATE_EPILOG)
    evacuate.add_argument("node", metavar="NODE", help="of the batch system")
    evacuate.add_argument("--dry-run", action="store_true", help="print what would become of each guest; move none")
    add_json(evacuate)
    release = add_verb(verbs, "release", "end the quarantine of a device", RELEASE_EPILOG)
    release.add_argument("device", metavar="DEVICE", help="its address, such as 0000:3b:00.0, or its UUID")


def run(call: argparse.Namespace, load: LoadPolicy) -> int:
    """Do what was asked for; see `Subject` of `main.py`.

    Raises:
        UserFault: who calls is not root; the device is not in quarantine.
        VTorqueError: the configuration or what starts have cannot be read; the node does not answer.
    """
    if os.geteuid() != 0:
        raise UserFault(f"node {call.verb}", "is root's alone", "call it as root")
    if call.verb == "topology":
        return _remember_all(call, load) if call.all else _print_topology(call, load)
    if call.verb == "evacuate":
        return _evacuate(call, load)
    settings = read_settings(load)
    if call.verb == "health":
        return _print_health(call, settings)
    if call.verb == "release":
        if not leases.release(call.device, settings):
            names = ", ".join(one.device for one in leases.read_quarantine(settings)) or "none"
            raise UserFault(f"device {call.device}", f"is not in quarantine (in quarantine: {names})")
        print(f"device {call.device} may be handed to guests again")
        return 0
    found = host_devices.examine(settings)
    if call.json:
        print_json(call, [_facts(one) for one in found])
    else:
        _print_table(found)
    return 0


def _evacuate(call: argparse.Namespace, load: LoadPolicy) -> int:
    found = evacuation.evacuate_node(call.node, load(), dry_run=call.dry_run)
    if call.json:
        print_json(call, [to_dict(one) for one in found])
    elif not found:
        print(f"{call.node} has no guests of jobs")
    for one in found if not call.json else ():
        name = printable(f"job {one.job_id}{', guest ' + one.guest if one.guest else ''}")
        if one.why:
            print(f"{name}: {'would stay' if call.dry_run else 'stays'}: {printable(one.why)}")
        elif call.dry_run:
            print(f"{name}: would go to {one.target}")
        else:
            pause = f", and stood still for {one.paused_s:.2f} s of it" if one.paused_s >= 0 else ""
            print(f"{name}: went to {one.target} in {one.seconds:.1f} s{pause}")
    return STAYS if any(one.why for one in found) else 0


def _print_topology(call: argparse.Namespace, load: LoadPolicy) -> int:
    if call.node is None and not compute_nodes.is_compute_node(load):
        raise UserFault("node topology", "this host is no compute node", "name one, or see --all")
    if call.node is None or node_topology.is_here(call.node):
        found = occupancy.read_occupancy(read_settings(load))
    else:
        found = node_topology.query_node(call.node, load())
    if call.svg is not None:
        write_file(call.svg, draw_picture(found))
    elif call.json:
        print_json(call, to_dict(found))
    else:
        print_node(found)
    return 0


def _print_health(call: argparse.Namespace, settings: NodeSettings) -> int:
    if call.forget is not None:
        if not degrading.forget_source(call.forget, settings):
            names = ", ".join(source.name for source in settings.health_sources) or "none"
            raise UserFault(f"source {call.forget}", f"is none of this node (health_sources: {names})")
        print(f"what {call.forget} has reported is forgotten; the next sweep reads it anew")
        return 0
    known = degrading.read_health(settings)
    found = {one.name: one for one in known.sources}
    rows = [(source, found.get(source.name)) for source in settings.health_sources]
    if call.json:
        print_json(
            call,
            [
                {
                    "kind": source.kind,
                    "read": one is not None,
                    **dataclasses.asdict(one or degrading.SourceHealth(source.name)),
                }
                for source, one in rows
            ],
        )
    elif not rows:
        print("the site lists no sources of health for this node (health_sources)")
    else:
        table(
            [
                {
                    "source": source.name,
                    "kind": source.kind,
                    "state": _state_of(one),
                    "since": _since(one),
                    "report": (one.why or one.unknown) if one else "",
                }
                for source, one in rows
            ]
        )
    return 1 if known.degrading else 0


def _state_of(one: degrading.SourceHealth | None) -> str:
    if one is None:
        return "not read yet"
    if one.degrading:
        return "degrading"
    return "unknown" if one.unknown else "well"


def _since(one: degrading.SourceHealth | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(one.since)) if one and one.degrading else ""


def _remember_all(call: argparse.Namespace, load: LoadPolicy) -> int:
    if call.svg is not None:
        raise UserFault("--svg", "draws one node", "name it")
    policy = load()
    names = compute_nodes.list_nodes(policy)
    with counted("asking nodes", len(names), wanted=not call.json) as advance:
        answers = dict(zip(names, node_topology.query_nodes(names, policy, advance), strict=True))
    good: dict[str, NodeTopology] = {}
    for name, answer in answers.items():
        if isinstance(answer, VTorqueError):
            print(messages.text("vmgr", answer), file=sys.stderr)
        else:
            topologies.write_topology(answer)
            good[name] = answer
    topologies.forget_others(names)
    if call.json:
        print_json(call, [to_dict(one) for one in good.values()])
    elif good:
        print(f"remembered what {fold_names(tuple(good))} {'has' if len(good) == 1 else 'have'}, for vsub --dry-run")
    return 0 if len(good) == len(names) else UNASKED


def _facts(one: ExaminedDevice) -> dict[str, t.Any]:
    return {
        "address": one.address,
        "class": one.pci_class.name,
        "usable": one.is_usable,
        "start": one.lease.key if one.lease else None,
        "quarantine": one.quarantined or None,
        "faults": [{"of": fault.owner, "why": fault.why, "hint": fault.hint} for fault in one.faults],
    }


def _print_table(found: t.Sequence[ExaminedDevice]) -> None:
    if not found:
        print("the site lists no devices for this node (pci_classes, vrdma_ports)")
        return
    table([{"device": one.address, "class": one.pci_class.name, "state": _state(one)} for one in found])
    for one in found:
        for text in filter(None, [one.quarantined, *(f"{fault.why} ({fault.hint})" for fault in one.faults)]):
            print(f"  {one.address}: {text}")


def _state(one: ExaminedDevice) -> str:
    if one.quarantined:
        return "in quarantine"
    if one.lease:
        return f"start {one.lease.key}"
    return "not usable" if one.faults else "free"
