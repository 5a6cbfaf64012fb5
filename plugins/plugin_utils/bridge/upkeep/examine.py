# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of a node, of `job` and of `node`: this node examined, and other nodes queried for their own reports.

Nodes are asked by `vtorque-node`, the one command to which root's keys are bound.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import selectors
import subprocess
import time
import typing as t

from ....module_utils import installed
from ....module_utils.errors import VTorqueError
from ....module_utils.job.batch import liveness
from ....module_utils.job.batch.api import BatchNode, BatchSystem
from ....module_utils.job.batch.host_match import same_host
from ....module_utils.job.batch.registry import open_batch, open_doctor, open_node
from ....module_utils.job.config import comparison
from ....module_utils.job.config.parameters import DEFAULT_PREFIX, Policy
from ....module_utils.job.config.policy_file import load_usable
from ....module_utils.job.doctor import node_checks as job_doctor
from ....module_utils.job.doctor import site_checks
from ....module_utils.job.request.request import is_path
from ....module_utils.node import doctor as node_doctor
from ....module_utils.state import layout
from ....module_utils.system.process.environment import TOOL_ENVIRONMENT
from ....module_utils.text import printable
from ....module_utils.wire.health_report import (
    BAD,
    INSTALL,
    Finding,
    Report,
    ReportRequest,
    examine,
    finding_of,
    report_from_dict,
)
from ....module_utils.wire.node_command import program_path
from ..node_settings import settings_of

EXAMINATION_S = 20.0
"""Seconds for all checks of a node; they are made side by side."""
BATCH_S = 8.0
SKEW_S = 2.0
"""How far a clock may be off, beyond what the conversation leaves open: files on a shared home get times of both."""
AT_ONCE = 32
PROGRAM = "vtorque-node"
WAY_IN = "is sshd running there, and root's key of this host let in? mikelangelo.vtorque.install sees to the key"
LIMIT = 1 << 20
"""Bytes of a report."""


def examine_here(
    load: t.Callable[[], Policy], node: str, timeout_s: float = EXAMINATION_S, *, thorough: bool = True
) -> Report:
    """Examine this node.

    Args:
        load: gives the site's policy; what cannot be read of it is a finding, and its defaults stand in for it.
        node: this node's name.
        timeout_s: seconds for all checks.
        thorough: also what asks more of the batch server than each node should every few minutes.

    Returns:
        What was found.
    """
    began = time.time()
    policy, found = _policy(load, node)
    batch = open_batch(policy, timeout_s=BATCH_S)
    ssh_s = min(float(policy.ssh_timeout), timeout_s / (job_doctor.PEERS + 1) - 1)
    settings = settings_of(policy, node)
    policy_checks = job_doctor.checks(policy, batch, node, ssh_timeout_s=ssh_s, thorough=thorough)
    checks = {**node_doctor.checks(settings, pool_default(policy)), **policy_checks}
    if thorough:
        is_alive = liveness.by_server(liveness.JobAnswers(batch), node)
        has_files = open_node(policy.batch_system).alive_here(policy)
        checks["left"] = lambda: node_doctor.check_leftovers(settings, is_alive, has_files)
    report = Report(node, (found,), began)
    for finding in examine(checks, timeout_s):
        report = report.with_finding(finding)
    return dataclasses.replace(
        report, ended=time.time(), settings=comparison.digests(policy), collection=installed.identity()
    )


def pool_default(policy: Policy) -> str | None:
    """The image of the pool that jobs get which name none; an image by path is each user's to read."""
    return None if is_path(policy.img_default) else policy.img_default


def examine_front_end(
    load: t.Callable[[], Policy],
    here: str,
    batch: BatchSystem,
    known: t.Mapping[str, BatchNode],
    records_dir: pathlib.Path = layout.STATE_DIR / "records",
) -> Report:
    """Examine this front end.

    Args:
        load: gives the site's policy.
        here: this host's name.
        batch: the site's batch system.
        known: its compute nodes by name, as the batch server describes them.
        records_dir: of the records of jobs.
    """
    began = time.time()
    policy, broken = load_usable(load)
    found = Finding("policy") if broken is None else _broken(broken)
    pool = pathlib.Path(policy.vm_img_dir)
    preface = next((node.preface for node in known.values() if node.preface), "")
    checks = {
        "pool": lambda: node_doctor.check_pool(pool, pool_default(policy)),
        "programs": lambda: site_checks.check_qsub(policy, here),
        "server": lambda: open_doctor(policy.batch_system).check_server(batch, tuple(known), preface),
        "records": lambda: site_checks.check_records(policy, here, records_dir),
    }
    findings = (found, *examine(checks, EXAMINATION_S))
    return Report(
        here, findings, began, time.time(), settings=comparison.digests(policy), collection=installed.identity()
    )


def judge_together(
    reports: t.Sequence[Report], policy: Policy, here: str, known: t.Mapping[str, BatchNode]
) -> tuple[Report, ...]:
    """What the reports of nodes say beside each other, beside this host, and beside the batch server.

    Args:
        reports: of nodes.
        policy: of this host.
        here: its name.
        known: nodes, as the batch server describes them.
    """
    settings, collection = comparison.digests(policy), installed.identity()
    compared = (site_checks.compare(report, settings, collection, here) for report in reports)
    return tuple(site_checks.add_server_state(report, _known_as(report.node, known)) for report in compared)


def _known_as(host: str, known: t.Mapping[str, BatchNode]) -> BatchNode | None:
    found = known.get(host)
    return found or next((node for name, node in known.items() if same_host(name, host)), None)


def _broken(error: VTorqueError) -> Finding:
    return finding_of("policy", VTorqueError(error.what, error.why, "vmgr config check"))


def _policy(load: t.Callable[[], Policy], node: str) -> tuple[Policy, Finding]:
    policy, broken = load_usable(load)
    if broken is not None:
        return policy, _broken(broken)
    if policy.node_number is None:
        problem = f"node_number is not set: without it no guest of {node} has a MAC address of its own"
        return policy, Finding("policy", BAD, BAD, problem, INSTALL)
    return policy, Finding("policy")


def examine_nodes(
    nodes: t.Sequence[str],
    *,
    ssh_timeout_s: float,
    timeout_s: float = EXAMINATION_S,
    ssh: str = job_doctor.SSH,
    prefix: str = DEFAULT_PREFIX,
    advance: t.Callable[[Report], None] | None = None,
) -> tuple[Report, ...]:
    """Let nodes examine themselves, many at once.

    Args:
        nodes: their names.
        ssh_timeout_s: seconds for a connection.
        timeout_s: seconds for an examination.
        ssh: the program.
        prefix: where nodes have vTorque.
        advance: hears of each report as it comes.

    Returns:
        A report a node, in the order of the nodes; a node that gives none is one that needs somebody.
    """

    def one(node: str) -> Report:
        report = _request_report(node, ssh_timeout_s, timeout_s, [ssh, str(program_path(PROGRAM, prefix))])
        if advance is not None:
            advance(report)
        return report

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return tuple(pool.map(one, nodes))


def _request_report(node: str, ssh_timeout_s: float, timeout_s: float, programs: t.Sequence[str]) -> Report:
    began = time.time()
    ssh, program = programs
    question = json.dumps(ReportRequest(timeout_s).to_dict()).encode() + b"\n"
    try:
        done = call([*job_doctor.ssh_call(node, ssh_timeout_s, ssh), program], question, ssh_timeout_s + timeout_s + 5)
    except subprocess.TimeoutExpired:
        return _silent(node, f"no answer in {ssh_timeout_s + timeout_s + 5:.0f} s")
    except (OSError, VTorqueError) as error:
        return _silent(node, str(error))
    if done.returncode == 255:
        return _silent(node, f"no answer by ssh: {job_doctor.last_line(done.stderr, done.returncode)}", WAY_IN)
    try:
        answer = json.loads(done.stdout)
        if not isinstance(answer, dict) or "report" not in answer:
            return _silent(node, f"{node} gave no report: {refusal_of(answer)}", INSTALL)
        return check_clock(report_from_dict(node, answer["report"]), began, time.time())
    except (ValueError, RecursionError):  # no JSON, or so deep that nobody can follow
        problem = job_doctor.last_line(done.stderr, done.returncode)
        return _silent(node, f"no report: {problem}", f"is {program} there?")
    except VTorqueError as error:
        return _silent(node, str(error), INSTALL)


def call(command: t.Sequence[str], question: bytes, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    """Ask a program, and hear no more of it than a report can be.

    Args:
        command: the program and its arguments.
        question: for its standard input.
        timeout_s: seconds until it must have ended.

    Raises:
        VTorqueError: it says more.
        OSError: it cannot be run.
        subprocess.TimeoutExpired: it had no end.
    """
    end = time.monotonic() + timeout_s
    with (
        selectors.DefaultSelector() as selector,
        subprocess.Popen(
            command,
            bufsize=0,
            env=TOOL_ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        try:
            stdin, stdout, stderr = (
                t.cast("t.IO[bytes]", one) for one in (process.stdin, process.stdout, process.stderr)
            )
            with contextlib.suppress(BrokenPipeError):  # its complaint says why
                stdin.write(question)
            stdin.close()
            heard = {stdout.fileno(): bytearray(), stderr.fileno(): bytearray()}
            for fd in heard:
                selector.register(fd, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(left_s) if (left_s := end - time.monotonic()) > 0 else []
                if not ready:
                    raise subprocess.TimeoutExpired(command, timeout_s)
                for key, _events in ready:
                    piece = os.read(key.fd, 1 << 16)
                    if not piece:
                        selector.unregister(key.fd)
                    heard[key.fd] += piece
                if len(heard[stdout.fileno()]) > LIMIT:
                    raise VTorqueError("no report", f"an answer of more than {LIMIT} bytes")
                del heard[stderr.fileno()][:-LIMIT]  # the last words count
            status = process.wait(max(0.0, end - time.monotonic()))
        finally:
            process.kill()
    out, complaint = heard.values()
    return subprocess.CompletedProcess(command, status, bytes(out), bytes(complaint))


def refusal_of(answer: object) -> str:
    """Return what `vtorque-node` said instead of an answer; one of another version does not know the question."""
    error = answer.get("error") if isinstance(answer, dict) else None
    parts = [str(error.get(key, "")) for key in ("what", "why")] if isinstance(error, dict) else []
    return printable(": ".join(word for word in parts if word)[:200]) or "its answer is of no known form"


def _silent(node: str, why: str, remedy: str = "") -> Report:
    return Report(node, (Finding("ssh", BAD, "silent", why, remedy),), asked=False)


def check_clock(report: Report, asked: float, answered: float) -> Report:
    """Compare a node's clock with ours: its examination lay between our question and its answer.

    Args:
        report: with the node's own times.
        asked: when it was asked, on our clock.
        answered: when its answer was there.

    Returns:
        The report, with what is surely wrong.
    """
    ahead, behind = report.ended - answered, asked - report.began
    off_s = max(ahead, behind)
    if off_s <= SKEW_S:
        return report
    way = "ahead of" if ahead > behind else "behind"
    problem = f"its clock is {off_s:.0f} s {way} that of {os.uname().nodename}"
    offset = f"{off_s:+.0f}s" if ahead > behind else f"{-off_s:.0f}s"
    return report.with_finding(Finding("time", BAD, offset, problem, "see chrony or ntpd there"))


def needing(reports: t.Sequence[Report]) -> tuple[Report, ...]:
    """Return the findings that somebody must see to."""
    return tuple(report for report in reports if not report.well)
