# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the batch system's side of a node tells of its health: alarm, hooks, ways to other nodes, the note."""

from __future__ import annotations

import pathlib
import stat
import subprocess
import typing as t

from ..errors import SiteFault, VTorqueError
from ..findings import BAD, NONE, OK, WARN, Finding
from ..key_exchange import KEX_ALGORITHMS
from .batch import NOTE_PREFIX, BatchNode, BatchSystem, same_host
from .batch.mom_hooks import HOOKS, OURS, others
from .hook_call import ALARM_MARGIN_S, RESERVE_S, read_alarm_s
from .parameters import Policy
from .verdict import OUT_OF_USE

PEERS = 3
"""Other nodes that are tried; one that is reached is enough."""
SSH = "/usr/bin/ssh"


def checks(
    policy: Policy, batch: BatchSystem, node: str, *, ssh_timeout_s: float, ssh: str = SSH, owner_uid: int = 0
) -> dict[str, t.Callable[[], Finding]]:
    """The checks of this room, by their names.

    Args:
        policy: the site's.
        batch: its batch system; its calls end in time.
        node: this node.
        ssh_timeout_s: seconds for one connection to another node.
        ssh: the program.
        owner_uid: whose the hooks must be.
    """
    torque_home = pathlib.Path(policy.torque_home)
    return {
        "alarm": lambda: look_at_alarm(policy, torque_home),
        "hooks": lambda: look_at_hooks(torque_home / "mom_priv", owner_uid),
        "ssh": lambda: look_at_ways(batch, node, ssh_timeout_s, ssh),
        "note": lambda: look_at_note(batch, node),
    }


def look_at_alarm(policy: Policy, torque_home: pathlib.Path) -> Finding:
    """Does Torque give the prologue the time that the site wants for it?"""
    alarm_s = read_alarm_s(torque_home)
    left_s = alarm_s - ALARM_MARGIN_S - RESERVE_S
    if left_s >= policy.prologue_timeout:
        return Finding("alarm", shown=f"{alarm_s}s")
    least = policy.prologue_timeout + ALARM_MARGIN_S + int(RESERVE_S)
    words = (
        f"$prologalarm {alarm_s} leaves {max(0, left_s):.0f} s for guests to start, prologue_timeout is "
        f"{policy.prologue_timeout}: write $prologalarm {least} into mom_priv/config, then momctl -r"
    )
    return Finding("alarm", BAD, f"{alarm_s}s", words)


def look_at_hooks(mom_priv: pathlib.Path, owner_uid: int = 0) -> Finding:
    """Are our hooks in place, root's alone, and may the MOM run them?"""
    wrong = [f"{name} {why}" for name in HOOKS if (why := _wrong_with(mom_priv / name, owner_uid))]
    if wrong:
        return Finding("hooks", BAD, BAD, f"in {mom_priv}: {', '.join(wrong)}: play mikelangelo.vtorque.install")
    stray = others(mom_priv)
    if stray:
        words = f"{', '.join(stray[:5])} in {mom_priv}: any user can have it run by root (qsub -T): keep it elsewhere"
        return Finding("hooks", WARN, OK, words)
    return Finding("hooks")


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
    if note.startswith(NOTE_PREFIX):
        return Finding("note", BAD, "ours", f"{note}: vtorque-sweep takes it back when that is mended")
    return Finding("note", WARN, "yes", note) if note else Finding("note", shown="-")


def look_at_ways(batch: BatchSystem, node: str, timeout_s: float, ssh: str = SSH) -> Finding:
    """Can this node reach another one as root, without a question?

    The nodes stand in a ring, and each tries those behind it, so that a whole site tries each way once.
    """
    try:
        peers = next_nodes(batch.nodes(), node)
    except SiteFault as error:
        return Finding("ssh", WARN, "?", f"the batch server does not tell of its nodes: {error}")
    said: list[str] = []
    for peer in peers:
        why = reach(peer, timeout_s, ssh)
        if not why:
            return Finding("ssh", WARN if said else OK, OK, "; ".join(said))
        said.append(f"{peer} is not reached ({why})")
    if not peers:
        return Finding("ssh", NONE, "-")
    words = f"{'; '.join(said)}: root's key and the host keys of the nodes must be known here"
    return Finding("ssh", BAD, BAD, words)


def next_nodes(nodes: t.Sequence[BatchNode], node: str) -> tuple[str, ...]:
    """The nodes that this one tries: those behind it in the ring that are in use, `PEERS` at most."""
    ring = sorted(one.name for one in nodes if not same_host(one.name, node) and not one.states & OUT_OF_USE)
    behind = [name for name in ring if name > node]
    return tuple([*behind, *(name for name in ring if name <= node)][:PEERS])


def reach(node: str, timeout_s: float, ssh: str = SSH) -> str:
    """Why a node is not reached by ssh; "" when it is.

    Where root's key is bound to one command, that command runs instead, and is asked nothing.
    """
    try:
        done = subprocess.run(
            [*ssh_call(node, timeout_s, ssh), "true"], timeout=timeout_s + 1, stdin=subprocess.DEVNULL,
            capture_output=True, check=False, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer in {timeout_s:.0f} s"
    except OSError as error:
        return f"{ssh}: {error.strerror}"
    return "" if done.returncode == 0 else last_words(done.stderr, done.returncode)


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
    options = ("BatchMode=yes", "StrictHostKeyChecking=yes", "ForwardAgent=no", "ForwardX11=no", "ControlMaster=no",
               "ControlPath=none", f"ConnectTimeout={max(1, int(timeout_s))}", "LogLevel=ERROR",
               f"KexAlgorithms={KEX_ALGORITHMS}")  # fmt: skip
    return [ssh, "-F", "none", "-T", *(word for option in options for word in ("-o", option)), "-l", "root", "--", node]


def last_words(complaint: bytes, status: int) -> str:
    """What a program said last on standard error, in one line of bounded length."""
    lines = complaint.decode("utf-8", "replace").strip().splitlines()
    return " ".join(lines[-1].split())[:200] if lines else f"status {status}"
