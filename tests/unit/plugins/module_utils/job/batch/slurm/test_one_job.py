# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One job by questions about it alone says what the answer with all jobs of that moment says."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib
import re
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import exclusive
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import adapter, answers, ids
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.questions import one_job
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.vm_job import vm_job_of

from ..contract import slurm_stand_in

RECORDED = pathlib.Path(__file__).resolve().parents[6] / "fixtures/slurm/one-job"
MOMENTS = {"a": (24, 25, 26, 27, 29), "b": (28, 30, 31), "c": (32,)}
JOBS = [(moment, number) for moment, numbers in MOMENTS.items() for number in numbers]
FORGED, MEMBER = 24, 29


def facts(number: int) -> bytes:
    return gzip.decompress((RECORDED / f"{number}.facts.gz").read_bytes())


def detail(number: int) -> str:
    return (RECORDED / f"{number}.detail").read_text()


def everything(moment: str) -> bytes:
    return (RECORDED / f"{moment}.json").read_bytes()


def row_of(number: int) -> one_job.Row:
    rows = one_job.read_rows(facts(number), one_job.FACTS)
    return one_job.pick(rows, JobID=str(number))


def known(number: int, text: str | None = None) -> answers.JobAnswer:
    form = one_job.form_of(row_of(number), detail(number) if text is None else text)
    return answers.read_job(form, f"{number}.lab")


@pytest.mark.parametrize(("moment", "number"), JOBS)
def test_job_is_the_one_of_the_answer_with_all(moment: str, number: int) -> None:
    (form,) = (one for one in json.loads(everything(moment))["jobs"] if one["job_id"] == number)
    expected, seen = answers._job(form, f"{number}.lab"), known(number).job
    # when a job that waits may start is no start of it; Slurm writes it as it is asked, in whole seconds
    assert dataclasses.replace(seen, started_s=0) == dataclasses.replace(expected, started_s=0)
    assert bool(seen.started_s) == bool(expected.started_s)


NEWER = RECORDED.parent / "24.11/one-job"
NEWER_JOBS = sorted(file.stem for file in NEWER.glob("*.detail"))
"""Of 24.11.5, by moment and by which name the job was asked for."""


@pytest.mark.parametrize("recorded", NEWER_JOBS)
def test_job_of_24_11_is_the_one_of_the_answer_with_all(recorded: str) -> None:
    moment, _dash, name = recorded.partition("-")
    rows = one_job.read_rows(gzip.decompress((NEWER / f"{recorded}.facts.gz").read_bytes()), one_job.FACTS)
    _named, wanted = ids.read_name(name.replace("-", "+"))
    row = one_job.pick(rows, **wanted)
    job_id = one_job.id_of(row)
    everybodys = {job.job_id: job for job in answers.parse_jobs((NEWER / f"{moment}.json").read_bytes())}
    assert not [job for job in everybodys.values() if job.owner_user != "alice"], "each job is in form"
    seen = answers.read_job(one_job.form_of(row, (NEWER / f"{recorded}.detail").read_text()), job_id).job
    expected = everybodys[job_id]
    # which devices a job has on each node, the answer with all does not tell; and where no administrator has written
    # anything, a line of its user's counts for that
    same = {"started_s": 0, "granted": (), "comment": ""}
    assert dataclasses.replace(seen, **same) == dataclasses.replace(expected, **same)  # type: ignore[arg-type]
    assert seen.comment in (expected.comment, "mine")
    assert bool(seen.started_s) == bool(expected.started_s)


@pytest.mark.parametrize(
    ("recorded", "state", "hosts", "more"),
    [
        ("a-1", "R", 3, {"name": "n;$(id) b\n   JobId=7 JobState=COMPLETED", "account": "acc\nx"}),
        ("a-2", "C", 1, {"exit_status": 37}),
        ("a-3_1", "R", 1, {"alias": "3_1", "walltime_s": 300}),
        ("a-5", "H", 0, {"hold_types": "u"}),
        ("b-6", "S", 1, {}),
        ("b-7", "R", 2, {"node_exclusive": True, "walltime_s": 420}),
        ("b-8", "R", 1, {"interactive": True}),
        ("b-1", "C", 3, {"exit_status": 143}),
        ("d-6", "Q", 0, {"start_count": 1}),
        ("d-7", "H", 0, {"hold_types": "u", "start_count": 1}),
        ("e-9", "E", 1, {}),
        ("f-11", "R", 1, {"alias": "11+0"}),
        ("f-11-1", "R", 1, {"alias": "11+1"}),
        ("h-13", "E", 1, {}),
        ("i-14", "H", 0, {"hold_types": "s", "start_count": 1}),
        ("g-16", "R", 2, {"granted": ("cn1/gpu/0", "cn2/gpu/0")}),
        ("g-17", "R", 1, {"granted": ("cn1/gpu/1",)}),
    ],
)
def test_job_of_24_11_is_what_it_was(recorded: str, state: str, hosts: int, more: dict[str, t.Any]) -> None:
    _moment, _dash, name = recorded.partition("-")
    rows = one_job.read_rows(gzip.decompress((NEWER / f"{recorded}.facts.gz").read_bytes()), one_job.FACTS)
    row = one_job.pick(rows, **ids.read_name(name.replace("-", "+"))[1])
    job = answers.read_job(one_job.form_of(row, (NEWER / f"{recorded}.detail").read_text()), one_job.id_of(row)).job
    assert (job.state, len(job.slot_hosts)) == (state, hosts)
    assert {key: getattr(job, key) for key in more} == more


@pytest.mark.parametrize(
    ("column", "line", "alone", "shared"),
    [
        ("NO", "OverSubscribe=NO Contiguous=0", True, False),
        ("OK", "OverSubscribe=OK Contiguous=0", False, False),
        ("YES", "OverSubscribe=YES Contiguous=0", False, True),
        ("TOPO", "OverSubscribe=TOPO Contiguous=0", False, False),
        ("NO", "OverSubscribe=NO Exclusive=NODE Contiguous=0", True, False),
        ("NO", "OverSubscribe=NO Exclusive=NO Contiguous=0", False, False),
        ("NO", "OverSubscribe=NO Exclusive=USER Contiguous=0", False, False),
        ("OK", "OverSubscribe=OK Exclusive=NO Contiguous=0", False, True),
        ("YES", "OverSubscribe=YES Exclusive=NO Contiguous=0", False, True),
        ("NO", "OverSubscribe=NO Exclusive=NO C=1\n   OverSubscribe=NO Exclusive=NODE C=0", False, False),
        ("OK", "OverSubscribe=OK Contiguous=0\n   OverSubscribe=NO Exclusive=NODE C=0", False, True),
    ],
)
def test_job_is_alone_where_slurm_says_so_and_not_its_user(column: str, line: str, alone: bool, shared: bool) -> None:
    """READ, not recorded: lines with `Exclusive=` are those of src/scontrol/info_job.c of 26.05.3."""
    text = detail(MEMBER)
    text = text.replace(re.search("OverSubscribe=.*", text)[0], line)  # type: ignore[index]
    job = answers.read_job(one_job.form_of({**row_of(MEMBER), "OverSubscribe": column}, text), f"{MEMBER}.lab").job
    assert (job.node_exclusive, job.slots_shared) == (alone, shared)


@pytest.mark.parametrize("of_set", ["", "   HetJobIdSet=31-32\n"])
def test_line_with_the_sluid_of_25_11_is_read(of_set: str) -> None:
    """READ, not recorded: src/scontrol/info_job.c of 25.11.7 writes it below the name of a job."""
    text = detail(31).replace("JobName=alone\n", f"JobName=alone\n   SLUID=s0HZAX8RM9ZG00\n{of_set}")
    assert one_job.read_detail(text, row_of(31))[0] == [("cn1", 2, 2048)]


@pytest.mark.parametrize(("moment", "number"), JOBS)
def test_stand_in_writes_what_slurm_wrote(moment: str, number: int) -> None:
    data = everything(moment)
    who = slurm_stand_in.answer(data, one_job.question(one_job.WHO, str(number)))
    assert who is not None
    rows = one_job.read_rows((RECORDED / f"{number}.who").read_bytes(), one_job.WHO)
    theirs = one_job.read_rows(who, one_job.WHO)
    assert one_job.pick(rows, JobID=str(number))["State"] == one_job.pick(theirs, JobID=str(number))["State"]
    long = slurm_stand_in.answer(data, one_job.question(one_job.FACTS, str(number)))
    assert long is not None
    seen, wrote = one_job.pick(one_job.read_rows(long, one_job.FACTS), JobID=str(number)), row_of(number)
    # of these the answer with all has other words than squeue: of an array that waits, a job that has not begun, salloc
    differing = {"StartTime", "ArrayTaskID", "STDOUT", "BatchHost"}
    assert {key: seen[key] for key in seen if key not in differing} == {
        key: wrote[key] for key in wrote if key not in differing
    }
    printed = slurm_stand_in.answer(data, ("scontrol", "-d", "show", "job", one_job.name_of(wrote)))
    assert printed is not None
    assert one_job.read_detail(printed.decode(), wrote) == one_job.read_detail(detail(number), wrote)


def test_job_whose_user_wrote_what_slurm_writes_cannot_start_and_is_where_it_is() -> None:
    job = known(FORGED).job
    assert (job.state, set(job.nodes), job.start_count) == ("R", {"cn1", "cn2"}, 1)
    text = detail(FORGED)
    forged = text.replace("Account=acc\nx", "Account=acc\n     Nodes=cn9 CPU_IDs=0-7 Mem=9 GRES=\n   MinCPUsNode=1\nx")
    job = known(FORGED, forged).job
    assert set(job.nodes) == {"cn1", "cn2"}
    with pytest.raises(Exception, match="cannot be read"):
        vm_job_of(job)


FORGED_BLOCK = (
    "\n     Nodes=cn[1-2] CPU_IDs=0-63 Mem=999999 GRES=gpu:8(IDX:0-7)\n   MinCPUsNode=1 HetJobId=31 HetJobOffset=1 "
)
"""What cut the true lines away, when a text of the user's before them had it."""


@pytest.mark.parametrize(
    ("true", "forged"),
    [
        ("JobName=alone", f"JobName=alone{FORGED_BLOCK}"),
        ("JobName=alone", f"JobName=alone\n   UserId=alice(1001){FORGED_BLOCK}"),
        ("QOS=(null)", f"QOS=(null) WCKey=x{FORGED_BLOCK}"),
        ("Nodes=cn1 CPU_IDs", "Nodes=cn2 CPU_IDs"),
        ("Nodes=cn1 CPU_IDs", "Nodes=cn[1-2] CPU_IDs"),
        ("     Nodes=cn1 CPU_IDs=0-1 Mem=2048 GRES=\n", "     Nodes=cn1 CPU_IDs=0 Mem=1 GRES=\n" * 2),
    ],
    ids=["renamed meanwhile", "renamed with a line more", "wckey", "another node", "one more", "twice"],
)
def test_what_a_job_was_given_is_never_what_its_user_wrote(true: str, forged: str) -> None:
    job = known(31).job
    assert (job.nodes, len(job.slot_hosts), job.resource_list["mem"]) == (("cn1",), 2, "2048mb")
    text = detail(31)
    assert true in text
    job = known(31, text.replace(true, forged)).job
    assert (job.nodes, job.granted) == (("cn1",), ())
    assert job.resource_list["mem"] == "0mb"
    with pytest.raises(Exception, match="cannot be read"):
        vm_job_of(job)


@pytest.mark.parametrize(
    ("cpus", "listed", "slots"),
    [
        ("4", ("0-3", "0-3"), (2, 2)),
        ("6", ("0-7", "8-11"), (4, 2)),
        ("6", ("0-3", "0-3"), (3, 3)),
        ("3", ("0-1", "4"), (2, 1)),
    ],
    ids=["all threads of a core listed", "of unlike shares", "half a core", "as counted"],
)
def test_slots_are_those_that_slurm_counts_and_not_the_threads_that_it_lists(
    cpus: str, listed: tuple[str, str], slots: tuple[int, int]
) -> None:
    """Lists as Slurm 22.05.8 wrote them where CPUs= is the number of cores and ThreadsPerCore=2."""
    first, second = listed
    text = detail(FORGED).replace("cn1 CPU_IDs=0-1 ", f"cn1 CPU_IDs={first} ")
    text = text.replace("cn2 CPU_IDs=0 ", f"cn2 CPU_IDs={second} ")
    form = one_job.form_of({**row_of(FORGED), "NumCPUs": cpus}, text)
    assert answers.read_job(form, f"{FORGED}.lab").job.slot_hosts == ("cn1",) * slots[0] + ("cn2",) * slots[1]


@pytest.mark.parametrize(("word", "alone"), [("OK", True), ("YES", False), ("NO", True)])
def test_all_slots_of_a_node_are_one_jobs_unless_slurm_gives_them_twice(word: str, alone: bool) -> None:
    """`YES`: recorded in a partition with OverSubscribe=FORCE:2, and with `sbatch -s` in one with YES:2."""

    class Batch:
        def node(self, name: str) -> BatchNode:
            return BatchNode(name, frozenset({"job-exclusive"}), 1, 1000, frozenset(), "")

    form = one_job.form_of({**row_of(MEMBER), "OverSubscribe": word}, detail(MEMBER))
    job = answers.read_job(form, f"{MEMBER}.lab").job
    assert exclusive.is_exclusive(job, "cn2", lambda: t.cast(t.Any, Batch())) is alone


def test_memory_of_a_job_is_not_counted_where_slurm_gives_none() -> None:
    """Recorded on 22.05.8 with SelectTypeParameters=CR_Core, of the site or of the job's partition."""
    assert not known(MEMBER).job.memory_uncounted
    assert known(MEMBER, detail(MEMBER).replace("Mem=1024 ", "Mem=0 ")).job.memory_uncounted
    assert not known(27).job.memory_uncounted, "it waits"


def test_job_that_leaves_its_nodes_one_by_one_is_still_read() -> None:
    text, row = detail(31).replace("Nodes=cn1 CPU_IDs", "Nodes=cn[1-2] CPU_IDs"), {**row_of(31), "NumCPUs": "4"}
    assert one_job.read_detail(text, row)[0] is None
    given, _note, _devices = one_job.read_detail(text, {**row, "State": "COMPLETING"})
    assert given == [("cn1", 2, 2048), ("cn2", 2, 2048)]
    assert one_job.read_detail(text, {**row, "State": "COMPLETING", "NodeList": "cn3"})[0] is None


def test_first_of_a_set_of_jobs_is_asked_for_by_its_offset() -> None:
    """Its number means them all, and what follows would be another job's."""
    row = {**row_of(31), "HetJobID": "31", "HetJobOffset": "0"}
    assert one_job.question_of_detail(row, "31")[-1] == "31+0"
    assert one_job.question_of_detail({**row, "HetJobID": "30", "HetJobOffset": "1"}, "31")[-1] == "31"
    assert one_job.question_of_detail(row_of(31), "31")[-1] == "31"
    text = detail(31).replace("JobId=31 ", "JobId=31 HetJobId=31 HetJobOffset=0 ")
    text = text.replace("JobName=alone\n", "JobName=alone\n   HetJobIdSet=31-32\n")
    assert one_job.read_detail(text, row)[0] == [("cn1", 2, 2048)]


def test_processors_and_memory_are_those_of_each_node() -> None:
    given, note, _devices = one_job.read_detail(detail(FORGED), row_of(FORGED))
    assert given == [("cn1", 2, 2048), ("cn2", 1, 1024)]
    assert note == "vtorque: a note of ours (1 of 3)", "not the one in the user's comment"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("8:00", 8), ("1:02:00", 62), ("1-00:00:00", 1440), ("UNLIMITED", None), ("Partition_Limit", None)],
)
def test_limit_of_time_is_read(text: str, minutes: int | None) -> None:
    assert one_job._minutes(text) == minutes


def test_member_of_an_array_has_a_name_of_its_own() -> None:
    assert one_job.name_of(row_of(MEMBER)) == "26_1"
    rows = one_job.read_rows((RECORDED / "26.who").read_bytes(), one_job.WHO)
    assert [one_job.name_of(row) for row in rows] == ["26", "26_1"]


@pytest.mark.parametrize("cut", [1, 7, -1])
def test_answer_that_is_cut_off_is_a_fault(cut: int) -> None:
    data = (RECORDED / "26.who").read_bytes()
    with pytest.raises(SiteFault, match="not of the columns"):
        one_job.read_rows(data[:cut] if cut > 0 else data + b"x", one_job.WHO)


def test_list_of_nodes_that_fills_its_column_is_not_believed() -> None:
    row = {**row_of(31), "NodeList": "n" * one_job.FACTS["NodeList"]}
    with pytest.raises(SiteFault, match="longer than squeue was asked for"):
        one_job.form_of(row, "")


class Recorded(adapter.Slurm):
    """Slurm at one of the moments."""

    def __init__(self, moment: str, **facts: t.Any) -> None:
        super().__init__(pathlib.Path("/nowhere"))
        form = json.loads(everything(moment))
        for job in form["jobs"]:
            job.update(facts)
        self.data = json.dumps(form).encode()

    def _run(self, *command: str, subject: str = "") -> bytes:
        found = slurm_stand_in.answer(self.data, command)
        if found is None:
            raise UnknownJob(f"job {subject}", "Slurm's controller does not know it")
        return found


@pytest.mark.parametrize("named", ["29", "29.lab", "26_1", "26[1]", "26_1.lab", "26[1].lab"])
def test_member_of_an_array_is_found_by_each_of_its_names(named: str) -> None:
    slurm = Recorded("a")
    assert slurm.find_id(named) == "29.lab"
    assert slurm.job("29.lab").alias == "26_1"


@pytest.mark.parametrize("named", ["26_4", "26[4]", "29_1", "4711", "29.other", "26[1].other"])
def test_name_of_another_member_or_cluster_is_unknown(named: str) -> None:
    with pytest.raises(UnknownJob):
        Recorded("a").find_id(named)


def test_part_of_a_set_of_jobs_is_found_by_its_offset() -> None:
    slurm = Recorded("c", het_job_id=32, het_job_offset=0)
    assert slurm.find_id("32+0") == slurm.find_id("32") == "32.lab"
    assert slurm.job("32.lab").alias == "32+0"
    with pytest.raises(SiteFault, match="holds no such jobs"):
        slurm.find_id("32+1")
