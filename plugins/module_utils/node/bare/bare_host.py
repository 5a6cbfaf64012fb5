# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of a mixed job that stays bare: ssh between it and the job's guests, for the life of the start alone.

bare/                      0755, for ssh lists it
bare/<job>.<start>/        0711: whose it is, the job's key, host keys, and the fragments for sshd and ssh
authorized_keys/<user>     what sshd reads: the lines of all of the user's starts here, made from their directories

All below /run/vtorque, root's, and gone with a reboot.  Nothing of it needs libvirt.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import typing as t

from ...errors import VTorqueError
from ...rendering.templates import render
from ...state.layout import job_key
from ...system import files
from ...system.clock import Deadline
from ...time_budget import BARE_KEYS_S
from ...wire.form import from_dict, to_dict
from ...wire.messages import JobHost, JobMap, NodePart, Owner
from ...wire.node_answers import BareHost
from ..network.host_names import names_by
from ..state import start_lock
from ..state.directories import GONE, entries, unreadable
from ..state.end_start import end_start
from ..state.settings import NodeSettings
from . import ssh_sessions, sshd

TEMPLATE = "bare/ssh_config.j2"
OWNER, GUESTS, AUTHORIZED, FRAGMENT = "owner.json", "guests.json", "authorized_key", "ssh_config"


def ensure_bare_host(part: NodePart, settings: NodeSettings, deadline: Deadline, reached_at: str = "") -> BareHost:
    """See that this host can be one of the job's, and note that it is: nobody gets in yet.

    Args:
        part: what is asked; its owner has been compared with this node's.
        settings: NodeSettings of this node.
        deadline: when there must be an answer.
        reached_at: the address at which this node was asked; "" when it was not asked from elsewhere.

    Returns:
        How the other hosts of the job reach and know this one.

    Raises:
        SiteFault: its sshd is not made for it, or does not answer.
        VTorqueError: the start is over, or something could not be written.
    """
    key = job_key(part.job_id, part.start)
    with _undo_if_failed(key, settings, deadline):
        directory = settings.bare_dir / key
        files.make_directory(settings.bare_dir, 0o755)
        files.make_directory(directory)
        files.write(directory / OWNER, json.dumps(to_dict(part.owner)))
        return sshd.check_sshd(part.owner.user, settings, reached_at, deadline)


def join(job_map: JobMap, settings: NodeSettings, deadline: Deadline) -> None:
    """Open the ways between this host and the others of the job.

    Args:
        job_map: who they are.
        settings: NodeSettings of this node.
        deadline: when it must be done.

    Raises:
        VTorqueError: this host is none of the start's, the start is over, or something could not be written.
    """
    key = job_key(job_map.job_id, job_map.start)
    with _undo_if_failed(key, settings, deadline):
        directory = settings.bare_dir / key
        owner = owner_of(directory)
        if owner is None:
            raise VTorqueError(f"join of job {job_map.job_id}", f"{settings.node_name} is no bare host of this start")
        guests = [host.address for host in job_map.hosts if not host.bare]
        files.write(directory / GUESTS, json.dumps({"addresses": guests}))
        files.write(directory / "known_hosts", known_hosts(job_map.hosts, settings), mode=0o444)
        files.write(directory / "job_key", job_map.job_key.private, reader_uid=owner.uid)
        files.write(directory / FRAGMENT, fragment(job_map, owner, directory, settings), mode=0o444)
        files.write(directory / AUTHORIZED, authorized_line(job_map, key))
        _write_keys(owner, settings, deadline)


def absent(job_id: str, start: int, settings: NodeSettings, deadline: Deadline) -> tuple[str, ...]:
    """See to it that nothing of a start is left on this bare host; from now on `ensure_bare_host` refuses it.

    Args:
        job_id: of the job.
        start: its start_count.
        settings: NodeSettings of this node.
        deadline: when there must be an answer.

    Returns:
        What was removed, as words; () when there was nothing.

    Raises:
        VTorqueError: something would not go.
    """
    key = job_key(job_id, start)
    return end_start(
        settings, key, deadline, lambda _none: remove(key, settings, deadline), meanwhile=contextlib.nullcontext
    )


def remove(key: str, settings: NodeSettings, deadline: Deadline) -> tuple[str, ...]:
    """Close the ways of a start; the caller holds its lock.

    What sshd reads goes first, then what came in by it, and the directory last: whoever is cut short is seen to have
    work left.

    Args:
        key: `state.layout.job_key` of the start.
        settings: NodeSettings of this node.
        deadline: bounds the wait for the files that sshd reads.

    Returns:
        What was removed, as words.

    Raises:
        VTorqueError: something would not go.
    """
    directory = settings.bare_dir / key
    if not directory.is_dir():
        return ()
    (directory / AUTHORIZED).unlink(missing_ok=True)
    tidy(settings, deadline)
    ended = _end_sessions(directory)
    try:
        (directory / FRAGMENT).unlink(missing_ok=True)
        shutil.rmtree(directory)
    except OSError as error:
        raise VTorqueError(f"{directory} was not removed", str(error)) from error
    return (f"ssh access {key}", *(f"process {pid}" for pid in ended))


def _end_sessions(directory: pathlib.Path) -> tuple[int, ...]:
    """What the guests began here ends, since nobody can come in any more."""
    owner = owner_of(directory)
    try:
        addresses = {str(one) for one in files.read_json(directory / GUESTS).get("addresses", ())}
    except FileNotFoundError:  # nobody was let in
        return ()
    return ssh_sessions.end(addresses, owner.uid) if owner is not None else ()


def tidy(settings: NodeSettings, deadline: Deadline) -> tuple[str, ...]:
    """Make what sshd reads anew from the directories of the starts that are here.

    Args:
        settings: NodeSettings of this node.
        deadline: when it must be done.

    Returns:
        What was not as it should be, as words.

    Raises:
        VTorqueError: it could not be written.
    """
    if not settings.authorized_keys_dir.is_dir():
        return ()
    changed = []
    with _lock_keys(settings, deadline):
        wanted = {owner.user: (owner, lines) for owner, lines in _wanted(settings)}
        for path in entries(settings.authorized_keys_dir):
            owner_and_lines = wanted.get(path.name)
            if owner_and_lines is None:
                path.unlink(missing_ok=True)
            elif _content(path) == (text := "".join(owner_and_lines[1])):
                continue
            else:
                files.write(path, text, reader_uid=owner_and_lines[0].uid)
            changed.append(f"authorized keys of {path.name}")
    return tuple(changed)


def _write_keys(owner: Owner, settings: NodeSettings, deadline: Deadline) -> None:
    """Let sshd read the lines of all of one user's starts."""
    with _lock_keys(settings, deadline):
        files.make_directory(settings.authorized_keys_dir)
        lines = [line for other, some in _wanted(settings) for line in some if other.user == owner.user]
        # sshd reads it as the user
        files.write(settings.authorized_keys_dir / owner.user, "".join(lines), reader_uid=owner.uid)


def _wanted(settings: NodeSettings) -> list[tuple[Owner, list[str]]]:
    """Each user who is to get in, and their lines."""
    found: dict[str, tuple[Owner, list[str]]] = {}
    for directory in entries(settings.bare_dir):
        owner, line = owner_of(directory), _content(directory / AUTHORIZED)
        if owner is not None and line:
            found.setdefault(owner.user, (owner, []))[1].append(line)
    return list(found.values())


def _lock_keys(settings: NodeSettings, deadline: Deadline) -> contextlib.AbstractContextManager[tuple[str, ...]]:
    lock = settings.run_dir / "locks" / "authorized_keys"
    return start_lock.lock_alone(lock, settings, Deadline.after(deadline.left_s(BARE_KEYS_S)))


@contextlib.contextmanager
def _undo_if_failed(key: str, settings: NodeSettings, deadline: Deadline) -> t.Iterator[None]:
    """Under the lock of the start, which is not over before or after; what fails leaves nothing."""
    start_lock.refuse_if_over(settings, key)
    with start_lock.lock_alone(start_lock.start_lock(settings, key), settings, deadline):
        try:
            start_lock.refuse_if_over(settings, key)
            yield
            start_lock.refuse_if_over(settings, key)
        except BaseException as error:
            with contextlib.suppress(VTorqueError):  # `absent` and the sweep tell it
                remove(key, settings, Deadline.after(BARE_KEYS_S))
                start_lock.start_lock(settings, key).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise VTorqueError(f"{settings.node_name} could not do it", str(error)) from error
            raise


def owner_of(directory: pathlib.Path) -> Owner | None:
    """Whose start a directory of `bare/` is of; None: whoever made it did not come so far as to say it.

    Raises:
        NodeFault: it is said, and cannot be read.
    """
    path = directory / OWNER
    try:
        return from_dict(Owner, files.read_json(path))
    except (*GONE, VTorqueError):
        return None
    except OSError as error:  # a user's sessions would be taken for nobody's
        raise unreadable(path, error) from error


def known_hosts(hosts: t.Sequence[JobHost], settings: NodeSettings) -> str:
    """Lines of known_hosts: each host by its names and its address."""
    names = names_by(hosts, settings.domain)
    return "".join(f"{','.join([*names(host), host.address])} {host.host_key}\n" for host in hosts)


def fragment(job_map: JobMap, owner: Owner, directory: pathlib.Path, settings: NodeSettings) -> str:
    """What ssh is told of the job's hosts, for the job's user alone.

    Raises:
        SiteFault: the site's template is wrong.
    """
    return render(
        TEMPLATE,
        site_dir=settings.template_dir,
        hosts=job_map.hosts,
        user=owner.user,
        directory=str(directory),
        names=names_by(job_map.hosts, settings.domain),
    )


def authorized_line(job_map: JobMap, key: str) -> str:
    """The job's key, from the job's hosts alone; of all else that ssh can do, a terminal is left."""
    addresses = ",".join(dict.fromkeys(host.address for host in job_map.hosts))
    kind, public = job_map.job_key.public.split()[:2]
    return f'restrict,pty,from="{addresses}" {kind} {public} vtorque:{key}\n'


def _content(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (*GONE, ValueError):
        return ""
    except OSError as error:  # a start that lives would lose its key
        raise unreadable(path, error) from error
