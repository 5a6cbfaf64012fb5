# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hook waits for ends before Torque kills it, whatever the site's policy."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import time_budget as budget
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import hook_call
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import hook_calls
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import consistency
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks import playbook
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.start import Places, Start
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import supervised
from ansible_collections.mikelangelo.vtorque.tests.texts import time_budget as texts
from hypothesis import example, given
from hypothesis import strategies as st

BEGAN = 1_000_000.0
SECONDS = st.integers(1, 3600)
NODE_REMOVAL_S = 1.0
"""In less a node would not even reach libvirt, and leave its guests."""


@dataclasses.dataclass
class Hook:
    """A hook at its worst: it is never earlier than it may be, by a clock of its own."""

    role: str
    policy: Policy
    patch: pytest.MonkeyPatch
    now: float = BEGAN

    def __post_init__(self) -> None:
        alarm_s = budget.least_alarm_s(self.policy.prologue_timeout, self.policy.vm_epilogue_timeout)
        self.killed = BEGAN + alarm_s - budget.ALARM_MARGIN_S
        self.patch.setattr(hook_calls, "read_alarm_s", lambda _home: alarm_s)
        self.patch.setattr(time, "monotonic", lambda: self.now)
        call = hook_call.HookCall(hook_calls.ROLES[self.role], True, 1, "t1", "7.th", "alice", None)
        at_most_s = self.policy.prologue_timeout if self.role == "prologue" else float("inf")
        ends = hook_calls.hook_ends(call, self.policy, BEGAN)
        self.until = hook_call.deadline(ends, began=BEGAN, at_most_s=at_most_s)

    def wait(self, *seconds: float) -> None:
        """All of it passes."""
        self.now += sum(seconds)

    def wait_until(self, *moments: float) -> None:
        """The latest of them comes."""
        self.now = max(self.now, *moments)

    def remove_here(self) -> tuple[float, float]:
        """The removal without Ansible, which is ended by force; returns the seconds that it had, and its node."""
        asked: list[float] = []

        def run(_command: object, *, timeout_s: float, stdin: bytes, **_others: object) -> tuple[None, bytes]:
            asked.append(json.loads(stdin)["timeout_s"])
            if timeout_s > 0:
                self.wait(timeout_s, budget.PROGRAM_ENDING_S)
            return None, b""

        given = playbook.removal_time_s(self.until)
        self.patch.setattr(supervised, "run", run)
        with pathlib.Path(os.devnull).open("ab", buffering=0) as log:
            playbook.remove_here(Start("7.th", 1, Places()), "t1", timeout_s=given, log=log)
        return given, asked[0]


def good(policy: Policy) -> Policy:
    """The policy with what of its times does not fit together brought down."""
    timeout = min(policy.timeout, policy.prologue_timeout)
    return dataclasses.replace(policy, timeout=timeout)


POLICIES = st.builds(Policy, prologue_timeout=SECONDS, timeout=SECONDS, vm_epilogue_timeout=SECONDS).map(good)


@given(POLICIES)
@example(Policy())
@example(good(Policy(prologue_timeout=1, vm_epilogue_timeout=1)))
def test_prologue_at_its_worst_ends_with_a_verdict_before_torque_kills_it(policy: Policy) -> None:
    assert list(consistency.find_contradictions(policy)) == []
    with pytest.MonkeyPatch.context() as patch:
        hook = Hook("prologue", policy, patch)
        assert hook.until == BEGAN + policy.prologue_timeout
        asked = max(BEGAN + budget.SERVER_LEAST_S, hook.until)
        planned = hook.until + budget.EARLY_PLAN_S
        played = hook.until + budget.PLAYBOOK_SLACK_S + budget.PROGRAM_ENDING_S
        users = hook.until + budget.PROGRAM_ENDING_S
        hook.wait_until(asked, planned, played, users)
        hook.wait(budget.LIVE_LOG_END_S, budget.POOL_PROBE_S)
        verdict_s = playbook.verdict_time_s(hook.until)
        assert verdict_s >= budget.VERDICT_CALL_S
        hook.wait(verdict_s, budget.EARLY_SSH_END_S)
        removal_s, node_s = hook.remove_here()
        assert removal_s >= budget.HOOK_REMOVAL_LEAST_S
        assert node_s >= NODE_REMOVAL_S
        hook.wait(budget.EARLY_NODE_END_S, budget.SYSLOG_S, budget.HOOK_WRITING_S)
        assert hook.now <= hook.killed


@given(POLICIES)
@example(Policy())
def test_epilogue_at_its_worst_removes_and_records_before_torque_kills_it(policy: Policy) -> None:
    with pytest.MonkeyPatch.context() as patch:
        hook = Hook("epilogue", policy, patch)
        hook.wait(budget.EARLY_SSH_END_S)
        users_s = min(policy.vm_epilogue_timeout, hook.until - budget.EPILOGUE_REMOVAL_S - hook.now)
        assert users_s >= policy.vm_epilogue_timeout - budget.EARLY_SSH_END_S
        hook.wait(max(0.0, users_s), budget.PROGRAM_ENDING_S)
        assert hook.until - hook.now >= budget.EPILOGUE_REMOVAL_S - budget.PROGRAM_ENDING_S - budget.EARLY_SSH_END_S
        hook.wait_until(hook.until + budget.PLAYBOOK_SLACK_S + budget.PROGRAM_ENDING_S)
        removal_s, node_s = hook.remove_here()
        assert removal_s >= budget.HOOK_REMOVAL_LEAST_S
        assert node_s >= NODE_REMOVAL_S
        hook.wait(budget.HOOK_WRITING_S)
        assert hook.now <= hook.killed


def test_default_policy_fits_the_alarm_that_torque_has_by_itself() -> None:
    policy = Policy()
    assert budget.least_alarm_s(policy.prologue_timeout, policy.vm_epilogue_timeout) <= budget.TORQUE_ALARM_S


@given(st.floats(1, 3600))
def test_node_at_its_worst_answers_before_the_playbook_is_due(left_s: float) -> None:
    """Guests that are not ready fail by themselves first, then by their worker, and the answer is heard."""
    node = left_s - budget.NODE_ANSWER_MARGIN_S
    failed = node - budget.GUESTS_RESERVE_S
    ended = node - budget.BUILDER_LATE_S
    killed = ended + budget.BUILDER_GRACE_S
    given_up = node + budget.WORKER_ANSWER_S
    assert failed < ended < killed < node < given_up <= left_s
    early = left_s - budget.EARLY_ANSWER_MARGIN_S + budget.WORKER_ANSWER_S
    assert early < left_s


def test_time_after_updates_is_enough_for_additions() -> None:
    assert budget.UPDATES_RESERVE_S >= budget.ADDITIONS_RESERVE_S + budget.NODE_ANSWER_MARGIN_S
    assert budget.USER_FILE_READ_S < budget.EARLY_PLAN_S


def test_every_number_is_of_seconds_and_says_what_it_bounds_who_waits_and_why() -> None:
    found = texts.bounds()
    assert {one.name for one in found} == {name for name in vars(budget) if name.endswith("_S")}
    assert all(one.seconds > 0 and one.part for one in found)


def test_no_other_module_of_a_start_has_such_a_number() -> None:
    """A number of seconds of a hook, of Ansible or of a node is in the table, and nowhere else."""
    plugins = pathlib.Path(budget.__file__).parents[1]
    making = [
        f"module_utils/node/lifecycle/{name}.py"
        for name in ("creation/build", "client", "handover", "present_absent", "worker")
    ]
    packages = ("module_utils/job/hooks", "plugin_utils/hooks", "plugin_utils/faststart", "action", *making)
    sources = [path for package in packages for path in _sources(plugins / package)]
    own = [f"{path.name}: {line}" for path in sources for line in _numbers(path)]
    assert own == []


def _sources(place: pathlib.Path) -> list[pathlib.Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def _numbers(path: pathlib.Path) -> t.Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition(" = ")
        if equals and name.removesuffix(": t.Final").endswith("_S") and name.isupper() and value[:1].isdigit():
            yield line
