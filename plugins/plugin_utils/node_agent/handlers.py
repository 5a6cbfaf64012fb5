# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `vtorque-node` does for each kind of request: one table.

What is asked comes over a connection and is checked against the batch server's word; what is made follows from this
node's own policy and templates.
"""

from __future__ import annotations

import dataclasses
import functools
import pwd
import sys
import time
import types
import typing as t

from ...module_utils.errors import VTorqueError
from ...module_utils.node.bare.loading import load_bare_host
from ...module_utils.node.devices import host_devices
from ...module_utils.node.domain import usage
from ...module_utils.node.guest import console_tail, data_disk, join, security_updates, site_scripts, user_additions
from ...module_utils.node.lifecycle import client, handover, present_absent, room
from ...module_utils.node.state import checkpoint_store, moves, pause_order
from ...module_utils.node.state.settings import NodeSettings
from ...module_utils.node.telemetry import sample_file
from ...module_utils.state import layout, records
from ...module_utils.state.layout import run_directory
from ...module_utils.state.records import LostRecord
from ...module_utils.system.clock import Deadline
from ...module_utils.time_budget import LEFTOVERS_CHECK_S, LOST_GUEST_CONNECTION_S
from ...module_utils.wire.form import FormError, from_dict, to_dict
from ...module_utils.wire.messages import (
    CheckpointStep,
    ImageOrder,
    JobMap,
    LostGuest,
    NodePart,
    SavedRequest,
    Suspension,
)
from ...module_utils.wire.node_answers import BareHost
from ...module_utils.wire.node_command import PROGRAM, ssh_command
from ..bridge.job_cores import apply_side_channels, cores_of, cpusets_of, may_change
from ..bridge.job_devices import with_granted
from ..bridge.node_settings import (
    Configuration,
    LoadPolicy,
    read_configuration,
    read_settings,
    read_usable_configuration,
)
from .authorize import (
    Caller,
    authorize_part,
    check_checkpoint,
    check_lost,
    check_suspension,
    plain_address,
    save_superior,
)
from .errors import ANSWERED, error_of
from .preload import load_needed
from .protocol import Answer, make_answer, make_failure

if t.TYPE_CHECKING:
    from ...module_utils.wire.health_report import ReportRequest
    from ...module_utils.wire.node_topology import TopologyRequest

FOLLOWER = (sys.executable, "-I", "-m", f"{(__package__ or '').rpartition('.')[0]}.cli.vtorque_follow")
"""Follows the suspension of a job."""


@dataclasses.dataclass
class Call:
    """How a request came.

    Attributes:
        environment: holds SSH_CONNECTION when it came by ssh.
        load: gives the site's policy.
        caller: the descriptor on which the answer will be written; None: nobody listens there.
        hold: keeps guests until they are told of their job; None: they need not be kept.
        before: the answer to the first line, where this is the second one.
    """

    environment: t.Mapping[str, str]
    load: LoadPolicy
    caller: int | None = None
    hold: handover.CallerEnd | None = None
    before: Answer = dataclasses.field(default_factory=dict)


class Kind(t.NamedTuple):
    """One kind of request.

    Attributes:
        decode: makes its message of parsed JSON; raises VTorqueError.
        handle: returns the answer; whatever it raises is answered as a failure.
    """

    decode: t.Callable[[t.Any], t.Any]
    handle: t.Callable[[t.Any, Call], Answer]


class Site(t.NamedTuple):
    """What a part of a job is worked on with."""

    configuration: Configuration
    deadline: Deadline

    @property
    def settings(self) -> NodeSettings:
        """This node's own."""
        return self.configuration.settings


def _for_part(
    work: t.Callable[[NodePart, Call, Site, Caller], Answer], read: t.Callable[[LoadPolicy], Configuration]
) -> t.Callable[[NodePart, Call], Answer]:
    """Return the handler of a part: it is checked first, and what fails is answered with what is left.

    Args:
        work: does what the part asks for.
        read: says what becomes of a configuration that cannot be read whole.
    """

    def handle(part: NodePart, call: Call) -> Answer:
        deadline = Deadline.after(part.timeout_s)
        configuration = read(call.load)
        policy, settings = configuration
        try:
            checked = authorize_part(part, policy, settings, call.environment)
            return work(part, call, Site(configuration, deadline), checked)
        except ANSWERED as problem:
            error = error_of(problem)
        # what failed may be libvirt's silence, which has used up the time
        bare = bool(part.bare_slots)
        return make_failure(
            error,
            present_absent.describe_leftovers(
                settings, part.job_id, part.start, connect_s=LEFTOVERS_CHECK_S, bare=bare
            ),
        )

    return handle


def _handle_present(part: NodePart, call: Call, site: Site, checked: Caller) -> Answer:
    """This node's guests of a start, made; or its word that it stays bare."""
    settings, deadline = site.settings, site.deadline
    report_lost: list[str] = []
    follow = [*FOLLOWER, part.job_id, str(part.start)]
    if checked.superior:
        with present_absent.blame_disk(settings):
            save_superior(part, checked.superior, settings)
        report_lost, follow = lost_guest_command(checked.superior), []
    if part.bare_slots:
        host = _bare_host(part, settings, deadline, call.environment)
        if call.hold is not None:  # nothing to give up, but the word about the job may come as late
            call.hold.take(-1, deadline)
        return make_answer(bare=[to_dict(host)], of=[layout.job_key(part.job_id, part.start)])
    cores: tuple[int, ...] = ()
    cpusets = cpusets_of(part.job_id, site.configuration.policy)
    if checked.job:
        pinned = any(spec.vcpu_cores or spec.io_max for spec in part.guests)
        cores = cores_of(checked.job, site.configuration.policy, settings.node_name, with_host=pinned)
        if pinned and may_change(checked.job, site.configuration.policy, cores):
            settings = dataclasses.replace(settings, cores_may_change=True)
        cores, cpusets = apply_side_channels(checked.job, site.configuration.policy, settings.node_name, cores)
        if host_devices.any_wanted(part.guests):
            settings = with_granted(checked.job, settings)
    if settings.suspend_guests == "session":
        follow = []
    if settings.checkpoint_dir is not None:
        if part.start <= 1:  # those of a former job of that id
            checkpoint_store.forget(settings.checkpoint_dir, part.job_id)
        else:
            checkpoint_store.forget_parked(settings.checkpoint_dir, part.job_id)
    load_needed(warm=settings.warm_start)
    found = client.request_guests(
        part,
        settings,
        deadline,
        caller=call.caller,
        tell=report_lost,
        hold=call.hold,
        cores=cores,
        cpusets=cpusets,
        follow=follow,
    )
    return make_answer(guests=[to_dict(guest) for guest in found])


def _handle_absent(part: NodePart, _call: Call, site: Site, _checked: Caller) -> Answer:
    """What was removed of a start, what is left, and what its guests used and wrote."""
    settings = site.settings
    bare = present_absent.is_bare(part.job_id, part.start, settings, planned=bool(part.bare_slots))
    came_from = moves.source_of(settings.start_dir(part.job_id, part.start))
    removed = present_absent.absent(part.job_id, part.start, settings, site.deadline, bare=bare)
    patience_s = max(0.5, site.deadline.left_s(LEFTOVERS_CHECK_S))
    left = present_absent.describe_leftovers(settings, part.job_id, part.start, connect_s=patience_s, bare=bare)
    record = settings.record_dir(part.job_id, part.start)
    used = [to_dict(one) for one in usage.read_use(record)]
    consoles = [to_dict(one) for one in console_tail.read_ends(record)]
    measured = sample_file.read_series(record, settings.node_name)
    series = [to_dict(measured)] if measured else []
    answer = make_answer(removed=removed, left=left, used=used, consoles=consoles, series=series)
    if moves.read_moved(record):
        answer = _site_requests().remove_moved(part, answer, settings, site.deadline)
    if came_from and not left:
        _site_requests().give_back_spare(site.configuration, part.job_id)
    return answer


def _bare_host(
    part: NodePart, settings: NodeSettings, deadline: Deadline, environment: t.Mapping[str, str]
) -> BareHost:
    """What a node says of itself that stays bare for this start; it needs no libvirt.

    Raises:
        FormError: guests are asked for, too.
        VTorqueError: it cannot be one of the job's hosts.
    """
    if part.guests:
        raise FormError("NodePart", "guests are asked for, on a host that is to stay bare")
    ours = environment.get("SSH_CONNECTION", "").split()[2:3]
    for earlier in present_absent.earlier_starts(part, settings):
        present_absent.absent(part.job_id, earlier, settings, deadline)
    host: BareHost = load_bare_host().ensure_bare_host(part, settings, deadline, plain_address(ours[0]) if ours else "")
    return host


def _handle_join(job_map: JobMap, call: Call) -> Answer:
    """This node's guests, or the host that stays bare, are told of the whole job.

    Raises:
        VTorqueError: it is the map of another start than the one whose hosts were just made, or it cannot be done.
    """
    deadline = Deadline.after(job_map.timeout_s)
    settings = read_settings(call.load)
    if "bare" in call.before:
        # another start's keys are its own mother superior's to bring
        if call.before["of"] != [layout.job_key(job_map.job_id, job_map.start)]:
            raise VTorqueError(f"join of job {job_map.job_id}", "this is not the start that was just asked for")
        load_bare_host().join(job_map, settings, deadline)
        return make_answer()
    here = {guest.name for guest in join.guests_of(job_map.job_id, job_map.start, settings)}
    if here != {guest["name"] for guest in call.before["guests"]}:
        raise VTorqueError(f"join of job {job_map.job_id}", "these are not the guests that were just made")
    join.join(job_map, settings, deadline)
    start = settings.start_dir(job_map.job_id, job_map.start)
    if any((start / name / checkpoint_store.RETURNED).exists() for name in here):
        return make_answer()
    data_disk.mount(job_map.job_id, job_map.start, settings, deadline)
    site_scripts.run_prologues(job_map.job_id, job_map.start, settings, deadline)
    updated = security_updates.install(job_map.job_id, job_map.start, settings, deadline)
    user_additions.make(job_map.job_id, job_map.start, settings, deadline)
    return make_answer(updates=map(to_dict, updated))


def _lost(lost: LostGuest, call: Call) -> Answer:
    """A sister of this mother superior has lost a guest: the job's shell hears of it, and ends the job.

    A sister can end so what she has a part in, and nothing else; of what she says, nothing but words is used.

    Raises:
        VTorqueError: she has no part in such a start here.
    """
    # a lost guest is lost, whatever the configuration says
    settings = read_usable_configuration(call.load).settings
    moved = bool(moves.read_moved(settings.record_dir(lost.job_id, lost.start)))
    if moved and _site_requests().pass_loss(lost, settings, call.environment):
        return make_answer()
    moved = moved and _site_requests().has_moved(lost, settings)
    job = check_lost(lost, settings, call.environment, moved=moved)
    directory = run_directory(lost.job_id, lost.start, settings.run_dir)
    record = LostRecord(lost.guest, lost.node, lost.reason, lost.console, round(time.time(), 3))
    records.write_lost(directory, record, reader_uid=pwd.getpwnam(job.euser).pw_uid)
    return make_answer()


def _suspension(message: Suspension, call: Call) -> Answer:
    """Order that this node's guests of a start stand still or go on, which their worker follows; or say if they could.

    Raises:
        VTorqueError: it is not to be; see `check_suspension`.
    """
    policy, settings = read_usable_configuration(call.load)
    source = moves.source_of(settings.start_dir(message.job_id, message.start))
    check_suspension(message, policy, settings, call.environment, source)
    key = layout.job_key(message.job_id, message.start)
    pauses = message.do == "suspend" and settings.suspend_guests != "session"
    missing = pauses and not settings.start_dir(message.job_id, message.start).is_dir()
    # the guests that are here do not wait for a spare node that is silent
    if message.do == "resume":
        pause_order.take_back(settings, key)
    elif pauses and not missing:
        pause_order.order_pause(settings, key)
    moved = moves.read_moved(settings.record_dir(message.job_id, message.start))
    lacks = _site_requests().tell_moved(message, settings) if moved else ()
    if missing:
        raise VTorqueError(f"suspend of job {message.job_id}", f"it has no guests on {settings.node_name}")
    if message.do == "fit":
        return make_answer(lack=filter(None, [room.lack_here(settings, key), *lacks]))
    return make_answer()


def _checkpoint(step: CheckpointStep, call: Call) -> Answer:
    """One step of a checkpoint of a job, here.

    Raises:
        VTorqueError: it is not to be, or cannot be done.
    """
    policy, settings = read_configuration(call.load)
    check_checkpoint(step, policy, settings, call.environment)
    return make_answer(lack=_site_requests().take_step(step, settings))


def _site_requests() -> types.ModuleType:
    from . import site_requests  # 30 ms that no job pays

    return site_requests


def _answer_image(order: ImageOrder, call: Call) -> Answer:
    answer: Answer = _site_requests().answer_image(order, call.load)
    return answer


def _answer_saved(request: SavedRequest, call: Call) -> Answer:
    answer: Answer = _site_requests().answer_saved(request, call.load)
    return answer


def _decode_move(do: str, data: t.Any) -> t.Any:
    return _site_requests().decode_move(do, data)


def _answer_move(message: t.Any, call: Call) -> Answer:
    answer: Answer = _site_requests().answer_move(message, call.load, call.environment, lost_guest_command)
    return answer


def _decode_report(data: t.Any) -> ReportRequest:
    request: ReportRequest = _site_requests().request_from_dict(data)
    return request


def _answer_report(request: ReportRequest, call: Call) -> Answer:
    answer: Answer = _site_requests().answer_report(request, call.load)
    return answer


def _decode_topology(data: t.Any) -> TopologyRequest:
    request: TopologyRequest = _site_requests().decode_topology(data)
    return request


def _answer_topology(_request: TopologyRequest, call: Call) -> Answer:
    answer: Answer = _site_requests().answer_topology(call.load)
    return answer


def lost_guest_command(superior: str) -> list[str]:
    """Return the command by which a node reports a lost guest to the job's mother superior.

    Args:
        superior: host name of another node.
    """
    return ssh_command(PROGRAM, superior, LOST_GUEST_CONNECTION_S)


KINDS: dict[str, Kind] = {
    "present": Kind(functools.partial(from_dict, NodePart), _for_part(_handle_present, read_configuration)),
    "absent": Kind(functools.partial(from_dict, NodePart), _for_part(_handle_absent, read_usable_configuration)),
    "lost": Kind(functools.partial(from_dict, LostGuest), _lost),
    "suspend": Kind(functools.partial(from_dict, Suspension), _suspension),
    "resume": Kind(functools.partial(from_dict, Suspension), _suspension),
    "fit": Kind(functools.partial(from_dict, Suspension), _suspension),
    **dict.fromkeys(
        ("can_save", "hold", "held", "store", "let_go"),
        Kind(functools.partial(from_dict, CheckpointStep), _checkpoint),
    ),
    "image": Kind(functools.partial(from_dict, ImageOrder), _answer_image),
    "saved": Kind(functools.partial(from_dict, SavedRequest), _answer_saved),
    "forget": Kind(functools.partial(from_dict, SavedRequest), _answer_saved),
    **{do: Kind(functools.partial(_decode_move, do), _answer_move) for do in ("arrive", "stream", "evacuate")},
    "report": Kind(_decode_report, _answer_report),
    "topology": Kind(_decode_topology, _answer_topology),
}
"""By the request's `do`, for the first line of a connection."""
SECOND: dict[str, Kind] = {"join": Kind(functools.partial(from_dict, JobMap), _handle_join)}
"""For the second one."""


def decoders_of(kinds: t.Mapping[str, Kind]) -> dict[str, t.Callable[[t.Any], t.Any]]:
    """Return what decodes each of these kinds (`protocol.decode_request`)."""
    return {name: kind.decode for name, kind in kinds.items()}
