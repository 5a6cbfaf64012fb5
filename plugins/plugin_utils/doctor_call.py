# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where both wings' checks of a node meet: this node examined, and other nodes asked for their own reports."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

from ..module_utils.errors import VTorqueError
from ..module_utils.findings import BAD, Finding, Report, examine, finding_of, report_from_dict
from ..module_utils.job import doctor as job_doctor
from ..module_utils.job.batch import open_batch
from ..module_utils.job.parameters import Policy
from ..module_utils.job.policy_file import load_usable
from ..module_utils.node import doctor as node_doctor
from .cli.vtorque_node import settings_of

EXAMINATION_S = 20.0
"""Seconds for all checks of a node; they are made side by side."""
BATCH_S = 8.0
SKEW_S = 2.0
"""How far a clock may be off, beyond what the conversation leaves open: files on a shared home get times of both."""
AT_ONCE = 32
LIMIT = 1 << 20


def examine_here(load: t.Callable[[], Policy], node: str, timeout_s: float = EXAMINATION_S) -> Report:
    """Examine this node.

    Args:
        load: gives the site's policy; what cannot be read of it is a finding, and its defaults stand in for it.
        node: this node's name.
        timeout_s: seconds for all checks.

    Returns:
        What was found.
    """
    began = time.time()
    policy, found = _policy(load, node)
    batch = open_batch(policy, timeout_s=BATCH_S)
    ssh_s = min(float(policy.ssh_timeout), timeout_s / (job_doctor.PEERS + 1) - 1)
    policy_checks = job_doctor.checks(policy, batch, node, ssh_timeout_s=ssh_s)
    checks = {**node_doctor.checks(settings_of(policy, node)), **policy_checks}
    report = Report(node, (found,), began)
    for finding in examine(checks, timeout_s):
        report = report.with_finding(finding)
    return Report(node, report.findings, began, time.time())


def _policy(load: t.Callable[[], Policy], node: str) -> tuple[Policy, Finding]:
    policy, broken = load_usable(load)
    if broken is not None:
        return policy, finding_of("policy", VTorqueError(broken.what, broken.why))
    if policy.node_number is None:
        words = f"node_number is not set: without it no guest of {node} has a MAC address of its own"
        return policy, Finding("policy", BAD, BAD, words)
    return policy, Finding("policy")


def ask_nodes(
    nodes: t.Sequence[str], *, ssh_timeout_s: float, timeout_s: float = EXAMINATION_S, ssh: str = job_doctor.SSH,
    told: t.Callable[[Report], None] | None = None,
) -> tuple[Report, ...]:  # fmt: skip
    """Let nodes examine themselves, many at once.

    Args:
        nodes: their names.
        ssh_timeout_s: seconds for a connection.
        timeout_s: seconds for an examination.
        ssh: the program.
        told: hears of each report as it comes.

    Returns:
        A report a node, in the order of the nodes; a node that gives none is one that needs somebody.
    """

    def one(node: str) -> Report:
        report = _ask(node, ssh_timeout_s, timeout_s, ssh)
        if told is not None:
            told(report)
        return report

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return tuple(pool.map(one, nodes))


def _ask(node: str, ssh_timeout_s: float, timeout_s: float, ssh: str) -> Report:
    began = time.time()
    try:
        call = [*job_doctor.ssh_call(node, ssh_timeout_s, ssh), f"{_program()} doctor --local --json"]
        done = subprocess.run(
            call, timeout=ssh_timeout_s + timeout_s + 5, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return _silent(node, f"no answer in {ssh_timeout_s + timeout_s + 5:.0f} s")
    except (OSError, VTorqueError) as error:
        return _silent(node, str(error))
    if done.returncode == 255:
        return _silent(node, f"no answer by ssh: {job_doctor.last_words(done.stderr, done.returncode)}")
    try:
        told = json.loads(done.stdout[:LIMIT])
        return check_clock(report_from_dict(node, told), began, time.time())
    except ValueError:
        return _silent(node, f"no report: {job_doctor.last_words(done.stderr, done.returncode)}")
    except VTorqueError as error:
        return _silent(node, str(error))


def _program() -> pathlib.Path:
    """vmgr on the nodes: they have one prefix, which is where this program is installed."""
    here = pathlib.Path(sys.prefix).parent / "bin" / "vmgr"
    return here if here.exists() else pathlib.Path("/opt/vtorque/bin/vmgr")


def _silent(node: str, why: str) -> Report:
    return Report(node, (Finding("ssh", BAD, BAD, why),))


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
    words = f"its clock is {off_s:.0f} s {way} that of {os.uname().nodename}: see chrony or ntpd there"
    return report.with_finding(Finding("time", BAD, f"{off_s:+.0f}s" if ahead > behind else f"{-off_s:.0f}s", words))


def needing(reports: t.Sequence[Report]) -> tuple[Report, ...]:
    """Those that need somebody."""
    return tuple(report for report in reports if not report.well)
