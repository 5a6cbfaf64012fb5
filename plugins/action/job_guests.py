# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask all nodes of a job for their parts of it: its guests there, and joined to one job, or gone."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import pathlib
import signal
import time
import typing as t

from ..module_utils.errors import VTorqueError
from ..module_utils.job.config import policy_file
from ..module_utils.job.config.parameters import DEFAULT_PREFIX
from ..module_utils.job.plan.job_plan import JobPlan
from ..module_utils.job.verdict.decide import gather
from ..module_utils.state import layout
from ..module_utils.state.phases import write_phase
from ..module_utils.system import clock, files
from ..module_utils.system.clock import Deadline
from ..module_utils.system.process import prctl
from ..module_utils.time_budget import CONNECTION_S, JOIN_S, NODE_ANSWER_MARGIN_S, OTHER_NODES_S
from ..module_utils.wire import form, messages, node_answers
from ..module_utils.wire.node_command import PROGRAM, program_path, ssh_command
from ..plugin_utils.faststart import ansible_internals, early_login, node_socket
from ..plugin_utils.job_actions.action_base import JobAction, JobPlace, Outcome, phase, write_record
from ..plugin_utils.job_actions.job_map import build_job_map, hosts_of
from ..plugin_utils.job_actions.node_answer import Answer, names_brought, read_answer, require_distinct
from ..plugin_utils.job_actions.node_connection import NodeCall, Reply, local_command, read_replies
from ..plugin_utils.job_actions.replacement import Replacement, send_part
from ..plugin_utils.job_actions.start_files import (
    bare_file,
    guests_file,
    read_bare,
    read_guests,
    read_plan,
    save_answer,
)

MANY = 512
"""Nodes at a time, where Ansible does not say it (`templates/ansible.cfg.j2` does)."""


class ActionModule(JobAction):
    """`job_guests`: a conversation with `vtorque-node` on every host of the play; runs once for all of them."""

    BYPASS_HOST_LOOP = True
    SPEC: t.ClassVar[dict[str, t.Any]] = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "timeout": {"type": "float"},
        "prefix": {"type": "path"},
        "config": {"type": "path", "default": str(policy_file.PATH)},
    }

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Keep what is known of the hosts, then as every action of ours."""
        self._known = task_vars or {}
        return super().run(tmp, task_vars)

    def act(self, place: JobPlace, args: dict[str, t.Any], host: str) -> Outcome:
        """Ask the nodes, or in check mode say what they would be asked."""
        hosts = [str(name) for name in self._known.get("ansible_play_hosts", [host])]
        self._superior = host
        self._config = pathlib.Path(args["config"])
        wanted = args["state"]
        timeout_s = remaining_s(args["timeout"], os.environ)
        before = {name: [guest_facts(guest) for guest in read_guests(place, name)] for name in hosts}
        plan = load_plan(place, wanted)
        self._brought = names_brought(plan)
        if plan is None and wanted == "present":
            if self.checking:
                return Outcome(True, before, "the guests of a plan that job_plan would make")
            raise VTorqueError(f"{place.file(layout.PLAN)}", "there is no plan", "run job_plan first")
        idle = {one.node for one in plan.idle} if plan and wanted == "present" else ()
        parts = {name: part_of(place, plan, name, wanted, timeout_s) for name in hosts if name not in idle}
        if self.checking:
            planned = {name: [{"rank": guest.rank} for guest in part.guests] for name, part in parts.items()}
            after = {name: before[name] or planned.get(name, []) for name in hosts} if wanted == "present" else {}
            return Outcome(any(before.values()) != any(after.values()), before, after)
        with dying_with_ansible():
            if wanted == "absent" or plan is None:
                return self._request_removal(place, parts, before, args["prefix"])
            return self._request_guests(place, plan, parts, before, args["prefix"])

    def _request_guests(
        self,
        place: JobPlace,
        plan: JobPlan,
        parts: dict[str, messages.NodePart],
        before: dict[str, t.Any],
        prefix: str | None,
    ) -> Outcome:
        with contextlib.ExitStack() as stack:
            calls: dict[str, NodeCall] = {}

            def call_of(part: messages.NodePart) -> NodeCall:
                parts[part.node] = part
                calls[part.node] = stack.enter_context(self._call(place, part, prefix))
                return calls[part.node]

            replacement = Replacement(place, plan, call_of)
            for some in in_turn(list(parts), ansible_setting("DEFAULT_FORKS", MANY)):
                made = tuple(calls)
                new = [call_of(parts[name]) for name in some]
                answers = self._request(place, "present", new, parts, made, replacement)
                for name, answer in answers.items():
                    guests = [form.to_dict(guest) for guest in answer.guests]
                    write_record(guests_file(place, name), {"guests": guests})
                    if answer.bare is not None:
                        write_record(bare_file(place, name), form.to_dict(answer.bare))
                for name in calls.keys() & {one.node for one in replacement.plan.idle}:
                    calls.pop(name).hang_up()
            self._join(place, replacement.plan, list(calls.values()))
        after = {name: [guest_facts(guest) for guest in read_guests(place, name)] for name in calls}
        return Outcome(before != after, before, after, {"guests": after})

    def _request_removal(
        self, place: JobPlace, parts: dict[str, messages.NodePart], before: dict[str, t.Any], prefix: str | None
    ) -> Outcome:
        with contextlib.ExitStack() as stack:
            calls = [stack.enter_context(self._call(place, part, prefix)) for part in parts.values()]
            answers = self._request(place, "absent", calls, parts)
            for call in calls:
                call.hang_up()
        removed = sum(len(answer.removed) for answer in answers.values())
        return Outcome(bool(removed), before, {}, {"removed": removed})

    def _call(self, place: JobPlace, part: messages.NodePart, prefix: str | None) -> NodeCall:
        """The conversation with a node; where the hook has begun one with this machine's, it goes on."""
        variables = self._known.get("hostvars", {}).get(part.node, {})
        program = node_program(prefix)
        if variables.get("ansible_connection", "ssh") != "local":
            host = str(variables.get("ansible_host", part.node))
            command = ssh_command(program, host, ansible_setting("DEFAULT_TIMEOUT", CONNECTION_S))
            return NodeCall(part.node, command, far=True)
        begun = find_early_request(place, part) if prefix is None else None
        return NodeCall(part.node, local_command(program), begun)

    def _request(
        self,
        place: JobPlace,
        what: str,
        calls: list[NodeCall],
        parts: dict[str, messages.NodePart],
        made: t.Sequence[str] = (),
        replacement: Replacement | None = None,
    ) -> dict[str, Answer]:
        """One line to each, and its answer.

        Args:
            made: nodes that were asked before, and have their guests: they speak for the image.
            replacement: finds a node in the place of one that fails; None: nothing does.

        Raises:
            VTorqueError: what a node said that failed, or of its silence; the others' are left beside it.
        """
        answers: dict[str, Answer] = {}
        tick = time.monotonic()

        def read(node: str, reply: Reply) -> None:
            answers[node] = read_answer(parts[node], reply.status, reply.output, reply.complaint, self._brought)
            began = asked.get(node, tick)
            seconds = time.monotonic() - began
            write_phase(place.run_dir, f"{what}.{node}", began=clock.since_epoch(began), seconds=seconds)
            if what == "absent":
                guests_file(place, node).unlink(missing_ok=True)
                bare_file(place, node).unlink(missing_ok=True)
                save_answer(place, layout.StepFile.USED, node, answers[node].used)
                save_answer(place, layout.StepFile.CONSOLES, node, answers[node].consoles)
                save_answer(place, layout.StepFile.SERIES, node, answers[node].series)
                save_answer(place, layout.StepFile.MOVES, node, answers[node].moves)

        def booted() -> list[str]:
            # a host that stays bare has booted no image
            return [node for node in (*made, *answers) if parts[node].guests] if what == "present" else []

        def replace(node: str, error: VTorqueError) -> NodeCall | None:
            left_s = deadline.left_s() - NODE_ANSWER_MARGIN_S
            return replacement.call_instead(node, error, made=booted(), timeout_s=left_s) if replacement else None

        for call in calls:
            send_part(call, parts[call.node])
        asked = {call.node: call.asked_s for call in calls}
        deadline = Deadline.after(max(part.timeout_s for part in parts.values()) + NODE_ANSWER_MARGIN_S)
        patience_s = OTHER_NODES_S if what == "present" else float("inf")
        errors = read_replies(calls, read, deadline, patience_s=patience_s, replace=replace)
        if errors and replacement is not None:
            errors = {**replacement.errors, **errors}
        raise_for(place, errors, superior=self._superior, made=booted())
        return answers

    def _join(self, place: JobPlace, plan: JobPlan, calls: list[NodeCall]) -> None:
        """Tell the guests of all nodes, and the bare hosts, of each other."""
        with phase(place, "join"):
            guests = {node: read_guests(place, node) for node in plan.parts}
            bare = read_bare(place, plan)
            everyone = (one for some in guests.values() for one in some)
            require_distinct(everyone, f"the nodes of job {place.job_id}", bare)
            timeout_s = remaining_s(None, os.environ) if "VTORQUE_DEADLINE" in os.environ else JOIN_S
            hosts = hosts_of(plan, guests, bare)
            for call in calls:
                job_map = build_job_map(plan, hosts, call.node, timeout_s)
                call.send_line(json.dumps(form.to_dict(job_map), ensure_ascii=True).encode("ascii"))

            # a broken configuration is the shell's to meet, which tells it
            policy, broken = policy_file.load_usable(lambda: policy_file.load(self._config))
            late = early_login.site_speaks_first(policy)
            if broken is None and not late:
                early_login.begin(place, plan, bare, policy)

            def read(node: str, reply: Reply) -> None:
                part = messages.NodePart.removal(place.job_id, place.start, node, 0.0)
                answer = read_answer(part, reply.status, reply.output, reply.complaint, self._brought)
                save_answer(place, layout.StepFile.UPDATES, node, answer.updates)

            raise_for(place, read_replies(calls, read, Deadline.after(timeout_s + NODE_ANSWER_MARGIN_S)))
            if broken is None and late:
                early_login.begin(place, plan, bare, policy)
            for call in calls:  # all of them end now, and not one after the other
                call.hang_up()


def ansible_setting(name: str, otherwise: int) -> int:
    """Return a number of Ansible's own configuration; where this Ansible has no such setting, another."""
    try:
        return int(ansible_internals.setting(name))
    except ansible_internals.AnsibleChanged:
        return otherwise


def in_turn(names: list[str], at_once: int) -> t.Iterator[list[str]]:
    """So many at a time (Ansible's `forks`)."""
    for first in range(0, len(names), max(1, at_once)):
        yield names[first : first + max(1, at_once)]


def raise_for(
    place: JobPlace, errors: dict[str, VTorqueError], *, superior: str = "", made: t.Collection[str] = ()
) -> None:
    """Leave what each node said, and raise what decides.

    Raises:
        VTorqueError: what they prove together (`verdict.decide.gather`).
    """
    if not errors:
        return
    for node, error in errors.items():
        with contextlib.suppress(VTorqueError):
            write_record(place.file(layout.StepFile.ERROR.of(node)), {**error.to_dict(), "host": node})
    raise gather(errors, superior=superior, made=made)


def find_early_request(place: JobPlace, part: messages.NodePart) -> node_socket.EarlyNode | None:
    """The way to this node's program, when the hook has asked it for exactly this part.

    Args:
        place: the start of the job.
        part: what is to be asked.

    Returns:
        None: the hook has not, or what it asked is not what the plan says now.

    Raises:
        VTorqueError: what says what was asked is not root's.
    """
    node = node_socket.find(os.environ)
    if node is None:
        return None
    try:
        asked = files.read_json(place.file(layout.ASKED))
    except FileNotFoundError:
        return None
    if asked.get("digest") != node_socket.digest(part):
        return None
    return dataclasses.replace(node, asked_s=asked.get("asked_s", time.monotonic()))


def node_program(prefix: str | None) -> pathlib.Path:
    """Return `vtorque-node` on the nodes: they have one prefix, which is where this Ansible runs on one of them."""
    if prefix is None and PROGRAM.exists():
        return PROGRAM
    return program_path("vtorque-node", prefix or DEFAULT_PREFIX)


def remaining_s(given: float | None, environment: t.Mapping[str, str]) -> float:
    """Seconds that the node may take: as given, or what is left until `VTORQUE_DEADLINE`, less a margin.

    The wire carries seconds, not a moment: the clocks of two nodes may differ.

    Args:
        given: seconds, as the task says; None: it does not.
        environment: holds `VTORQUE_DEADLINE`, seconds of the monotonic clock of this node.

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
            left = float(text) - time.monotonic() - NODE_ANSWER_MARGIN_S
        except ValueError:
            raise VTorqueError(
                f"VTORQUE_DEADLINE={text[:40]!r}", "not seconds of the monotonic clock, and no timeout is given"
            ) from None
    if not 0 < left <= 86_400:
        raise VTorqueError(f"{left:.1f} seconds are left for the guests", "the deadline has passed or is absurd")
    return round(left, 3)


def load_plan(place: JobPlace, wanted: str) -> JobPlan | None:
    """The plan of the start, read once for all hosts; None: there is none, or none that can be read for `absent`.

    Args:
        place: the start of the job.
        wanted: `present` or `absent`.

    Raises:
        VTorqueError: it cannot be read, and guests are to be made.
    """
    try:
        return read_plan(place)
    except VTorqueError:
        if wanted == "absent":
            return None
        raise


def part_of(place: JobPlace, plan: JobPlan | None, host: str, wanted: str, timeout_s: float) -> messages.NodePart:
    """What this host is asked; for `absent` a part without guests, also when there is no plan.

    Args:
        place: the start of the job.
        plan: of the start.
        host: the node.
        wanted: `present` or `absent`.
        timeout_s: seconds until the node must have answered.

    Returns:
        The request.

    Raises:
        VTorqueError: the host has no part in it.
    """
    part = plan.parts.get(host) if plan else None
    if wanted == "absent":
        slots = part.bare_slots if part else 0
        return messages.NodePart.removal(place.job_id, place.start, host, timeout_s, slots)
    if part is None:
        raise VTorqueError(f"node {host}", f"has no part in job {place.job_id}")
    return dataclasses.replace(part, do="present", timeout_s=timeout_s)


def guest_facts(guest: node_answers.GuestFacts) -> dict[str, t.Any]:
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
    before = prctl.death_signal()
    prctl.set_death_signal(signal.SIGKILL)
    try:
        ansible = multiprocessing.parent_process()
        # None: no process of its own, as in a test
        if ansible is not None and os.getppid() != ansible.pid:
            raise VTorqueError("nobody was asked for guests", "ansible-playbook has ended meanwhile")
        yield
    finally:
        prctl.set_death_signal(before)
