# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that the steps of a job's playbooks hand to each other, in root's run directory."""

from __future__ import annotations

import json
import pathlib
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.errors import VTorqueError, error_from_dict
from ...module_utils.job.plan.job_plan import JobPlan
from ...module_utils.state import layout
from ...module_utils.system import files
from ...module_utils.wire.form import from_dict, to_dict
from ...module_utils.wire.node_answers import BareHost, GuestFacts
from ...module_utils.wire.update_result import GuestUpdates
from .action_base import JobPlace, write_record


@leaves_nothing
def guests_file(place: JobPlace, node: str) -> pathlib.Path:
    """Where the guests that a node has made are kept."""
    return place.file(layout.StepFile.GUESTS.of(node))


@leaves_nothing
def read_plan(place: JobPlace) -> JobPlan | None:
    """The plan of this start, or None when none was made.

    Args:
        place: the start of the job.

    Returns:
        The plan.

    Raises:
        VTorqueError: it is not a file of root's, or not a plan.
    """
    path = place.file(layout.PLAN)
    try:
        return JobPlan.from_json(json.dumps(files.read_json(path, limit=1 << 23)))
    except FileNotFoundError:
        return None


@leaves_nothing
def read_guests(place: JobPlace, node: str) -> tuple[GuestFacts, ...]:
    """The guests that a node has made for this start; empty before that.

    Args:
        place: the start of the job.
        node: who made them.

    Returns:
        What the node said of each.

    Raises:
        VTorqueError: what is kept is not of the form.
    """
    try:
        data = files.read_json(guests_file(place, node))
    except FileNotFoundError:
        return ()
    return tuple(from_dict(GuestFacts, item, "guests") for item in data.get("guests", []))


@leaves_nothing
def bare_file(place: JobPlace, node: str) -> pathlib.Path:
    """Where what a bare host says of itself is kept."""
    return place.file(layout.StepFile.BARE.of(node))


@leaves_nothing
def read_bare(place: JobPlace, plan: JobPlan) -> dict[str, BareHost]:
    """What the hosts of this start that stay bare said of themselves, in the job's order of nodes.

    Args:
        place: the start of the job.
        plan: which hosts those are.

    Returns:
        By the host's name.

    Raises:
        VTorqueError: one has not answered, or what is kept is not of the form.
    """
    found = {}
    for node in plan.bare:
        try:
            found[node] = from_dict(BareHost, files.read_json(bare_file(place, node)), "bare")
        except FileNotFoundError:
            raise VTorqueError(f"job {place.job_id} is not ready", f"the bare host {node} has not answered") from None
    return found


def save_answer(place: JobPlace, step: layout.StepFile, node: str, facts: t.Sequence[object]) -> None:
    """Keep what a node says of its guests; the epilogue puts it into the job's record, or beside it.

    Args:
        place: the start of the job.
        step: `UPDATES`, `USED`, `CONSOLES`, `SERIES` or `MOVES`.
        node: whose guests they are.
        facts: dataclasses of the wire; nothing: there may be an earlier answer that says more.
    """
    if facts:
        write_record(place.file(step.of(node)), {step.value: [to_dict(one) for one in facts]})


@leaves_nothing
def read_updates(place: JobPlace, node: str) -> dict[str, GuestUpdates]:
    """What became of the security updates of a node's guests, by the guest's name.

    Raises:
        VTorqueError: what is kept is not of the form.
    """
    try:
        data = files.read_json(place.file(layout.StepFile.UPDATES.of(node)))
    except FileNotFoundError:
        return {}
    found = (from_dict(GuestUpdates, item, "updates") for item in data.get("updates", []))
    return {one.name: one for one in found}


@leaves_nothing
def read_phases(place: JobPlace) -> dict[str, dict[str, t.Any]]:
    """The figures of every phase so far: when it began (seconds since the epoch), how many seconds it took."""
    found = {}
    for path in sorted(place.run_dir.glob(layout.StepFile.PHASE.pattern)):
        found[layout.StepFile.PHASE.name_of(path.name)] = files.read_json(path)
    return dict(sorted(found.items(), key=lambda item: float(item[1]["began"])))


@leaves_nothing
def read_replaced(place: JobPlace) -> list[dict[str, str]]:
    """The nodes whose places spare nodes have taken: `node`, `by` and `why`, for people."""
    found = []
    for path in sorted(place.run_dir.glob(layout.StepFile.REPLACED.pattern)):
        data = files.read_json(path)
        why = str(error_from_dict(data))
        found.append({"node": layout.StepFile.REPLACED.name_of(path.name), "by": str(data["by"]), "why": why})
    return found


@leaves_nothing
def read_error(place: JobPlace) -> dict[str, t.Any] | None:
    """The first error of this start, if there was one."""
    try:
        return files.read_json(place.file(layout.ERROR))
    except FileNotFoundError:
        return None


def remove(paths: t.Iterable[pathlib.Path]) -> list[str]:
    """Unlink what is there of `paths`, in that order, and name what was.

    Args:
        paths: files.

    Returns:
        Names of those that were there.

    Raises:
        VTorqueError: one of them cannot be removed.
    """
    gone = []
    for path in paths:
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise VTorqueError(f"{path} was not removed", str(error)) from error
        gone.append(path.name)
    return gone
