# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node is evacuated: each guest that can goes to a spare node of its own, one after the other.

Several guests of a start do so, too: the job is where they are, and where one stays, it goes on with that one here.
"""

from __future__ import annotations

import functools
import json
import pathlib
import socket
import subprocess
import typing as t

from ....module_utils.errors import SiteFault, VTorqueError
from ....module_utils.job.batch.api import BatchSystem, UnknownJob
from ....module_utils.job.batch.host_match import same_host
from ....module_utils.job.batch.liveness import JobAnswers, start_lives
from ....module_utils.job.batch.registry import open_batch
from ....module_utils.job.config.parameters import Policy
from ....module_utils.node.domain.connection import Domains
from ....module_utils.node.health import degrading
from ....module_utils.node.removal.suspects import Suspects
from ....module_utils.node.state import moves, start_lock
from ....module_utils.node.state.directories import entries, guest_directories
from ....module_utils.node.state.settings import NodeSettings
from ....module_utils.state.layout import start_of
from ....module_utils.system.clock import Deadline
from ....module_utils.system.process.detached import start_detached
from ....module_utils.wire.form import to_dict
from ....module_utils.wire.messages import NodePart
from ....module_utils.wire.moves import Evacuation, Evacuee
from ....module_utils.wire.node_command import program_path
from ..node_settings import settings_of
from . import spares
from .send import PLACE_S, GuestRejected, finish_move, move
from .survey import Resident, list_residents

LOCK = "evacuation"
LOCK_S = 5.0
UNUSED = "spare_unused.json"
"""In the run directory: since when this node is set aside for a job that has no guest here; whoever claimed it was
killed, or did not hear that the note was written."""
UNUSED_S = 2 * PLACE_S
LIMIT = 2000
"""Characters of why a guest stays (`Evacuee.why`)."""


def evacuate(request: Evacuation, policy: Policy, node: str, peer: str) -> tuple[Evacuee, ...]:
    """Send the guests of this node to spare ones; return what became of each, or would.

    Args:
        request: an administrator's.
        policy: the site's.
        node: this node.
        peer: the address from which it came; "": this node's own root asks.

    Raises:
        VTorqueError: another node of the cluster asks for it; or it is under way already.
        NodeFault: libvirt does not answer.
    """
    settings = settings_of(policy, node)
    if not same_host(request.node, node):
        raise VTorqueError(f"the evacuation of {request.node}", f"this is {node}")
    batch = open_batch(policy)
    if peer:
        _refuse_nodes(batch, node, peer)
    with (
        start_lock.lock_alone(settings.run_dir / "locks" / LOCK, settings, Deadline.after(LOCK_S)),
        Domains(settings.libvirt_uri) as domains,
    ):
        _finish_all(settings, batch, domains)
        used: set[str] = set()
        return tuple(
            _evacuee(resident, request, policy, settings, batch, domains, used)
            for resident in list_residents(policy, settings, batch, domains)
        )


def begin(policy: Policy, node: str) -> None:
    """Have this node's own `vtorque-node` evacuate it, and do not wait: moves take longer than whoever orders them may.

    Args:
        policy: the site's.
        node: this node.

    Raises:
        OSError: the program cannot be called.
    """
    question = json.dumps(to_dict(Evacuation(1, "evacuate", node, False))).encode() + b"\n"
    process = start_detached([str(program_path("vtorque-node", policy.prefix_nodes))], stdin=subprocess.PIPE)
    with t.cast(t.IO[bytes], process.stdin) as stream:
        stream.write(question)


def _evacuee(
    resident: Resident,
    request: Evacuation,
    policy: Policy,
    settings: NodeSettings,
    batch: BatchSystem,
    domains: Domains,
    used: set[str],
) -> Evacuee:
    row = functools.partial(Evacuee, resident.job_id, resident.start, resident.guest.name)
    if resident.why:
        return row(why=resident.why[:LIMIT])
    free, why = spares.find_free(policy, batch, but=(settings.node_name, *used))
    refusals = [] if free else [f"no spare node is free: {why}"]
    for target in free:
        used.add(target)
        if request.dry_run:
            return row(target)
        try:
            moved = move(resident, target, settings, batch, domains)
            return row(target, "", moved.seconds, moved.paused_s)
        except VTorqueError as error:
            refusals.append(" ".join(str(error).split()))
            if not isinstance(error, GuestRejected):  # another one would do no better, or it is not known where it is
                break
    return row(why="; ".join(refusals)[:LIMIT])


def _refuse_nodes(batch: BatchSystem, here: str, peer: str) -> None:
    """A compute node has no business with the guests of another one, whatever its root is."""
    for node in batch.nodes():
        if same_host(node.name, here):
            continue
        try:
            addresses = {str(one[4][0]) for one in socket.getaddrinfo(node.name, None, type=socket.SOCK_STREAM)}
        except OSError:
            continue
        if peer in addresses:
            raise VTorqueError(f"the evacuation of {here}", f"{node.name} asks for it", "ask from a front end, or here")


def finish_moves(settings: NodeSettings, batch: BatchSystem) -> tuple[str, ...]:
    """Bring moves to their end that were broken off with whoever was at it; returns what could not be done.

    Args:
        settings: NodeSettings of this node.
        batch: writes the notes of spare nodes.
    """
    if not any(moves.target_of(guest) for guest in guest_directories(settings.guests_dir)):
        return ()
    lock = start_lock.Lock(settings.run_dir / "locks" / LOCK)
    try:
        if not lock.take_now():
            return ()
        with Domains(settings.libvirt_uri) as domains:
            return _finish_all(settings, batch, domains)
    except VTorqueError as error:
        return (str(error),)
    finally:
        lock.close()


def _finish_all(settings: NodeSettings, batch: BatchSystem, domains: Domains) -> tuple[str, ...]:
    problems = []
    for guest in guest_directories(settings.guests_dir):
        named = start_of(guest.parent.name)
        if named is None or not moves.target_of(guest):
            continue
        try:
            finish_move(guest, *named, settings, batch, domains)
        except (OSError, VTorqueError) as error:
            problems.append(f"the move of guest {guest.name} is not at its end: {error}")
    return tuple(problems)


def check_spare(part: NodePart, source: str, policy: Policy, settings: NodeSettings) -> None:
    """Check that this node is set aside for a job, and has nothing of any other.

    Raises:
        VTorqueError: it is not.
        SiteFault: the batch server does not answer.
    """
    here = settings.node_name
    if not spares.is_spare(policy, here):
        raise SiteFault(f"a guest of {source} on {here}", f"{here} is no spare node (spare_nodes)")
    if (health := degrading.read_health(settings)).degrading:
        raise SiteFault(f"a guest of {source} on {here}", f"{here} is degrading: {health.why}")
    spares.check_claim(open_batch(policy), here, part.job_id)
    key = settings.start_dir(part.job_id, part.start).name
    if others := [path.name for path in entries(settings.guests_dir) if path.name != key]:
        raise SiteFault(f"a guest of {source} on {here}", f"guests of {others[0]} are here")


def came_and_lives(settings: NodeSettings, asked: JobAnswers, job_id: str, start: int) -> bool:
    """Return whether a start lives on another node, and its guest has come from there.

    Raises:
        SiteFault: the batch server does not tell.
    """
    source = moves.source_of(settings.start_dir(job_id, start))
    try:
        return bool(source) and start_lives(asked.job(job_id), start, source)
    except UnknownJob:
        return False


def give_back_spare(
    policy: Policy, settings: NodeSettings, batch: BatchSystem | None = None, *, job_id: str = ""
) -> bool:
    """Let this node be a free spare again, once nothing is here of the job that has had it.

    Args:
        policy: the site's.
        settings: NodeSettings of this node.
        batch: has the note; None: the site's is opened.
        job_id: the job, where its end is at work; "": whoever has had it, once the batch server does not run it, or no
            guest of it has come for `UNUSED_S`.

    Raises:
        SiteFault: the batch server does not answer.
        VTorqueError: since when it is set aside could not be kept.
    """
    here = settings.node_name
    if not spares.is_spare(policy, here):
        return False
    batch = batch or open_batch(policy)
    had = spares.job_of(batch.node(here).note)
    unused = Suspects(settings.run_dir / UNUSED)
    waits = bool(had) and job_id in ("", had) and not _has_any(settings.guests_dir)
    unused.forget_others({had} if waits else set())
    over = waits and (bool(job_id) or not _runs(batch, had) or unused.suspected_s(had) > UNUSED_S)
    given = over and spares.give_back(batch, here, had)
    if given:
        unused.clear(had)
    unused.write()
    return given


def _has_any(guests_dir: pathlib.Path) -> bool:
    return bool(entries(guests_dir))


def _runs(batch: BatchSystem, job_id: str) -> bool:
    try:
        return batch.job(job_id).state not in ("C", "F", "Q", "H", "W")
    except UnknownJob:
        return False
