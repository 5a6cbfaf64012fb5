# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node answers, read by the mother superior, who does not trust it."""

from __future__ import annotations

import collections
import ipaddress
import json
import pathlib
import re
import types
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.errors import NodeFault, VTorqueError, error_from_dict
from ...module_utils.frozen import frozen
from ...module_utils.job.plan.job_plan import JobPlan
from ...module_utils.text import printable
from ...module_utils.wire.form import FormError, from_dict
from ...module_utils.wire.messages import NodePart
from ...module_utils.wire.moves import MovedGuest
from ...module_utils.wire.node_answers import BareHost, GuestConsole, GuestFacts, GuestUse
from ...module_utils.wire.series import GuestSeries, NodeSeries
from ...module_utils.wire.update_result import GuestUpdates

SSH_FAILED = 255
LIMIT = 1 << 20
"""Bytes of an answer that are read: 1,000 guests need less than a quarter of it."""


@frozen
class Answer:
    """A node's answer that is of the right form and speaks of what was asked.

    Attributes:
        guests: by rank.
        removed: what the node says it took away, as words for people.
        used: what the guests that went had used, where the node knows it.
        consoles: the ends of their consoles.
        bare: what a host that stays bare says of itself; None: it was not asked.
        updates: what became of the guests' security updates, where the site wants some.
        series: what the node has measured of its guests; one at most.
        moves: those of its guests that went to another node while the job ran.
    """

    guests: tuple[GuestFacts, ...]
    removed: tuple[str, ...]
    used: tuple[GuestUse, ...] = ()
    bare: BareHost | None = None
    updates: tuple[GuestUpdates, ...] = ()
    consoles: tuple[GuestConsole, ...] = ()
    series: tuple[NodeSeries, ...] = ()
    moves: tuple[MovedGuest, ...] = ()


@leaves_nothing
def read_answer(
    part: NodePart, status: int, output: bytes, complaint: bytes, brought: t.Collection[str] = ()
) -> Answer:
    """Read what `vtorque-node` wrote.

    Args:
        part: what the node was asked.
        status: its exit status; not 0 when it could not answer at all.
        output: its standard output.
        complaint: its standard error, for the message when there is no answer.
        brought: names of guests that have returned from a checkpoint, and may be of any node.

    Raises:
        VTorqueError: the node's own error, in its class; or the answer is none, too long, not of the form,
            speaks of other guests than those asked for, or of something that is left after `absent`.
    """
    asked = f"vtorque-node on {part.node}"
    if len(output) > LIMIT:
        raise VTorqueError(asked, f"answered with {len(output)} bytes, more than {LIMIT}: not read")
    try:
        return _read(part, json.loads(output), asked, brought)
    except RecursionError:  # by JSON's reader, or where something is shown that it just could follow
        raise FormError(asked, "its answer is nested deeper than anybody can follow") from None
    except ValueError:
        raise _no_answer(part, status, complaint) from None


@leaves_nothing
def names_brought(plan: JobPlan | None) -> frozenset[str]:
    """Return the names of the guests of a plan that return from a checkpoint.

    Args:
        plan: of the start; None: there is none.
    """
    parts = plan.node_parts if plan else ()
    return frozenset(pathlib.Path(spec.saved_in).name for part in parts for spec in part.guests if spec.saved_in)


def _no_answer(part: NodePart, status: int, complaint: bytes) -> VTorqueError:
    """What was written is no JSON: what its standard error says of that."""
    last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if status == SSH_FAILED:
        # a connection that breaks or falls silent is told at a level that is not asked for (clientloop.c)
        last = last or "the connection broke off: the node stopped answering, or went down"
        return VTorqueError(f"{part.node} was not reached", printable(last[:500]))
    why = f"exit status {status}, and no answer"
    why = f"{why}: {printable(last[:500])}" if last else why
    return VTorqueError(f"vtorque-node on {part.node}", why, _hint(status))


def _read(part: NodePart, data: object, asked: str, brought: t.Collection[str]) -> Answer:
    if not isinstance(data, dict) or data.get("version") != 1 or not isinstance(data.get("ok"), bool):
        raise FormError(asked, "its answer is not of the form of version 1")
    if not data["ok"]:
        _raise_error(part.node, data.get("error"))
    guests = tuple(from_dict(GuestFacts, item, "guests") for item in _list(data, "guests", asked))
    left = _texts_of(_list(data, "left", asked))
    if part.do == "absent" and left:
        raise NodeFault(
            f"{part.node} is not clean", f"left: {', '.join(left)}", "look at the node, then run vtorque-sweep there"
        )
    _check_guests(part, guests, asked, brought)
    used = tuple(from_dict(GuestUse, item, "used") for item in _list(data, "used", asked))
    _check_names(part, used, asked, brought)
    updates = tuple(from_dict(GuestUpdates, item, "updates") for item in _list(data, "updates", asked))
    _check_names(part, updates, asked, brought)
    consoles = tuple(from_dict(GuestConsole, item, "consoles") for item in _list(data, "consoles", asked))
    _check_names(part, consoles, asked, brought)
    series = tuple(from_dict(NodeSeries, item, "series") for item in _list(data, "series", asked)[:1])
    _check_names(part, [guest for one in series for guest in one.guests], asked, brought)
    moves = tuple(from_dict(MovedGuest, item, "moves") for item in _list(data, "moves", asked))
    _check_names(part, moves, asked, brought)
    removed = _texts_of(_list(data, "removed", asked))
    in_order = tuple(sorted(guests, key=lambda guest: guest.rank))
    return Answer(in_order, removed, used, _bare_host(part, data, asked), updates, consoles, series, moves)


def _bare_host(part: NodePart, data: dict[str, t.Any], asked: str) -> BareHost | None:
    """What a bare host says of itself; nobody else says anything of the kind."""
    hosts = [from_dict(BareHost, item, "bare") for item in _list(data, "bare", asked)]
    wanted = 1 if part.bare_slots and part.do == "present" else 0
    if len(hosts) != wanted:
        raise FormError(asked, f"spoke of {len(hosts)} bare hosts, where {wanted} was asked for")
    for host in hosts:
        _check_address(host.address, "a bare host", asked)
    return hosts[0] if hosts else None


def _check_names(
    part: NodePart,
    guests: t.Sequence[GuestFacts | GuestUse | GuestUpdates | GuestConsole | GuestSeries | MovedGuest],
    asked: str,
    brought: t.Collection[str],
) -> None:
    """A node speaks of guests of its own, and of each once; it spells its name its own way, and so it names them."""
    short = part.node.partition(".")[0]
    for guest in guests:
        if guest.name not in brought and not re.fullmatch(
            rf"v{re.escape(short)}-[0-9]{{1,4}}", guest.name, re.IGNORECASE
        ):
            raise FormError(asked, f"guest name {guest.name!r} is not v{short}-<slot>")
    if len({guest.name.lower() for guest in guests}) != len(guests):
        raise FormError(asked, "it speaks twice of one guest")


def _check_guests(part: NodePart, guests: tuple[GuestFacts, ...], asked: str, brought: t.Collection[str]) -> None:
    wanted = sorted(guest.rank for guest in part.guests)
    if sorted(guest.rank for guest in guests) != wanted:
        raise FormError(asked, f"answered for other ranks than the {len(wanted)} it was asked for")
    require_distinct(guests, asked)
    _check_names(part, guests, asked, brought)
    for guest in guests:
        _check_address(guest.address, "a guest", asked)


def _check_address(text: str, whose: str, asked: str) -> None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise FormError(asked, f"{text!r} is not an address") from None
    if address.is_loopback or address.is_multicast or int(address) in (0, 2**32 - 1):
        raise FormError(asked, f"{text} is not the address of {whose}")


@leaves_nothing
def require_distinct(
    guests: t.Iterable[GuestFacts], asked: str, bare: t.Mapping[str, BareHost] = types.MappingProxyType({})
) -> None:
    """No two guests share a name, a MAC or an address, and no bare host has an address of theirs or of another.

    Raises:
        FormError: says which.
    """
    guests = tuple(guests)
    addresses = collections.Counter([guest.address for guest in guests] + [host.address for host in bare.values()])
    for node, host in bare.items():
        if addresses[host.address] > 1:
            raise FormError(asked, f"the bare host {node} says {host.address}, which is another's address")
    for what in ("name", "mac", "address"):
        for value, times in collections.Counter(getattr(guest, what).lower() for guest in guests).items():
            if times > 1:
                raise FormError(asked, f"{times} guests have the {what} {value}")


def _raise_error(node: str, error: object) -> t.NoReturn:
    if not isinstance(error, dict):
        raise FormError(f"vtorque-node on {node}", "it failed and did not say why")
    received = error_from_dict(error)
    received.what = f"{node}: {received.what}"
    if isinstance(received, NodeFault):
        received.node = node
    raise received


def _list(data: dict[str, t.Any], key: str, asked: str) -> list[t.Any]:
    value = data.get(key, [])
    if not isinstance(value, list) or len(value) > 10_000:
        raise FormError(asked, f"{key!r} is not a list of at most 10,000")
    return value


def _texts_of(values: list[t.Any]) -> tuple[str, ...]:
    return tuple(printable(str(value)[:200]) for value in values[:200])


def _hint(status: int) -> str:
    if status == 127:
        return "is vTorque installed on the node, under the same prefix?"
    return "the node's own log says more"
