# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of server, MOM and installation."""

from __future__ import annotations

import argparse
import os
import pathlib
import typing as t

from . import install
from .shared.wire import SOCKETS


def node(text: str) -> t.Any:
    """A node of the server's list: `cn1:2` or `cn1:2:fast:big` (slots, properties)."""
    from .server.nodes import Node

    name, *arguments = text.split(":")
    number = arguments[0] if arguments else "1"
    if not name or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME[:SLOTS[:PROPERTY...]]")
    return Node(name, int(number), tuple(arguments[1:]))


def _parser() -> argparse.ArgumentParser:
    own_name = os.uname().nodename.partition(".")[0]
    parser = argparse.ArgumentParser(prog="lab.torque", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("server", "mom"):
        daemon = commands.add_parser(name)
        daemon.add_argument("--home", type=pathlib.Path, default=pathlib.Path("/var/spool/torque"))
        daemon.add_argument("--socket-dir", default=SOCKETS)
        daemon.add_argument("--host", default=own_name)
    commands.choices["mom"].add_argument("--poll", type=float, default=15.0, help="seconds between two reports")
    commands.choices["mom"].add_argument(
        "-p", action="store_true", help="jobs of an earlier MOM go on", dest="recovers"
    )
    commands.choices["mom"].add_argument("--cgroups", action="store_true", help="make cgroups for jobs")
    server = commands.choices["server"]
    server.add_argument("--node", type=node, action="append", default=[], help="NAME[:SLOTS[:PROPERTY...]]")
    server.add_argument("--manager", action="append", default=[], help="USER@HOST, with * and ?")
    server.add_argument("--operator", action="append", default=[], help="USER@HOST, with * and ?")
    server.add_argument("--keep-completed", type=float, default=600.0, help="seconds")
    installation = commands.add_parser("install")
    installation.add_argument("--root", default="")
    installation.add_argument("--bin", default="/usr/bin")
    installation.add_argument("--socket-dir", default=SOCKETS)
    installation.add_argument("--host", default="")
    installation.add_argument("--server", default="fe")
    installation.add_argument("--home", default="/var/spool/torque")
    installation.add_argument("--archive", default=install.ARCHIVE)
    return parser


def main(arguments: list[str]) -> int:
    """Run a daemon in the foreground, or install."""
    options = _parser().parse_args(arguments)
    if options.command == "install":
        install.install(
            options.root, options.bin, options.socket_dir, options.host, options.server, options.home, options.archive
        )
        return 0
    if options.command == "mom":
        from .mom.daemon import serve

        return serve(options.home, options.socket_dir, options.host, options.poll, options.recovers, options.cgroups)
    from .server.daemon import serve as serve_jobs
    from .server.server import Settings

    return serve_jobs(
        Settings(
            options.home,
            options.socket_dir,
            options.host,
            tuple(options.node),
            tuple(options.manager),
            tuple(options.operator),
            options.keep_completed,
        )
    )
