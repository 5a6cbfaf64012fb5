# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""POSIX options of the commands, without the cost of argparse; what is unknown is refused, never ignored."""

from __future__ import annotations

import sys

from . import installed

TYPE_CHECKING = False
if TYPE_CHECKING:  # the commands start without typing
    import typing as t


class UsageError(Exception):
    """The command line is wrong; the text is complete."""


def parse(arguments: t.Sequence[str], letters: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Options in their order, then operands, as getopt(3) under POSIX reads them.

    Args:
        letters: getopt's: a colon after a letter that takes a value.

    Raises:
        UsageError: an option is unknown or lacks its value.
    """
    options: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        position = 1
        while position < len(word):
            letter = word[position]
            place = letters.find(letter)
            position += 1
            if place < 0 or letter == ":":
                raise UsageError(f"invalid option -- '{letter}'")
            if letters[place + 1 : place + 2] != ":":
                options.append((letter, ""))
                continue
            if position < len(word):
                options.append((letter, word[position:]))
            elif rest:
                options.append((letter, rest.pop(0)))
            else:
                raise UsageError(f"option requires an argument -- '{letter}'")
            break
    return options, rest


class Site:
    """Where the commands of a host find their server; written into the file when it is installed."""

    def __init__(self, sockets: str, host: str, server: str, home: str) -> None:
        self.sockets = sockets
        self.host = host
        self.server = server
        self.home = home


def site() -> Site:
    """The installed values; without them the defaults, with this host's own name."""
    import os

    name = os.uname().nodename.partition(".")[0]
    return Site(installed.SOCKETS, installed.HOST or name, installed.SERVER, installed.HOME)


def ask(command: str, message: dict[str, t.Any]) -> dict[str, t.Any]:
    """Ask the server; when nobody is there say so as Torque does, and end with status 111."""
    from . import wire

    here = site()
    try:
        return wire.ask(wire.server_socket(here.sockets, here.host), message)
    except ConnectionRefusedError:
        no_server(command, here.server)


def no_server(command: str, server: str) -> t.NoReturn:
    """The recorded words of a command whose server is gone."""
    import socket

    try:
        address = socket.gethostbyname(server)
    except OSError:
        address = "0.0.0.0"  # noqa: S104 - a text, nothing listens there
    again = f"\nUnable to communicate with {server}({address})\nCannot connect to specified server host '{server}'.\n"
    sys.stderr.write(
        again * 3
        + f"{command}: cannot connect to server {server} (errno=111) Connection refused\n"
        + (f"{command}: Error (111 - Connection refused) \n" if command == "qstat" else "")
    )
    raise SystemExit(111)
