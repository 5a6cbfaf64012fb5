# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give nodes the property by which the batch system knows them as nodes of virtual machines, and take it off again.

Runs on a front end, whose root manages the batch server as a rule, with whatever Python is there.  What was given
stands in a file, so that nothing of the site's own is taken.  Writes one line of JSON: `done`, the commands that
changed something (or would), and `words`, what an administrator should see to.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import typing as t

TIMEOUT_S = 20

Given = t.Dict[str, str]
"""Node -> property."""


class Refused(Exception):
    """A command of Torque's did not do what it should; in its words."""


def call(*command: str) -> str:
    """What a command of Torque's says.

    Raises:
        Refused: it cannot be run, failed, or had no end.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
            check=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Refused(f"no answer in {TIMEOUT_S} s") from None
    except OSError as error:
        raise Refused(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        raise Refused(" ".join(done.stderr.split())[:300] or f"status {done.returncode}")
    return done.stdout


def parse_nodes(answer: str) -> dict[str, list[str]]:
    """The properties of each node, out of `pbsnodes -x`; nothing else is read (notes stand in it that are no XML)."""
    nodes = {}
    for part in answer.split("<Node>")[1:]:
        name = re.match(r"\s*<name>([^<>]+)</name>", part)
        properties = re.search(r"<properties>([^<>]*)</properties>", part)
        if name:
            nodes[name[1]] = properties[1].split(",") if properties else []
    return nodes


def named(node: str, nodes: t.Iterable[str]) -> str | None:
    """What the server calls a node; it may know it with or without its domain."""
    names = list(nodes)
    same = [name for name in names if name == node]
    short = [name for name in names if name.partition(".")[0].lower() == node.partition(".")[0].lower()]
    return (same or short or [None])[0]


class Properties:
    """The nodes' properties at the server, and which of them are ours."""

    def __init__(self, commands: pathlib.Path, note: pathlib.Path, *, check: bool) -> None:
        self.commands = commands
        self.note = note
        self.check = check
        lines = note.read_text(encoding="utf-8").splitlines() if note.exists() else []
        self.given: Given = dict(line.split(" ", 1) for line in lines if " " in line)
        self.done: list[str] = []
        self.notices: list[str] = []

    def change(self, node: str, sign: str, word: str) -> bool:
        """Have the server change one; what it does not let us do is told."""
        order = f"set node {node} properties {sign} {word}"
        command = f'qmgr -c "{order}"'
        try:
            if not self.check:
                call(str(self.commands / "qmgr"), "-c", order)
        except Refused as error:
            self.notices.append(f"{command}: {error}. A manager of the batch server must do it")
            return False
        self.done.append(command)
        return True

    def present(self, wanted: t.Mapping[str, str | None]) -> None:
        """Give these nodes what they should have, and take what was given to them before."""
        stale = {node: word for node, word in self.given.items() if node in wanted and wanted[node] != word}
        if not stale and not any(wanted.values()):
            return
        nodes = self.known()
        if nodes is None:
            return
        self.take(stale, nodes)
        for host, word in wanted.items():
            node = named(host, nodes)
            if word and node is None:
                self.notices.append(f"the batch server has no node {host}, which should have the property {word}")
            elif word and node and word not in nodes[node] and self.change(node, "+=", word):
                self.given[host] = word
                self.keep()

    def absent(self, *, staying: t.Sequence[str]) -> None:
        """Take off all that was given, unless other front ends go on with it."""
        if not self.given:
            return
        nodes = self.known()
        if nodes is not None and not staying:
            self.take(dict(self.given), nodes)
        else:
            why = f"since {', '.join(staying)} may submit to it" if staying else "until somebody takes it off"
            self.notices += [
                f'{node} keeps the property {word}, {why}: qmgr -c "set node {node} properties -= {word}"'
                for node, word in self.given.items()
            ]
        self.given = {}
        self.keep()

    def gone(self, hosts: t.Sequence[str]) -> None:
        """Take off what was given to these nodes, which have the product no more."""
        given = {host: word for host, word in self.given.items() if host in hosts}
        nodes = self.known() if given else None
        if nodes is not None:
            self.take(given, nodes)

    def take(self, given: Given, nodes: t.Mapping[str, list[str]]) -> None:
        """Take these off where they still are."""
        for host, word in given.items():
            node = named(host, nodes)
            if node is None or word not in nodes[node] or self.change(node, "-=", word):
                del self.given[host]
                self.keep()

    def known(self) -> dict[str, list[str]] | None:
        """The server's nodes; None when it does not tell."""
        try:
            return parse_nodes(call(str(self.commands / "pbsnodes"), "-x"))
        except Refused as error:
            self.notices.append(f"the batch server did not tell which properties nodes have: {error}")
            return None

    def keep(self) -> None:
        """Write down what is ours."""
        if self.check:
            return
        if not self.given:
            self.note.unlink(missing_ok=True)
            return
        new = self.note.with_name(f"{self.note.name}.new")
        new.write_text("".join(f"{node} {word}\n" for node, word in sorted(self.given.items())), encoding="utf-8")
        new.chmod(0o644)
        new.replace(self.note)


def main() -> None:
    """Do what is asked, and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("commands", type=pathlib.Path, help="the directory of Torque's commands")
    parser.add_argument("note", type=pathlib.Path, help="where it is written down what was given")
    parser.add_argument("--wanted", type=json.loads, help="nodes and the property of each; null: none")
    parser.add_argument("--absent", action="store_true")
    parser.add_argument("--gone", type=json.loads, help="nodes that take no jobs any more")
    parser.add_argument("--staying", type=json.loads, default=[], help="front ends that go on")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    properties = Properties(arguments.commands, arguments.note, check=arguments.check)
    if arguments.absent:
        properties.absent(staying=arguments.staying)
    elif arguments.gone is not None:
        properties.gone(arguments.gone)
    else:
        properties.present(arguments.wanted)
    print(json.dumps({"done": properties.done, "words": properties.notices}))


if __name__ == "__main__":
    main()
