# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the batch system's side of a node tells of its health: time of hooks, names, ways, the note.

What only one batch system has (its hooks, its rights) is in `job/batch/<system>` (`DoctorAdapter`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import typing as t

from ...errors import SiteFault, VTorqueError
from ...system.process.environment import TOOL_ENVIRONMENT
from ...system.process.process_limits import WORDS, WORDS_BYTES, leash
from ...time_budget import EPILOGUE_REMOVAL_S, HOOK_RESERVE_S
from ...wire.health_report import BAD, NONE, OK, WARN, Finding
from ...wire.ssh_options import root_arguments
from ..batch.api import NOTE_PREFIX, BatchNode, BatchSystem
from ..batch.hook_call import HookLimits
from ..batch.host_match import same_host
from ..batch.offline_note import is_spare_note
from ..batch.registry import open_doctor, open_hooks
from ..config.parameters import Policy
from ..verdict.decide import OUT_OF_USE

PEERS = 3
"""Other nodes that are tried; one that is reached is enough."""
SSH = "/usr/bin/ssh"


def checks(
    policy: Policy,
    batch: BatchSystem,
    node: str,
    *,
    ssh_timeout_s: float,
    ssh: str = SSH,
    owner_uid: int = 0,
    thorough: bool = False,
) -> dict[str, t.Callable[[], Finding]]:
    """Return the checks of this module, by their names.

    Args:
        policy: the site's.
        batch: its batch system; its calls end in time.
        node: this node.
        ssh_timeout_s: seconds for one connection to another node.
        ssh: the program.
        owner_uid: whose the hooks must be.
        thorough: also what asks more of the batch server than each node should every few minutes.
    """
    looks: dict[str, t.Callable[[], Finding]] = {
        "alarm": lambda: check_alarm(policy, open_hooks(policy.batch_system).hook_limits(policy)),
        **open_doctor(policy.batch_system).node_checks(policy, node, owner_uid=owner_uid, thorough=thorough),
        "ssh": lambda: check_ssh(batch, node, ssh_timeout_s, ssh),
        "note": lambda: check_note(batch, node),
    }
    if thorough:
        looks["names"] = lambda: check_names(batch, node, policy.record_host)
    return looks


def check_alarm(policy: Policy, limits: HookLimits) -> Finding:
    """Check that the batch system gives the hooks the time that the site wants for them."""
    left_s = limits.seconds - HOOK_RESERVE_S
    wants = (
        (BAD, left_s, "guests to start", "prologue_timeout", policy.prologue_timeout),
        (WARN, left_s - EPILOGUE_REMOVAL_S, "a user's vm_epilogue", "vm_epilogue_timeout", policy.vm_epilogue_timeout),
    )
    missed = next((want for want in wants if want[1] < want[-1]), None)
    if missed is None:
        return Finding("alarm", cell=limits.figure)
    state, left, for_what, name, wanted = missed
    needed_s = max(policy.prologue_timeout, policy.vm_epilogue_timeout + int(EPILOGUE_REMOVAL_S))
    problem = f"{limits.setting} leaves {max(0, left):.0f} s for {for_what}, {name} is {wanted}"
    return Finding("alarm", state, limits.figure, problem, limits.remedy(needed_s + int(HOOK_RESERVE_S)))


def check_note(batch: BatchSystem, node: str) -> Finding:
    """Look for a note on this node.  A batch server that is silent is not this node's trouble."""
    try:
        note = batch.note(node)
    except SiteFault as error:
        return Finding("note", WARN, "?", f"the batch server does not tell: {error}")
    return note_finding(note)


def note_finding(note: str) -> Finding:
    """What a node's note means.

    Args:
        note: as the batch server has it.
    """
    if is_spare_note(note):
        return Finding("note", cell="spare")
    if note.startswith(NOTE_PREFIX):
        return Finding("note", BAD, "ours", note, "mend it: vtorque-sweep takes the note back then")
    return Finding("note", WARN, "yes", note) if note else Finding("note", cell="-")


def check_ssh(batch: BatchSystem, node: str, timeout_s: float, ssh: str = SSH) -> Finding:
    """Check that this node can reach another one as root, without a question.

    The nodes stand in a ring, and each tries those behind it, so that a whole site tries each way once.
    """
    try:
        peers = next_nodes(batch.nodes(), node)
    except SiteFault as error:
        return Finding("ssh", WARN, "?", f"the batch server does not tell of its nodes: {error}")
    problems: list[str] = []
    for peer in peers:
        why = reach(peer, timeout_s, ssh)
        if not why:
            return Finding("ssh", WARN if problems else OK, OK, "; ".join(problems))
        problems.append(f"{peer} is not reached ({why})")
    if not peers:
        return Finding("ssh", NONE, "-")
    return Finding("ssh", BAD, BAD, "; ".join(problems), "root's key and the host keys of the nodes must be known here")


def check_names(batch: BatchSystem, node: str, record_host: str | None) -> Finding:
    """Check that this node knows where the other nodes are, and where records go.

    Args:
        batch: tells who they are.
        node: this node.
        record_host: where records go, if anywhere.
    """
    try:
        others_names = [one.name for one in batch.nodes() if not same_host(one.name, node)]
    except SiteFault as error:
        return Finding("names", WARN, "?", f"the batch server does not tell of its nodes: {error}")
    names = [*others_names, *([record_host] if record_host else [])]
    wrong = [f"{name} {why}" for name in names if (why := _wrong_with_name(name))]
    if wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        problem = f"{', '.join(wrong[:5])}{more}"
        return Finding("names", BAD, BAD, problem, "see /etc/hosts, or the name server, of this node")
    return Finding("names", cell=str(len(names)))


def _wrong_with_name(name: str) -> str:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return f"is not known ({error.strerror or error})"
    addresses = {str(one[4][0]) for one in found}
    if all(address.startswith("127.") or address == "::1" for address in addresses):
        return "is this host itself (its loopback)"
    return ""


def next_nodes(nodes: t.Sequence[BatchNode], node: str) -> tuple[str, ...]:
    """The nodes that this one tries: those behind it in the ring that are in use, `PEERS` at most."""
    ring = sorted(one.name for one in nodes if not same_host(one.name, node) and not one.states & OUT_OF_USE)
    behind = [name for name in ring if name > node]
    return tuple([*behind, *(name for name in ring if name <= node)][:PEERS])


def reach(node: str, timeout_s: float, ssh: str = SSH) -> str:
    """Why a node is not reached by ssh; "" when it is.

    Where root's key is bound to one command, that command runs instead, and is asked nothing.
    """
    with os.fdopen(os.memfd_create("vtorque-doctor", os.MFD_CLOEXEC), "w+b") as complaint:
        try:
            process = subprocess.Popen(
                [*ssh_call(node, timeout_s, ssh), "true"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaint,
                env=TOOL_ENVIRONMENT,
            )
        except OSError as error:
            return f"{ssh}: {error.strerror}"
        with process:
            leash(process.pid, WORDS)  # the other node might be in anybody's hands
            try:
                status = process.wait(timeout_s + 1)
            except subprocess.TimeoutExpired:
                process.kill()
                return f"no answer in {timeout_s:.0f} s"
        if os.fstat(complaint.fileno()).st_size >= WORDS_BYTES:
            return "its standard error has no end"
        complaint.seek(0)
        return "" if status == 0 else last_line(complaint.read(), status)


def ssh_call(node: str, timeout_s: float, ssh: str = SSH) -> list[str]:
    """ssh to root on a node, as the hooks' Ansible does it, up to the command.

    Args:
        node: its name.
        timeout_s: seconds for the connection.
        ssh: the program.

    Raises:
        VTorqueError: this is no name.
    """
    if node.startswith("-") or not node.replace("-", "").replace(".", "").replace("_", "").isalnum():
        raise VTorqueError(f"node {node[:80]!r}", "is not of the form of a host name")
    return [ssh, *root_arguments(node, timeout_s)]


def last_line(complaint: bytes, status: int) -> str:
    """What a program said last on standard error, in one line of bounded length."""
    lines = complaint.decode("utf-8", "replace").strip().splitlines()
    return " ".join(lines[-1].split())[:200] if lines else f"status {status}"
