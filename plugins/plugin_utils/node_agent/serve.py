# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of `vtorque-node`: one node's part of a job, asked in a line of JSON on standard input and answered in one.

Whose guests are ready may be told of the whole job, by a second line.  What is asked comes over a connection and is
checked against the batch server's word; what is made follows from this node's own policy and templates.  With
`--early` everything that will be needed is loaded before the request is read.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import pwd
import select
import signal
import sys
import time
import typing as t

from ...module_utils.errors import CANCELLED, VTorqueError
from ...module_utils.job.batch import job_snapshot as kept
from ...module_utils.job.batch import mother_superior as superior
from ...module_utils.job.batch.host_match import same_host
from ...module_utils.job.config import policy_file
from ...module_utils.job.config.parameters import Policy
from ...module_utils.node.domain import usage
from ...module_utils.node.guest import console_tail, data_disk, join, security_updates, site_scripts, user_additions
from ...module_utils.node.lifecycle import client, handover, present_absent
from ...module_utils.node.state.settings import NodeSettings
from ...module_utils.state import layout, records
from ...module_utils.state.layout import run_directory
from ...module_utils.state.records import LostRecord
from ...module_utils.system import process_limits, signals
from ...module_utils.system.clock import Deadline
from ...module_utils.wire.form import FormError, from_dict, to_dict
from ...module_utils.wire.messages import BareHost, ImageOrder, JobMap, LostGuest, NodePart
from ..bridge.job_cores import cores_of
from ..bridge.node_settings import host_name, settings_of
from .authorize import check, check_host, plain_address

if t.TYPE_CHECKING:
    from ...module_utils.wire.health_report import ReportRequest

VERSION = 1
REPORT = "report"
LIMIT = 1 << 20
"""Bytes of a request that are read; one guest needs less than 3 KiB."""
LOOK_S = 2.0
"""For libvirt's answer to what is left, once the work is done or has failed."""
CONNECT_S = 20
"""For the connection to a mother superior who is to be told of a lost guest."""
LATER = 19
"""Niceness of what the job's first line does not wait for."""
EARLY, END_LEFT = "--early", "--end-left"
NEEDED = (
    f"{present_absent.__package__}.build", f"{present_absent.__package__}.preflight", "libvirt", "jinja2", "pycdlib",
)  # fmt: skip
"""What `present` imports before guests boot; nothing of it starts a thread, which a fork would not survive."""


def main() -> int:
    """Answer one request.

    Returns:
        0: there is an answer, which says whether it went well.
    """
    signals.raise_when_told()
    # sshd gives root's own; qemu and the job's owner must pass through what is made here
    os.umask(0o022)
    # a caller that went away must not end us in the middle of undoing
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    load = _loaded_early() if sys.argv[1:] == [EARLY] else _read_once(policy_file.load)
    stream = sys.stdin.buffer
    with contextlib.suppress(BrokenPipeError), handover.Hold() as hold:
        answer = respond(stream, os.environ, load=load, caller=1, hold=hold)
        _say(answer)
        # whoever asked first is believed in what follows
        more = answer["ok"] and (answer["guests"] or "bare" in answer)
        if more and (told := _second_line(stream, hold.listen_s)):
            joined = respond_join(told, answer, load=load)
            _say(joined)
            if joined["ok"]:
                _note_neighbours(told, load)
    if answer["ok"] and sys.argv[1:2] == [END_LEFT]:
        from ..bridge import leftover_processes

        leftover_processes.end_left_of_sister(sys.argv[2:], load, host_name())
    return 0


def _note_neighbours(told: bytes, load: t.Callable[[], Policy]) -> None:
    """Whether the job that begins has this node for itself; in a process of its own, for our end is waited for."""
    if os.fork() != 0:
        return
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        process_limits.step_back(LATER)
        from ..bridge import exclusive_note

        job_map, policy = from_dict(JobMap, _json(told)), load()
        directory = settings_of(policy, host_name()).record_dir(job_map.job_id, job_map.start)
        exclusive_note.note_neighbours(job_map.job_id, job_map.start, policy, host_name(), directory)
    finally:  # nobody hears what else there is to say; without the note nothing will be ended
        os._exit(0)


def _second_line(stream: t.BinaryIO, timeout_s: float) -> bytes:
    """What the guests are to be told of their job; b"" when it does not come whole: the caller gave up."""
    if not select.select([stream], [], [], timeout_s)[0]:
        return b""
    line = stream.readline(LIMIT + 1)
    return line if line.endswith(b"\n") or len(line) > LIMIT else b""


def _say(answer: dict[str, t.Any]) -> None:
    data = json.dumps(answer, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
    while data:
        data = data[os.write(1, data) :]


def _loaded_early() -> t.Callable[[], Policy]:
    """Import what will be needed and read the policy; what fails now is tried again, and told, when it is needed."""
    _load_needed()
    load = _read_once(policy_file.load)
    with contextlib.suppress(VTorqueError):
        load()
    return load


def _load_needed() -> None:
    """Before a worker is begun: it finds it loaded, as does the process that makes the guests, and what comes last."""
    for name in NEEDED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _read_once(load: t.Callable[[], Policy]) -> t.Callable[[], Policy]:
    """The same policy each time, once it could be read."""
    found: list[Policy] = []

    def read() -> Policy:
        if not found:
            found.append(load())
        return found[0]

    return read


def respond(
    stream: t.BinaryIO, environment: t.Mapping[str, str], *,
    load: t.Callable[[], Policy] = policy_file.load,
    caller: int | None = None,
    hold: handover.Hold | None = None,
) -> dict[str, t.Any]:  # fmt: skip
    """The answer to what is asked on a stream.

    Args:
        stream: one line of it is read.
        environment: holds SSH_CONNECTION when the request came by ssh.
        load: gives the site's policy.
        caller: the descriptor on which the answer will be written.
        hold: keeps guests until they are told of their job.
    """
    part: NodePart | None = None
    settings: NodeSettings | None = None
    try:
        asked = read_request(stream)
        if not isinstance(asked, NodePart):
            return _of_no_part(asked, environment, load)
        part = asked
        deadline = Deadline.after(part.timeout_s)
        policy = _policy(load, part)
        settings = settings_of(policy, host_name())
        checked = check(part, policy, settings, environment)
        if part.do == "absent":
            bare = present_absent.is_bare(part.job_id, part.start, settings, told=bool(part.bare_slots))
            removed = present_absent.absent(part.job_id, part.start, settings, deadline, bare=bare)
            patience_s = max(0.5, deadline.left_s(LOOK_S))
            left = present_absent.left(settings, part.job_id, part.start, connect_s=patience_s, bare=bare)
            used = [to_dict(one) for one in usage.read_use(settings.record_dir(part.job_id, part.start))]
            consoles = [to_dict(one) for one in console_tail.read_ends(settings.record_dir(part.job_id, part.start))]
            return _good(removed=removed, left=left, used=used, consoles=consoles)
        if checked.superior:
            record = settings.record_dir(part.job_id, part.start)
            with present_absent.disk_judged(settings):
                superior.keep(checked.superior, record, reader_uid=part.owner.uid)
        if part.bare_slots:
            host = _bare_host(part, settings, deadline, environment)
            if hold is not None:  # nothing to give up, but the word about the job may come as late
                hold.take(-1, deadline)
            return _good(bare=[to_dict(host)], of=[layout.job_key(part.job_id, part.start)])
        cores = cores_of(checked.job, policy, settings.node_name) if checked.job else ()
        _load_needed()
        found = client.present(
            part, settings, deadline, caller=caller, tell=telling(checked.superior), hold=hold, cores=cores
        )
        return _good(guests=[to_dict(guest) for guest in found])
    except signals.Told as told:
        error = VTorqueError(CANCELLED, f"by {told}")
    except Exception as problem:  # whatever it is, the caller gets an answer
        error = _as_ours(problem)
    # what failed may be libvirt's silence, which has used up the time
    if part is None or settings is None:
        return _bad(error)
    return _bad(
        error, present_absent.left(settings, part.job_id, part.start, connect_s=LOOK_S, bare=bool(part.bare_slots))
    )


def _as_ours(problem: Exception) -> VTorqueError:
    """What went wrong, so that it can be told."""
    if isinstance(problem, VTorqueError):
        return problem
    if isinstance(problem, OSError):
        return VTorqueError("this node could not do it", str(problem))
    return VTorqueError(f"a fault in vTorque itself: {type(problem).__name__}", str(problem))


def _of_no_part(
    asked: LostGuest | ImageOrder | ReportRequest, environment: t.Mapping[str, str],
    load: t.Callable[[], Policy],
) -> dict[str, t.Any]:  # fmt: skip
    """The answer to what is about no part of a job on this node, of whoever root lets in; it tells no secrets.

    Raises:
        VTorqueError: it cannot be done.
    """
    if isinstance(asked, LostGuest):
        policy, _broken = policy_file.load_usable(load)  # a lost guest is lost, whatever the configuration says
        return respond_lost(asked, settings_of(policy, host_name()), environment)
    if isinstance(asked, ImageOrder):
        from ...module_utils.node.cache import prefetch  # only who asks for it pays

        return {**_good(), "image": prefetch.answer(asked, settings_of(load(), host_name()))}
    from ..bridge import examine

    report = examine.examine_here(load, host_name(), asked.timeout_s)
    return {**_good(), "report": report.to_dict()}


def _bare_host(
    part: NodePart, settings: NodeSettings, deadline: Deadline, environment: t.Mapping[str, str]
) -> BareHost:  # fmt: skip
    """What a node says of itself that stays bare for this start; it needs no libvirt.

    Raises:
        FormError: guests are asked for, too.
        VTorqueError: it cannot be one of the job's hosts.
    """
    from ...module_utils.node.bare import bare_host  # only such a host pays for it

    if part.guests:
        raise FormError("NodePart", "guests are asked for, on a host that is to stay bare")
    ours = environment.get("SSH_CONNECTION", "").split()[2:3]
    for earlier in present_absent.earlier_starts(part, settings):
        present_absent.absent(part.job_id, earlier, settings, deadline)
    return bare_host.present(part, settings, deadline, plain_address(ours[0]) if ours else "")


def respond_join(
    line: bytes, before: dict[str, t.Any], *, load: t.Callable[[], Policy] = policy_file.load
) -> dict[str, t.Any]:
    """The answer to the second line: this node's guests, or the host that stays bare, are told of the whole job.

    Args:
        line: a JobMap; of the start whose guests were just made.
        before: the first answer.
        load: gives the site's policy.
    """
    try:
        job_map = from_dict(JobMap, _json(line))
        deadline = Deadline.after(job_map.timeout_s)
        settings = settings_of(load(), host_name())
        if "bare" in before:
            from ...module_utils.node.bare import bare_host

            # another start's keys are its own mother superior's to bring
            if before["of"] != [layout.job_key(job_map.job_id, job_map.start)]:
                raise VTorqueError(f"join of job {job_map.job_id}", "this is not the start that was just asked for")
            bare_host.join(job_map, settings, deadline)
            return _good()
        here = {kept.name for kept in join.guests_of(job_map.job_id, job_map.start, settings)}
        if here != {guest["name"] for guest in before["guests"]}:
            raise VTorqueError(f"join of job {job_map.job_id}", "these are not the guests that were just made")
        join.join(job_map, settings, deadline)
        data_disk.mount(job_map.job_id, job_map.start, settings, deadline)
        site_scripts.run_prologues(job_map.job_id, job_map.start, settings, deadline)
        updated = security_updates.install(job_map.job_id, job_map.start, settings, deadline)
        user_additions.make(job_map.job_id, job_map.start, settings, deadline)
    except signals.Told as told:
        return _bad(VTorqueError(CANCELLED, f"by {told}"))
    except VTorqueError as problem:
        return _bad(problem)
    except OSError as problem:
        return _bad(VTorqueError("this node could not do it", str(problem)))
    return _good(updates=map(to_dict, updated))


def respond_lost(told: LostGuest, settings: NodeSettings, environment: t.Mapping[str, str]) -> dict[str, t.Any]:
    """The answer of a mother superior whose sister has lost a guest: the job's shell hears of it, and ends the job.

    A sister can end so what she has a part in, and nothing else; of what she says, nothing but words is used.

    Args:
        told: which guest.
        settings: this node's own word.
        environment: holds SSH_CONNECTION.

    Raises:
        VTorqueError: she has no part in such a start here.
    """
    what = f"guest {told.guest} of job {told.job_id}, start {told.start}"
    directory = run_directory(told.job_id, told.start, settings.run_dir)
    job = kept.kept(told.job_id, directory)
    if job is None or not job.nodes or not same_host(job.nodes[0], settings.node_name):
        raise VTorqueError(what, f"{settings.node_name} does not lead such a start")
    if not any(same_host(told.node, host) for host in job.nodes[1:]):
        raise VTorqueError(what, f"{told.node} has no part in it")
    check_host(told.job_id, told.node, environment.get("SSH_CONNECTION", ""), "its sister")
    lost = LostRecord(told.guest, told.node, told.reason, told.console, round(time.time(), 3))
    records.leave_lost(directory, lost, reader_uid=pwd.getpwnam(job.euser).pw_uid)
    return _good()


def telling(superior: str) -> list[str]:
    """The command by which a sister tells her mother superior of a lost guest; [] where that is this node.

    Args:
        superior: host name; "" for this node.
    """
    if not superior:
        return []
    from ..play.node_connection import ssh_command  # 4 ms that the mother superior does not pay

    return ssh_command(pathlib.Path(sys.prefix).parent / "bin" / "vtorque-node", superior, CONNECT_S)


def _good(**more: t.Iterable[t.Any]) -> dict[str, t.Any]:
    """An answer that it went well."""
    lists = {"guests": [], "removed": [], "left": [], **{name: list(values) for name, values in more.items()}}
    return {"version": VERSION, "ok": True, **lists}


def _bad(error: VTorqueError, left: t.Iterable[str] = ()) -> dict[str, t.Any]:
    """An answer that it did not."""
    return {"version": VERSION, "ok": False, "error": error.to_dict(), "left": list(left)}


def _policy(load: t.Callable[[], Policy], part: NodePart) -> Policy:
    if part.do != "absent":
        return load()
    # a configuration that somebody is changing must not keep what is over
    policy, _broken = policy_file.load_usable(load)
    return policy


def read_request(stream: t.BinaryIO) -> NodePart | LostGuest | ImageOrder | ReportRequest:
    """Read what is asked or told, strictly.

    Raises:
        FormError: it is too long, not JSON, or not of the form.
        VTorqueError: the same, of the request for a report.
    """
    data = _json(stream.readline(LIMIT + 1))
    if isinstance(data, dict) and data.get("do") == REPORT:
        from ...module_utils.wire.health_report import request_from_dict

        return request_from_dict(data)
    told = data.get("do") if isinstance(data, dict) else None
    if told == "image":
        return from_dict(ImageOrder, data)
    return from_dict(LostGuest, data) if told == "lost" else from_dict(NodePart, data)


def _json(data: bytes) -> t.Any:
    if len(data) > LIMIT:
        raise FormError("the request", f"is longer than {LIMIT} bytes: not read")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormError("the request", f"is not JSON: {str(error)[:100]}") from None
