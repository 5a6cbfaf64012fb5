# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the batch system for the job, and decide what is made where."""

from __future__ import annotations

import pathlib
import typing as t

from ..module_utils.errors import VTorqueError
from ..module_utils.job.batch import job_snapshot
from ..module_utils.job.batch.registry import open_batch, open_node
from ..module_utils.job.config import policy_file
from ..module_utils.job.plan.job_plan import JobPlan
from ..module_utils.state import layout
from ..module_utils.system import files
from ..plugin_utils.bridge.planning import create_plan, inputs_of
from ..plugin_utils.job_actions.action_base import JobAction, JobPlace, Outcome, phase
from ..plugin_utils.job_actions.start_files import read_plan, remove


class ActionModule(JobAction):
    """`job_plan`: batch job + policy -> plan.json, which only root can read."""

    SPEC: t.ClassVar[dict[str, t.Any]] = {
        "nodefile": {"type": "path"},
        "config": {"type": "path", "default": str(policy_file.PATH)},
    }

    def act(self, place: JobPlace, args: dict[str, t.Any], host: str) -> Outcome:
        """Take over the plan that was made of the same inputs, or make it.

        One of this start that decides the same stays, because guests may carry its keys already.
        """
        if not self.checking:
            files.make_directory(place.run_dir)
            remove([place.file(layout.ERROR), *place.run_dir.glob(layout.StepFile.ERROR.pattern)])
        with phase(place, "plan", when=not self.checking):
            policy = policy_file.load(pathlib.Path(args["config"]))
            job = job_snapshot.read_snapshot(place.job_id, place.run_dir) or open_batch(policy).job(place.job_id)
            if job.start_count != place.start:
                raise VTorqueError(
                    f"start {place.start} of job {place.job_id}", f"the server speaks of start {job.start_count}"
                )
            given, node = args["nodefile"], open_node(policy.batch_system)
            lines = pathlib.Path(given) if given else node.node_file(policy, place.job_id)
            inputs = inputs_of(job, policy, lines)
            old = read_plan(place)
            new = old if old is not None and old.inputs == inputs.digest else create_plan(inputs)
            # one that is taken over need not be compared with itself
            was, now = ("", "") if new is old else (old.decision if old else "", new.decision)
            changed = was != now
            if changed and not self.checking:
                remove(place.run_dir.glob(layout.StepFile.REPLACED.pattern))
                files.write(place.file(layout.PLAN), new.to_json())
        facts = {"nodes": sorted(new.parts), "guests": sum(len(part.guests) for part in new.parts.values())}
        return Outcome(changed, plan_facts(old, was), plan_facts(new, now), facts)


def plan_facts(plan: JobPlan | None, decision: str) -> dict[str, t.Any] | None:
    """A plan as results and diffs show it: without keys, and without anything that the user chose freely.

    Args:
        plan: None: there is none.
        decision: the digest of its decisions, for what is not there in words; "" where it is compared with no other.
    """
    if plan is None:
        return None
    return {
        node: [
            {
                "rank": guest.rank,
                "image": "an own one" if guest.own_image else guest.image,
                "vcpus": guest.vcpus,
                "ram_mib": guest.ram_mib,
                "hypervisor": guest.hypervisor,
                "fs_type": guest.fs_type,
                "disk": "an own one" if guest.data_disk else "none",
                **({"pci": "+".join(str(wish) for wish in guest.pci)} if guest.pci else {}),
                "plan": decision,
            }
            for guest in part.guests
        ]
        for node, part in plan.parts.items()
    }
