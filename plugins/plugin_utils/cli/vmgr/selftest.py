# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr selftest`: a job through the whole chain, and what it proves."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import pwd
import signal
import statistics
import sys
import typing as t

from ....module_utils.errors import UserFault
from ....module_utils.job.admission import start_directory
from ....module_utils.job.batch.api import BatchNode, BatchSystem
from ....module_utils.job.batch.host_match import same_host
from ....module_utils.job.batch.registry import open_batch, open_trial
from ....module_utils.job.config.parameters import Policy
from ....module_utils.job.doctor import selftest
from ....module_utils.job.records import job_record
from ....module_utils.job.request.host_expressions import host_matches
from ....module_utils.job.verdict.decide import OUT_OF_USE
from ....module_utils.wire.health_report import Report
from ....module_utils.wire.node_command import program_path
from ...bridge.node_settings import host_name
from ...site import as_user
from ...site import selftest as selftest_call
from ..output.checks_table import print_table
from ..output.json_output import add_json, print_json
from ..output.node_names import expand_names
from ..output.progress import waiting
from ..output.tables import table
from .job import phase_figures

HELP = "prove with a real job that the whole chain works"
BATCH_S = 10.0
TIMEOUT_S = 600.0
MISSED, LATE = 1, 4
REPEAT_MOST = 1000
Proven = t.Sequence[tuple[Report, "job_record.JobRecord | None"]]

EPILOG = """\
The job is small, runs in the site's default image (--image) on a node (--nodes, --each-node, --node), and is the
caller's; no job is submitted as root, who names a user.  Its files lie in a directory of the user's home, which goes
with it.  A job that is not over in time is deleted, and so it is when you interrupt (Ctrl-C).

exit status:
  0    all of it is proven
  1    something is not; it is said what, and what to do
  2    the command line is wrong
  3    the batch server does not answer, or the site's configuration is at fault
  4    a job was not over in time, as when no node is free
  130  it was interrupted

examples:
  vmgr selftest                            after an install, as an ordinary user of a front end
  vmgr selftest --user alice --each-node   as root: a job on every node
  vmgr selftest --nodes 2 --image debian12 a job over two nodes
  vmgr selftest --repeat 10 --workload app.sh --figures new.json   times of a program, to compare two settings
  vmgr selftest --repeat 10 --query 'max([].figures.selftest_ready_s)'   the longest time until a guest was ready
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `vmgr selftest`."""
    parser.epilog = EPILOG
    parser.add_argument("--user", metavar="NAME", help="whose job it is (the caller's)")
    parser.add_argument("--image", metavar="NAME", help="what it boots (the site's default)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--nodes", type=int, metavar="N", default=1, help="one job over so many nodes (1)")
    where.add_argument("--each-node", action="store_true", help="a job on each node that is in use")
    where.add_argument("--node", metavar="NODE", nargs="+", help="a job on each of these: cn1 cn2, or cn[01-16]")
    parser.add_argument("--repeat", type=int, metavar="N", default=1, help="so many times, one after the other (1)")
    parser.add_argument(
        "--workload", metavar="FILE", type=pathlib.Path, help="a script that each job runs and times in its first guest"
    )
    parser.add_argument(
        "--figures", metavar="FILE", type=pathlib.Path, help="write each phase's median and runs in seconds, as JSON"
    )
    parser.add_argument("--queue", metavar="QUEUE", help="where it is submitted to (the server's default)")
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        default=TIMEOUT_S,
        help="seconds until all jobs of one time must be over (%(default).0f)",
    )
    add_json(parser)


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Submit, wait, and tell what is proven; see `Subject` of `main.py`.

    Raises:
        UserFault: the command line is wrong.
        SiteFault: the batch server or the configuration is at fault.
    """
    who = _user(call.user)
    _check_numbers(call)
    policy, here = load(), host_name()
    batch = open_batch(policy, front_end=host_matches(policy.regex_fe, here), timeout_s=BATCH_S)
    nodes = batch.nodes()
    as_user.become(who)
    places = _places(call, policy, nodes)
    job = open_trial(policy.batch_system)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    workload = _read_workload(call.workload)
    _demand_writable(call.figures, who)
    trials: list[selftest_call.Trial] = []
    proven: list[tuple[Report, job_record.JobRecord | None]] = []
    try:
        for run_number in range(1, call.repeat + 1):
            begun = len(trials)
            for where, hosts in places:
                trials.append(selftest_call.prepare(pathlib.Path(who.pw_dir), where, hosts, job, workload))
                request = selftest.small_request(policy, call.image)
                selftest_call.submit(trials[-1], _vsub(policy), request, who, job=job, batch=batch, queue=call.queue)
            with waiting(wanted=not call.json) as report:
                say = _numbered(report, run_number, call.repeat)
                selftest_call.wait(trials[begun:], batch, call.timeout, say)
                say("waiting for output and records")
                for trial in trials[begun:]:
                    expected = _expected(trial, policy, here, who, nodes, workload=bool(workload))
                    proven.append(selftest_call.report(trial, expected, job_record.RECORDS))
            if not all(trial.in_time for trial in trials):
                break  # the next time would wait as long, for the same
    except BaseException as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else "not done"
        _take_back(trials, batch, why, job.DELETE)
        raise
    finally:
        selftest_call.tidy(trials)
    if call.figures is not None:
        _write_figures(call.figures, trials, proven)
    return _print_trials(call, trials, proven)


def _check_numbers(call: argparse.Namespace) -> None:
    if not 1 <= call.timeout <= 86400:
        raise UserFault(f"--timeout {call.timeout:g}", "from 1 to 86400 seconds")
    if call.nodes < 1:
        raise UserFault(f"--nodes {call.nodes}", "at least 1")
    if not 1 <= call.repeat <= REPEAT_MOST:
        raise UserFault(f"--repeat {call.repeat}", f"from 1 to {REPEAT_MOST}")


def _read_workload(path: pathlib.Path | None) -> str:
    """Return a script of the user's; "": none is asked for."""
    if path is None:
        return ""
    try:
        with path.open("rb") as stream:
            data = stream.read(selftest.WORKLOAD_LIMIT + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserFault(f"--workload {path}", f"cannot be read as text: {error}") from error
    if not data or len(data) > selftest.WORKLOAD_LIMIT or b"\0" in data:
        problem = f"must be text, from 1 to {selftest.WORKLOAD_LIMIT} bytes"
        raise UserFault(f"--workload {path}", problem, "let it call what is larger")
    return text


def _demand_writable(path: pathlib.Path | None, who: pwd.struct_passwd) -> None:
    """Raise a fault before any job runs if the figures of all of them could not be written."""
    if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK, effective_ids=True):
        raise UserFault(f"--figures {path}", f"cannot be written by {who.pw_name}", "name a file in their home")


def _numbered(report: t.Callable[[str], None], run_number: int, repeat: int) -> t.Callable[[str], None]:
    """Return what reports progress with the number of the run before it, if there are several."""
    return report if repeat == 1 else lambda text: report(f"run {run_number} of {repeat}: {text}")


def _write_figures(path: pathlib.Path, trials: t.Sequence[selftest_call.Trial], proven: Proven) -> None:
    """Write seconds of all jobs that were proven, in the form of `make bench`: a median and its runs for each key."""
    form: dict[str, float | list[float]] = {}
    for name, seconds in _runs(trials, proven).items():
        form |= {_key_of(name): statistics.median(seconds), f"{_key_of(name)}_runs": seconds}
    try:
        path.write_text(json.dumps(form, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserFault(f"--figures {path}", error.strerror or str(error)) from error


def _interrupt(_number: int, _frame: object) -> t.NoReturn:
    raise KeyboardInterrupt


def _take_back(trials: t.Sequence[selftest_call.Trial], batch: BatchSystem, why: str, command: str) -> None:
    """Nobody's impatience and no fault must leave a job behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    deleted = selftest_call.take_back(trials, batch)
    left = [trial.job_id for trial in trials if trial.job_id and not trial.ended and trial.job_id not in deleted]
    parts = [f"deleted: {', '.join(deleted)}"] if deleted else []
    parts += [f"not deleted: {command} {' '.join(map(batch.display_id, left))}"] if left else []
    if parts or why == "interrupted":
        print(f"vmgr: selftest: {why}{': ' if parts else ''}{'; '.join(parts)}", file=sys.stderr)


def _user(name: str | None) -> pwd.struct_passwd:
    uid = os.geteuid()
    if name is None:
        if uid == 0:
            raise UserFault("selftest", "no job is submitted as root", "vmgr selftest --user NAME")
        return pwd.getpwuid(uid)
    who = as_user.find(name)
    if uid not in (0, who.pw_uid):
        raise UserFault(f"--user {name}", "only root may name another user")
    return who


def _places(call: argparse.Namespace, policy: Policy, nodes: t.Sequence[BatchNode]) -> list[tuple[str, int]]:
    """A number of nodes or a node's name for each job, and how many nodes that is."""
    if call.node is not None:
        return [(name, 1) for name in expand_names(call.node)]
    if not call.each_node:
        return [(str(call.nodes), call.nodes)]
    used = [node for node in nodes if not node.states & OUT_OF_USE]
    if policy.vm_node_property is not None:
        used = [node for node in used if policy.vm_node_property in node.properties]
    if not used:
        raise UserFault("--each-node", "no node is in use", open_trial(policy.batch_system).NODES)
    away = [node.name for node in nodes if node not in used]
    if away:
        print(f"vmgr: selftest: left out, as they are not in use for VM jobs: {' '.join(away)}", file=sys.stderr)
    return [(node.name, 1) for node in used]


def _vsub(policy: Policy) -> str:
    here = program_path("vsub")
    return str(here if here.exists() else program_path("vsub", policy.prefix))


def _expected(
    trial: selftest_call.Trial,
    policy: Policy,
    here: str,
    who: pwd.struct_passwd,
    nodes: t.Sequence[BatchNode],
    *,
    workload: bool,
) -> selftest.ExpectedOutcome:
    first = trial.job.nodes[0] if trial.job and trial.job.nodes else ""
    keeps = any(same_host(host, here) for host in (policy.record_host, first) if host)
    return selftest.ExpectedOutcome(
        token=trial.token,
        user=who.pw_name,
        uid=who.pw_uid,
        gid=who.pw_gid,
        home=who.pw_dir,
        home_is_shared=start_directory.home_is_shared(policy),
        guests=trial.hosts * selftest.guests_per_node(policy),
        nodes=tuple(node.name for node in nodes),
        keeps_records=keeps,
        workload=workload,
    )


def _print_trials(call: argparse.Namespace, trials: t.Sequence[selftest_call.Trial], proven: Proven) -> int:
    reports = [report for report, _record in proven]
    if call.json:
        print_json(call, [_facts(trial, *one) for trial, one in zip(trials, proven, strict=True)])
    else:
        print_table(reports, [one for one in selftest.PROOFS if call.workload or one != selftest.WORKLOAD], "proof")
        rows = _rows_of_runs(_runs(trials, proven)) if call.repeat > 1 else _rows_of_jobs(trials, proven)
        _print_times(list(rows))
        missed = [report.node for report in reports if not report.well]
        print(f"Not proven: {len(missed)} of {len(reports)} jobs." if missed else "All of it is proven.")
    if not all(trial.in_time for trial in trials):
        return LATE
    return 0 if all(report.well for report in reports) else MISSED


def _facts(trial: selftest_call.Trial, report: Report, record: job_record.JobRecord | None) -> dict[str, t.Any]:
    findings = [
        {"proof": one.check, "state": one.state, "cell": one.cell, "problem": one.problem, "remedy": one.remedy}
        for one in report.findings
    ]
    return {
        "job_id": trial.job_id,
        "nodes": report.node.split(","),
        "proven": report.well,
        "in_time": trial.in_time,
        "findings": findings,
        "seconds": dict(_figures(trial, record)),
        "figures": {_key_of(name): seconds for name, seconds in (_figures(trial, record) if report.well else ())},
    }


def _key_of(phase: str) -> str:
    """Return the key of a phase, as `make bench` has keys."""
    return f"selftest_{phase}_s"


def _figures(trial: selftest_call.Trial, record: job_record.JobRecord | None) -> list[tuple[str, float]]:
    phases = phase_figures(record) if record is not None else []
    return phases if trial.workload_s is None else [*phases, (selftest.WORKLOAD, trial.workload_s)]


def _runs(trials: t.Sequence[selftest_call.Trial], proven: Proven) -> dict[str, list[float]]:
    """Return seconds of each phase in all jobs that were proven."""
    runs: dict[str, list[float]] = {}
    for trial, (report, record) in zip(trials, proven, strict=True):
        for name, seconds in _figures(trial, record) if report.well else ():
            runs.setdefault(name, []).append(round(seconds, 6))
    return runs


def _rows_of_jobs(trials: t.Sequence[selftest_call.Trial], proven: Proven) -> t.Iterator[dict[str, str]]:
    for trial, (report, record) in zip(trials, proven, strict=True):
        seconds = {name: f"{value:.1f}" for name, value in _figures(trial, record)}
        yield {"job id": trial.job_id or "-", "on": report.node, **seconds}


def _rows_of_runs(runs: t.Mapping[str, t.Sequence[float]]) -> t.Iterator[dict[str, str]]:
    for title, of_all in (("least", min), ("median", statistics.median), ("most", max)):
        yield {"seconds": title, **{name: f"{of_all(seconds):.1f}" for name, seconds in runs.items()}}


def _print_times(rows: t.Sequence[dict[str, str]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if set(names) - {"job id", "on", "seconds"}:
        print()
        table([{name: row.get(name, "") for name in names} for row in rows])
        print()
