# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job of `vmgr selftest` does in its guests, and what follows from what it left: each proof good or bad."""

from __future__ import annotations

import dataclasses
import re
import shlex

from ...text import printable
from ...wire.health_report import BAD, NONE, OK, WARN, Finding
from ..batch.host_match import same_host
from ..config.parameters import Policy
from ..records.job_record import JobRecord

STATUS = 23
"""No shell, no batch system and nothing of ours ends with it by itself."""
NAME = "vtorque-selftest"
PROOFS = (
    "submitted",
    "ended",
    "exit status",
    "output",
    "errors",
    "machine",
    "user",
    "home",
    "node file",
    "ssh",
    WORKLOAD := "workload",
    "leftovers",
    "record",
)
"""In the order of the table."""
SMALL_MIB = 1024
PATH_MAX = 4096
"""Characters of a word that the job says; none is longer than a path."""
TOKEN, SEEN = "token", "seen"
"""Files in the job's directory: made before it, and by it."""

_SCRIPT = """\
#!/bin/sh
# made by vmgr selftest
token=@TOKEN@ place=@PLACE@
echo "begin $token"
echo "host $(uname -n)"
echo "kernel $(uname -r)"
echo "user $(id -u) $(id -g) $(id -un)"
echo "home $HOME"
echo "found $(cat "$place/token" 2>/dev/null)"
(echo "$token" >"$place/seen") 2>/dev/null
echo "counts @COUNTS@"
met=" $(uname -n) "
while read -r one; do
    echo "node $one"
    case $met in
        *" $one "*) ;;
        *)
            met="$met$one "
            echo "reached $one $(ssh "$one" uname -n 2>/dev/null </dev/null)"
            ;;
    esac
done <"@NODE_FILE@"
@WORKLOAD@echo "$token on standard error" >&2
echo "end $token"
exit @STATUS@
"""
WORKLOAD_LIMIT = 1 << 16
"""Bytes of a workload: batch systems bound what a script may have."""
_WORKLOAD = """\
work=$(mktemp) && cat >"$work" <<'work-@DELIMITER@'
@TEXT@work-@DELIMITER@
chmod 700 "$work"
read -r begin rest </proc/uptime
"$work" >"$work.out" 2>&1 </dev/null
status=$?
read -r end rest </proc/uptime
echo "workload $status $begin $end"
tail -n 5 "$work.out" | sed 's/^/printed /'
rm -f "$work" "$work.out"
"""


def render_script(token: str, directory: str, *, counts: str, node_file: str, workload: str = "") -> str:
    """What the job runs; any shell of a guest runs it.

    Args:
        token: a word that nobody else writes.
        directory: the job's own, on the host that submits it.
        counts: words of a shell for the job's slots and hosts, by the batch system's variables.
        node_file: a word of a shell for the file that names a host for each slot.
        workload: a program of text that runs in the first guest, on its own standard output; "": none.
    """
    text = workload if workload.endswith("\n") else f"{workload}\n"
    work = _WORKLOAD.replace("@DELIMITER@", token).replace("@TEXT@", text) if workload else ""
    replacements = {
        "WORKLOAD": work,
        "TOKEN": shlex.quote(token),
        "PLACE": shlex.quote(directory),
        "STATUS": str(STATUS),
        "COUNTS": counts,
        "NODE_FILE": node_file,
    }
    return re.sub("@([A-Z_]+)@", lambda found: replacements[found[1]], _SCRIPT)


def small_request(policy: Policy, image: str | None) -> str:
    """The request for guests that fit anywhere.

    Args:
        policy: the site's, with its bounds.
        image: a name; None: the site's default.
    """
    vcpus = max(1, policy.vcpus_min or 1)
    guests = guests_per_node(policy)
    ram = max(min(SMALL_MIB, policy.ram_default), policy.ram_min or 0)
    keys = [f"img={image}"] if image else []
    return ",".join([*keys, f"vcpus={vcpus}", f"ram={ram}M", f"vms_per_node={guests}"])


def guests_per_node(policy: Policy) -> int:
    """How many guests a node has at least, by the site's bounds.

    Args:
        policy: the site's.
    """
    return max(1, policy.vms_per_node_min or 1)


@dataclasses.dataclass(frozen=True, slots=True)
class ExpectedOutcome:
    """What must come of a job.

    Attributes:
        token: its word.
        user: who submitted it.
        uid: of the user.
        gid: of the user's first group.
        home: of the user.
        home_is_shared: whether guests mount it.
        guests: how many there must be, on all nodes together.
        nodes: names of the site's compute nodes, which no guest has.
        keeps_records: whether the record is delivered to this host.
        workload: whether the job runs a program of the caller's.
    """

    token: str
    user: str
    uid: int
    gid: int
    home: str
    home_is_shared: bool
    guests: int
    nodes: tuple[str, ...]
    keeps_records: bool
    workload: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class JobOutcome:
    """What came of a job.

    Attributes:
        exit_status: as the server reports it; None: it had forgotten the job.
        output: the job's output file; None: there is none.
        errors: the same of its error file.
        seen: what the job wrote into its directory.
        record: as it is on this host; None: there is none.
    """

    exit_status: int | None
    output: str | None
    errors: str | None
    seen: str
    record: JobRecord | None


def check_outcome(expected: ExpectedOutcome, outcome: JobOutcome) -> tuple[Finding, ...]:
    """Return what a job proves.

    Args:
        expected: what must come of it.
        outcome: what came of it.

    Returns:
        A finding for each of `PROOFS` from the exit status on, of the workload if there is one.
    """
    lines = _between(outcome.output or "", expected.token)
    return (
        _exit_status(outcome),
        _output(expected, outcome, lines),
        _errors(expected, outcome),
        _machine(expected, outcome, lines),
        _user(expected, lines),
        _home(expected, outcome, lines),
        _node_file(expected, outcome, lines),
        _check_ssh(expected, lines),
        *((_workload(lines),) if expected.workload else ()),
        _check_leftovers(outcome),
        _record(expected, outcome),
    )


def _between(text: str, token: str) -> dict[str, list[str]] | None:
    """What the job said, by its first words; None: it is not whole."""
    lines = text.splitlines()
    begin, end = f"begin {token}", f"end {token}"
    if lines.count(begin) != 1 or lines.count(end) != 1 or lines.index(begin) > lines.index(end):
        return None
    found: dict[str, list[str]] = {}
    for line in lines[lines.index(begin) + 1 : lines.index(end)]:
        name, _blank, value = line.partition(" ")
        found.setdefault(name, []).append(printable(value[:PATH_MAX]))  # it may be shown on root's terminal
    return found


def _line_of(lines: dict[str, list[str]] | None, name: str) -> str:
    return (lines or {}).get(name, [""])[0]


def _bad(check: str, problem: str, remedy: str = "vmgr job log JOB says what was done") -> Finding:
    return Finding(check, BAD, BAD, problem, remedy)


def _exit_status(outcome: JobOutcome) -> Finding:
    known = outcome.exit_status if outcome.exit_status is not None else outcome.record and outcome.record.exit_status
    if known == STATUS:
        return Finding("exit status", cell=str(STATUS))
    return _bad("exit status", f"is {'not known' if known is None else known}, and the script ended with {STATUS}")


def _output(expected: ExpectedOutcome, outcome: JobOutcome, lines: dict[str, list[str]] | None) -> Finding:
    if outcome.output is None:
        return _bad(
            "output",
            "the job's output file did not come",
            "see the log of the batch system on the node: how do files come here?",
        )
    if lines is None:
        return _bad("output", f"the job's output is not whole: {_shorten(outcome.output)}")
    rest = [line for line in outcome.output.splitlines() if line.strip()]
    if rest[0] != f"begin {expected.token}" or rest[-1] != f"end {expected.token}":
        return Finding("output", WARN, "more", "something else writes into the job's output", "see the user's dotfiles")
    return Finding("output")


def _errors(expected: ExpectedOutcome, outcome: JobOutcome) -> Finding:
    line = f"{expected.token} on standard error"
    if outcome.errors is None:
        return _bad(
            "errors",
            "the job's error file did not come",
            "see the log of the batch system on the node: how do files come here?",
        )
    if line not in outcome.errors.splitlines() or line in (outcome.output or ""):
        return _bad("errors", f"the job's error file is not what it wrote: {_shorten(outcome.errors)}")
    if outcome.errors.strip() != line:
        more = outcome.errors.replace(line, "", 1)
        return Finding("errors", WARN, "more", f"also in the job's error file: {_shorten(more)}")
    return Finding("errors")


def _machine(expected: ExpectedOutcome, outcome: JobOutcome, lines: dict[str, list[str]] | None) -> Finding:
    host = _line_of(lines, "host")
    guests = [guest.name for guest in outcome.record.guests] if outcome.record else []
    if not host:
        return _bad("machine", "the job did not say where it ran")
    if any(same_host(host, node) for node in expected.nodes):
        return _bad(
            "machine", f"the job ran on {host}, a node, and in no virtual machine", "see the hooks: vmgr doctor"
        )
    if guests and host.lower() != guests[0].lower():
        return _bad("machine", f"the job ran on {host}, and its first guest is {guests[0]}")
    return Finding("machine", cell=host[:64])


def _user(expected: ExpectedOutcome, lines: dict[str, list[str]] | None) -> Finding:
    seen, wanted = _line_of(lines, "user"), f"{expected.uid} {expected.gid} {expected.user}"
    if seen != wanted:
        return _bad("user", f"is {seen or 'not known'} in the guest, and {wanted} here (uid, gid, name)")
    return Finding("user", cell=expected.user)


def _home(expected: ExpectedOutcome, outcome: JobOutcome, lines: dict[str, list[str]] | None) -> Finding:
    if _line_of(lines, "home") != expected.home:
        return _bad("home", f"is {_line_of(lines, 'home') or 'not known'} in the guest, and {expected.home} here")
    if not expected.home_is_shared:
        return Finding(
            "home", NONE, "empty", "guests have no home of the cluster's", "vm_nfs_home, if that is not meant"
        )
    if _line_of(lines, "found") != expected.token:
        return _bad(
            "home", f"what is in {expected.home} here is not there in the guest", "see the export, and its console"
        )
    if outcome.seen.strip() != expected.token:
        return _bad("home", f"what the guest writes into {expected.home} is not there here", "see the export's options")
    return Finding("home", cell=expected.home)


def _node_file(expected: ExpectedOutcome, outcome: JobOutcome, lines: dict[str, list[str]] | None) -> Finding:
    named = (lines or {}).get("node", [])
    hosts = list(dict.fromkeys(named))
    counts = _line_of(lines, "counts").split()
    guests = [guest.name for guest in outcome.record.guests] if outcome.record else hosts
    if len(hosts) != expected.guests or hosts != guests or hosts[:1] != [_line_of(lines, "host")]:
        return _bad(
            "node file",
            f"names {_shorten(', '.join(hosts) or 'nobody')}, and the guests are {', '.join(guests) or 'not known'}",
        )
    if counts[:2] != [str(len(named)), str(len(hosts))]:
        seen = _shorten(" ".join(counts))
        return _bad("node file", f"has {len(named)} lines of {len(hosts)} hosts, and the job's variables say {seen}")
    return Finding("node file", cell=f"{len(named)} line{'s' if len(named) > 1 else ''}")


def _check_ssh(expected: ExpectedOutcome, lines: dict[str, list[str]] | None) -> Finding:
    if expected.guests < 2:
        return Finding("ssh", NONE, "-")
    tried = [line.split() for line in (lines or {}).get("reached", [])]
    lost = [fields[0] for fields in tried if len(fields) != 2 or fields[0] != fields[1]]
    if lost or len(tried) != expected.guests - 1:
        return _bad("ssh", f"not reached by ssh from the first guest: {_shorten(', '.join(lost) or 'the others')}")
    return Finding("ssh", cell=f"{len(tried)} by ssh")


def workload_seconds(output: str, token: str) -> float | None:
    """Return how long the workload ran in its guest, in seconds, by the guest's own clock; None: it was not run.

    Args:
        output: of the job.
        token: its word.
    """
    fields = _line_of(_between(output, token), WORKLOAD).split()
    try:
        _status, begin, end = map(float, fields)
    except ValueError:
        return None
    return max(0.0, end - begin)


def _workload(lines: dict[str, list[str]] | None) -> Finding:
    status, *_times = _line_of(lines, WORKLOAD).split() or [""]
    if status == "0":
        return Finding(WORKLOAD)
    printed = _shorten(" ".join((lines or {}).get("printed", [])))
    problem = f"ended with {status}, and printed last: {printed}" if status else "was not run"
    return _bad(WORKLOAD, problem, "run it in a job of its own: vsub")


def _check_leftovers(outcome: JobOutcome) -> Finding:
    left = outcome.record.raw.get("left") if outcome.record else None
    if not isinstance(left, list):
        return Finding(
            "leftovers", WARN, "?", "no record says whether everything of the job is gone", "vtorque-sweep on its nodes"
        )
    if left:
        return _bad("leftovers", f"left behind: {_shorten('; '.join(map(str, left)))}", "vtorque-sweep on its nodes")
    return Finding("leftovers", cell="nothing")


def _record(expected: ExpectedOutcome, outcome: JobOutcome) -> Finding:
    if outcome.record is None and not expected.keeps_records:
        return Finding("record", NONE, "-", "records stay on nodes", "record_host, if that is not meant")
    if outcome.record is None:
        return _bad("record", "did not come to this host", "the job's log on its first node says why: vmgr job log JOB")
    if outcome.record.state != "finished":
        return _bad("record", f"says {outcome.record.state}: {_shorten('; '.join(outcome.record.reasons))}")
    return Finding("record", OK, "finished")


def _shorten(text: str) -> str:
    return printable(" ".join(text.split())[:300]) or "nothing"
