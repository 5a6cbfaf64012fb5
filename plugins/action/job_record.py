# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what the job's shell needs before it may run the job, and what outlives the job; take the former away."""

from __future__ import annotations

import os
import pathlib
import time
import typing as t

from ..module_utils.errors import VTorqueError
from ..module_utils.job.plan.job_plan import JobPlan
from ..module_utils.job.records import writer
from ..module_utils.state import layout, login_fifos, records, shell_link
from ..module_utils.system import files
from ..module_utils.wire.form import to_dict
from ..module_utils.wire.node_answers import GuestFacts
from ..plugin_utils.job_actions.action_base import JobAction, JobPlace, Outcome, phase
from ..plugin_utils.job_actions.shell_access import (
    all_guests,
    ready_record,
    shell_of,
    spec_of,
    write_access,
)
from ..plugin_utils.job_actions.start_files import (
    read_bare,
    read_error,
    read_guests,
    read_phases,
    read_plan,
    read_replaced,
    read_updates,
    remove,
)


class ActionModule(JobAction):
    """`job_record`: `ready` lets the job's shell run the job in its guests; `absent` takes that back."""

    SPEC: t.ClassVar[dict[str, t.Any]] = {
        "state": {"type": "str", "choices": ["ready", "absent"], "default": "ready"},
        "records_dir": {"type": "path", "default": str(layout.STATE_DIR / "records")},
    }

    def act(self, place: JobPlace, args: dict[str, t.Any], host: str) -> Outcome:
        """Write or remove the records of this start."""
        directory = pathlib.Path(args["records_dir"]) / place.key
        before = sorted(name for name in (*layout.SHELL_FILES, layout.PLAN) if place.file(name).exists())
        if args["state"] == "absent":
            return self._absent(place, directory, before)
        return self._ready(place, directory, before)

    def _ready(self, place: JobPlace, directory: pathlib.Path, before: list[str]) -> Outcome:
        after = sorted({*before, *layout.SHELL_FILES})
        if self.checking:
            return Outcome(before != after, before, after)
        plan = read_plan(place)
        if plan is None:
            raise VTorqueError(f"{place.file(layout.PLAN)}", "there is no plan", "run job_plan first")
        guests = all_guests(place, plan)
        bare = read_bare(place, plan)
        shell = shell_of(os.environ)
        ready = ready_record(place, plan, guests, bare, shell)
        changed = not (shell_link.link_of(shell, place.root).is_symlink() and says(place.file(layout.READY), ready))
        if changed:
            with phase(place, "record"):
                write_access(place, plan, guests)
                files.write_json(place.file(layout.READY), ready, reader_uid=plan.owner.uid)
            self._write_record(place, directory, plan, guests)
            shell_link.point(shell, place.run_dir, place.root)  # last: the shell believes nothing that is not linked
        return Outcome(changed, before, after)

    def _absent(self, place: JobPlace, directory: pathlib.Path, before: list[str]) -> Outcome:
        links = shell_link.links_to(place.run_dir, place.root)
        if self.checking:
            return Outcome(bool(before or links), before, [])
        plan = read_plan(place)
        gone = remove(links)
        login_fifos.end(place.run_dir)
        gone += remove(place.file(name) for name in layout.SHELL_FILES)
        if plan is not None:
            guests = [(node, facts) for node in plan.parts for facts in read_guests(place, node)]
            self._write_record(place, directory, plan, guests, ended=time.time())
        step = layout.StepFile
        kinds = (step.GUESTS, step.BARE, step.PHASE, step.UPDATES, step.REPLACED)
        gone += remove(
            [place.file(layout.PLAN), *(path for kind in kinds for path in place.run_dir.glob(kind.pattern))]
        )
        return Outcome(bool(gone), before, [], {"removed": len(gone)})

    def _write_record(
        self,
        place: JobPlace,
        directory: pathlib.Path,
        plan: JobPlan,
        guests: list[tuple[str, GuestFacts]],
        ended: float | None = None,
    ) -> None:
        """Write the job's record, which outlives the job and which its owner may read."""
        files.make_record_directory(directory, plan.owner.uid)
        known = writer.read_former(directory)
        record = {
            "user": plan.owner.user,
            "nodes": list(plan.in_use),
            "bare": list(plan.bare),
            "spares": list(plan.spares),
            "replaced": read_replaced(place),
            "guests": known.get("guests") or [record_of(place, plan, node, facts) for node, facts in guests],
            "survival": to_dict(plan.survival),
            "phases": {**known.get("phases", {}), **read_phases(place)},
            "error": read_error(place),
            "ended": ended,
        }
        wrong = writer.write(directory, place.job_id, place.start, record, reader_uid=plan.owner.uid)
        if wrong:
            self._display.warning(wrong)


def record_of(place: JobPlace, plan: JobPlan, node: str, facts: GuestFacts) -> dict[str, t.Any]:
    """A guest as the job's record tells of it."""
    spec = spec_of(plan, node, facts)
    updates = read_updates(place, node).get(facts.name)
    return {
        "rank": facts.rank,
        "name": facts.name,
        "node": node,
        "address": facts.address,
        "mac": facts.mac,
        "image": spec.image,
        "vcpus": spec.vcpus,
        "ram_mib": spec.ram_mib,
        "seconds": facts.timings_s,
        **({"vcpu_cores": facts.vcpu_cores, "other_cores": facts.other_cores} if facts.vcpu_cores else {}),
        **({"io_least": facts.io_least} if facts.io_least else {}),
        **({"cells": facts.cells} if facts.cells else {}),
        **({"pages": facts.pages} if facts.pages else {}),
        **({"warm": facts.warm} if facts.warm else {}),
        **({"networks": facts.networks} if facts.networks else {}),
        **({"side_channels": facts.side_channels} if facts.side_channels else {}),
        **({"devices": facts.devices} if facts.devices else {}),
        **({"updates": updates.to_record()} if updates else {}),
    }


def says(path: pathlib.Path, ready: records.ReadyRecord) -> bool:
    """Return whether the record there says exactly this."""
    try:
        return records.ReadyRecord.from_dict(files.read_json(path)) == ready
    except (FileNotFoundError, KeyError, TypeError):
        return False
