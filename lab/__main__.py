# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m lab`: raise the cluster, end it, look at it, run something on a node."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import signal
import sys
import time
import typing as t

from . import batch
from .cluster import lifecycle, on_nodes, roles
from .installation import installed
from .machine import hardware, machine
from .system import places
from .system.state import LabError, State


def _up(state: State, arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    runtime = pathlib.Path(arguments.runtime or (sys.prefix if arguments.bare else places.RUNTIME)).absolute()
    nodes = tuple(arguments.nodes.split(","))
    with roles.reading(runtime) if arguments.by_roles else contextlib.nullcontext() as by_roles:
        plan = lifecycle.Plan(
            nodes, pathlib.Path(arguments.pool).absolute(), runtime, arguments.bare, by_roles, arguments.batch
        )
        is_new = lifecycle.up(state, plan)
    if is_new:
        print(f"the lab is up: {' '.join(plan.nodes)} ({time.monotonic() - begin:.1f} s)")
    else:
        print(f"the lab is up already: {' '.join(plan.nodes)}")
    return 0


def _down(state: State, _arguments: argparse.Namespace) -> int:
    print("the lab is down" if lifecycle.down(state) else "no lab was up")
    return 0


def _status(state: State, arguments: argparse.Namespace) -> int:
    facts = state.load()
    inits = facts.inits if facts else {}
    nodes = [
        {"node": name, "address": address, "alive": name in inits and inits[name].alive,
         "pid": inits[name].pid if name in inits else None}
        for name, address in (facts.addresses if facts else {}).items()
    ]  # fmt: skip
    good = bool(facts and facts.up and all(node["alive"] for node in nodes))
    if arguments.json:
        system = facts.batch if facts else None
        print(json.dumps({"up": good, "directory": str(state.directory), "batch": system, "nodes": nodes}))
    elif not facts:
        print(f"no lab in {state.directory}")
    else:
        for node in nodes:
            print(
                f"{node['node']:<12} {node['address']:<12} {'up' if node['alive'] else 'lost':<6} process {node['pid']}"
            )
        if not facts.up:
            print("its `up` is at work, or was interrupted (python -m lab down)")
    return 0 if good else 1


def _on(state: State, arguments: argparse.Namespace) -> int:
    parts = arguments.argv
    if not parts:
        raise LabError("on NODE -- COMMAND: the command is missing")
    line = on_nodes.command(state.running(), arguments.node, parts, user=arguments.user, cwd=arguments.cwd)
    # the same process: the terminal, the signals and the exit status are the command's own
    sys.stdout.flush()
    os.execv(line[0], line)  # noqa: S606 - no shell is wanted


def _lose(state: State, arguments: argparse.Namespace) -> int:
    lifecycle.lose(state, arguments.node)
    print(f"{arguments.node} is lost")
    return 0


def _back(state: State, arguments: argparse.Namespace) -> int:
    lifecycle.bring_back(state, arguments.node)
    print(f"{arguments.node} is back")
    return 0


def _sweeps(state: State, _arguments: argparse.Namespace) -> int:
    print(f"{', '.join(on_nodes.start_sweeps(state))}: swept, and again every {on_nodes.SWEEP_PAUSE_S // 60} minutes")
    return 0


def _unplug(state: State, arguments: argparse.Namespace) -> int:
    lifecycle.plug(state, arguments.node, plugged=False)
    print(f"{arguments.node} is out of the network")
    return 0


def _plug(state: State, arguments: argparse.Namespace) -> int:
    lifecycle.plug(state, arguments.node, plugged=True)
    print(f"{arguments.node} is in the network")
    return 0


def _left(state: State, arguments: argparse.Namespace) -> int:
    left = on_nodes.left(state.running())
    if arguments.json:
        print(json.dumps(left))
    else:
        for node, things in left.items():
            for thing in things:
                print(f"{node:<8} {thing}")
        if not any(left.values()):
            print(f"nothing of a job is on {', '.join(left)}")
    return 1 if any(left.values()) else 0


def _runtime(_state: State, _arguments: argparse.Namespace) -> int:
    from .installation import runtime

    print(runtime.install(places.CHECKOUT, places.RUNTIME))
    return 0


def _install(_state: State, arguments: argparse.Namespace) -> int:
    if arguments.look:
        return 0 if installed.is_whole(roles.place()) else 1
    print(roles.install())
    return 0


def _machine_up(state: State, arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    size = hardware.Size(arguments.processors, arguments.memory)
    booted_s = machine.up(machine.state_of(state), size, arguments.cgroups)
    if booted_s:
        print(f"the machine is up ({time.monotonic() - begin:.1f} s, {booted_s:.1f} s of them by its own clock)")
    else:
        print("the machine is up already")
    return 0


def _machine_down(state: State, _arguments: argparse.Namespace) -> int:
    print("the machine is off" if machine.down(machine.state_of(state)) else "no machine was up")
    return 0


def _machine_on(state: State, arguments: argparse.Namespace) -> int:
    if not arguments.argv:
        raise LabError("machine on -- COMMAND: the command is missing")
    line = machine.command(
        machine.state_of(state), arguments.argv, arguments.cwd or str(pathlib.Path.cwd()), terminal=sys.stdin.isatty()
    )
    sys.stdout.flush()
    os.execv(line[0], line)  # noqa: S606 - no shell is wanted


def _play(state: State, arguments: argparse.Namespace) -> int:
    print(roles.play(state, places.RUNTIME, arguments.playbook, *arguments.argv), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="lab", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    one = commands.add_parser("up", help="raise the cluster")
    one.add_argument(
        "--nodes", default=",".join(lifecycle.NODES), help="comma separated; fe is the front end (%(default)s)"
    )
    one.add_argument("--pool", default=str(places.POOL), help="directory of images (%(default)s)")
    one.add_argument("--runtime", help="Python environment with the installed collection (build/runtime)")
    one.add_argument("--bare", action="store_true", help="without batch system and product: machines and libvirt alone")
    one.add_argument(
        "--by-roles", action="store_true", help="the product as the roles installed it, before the nodes booted"
    )
    one.add_argument(
        "--batch", default=batch.TORQUE, choices=tuple(batch.SYSTEMS),
        help="its batch system: what acts like Torque, or a real Slurm (%(default)s)",
    )  # fmt: skip
    one.set_defaults(run=_up)
    commands.add_parser("down", help="end the cluster and everything in it").set_defaults(run=_down)
    one = commands.add_parser("status", help="the nodes, and whether they are alive (exit 1: not)")
    one.add_argument("--json", action="store_true")
    one.set_defaults(run=_status)
    usage = "lab on NODE [--user alice] [--cwd DIRECTORY] -- COMMAND [ARGUMENT...]"
    usage_of_play = "lab play PLAYBOOK [-- OPTION...]"
    one = commands.add_parser("play", help="play a playbook on the nodes of `up --by-roles`", usage=usage_of_play)
    one.add_argument("playbook", help="mikelangelo.vtorque.install; options of ansible-playbook stand behind --")
    one.set_defaults(run=_play)
    one = commands.add_parser("on", help="run a command on a node", usage=usage)
    one.add_argument("node")
    one.add_argument("--user", default="root", help="alice or bob (root)")
    one.add_argument("--cwd", default="", help="start directory (the user's home)")
    one.set_defaults(run=_on)
    for name, run, purpose in (
        ("lose", _lose, "let a node die as by a power cut"),
        ("back", _back, "boot a lost node again; its disk is as it was"),
        ("unplug", _unplug, "pull a node's cable: it lives on, nothing reaches it, nobody is told"),
        ("plug", _plug, "put the cable back"),
    ):
        one = commands.add_parser(name, help=purpose)
        one.add_argument("node")
        one.set_defaults(run=run)
    commands.add_parser(
        "sweeps", help="have compute nodes sweep now and every two minutes, as a site's do by systemd"
    ).set_defaults(run=_sweeps)
    one = commands.add_parser("left", help="what is left of jobs on every node (exit 1: something)")
    one.add_argument("--json", action="store_true")
    one.set_defaults(run=_left)
    commands.add_parser("runtime", help="build the collection and install it into build/runtime").set_defaults(
        run=_runtime
    )
    one = commands.add_parser(
        "install", help="have the roles install it on nodes, from whose disks those of `up --by-roles` boot"
    )
    one.add_argument("--look", action="store_true", help="only see whether they have (exit 1: not)")
    one.set_defaults(run=_install)
    _machine_commands(commands)
    return top


def _machine_commands(commands: t.Any) -> None:
    top = commands.add_parser("machine", help="a machine with a real /dev/kvm, under software emulation (README.md)")
    inner = top.add_subparsers(dest="machine_command", required=True)
    default = hardware.Size()
    one = inner.add_parser("up", help="boot it: it sees this machine's files, and what it writes ends with it")
    one.add_argument("--processors", type=int, default=default.processors, help="(%(default)s)")
    one.add_argument("--memory", type=int, default=default.memory_mib, metavar="MIB", help="(%(default)s)")
    own = machine.CGROUPS_VERSION
    one.add_argument("--cgroups", type=int, choices=(1, 2), default=own, help="version that it mounts (%(default)s)")
    one.set_defaults(run=_machine_up)
    usage = "lab machine on [--cwd DIRECTORY] -- COMMAND [ARGUMENT...]"
    one = inner.add_parser("on", help="run a command in it as root", usage=usage)
    one.add_argument("--cwd", default="", help="start directory (this one)")
    one.set_defaults(run=_machine_on)
    inner.add_parser("down", help="switch it off").set_defaults(run=_machine_down)


def main() -> int:
    """The exit status: 2 when the lab could not do what was asked."""
    # what stands behind the first "--" is a command of a node's, and no option of ours
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser().parse_args(sys.argv[1:cut])
    arguments.argv = sys.argv[cut + 1 :]
    try:
        status = int(arguments.run(State(), arguments))
        sys.stdout.flush()
        return status
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has seen enough (lab left | head); Python itself shall not complain at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(main())
