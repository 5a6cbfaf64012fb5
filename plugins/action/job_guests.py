# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask each node, once, for its part of the job: its guests there, or gone."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import multiprocessing
import os
import pathlib
import shlex
import signal
import sys
import time
import types
import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ..module_utils import guestspec, records
from ..module_utils.errors import VTorqueError
from ..plugin_utils import early_node
from ..plugin_utils.action_module import JobAction, JobPlace, Outcome, keep, phase
from ..plugin_utils.job_files import guests_file, keep_use, read_guests, read_plan
from ..plugin_utils.node_answer import read_answer

PR_SET_PDEATHSIG, PR_GET_PDEATHSIG = 1, 2
"""linux/prctl.h"""
MARGIN_S = 2.0
"""What the node answers must still cross the connection and be recorded."""


class ActionModule(JobAction):
    """`job_guests`: one call of `vtorque-node` over the connection of the host."""

    SPEC: t.ClassVar[dict[str, t.Any]] = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "timeout": {"type": "float"},
        "prefix": {"type": "path"},
    }
    _requires_connection = True

    def act(self, place: JobPlace, args: dict[str, t.Any], host: str) -> Outcome:
        """Ask the node, or in check mode say what it would be asked."""
        wanted = args["state"]
        timeout_s = time_left_s(args["timeout"], os.environ)
        before = [shown(guest) for guest in read_guests(place, host)]
        if self.checking and wanted == "present" and read_plan(place) is None:
            return Outcome(True, before, "the guests of a plan that job_plan would make")
        part = part_of(place, host, wanted, timeout_s)
        if self.checking:
            after = before or [{"rank": guest.rank} for guest in part.guests] if wanted == "present" else []
            return Outcome(changed=before != after, before=before, after=after)
        with phase(place, f"{wanted}.{host}"):
            begun = asked_already(place, part) if wanted == "present" and args["prefix"] is None else None
            answer = read_answer(part, *self._ask(args["prefix"], part, timeout_s, begun))
        if wanted == "absent":
            guests_file(place, host).unlink(missing_ok=True)
            keep_use(place, host, answer.used)
            return Outcome(bool(answer.removed), before, [], {"removed": len(answer.removed)})
        after = [shown(guest) for guest in answer.guests]
        keep(guests_file(place, host), {"guests": [guestspec.to_dict(guest) for guest in answer.guests]})
        return Outcome(before != after, before, after, {"guests": after})

    def _ask(
        self, prefix: str | None, part: guestspec.NodePart, timeout_s: float, begun: early_node.EarlyNode | None
    ) -> tuple[int, bytes, bytes]:
        """Run the node's program with the request on its standard input: one round trip, nothing uploaded.

        Where the hook has asked this node already, its answer is waited for; asked again, a node answers the same.
        """
        request = json.dumps(guestspec.to_dict(part), ensure_ascii=True).encode("ascii")
        program = program_of(prefix)
        try:
            with dying_with_ansible(), alarm(timeout_s + MARGIN_S, f"vtorque-node on {part.node}"):
                if begun is not None and (answer := begun.answer()) is not None:
                    return answer
                return self._connection.exec_command(shlex.quote(str(program)), in_data=request, sudoable=False)
        except AnsibleConnectionFailure as error:
            raise VTorqueError(f"{part.node} was not reached", str(error.message)[:500]) from error
        except AnsibleError as error:
            raise VTorqueError(f"vtorque-node on {part.node} was not run", str(error.message)[:500]) from error


def asked_already(place: JobPlace, part: guestspec.NodePart) -> early_node.EarlyNode | None:
    """The way to this node's program, when the hook has asked it for exactly this part.

    Args:
        place: the start of the job.
        part: what is to be asked.

    Returns:
        None: the hook has not, or what it asked is not what the plan says now.

    Raises:
        VTorqueError: what says what was asked is not root's.
    """
    node = early_node.find(os.environ)
    if node is None:
        return None
    try:
        asked = records.read_json(place.file(early_node.ASKED))
    except FileNotFoundError:
        return None
    return node if asked.get("digest") == early_node.digest(part) else None


def program_of(prefix: str | None) -> pathlib.Path:
    """`vtorque-node` on the nodes: they have one prefix, which is where this Ansible is installed on one of them."""
    here = pathlib.Path(sys.prefix).parent / "bin" / "vtorque-node"
    if prefix is None and here.exists():
        return here
    return pathlib.Path(prefix or "/opt/vtorque") / "bin" / "vtorque-node"


def time_left_s(given: float | None, environment: t.Mapping[str, str]) -> float:
    """Seconds that the node may take: as given, or what is left until `VTORQUE_DEADLINE`, less a margin.

    The wire carries seconds, not a moment: the clocks of two nodes may differ.

    Args:
        given: seconds, as the task says; None: it does not.
        environment: holds `VTORQUE_DEADLINE`, seconds since the epoch.

    Returns:
        Seconds.

    Raises:
        VTorqueError: no time is said or left.
    """
    if given is not None:
        left = given
    else:
        text = environment.get("VTORQUE_DEADLINE", "")
        try:
            left = float(text) - time.time() - MARGIN_S
        except ValueError:
            raise VTorqueError(
                f"VTORQUE_DEADLINE={text[:40]!r}", "not seconds since the epoch, and no timeout is given"
            ) from None
    if not 0 < left <= 86_400:
        raise VTorqueError(f"{left:.1f} seconds are left for the guests", "the deadline has passed or is absurd")
    return round(left, 3)


def part_of(place: JobPlace, host: str, wanted: str, timeout_s: float) -> guestspec.NodePart:
    """What this host is asked; for `absent` a part without guests, also when no plan was ever made or none can be read.

    Args:
        place: the start of the job.
        host: the node.
        wanted: `present` or `absent`.
        timeout_s: seconds until the node must have answered.

    Returns:
        The request.

    Raises:
        VTorqueError: there is no plan, or the host has no part in it.
    """
    if wanted == "absent":
        return guestspec.NodePart.removal(place.job_id, place.start, host, timeout_s)
    plan = read_plan(place)
    if plan is None:
        raise VTorqueError(f"{place.file('plan.json')}", "there is no plan", "run job_plan first")
    if host not in plan.parts:
        raise VTorqueError(f"node {host}", f"has no part in job {place.job_id}")
    return dataclasses.replace(plan.parts[host], do="present", timeout_s=timeout_s)


def shown(guest: guestspec.GuestFacts) -> dict[str, t.Any]:
    """A guest as results and diffs show it."""
    return {"rank": guest.rank, "name": guest.name, "mac": guest.mac, "address": guest.address}


@contextlib.contextmanager
def dying_with_ansible() -> t.Iterator[None]:
    """Meanwhile this process is killed when ansible-playbook ends, however it ends.

    Ansible serves each host in a process of its own, which outlives an ansible-playbook that was killed.  When it goes
    too, the node hears that nobody waits for its answer any more: at once over a local connection; over ssh when the
    ssh it leaves behind is ended by the hook.

    Raises:
        VTorqueError: ansible-playbook has ended already.
    """
    libc = ctypes.CDLL(None)
    before = ctypes.c_int()
    libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    try:
        ansible = multiprocessing.parent_process()
        # None: no process of its own, as in a test
        if ansible is not None and os.getppid() != ansible.pid:
            raise VTorqueError("nobody was asked for guests", "ansible-playbook has ended meanwhile")
        yield
    finally:
        libc.prctl(PR_SET_PDEATHSIG, before.value, 0, 0, 0)


@contextlib.contextmanager
def alarm(seconds: float, what: str) -> t.Iterator[None]:
    """End a wait that the other side should have ended itself.

    Ansible's connections wait without end for a peer that stays silent and connected.

    Raises:
        VTorqueError: the time is up.
    """

    def ring(_signal: int, _frame: types.FrameType | None) -> t.NoReturn:
        raise VTorqueError(what, f"gave no answer within {seconds:.0f} s")

    former = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
