# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before and after every step of the hooks and of Ansible's process, in a real job over two nodes each.

What a step is, `superior.py` takes from the code that is installed on the nodes, over which it lies while the test
lasts.  The step's program is killed, raises, finds the disk full, or hangs; then the job is looked at, and what is left
of it.  Its guests boot nothing, so that its script runs nowhere: where it did, that was a node.
`make test-faults` tries every fault, `make test` one in 300 (`VTORQUE_FAULTS`), the same for the same `VTORQUE_SEED`;
`VTORQUE_FAULT='play prologue raises'` only those in whose line in the report these words stand.

It has been seen to fail: without `shell_links.remove_run` in the epilogue the look after the fault named "run record
/run/vtorque/jobs/34.fe.2".
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import re
import time
import typing as t

import pytest

from tests.bench.inside import stand_in

from ..conftest import Site
from ..trouble import MOM_CONFIG, NODES, REREAD, SISTER, SUPERIOR, WAITS, changed, drop, sweep, wait_in_guest
from . import superior
from .reported import EVERY_JOB, ONLY, SEED, Progress, end
from .superior import ARMED, REACHED, STRUCK, Point

KINDS = ("killed", "raises", "disk")
PYTHON = "/opt/vtorque/venv/bin/python"
PAIR = ("-l", f"nodes={SUPERIOR}:ppn=1+{SISTER}:ppn=1")
REQUEST = "img=tiny,vcpus=1,ram=64M"
SCRIPT = "echo RAN; hostname\ntouch ~/ran-$PBS_JOBID\n"
"""What it would leave, if it ever ran."""
SHARED = {"pbs_exclusive_node_alloc": False, "kill_user_processes_after_job": False}
RETRIES = 2
SHARES = ((0.0, 0.65), (0.65, 1.0)) if EVERY_JOB == 1 else ((0.0, 1.0),)
"""Of the faults: the whole takes hours, and two labs are there, of which one tries those of a node first."""
JOBS, MISSED, MISSED_SHARE = 3, 2, 0.1
"""What two programs do side by side, the one does or the other: not every job comes to all of its steps.  So many jobs
wait for a fault, and so many faults may find none that comes to them."""
KEEPS = Point("fails", SUPERIOR, "play prologue", "job_record._ready: write_access #1", "before", "raises")
"""What keeps a job of `fails` from its guests."""
SAYS = "main._print_error: os.write #1"
"""The step that says why a job gets no guests."""
NOWHERE = "unreachable 10.0.0.0/8"
"""Where guests are said to be that are nowhere: the job's shell hears that at once, and need not wait for an answer."""
HASTY: dict[str, t.Any] = {"timeout": 25}
ALARM_S = 60
"""For a step that hangs: Torque kills its hook 10 s before that."""
OVER_S = 180.0
BY_ITSELF_S = 25.0
"""For what goes without the sweep: a sister's removal, which nobody waits for."""
NOTHING, ANYTHING = re.compile("(?!)"), re.compile("")
HALVES = re.compile(r"temporary files|/\.[^/ ]+\.[0-9]+$")
"""What a program that is killed leaves when its job's epilogue is well: the half of a file, and what is Ansible's."""
AGED = """
import json, pathlib

START_WAYS = ("fast",)  # a fault stands at each step of a boot
path = pathlib.Path("/run/vtorque/suspects.json")
if path.exists():
    told = json.loads(path.read_text())
    told["suspects"] = {key: first - 120 for key, first in told["suspects"].items()}
    path.write_text(json.dumps(told))
"""
"""The first look of the sweep was two minutes ago."""


def ask(site: Site, node: str, what: str, report: object) -> t.Any:
    """What `cover.py` says on a node."""
    text = (pathlib.Path(__file__).parent / "cover.py").read_text(encoding="utf-8")
    done = site.on(node, PYTHON, "-I", "-c", text, what, stdin=json.dumps(report))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextlib.contextmanager
def covered(site: Site) -> t.Iterator[None]:
    """Steps may fail on both nodes, and guests boot nothing and count as ready at once."""
    try:
        for node in NODES:
            uncover(site, node)
            wanted = {"modules": [*superior.WALKED, *superior.STAND_INS], "templates": [superior.TEMPLATE]}
            sources = ask(site, node, "sources", wanted)
            texts, _places = superior.covers(sources["modules"])
            for name, short in superior.STAND_INS.items():
                texts[name] = stand_in.replaced(sources["modules"][name], short)
            rom = (b"\0" * 0xFFF0 + stand_in.HALT).ljust(0x10000, b"\0").decode("latin-1")
            template = stand_in.with_rom(sources["templates"][superior.TEMPLATE])
            files = {str(stand_in.ROM): rom, str(stand_in.TEMPLATES / superior.TEMPLATE): template}
            ask(site, node, "put", {"modules": texts, "files": files})
            site.root(node, f"ip route add {NOWHERE}")
        yield
    finally:
        for node in NODES:
            uncover(site, node)


def uncover(site: Site, node: str) -> None:
    """The node is as it was installed; done again it does nothing."""
    ask(site, node, "away", None)
    site.root(node, f"rm -f {ARMED} {REACHED} {STRUCK}; ip route del {NOWHERE} 2>/dev/null || :")


@contextlib.contextmanager
def beside(site: Site) -> t.Iterator[str]:
    """A job of bob's, in a guest that boots, on the node where most faults are; in the end it ends well."""
    # a queue's own bound may be an hour, in which not every fault is tried
    done = site.vsub("-l", f"nodes={SUPERIOR}:ppn=1,walltime=24:00:00", stdin=WAITS, user="bob")
    assert done.returncode == 0, done.stderr
    job_id = done.stdout.strip()
    try:
        wait_in_guest(site, job_id)
        yield job_id
        assert site.on("fe", "qsig", "-s", "URG", job_id, user="bob").returncode == 0
        ended = site.end(job_id)
        assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")
    finally:
        if site.facts(job_id).get("job_state") != "C":
            site.on("fe", "qdel", job_id, user="bob")


@contextlib.contextmanager
def hasty(site: Site) -> t.Iterator[None]:
    """Torque and the site are in a hurry: a step that hangs takes a minute."""
    try:
        for node in NODES:
            site.root(node, f"echo '$prologalarm {ALARM_S}' >{MOM_CONFIG}; {REREAD}")
        with changed(site, **HASTY):
            yield
    finally:
        for node in NODES:
            site.root(node, f"rm -f {MOM_CONFIG}; {REREAD}")


def arm(site: Site, node: str, *faults: Point) -> None:
    """From now on these steps fail on a node; a whole file or none."""
    done = site.on(
        node,
        "/bin/sh",
        "-c",
        f"rm -f {STRUCK}; cat >{ARMED}.new && mv {ARMED}.new {ARMED}",
        stdin=superior.armed(*faults),
    )
    assert done.returncode == 0, done.stderr


def over(site: Site) -> tuple[str, dict[str, str]]:
    """A job from its submission to where nothing happens to it any more; its id, and the server's last word."""
    job_id = site.submit(*PAIR, "-vm", REQUEST, stdin=SCRIPT)
    facts: dict[str, str] = {}

    def settled() -> bool:
        facts.clear()
        facts.update(site.facts(job_id))
        state = facts.get("job_state", "?")
        # it waits for a node that is offline
        return state in "CH" or (state == "Q" and any("offline" in one.states for one in site.nodes().values()))

    site.wait_for(f"the end of job {job_id}", settled, OVER_S, seen=lambda: facts)
    return job_id, facts


def reached(site: Site, others: set[str], *keeps: Point) -> dict[str, set[str]]:
    """The steps to which a job comes, by node; what it leaves is nothing."""
    for node in NODES:
        site.root(node, f": >{REACHED}")
    for one in keeps:
        arm(site, one.node, one)
    job_id, facts = over(site)
    check_told(site, facts)
    clean(site, job_id, facts)
    check_left(site, others)
    return {node: set(site.root(node, f"cat {REACHED}; rm -f {REACHED} {ARMED}").splitlines()) for node in NODES}


def points_of(site: Site, others: set[str], chance: random.Random) -> list[Point]:
    """Every fault that there is, by what jobs come to; of those that hang, one for each program."""
    runs = reached(site, others)
    assert all(runs.values())
    fails = reached(site, others, KEEPS)
    more = {node: fails[node] - runs[node] for node in NODES}
    there = superior.points("runs", runs, KINDS) + superior.points("fails", more, KINDS)
    programs: dict[tuple[str, str], list[Point]] = {}
    for one in superior.points("runs", runs, ("hangs",)):
        programs.setdefault((one.node, one.who), []).append(one)
    return there + [chance.choice(some) for _program, some in sorted(programs.items())]


def check_told(site: Site, facts: dict[str, str], *, silent: bool = False) -> None:
    """The job ended, is held, or waits for another node; it says so in words; and it ran nowhere, and not for ever.

    Args:
        silent: there was no room for the words.
    """
    out, err = (facts[key].partition(":")[2] for key in ("Output_Path", "Error_Path"))
    assert site.root("fe", f"cat {out} 2>/dev/null; cd /home/alice && ls | grep '^ran-' || :") == "", facts
    err = site.read(err)
    assert int(facts["start_count"]) <= RETRIES, facts
    assert silent or any(line.startswith("vtorque: ") for line in err.splitlines()), (facts, err)
    assert "Traceback" not in err, err
    if facts["job_state"] == "C":
        assert int(facts["exit_status"]) not in (0, -999), facts
    elif facts["job_state"] == "H":
        assert facts["Hold_Types"] == "u", facts
        assert facts["comment"].startswith("vtorque: held: "), facts


def check_nodes(site: Site, point: Point) -> None:
    """None is out of use but for a full disk, and then the one that is full; the administrator takes it back."""
    for name, node in site.nodes().items():
        if point.kind == "disk" and name == point.node and "offline" in node.states:
            assert node.note.startswith("vtorque: disk: "), (point, node)
            site.on("fe", "pbsnodes", "-c", "-N", "", name)
        else:
            assert node.states <= {"free"}, (point, name, node)
            assert not node.note, (point, name, node)


def clean(site: Site, job_id: str, facts: dict[str, str]) -> None:
    """What an owner does afterwards."""
    if facts["job_state"] != "C":
        drop(site, job_id)
        site.wait_state(job_id, "C")


def check_left(site: Site, others: set[str], *, swept: re.Pattern[str] = NOTHING) -> None:
    """Nothing of the job is left.

    Args:
        others: what is bob's.
        swept: what is nobody's afterwards, so that the sweep takes it.
    """
    there: set[str] = set()
    last: list[str] = []

    def gone() -> bool:
        there.clear()
        there.update(site.left_on_nodes())
        last[:] = sorted(there - others)
        return not last

    until = time.monotonic() + BY_ITSELF_S
    while not gone() and time.monotonic() < until and not all(map(swept.search, last)):
        time.sleep(0.2)
    until = time.monotonic() + BY_ITSELF_S
    while last and all(map(swept.search, last)) and time.monotonic() < until:
        sweep_twice(site)
        gone()
    assert not last, f"left: {', '.join(last)}"
    assert others <= there, f"gone is {', '.join(others - there)}"


def sweep_twice(site: Site) -> None:
    """What its timer does within two minutes."""
    for node in NODES:
        sweep(site, node)
        assert site.on(node, PYTHON, "-I", "-c", AGED).returncode == 0
        sweep(site, node)


def try_one(site: Site, point: Point, others: set[str], bobs: str) -> bool:
    """One fault, the job's end, and a look; did the job come to that step?"""
    faults = [point, *([KEEPS] if point.of == "fails" else [])]
    nodes = sorted({one.node for one in faults})
    for node in nodes:
        arm(site, node, *(one for one in faults if one.node == node))
    with hasty(site) if point.kind == "hangs" else contextlib.nullcontext():
        job_id, facts = over(site)
    struck = {node: site.root(node, f"cat {STRUCK}; rm -f {STRUCK} {ARMED}").splitlines() for node in nodes}
    check_told(site, facts, silent=(point.place, point.kind) == (SAYS, "disk"))
    clean(site, job_id, facts)
    check_nodes(site, point)
    killed = HALVES if point.kind in ("killed", "hangs") else NOTHING
    check_left(site, others, swept=ANYTHING if "epilogue" in point.who else killed)
    mine = site.facts(bobs)
    assert (mine["job_state"], mine["start_count"]) == ("R", "1"), mine
    return point.word in struck[point.node]


@pytest.mark.parametrize(("begin", "end_"), SHARES)
def test_nothing_is_left_after_a_fault_at_a_step_of_the_mother_superior(
    site: Site, capsys: pytest.CaptureFixture[str], record_property: t.Callable[[str, object], None],
    begin: float, end_: float,
) -> None:  # fmt: skip
    """Each fault, the end of the job, and a look; all that came of it is told at the end."""
    chance = random.Random(SEED)
    progress = Progress(f"mother superior, {begin:.0%} to {end_:.0%}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(capsys.disabled())
        stack.enter_context(changed(site, ("fe",), **SHARED))
        bobs = stack.enter_context(beside(site))
        stack.enter_context(changed(site, node_fault_retries=RETRIES))
        stack.enter_context(covered(site))
        others = set(site.left_on_nodes())
        points = [one for one in points_of(site, others, chance) if ONLY in str(one)]
        tried = points[chance.randrange(min(EVERY_JOB, len(points))) :: EVERY_JOB]
        tried = tried[int(begin * len(tried)) : int(end_ * len(tried))]
        progress.begin(len(tried), len(points))
        for point in tried:
            report = len(progress.wrong)
            with progress.told_if_wrong(str(point)):
                if not any(try_one(site, point, others, bobs) for _job in range(JOBS)):
                    progress.miss(str(point))
                    continue
            if len(progress.wrong) > report:
                put_right(site, bobs)
            record_property("tried", str(point))
            progress.one(f"{point.who} {point.kind}")
        end([progress])
    assert progress.wrong == []
    assert len(progress.missed) <= max(MISSED, MISSED_SHARE * len(tried)), progress.missed


def put_right(site: Site, bobs: str) -> None:
    """The next fault shall not be found guilty of what this one left."""
    for node in NODES:
        site.root(node, f"rm -f {ARMED} {STRUCK}")
    jobs = [job_id for job_id, state in site.jobs().items() if state != "C" and job_id != bobs]
    if jobs:
        site.on("fe", "qdel", *jobs)
        for job_id in jobs:
            site.wait_state(job_id, "C")
    site.on("fe", "pbsnodes", "-c", "-N", "", *NODES)
    sweep_twice(site)
