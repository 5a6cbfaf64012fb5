# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only a look at the whole site can tell: the batch server's settings, records, and whether hosts are alike."""

from __future__ import annotations

import os
import pathlib
import stat
import typing as t

from ...wire.health_report import BAD, INSTALL, NONE, WARN, Finding, Report
from ..batch.api import NOTE_PREFIX, BatchNode
from ..batch.host_match import same_host
from ..batch.registry import submit_command
from ..config.batch_systems import commands_parameter
from ..config.comparison import differing
from ..config.parameters import Policy
from ..request.host_expressions import host_matches
from ..verdict.decide import OUT_OF_USE
from .node_checks import note_finding

NAMED = 5


def check_qsub(policy: Policy, here: str) -> Finding:
    """Check that the qsub, or sbatch, is there that vsub calls on this host.

    Args:
        policy: the site's.
        here: this host.
    """
    front_end = host_matches(policy.regex_fe, here)
    name = commands_parameter(policy.batch_system, front_end=front_end)
    qsub = submit_command(policy, front_end=front_end)
    if os.access(qsub, os.X_OK):
        return Finding("programs")
    return Finding("programs", BAD, BAD, f"vsub finds no {qsub}: nobody can submit here", f"correct {name}")


def check_records(policy: Policy, here: str, directory: pathlib.Path, owner_uid: int = 0) -> Finding:
    """Check that this front end can keep the records of jobs.

    Args:
        policy: the site's.
        here: this host.
        directory: of all records.
        owner_uid: whose it must be.
    """
    host = policy.record_host
    if host is None:
        return Finding(
            "records",
            NONE,
            "-",
            "no front end keeps records of jobs: vmgr job works on nodes alone",
            "record_host in vtorque.yml, if that is not meant",
        )
    if not same_host(host, here):
        return Finding("records", cell=host)
    try:
        facts = directory.stat()
    except FileNotFoundError:  # the first one makes it
        return Finding("records", cell="none yet")
    except OSError as error:
        return Finding("records", BAD, BAD, f"{directory}: {error.strerror}", INSTALL)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != owner_uid or facts.st_mode & 0o022:
        problem = f"{directory} is not root's alone (owner {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o})"
        return Finding("records", BAD, BAD, problem, INSTALL)
    return Finding("records")


def compare(report: Report, settings: t.Mapping[str, str], collection: str, here: str) -> Report:
    """Check that a node has the configuration and the collection of this host.

    Args:
        report: of the node.
        settings: digests of this host's parameters.
        collection: what is installed on this host; "": not known.
        here: its name.
    """
    if not report.asked:
        return report
    site, machine = differing(settings, report.settings)
    if site:
        found = Finding("configuration", BAD, "other", f"other than on {here}: {_join_names(site)}", INSTALL)
    elif machine:
        problem = f"other than on {here}: {_join_names(machine)}"
        found = Finding("configuration", WARN, "other", problem, "vmgr config show --origin, if that is not meant")
    else:
        found = Finding("configuration")
    report = report.with_finding(found)
    if collection and report.collection == collection:
        return report.with_finding(Finding("collection", cell=collection))
    problem = f"is {report.collection or 'not known'}, and on {here} {collection or 'not known'}"
    return report.with_finding(Finding("collection", BAD, "other", problem, INSTALL))


def add_server_state(report: Report, node: BatchNode | None) -> Report:
    """What the batch server says of a node that did not answer.

    Args:
        report: of the node.
        node: as the server describes it; None: it was not asked.
    """
    if report.asked or node is None:
        return report
    if node.note.startswith(NOTE_PREFIX):
        return report.with_finding(note_finding(node.note))
    states = ",".join(sorted(node.states & OUT_OF_USE))
    problem = f"the batch server says {states or 'that it is in use'}" + (f": {node.note}" if node.note else "")
    return report.with_finding(Finding("note", WARN, "yes" if node.note else "-", problem))


def _join_names(names: t.Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
