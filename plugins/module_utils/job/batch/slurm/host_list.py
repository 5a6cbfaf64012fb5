# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's lists: of hosts (`n[1-2,5],m07`), as Prolog and Epilog find them in SLURM_NODELIST, and of generic resources.

Of hosts:
What Slurm itself writes is read as Slurm reads it (`scontrol show hostnames`, 22.05), without asking anybody.  What it
would take besides (blanks, empty places, brackets that do not close) is refused: nobody's list of nodes looks so.
"""

from __future__ import annotations

import itertools
import re
import typing as t

from ....errors import SiteFault
from ....text import printable
from ....wire.messages import HOST_NAME

MAX_TEXT = 128 * 1024
"""Longer than a variable of an environment can be: Linux takes 128 KiB of one."""
MAX_HOSTS = 65_536
"""As many as Slurm expands of one range (MAX_RANGE in hostlist.c)."""
MAX_DIGITS = 18
_NAMES = re.compile(r"[A-Za-z0-9._-]+|\[[0-9,-]+\]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_GIVEN = re.compile(r"(?:^|,)([A-Za-z][A-Za-z0-9_-]*)(?::[^,():]+)*\(IDX:([0-9,-]{1,4096})\)")
DEVICES = frozenset({"gpu", "mps", "shard", "nic"})
"""What of generic resources is a device of the node; others are counted alone (`tmp:100G`), and need no handing on."""


def expand(text: str) -> tuple[str, ...]:
    """The hosts that a list names.

    Args:
        text: as Slurm writes it, not trusted.

    Returns:
        Their names, in the list's order, each once.

    Raises:
        SiteFault: it is no such list, names a host twice, or more than 65,536 hosts.
    """
    if len(text) > MAX_TEXT:
        raise _unreadable(text, f"it has {len(text)} characters, at most {MAX_TEXT} are read")
    hosts: dict[str, None] = {}
    for item in _items(text):
        for host in _hosts(text, item, MAX_HOSTS - len(hosts)):
            if host in hosts:
                raise _unreadable(text, f"it names {printable(host)} twice")
            hosts[host] = None
    return tuple(hosts)


def _items(text: str) -> list[str]:
    """The parts between the commas that stand in no brackets."""
    items, start, inside = [], 0, False
    for place, character in enumerate(text):
        if character in "[]":
            if (character == "[") == inside:
                raise _unreadable(text, "its brackets do not fit together")
            inside = not inside
        elif character == "," and not inside:
            items.append(text[start:place])
            start = place + 1
    if inside:
        raise _unreadable(text, "its brackets do not fit together")
    return [*items, text[start:]]


def _hosts(text: str, item: str, room: int) -> t.Iterator[str]:
    """The hosts of one part: every word of each bracket with every word of the others, the last one's change first."""
    pieces = _NAMES.findall(item)
    if not item or "".join(pieces) != item:
        raise _unreadable(text, f"{printable(item[:80]) or 'an empty place'} is no name")
    if len(pieces) > 1 and not pieces[-1].endswith("]"):
        raise _unreadable(text, f"characters behind the brackets of {printable(item[:80])}")
    choices: list[t.Iterable[str]] = []
    for piece in pieces:
        if not piece.startswith("["):
            choices.append((piece,))
            continue
        spans = [_span(text, word) for word in piece[1:-1].split(",")]
        number = sum(last - first + 1 for first, last, _width in spans)
        if number > room:
            raise _unreadable(text, f"it names more than {MAX_HOSTS} hosts")
        room //= number
        choices.append([f"{n:0{width}d}" for first, last, width in spans for n in range(first, last + 1)])
    if room < 1:
        raise _unreadable(text, f"it names more than {MAX_HOSTS} hosts")
    for parts_of_name in itertools.product(*choices):
        host = "".join(parts_of_name)
        if not re.fullmatch(HOST_NAME, host):
            raise _unreadable(text, f"{printable(host[:80])} is no host's name")
        yield host


def _span(text: str, word: str) -> tuple[int, int, int]:
    """First and last number of a range, and how many digits they have at least."""
    found = _RANGE.fullmatch(word)
    if not found:
        raise _unreadable(text, f"{printable(word[:40]) or 'nothing'} in brackets is no number and no range")
    first, last = found[1], found[2] or found[1]
    if max(len(first), len(last)) > MAX_DIGITS or len(last) < len(first) or int(last) < int(first):
        raise _unreadable(text, f"{printable(word[:40])} is no range")
    if last.startswith("0") and len(last) != len(first):
        raise _unreadable(text, f"{printable(word[:40])} does not say how many digits its numbers have")
    return int(first), int(last), len(first)


def _unreadable(text: str, why: str) -> SiteFault:
    return SiteFault(f"Slurm's list of nodes {printable(text[:80])!r} cannot be read", why)


def devices_of(text: str) -> str:
    """Return those entries of a list of generic resources that are devices of a node.

    Args:
        text: `gpu:t4:2,tmp:100G`, as `--gres` takes it; or as answers have it, with `gres:` or `gres/` before entries.
    """
    entries = [re.sub(r"^gres[:/]", "", entry.strip()) for entry in text.split(",")]
    return ",".join(entry for entry in entries if re.split(r"[:=/]", entry)[0].lower() in DEVICES)


def read_devices(text: str) -> tuple[tuple[str, int], ...]:
    """Return which devices of a node a job has, by name and index.

    Args:
        text: `gpu:t4:2(IDX:0,3),nic:1(IDX:0)`, as `scontrol -d show job` has it of one node; what is counted alone has
            no index, and is not among them.
    """
    found = []
    for name, indices in _GIVEN.findall(text):
        for first, last in _RANGE.findall(indices):
            found += [(name, number) for number in range(int(first), min(int(last or first), MAX_HOSTS) + 1)]
    return tuple(found)
