# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is printed and how requests are read, against the outputs recorded on TORQUE 6.1.3."""

from __future__ import annotations

import dataclasses
import errno
import os
import pathlib
import re
import time
import xml.etree.ElementTree as ET

import pytest

from lab.torque import recorder
from lab.torque.commands import directives, submit
from lab.torque.mom import jobfiles
from lab.torque.server import look, nodes
from lab.torque.shared import attributes, job, options, resources, show
from lab.torque.shared.errors import RequestError
from lab.torque.shared.options import UsageError

RECORDED = recorder.RECORDED


def recorded_text(name: str) -> list[tuple[str, str]]:
    """Labels and folded values of a `qstat -f`."""
    return re.findall(r"^    (\S+) = (.*(?:\n\t.*)*)", (RECORDED / name).read_text(), re.M)


def recorded_xml(name: str) -> list[show.Attribute]:
    """The attributes of the one job of a `qstat -x -f`."""
    (element,) = ET.fromstring((RECORDED / name).read_text())
    found: list[show.Attribute] = []
    for child in list(element)[1:]:
        if len(child):
            found += [(child.tag, inner.tag, inner.text or "") for inner in child]
        else:
            found.append((child.tag, "", child.text or ""))
    return found


def a_job(**changes: object) -> job.Job:
    """The recorded job `fx`, as our server would keep it."""
    asked = {"nodes": "2:ppn=2", "walltime": "10:00"}
    one = job.Job(
        id="11.th",
        seq=11,
        name="fx",
        user="alice",
        uid=1001,
        group="alice",
        submit_host="th",
        server="th",
        queue="batch",
        script="true\n",
        asked=asked,
        resources=resources.complete(asked, {"nodes": "1", "walltime": "01:00:00"}),
        variables={"PBS_O_QUEUE": "batch", "A": "1"},
        submit_args="-N fx",
        error_path="th:/home/alice/fx.e11",
        output_path="th:/home/alice/fx.o11",
        init_work_dir="/home/alice",
        ctime=1795178493,
        rank=108,
    )
    return dataclasses.replace(one, **changes)  # type: ignore[arg-type]


FINISHED = {
    "comment": "Job started on Fri Nov 20 at 12:41",
    "comp_time": 1,
    "etime": 1,
    "exit_status": 0,
    "group_list": "alice",
    "hosts": [("t2", [0, 1]), ("t1", [0, 1])],
    "mtime": 1,
    "qtime": 1,
    "shell": "/bin/bash",
    "start_count": 1,
    "state": "C",
    "substate": 59,
    "used": {"cput": "00:00:00", "vmem": "0kb", "walltime": "00:00:00", "mem": "0kb", "energy_used": "0"},
    "x": "vtorque:eyJ2IjoxfQ",
}


@pytest.mark.parametrize("name", ["qstat-f-running-2-nodes.txt", "qstat-f-complete-2-nodes.txt"])
def test_values_are_folded_as_recorded(name: str) -> None:
    made_neutral_after_folding = {"Variable_List"}
    for label, value in recorded_text(name):
        if label not in made_neutral_after_folding:
            assert show.fold(label, value.replace("\n\t", "")) == value


def test_a_folded_value_unfolds_to_itself() -> None:
    value = ",".join(f"NAME{number}=" + "v" * number for number in range(1, 200))
    folded = show.fold("Variable_List", value)
    assert folded.replace("\n\t", "") == value
    assert max(len(line) for line in folded.split("\n")) <= 78


def test_a_complete_job_has_the_recorded_attributes_in_their_order() -> None:
    ours = attributes.job_attributes(a_job(**FINISHED), is_owner=True, is_manager=True)
    theirs = recorded_xml("qstat-x-f-complete-2-nodes.xml")
    assert [(name, resource) for name, resource, _value in ours] == [(name, resource) for name, resource, _ in theirs]


def test_a_held_job_has_the_recorded_attributes_in_their_order() -> None:
    held = a_job(holds="u", state="H", substate=20, mtime=1, qtime=1, asked={})
    held.resources = resources.complete({}, {"nodes": "1", "walltime": "01:00:00"})
    ours = attributes.job_attributes(held, is_owner=True, is_manager=True)
    theirs = recorded_xml("qstat-x-f-held.xml")
    assert [(name, resource) for name, resource, _value in ours] == [(name, resource) for name, resource, _ in theirs]


def test_a_running_member_of_an_array_has_the_recorded_attributes_in_their_order() -> None:
    member = a_job(
        **{**FINISHED, "state": "R", "used": {}, "exit_status": None, "comp_time": 0, "group_list": "", "x": ""},
        index=1,
        id="12[1].th",
        seq=12,
    )
    member.shell = ""
    member.resources = resources.complete({"nodes": "1"}, {"nodes": "1", "walltime": "01:00:00"})
    ours = attributes.job_attributes(member, is_owner=True, is_manager=True)
    theirs = recorded_xml("qstat-x-f-array-member-running.xml")
    assert [(name, resource) for name, resource, _value in ours] == [(name, resource) for name, resource, _ in theirs]
    assert dict((name, value) for name, _r, value in ours)["hashname"] == "12-1.th"


def test_an_arrays_parent_has_the_recorded_attributes_in_their_order() -> None:
    *_others, parent = ET.fromstring((RECORDED / "qstat-x-f-array-parent.xml").read_text())
    assert parent.findtext("Job_Id") == "12[].th"
    ours = a_job(id="12[].th", array="1-2", mtime=1, etime=1, hosts=[])
    names = [name for name, _resource, _value in attributes.job_attributes(ours, is_owner=True, is_manager=True)]
    assert list(dict.fromkeys(names)) == [child.tag for child in list(parent)[1:]]


def test_the_xml_is_the_recorded_one_byte_for_byte_when_the_values_are() -> None:
    text = (RECORDED / "qstat-x-f-complete-2-nodes.xml").read_text()
    made = show.job_xml("11.th", recorded_xml("qstat-x-f-complete-2-nodes.xml"))
    assert f'<?xml version="1.0"?>\n<Data>{made}</Data>\n' == text


def test_the_text_is_the_recorded_one_when_the_values_are() -> None:
    labelled = recorded_text("qstat-f-complete-2-nodes.txt")
    split = [(*label.partition(".")[::2], value.replace("\n\t", "")) for label, value in labelled]
    timeless = [entry for entry in split if entry[0] not in show.TIME_ATTRIBUTES and entry[0] != "Variable_List"]
    made = show.job_text("11.th", timeless)
    theirs = (RECORDED / "qstat-f-complete-2-nodes.txt").read_text()
    assert made.splitlines() == [
        line
        for line in re.sub(r"    Variable_List = .*(?:\n\t.*)*\n", "", theirs).splitlines()
        if not re.match(r"    (ctime|mtime|qtime|etime|start_time|comp_time) = ", line)
    ]


def test_times_are_written_as_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert "    ctime = Fri Nov 20 12:41:33 2026\n" in show.job_text("1.fe", [("ctime", "", "1795178493")])
    monkeypatch.undo()
    time.tzset()


def test_variables_are_shown_to_owner_and_manager_only() -> None:
    def names(is_owner: bool, is_manager: bool) -> set[str]:
        return {name for name, _r, _v in attributes.job_attributes(a_job(**FINISHED), is_owner, is_manager)}

    assert "Variable_List" not in names(False, False)
    assert "Variable_List" in names(True, False)
    assert {"Variable_List", "substate", "hashname"} <= names(False, True)
    assert "x" in names(False, False)


def test_the_short_table_is_the_recorded_one() -> None:
    lines = (RECORDED / "qstat-t-array.txt").read_text().splitlines(keepends=True)
    assert "".join(lines[:2]) == look.HEADER
    plain = {"Job_Name": "arr-1", "euser": "alice", "job_state": "R", "queue": "batch"}
    assert look._row("12[1].th", plain, []) == lines[-2]
    used: list[show.Attribute] = [("resources_used", "cput", "00:00:00")]
    assert look._row("11.th", {**plain, "Job_Name": "fx", "job_state": "C"}, used) == lines[-3]


def test_nodes_are_written_as_recorded() -> None:
    recorded = ET.fromstring((RECORDED / "pbsnodes-x.xml").read_text())
    printed = [
        (node.findtext("name") or "", [(child.tag, "", child.text or "") for child in list(node)[1:]])
        for node in recorded
    ]
    text = "\n".join(show.node_text(name, entries) for name, entries in printed) + "\n"
    assert text == (RECORDED / "pbsnodes.txt").read_text()
    xml = "".join(show.node_xml(name, entries) for name, entries in printed)
    assert f"<Data>{xml}</Data>" == (RECORDED / "pbsnodes-x.xml").read_text().strip()


def test_a_nodes_attributes_are_the_recorded_ones_in_their_order() -> None:
    status = dict.fromkeys(["opsys"], "linux")
    node = nodes.Node("t1", 2, connected=True, usages={"12[1].th": [0], "12[2].th": [1]}, status=status)
    recorded = ET.fromstring((RECORDED / "pbsnodes-x.xml").read_text())[0]
    ours = node.attributes()
    assert [name for name, _r, _v in ours] == [child.tag for child in list(recorded)[1:]]
    values = {name: value for name, _r, value in ours}
    assert (values["state"], values["jobs"]) == ("job-exclusive", "0/12[1].th,1/12[2].th")


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"nodes": "1"}, "nodes nodect neednodes walltime"),
        ({"nodes": "1", "walltime": "5"}, "nodes walltime nodect neednodes"),
        ({}, "nodes walltime nodect neednodes"),
    ],
)
def test_the_resource_list_has_the_recorded_order(asked: dict[str, str], names: str) -> None:
    assert list(resources.complete(asked, {"nodes": "1", "walltime": "01:00:00"})) == names.split()


@pytest.mark.parametrize("name", ["unknown", "neednodes", "nodect"])
def test_an_unknown_resource_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="15037"):
        resources.complete({name: "1"}, {"nodes": "1", "walltime": "01:00:00"})


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("#!/bin/sh\n#PBS -N a\ntrue\n#PBS -N b\n", [["-N", "a"]]),
        ("#PBS -l nodes=2 \\\n -N a\ntrue\n", [["-l", "nodes=2", "-N", "a"]]),
        ("#PBS -v 'A=b c' -N \"x y\"\\ z\n", [["-v", "A=b c", "-N", "x y z"]]),
        ("\n# a comment\n  #PBS -N a\n:\n#PBS -V\n", [["-N", "a"], ["-V"]]),
        ("  true\n#PBS -N a\n", []),
        ("#PBSN\n", [["N"]]),
    ],
)
def test_directives_are_read_as_qsub_reads_them(script: str, found: list[list[str]]) -> None:
    assert list(directives.read(script, "#PBS")) == found


def test_another_prefix_and_no_prefix() -> None:
    script = "#PBS -N a\n#XYZ -N b\n"
    assert list(directives.read(script, "#XYZ")) == [["-N", "b"]]
    assert list(directives.read(script, "")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x=a", [("x", "a")]),
        ("x=a,b", [("x", "a,b")]),
        ("x=a,group_list=b", [("x", "a"), ("group_list", "b")]),
        ("x=vtorque:eyJ2IjoxfQ", [("x", "vtorque:eyJ2IjoxfQ")]),
    ],
)
def test_additional_attributes(text: str, found: list[tuple[str, str]]) -> None:
    assert submit.split_additional(text) == found


@pytest.mark.parametrize("arguments", [["-y"], ["-N"], ["--what"]])
def test_unknown_options_are_refused(arguments: list[str]) -> None:
    with pytest.raises(options.UsageError):
        options.parse(arguments, submit.LETTERS)


def three() -> nodes.Nodes:
    return nodes.Nodes(nodes.Node(f"t{number}", 2, ("fast",) * (number == 3), connected=True) for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("spec", "exec_host"),
    [
        ("1", "t1/0"),
        ("2:ppn=2", "t2/0-1+t1/0-1"),
        ("t3+t1:ppn=2", "t3/0+t1/0-1"),
        ("1:fast", "t3/0"),
        ("fast:ppn=2+1", "t3/0-1+t1/0"),
        ("4", None),
        ("1:ppn=3", None),
        # of a node that is named again: an entry of its own, in front when it is the node that is named first
        ("t1+t2+t1", "t1/0+t1/1+t2/0"),
        ("t2:ppn=2+t1+t2", None),
        ("t1+t2+t3+t2", None),  # more than there are
        ("t1+t2+t1+t2+t3", None),
        ("t2+2", "t2/0+t2/1+t1/0"),
        ("2+1", "t2/0+t1/0+t1/1"),
    ],
)
def test_placement(spec: str, exec_host: str | None) -> None:
    hosts = three().place(spec, exclusive=False)
    assert (a_job(hosts=hosts).exec_host if hosts else None) == exec_host


def test_a_node_may_stand_in_exec_host_again_after_another() -> None:
    """With four nodes: a specification may not name more than there are."""
    four = nodes.Nodes(nodes.Node(f"t{number}", 4, connected=True) for number in (1, 2, 3, 4))
    hosts = four.place("t1:ppn=2+t2+t3+t2:ppn=3", exclusive=False)
    assert hosts is not None
    placed = a_job(hosts=hosts)
    assert placed.exec_host == "t1/0-1+t2/0+t3/0+t2/1-3"
    assert placed.names == ["t1", "t2", "t3"]
    four.take(placed)
    assert four.place("t2", exclusive=False) is None


@pytest.mark.parametrize("spec", ["nowhere", "1:slow", "0", "1:ppn=x", ""])
def test_a_nodes_specification_that_means_nothing_is_refused(spec: str) -> None:
    with pytest.raises(RequestError):
        three().parts(spec)


@pytest.mark.parametrize("state", ["offline", "fault", "unconnected", "exclusive"])
def test_a_node_that_is_not_free_gets_no_job(state: str) -> None:
    some = three()
    node = some.by_name["t1"]
    node.offline, node.fault, node.connected = state == "offline", state * (state == "fault"), state != "unconnected"
    node.exclusive = "1.th" * (state == "exclusive")
    hosts = some.place("1", exclusive=False)
    assert hosts == [("t2", [0])]


@pytest.mark.parametrize(
    ("text", "indices", "limit"), [("1-3", [1, 2, 3], None), ("7", [7], None), ("1,4-5%2", [1, 4, 5], 2)]
)
def test_array_requests(text: str, indices: list[int], limit: int | None) -> None:
    assert job.parse_array(text) == (indices, limit)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("A=1,B=two", ["A=1", "B=two"]),
        ('A="q",B=a\\\\b', ['A="q"', "B=a\\b"]),
        ("ODD=it's", ["ODD=it's"]),
    ],
)
def test_variables_of_v_keep_their_quotes(text: str, parts: list[str]) -> None:
    """Tried on TORQUE 6.1.3 built from its sources."""
    assert submit.split_list(text) == parts


@pytest.mark.parametrize("text", ['A="x,y"', 'A=x\\,y"', "a b=1"])
def test_comma_of_v_is_not_protected(text: str) -> None:
    """qsub: invalid -v syntax."""
    with pytest.raises(UsageError):
        submit.split_list(text)


def test_stream_of_a_user_is_opened_without_creating_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where fs.protected_regular is 2, as systemd sets it, not even root may say O_CREAT of a user's file there."""
    real = os.open

    def protected(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not flags & os.O_EXCL and os.path.exists(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", protected)
    files, account = jobfiles.JobFiles(tmp_path), jobfiles.Account("me", os.getuid(), os.getgid(), (), "/", "/bin/sh")
    files.make_home()
    for text in (b"of the job", b", of its epilogue"):
        with os.fdopen(files.open_stream(a_job(), jobfiles.OUT, account), "wb") as stream:
            stream.write(text)
    assert files.stream(a_job(), jobfiles.OUT).read_bytes() == b"of the job, of its epilogue"
