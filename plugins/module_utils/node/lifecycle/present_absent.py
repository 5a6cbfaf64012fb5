# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node's part of a job: its guests made, and gone again."""

from __future__ import annotations

import contextlib
import pathlib
import time
import typing as t

from ...effects import leaves_nothing
from ...errors import SiteFault, VTorqueError, broken_disk, disk_fault, files_of, unjudged
from ...state import layout
from ...state.layout import job_key
from ...system import files
from ...system.clock import Deadline
from ...system.process.forking_process import Caller
from ...time_budget import EARLIER_START_S, LIBVIRT_CONNECT_S, SAVING_LOOK_S, SAVING_WAIT_S
from ...wire.form import from_dict
from ...wire.messages import NodePart
from ...wire.moves import Arrival
from ...wire.node_answers import GuestFacts
from ..bare.loading import load_bare_host
from ..domain.connection import Domains
from ..removal.leftovers import Leftover, list_leftovers, list_leftovers_without_libvirt
from ..removal.remove import remove_start
from ..state import qemu_user, saved_memory, start_lock
from ..state.end_start import end_start
from ..state.guest_file import digest_of, read_guest_file
from ..state.settings import NodeSettings
from ..system.cpus import Cores

if t.TYPE_CHECKING:
    from .creation.build import Step  # as build: only those pay who ask for guests


def ensure_guests(
    part: NodePart,
    settings: NodeSettings,
    deadline: Deadline,
    step: Step = lambda _what: None,
    *,
    cores: Cores = (),
    arrival: Arrival | None = None,
    again: bool = False,
    caller: Caller | None = None,
) -> tuple[GuestFacts, ...]:
    """See to it that this node's guests of a start run and are ready; the caller holds the lock of the start.

    Called again it finds them and answers the same.  When it fails, what was made is still there: the holder of the
    lock takes it away (`worker`).

    Args:
        part: what is asked; its guests.
        settings: NodeSettings of this node.
        deadline: when there must be an answer.
        step: hears what is done next, and may raise to end it.
        cores: the job's on this node; (): libvirt places the guests.
        arrival: of the guest that comes from another node; None: all are made here.
        again: whoever awaited that one has died; its place is made.
        caller: see `build.create_guests`.

    Returns:
        The guests, by rank.

    Raises:
        VTorqueError: they are not; the class says whose fault it is.
    """
    from .creation import arriving, build, preflight, returning  # 20 ms that only those pay who make guests

    key = job_key(part.job_id, part.start)
    if not part.guests:
        raise VTorqueError(f"present for {key}", "no guest is asked for")

    def checked(what: str) -> None:
        start_lock.refuse_if_over(settings, key)
        step(what)

    with blame_disk(settings):
        _remove_earlier_starts(part, settings, deadline, checked)
        _wait_for_memory(settings, deadline, checked)
        checked("libvirt")
        with Domains(settings.libvirt_uri, connect_s=deadline.left_s(LIBVIRT_CONNECT_S)) as domains:
            domains.listen()
            checked("what is there already")
            come = arriving.await_again(arrival, settings, domains, deadline, checked) if arrival and again else ()
            found = come or _living(part, settings, domains)
            if found:
                return found
            offered = domains.capabilities()
            preflight.preflight(part, settings, offered)
            qemu_user.save_uid(offered.qemu_ids[0], settings)
            remove_start(part.job_id, part.start, settings, domains)
            if arrival is not None:
                return arriving.receive(arrival, settings, domains, deadline, checked)
            if any(spec.saved_in for spec in part.guests):
                return returning.bring_back(part, settings, domains, deadline, checked, cores)
            return build.create_guests(part, settings, domains, deadline, checked, cores, caller)


def _remove_earlier_starts(part: NodePart, settings: NodeSettings, deadline: Deadline, step: Step) -> None:
    """A start that is asked for proves that the ones before it are over, whoever did not come to end them.

    A MOM that was restarted and a mother superior that lost its power run no epilogue.
    """
    for earlier in earlier_starts(part, settings):
        step(f"the end of start {earlier}")
        absent(part.job_id, earlier, settings, Deadline.after(deadline.left_s(EARLIER_START_S)))


def _wait_for_memory(settings: NodeSettings, deadline: Deadline, step: Step) -> None:
    """A batch system gives a node to the next job while guests of a suspended one still go to the disk."""
    until = Deadline.after(min(SAVING_WAIT_S, deadline.left_s() / 2))
    while (leaving := saved_memory.on_their_way(settings)) and not until.passed:
        step(f"the wait for memory of {', '.join(leaving)}")
        time.sleep(SAVING_LOOK_S)


def earlier_starts(part: NodePart, settings: NodeSettings) -> tuple[int, ...]:
    """The starts of a job before this one of which something is here."""
    found = {n for place in (settings.guests_dir, settings.bare_dir) for n in layout.starts_of(part.job_id, place)}
    return tuple(sorted(number for number in found if number < part.start))


def find(part: NodePart, settings: NodeSettings, deadline: Deadline) -> tuple[GuestFacts, ...]:
    """The guests of a start when all of them live and are what is asked for, else (); nothing is made or taken away.

    Args:
        part: what is asked; its guests.
        settings: NodeSettings of this node.
        deadline: bounds the connection to libvirt.

    Raises:
        NodeFault: libvirt does not answer.
    """
    with Domains(settings.libvirt_uri, connect_s=deadline.left_s(LIBVIRT_CONNECT_S)) as domains:
        return _living(part, settings, domains)


@leaves_nothing
def _living(part: NodePart, settings: NodeSettings, domains: Domains) -> tuple[GuestFacts, ...]:
    """The guests of this start, when all of them run, are ready, and are what is asked for; else ().

    Args:
        part: what is asked; its guests.
        settings: NodeSettings of this node.
        domains: a connection to libvirt.

    Raises:
        NodeFault: libvirt does not answer.
    """
    directory = settings.start_dir(part.job_id, part.start)
    found = {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        guest_file = read_guest_file(path)
        facts = domains.facts(path.name)
        if guest_file is None or facts is None or facts.state != "running" or facts.uuid != guest_file.uuid:
            return ()
        with contextlib.suppress(FileNotFoundError):
            ready = from_dict(GuestFacts, files.read_json(path / "facts.json"))
            found[(guest_file.rank, guest_file.spec_digest)] = ready
    wanted = {(spec.rank, digest_of(spec, part)) for spec in part.guests}
    return tuple(found[key] for key in sorted(found)) if set(found) == wanted else ()


def absent(
    job_id: str, start: int, settings: NodeSettings, deadline: Deadline, *, bare: bool = False
) -> tuple[str, ...]:
    """See to it that nothing of a start is left on this node; from now on `ensure_guests` refuses it.

    Args:
        job_id: of the job.
        start: its start_count.
        settings: NodeSettings of this node.
        deadline: when there must be an answer.
        bare: the plan says that this node stays bare for the start.

    Returns:
        What was removed by whomever, as words; () when there was nothing.

    Raises:
        NodeFault: libvirt does not answer, so that it is not known what is left.
        VTorqueError: something would not go.
    """
    key = job_key(job_id, start)
    if is_bare(job_id, start, settings, planned=bare):
        removed: tuple[str, ...] = load_bare_host().absent(job_id, start, settings, deadline)
        return removed
    with blame_disk(settings):
        return end_start(
            settings,
            key,
            deadline,
            lambda domains: remove_start(job_id, start, settings, domains),
            meanwhile=lambda: Domains(settings.libvirt_uri, connect_s=deadline.left_s(LIBVIRT_CONNECT_S)),
        )


def is_bare(job_id: str, start: int, settings: NodeSettings, *, planned: bool = False) -> bool:
    """Return whether this node is bare for a start.  Then libvirt, which it need not have, has nothing of the start.

    Args:
        planned: the plan says so; a node that has guests of the start knows better.
    """
    here = planned or (settings.bare_dir / job_key(job_id, start)).is_dir()
    return here and not settings.start_dir(job_id, start).is_dir()


def remove_under_lock(
    job_id: str, start: int, settings: NodeSettings, domains: Domains | None = None
) -> tuple[str, ...]:
    """Remove everything of a start; the caller holds its lock.

    Args:
        domains: a connection that is there already.

    Returns:
        What was removed, as words.

    Raises:
        NodeFault: libvirt does not answer, so that it is not known what is left.
        VTorqueError: something would not go.
    """
    with blame_disk(settings):
        if domains is not None:
            return remove_start(job_id, start, settings, domains)
        with Domains(settings.libvirt_uri) as opened:
            return remove_start(job_id, start, settings, opened)


def _list_without_libvirt(settings: NodeSettings, known: VTorqueError) -> tuple[Leftover | str, ...]:
    """What is here besides domains; where that cannot be told either, it is said, once."""
    try:
        return list_leftovers_without_libvirt(settings)
    except VTorqueError as error:
        return () if str(error) == str(known) else (f"unknown: {error}",)


def describe_leftovers(
    settings: NodeSettings,
    job_id: str | None = None,
    start: int | None = None,
    *,
    connect_s: float = LIBVIRT_CONNECT_S,
    bare: bool = False,
) -> tuple[str, ...]:
    """What of vTorque's guests is here, as words; that libvirt does not answer, or a disk, is one of them.

    Args:
        job_id: only of this job; None: of any, and what cannot be told whose it is.
        start: only of this start of it.
        connect_s: seconds that libvirt may take to answer at all.
        bare: this node stays bare for the start, so that libvirt is not asked.
    """
    there: tuple[Leftover | str, ...] = ()
    try:
        if bare:
            there = list_leftovers_without_libvirt(settings)
        else:
            with Domains(settings.libvirt_uri, connect_s=connect_s) as domains:
                there = list_leftovers(settings, domains)
    except VTorqueError as error:
        there = (f"unknown: {error}", *_list_without_libvirt(settings, error))
    if job_id is None:
        return tuple(map(str, there))

    def asked_for(thing: Leftover | str) -> bool:
        if isinstance(thing, str):
            return True
        named = layout.start_of(thing.key)
        return named is not None and named[0] == job_id and start in (None, named[1])

    return tuple(str(thing) for thing in there if asked_for(thing))


@contextlib.contextmanager
@leaves_nothing
def blame_disk(settings: NodeSettings) -> t.Iterator[None]:
    """Raise a full or broken local disk as this node's fault, and all else that the system refuses as what it is.

    Blame needs proof: an error that names a file is this disk's when the file is this node's own, and the site's when
    it is the pool's; of any other (a user's, one of a server that nobody thought of here) it proves nothing.  One that
    names none is of a file that was open, as a write's on a full disk: whoever reads what is the site's or a user's
    says so itself (`images.unreadable`), and those errors stay as they are.
    """
    try:
        yield
    except (OSError, VTorqueError) as error:
        judged = unjudged(error)
        files = files_of(judged) if judged else ()
        if any(file.is_relative_to(settings.pool) for file in files):
            raise SiteFault(f"image pool {settings.pool}", str(judged), "see to the image pool") from error
        if (disk := broken_disk(error)) and (not files or _any_here(files, settings)):
            raise disk_fault(f"the disk of {settings.state_dir} on {settings.node_name}", str(disk)) from error
        if isinstance(error, OSError):
            raise VTorqueError(f"{settings.node_name} could not do it", str(error)) from error
        raise


def _any_here(files: t.Iterable[pathlib.Path], settings: NodeSettings) -> bool:
    """Return whether one of these is on the node's own disk.  A ramdisk is memory, whose bound the site has set."""
    return any(file.is_relative_to(place) for file in files for place in (settings.state_dir, settings.run_dir))
