# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of a start that failed, of its job, and of the node: the one place where that is decided.

    fault                         the job                                       the node
    user, image                   ends, with the reason
    node, with a cause            is tried elsewhere; the last try: held        offline, with a note of ours
    site, unclear, other nodes'   is tried again; the last try: held
    impostor, loop, checkpoint    is held at once
    image, of an array, again     is held: from the third member within a minute on

A start is the last try when the site's `node_fault_retries` divides its number: no store is needed, and a release
gives as many tries again.  Where a node proved a fault and still must not go offline, the job is held: it would come
back.  An interactive job ends with the reason, whatever it is: it is run once, and a status other than 0 gives it no
words.

Of several nodes that failed in one start `gather` finds the one error that counts: at most one node is blamed.
"""

from __future__ import annotations

import enum
import re
import typing as t

from ...effects import leaves_nothing
from ...errors import (
    CANCELLED,
    CheckpointFault,
    GuestFault,
    ImageFault,
    ImpostorFault,
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
    error_from_dict,
)
from ...frozen import frozen
from ..batch.api import NOTE_PREFIX, BatchJob, BatchNode
from ..batch.host_match import find_node, same_host
from ..batch.offline_note import is_spare_note
from ..config.parameters import Policy
from ..request.value_types import count_of

LOOP_STARTS = 20
ARRAY_BRAKE = 2
"""Members of one array that a node may refuse within a minute, the owner's own faults aside; the next is held."""
NOTE_LENGTH = 200
"""What people read in a list of nodes; the batch system's adapter cuts there too."""
OUT_OF_USE = frozenset({"down", "offline", "unknown", "state-unknown"})


class LoopFault(VTorqueError):
    """The job is started again and again, and not by us: a user's prologue, a site's hook, a kill."""

    fault = "loop"


OF_THE_JOB = (UserFault.fault, ImageFault.fault)
OF_NO_NODE = (UserFault, ImpostorFault, CheckpointFault)
"""What another node would meet, too, or what somebody must look at."""
AT_ONCE = (ImpostorFault.fault, LoopFault.fault, CheckpointFault.fault)


class Action(enum.StrEnum):
    """What becomes of the job of a start that failed; the values are in records and logs."""

    REFUSE = "refuse"
    """It ends with the reason."""
    REQUEUE = "requeue"
    HOLD = "hold"


@frozen
class Verdict:
    """What is to be done about a start that failed.

    Attributes:
        fault: whose it is (`VTorqueError.fault`).
        action: what becomes of the job.
        offline: the node that goes offline, or "".
        note: with which note.
        lines: what more there is to say about the decision, a line each.
        tried: which try this start is, from 1; 0 where the start is not known.
        of: after how many tries the job is held; 0 where that is not known.
        grave: an administrator must see to it now.
    """

    fault: str
    action: Action
    offline: str = ""
    note: str = ""
    lines: tuple[str, ...] = ()
    tried: int = 0
    of: int = 0
    grave: bool = False


@leaves_nothing
def find_loop(job: BatchJob) -> LoopFault | None:
    """Find out whether this job was started so often that somebody should look, whoever starts it."""
    if job.start_count < 1 or job.start_count % LOOP_STARTS:
        return None
    return LoopFault(
        f"it was started {job.start_count} times",
        "something that is not vTorque ends its starts, or a hook of the site or of the job's owner does",
        f"it is held at every {LOOP_STARTS}th start: find what makes the batch system start it again",
    )


TOLD_NODES = 3
"""Of how many other nodes the words tell; the rest are counted."""
TOLD_LENGTH = 160


@leaves_nothing
def gather(errors: t.Mapping[str, VTorqueError], *, superior: str = "", made: t.Collection[str] = ()) -> VTorqueError:
    """Return, of what failed on several nodes in one start, the error that the verdict is about.

    What ends the job whatever its nodes are counts first, then what one node proved of itself: the mother superior's
    own proof before all others', for a sick one blames nobody else; then the first that was told.  A node proves
    nothing about another one.  Guests that fail alike on all nodes, and on two at least, are the image's evidence; an
    image that one node refuses and others have booted is not.

    Args:
        errors: by the node that was asked, in the order in which they answered; at least one.
        superior: the mother superior.
        made: nodes whose guests became ready.

    Returns:
        One of them, or what they prove together; its hint tells of the others.
    """
    judged = {node: _of_itself(node, error, made) for node, error in errors.items()}
    if (alike := _alike(judged, made)) is not None:
        return alike
    first = min(judged, key=lambda node: (_weight(judged[node]), bool(superior) and not same_host(node, superior)))
    others = [f"{node}: {_short(error, node)}" for node, error in judged.items() if node != first]
    if not others:
        return judged[first]
    more = f" and {len(others) - TOLD_NODES} more" if len(others) > TOLD_NODES else ""
    hint = "; ".join(filter(None, [judged[first].hint, f"also failed: {'; '.join(others[:TOLD_NODES])}{more}"]))
    return error_from_dict({**judged[first].to_dict(), "hint": hint, "host": getattr(judged[first], "node", "")})


def _of_itself(node: str, error: VTorqueError, made: t.Collection[str]) -> VTorqueError:
    """The error as far as this node can prove it."""
    parts = error.what, error.why, error.hint
    if isinstance(error, NodeFault):
        own = not error.node or same_host(error.node, node)
        return NodeFault(*parts, cause=error.cause if own else "", node=node)
    if isinstance(error, ImageFault) and made:
        return VTorqueError(error.what, error.why, f"{', '.join(sorted(made)[:TOLD_NODES])} booted it all the same")
    return error


def _weight(error: VTorqueError) -> int:
    if isinstance(error, NodeFault):
        return 3 if error.cause else 5
    for weight, kind in enumerate((ImpostorFault, UserFault, ImageFault)):
        if isinstance(error, kind):
            return weight
    if isinstance(error, SiteFault):
        return 4
    return 7 if error.what.endswith(CANCELLED) else 6


def _alike(errors: t.Mapping[str, VTorqueError], made: t.Collection[str]) -> ImageFault | None:
    """Return whether the same image ended alike on node after node in one start: no fault of a node or of the site."""
    own_errors = [error for error in errors.values() if not error.what.endswith(CANCELLED)]
    guests = [error for error in own_errors if isinstance(error, GuestFault)]
    if made or len(guests) < 2 or len(guests) < len(own_errors) or len({error.symptom for error in guests}) > 1:
        return None
    what = f"the image boots on no node: the guests of {len(guests)} nodes failed alike ({guests[0].symptom})"
    return ImageFault(what, f"{guests[0].what}: {guests[0].why}".removesuffix(": "), guests[0].hint)


def _short(error: VTorqueError, node: str) -> str:
    text = f"{error.what}: {error.why}".removesuffix(": ").removeprefix(f"{node}: ")
    return text if len(text) <= TOLD_LENGTH else f"{text[: TOLD_LENGTH - 3]}..."


@leaves_nothing
def names_node(error: VTorqueError) -> bool:
    """Return whether a node may go offline for it.  Then `decide` needs the batch system's nodes."""
    return isinstance(error, NodeFault) and bool(error.cause)


@leaves_nothing
def decide(
    error: VTorqueError,
    *,
    job: BatchJob | None,
    nodes: t.Sequence[BatchNode] | None,
    policy: Policy,
    node: str,
    refused: int = 0,
) -> Verdict:
    """Decide what is done about a failed start.

    Args:
        error: what failed.
        job: the batch server's word on the job at this start; None: it was silent.
        nodes: the batch server's nodes; None: it did not tell, or `names_node` says that they are not needed.
        policy: the site's bounds.
        node: where the hook runs.
        refused: members of this array that this node turned away within a minute before this one, whether they ended
            or were held (`job/verdict/array_brake.py`).

    Returns:
        What is to be done; nothing is done yet.
    """
    if refused >= ARRAY_BRAKE and may_be_braked(error, job):
        reason = f"{node} has turned {refused} members of this array away within a minute: it shall not eat the others"
        return Verdict(error.fault, Action.HOLD, lines=(reason,), grave=True)
    if job is None:
        return Verdict(error.fault, Action.REFUSE)
    of = policy.node_fault_retries
    tried = (job.start_count - 1) % of + 1
    if error.fault in OF_THE_JOB:
        return Verdict(error.fault, Action.REFUSE, tried=tried, of=of)
    blame = _blame(error, job, nodes, policy, node)
    if job.interactive:
        action = Action.REFUSE
    elif blame.stays or error.fault in AT_ONCE or tried == of:
        action = Action.HOLD
    else:
        action = Action.REQUEUE
    grave = blame.grave or error.fault == ImpostorFault.fault
    return Verdict(error.fault, action, blame.offline, blame.note, blame.lines, tried, of, grave)


def another_may_do(
    node: str, errors: t.Mapping[str, VTorqueError], *, superior: str = "", made: t.Collection[str] = ()
) -> bool:
    """Return whether another node may do what this one failed at, in the same start.

    What two nodes fail at alike is the image's (`gather`); the first that fails may have a bad copy of it.

    Args:
        node: that failed now.
        errors: of all nodes that have failed in this start.
        superior: the mother superior.
        made: nodes whose guests became ready.
    """
    if errors[node].what.endswith(CANCELLED) or any(isinstance(error, OF_NO_NODE) for error in errors.values()):
        return False
    of_image = sum(isinstance(error, ImageFault) for error in errors.values())
    alike = isinstance(gather(errors, superior=superior, made=made), ImageFault)
    return of_image < 2 and (bool(of_image) or not alike)


def judge_replaced(
    error: VTorqueError, *, job: BatchJob, nodes: t.Sequence[BatchNode] | None, policy: Policy, node: str
) -> Verdict:
    """Decide what is done about a node whose place a spare one of the job has taken; the job itself runs.

    Args:
        error: what failed there.
        job: the batch server's word on the job.
        nodes: as for `decide`.
        policy: the site's bounds.
        node: where the hook runs.
    """
    blame = _blame(error, job, nodes, policy, node)
    # the action is the job's, of which nothing is done here
    return Verdict(error.fault, Action.REFUSE, blame.offline, blame.note, blame.lines, grave=blame.grave)


@leaves_nothing
def may_be_braked(error: VTorqueError, job: BatchJob | None) -> bool:
    """Return whether the job is refused for it, and not for what its owner did.

    Then `decide` wants to know how often before.
    """
    if job is not None and (job.interactive or error.fault not in OF_THE_JOB):
        return False
    return error.fault != UserFault.fault


@leaves_nothing
def advice(error: VTorqueError, node: str) -> tuple[str, ...]:
    """What the owner of a job that ends may do about a fault that is not the job's: lines below the error's own."""
    if error.fault in OF_THE_JOB:
        return ()
    return (f"this is not a fault of the job: tell the administrator that it failed on {node}",)


@frozen
class _Blame:
    """What becomes of the node.

    Attributes:
        stays: it has a proved fault, and jobs can still come to it.
    """

    offline: str = ""
    note: str = ""
    stays: bool = False
    lines: tuple[str, ...] = ()
    grave: bool = False


def _blame(
    error: VTorqueError, job: BatchJob, nodes: t.Sequence[BatchNode] | None, policy: Policy, here: str
) -> _Blame:
    if not isinstance(error, NodeFault) or not error.cause:
        return _Blame()
    name = error.node or here
    if not any(same_host(name, one) for one in job.nodes):
        return _Blame()  # only a node of the job can have proved something in its start
    if nodes is None:
        return _Blame(stays=True, lines=(f"{name} is not set offline: the batch server does not tell of its nodes",))
    try:
        bad = find_node(nodes, name)
    except SiteFault as fault:
        return _Blame(stays=True, lines=(f"{name} is not set offline: {fault.why}",))
    ours = bad.note.startswith(NOTE_PREFIX)
    if bad.offline:
        whose = f"by vTorque ({bad.note})" if ours else "by an administrator"
        return _Blame(lines=(f"{bad.name} is offline already, {whose}",))
    if bad.note and not ours:
        reason = f"{bad.name} is not set offline: it carries a note of an administrator ({bad.note[:80]})"
        return _Blame(stays=True, lines=(reason,), grave=True)
    if braked := find_brake(bad, nodes, policy):
        return _Blame(stays=True, lines=(f"{bad.name} is not set offline: {braked}",), grave=True)
    return _Blame(bad.name, note_of(error, bad.name, job.job_id))


def find_brake(bad: BatchNode, nodes: t.Sequence[BatchNode], policy: Policy) -> str:
    """Return why a node may not go offline beside those that carry a note of ours already, or "".

    Args:
        bad: the node.
        nodes: all nodes of the site.
        policy: the site's bounds.
    """
    others = [one for one in nodes if one.name != bad.name]
    noted = sum(one.note.startswith(NOTE_PREFIX) and not is_spare_note(one.note) for one in others)
    brake = count_of(policy.offline_brake, len(nodes))
    if brake < 1:
        return f"this site sets no node offline (offline_brake {policy.offline_brake})"
    if noted >= brake:
        return f"{noted} of {len(nodes)} nodes carry a note of vTorque already (offline_brake {policy.offline_brake})"
    if not any(_takes_jobs(one, policy) for one in others):
        return "it is the last node that takes jobs"
    return ""


def _takes_jobs(node: BatchNode, policy: Policy) -> bool:
    wanted = policy.vm_node_property
    return not node.states & OUT_OF_USE and node.slots > 0 and (wanted is None or wanted in node.properties)


def note_of(error: NodeFault, node: str, job_id: str) -> str:
    """The note for a node: its cause, words, and the job that met it, in characters that no list of nodes misreads.

    Args:
        error: what the node proved.
        node: its name.
        job_id: the job.

    Returns:
        `vtorque: <cause>: <words> (job <id>)`, of at most `NOTE_LENGTH` characters.
    """
    what = f"{error.what}: {error.why}".removesuffix(": ").removeprefix(f"{node}: ")
    return plain_note(error.cause, what, f" (job {job_id})")


def plain_note(cause: str, text: str, end: str = "") -> str:
    """Return a note of ours: `vtorque: <cause>: <text><end>`, as `note_of` describes it.

    Args:
        cause: a word.
        text: of any characters.
        end: what is not cut off.
    """
    plain = " ".join(re.sub(r"[^A-Za-z0-9 ._:;,/()%+=@\[\]-]", " ", text).split())
    begin = f"{NOTE_PREFIX}{cause}: "
    return f"{begin}{plain[: NOTE_LENGTH - len(begin) - len(end)].rstrip()}{end}"
