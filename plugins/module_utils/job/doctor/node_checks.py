# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the batch system's side of a node tells of its health: alarm, hooks, rights, names, ways, the note."""

from __future__ import annotations

import os
import pathlib
import socket
import stat
import subprocess
import typing as t

from ...errors import SiteFault, VTorqueError
from ...rendering import templates
from ...system.environment import TOOL_ENVIRONMENT
from ...system.process_limits import WORDS, WORDS_BYTES, leash
from ...system.ssh_options import root_arguments
from ...time_budget import ALARM_MARGIN_S, EPILOGUE_REMOVAL_S, HOOK_RESERVE_S, least_alarm_s
from ...wire.health_report import BAD, NONE, OK, WARN, Finding
from ..batch.api import NOTE_PREFIX, BatchNode, BatchSystem
from ..batch.host_match import same_host
from ..batch.torque import permissions
from ..batch.torque.mom_hooks import HOOKS, OURS, others
from ..config.parameters import Policy
from ..hooks.invocation import read_alarm_s
from ..verdict.decide import OUT_OF_USE

PEERS = 3
"""Other nodes that are tried; one that is reached is enough."""
SSH = "/usr/bin/ssh"
SITE_HOOKS = "/etc/vtorque/site-hooks"
INSTALL = "play mikelangelo.vtorque.install"
RIGHTS_S = 4.0
"""Seconds for each command that tries a right."""


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
    """The checks of this room, by their names.

    Args:
        policy: the site's.
        batch: its batch system; its calls end in time.
        node: this node.
        ssh_timeout_s: seconds for one connection to another node.
        ssh: the program.
        owner_uid: whose the hooks must be.
        thorough: also what asks more of the batch server than each node should every few minutes.
    """
    torque_home = pathlib.Path(policy.torque_home)
    looks: dict[str, t.Callable[[], Finding]] = {
        "alarm": lambda: look_at_alarm(policy, torque_home),
        "hooks": lambda: look_at_hooks(torque_home / "mom_priv", owner_uid, expected_hook(policy.prefix_nodes)),
        "ssh": lambda: look_at_ways(batch, node, ssh_timeout_s, ssh),
        "note": lambda: look_at_note(batch, node),
    }
    if thorough:
        looks["rights"] = lambda: look_at_rights(pathlib.Path(policy.pbs_qsub_on_nodes).parent, node)
        looks["names"] = lambda: look_at_names(batch, node, policy.record_host)
    return looks


def look_at_alarm(policy: Policy, torque_home: pathlib.Path) -> Finding:
    """Does Torque give the hooks the time that the site wants for them?"""
    alarm_s = read_alarm_s(torque_home)
    left_s = alarm_s - ALARM_MARGIN_S - HOOK_RESERVE_S
    wants = (
        (BAD, left_s, "guests to start", "prologue_timeout", policy.prologue_timeout),
        (WARN, left_s - EPILOGUE_REMOVAL_S, "a user's vm_epilogue", "vm_epilogue_timeout", policy.vm_epilogue_timeout),
    )
    missed = next((want for want in wants if want[1] < want[-1]), None)
    if missed is None:
        return Finding("alarm", shown=f"{alarm_s}s")
    state, left, for_what, name, wanted = missed
    least = least_alarm_s(policy.prologue_timeout, policy.vm_epilogue_timeout)
    problem = f"$prologalarm {alarm_s} leaves {max(0, left):.0f} s for {for_what}, {name} is {wanted}"
    # pbs_mom(8): SIGHUP has it read its file again; `momctl -r` wants a file, which it sends to a MOM in its place
    mom_priv = torque_home / "mom_priv"
    remedy = f"write $prologalarm {least} into {mom_priv}/config, then kill -HUP $(cat {mom_priv}/mom.lock)"
    return Finding("alarm", state, f"{alarm_s}s", problem, remedy)


def expected_hook(prefix: str) -> str:
    """The hook of the version that is installed here.

    Args:
        prefix: where it is installed.
    """
    return templates.render("launchers/hook.sh.j2", site_dir=None, prefix=prefix, site_hooks=SITE_HOOKS)


def look_at_hooks(mom_priv: pathlib.Path, owner_uid: int = 0, expected: str = "") -> Finding:
    """Are our hooks in place, root's alone, of this version, and may the MOM run them?

    Args:
        mom_priv: where.
        owner_uid: whose they must be.
        expected: how they must read, blanks apart; "": not compared.
    """
    wrong = [f"{name} {why}" for name in HOOKS if (why := _wrong_with(mom_priv / name, owner_uid))]
    if wrong:
        return Finding("hooks", BAD, BAD, f"in {mom_priv}: {', '.join(wrong)}", INSTALL)
    stray = others(mom_priv)
    if stray:
        problem = f"{', '.join(stray[:5])} in {mom_priv}: any user can have it run by root (qsub -T)"
        return Finding("hooks", WARN, OK, problem, "keep it elsewhere")
    foreign = [name for name in HOOKS if expected and _words(mom_priv / name) != expected.split()]
    if foreign:
        problem = f"{', '.join(foreign)} in {mom_priv}: not as the version that is installed here has it"
        return Finding("hooks", WARN, "other", problem, INSTALL)
    return Finding("hooks")


def _words(path: pathlib.Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split()


def _wrong_with(path: pathlib.Path, owner_uid: int) -> str:
    try:
        facts = path.stat()
        ours = stat.S_ISREG(facts.st_mode) and OURS in path.read_bytes()[:65_536]
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISREG(facts.st_mode):
        return "is no file"
    if facts.st_uid != owner_uid or facts.st_mode & 0o022:
        return f"could be changed by others (owner {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o})"
    if facts.st_mode & 0o500 != 0o500:
        return f"cannot be run (mode {stat.S_IMODE(facts.st_mode):04o})"
    return "" if ours else "is not vTorque's"


def look_at_note(batch: BatchSystem, node: str) -> Finding:
    """Is there a note on this node?  A batch server that is silent is not this node's trouble."""
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
    if note.startswith(NOTE_PREFIX):
        return Finding("note", BAD, "ours", note, "mend it: vtorque-sweep takes the note back then")
    return Finding("note", WARN, "yes", note) if note else Finding("note", shown="-")


def look_at_ways(batch: BatchSystem, node: str, timeout_s: float, ssh: str = SSH) -> Finding:
    """Can this node reach another one as root, without a question?

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


def look_at_rights(tools: pathlib.Path, node: str) -> Finding:
    """May root of this node do with the batch server what hooks and the sweep do?  Nothing is changed by the trial.

    Args:
        tools: the directory of the batch system's commands.
        node: this node.
    """
    wrong, silent = [], []
    for name, attempt in permissions.ATTEMPTS:
        try:
            attempt(permissions.Tools(tools, RIGHTS_S), node)
        except permissions.Silent as error:  # nothing of this node's
            silent.append(f"{name}: {error}")
        except permissions.Failed as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        remedy = f"on the front end: qmgr -c 's s operators += root@{node}'"
        return Finding("rights", BAD, BAD, "; ".join(wrong), remedy)
    if silent:
        return Finding("rights", WARN, "?", f"the batch server does not tell: {silent[0]}")
    return Finding("rights", shown="operator")


def look_at_names(batch: BatchSystem, node: str, record_host: str | None) -> Finding:
    """Does this node know where the other nodes are, and where records go?

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
    return Finding("names", shown=str(len(names)))


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
                [*ssh_call(node, timeout_s, ssh), "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=complaint, env=TOOL_ENVIRONMENT,
            )  # fmt: skip
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
        return "" if status == 0 else last_words(complaint.read(), status)


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


def last_words(complaint: bytes, status: int) -> str:
    """What a program said last on standard error, in one line of bounded length."""
    lines = complaint.decode("utf-8", "replace").strip().splitlines()
    return " ".join(lines[-1].split())[:200] if lines else f"status {status}"
