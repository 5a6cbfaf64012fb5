# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `vsub --dry-run` prints: the request, where each value is from, where guests would be, and the command."""

from __future__ import annotations

import dataclasses
import shlex
import time
import types
import typing as t

from ....module_utils.job.admission import numa
from ....module_utils.job.request.keys import KEYS
from ....module_utils.text import format_mib
from ....module_utils.wire.form import to_dict
from ...bridge import preview
from .json_output import Query, print_json

if t.TYPE_CHECKING:
    from ....module_utils.job.admission.submission import Submission
    from ....module_utils.job.config.parameters import Policy

__all__ = ["Query", "print_bare", "print_submission"]
SIZES = ("ram", "unclot_shmem")


def print_submission(
    submission: Submission,
    policy: Policy,
    name: str,
    command: t.Sequence[str],
    vm_lines: t.Sequence[int],
    how: DryRunOptions,
) -> None:
    """Print what a job in virtual machines would be.

    Args:
        submission: of the job.
        policy: the site's.
        name: of the batch system's command.
        command: its call.
        vm_lines: of the script (`FrontJob.vm_lines`).
        how: for people, or for programs.
    """
    resolved = submission.resolved
    rows = [(key, resolved.values[key]) for key in KEYS if resolved.values[key] is not None]
    placed = preview.preview(submission, policy)
    if how.as_json:
        request = {key: {"value": value, "from": resolved.origins[key]} for key, value in rows}
        document: dict[str, t.Any] = {"request": request, "shell": resolved.shell, name: list(command)}
        document |= {
            "notices": submission.notices,
            "hosts": {"vm": submission.vm_hosts, "of": submission.hosts, "spare": submission.need.spare},
        }
        document |= {"adds": submission.added, "pinned": submission.pinned, **to_dict(submission.survival)}
        document |= {"neutral_lines": vm_lines, "warm": submission.warm, "cores": submission.need.cores_sum}
        _print_json({**document, "placement": dataclasses.asdict(placed) if placed else None}, how)
        return
    table = [("request", "value", "from")]
    for key, value in rows:
        cell = format_mib(value) if key in SIZES and isinstance(value, int) else resolved.text(key)
        table.append((key, cell, resolved.origins[key]))
    if resolved.shell:
        table.append(("shell", resolved.shell, "-S"))
    widths = [max(len(row[column]) for row in table) + 2 for column in (0, 1)]
    for key, value_text, origin in table:
        print(f"{key:<{widths[0]}}{value_text:<{widths[1]}}{origin}")
    for line in _remarks(submission):
        print(line)
    if placed:
        _print_placement(placed)
    print(shlex.join(command))
    if submission.command_call.note:
        print(f"({name} reads a copy of {submission.command_call.name} {submission.command_call.note})")


def _remarks(submission: Submission) -> t.Iterator[str]:
    """What no key has a line for."""
    if submission.vm_hosts != submission.hosts:
        yield f"(VM nodes: the first {submission.vm_hosts} of {submission.hosts} hosts; the others stay bare)"
    if spare := submission.need.spare:
        more = "1 node" if spare == 1 else f"{spare} nodes"
        yield f"(spare: {more} more than the job uses, to take the place of one that fails at the start)"
    cores = submission.need.cores_sum if submission.resolved.values[numa.IO] is True else ""
    clauses = {"vcpu_pinning on each node": submission.pinned, "cores on each node": cores}
    clauses |= {**to_dict(submission.survival), "start": submission.warm}
    clauses["metadata adds to each guest"] = submission.added
    for what in filter(clauses.get, clauses):
        yield f"({what}: {clauses[what]})"


def _print_placement(placed: preview.Preview) -> None:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(placed.made))
    print(f"on {placed.node}, the first node that fits, if nothing else runs there (its topology is of {when}):")
    for number, guest in enumerate(placed.guests, 1):
        cores = [f"vCPU {vcpu} on {text}" for vcpu, text in enumerate(guest.vcpu_cores)]
        io = f" (virtual I/O: at least {guest.io_least} of them)" if guest.io_least else ""
        cores.append(f"{'other' if cores else 'all'} threads on {guest.other_cores}{io}")
        cells = f"cell{'s' if len(guest.cells) > 1 else ''} {','.join(map(str, guest.cells))}"
        parts = [", ".join(cores), cells, guest.memory, *guest.devices]
        print(f"  guest {number}: {'; '.join(parts)}")
    if placed.problem:
        print(f"  {placed.problem}")


def print_bare(name: str, command: t.Sequence[str], how: DryRunOptions) -> None:
    """Print the call of a job that goes on as it is.

    Args:
        name: of the batch system's command.
        command: its call.
        how: for people, or for programs.
    """
    if how.as_json:
        _print_json({"request": {}, name: list(command)}, how)
    else:
        print(shlex.join(command))


def _print_json(document: dict[str, t.Any], how: DryRunOptions) -> None:
    print_json(types.SimpleNamespace(query=how.query), document)


class DryRunOptions(t.Protocol):
    """How a dry run is to be printed.

    Attributes:
        as_json: for programs.
        query: which part of it; None: all.
    """

    @property
    def as_json(self) -> bool:
        """Return whether it is for programs."""

    @property
    def query(self) -> Query | None:
        """Return which part of it is wanted; None: all."""
