# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A week of a site that does not exist, the same each time: records, jobs and nodes, for pages of the site."""

from __future__ import annotations

import datetime
import json
import pathlib
import random
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob, BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import PREFIX
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.site_report.facts import Sources

NOW = datetime.datetime(2026, 11, 26, 15, 40).timestamp()
IMAGES = {"debian12@4": 14.0, "debian12@3": 15.5, "rocky9@2": 21.0, "osv-app@1": 0.8}
"""Typical seconds of a boot."""
USERS = ("alice", "bob", "carol", "dave", "erin")
NAMES = ("relax", "cfd-mesh", "train-42", "blast.sh", "STDIN", "md_equil", "assemble", "render-frames")
HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</title></style><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&amp;",
    "' onmouseover='alert(1)",
    "abc\u202egnp.exe\u202c",
    "\u2066\u2067\u2068isolates without an end",
    "\u05d0\u05d1\u05d2\u0645\u0631\u062d\u0628\u0627",
    "\x1b[2J\x1b]0;owned\x07\x1b[31mred",
    "line\nfeed\r\ttab\x00null\x85\u2028\u2029",
    "zero\u200bwidth\ufeff\u00adhyphen",
    "Z\u0321\u0322\u0327\u0330\u0331\u0332a\u0321\u0322" + "\u0300\u0301\u0302\u0303" * 20,
    "\ufdfd" * 40,
    "W" * 400,
    "half\ud800",
    "javascript:alert(1)",
    "-->]]><!--",
    "   ",
    "",
)
"""Names of jobs of each bad sort: markup, templates, bidirectional controls, terminals, line ends, width, height."""


def record(number: int, ended: float, dice: random.Random, **changes: t.Any) -> dict[str, t.Any]:
    """Return the record of a start, as the epilogue leaves it."""
    image = dice.choices(list(IMAGES), weights=(60, 14, 20, 6))[0]
    nodes = sorted(dice.sample([f"cn{node:02}" for node in range(1, 17)], k=dice.choice((1, 1, 1, 2, 4))))
    boot = IMAGES[image] * dice.lognormvariate(0, 0.18)
    run = dice.choice((4, 40, 600, 3600, 9000)) * dice.lognormvariate(0, 0.5)
    start = 1.2 + boot
    began = ended - run - start - 1.0
    others = random.Random(number)  # what is drawn later changes nothing of the rest
    waiting = others.choice((0.002, 0.004, 0.01, 0.12))
    watts, how = others.uniform(120, 260), others.choice(("measured", "measured", "estimated"))
    seconds = {"disk": 0.12, "seed": 0.05, "start": 0.35, "address": boot * 0.45, "ready": boot * 0.55 - 0.3}
    guests = [
        {
            "rank": rank, "name": f"v{node}-1", "node": node, "image": image, "vcpus": 7, "ram_mib": 24576,
            "seconds": seconds,
            "used": {"cpu_s": run * 7 * dice.uniform(0.2, 0.98), "ram_peak_bytes": 2**33, "wait_s": run * 7 * waiting},
        }
        for rank, node in enumerate(nodes)
    ]  # fmt: skip
    spans: dict[str, tuple[float, float]] = {
        "prologue": (began, start), "plan": (began + 0.3, 0.02),
        **{f"present.{node}": (began + 0.5, boot + 0.3) for node in nodes},
        **{f"absent.{node}": (ended - 0.9, 0.5) for node in nodes}, "epilogue": (ended - 1.0, 1.0),
    }  # fmt: skip
    phases = {name: {"began": begin, "seconds": length} for name, (begin, length) in spans.items()}
    return {
        "version": 1, "job_id": f"{number}.head", "start": 1, "user": dice.choice(USERS), "name": dice.choice(NAMES),
        "request": {"img": image}, "nodes": nodes, "guests": guests, "phases": phases, "ended": ended,
        "energy": {node: {"joules": round(watts * (start + run), 1), "how": how} for node in nodes},
        "exit_status": dice.choices((0, 1, 271), weights=(90, 7, 3))[0], **changes,
    }  # fmt: skip


def failed(fault: str, action: str, node: str = "") -> dict[str, t.Any]:
    """Return what is another way in the record of a start that failed."""
    refusal = {"refusal": {"what": "secret", "why": "of the owner"}} if action == "refuse" else {}
    verdict = {"fault": fault, "action": action, "node": node}
    return {"verdict": verdict, "guests": [], "exit_status": None, "energy": {}, **refusal}


def end_at_once(found: dict[str, t.Any]) -> None:
    """Take the guests out of the times of a start that failed."""
    phases = found["phases"]
    begin, took = phases["prologue"]["began"], phases["prologue"]["seconds"]
    found["phases"] = {
        "prologue": phases["prologue"], "epilogue": {"began": begin + took + 0.2, "seconds": 0.4},
    }  # fmt: skip


def records(count: int, names: t.Sequence[str] = ()) -> list[dict[str, t.Any]]:
    """Return the records of a week: so many starts, the last ones with these names."""
    dice = random.Random(28)
    ways: list[dict[str, t.Any]] = [
        {}, failed("user", "refuse"), failed("image", "refuse"), failed("node", "requeue", "cn07"),
        failed("site", "requeue"), failed("site", "hold"), {"lost": {"guest": "vcn03-1", "node": "cn03"}},
    ]  # fmt: skip
    moments = sorted(NOW - dice.triangular(60, 6.6 * 86400, 2 * 86400) for _one in range(count))
    found = []
    for number, moment in enumerate(moments):
        changes = dict(dice.choices(ways, weights=(88, 4, 1, 3, 2, 1, 1))[0])
        place = number - count + len(names)
        changes |= {"name": names[place], "user": names[place]} if place >= 0 else {}
        found.append(record(4711 + number, moment, dice, **changes))
        if "verdict" in changes:
            end_at_once(found[-1])
    return found


def jobs(names: t.Sequence[str] = ()) -> tuple[BatchJob, ...]:
    """Return jobs of the batch server: some that run, some that wait, and one that is none of vTorque's."""
    empty: dict[str, t.Any] = {
        "owner_host": "fe", "egroup": "users", "queue": "batch", "jobtype": "", "init_work_dir": "/home",
        "session_id": 0, "substate": 42, "interactive": False, "variables": {}, "submit_args": "",
        "resource_list": {}, "account": "",
    }  # fmt: skip
    chosen = names or ("cfd-mesh", "train-43", "md_equil", "relax", "assemble", "blast.sh")
    found = []
    for number, name in enumerate(chosen):
        user = names[number] if names else USERS[number % len(USERS)]
        letter = "RRSRQQ"[number % 6] if not names else "R"
        nodes = (f"cn{number % 16 + 1:02}", f"cn{(number + 5) % 16 + 1:02}")[: number % 2 + 1] if letter in "RS" else ()
        found.append(
            BatchJob(
                job_id=f"{6000 + number}.head", name=name, owner_user=user, euser=user, state=letter, slot_hosts=nodes,
                start_count=1, x=f"{PREFIX}1:e30=", walltime_s=7200, started_s=int(NOW) - 700 * (number + 1), **empty,
            )
        )  # fmt: skip
    bare = BatchJob(
        job_id="7000.head", name="bare", owner_user="bob", euser="bob", state="R", slot_hosts=("cn16",), start_count=1,
        x="", walltime_s=60, started_s=int(NOW) - 5, **empty,
    )  # fmt: skip
    return (*found, bare)


def nodes(count: int = 16, notes: t.Sequence[str] = ()) -> tuple[BatchNode, ...]:
    """Return nodes of the batch server, two with a note."""
    notes = notes or ("vtorque: disk: /var/lib/vtorque has 0 of 20 GiB left (job 5120.head)", "new kernel on Monday")
    found = []
    for number in range(1, count + 1):
        note = notes[number - 7] if 7 <= number < 7 + len(notes) else ""
        states = {"offline"} if note else {"job-exclusive"} if number < 5 else {"free"}
        jobs_here = frozenset({"6000.head"}) if number < 5 else frozenset()
        found.append(BatchNode(f"cn{number:02}", frozenset(states), 8, 49152, frozenset({"vm"}), note, jobs_here))
    return tuple(found)


def read(raw: t.Mapping[str, t.Any]) -> job_record.JobRecord:
    """Return a record as it is read."""
    return job_record.JobRecord(raw["job_id"], raw["start"], pathlib.Path("/nonexistent"), "", dict(raw))


def sources(count: int = 900, names: t.Sequence[str] = (), **changes: t.Any) -> Sources:
    """Return what the page of the week is made of.

    Args:
        count: starts of jobs.
        names: of jobs and users, also notes of nodes, in place of usual ones.
        changes: to the sources.
    """
    found = [read(json.loads(json.dumps(one))) for one in records(count, names)]
    usual: dict[str, t.Any] = {
        "now": NOW, "host": "fe", "records": found[::-1], "unread": 0, "jobs": jobs(names),
        "nodes": nodes(40 if names else 16, names), "fault": "", "names_public": True,
    }  # fmt: skip
    return Sources(**{**usual, **changes})
