# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of a move to `vtorque-node`: a node is evacuated; a spare one takes a guest in, and the bytes of it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import select
import socket
import threading
import time
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.node.domain.connection import Domains
from ...module_utils.node.lifecycle import client
from ...module_utils.node.state import moves, start_lock
from ...module_utils.node.state.guest_file import read_guest_file
from ...module_utils.node.state.settings import NodeSettings
from ...module_utils.state.layout import job_key
from ...module_utils.system import files, relay
from ...module_utils.system.clock import Deadline
from ...module_utils.wire.form import to_dict
from ...module_utils.wire.moves import FILES, LIBVIRT, STATE, Arrival, Evacuation, Stream
from ..bridge.moves import evacuate
from ..bridge.moves.send import MOVED_FILES
from ..bridge.node_settings import host_name, read_configuration, read_settings
from .authorize import check_arrival, check_source, is_awaited, plain_address, save_superior
from .preload import load_needed
from .protocol import make_answer, write_answer

if t.TYPE_CHECKING:
    from ..bridge.node_settings import LoadPolicy
    from .protocol import Answer

LIBVIRT_SOCKETS = ("/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock")
"""Of the daemon that runs domains here: the one daemon, or the one of its own for qemu."""
CONNECT_S = 10.0
LOOK_S = 0.1
OVER_LOOK_S, OVER_S = 1.0, 30.0
"""Between two looks whether a move is over, and from then until its connections are broken off."""
ANSWERS = 1
"""The descriptor on which answers are written."""
FILE_LIMIT = 64 << 20
"""Bytes of a guest's small files."""
USED_BEFORE = "used_before.json"


def answer_evacuation(request: Evacuation, load: LoadPolicy, environment: t.Mapping[str, str]) -> Answer:
    """Send this node's guests to spare nodes, and return what became of each.

    Raises:
        VTorqueError: it is not to be, or nothing is known of the guests.
    """
    policy = read_configuration(load).policy
    peer = plain_address(next(iter(environment.get("SSH_CONNECTION", "").split()), ""))
    found = evacuate.evacuate(request, policy, host_name(), peer)
    return make_answer(evacuees=[to_dict(one) for one in found])


def answer_arrival(
    arrival: Arrival, load: LoadPolicy, environment: t.Mapping[str, str], tell: t.Callable[[str], list[str]]
) -> Answer:
    """Take a guest in that runs on another node of its job, and return it once it runs here.

    Args:
        arrival: of the guest.
        load: gives the site's policy.
        environment: holds SSH_CONNECTION.
        tell: returns the command that reports a lost guest to a node.

    Raises:
        VTorqueError: this node is not set aside for its job, or the guest did not come.
    """
    part = arrival.part
    deadline = Deadline.after(part.timeout_s)
    policy, settings = read_configuration(load)
    if len(part.guests) != 1 or part.guests[0].own_image:
        raise VTorqueError(f"an arrival of job {part.job_id}", "one guest with an image of the pool is moved at a time")
    check_arrival(part, arrival.source, policy, settings, environment)
    evacuate.check_spare(part, arrival.source, policy, settings)
    key = job_key(part.job_id, part.start)
    if not start_lock.is_locked(start_lock.start_lock(settings, key)):  # an earlier attempt was undone
        start_lock.tombstone(settings, key).unlink(missing_ok=True)
    save_superior(part, arrival.source, settings)
    load_needed(warm=False)
    found = client.request_guests(part, settings, deadline, tell=tell(arrival.source), arrival=arrival)
    return make_answer(guests=[to_dict(one) for one in found])


def answer_stream(stream: Stream, load: LoadPolicy, environment: t.Mapping[str, str]) -> Answer:
    """Carry the bytes of one channel of a move; only the node from which a guest comes may have them carried.

    Raises:
        VTorqueError: it is another, or the guest is not awaited here, or that node waits no longer.
    """
    settings = read_settings(load)
    until = Deadline.after(stream.timeout_s)
    while not (awaited := is_awaited(stream.job_id, stream.start, settings)) and not until.passed:
        _pause(stream)
    if not awaited and stream.channel == STATE:
        return {**make_answer(), "states": [], "awaited": False}
    check_source(stream.job_id, stream.start, stream.node, settings, environment)
    guest = settings.start_dir(stream.job_id, stream.start) / stream.guest
    if stream.channel == STATE:
        return {
            **make_answer(),
            "states": _states(guest, settings),
            "awaited": True,
            "arrived": moves.has_arrived(guest),
        }
    _await_place(guest, stream, settings, until)
    if stream.channel == FILES:
        write_answer(make_answer())
        _take_files(guest)
        file = read_guest_file(guest)
        return {**make_answer(), "slots": [file.slot if file else 0]}
    write_answer(make_answer())
    if not _is_wanted(stream, Deadline.after(stream.timeout_s)):
        return make_answer()
    check_source(stream.job_id, stream.start, stream.node, settings, environment)
    _await_place(guest, stream, settings, Deadline.after(0.0))
    try:
        if stream.channel == LIBVIRT:
            path = next(path for path in map(pathlib.Path, LIBVIRT_SOCKETS) if path.is_socket())
        else:
            path = guest / moves.MOVE / f"{stream.channel}.sock"
        connection = relay.connect(path, CONNECT_S)
    except (OSError, StopIteration) as error:
        raise VTorqueError(f"the {stream.channel} of guest {stream.guest}", f"nobody takes it: {error}") from error
    write_answer(make_answer())
    sink = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)  # what is written from now on is the channel's alone
    threading.Thread(target=_end_with_move, args=(guest, connection), daemon=True, name="end of the move").start()
    relay.carry(connection, 0, sink)
    return make_answer()


def _is_wanted(stream: Stream, until: Deadline) -> bool:
    """Wait until the other node has a use for the connection; return False where it ends without one.

    Raises:
        VTorqueError: it says something else, or nothing in time.
    """
    if not select.select([0], [], [], until.left_s(86_400.0))[0]:
        raise VTorqueError(f"the {stream.channel} of guest {stream.guest}", "nothing has connected to it in time")
    if (word := os.read(0, 1)) not in (b"", b"\n"):
        raise VTorqueError(f"the {stream.channel} of guest {stream.guest}", "bytes came before they were asked for")
    return bool(word)


def _end_with_move(guest: pathlib.Path, connection: socket.socket) -> None:
    """Break a connection off that its node leaves open after the move: libvirt here is open to it no longer."""
    while (guest / moves.MOVE).is_dir():
        time.sleep(OVER_LOOK_S)
    time.sleep(OVER_S)
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _await_place(guest: pathlib.Path, stream: Stream, settings: NodeSettings, until: Deadline) -> None:
    """Wait until the guest has a place here."""
    began = time.time()
    stone = start_lock.tombstone(settings, job_key(stream.job_id, stream.start))
    while not (guest / moves.MOVE).is_dir():
        over = stone.exists() and stone.stat().st_mtime >= began
        if until.passed or over:
            raise VTorqueError(f"guest {stream.guest}", f"has no place on {settings.node_name}")
        _pause(stream)


def _pause(stream: Stream) -> None:
    """Wait for the next look.

    Raises:
        VTorqueError: nobody waits for the answer any more: the guest was refused here, or its move is broken off.
    """
    poll = select.poll()
    poll.register(ANSWERS, 0)  # nothing but that its other end is gone
    if poll.poll(LOOK_S * 1000):
        raise VTorqueError(f"guest {stream.guest}", "the node from which it comes waits no longer")


def _states(guest: pathlib.Path, settings: NodeSettings) -> list[str]:
    file = read_guest_file(guest)
    with Domains(settings.libvirt_uri) as domains:
        facts = domains.facts(guest.name)
    return [facts.state] if facts is not None and file is not None and facts.uuid == file.uuid else []


def _take_files(guest: pathlib.Path) -> None:
    """Write the small files of a guest that come over standard input, by the names that such files have.

    Raises:
        VTorqueError: it is another file, or too large, or did not come whole.
    """
    what = f"the files of guest {guest.name}"
    left = FILE_LIMIT
    with open(0, "rb", buffering=1 << 16, closefd=False) as source:
        while line := source.readline(1000):
            try:
                head = json.loads(line)
                name, size = str(head["name"]), int(head["size"])
            except (ValueError, KeyError, TypeError) as error:
                raise VTorqueError(what, f"are not of their form: {error}") from error
            if name not in (*MOVED_FILES, USED_BEFORE) or not re.fullmatch("[a-z_.]+", name) or not 0 <= size <= left:
                raise VTorqueError(what, f"{name[:64]!r} of {size} bytes is none of them")
            content = source.read(size)
            if len(content) != size:
                raise VTorqueError(what, f"{name} did not come whole")
            left -= size
            path = guest / name
            if name == USED_BEFORE:
                files.write(path, content.decode("utf-8", "replace"))
                continue
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400)
            with os.fdopen(fd, "wb") as target:
                target.write(content)
