# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many short jobs of several users, one in ten of them cancelled at a random moment.

`make test-soak` has 500, `make test` few.  Each says a word of its own and ends with a status of its own.  In the end
every word and every status is right, what lives long on the nodes has not grown, and nothing is left of any job
(`leaves_nothing` of conftest.py).

Cancelled is by one's owner, after a random part of `CANCEL_WITHIN_S` since the submission or since its start was seen:
in the queue, in the prologue, in the script, in the epilogue, or too late.

It has been seen to fail: a job's shell that always said 0 ("'0' != '255'"), and a removal that kept the slots of guests
("cn1: slot /var/lib/vtorque/slots/1").
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import time
import typing as t

import pytest

from ..batch_facts import Batch
from ..conftest import LAB, Site, node_of
from ..trouble import NODES

JOBS = int(os.environ.get("VTORQUE_SOAK", "4"))
SEED = int(os.environ.get("VTORQUE_SEED", time.time_ns() % 100_000))
USERS = ("alice", "bob")
WAITING = 12
"""So many wait in the queue at a time: the nodes never are without the next."""
PAIRS = 8
"""One job in so many has guests on two nodes."""
CANCEL_WITHIN_S = 20.0
TERM_TO_KILL = 15 - 9
"""Between the exit statuses of who was ended by TERM and by KILL."""
NEVER_RAN = {None, -2, -3}
"""Of who was deleted in the queue, or before his script began; besides what the batch system has for it."""
LONG_LIVED = ("libvirtd", "virtlogd", "virtlockd", "sshd", "dnsmasq")
MIB = 1024
GROWTH = 1.25
"""Memory is flat when it grows by less than this from the first quarter of the jobs to the last, or by `SLACK_MIB`."""
SLACK_MIB = 8.0
SLOWER = 1.5
"""The time of hooks is flat when the quickest of the last quarter takes at most so often that of the first."""
ENOUGH = 40
"""Jobs below which quarters say nothing."""


@dataclasses.dataclass
class Job:
    """One of the many.

    Attributes:
        number: in the order of their submission.
        status: with which its script ends.
        cancel: seconds until its owner deletes it, and since when: "submitted" or "started"; None if he does not.
        exit_status: the server's word; None for none.
    """

    number: int
    user: str
    status: int
    pair: bool
    cancel: tuple[str, float] | None
    id: str = ""
    moments: dict[str, float] = dataclasses.field(default_factory=dict)
    exit_status: int | None = None

    @property
    def word(self) -> str:
        """What its script says."""
        return f"job {self.number} of {self.user}"

    @property
    def out(self) -> str:
        """The file of its output."""
        return f"/home/{self.user}/soak/{self.number}.out"

    def due(self, now: float) -> bool:
        """Is it to be deleted at this moment?"""
        if self.cancel is None or {"cancelled", "ended"} & self.moments.keys():
            return False
        since, seconds = self.cancel
        return since in self.moments and now >= self.moments[since] + seconds


def make_jobs(count: int, seed: int) -> list[Job]:
    """Jobs that differ, the same ones for the same seed; one in ten is cancelled, at least one."""
    chance = random.Random(seed)
    cancelled = set(chance.sample(range(count), max(1, count // 10)))
    jobs = []
    for number in range(count):
        status = chance.choice((0, 0, 1, 3, 37, 254, 255))
        cancel = (chance.choice(("submitted", "started")), chance.uniform(0, CANCEL_WITHIN_S))
        pair = number % PAIRS == PAIRS - 1
        jobs.append(Job(number, USERS[number % len(USERS)], status, pair, cancel if number in cancelled else None))
    return jobs


def submit(site: Site, job: Job) -> None:
    """Hand one in, as its user."""
    options = (site.batch.named, f"soak{job.number}", *(site.batch.two if job.pair else ()), *site.batch.joined)
    done = site.vsub(*options, "-o", job.out, stdin=f"echo '{job.word}'\nexit {job.status}\n", user=job.user)
    assert done.returncode == 0, done.stderr
    job.id = done.stdout.strip()
    job.moments["submitted"] = time.monotonic()


def look(site: Site, jobs: t.Sequence[Job]) -> int:
    """Note what the server says of these jobs; how many of them wait."""
    facts = site.all_facts()
    states: collections.Counter[str] = collections.Counter()
    for job in jobs:
        report = facts.get(job.id, {})
        state = report.get("job_state", "?")
        states[state] += 1
        if state in "REC" and node_of(report):
            job.moments.setdefault("started", time.monotonic())
        if state == "C":
            job.moments.setdefault("ended", time.monotonic())
            job.exit_status = int(report["exit_status"]) if "exit_status" in report else None
        assert state != "H", f"job {job.id} is held: {report}"
        assert state != "?" or "ended" in job.moments, f"the server has lost job {job.id}"
    return states["Q"]


def delete(site: Site, job: Job) -> None:
    """By its owner; a job that is over by then is his misfortune."""
    job.moments["cancelled"] = time.monotonic()
    done = site.on("fe", *site.batch.cancel, job.id, user=job.user)
    assert done.returncode == 0 or any(arguments in done.stderr for arguments in site.batch.too_late), done.stderr


def play(site: Site, jobs: list[Job], report: t.Callable[[str], None]) -> None:
    """Submit, cancel and watch, until all are over."""
    handed: list[Job] = []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        work: list[concurrent.futures.Future[None]] = []
        while len(handed) < len(jobs) or any("ended" not in job.moments for job in handed):
            open_ones = [job for job in handed if "ended" not in job.moments]
            waiting = look(site, open_ones)
            now = time.monotonic()
            for job in open_ones:
                if job.due(now):
                    job.moments["cancelled"] = now
                    work.append(pool.submit(delete, site, job))
            for job in jobs[len(handed) :][: max(0, min(2, WAITING - waiting))]:
                submit(site, job)
                handed.append(job)
            over = len(handed) - sum("ended" not in job.moments for job in handed)
            report(f"{over} of {len(jobs)} jobs are over, {waiting} wait")
            time.sleep(0.5)
    for one in work:
        one.result()


def outputs(site: Site) -> dict[str, str]:
    """What all jobs have written, by the file's name."""
    script = 'for file in /home/*/soak/*.out; do echo "== $file"; cat "$file"; done'
    parts = site.root("fe", script).split("== /home/")[1:]
    return {f"/home/{head}": body for head, newline, body in (part.partition("\n") for part in parts)}


def check(batch: Batch, job: Job, out: str | None) -> None:
    """Is it as its script and its owner wanted it?"""
    seen = (job.exit_status, out)
    as_it_wanted = (job.status, f"{job.word}\n")
    if job.cancel is None or "cancelled" not in job.moments:
        assert seen == as_it_wanted, f"{job}: {out!r}"
    else:
        # the script was through, was ended, or never began
        report = out or ""
        killed = {batch.cancelled, batch.cancelled - TERM_TO_KILL}
        never_ran = NEVER_RAN | {batch.cancelled, batch.cancelled_early}
        assert (
            seen == as_it_wanted
            or (job.exit_status in killed and f"{job.word}\n".startswith(report.partition("vtorque: ")[0]))
            or (job.exit_status in never_ran and job.word not in report)
        ), f"{job}: {out!r}"


@contextlib.contextmanager
def watched(site: Site) -> t.Iterator[list[tuple[float, str, float]]]:
    """Look at the programs of ours on all nodes; the list is filled by the end."""
    text = (pathlib.Path(__file__).parent / "watch_hooks.py").read_text(encoding="utf-8")
    seen: list[tuple[float, str, float]] = []
    watchers = [
        subprocess.Popen(
            [*LAB, "on", node, "--", "/usr/bin/python3", "-I", "-c", text], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=site.environment, cwd=pathlib.Path(__file__).resolve().parents[3],
        )
        for node in NODES
    ]  # fmt: skip
    try:
        for one in watchers:
            assert one.stdout is not None
            assert one.stdout.readline() == "true\n"
        yield seen
        for one in watchers:
            seen += [(began, program, mib) for began, program, mib in json.loads(one.communicate("")[0])]
    finally:
        for one in watchers:
            one.kill()
            one.communicate()
    seen.sort()


def long_lived(site: Site) -> dict[str, float]:
    """The memory of what lives long on each node, in MiB, and what there is of files and neighbours there."""
    shape = "comm,rss"
    found: dict[str, float] = {}
    for node in NODES:
        for line in site.root(node, f"ps -eo {shape} --no-headers").splitlines():
            name, kib = line.rsplit(maxsplit=1)
            if name.strip() in LONG_LIVED:
                key = f"{node}: {name.strip()}"
                found[key] = max(found.get(key, 0.0), int(kib) / MIB)
        count = "ls -d /proc/$(cat /run/libvirtd.pid)/fd/* | wc -l"
        found[f"{node}: libvirtd's open files"] = float(site.root(node, count))
        found[f"{node}: neighbours"] = float(site.root(node, "ip neigh show nud all | wc -l"))
    return found


def quarters(values: t.Sequence[float]) -> tuple[list[float], list[float]]:
    """The first and the last quarter of what came one after the other."""
    size = max(1, len(values) // 4)
    return list(values[:size]), list(values[-size:])


def check_flat(what: str, first: float, last: float) -> None:
    """Has it grown?"""
    assert last <= max(first * GROWTH, first + SLACK_MIB), f"{what} grew from {first:.1f} to {last:.1f}"


def seconds_of_hooks(site: Site, jobs: t.Sequence[Job]) -> dict[str, list[float]]:
    """How long prologue and epilogue took, by the records on the nodes, in the order of the jobs."""
    script = 'for file in /var/lib/vtorque/records/*/record.json; do cat "$file" && echo; done'
    records = {}
    for node in NODES:
        for line in site.root(node, script).splitlines():
            if line.strip():
                record = json.loads(line)
                if record.get("phases"):
                    records[record["job_id"]] = record["phases"]
    found: dict[str, list[float]] = {"prologue": [], "epilogue": []}
    for job in jobs:
        for hook, values in found.items():
            if job.cancel is None and not job.pair and hook in records.get(site.full_id(job.id), {}):
                values.append(records[site.full_id(job.id)][hook]["seconds"])
    return found


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> t.Callable[[str], None]:
    """Says on the terminal how far it is, when that is another word than before."""
    last = [""]

    def say(text: str) -> None:
        if text != last[0]:
            last[0] = text
            with capsys.disabled():
                print(f"  {text}", flush=True)

    return say


@pytest.mark.both
def test_many_jobs(site: Site, report: t.Callable[[str], None]) -> None:
    """Every status right, nothing left, nothing grown."""
    site.root("fe", "for user in alice bob; do rm -rf /home/$user/soak; install -d -o $user /home/$user/soak; done")
    jobs = make_jobs(JOBS, SEED)
    report(f"{JOBS} jobs of {len(USERS)} users, VTORQUE_SEED={SEED}")
    first = JOBS // 4
    with watched(site) as programs:
        play(site, jobs[:first], report)  # also what is made once
        before = long_lived(site)
        play(site, jobs[first:], report)
        after = long_lived(site)
    output = outputs(site)
    for job in jobs:
        check(site.batch, job, output.get(job.out))
    cancelled = [job for job in jobs if "cancelled" in job.moments]
    ends = collections.Counter(str(job.exit_status) for job in cancelled)
    assert {program for began, program, mib in programs} >= {"hook prologue", "hook epilogue"}
    for what, value in sorted(after.items()):
        report(f"{what}: {before[what]:.1f} after a quarter of the jobs, {value:.1f} in the end")
    for program in sorted({program for began, program, mib in programs}):
        early, late = quarters([mib for began, name, mib in programs if name == program])
        report(f"{program}: at most {max(early):.1f} MiB in the first quarter, {max(late):.1f} MiB in the last")
        if len(jobs) >= ENOUGH:
            check_flat(program, max(early), max(late))
    for hook, seconds in seconds_of_hooks(site, jobs).items():
        early, late = quarters(seconds)
        medians = (statistics.median(early), statistics.median(late))
        report(f"{hook}: {medians[0]:.2f} s in the first quarter, {medians[1]:.2f} s in the last")
        if len(jobs) >= ENOUGH:  # the quickest of many: what else is at work on the machine does not slow down each
            assert min(late) <= SLOWER * min(early), f"{hook} took {min(early):.2f} s, and {min(late):.2f} s in the end"
    if len(jobs) >= ENOUGH:
        for what, value in after.items():
            check_flat(what, before[what], value)
    report(f"{len(jobs)} jobs were right; {len(cancelled)} cancelled, with status {dict(ends)}")
