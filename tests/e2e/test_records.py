# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job was doing, asked by its owner after its end."""

from __future__ import annotations

import contextlib
import json
import typing as t
import xml.etree.ElementTree as ET

import pytest

from .conftest import Ended, Site

START_WAYS = ("fast",)  # figures of what a boot reads
WORK = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done\n"


@pytest.mark.both
def test_owner_is_told_what_happened_and_nobody_else_is(site: Site) -> None:
    """On the job's first node and on the front end: what it used, its log, its console, its picture."""
    ended = site.job(stdin=WORK)
    assert ended.out == "done\n"
    site.wait_for("the record on the front end", lambda: site.stored("fe", ended.job_id))
    for host in (ended.node, "fe"):
        tells_all(site, host, ended.job_id)
        refuses(site, host, ended.job_id)
    site.wait_for(
        "a word in the log",
        lambda: "was handed over to fe" in site.stored(ended.node, ended.job_id, name="vtorque.log"),
    )


@pytest.mark.both
@pytest.mark.full
def test_owner_is_told_of_the_guests_of_all_nodes(site: Site) -> None:
    """What each used, and its console, on the first node and on the front end."""
    guests = site.batch.guests
    job_id = site.submit(*site.batch.two, "-vm", f"vcpus=1,ram=192M,vms_per_node={guests}", stdin=WORK)
    ended = site.end(job_id)
    site.wait_for("the record on the front end", lambda: site.stored("fe", job_id))
    for host in (ended.node, "fe"):
        found = json.loads(site.on(host, "vmgr", "job", "show", job_id, "--json", user="alice").stdout)["guests"]
        names = [f"vcn{node}-{slot}" for node in (1, 2) for slot in range(1, guests + 1)]
        assert sorted(guest["name"] for guest in found) == names
        assert all(guest["used"]["cpu_s"] > 0 for guest in found)
        for guest in found:
            done = site.on(host, "vmgr", "job", "console", job_id, "--guest", guest["name"], user="alice")
            assert done.returncode == 0, done.stderr
            assert f" {guest['address']}" in done.stdout.partition("vtorque-ready")[2]
        refuses(site, host, job_id)


@pytest.mark.both
def test_front_end_takes_no_record_but_of_the_jobs_first_node(site: Site) -> None:
    """Another node's root, who can reach the program, cannot write into a job's record."""
    ended = site.job(stdin="true\n")
    other = next(node for node in ("cn1", "cn2") if node != ended.node)
    site.wait_for("the record on the front end", lambda: site.stored("fe", ended.job_id))
    before = site.stored("fe", ended.job_id)
    record = json.dumps({"job_id": site.full_id(ended.job_id), "start": 1, "user": "bob"})
    head = {"version": 2, "job_id": site.full_id(ended.job_id), "start": 1}
    output = f"{json.dumps(head)}\n{json.dumps({'files': [['record.json', len(record)]]})}\n{record}"
    done = site.on(other, "ssh", "fe", "/opt/vtorque/bin/vtorque-record", stdin=output)
    assert done.returncode != 0
    assert f"not its mother superior {ended.node}" in done.stderr
    assert site.stored("fe", ended.job_id) == before
    assert site.on("fe", "vtorque-record", stdin="{}").returncode != 0


@pytest.mark.both
@pytest.mark.full
def test_job_ends_as_ever_when_there_is_no_front_end_for_its_record(site: Site) -> None:
    """A line in its log says so."""
    with no_vtorque_record(site):
        ended = site.job(stdin="echo on; exit 3\n")
    assert (ended.out, ended.err, ended.exit_status) == ("on\n", "", 3)
    site.wait_for(
        "a word in the log",
        lambda: "was not handed over to fe" in site.stored(ended.node, ended.job_id, name="vtorque.log"),
    )
    assert site.stored("fe", ended.job_id) == ""
    assert waits(site, ended)


@pytest.mark.both
@pytest.mark.full
def test_record_waits_on_its_node_while_the_front_end_is_away(site: Site) -> None:
    """Nothing is late or lost: the sweep hands it over, where its accounting is read also when the server has forgotten
    the job by then.
    """
    with no_sshd(site):
        ended = site.job(stdin="echo on; exit 3\n")
        assert (ended.out, ended.err, ended.exit_status) == ("on\n", "", 3)
        wait_for_word(site, ended, "was not handed over to fe: ssh: connect to host fe", "it waits on this node")
        output = site.on("fe", "vmgr", "job", "show", ended.job_id, user="alice")
        assert output.returncode == 2
        assert f"its record has not arrived: it is on {ended.node}, which hands it over to fe" in output.stderr
        let_time_pass(site, ended)
        swept = site.on(ended.node, "vtorque-sweep")
        assert swept.returncode == 0
        assert f"record   {site.full_id(ended.job_id)}.1: was not handed over to fe" in swept.stdout
        assert waits(site, ended)
    assert spool_finding(site, ended.node)["state"] == "warn"
    site.forget(ended.job_id)
    assert site.stored("fe", ended.job_id) == ""
    let_time_pass(site, ended)
    swept = site.on(ended.node, "vtorque-sweep")
    assert f"record   {site.full_id(ended.job_id)}.1: was handed over to fe" in swept.stdout
    assert site.stored("fe", ended.job_id) == site.stored(ended.node, ended.job_id)
    assert json.loads(site.stored("fe", ended.job_id))["exit_status"] == 3
    assert "finished, exit status 3" in site.on("fe", "vmgr", "job", "show", ended.job_id, user="alice").stdout
    refuses(site, "fe", ended.job_id)
    assert not waits(site, ended)
    assert spool_finding(site, ended.node)["state"] == "ok"
    assert "was handed over to fe" in site.stored(ended.node, ended.job_id, name="vtorque.log")


@pytest.mark.both
@pytest.mark.full
def test_record_waits_while_the_front_ends_disk_is_full(site: Site) -> None:
    """And nothing half written is seen there."""
    with full_disk(site):
        ended = site.job(stdin="true\n")
        wait_for_word(site, ended, "was not handed over to fe", "No space left on device", "it waits on this node")
        assert site.root("fe", f"cd {RECORDS} && ls -A").split() == ["filled"]
    assert waits(site, ended)
    let_time_pass(site, ended)
    assert site.on(ended.node, "vtorque-sweep").returncode == 0
    assert site.stored("fe", ended.job_id) == site.stored(ended.node, ended.job_id) != ""
    assert not waits(site, ended)


@pytest.mark.both
@pytest.mark.full
def test_jobs_own_first_node_adds_to_records_and_changes_none(site: Site) -> None:
    """What it sends once more is known; what differs, has no end, names a path or meets a link is refused."""
    ended = site.job(stdin="true\n")
    site.wait_for("the record on the front end", lambda: site.stored("fe", ended.job_id))
    wait_for_word(site, ended, "was handed over to fe")
    key = f"{RECORDS}/{site.full_id(ended.job_id)}.1"
    before = site.root("fe", f"cd {key} && ls -li && cat *")
    record = site.stored(ended.node, ended.job_id)

    def send(record: str, *files: tuple[str, int]) -> tuple[int, str]:
        sizes = [list(one) for one in files] or [["record.json", len(record)]]
        output = "".join(f"{json.dumps(line)}\n" for line in (
            {"version": 2, "job_id": site.full_id(ended.job_id), "start": 1}, {"files": sizes},
        ))  # fmt: skip
        done = site.on(ended.node, "ssh", "fe", "/opt/vtorque/bin/vtorque-record", stdin=output + record)
        return done.returncode, done.stderr

    assert send(record) == (0, "")
    status, arguments = send(json.dumps({**json.loads(record), "exit_status": 1}))
    assert (status, "another record of it is kept here, and stays" in arguments) == (4, True)
    for name, size in (("record.json", 1 << 40), ("../../../../root/x", 2), ("/root/x", 2), ("authorized_keys", 2)):
        assert send("{}", (name, size))[0] == 1
    assert send(json.dumps({**json.loads(record), "owner": "bob"}))[0] == 1
    assert site.root("fe", f"cd {key} && ls -li && cat *") == before
    site.root("fe", f"mv {key} /root/kept && mkdir /root/target && ln -s /root/target {key}")
    try:
        status, arguments = send(record)
        assert (status, "is not a directory" in arguments) == (1, True)
        assert site.root("fe", "ls -A /root/target") == ""
    finally:
        site.root("fe", f"rm {key} && mv /root/kept {key} && rmdir /root/target")


@pytest.mark.full
def test_owner_sees_what_the_prologue_does_when_he_asks(site: Site) -> None:
    """In the job's error file, before what the job itself writes there."""
    done = site.on("fe", "env", "SHOW_LOG=true", "vsub", user="alice", stdin="echo mine >&2\n")
    assert done.returncode == 0, done.stderr
    *printed, mine = site.end(done.stdout.strip()).err.splitlines()
    assert mine == "mine"
    assert len(printed) > 3
    assert all(line.startswith("vtorque: ") for line in printed)
    assert any("TASK [" in line for line in printed)


RECORDS = "/var/lib/vtorque/records"
SSHD = "/usr/sbin/sshd -f /etc/ssh/sshd_config -E /var/log/sshd.log"


@contextlib.contextmanager
def no_sshd(site: Site) -> t.Iterator[None]:
    """The front end does not answer ssh."""
    site.root("fe", "kill $(cat /run/sshd.pid) && while [ -e /run/sshd.pid ]; do sleep 0.1; done")
    try:
        yield
    finally:
        site.root("fe", SSHD)


@contextlib.contextmanager
def full_disk(site: Site) -> t.Iterator[None]:
    """The front end has no room for records."""
    site.root("fe", f"mkdir -p {RECORDS} && mount -t tmpfs -o size=64k,mode=755 tmpfs {RECORDS}")
    site.root("fe", f"dd if=/dev/zero of={RECORDS}/filled bs=4k count=64 2>/dev/null || true")
    try:
        yield
    finally:
        site.root("fe", f"umount {RECORDS}")


def wait_for_word(site: Site, ended: Ended, *arguments: str) -> None:
    """Wait until the log on the job's first node has a line with all of this."""

    def there() -> bool:
        lines = site.stored(ended.node, ended.job_id, name="vtorque.log").splitlines()
        return any(all(word in line for word in arguments) for line in lines)

    site.wait_for(
        f"{arguments} in the log", there, seen=lambda: site.stored(ended.node, ended.job_id, name="vtorque.log")
    )


def let_time_pass(site: Site, ended: Ended) -> None:
    """The record was closed two hours ago, and was tried last an hour ago."""
    key = f"{site.full_id(ended.job_id)}.1"
    site.root(ended.node, f"touch -d '2 hours ago' {RECORDS}/{key}/record.json")
    site.root(ended.node, f"touch -d '1 hour ago' /var/lib/vtorque/spool/{key}")


def waits(site: Site, ended: Ended) -> bool:
    """Is the record marked as one that the front end has not got?"""
    return f"{site.full_id(ended.job_id)}.1" in site.root(ended.node, "ls -A /var/lib/vtorque/spool").split()


def spool_finding(site: Site, node: str) -> dict[str, str]:
    """What the node's doctor says of it."""
    report = json.loads(site.on(node, "vmgr", "doctor", "--local", "--json").stdout)
    (finding,) = (one for one in report["findings"] if one["check"] == "spool")
    return t.cast("dict[str, str]", finding)


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

    def vmgr(*arguments: str) -> str:
        done = site.on(host, "vmgr", "job", *arguments, user="alice")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert site.full_id(job_id) in [one["job_id"] for one in json.loads(vmgr("list", "--json"))]
    assert job_id in vmgr("list")
    facts = json.loads(vmgr("show", number, "--json"))
    assert (facts["state"], facts["exit_status"], facts["user"]) == ("finished", 0, "alice")
    (guest,) = facts["guests"]
    for key in ("cpu_s", "ram_peak_bytes", "read_bytes", "received_bytes", "sent_bytes"):
        assert guest["used"][key] > 0, key
    printed = vmgr("show", number)
    assert "finished, exit status 0" in printed
    assert guest["name"] in printed
    assert f"prologue of job {job_id}" in vmgr("log", number)
    console = vmgr("console", number, "--guest", guest["name"])
    assert "vtorque-ready" in console
    assert "\x1b" not in console
    picture = ET.fromstring(vmgr("report", number, "--svg", "-"))
    row = f"{guest['name']} on {guest['node']}"
    assert row in {text.text for text in picture.iter() if text.tag.endswith("text")}
    page = vmgr("report", number, "--html", "-")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "<svg" in page
    assert row in page
    assert job_id in page


def refuses(site: Site, host: str, job_id: str) -> None:
    """bob learns nothing of it."""
    for verb in ("show", "log", "console"):
        done = site.on(host, "vmgr", "job", verb, job_id, user="bob")
        assert (done.returncode, done.stdout) == (2, ""), verb
        assert "not yours to read" in done.stderr
    listed = site.on(host, "vmgr", "job", "list", "--json", user="bob")
    assert listed.returncode == 0
    assert job_id not in listed.stdout
