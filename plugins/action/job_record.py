# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what the job's shell needs before it may run the job, and what outlives the job; take the former away."""

from __future__ import annotations

import os
import pathlib
import re
import time
import typing as t

from ..module_utils import records, shell_links
from ..module_utils.errors import VTorqueError
from ..module_utils.guestspec import GuestFacts, GuestSpec
from ..module_utils.job.plan import JobPlan
from ..plugin_utils.action_module import JobAction, JobPlace, Outcome, keep, phase
from ..plugin_utils.job_files import PLAN, read_bare, read_error, read_guests, read_phases, read_plan, remove
from ..plugin_utils.node_answer import require_distinct

SHELL_FILES = ("ready.json", "job_key", "known_hosts")


class ActionModule(JobAction):
    """`job_record`: `ready` lets the job's shell run the job in its guests; `absent` takes that back."""

    SPEC: t.ClassVar[dict[str, t.Any]] = {
        "state": {"type": "str", "choices": ["ready", "absent"], "default": "ready"},
        "records_dir": {"type": "path", "default": str(records.STATE_DIR / "records")},
    }

    def act(self, place: JobPlace, args: dict[str, t.Any], host: str) -> Outcome:
        """Write or remove the records of this start."""
        kept = pathlib.Path(args["records_dir"]) / place.key
        before = sorted(name for name in (*SHELL_FILES, PLAN) if place.file(name).exists())
        if args["state"] == "absent":
            return self._absent(place, kept, before)
        return self._ready(place, kept, before)

    def _ready(self, place: JobPlace, kept: pathlib.Path, before: list[str]) -> Outcome:
        after = sorted({*before, *SHELL_FILES})
        if self.checking:
            return Outcome(before != after, before, after)
        plan = read_plan(place)
        if plan is None:
            raise VTorqueError(f"{place.file(PLAN)}", "there is no plan", "run job_plan first")
        guests = all_guests(place, plan)
        bare = read_bare(place, plan)
        shell = shell_of(os.environ)
        ready = records.ReadyRecord(
            job_id=place.job_id,
            start=place.start,
            user=plan.owner.user,
            shell=shell,
            boot_id=records.boot_id(),
            guests=tuple(ready_guest(plan, node, facts) for node, facts in guests),
            user_shell=plan.user_shell,
            bare=tuple(records.ReadyBare(node, plan.bare[node]) for node in bare),
        )
        changed = not (shell_links.link_of(shell, place.root).is_symlink() and says(place.file("ready.json"), ready))
        if changed:
            uid = plan.owner.uid
            with phase(place, "record"):
                records.write(place.file("job_key"), plan.job_key.private, reader_uid=uid)
                records.write(place.file("known_hosts"), known_hosts(plan, guests), reader_uid=uid)
                records.write_json(place.file("ready.json"), ready, reader_uid=uid)
            self._keep(place, kept, plan, guests)
            shell_links.point(shell, place.run_dir, place.root)  # last: the shell believes nothing that is not linked
        return Outcome(changed, before, after)

    def _absent(self, place: JobPlace, kept: pathlib.Path, before: list[str]) -> Outcome:
        links = shell_links.links_to(place.run_dir, place.root)
        if self.checking:
            return Outcome(bool(before or links), before, [])
        plan = read_plan(place)
        gone = remove(links) + remove(place.file(name) for name in SHELL_FILES)
        if plan is not None:
            guests = [(node, facts) for node in plan.parts for facts in read_guests(place, node)]
            self._keep(place, kept, plan, guests, ended=time.time())
        kinds = ("guests", "bare", "phase")
        gone += remove([place.file(PLAN), *(path for kind in kinds for path in place.run_dir.glob(f"{kind}.*.json"))])
        return Outcome(bool(gone), before, [], {"removed": len(gone)})

    def _keep(
        self,
        place: JobPlace,
        kept: pathlib.Path,
        plan: JobPlan,
        guests: list[tuple[str, GuestFacts]],
        ended: float | None = None,
    ) -> None:
        """Write the job's record, which outlives the job and which its owner may read."""
        records.make_record_directory(kept, plan.owner.uid)
        former = kept / "record.json"
        known = records.read_json(former) if former.exists() else {}
        record = {
            "version": 1,
            "job_id": place.job_id,
            "start": place.start,
            "user": plan.owner.user,
            "nodes": list(plan.parts),
            "bare": list(plan.bare),
            "guests": known.get("guests") or [record_of(plan, node, facts) for node, facts in guests],
            "phases": {**known.get("phases", {}), **read_phases(place)},
            "error": read_error(place),
            "ended": ended,
        }
        keep(former, record, reader_uid=plan.owner.uid)


def all_guests(place: JobPlace, plan: JobPlan) -> list[tuple[str, GuestFacts]]:
    """Every guest of the plan with its node, by rank.

    Args:
        place: the start of the job.
        plan: what was asked of which node.

    Returns:
        Pairs of node and guest.

    Raises:
        VTorqueError: a node has not answered for its guests, or two guests are the same.
    """
    found = [(node, facts) for node in plan.parts for facts in read_guests(place, node)]
    found.sort(key=lambda item: item[1].rank)
    wanted = sorted(guest.rank for part in plan.parts.values() for guest in part.guests)
    if [facts.rank for _node, facts in found] != wanted:
        raise VTorqueError(f"job {place.job_id} is not ready", f"{len(found)} of {len(wanted)} guests are known")
    require_distinct((facts for _node, facts in found), f"the nodes of job {place.job_id}")
    return found


def known_hosts(plan: JobPlan, guests: list[tuple[str, GuestFacts]]) -> str:
    """Lines of known_hosts: each guest by address and by name, with the key that it was given before it booted."""
    keys = {guest.rank: guest.host_key.public for part in plan.parts.values() for guest in part.guests}
    lines = []
    for _node, facts in guests:
        kind, key = keys[facts.rank].split()[:2]
        lines += [f"{facts.address} {kind} {key}\n", f"{facts.name} {kind} {key}\n"]
    return "".join(lines)


def spec_of(plan: JobPlan, node: str, facts: GuestFacts) -> GuestSpec:
    """What was asked for the guest that a node has made."""
    return next(guest for guest in plan.parts[node].guests if guest.rank == facts.rank)


def ready_guest(plan: JobPlan, node: str, facts: GuestFacts) -> records.ReadyGuest:
    """A guest as the job's shell needs it."""
    vcpus = spec_of(plan, node, facts).vcpus
    return records.ReadyGuest(facts.rank, facts.name, node, facts.address, vcpus=vcpus)


def record_of(plan: JobPlan, node: str, facts: GuestFacts) -> dict[str, t.Any]:
    """A guest as the job's record tells of it."""
    spec = spec_of(plan, node, facts)
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
    }


def shell_of(environment: t.Mapping[str, str]) -> records.ProcessId:
    """The process that becomes the job's shell, as the hook names it.

    Args:
        environment: holds `VTORQUE_SHELL`, `<pid>.<start time in ticks>`.

    Returns:
        The process, which lives.

    Raises:
        VTorqueError: it is not named, or is no longer there: nobody may run the job then.
    """
    text = environment.get("VTORQUE_SHELL", "")
    if not re.fullmatch(r"[1-9][0-9]{0,9}\.[0-9]{1,20}", text):
        raise VTorqueError(f"VTORQUE_SHELL={text[:40]!r}", "not <pid>.<start time>, which the hook hands on")
    shell = records.ProcessId(*map(int, text.split(".")))
    try:
        there = records.ProcessId.of(shell.pid)
    except FileNotFoundError:
        there = None
    if there != shell:
        raise VTorqueError(f"process {shell}", "is gone: the batch system has given this start up")
    return shell


def says(path: pathlib.Path, ready: records.ReadyRecord) -> bool:
    """Does the record there say exactly this?"""
    try:
        return records.ReadyRecord.from_dict(records.read_json(path)) == ready
    except (FileNotFoundError, KeyError, TypeError):
        return False
