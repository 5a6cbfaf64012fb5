# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr job` tells what happened to a job."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import event_log
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import job, main

ALICE, BOB = 70_001, 70_002
NO_RECORDS = (
    "no records that you may read\n"
    "(the record of a job comes to the front end when the job ends; vmgr job watch follows one that runs)\n"
)
RECORD = {
    "job_id": "4711.head", "start": 1, "user": "alice", "name": "solve.sh",
    "request": {"vcpus": "6", "img": "tiny"}, "nodes": ["cn1", "cn2"],
    "exit_status": 0, "ended": 1010.0,
    "guests": [
        {"rank": 0, "name": "vcn1-1", "node": "cn1", "image": "tiny@1", "address": "10.0.0.5", "vcpus": 6,
         "ram_mib": 24576, "seconds": {"disk": 0.1, "seed": 0.0, "start": 0.3, "address": 2.9, "ready": 3.4},
         "used": {"cpu_s": 20460, "read_bytes": 1288490189, "written_bytes": 325058560, "received_bytes": 0}},
        {"rank": 1, "name": "vcn2-1", "node": "cn2", "image": "tiny@1", "address": "10.0.0.6", "vcpus": 6,
         "ram_mib": 24576, "seconds": {"disk": 0.2}},
    ],
    "phases": {
        "prologue": {"began": 1000.0, "seconds": 6.0}, "plan": {"began": 1000.5, "seconds": 0.1},
        "present.cn1": {"began": 1000.5, "seconds": 5.0}, "absent.cn1": {"began": 1009.0, "seconds": 0.6},
        "epilogue": {"began": 1009.0, "seconds": 1.0},
    },
}  # fmt: skip


@pytest.fixture
def stored(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A record of alice's on this host, as root leaves it."""
    tmp_path.chmod(0o711)
    place = tmp_path / "records"
    monkeypatch.setattr(job_record, "RECORDS", place)
    directory = place / "4711.head.1"
    files.make_record_directory(directory, ALICE)
    files.write(directory / "record.json", json.dumps(RECORD), reader_uid=ALICE)
    files.write(directory / "vtorque.log", "began\n\x1b[2Jended\n", reader_uid=ALICE)
    files.write(directory / "vcn1-1.console.log", "Linux\nup\n", reader_uid=ALICE)
    return directory


def vmgr_job_says(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it prints; the configuration is not looked at."""
    assert main.run_subject(["job", *arguments], pathlib.Path("/nonexistent")) == 0
    return capsys.readouterr().out


def test_show(stored: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = vmgr_job_says(capsys, "show", "4711").splitlines()
    assert lines[0] == "job 4711.head  alice  solve.sh  2 nodes x 1 guest  finished, exit status 0"
    assert lines[1] == "  -vm vcpus=6,img=tiny"
    table = [line.split() for line in lines]
    heading = ["guest", "node", "image", "address", "vcpus", "ram", "cpu", "used", "read", "written", "received"]
    assert heading in table
    assert ["vcn1-1", "cn1", "tiny@1", "10.0.0.5", "6", "24G", "5h41m", "1.2G", "310M", "0"] in table
    assert ["vcn2-1", "cn2", "tiny@1", "10.0.0.6", "6", "24G", "-", "-", "-", "-"] in table
    names = ["phase", "prologue", "plan", "disk", "seed", "start", "address", "ready", "job", "gone", "epilogue"]
    assert names in table
    assert ["seconds", "6.0", "0.1", "0.2", "0.0", "0.3", "2.9", "3.4", "3.0", "0.6", "1.0"] in table


def test_show_prints_what_the_guests_live_through(stored: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    survival = {"suspended": "its guests are saved to disk", "checkpoint": "no, because \x1b[2J", "moved": ""}
    (stored / "record.json").write_text(json.dumps({**RECORD, "survival": survival}))
    lines = vmgr_job_says(capsys, "show", "4711").splitlines()
    assert lines[2:4] == ["  suspended: its guests are saved to disk", "  checkpoint: no, because ?[2J"]
    assert not any("moved:" in line for line in lines)
    assert json.loads(vmgr_job_says(capsys, "show", "4711", "--json"))["survival"] == survival
    for broken in (3, "x", ["suspended"]):
        (stored / "record.json").write_text(json.dumps({**RECORD, "survival": broken}))
        assert "suspended:" not in vmgr_job_says(capsys, "show", "4711")


def test_show_draws_what_was_used_and_advises(stored: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    phases = {**RECORD["phases"], "epilogue": {"began": 2000.0, "seconds": 1.0}}  # type: ignore[dict-item]
    first = {**RECORD["guests"][0], "used": {"cpu_s": 999.5, "ram_peak_bytes": 2**30}}  # type: ignore[index]
    record = {**RECORD, "phases": phases, "guests": [first], "ended": 2001.0}
    (stored / "record.json").write_text(json.dumps(record))
    text = vmgr_job_says(capsys, "show", "4711")
    assert "\nused\n  vcn1-1  vcpus   ████░" in text
    assert "\nadvice\n  vCPUs: 1.0 of 6 worked on average; vcpus=1 would do\n  memory: at most 4 % of 24G" in text
    facts = json.loads(vmgr_job_says(capsys, "show", "4711", "--json"))
    assert facts["use"][1] == {"guest": "vcn1-1", "kind": "memory", "used": 2**30, "given": 24 * 2**30, "share": 0.042}
    assert len(facts["advice"]) == 2


def test_show_without_blocks_draws_with_plain_characters(
    stored: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_has_blocks", lambda: False)
    text = vmgr_job_says(capsys, "show", "4711")
    assert "vcpus   ####" in text
    assert text.isascii()


def test_show_tells_of_security_updates(stored: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = RECORD["guests"]  # type: ignore[misc]
    report = {"outcome": "timed out", "packages": 1, "seconds": 60, "reason": "3 more were not begun\x1b[2J"}
    guests = [{**first, "updates": report}, {**second, "updates": {"outcome": "done", "packages": 12, "seconds": 9}}]
    (stored / "record.json").write_text(json.dumps({**RECORD, "guests": guests}))
    lines = vmgr_job_says(capsys, "show", "4711").splitlines()
    assert [line.rstrip().split("  ")[-1].strip() for line in lines if line.startswith(("guest", "vcn"))] == [
        "updates", "timed out, 1 package in 60 s", "done, 12 packages in 9 s",
    ]  # fmt: skip
    assert "  security updates of vcn1-1: 3 more were not begun?[2J" in lines
    for broken in ({"outcome": 3}, "none", {"outcome": "done", "packages": "many"}):
        (stored / "record.json").write_text(json.dumps({**RECORD, "guests": [{**first, "updates": broken}]}))
        assert "security updates of" not in vmgr_job_says(capsys, "show", "4711")


def test_show_prints_the_cores_of_guests_that_had_some_of_their_own(
    stored: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = RECORD["guests"]  # type: ignore[misc]
    guests = [{**first, "vcpu_cores": "4;6-7", "other_cores": "0-1"}, second]
    (stored / "record.json").write_text(json.dumps({**RECORD, "guests": guests}))
    lines = vmgr_job_says(capsys, "show", "4711").splitlines()
    assert [line for line in lines if line.startswith("  cores of")] == [
        "  cores of vcn1-1: vCPU 0 on 4, vCPU 1 on 6-7; other threads on 0-1"
    ]
    for broken in (3, "\x1b[2J", ["4"]):
        (stored / "record.json").write_text(json.dumps({**RECORD, "guests": [{**first, "vcpu_cores": broken}]}))
        assert "cores of" not in vmgr_job_says(capsys, "show", "4711")


def test_show_prints_the_cores_that_virtual_io_of_guests_has_used(
    stored: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = RECORD["guests"]  # type: ignore[misc]
    of_first = {"vcpu_cores": "4;5", "other_cores": "1-3", "io_least": 1, "used": {"io_cores_most": 2, "io_changes": 4}}
    of_second = {"vcpu_cores": "4;5", "other_cores": "1-3", "io_least": 1, "used": {}}
    guests = [{**first, **of_first}, {**second, **of_second}]
    (stored / "record.json").write_text(json.dumps({**RECORD, "guests": guests}))
    lines = vmgr_job_says(capsys, "show", "4711").splitlines()
    assert [line for line in lines if line.startswith("  virtual I/O of")] == [
        "  virtual I/O of vcn1-1: cores 1-3, 1 in any case, at most 2 used, changed 4 times",
        "  virtual I/O of vcn2-1: cores 1-3, 1 in any case",
    ]


def test_show_prints_the_cells_and_pages_of_guests_that_had_some(
    stored: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = RECORD["guests"]  # type: ignore[misc]
    guests = [{**first, "cells": "0:0-1:512;2:2-3:512", "pages": "2M"}, {**second, "cells": "1:0:64"}]
    (stored / "record.json").write_text(json.dumps({**RECORD, "guests": guests}))
    lines = vmgr_job_says(capsys, "show", "4711").splitlines()
    assert [line for line in lines if line.startswith("  memory of")] == [
        "  memory of vcn1-1: 512 MiB of NUMA cell 0 for vCPU 0-1; 512 MiB of NUMA cell 2 for vCPU 2-3, in pages of 2M",
        "  memory of vcn2-1: 64 MiB of NUMA cell 1 for vCPU 0",
    ]
    for broken in (3, "\x1b[2J", "0:0", ["0:0:1"]):
        (stored / "record.json").write_text(json.dumps({**RECORD, "guests": [{**first, "cells": broken}]}))
        assert "memory of" not in vmgr_job_says(capsys, "show", "4711")


def test_show_prints_which_promise_was_kept_for_guests(
    stored: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = RECORD["guests"]  # type: ignore[misc]
    guests = [{**first, "side_channels": "strict"}, second]
    (stored / "record.json").write_text(json.dumps({**RECORD, "guests": guests}))
    lines = vmgr_job_says(capsys, "show", "4711").splitlines()
    assert [line for line in lines if "side channels" in line] == ["  side channels of vcn1-1: strict"]


def test_show_for_programs(stored: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(vmgr_job_says(capsys, "show", "4711.head", "--start", "1", "--json"))
    assert facts["state"] == "finished"
    assert facts["guests"] == RECORD["guests"]
    assert facts["consoles"] == {"vcn1-1": str(stored / "vcn1-1.console.log")}


def test_list(stored: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    heading, row = vmgr_job_says(capsys, "list").splitlines()
    assert heading.split()[:4] == ["job", "start", "user", "name"]
    assert row.split()[:4] == ["4711.head", "1", "alice", "solve.sh"]
    assert row.split()[-2:] == ["finished", "0"]
    assert [one["job_id"] for one in json.loads(vmgr_job_says(capsys, "list", "4711", "--json"))] == ["4711.head"]
    files.make_record_directory(stored.parent / "4712.head.1", ALICE)
    os.utime(stored, (1, 1))
    assert "1 older ones were not looked at" in vmgr_job_says(capsys, "list", "--last", "1")


def test_log_is_chosen_by_level_with_all_lines_of_each_entry(
    stored: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event_log.configure(event_log.LogSettings(), program="hook", component="prologue", job="", job_level="info")
    texts = ("prologue of job 4711.head", "info"), ("Traceback:\n  File x", "error"), ("left behind", "warning")
    entries = [event_log.format_text(text, level).decode() for text, level in texts]
    (stored / "vtorque.log").write_text(f"{entries[0]}TASK [plan] ***\nok: [cn1]\n{entries[1]}{entries[2]}")
    assert vmgr_job_says(capsys, "log", "4711") == (stored / "vtorque.log").read_text()
    assert vmgr_job_says(capsys, "log", "4711", "--level", "warning") == entries[1] + entries[2]
    assert vmgr_job_says(capsys, "log", "4711", "--level", "error") == entries[1]
    everything = json.loads(vmgr_job_says(capsys, "log", "4711", "--json"))
    assert [line.get("level") for line in everything] == ["info", None, None, "error", "warning"]
    assert everything[3]["message"] == "Traceback:\n  File x"
    assert everything[3]["pid"] == str(os.getpid())


def test_log_and_console(stored: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert vmgr_job_says(capsys, "log", "4711") == "began\n?[2Jended\n"
    lines = json.loads(vmgr_job_says(capsys, "log", "4711", "--json"))
    assert lines == [{"message": "began"}, {"message": "?[2Jended"}]
    assert vmgr_job_says(capsys, "console", "4711") == "Linux\nup\n"
    assert json.loads(vmgr_job_says(capsys, "console", "4711", "--json")) == {"vcn1-1": ["Linux", "up"]}
    with pytest.raises(UserFault, match="on cn2"):
        vmgr_job_says(capsys, "console", "4711", "--node", "cn2")


def test_report(stored: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert vmgr_job_says(capsys, "report", "4711", "--svg", "-").startswith("<?xml")
    page = tmp_path / "report.html"
    vmgr_job_says(capsys, "report", "4711", "--html", str(page))
    assert "<td>5h41m</td>" in page.read_text()
    with pytest.raises(UserFault, match="No such file"):
        vmgr_job_says(capsys, "report", "4711", "--svg", str(tmp_path / "none/report.svg"))


PROGRAM = """
import pathlib, sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records import job_record as job_records
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import messages
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main as vmgr
job_records.RECORDS = pathlib.Path(sys.argv[1])
sys.exit(messages.run("vmgr", lambda: vmgr.run_subject(sys.argv[2:])))
"""
CHECKOUT = templates.COLLECTION_DIR.parent.resolve()
# a mount is reached without a look at the directories above what it shows
INSTALLED = """
place=$1 uid=$2
mkdir -p "$place/venv" "$place/checkout"
mount --bind "$3" "$place/venv"
mount --bind "$4" "$place/checkout"
shift 4
exec setpriv --reuid="$uid" --regid="$uid" --clear-groups \
    env PYTHONPATH="$place/checkout/build/import" "$place/venv/bin/python" -c "$@"
"""
"""As on a host: whoever has an account can read what is installed, wherever it came from."""


def as_user(stored: pathlib.Path, uid: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """vmgr as somebody else than root, from its first line on."""
    place = stored.parent.parent / "installed"
    call = ["unshare", "--mount", "--propagation", "private", "bash", "-euc", INSTALLED, "as_user", str(place),
            str(uid), sys.prefix, str(CHECKOUT), PROGRAM, str(stored.parent), "job", *arguments]  # fmt: skip
    return subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def passable(stored: pathlib.Path) -> pathlib.Path:
    """The way to the records is open to all."""
    for parent in list(stored.parents)[1:-1]:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    return stored


def test_owner_sees_his_job_and_nobody_else_does(passable: pathlib.Path) -> None:
    for arguments in (("show", "4711"), ("log", "4711"), ("console", "4711"), ("list",)):
        mine = as_user(passable, ALICE, *arguments)
        assert mine.returncode == 0, mine.stderr
        theirs = as_user(passable, BOB, *arguments)
        assert "Traceback" not in theirs.stderr
        if arguments == ("list",):
            assert "4711.head" in mine.stdout
            assert (theirs.returncode, theirs.stdout) == (0, NO_RECORDS)
        else:
            assert theirs.returncode == 2
            assert theirs.stdout == ""
            assert "not yours to read" in theirs.stderr


@pytest.mark.parametrize("arguments", [[], ["list"], ["show"], ["log"], ["console"], ["report"]])
def test_help_teaches(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.run_subject(["job", *arguments, "--help"])
    assert ended.value.code == 0
    assert ("examples:" in capsys.readouterr().out) == bool(arguments)


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [(0.421, "0.42s"), (12.34, "12.3s"), (302.9, "5m02s"), (20460, "5h41m"), (360000, "100h00m")],
)
def test_duration(seconds: float, printed: str) -> None:
    assert job.duration(seconds) == printed


def test_show_names_the_hosts_that_stay_bare(stored: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = {**RECORD, "nodes": ["cn1", "cn2", "cn3"], "bare": ["cn2", "cn3"], "guests": RECORD["guests"][:1]}
    files.write(stored / "record.json", json.dumps(mixed), reader_uid=ALICE)
    lines = vmgr_job_says(capsys, "show", "4711").splitlines()
    assert lines[0] == "job 4711.head  alice  solve.sh  1 node x 1 guest + 2 bare  finished, exit status 0"
    assert "  bare hosts: cn2, cn3" in lines
    assert json.loads(vmgr_job_says(capsys, "show", "4711", "--json"))["bare"] == ["cn2", "cn3"]


def test_show_names_spare_nodes_and_those_that_were_replaced(
    stored: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced = [{"node": "cn1", "by": "cn3", "why": "bridge br0: is missing"}]
    record = {**RECORD, "nodes": ["cn3", "cn2"], "spares": ["cn4"], "replaced": replaced}
    files.write(stored / "record.json", json.dumps(record), reader_uid=ALICE)
    lines = vmgr_job_says(capsys, "show", "4711").splitlines()
    assert "  spare nodes: cn4" in lines
    assert "  cn3 took the place of cn1: bridge br0: is missing" in lines
