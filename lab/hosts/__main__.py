# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m lab.hosts`: boot machines to install onto, end them, look at their files."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time

from ..cluster import on_nodes
from ..system import places
from ..system.state import LabError, State
from . import base, fleet, manifest


def _base(_state: State, _arguments: argparse.Namespace) -> int:
    print(f"hosts start from {base.get().directory}")
    return 0


def _up(state: State, arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    pool = pathlib.Path(arguments.pool).absolute() if arguments.pool else None
    plan = fleet.Plan(tuple(arguments.nodes), not arguments.plain, not arguments.no_batch, pool)
    facts = fleet.up(state, plan)
    print(f"booted: {' '.join(facts.addresses)} ({time.monotonic() - begin:.1f} s)")
    print(f"ssh -F {state.directory}/ssh_config fe")
    return 0


def _down(state: State, _arguments: argparse.Namespace) -> int:
    print("the hosts are gone" if fleet.down(state) else "no hosts were there")
    return 0


def _list(state: State, arguments: argparse.Namespace) -> int:
    facts = state.load()
    inits = facts.inits if facts else {}
    hosts = [
        {"host": name, "address": address, "alive": name in inits and inits[name].alive}
        for name, address in (facts.addresses if facts else {}).items()
    ]
    if arguments.json:
        print(json.dumps(hosts))
    else:
        for host in hosts:
            print(f"{host['host']:<12} {host['address']:<12} {'up' if host['alive'] else 'lost'}")
    return 0 if hosts and all(host["alive"] for host in hosts) else 1


def _on(state: State, arguments: argparse.Namespace) -> int:
    line = on_nodes.command(state.running(), arguments.node, arguments.argv, user=arguments.user)
    sys.stdout.flush()
    os.execv(line[0], line)  # noqa: S606 - no shell is wanted


def _manifest(state: State, arguments: argparse.Namespace) -> int:
    manifest.write(_root(state, arguments.node), pathlib.Path(arguments.file))
    return 0


def _root(state: State, host: str) -> pathlib.Path:
    return pathlib.Path(f"/proc/{state.running().init(host).pid}/root")


def _compare(state: State, arguments: argparse.Namespace) -> int:
    before, after = pathlib.Path(arguments.before), pathlib.Path(arguments.after)
    packaged: frozenset[str] = frozenset()
    if arguments.packages_of:
        packaged = manifest.of_new_packages(_root(state, arguments.packages_of), before)
    found = manifest.compare(before, after, tuple(arguments.allow or ()), packaged)
    for line in found:
        print(line)
    return 1 if found else 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="lab.hosts", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("base", help="make what hosts start from, unless it is there").set_defaults(run=_base)
    one = commands.add_parser("up", help="boot hosts; those that are there end first")
    one.add_argument("nodes", nargs="*", default=["fe", "cn1", "cn2"], help="fe is the front end (fe cn1 cn2)")
    one.add_argument("--plain", action="store_true", help="compute nodes without libvirt")
    one.add_argument("--no-batch", action="store_true", help="without the batch system")
    one.add_argument("--pool", default=str(places.POOL), help='directory of images (%(default)s); "": none')
    one.set_defaults(run=_up)
    commands.add_parser("down", help="end the hosts and everything of them").set_defaults(run=_down)
    one = commands.add_parser("list", help="the hosts, and whether they are alive (exit 1: not)")
    one.add_argument("--json", action="store_true")
    one.set_defaults(run=_list)
    one = commands.add_parser("on", help="run a command on a host", usage="lab.hosts on HOST [--user U] -- COMMAND...")
    one.add_argument("node")
    one.add_argument("--user", default="root", help="alice or bob (root)")
    one.set_defaults(run=_on)
    one = commands.add_parser("manifest", help="write what a host's own file system holds")
    one.add_argument("node")
    one.add_argument("file")
    one.set_defaults(run=_manifest)
    one = commands.add_parser("compare", help="what differs between two manifests (exit 1: something)")
    one.add_argument("before")
    one.add_argument("after")
    one.add_argument("--allow", action="append", metavar="PATTERN", help="paths that may differ; * matches / too")
    one.add_argument("--packages-of", metavar="HOST", help="what packages brought that HOST did not have may be new")
    one.set_defaults(run=_compare)
    return top


def main() -> int:
    """The exit status: 2 when it could not be done."""
    parts = sys.argv[1:]
    cut = parts.index("--") if "--" in parts else len(parts)
    arguments = parser().parse_args(parts[:cut])
    arguments.argv = parts[cut + 1 :]
    try:
        return int(arguments.run(fleet.fleet(), arguments))
    except LabError as error:
        print(f"lab.hosts: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
