# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job was doing, asked by its owner after its end."""

from __future__ import annotations

import contextlib
import json
import typing as t
import xml.etree.ElementTree as ET

from .conftest import Site

WORK = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done\n"


def test_owner_is_told_what_happened_and_nobody_else_is(site: Site) -> None:
    """On the job's first node and on the front end: what it used, its log, its console, its picture."""
    ended = site.job(stdin=WORK)
    assert ended.out == "done\n"
    site.wait_for("the record on the front end", lambda: site.kept("fe", ended.job_id))
    for host in (ended.node, "fe"):
        tells_all(site, host, ended.job_id)
        refuses(site, host, ended.job_id)
    site.wait_for(
        "a word in the log",
        lambda: "was handed over to fe" in site.kept(ended.node, ended.job_id, name="vtorque.log"),
    )


def test_front_end_takes_no_record_but_of_the_jobs_first_node(site: Site) -> None:
    """Another node's root, who can reach the program, cannot write into a job's record."""
    ended = site.job(stdin="true\n")
    other = next(node for node in ("cn1", "cn2") if node != ended.node)
    site.wait_for("the record on the front end", lambda: site.kept("fe", ended.job_id))
    before = site.kept("fe", ended.job_id)
    record = json.dumps({"job_id": ended.job_id, "start": 1, "user": "bob"})
    head = {"version": 2, "job_id": ended.job_id, "start": 1}
    said = f"{json.dumps(head)}\n{json.dumps({'files': [['record.json', len(record)]]})}\n{record}"
    done = site.on(other, "ssh", "fe", "/opt/vtorque/bin/vtorque-record", stdin=said)
    assert done.returncode != 0
    assert f"not its mother superior {ended.node}" in done.stderr
    assert site.kept("fe", ended.job_id) == before
    assert site.on("fe", "vtorque-record", stdin="{}").returncode != 0


def test_job_ends_as_ever_when_there_is_no_front_end_for_its_record(site: Site) -> None:
    """A line in its log says so."""
    with no_vtorque_record(site):
        ended = site.job(stdin="echo on; exit 3\n")
    assert (ended.out, ended.err, ended.exit_status) == ("on\n", "", 3)
    site.wait_for(
        "a word in the log",
        lambda: "was not handed over to fe" in site.kept(ended.node, ended.job_id, name="vtorque.log"),
    )
    assert site.kept("fe", ended.job_id) == ""


def test_owner_sees_what_the_prologue_does_when_he_asks(site: Site) -> None:
    """In the job's error file, before what the job itself writes there."""
    done = site.on("fe", "env", "SHOW_LOG=true", "vsub", user="alice", stdin="echo mine >&2\n")
    assert done.returncode == 0, done.stderr
    *shown, mine = site.end(done.stdout.strip()).err.splitlines()
    assert mine == "mine"
    assert len(shown) > 3
    assert all(line.startswith("vtorque: ") for line in shown)
    assert any("TASK [" in line for line in shown)


@contextlib.contextmanager
def no_vtorque_record(site: Site) -> t.Iterator[None]:
    """The front end has not got the program."""
    program = "/opt/vtorque/bin/vtorque-record"
    site.root("fe", f"mv {program} {program}.away")
    try:
        yield
    finally:
        site.root("fe", f"mv {program}.away {program}")


def tells_all(site: Site, host: str, job_id: str) -> None:
    """Everything that `vmgr job` has for alice."""
    number = job_id.partition(".")[0]

    def vmgr(*words: str) -> str:
        done = site.on(host, "vmgr", "job", *words, user="alice")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert job_id in [one["job_id"] for one in json.loads(vmgr("list", "--json"))]
    assert job_id in vmgr("list")
    facts = json.loads(vmgr("show", number, "--json"))
    assert (facts["state"], facts["exit_status"], facts["user"]) == ("finished", 0, "alice")
    (guest,) = facts["guests"]
    for key in ("cpu_s", "ram_peak_bytes", "read_bytes", "received_bytes", "sent_bytes"):
        assert guest["used"][key] > 0, key
    shown = vmgr("show", number)
    assert "finished, exit status 0" in shown
    assert guest["name"] in shown
    assert f"prologue of job {job_id}" in vmgr("log", number)
    console = vmgr("console", number, "--guest", guest["name"])
    assert "vtorque-ready" in console
    assert "\x1b" not in console
    picture = ET.fromstring(vmgr("report", number, "--svg", "-"))
    assert f"{guest['name']} on {guest['node']}" in {text.text for text in picture.iter() if text.tag.endswith("text")}


def refuses(site: Site, host: str, job_id: str) -> None:
    """bob learns nothing of it."""
    for verb in ("show", "log", "console"):
        done = site.on(host, "vmgr", "job", verb, job_id, user="bob")
        assert (done.returncode, done.stdout) == (2, ""), verb
        assert "not yours to read" in done.stderr
    listed = site.on(host, "vmgr", "job", "list", "--json", user="bob")
    assert listed.returncode == 0
    assert job_id not in listed.stdout
