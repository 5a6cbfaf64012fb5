# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's playbooks, as a hook runs them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import sys
import time
import typing as t

from ...effects import leaves_nothing
from ...errors import VTorqueError, error_from_dict
from ...rendering import templates
from ...state import event_log, layout
from ...system import files, fileserver_probe
from ...system.process import process_id, supervised
from ...time_budget import (
    EARLY_SSH_END_S,
    HOOK_END_S,
    HOOK_REMOVAL_LEAST_S,
    HOOK_REMOVAL_S,
    HOOK_RESERVE_S,
    PLAYBOOK_SLACK_S,
    PROGRAM_ENDING_S,
    REMOVAL_ANSWER_S,
    VERDICT_S,
)
from ...wire import form
from ...wire.messages import NodePart
from ..config.parameters import Policy
from .ansible_process import PlaybookCall, PlaybookRunner
from .start import Places, Start, blame_disk

LOG_TAIL = 1 << 16


def begin_log(start: Start, log: t.IO[bytes], text: str) -> None:
    """Write the first line of a start: Ansible could not tell of a disk that is full, for its words go there too.

    Args:
        start: whose log it is.
        log: open to be added to.
        text: without the time.

    Raises:
        NodeFault: the disk is full or broken.
    """
    with blame_disk(start.record_directory / layout.LOG):
        event_log.write(log, text)


def note(log: t.IO[bytes], text: str, level: str = event_log.INFO, component: str = "") -> None:
    """Add a line to the job's log; that it cannot be written stops nothing."""
    with contextlib.suppress(OSError):
        event_log.write(log, text, level, component)


def prepare(start: Start, nodefile: pathlib.Path | None, policy: Policy, runner: PlaybookRunner) -> None:
    """Write what Ansible needs for this start: its settings and the inventory.

    Args:
        nodefile: the job's node file, if there is one.
        policy: says how nodes are asked.
        runner: gets the settings.

    Raises:
        VTorqueError: they were not written.
    """
    source = {"plugin": "mikelangelo.vtorque.pbs_nodefile", "job_id": start.job_id}
    if nodefile is not None:
        source["nodefile"] = str(nodefile)
    if start.places.config != Places.config:
        source["config"] = str(start.places.config)
    files.write(start.directory / layout.INVENTORY, json.dumps(source))  # JSON is YAML
    prefix = str(pathlib.Path(sys.prefix).parent)
    run_dir = str(start.places.run_dir)
    at_once = {} if policy.parallel else {"forks": 1}
    settings: dict[str, t.Any] = {
        "prefix": prefix,
        "run_dir": run_dir,
        "ssh_timeout": int(policy.ssh_timeout),
        **at_once,
    }
    own = pathlib.Path(policy.template_dir)
    runner.apply_settings(templates.render("ansible.cfg.j2", site_dir=own, **settings))


def run_playbook(
    start: Start,
    name: str,
    *,
    until: float,
    log: t.IO[bytes],
    shell: process_id.ProcessId | None = None,
    runner: PlaybookRunner | None = None,
    plain: bool = False,
    detail: bool = False,
    pool: pathlib.Path | None = None,
    unwanted: supervised.Unwanted | None = None,
) -> VTorqueError | None:
    """Run one of the job's playbooks.

    Args:
        name: `prologue` or `epilogue`.
        until: when it is ended, in seconds of the monotonic clock.
        log: where its output goes.
        shell: the process that becomes the job's shell.
        runner: runs it, and has perhaps loaded already; None: a new one.
        plain: run ansible-playbook itself (`fast_start` of the site).
        detail: let Ansible tell the results of its tasks too.
        pool: which it reads, and which may be what held it up.
        unwanted: ends it when it says so.

    Returns:
        None when all went well, else what failed.
    """
    begin = os.fstat(log.fileno()).st_size
    variables = {"VTORQUE_DEADLINE": f"{until:.3f}"}
    if shell is not None:
        variables["VTORQUE_SHELL"] = str(shell)
    runner = runner or PlaybookRunner(start.places.ansible, start.places.run_dir)
    arguments = (
        "-i",
        str(start.directory / layout.INVENTORY),
        f"mikelangelo.vtorque.{name}",
        *(("-vv",) if detail else ()),
    )
    try:
        timeout_s = until + PLAYBOOK_SLACK_S - time.monotonic()
        code = runner.run(PlaybookCall(arguments, variables, timeout_s, log, plain, unwanted))
    except OSError as error:
        return VTorqueError(f"the {name} of job {start.job_id} was not played", str(error))
    if code == 0:
        return None
    try:
        return error_from_dict(files.read_json(start.directory / layout.ERROR))
    except FileNotFoundError:
        pass
    # no node has said what is wrong: nobody is to blame
    if code is None:
        late = f"the {name} of job {start.job_id} was not done in time"
        silent = None if pool is None else fileserver_probe.silent_pool(pool, late)
        return silent or VTorqueError(late, "it was ended at its deadline")
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
    why = _inventory_fault(start.record_directory / layout.LOG, begin) or f"ansible-playbook {ended}"
    return VTorqueError(f"the {name} of job {start.job_id} failed", why)


def _inventory_fault(log: pathlib.Path, begin: int) -> str:
    """Return what the inventory found wrong, which stands only in Ansible's output."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(begin, stream.seek(0, os.SEEK_END) - LOG_TAIL))
            text = stream.read(LOG_TAIL).decode(errors="replace")
    except OSError:
        return ""
    found = re.search(rf"{re.escape(layout.INVENTORY)}'?:\s+(\S.*)", text)
    return "".join(c if c.isprintable() else " " for c in found[1])[:500] if found else ""


@leaves_nothing
def verdict_time_s(until: float) -> float:
    """Seconds for the batch system's commands in a prologue whose work was to be done by `until`.

    A playbook that was ended by force has used some of the reserve, and the end of the early ssh and the removal need
    their own: what is left is added up in docs/developer/time-budget.md.
    """
    removed = until + HOOK_RESERVE_S - HOOK_END_S
    return min(VERDICT_S, removed - PROGRAM_ENDING_S - HOOK_REMOVAL_LEAST_S - EARLY_SSH_END_S - time.monotonic())


@leaves_nothing
def removal_time_s(until: float) -> float:
    """Seconds for `remove_here` in a hook whose work was to be done by `until`: what is left of its reserve.

    A playbook that was ended by force has used some of it, and so has the verdict; and Torque takes a killed prologue
    for a success.
    """
    killed = until + HOOK_RESERVE_S
    return min(HOOK_REMOVAL_S, killed - PROGRAM_ENDING_S - HOOK_END_S - time.monotonic())


def remove_here(start: Start, node: str, *, timeout_s: float, log: t.IO[bytes]) -> VTorqueError | None:
    """Remove what is on this node of this start, without Ansible.

    Args:
        timeout_s: seconds; when none are left nothing is tried.

    Returns:
        None when nothing is left, else what failed.
    """
    part = NodePart.removal(start.job_id, start.number, node, max(0.0, timeout_s - REMOVAL_ANSWER_S))
    stdin = json.dumps(form.to_dict(part)).encode()
    what = f"not everything of job {start.job_id} was removed from {node}"
    try:
        code, out = supervised.run(start.places.node, timeout_s=timeout_s, log=log, stdin=stdin, capture=True)
    except OSError as error:
        return VTorqueError(what, f"vtorque-node was not run: {error}")
    note(log, f"vtorque-node: {out.decode(errors='replace').strip()}")
    if code != 0:
        return VTorqueError(what, "no answer in time" if code is None else f"vtorque-node ended with status {code}")
    try:
        answer = json.loads(out)
        if not answer["ok"]:
            return error_from_dict(answer["error"])
        return VTorqueError(what, f"left: {', '.join(map(str, answer['left']))}"[:1000]) if answer["left"] else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return VTorqueError(what, "vtorque-node gave no answer")
