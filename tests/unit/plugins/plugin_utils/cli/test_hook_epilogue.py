# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The epilogues, run as the launcher runs them: nothing of the job is left, and its record is closed."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import subprocess
import time

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import installed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    UserFault,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import schema
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer import transfer_format
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import delivery_queue, shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

from .hook_site import GONE, JOB_ID, KEY, NODE, READY, USER, Site, nothing_left, readable_by


def test_epilogue_takes_everything_back_and_closes_the_record(site: Site) -> None:
    assert site.prologue().returncode == 0
    shell_link.point(ProcessId.of(os.getpid()), site.directory, site.run_dir)
    site.make_guest()
    done = site.epilogue("37")
    assert (done.returncode, done.stderr) == (0, "")
    assert site.played()[-1].endswith("mikelangelo.vtorque.epilogue")
    nothing_left(site)
    record = site.record()
    assert (record["exit_status"], record["job_id"], record["start"], record["user"]) == (37, JOB_ID, 3, USER)
    assert record["left"] == []
    assert schema.check(json.dumps(record).encode(), JOB_ID, 3) == record, "what a front end takes"
    assert set(record["phases"]) == {"prologue", "epilogue"}
    assert record["ended"] <= time.time()
    assert record["vtorque"] == installed.version()
    assert f"user:{pwd.getpwnam(USER).pw_uid}:r--" in readable_by(site.state_dir / "records" / KEY / "record.json")


@pytest.mark.parametrize("text", ["", "brigde: br7\n", "record_host: th\n"])
def test_each_hook_opens_the_configuration_once(site: Site, text: str) -> None:
    """Good or not: the playbook, the verdict, the record and what the job left hear of the same one."""
    site.policy(text)
    site.prologue()
    assert site.count_opened() == 1
    site.make_guest()
    site.epilogue("37")
    assert site.count_opened() == 1


def test_record_that_a_front_end_would_refuse_is_closed_and_named_in_the_log(site: Site) -> None:
    assert site.prologue().returncode == 0
    site.make_guest()
    path = site.state_dir / "records" / KEY / "record.json"
    path.write_text(json.dumps({"version": 1, "job_id": JOB_ID, "start": 3, "surplus": "of another version"}))
    path.chmod(0o400)
    assert site.epilogue("37").returncode == 0
    assert (site.record()["exit_status"], site.record()["surplus"]) == (37, "of another version")
    assert "record.json: holds 'surplus'" in (path.parent / "vtorque.log").read_text()


def test_installation_that_was_cut_off_leaves_nothing_of_the_job(site: Site) -> None:
    """Its disk was full: the record does without the version."""
    site.collection = site.place / "collection"
    site.collection.mkdir()
    (site.collection / "MANIFEST.json").write_text('{"collection_info": {"vers')
    assert site.prologue().returncode == 0
    site.make_guest()
    done = site.epilogue("37")
    assert (done.returncode, done.stderr) == (0, "")
    nothing_left(site)
    record = site.record()
    assert record["exit_status"] == 37
    assert "vtorque" not in record


def test_epilogue_keeps_what_the_playbooks_recorded(site: Site) -> None:
    assert site.prologue().returncode == 0
    known = {"version": 1, "guests": [{"name": "vt1-1"}], "phases": {"plan": {"began": 1, "seconds": 2}}, "ended": 5.0}
    files.write(site.state_dir / "records" / KEY / "record.json", json.dumps(known))
    assert site.epilogue("-11").returncode == 0
    record = site.record()
    assert record["guests"] == [{"name": "vt1-1"}]
    assert set(record["phases"]) == {"plan", "prologue", "epilogue"}
    assert (record["exit_status"], record["ended"]) == (-11, 5.0)


def test_record_of_a_start_without_an_exit_status_is_one_that_a_front_end_takes(site: Site) -> None:
    """OpenPBS has none of a start that the hook has queued again."""
    assert site.prologue().returncode == 0
    assert site.epilogue("").returncode == 0
    record = site.record()
    assert "exit_status" not in record
    assert record["ended"] > 0
    assert schema.check(json.dumps(record).encode(), JOB_ID, 3) == record
    of_former_version = {**record, "exit_status": None}
    assert schema.check(json.dumps(of_former_version).encode(), JOB_ID, 3) == of_former_version


def test_epilogue_takes_the_half_of_a_file_whose_writer_is_gone(site: Site) -> None:
    """A prologue that failed ended what noted something for the job's record; who still writes is let alone."""
    assert site.prologue().returncode == 0
    record = site.state_dir / "records" / KEY
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid in (gone.pid, os.getpid()):
        (record / f".alone.json.{pid}").touch()
    assert site.epilogue().returncode == 0
    assert [path.name for path in record.glob(".*")] == [f".alone.json.{os.getpid()}"]
    assert f"half a file removed: .alone.json.{gone.pid}" in (record / "vtorque.log").read_text()


def test_epilogue_hands_the_closed_record_over(site: Site) -> None:
    """The log has a word of what came of it."""
    record = site.state_dir / "records" / KEY / "record.json"
    gone = site.place / "gone"
    os.mkfifo(gone)
    site.program(
        "record",
        f"#!/bin/sh\ncat\n{{ echo $*; cat {record}; }} >{site.place}/sent\necho gone >&2\necho >{gone}\n",
    )
    site.policy("record_host: fe\n")
    assert site.prologue().returncode == 0
    assert site.epilogue("5").returncode == 0
    assert gone.read_text() == "\n"
    called, content = (site.place / "sent").read_text().splitlines()
    assert called == f"--send {JOB_ID} 3"
    assert json.loads(content)["exit_status"] == 5
    assert (record.parent / "vtorque.log").read_text().endswith("gone\n")


@pytest.mark.parametrize(("consoles", "more"), [(32, 0), (33, 1), (40, 8)])
def test_epilogue_says_how_many_consoles_the_front_end_does_not_get(site: Site, consoles: int, more: int) -> None:
    site.policy("record_host: fe\n")
    assert site.prologue().returncode == 0
    place = site.state_dir / "records" / KEY
    for number in range(consoles):
        (place / f"vt1-{number}.console.log").write_text("Linux\n")
    assert site.epilogue("0").returncode == 0
    message = f"consoles that are too many for fe and stay in {place}: "
    output = [line for line in (place / "vtorque.log").read_text().splitlines() if message in line]
    assert [line.rpartition(message)[2] for line in output] == ([str(more)] if more else [])
    handed = [name for name in transfer_format.pack(JOB_ID, 3, place).files if name.startswith("vt1-")]
    assert len(handed) == consoles - more


def announced_by(site: Site, script: str, fifo: pathlib.Path) -> None:
    """A job has begun whose record is announced to a front end by a script, which waits at a FIFO or writes to it."""
    os.mkfifo(fifo)
    site.program("record", f"#!/bin/sh\n{script}\n")
    site.policy("record_host: fe\n")
    assert site.prologue().returncode == 0


def test_epilogue_marks_its_record_before_it_is_announced(site: Site) -> None:
    """Whatever becomes of the hook and of the program that hands it over: the sweep finds it."""
    gone = site.place / "gone"
    announced_by(site, f"ls {site.state_dir}/spool >{site.place}/marked; echo >{gone}; exit 1", gone)
    assert site.epilogue("5").returncode == 0
    assert gone.read_text() == "\n"
    assert (site.place / "marked").read_text() == f"{KEY}\n"
    assert delivery_queue.is_marked(KEY, site.state_dir)


def test_epilogue_marks_nothing_where_no_front_end_gets_records(site: Site) -> None:
    for config in ("", f"record_host: {os.uname().nodename}\n"):
        site.policy(config)
        assert site.prologue().returncode == 0
        assert site.epilogue().returncode == 0
        assert not (site.state_dir / "spool").exists()


def test_epilogue_whose_record_cannot_be_marked_ends_as_ever(site: Site) -> None:
    site.policy("record_host: fe\n")
    assert site.prologue().returncode == 0
    (site.state_dir / "spool").write_text("in the way")
    done = site.epilogue("5")
    assert (done.returncode, done.stderr) == (0, "")
    assert site.record()["exit_status"] == 5


def test_epilogue_waits_for_no_front_end(site: Site) -> None:
    """It ends while the other side has not answered yet, and how that ends changes nothing."""
    gate = site.place / "gate"
    announced_by(site, f"read -r word <{gate}\necho $word >{gate}", gate)
    done = site.epilogue()
    assert (done.returncode, done.stderr) == (0, "")
    nothing_left(site)
    gate.write_text("still there\n")
    assert gate.read_text() == "still there\n"


@pytest.mark.parametrize("config", ["", "record_host: fe\n"])
def test_epilogue_without_a_front_end_or_a_program_for_it(site: Site, config: str) -> None:
    site.policy(config)
    if not config:
        site.program("record", f"#!/bin/sh\n: >{site.place}/sent\n")
    assert site.prologue().returncode == 0
    assert site.epilogue().returncode == 0
    assert not (site.place / "sent").exists()
    nothing_left(site)


def test_epilogue_adds_what_was_asked_for(site: Site) -> None:
    site.job(request=Request({"vcpus": 2, "img": "tiny"}, {}).encode())
    assert site.prologue().returncode == 0
    assert site.epilogue().returncode == 0
    record = site.record()
    assert (record["name"], record["request"]) == ("arr-1", {"img": "tiny", "vcpus": "2"})


@pytest.mark.parametrize("text", ["", "{}", '{"slot_hosts": []}', "[]"])
def test_epilogue_bears_garbage_of_what_was_asked_for(site: Site, text: str) -> None:
    assert site.prologue().returncode == 0
    (site.directory / "job.json").unlink()
    files.write(site.directory / "job.json", text)
    assert site.epilogue().returncode == 0
    assert "request" not in site.record()


def use_of(name: str, cpu_s: float) -> dict[str, object]:
    return {
        "name": name, "cpu_s": cpu_s, "ram_peak_bytes": -1, "read_bytes": 0, "written_bytes": 1, "received_bytes": 2,
        "sent_bytes": 3, "wait_s": 0.5, "io_cores_most": -1, "io_changes": -1,
    }  # fmt: skip


def test_epilogue_adds_what_guests_used(site: Site) -> None:
    """What the nodes answered goes before what was written down on this one; what nobody knows is not there."""
    assert site.prologue().returncode == 0
    place = site.state_dir / "records" / KEY
    guests = [{"name": name} for name in ("va-1", "vb-1", "vb-2")]
    files.write(place / "record.json", json.dumps({"guests": guests}))
    files.write(place / "used.json", json.dumps({"used": [use_of("va-1", 1.0), use_of("vb-1", 7.0)]}))
    files.write(site.directory / "used.b.json", json.dumps({"used": [use_of("vb-1", 2.5), use_of("vc-1", 1)]}))
    files.write(site.directory / "used.d.json", json.dumps({"used": [{"name": "vb-2"}]}))
    assert site.epilogue().returncode == 0
    rest = {"read_bytes": 0, "written_bytes": 1, "received_bytes": 2, "sent_bytes": 3, "wait_s": 0.5}
    first, second, third = site.record()["guests"]
    assert first == {"name": "va-1", "used": {"cpu_s": 1.0, **rest}}
    assert second == {"name": "vb-1", "used": {"cpu_s": 2.5, **rest}}
    assert third == {"name": "vb-2"}


def test_epilogue_puts_what_all_nodes_measured_beside_the_record(site: Site) -> None:
    """And their energy into it; what is not of the form is left out."""
    assert site.prologue().returncode == 0
    guest = {"name": "va-1", "rank": 0, "tag": "t", "points": "0 1 - 1024 1 2 3 4"}
    for node, how, joules in (("a", "measured", 12.5), ("b", "", -1)):
        one = {"node": node, "began": 1.8e9, "every_s": 30, "energy_j": joules, "energy_how": how, "guests": [guest]}
        files.write(site.directory / f"series.{node}.json", json.dumps({"series": [one]}))
    files.write(site.directory / "series.c.json", json.dumps({"series": [{"node": "c"}]}))
    assert site.epilogue().returncode == 0
    assert site.record()["energy"] == {"a": {"joules": 12.5, "how": "measured"}}
    found = json.loads((site.state_dir / "records" / KEY / "series.json").read_text())
    assert [one["node"] for one in found["nodes"]] == ["a", "b"]
    assert found["nodes"][0]["guests"] == [guest]


@pytest.mark.parametrize("name", ["verdict", "lost"])
def test_epilogue_keeps_what_else_was_left_for_the_record(site: Site, name: str) -> None:
    assert site.prologue().returncode == 0
    files.write(site.directory / f"{name}.json", json.dumps({"x": 1}))
    assert site.epilogue().returncode == 0
    assert site.record()[name] == {"x": 1}


def test_epilogue_without_a_prologue_does_nothing(site: Site) -> None:
    done = site.epilogue()
    assert (done.returncode, done.stderr) == (0, "")
    assert not site.run_dir.exists()
    assert not site.state_dir.exists()
    assert site.played() == []


def test_epilogue_keeps_what_other_nodes_tell_of_consoles(site: Site) -> None:
    """Harmless on a terminal, beside what this node itself has, which is longer; and no way out of the directory."""
    assert site.prologue().returncode == 0
    place = site.state_dir / "records" / KEY
    files.write(place / "va-1.console.log", "own\n")
    report = [{"name": "va-1", "end": "theirs"}, {"name": "vb-1", "end": "one\x1b[2J\ntwo\n"}]
    files.write(site.directory / "consoles.b.json", json.dumps({"consoles": report}))
    files.write(site.directory / "consoles.c.json", json.dumps({"consoles": [{"name": "../vc-1", "end": "x"}]}))
    assert site.epilogue().returncode == 0
    found = {path.name: path.read_text() for path in place.glob("*.console.log")}
    assert found == {"va-1.console.log": "own\n", "vb-1.console.log": "one?[2J\ntwo\n"}
    assert not [*place.parent.glob("*.console.log")]


def test_epilogue_of_a_refused_job_leaves_the_reason_in_the_record(site: Site) -> None:
    site.play("printf '%s' '{}' >\"$run_dir/error.json\"; chmod 400 \"$run_dir/error.json\"; exit 2".replace(
        "{}", json.dumps(UserFault("img=x", "no such image").to_dict())))  # fmt: skip
    assert site.prologue().returncode == 0
    assert site.epilogue("1").returncode == 0
    nothing_left(site)
    assert site.record()["refusal"]["what"] == "img=x"
    assert len(site.played()) == 1  # nothing was made: no playbook for its removal
    assert site.asked() == []


@pytest.mark.parametrize("fault", ["exit 4", "sleep 1000", "kill -9 $$"])
def test_epilogue_cleans_by_itself_when_the_playbook_fails(site: Site, fault: str) -> None:
    assert site.prologue().returncode == 0
    (site.torque_home / "mom_priv/config").write_text("$prologalarm 30\n")
    site.make_guest()
    site.play(READY, fault)
    assert site.epilogue().returncode == 0
    assert [part.start for part in site.asked()] == [3]
    nothing_left(site)


def test_epilogue_of_a_half_made_start(site: Site) -> None:
    """Guests and no run directory: a node that was rebooted, a prologue that was killed."""
    site.make_guest()
    (site.run_dir / "jobs").mkdir(parents=True)
    assert site.epilogue("-4").returncode == 0
    assert [part.start for part in site.asked()] == [3]
    nothing_left(site)


def test_epilogue_finds_every_start_of_this_job_and_of_no_other(site: Site) -> None:
    assert site.prologue().returncode == 0
    for key in ("12-1.th.2", "12-11.th.3", "12.th.3", "112-1.th.1"):
        (site.run_dir / "jobs" / key).mkdir()
    assert site.epilogue().returncode == 0
    assert sorted(path.name for path in (site.run_dir / "jobs").iterdir()) == ["112-1.th.1", "12-11.th.3", "12.th.3"]


def test_epilogue_says_what_is_left_and_keeps_no_keys(site: Site) -> None:
    site.node(
        '{"version": 1, "ok": false, "error": {"fault": "node", "what": "vt1-1", "why": "still runs", "hint": ""}}'
    )
    assert site.prologue().returncode == 0
    site.make_guest()
    site.play(READY, "exit 4")
    done = site.epilogue()
    assert done.returncode == 1
    assert "vt1-1: still runs" in done.stderr
    assert list((site.run_dir / "jobs").iterdir()) == []


def test_epilogue_without_a_policy_still_cleans(site: Site) -> None:
    assert site.prologue().returncode == 0
    site.policy("nonsense: 1\n")
    assert site.epilogue().returncode == 0
    nothing_left(site)


@pytest.mark.parametrize("trace", ["state/guests", "run/locks"])
def test_sister_begins_to_remove_what_is_on_it_and_is_not_waited_for(site: Site, trace: str) -> None:
    (site.place / trace / KEY).mkdir(parents=True)
    gate = site.place / "gate"
    os.mkfifo(gate)
    program = NODE.format(place=site.place, answer=GONE).replace("cat >>", f"read word <{gate}; cat >>")
    site.program("node", f'{program}echo "called with $*"\n')
    done = site.epilogue(role="epilogue.parallel")
    assert done.returncode == 0
    assert site.asked() == []
    gate.write_text("go\n")  # opens when the program waits for it
    log = site.state_dir / "records" / KEY / "vtorque.log"
    until = time.monotonic() + 60
    while "called with" not in log.read_text():
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    (part,) = site.asked()
    assert (part.do, part.start, part.node) == ("absent", 3, os.uname().nodename)
    assert not (site.place / "told").exists()
    text = log.read_text()
    assert '"left": []' in text
    assert f"called with --end-left {USER} {JOB_ID} 3\n" in text


def test_sister_without_guests_does_nothing(site: Site) -> None:
    assert site.epilogue(role="epilogue.parallel").returncode == 0
    assert site.asked() == []
    assert not site.state_dir.exists()
