# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque-record: a record is taken from the job's first node alone, and handed over with a word in the log."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import os
import pathlib
import pwd
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import parameters, policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer import delivery, transfer_format
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.transfer.archive import RecordRejected
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import delivery_queue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files as files_module
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vtorque_record
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import authorize

USER = "nobody"
UID = pwd.getpwnam(USER).pw_uid
PEER = {"SSH_CONNECTION": "10.77.0.11 40000 10.77.0.1 22"}
RECORD = {"version": 1, "job_id": "7.head", "start": 1, "user": "alice"}


@dataclasses.dataclass
class Job:
    """What the server says of it."""

    job_id: str = "7.head"
    start_count: int = 1
    euser: str = USER
    owner_user: str = USER
    nodes: tuple[str, ...] = ("cn1", "cn2")


class Host:
    """A front end."""

    def __init__(self, place: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.reported = Job()
        self.fault: SiteFault | None = None
        home = place / "torque"
        self.today = datetime.date.today()
        self.accounts = home / "server_priv/accounting" / f"{self.today:%Y%m%d}"
        self.accounts.parent.mkdir(parents=True)
        self.load: t.Callable[[], parameters.Policy] = lambda: dataclasses.replace(
            parameters.Policy(), torque_home=str(home)
        )
        addresses = {"cn1": "10.77.0.11", "cn2": "10.77.0.12"}
        patch.setattr(vtorque_record, "open_batch", lambda _policy, **_how: self)
        patch.setattr(
            authorize.socket, "getaddrinfo", lambda name, *_more, **_how: [(2, 1, 6, "", (addresses[name], 0))]
        )

    def job(self, _job_id: str) -> Job:
        if self.fault is not None:
            raise self.fault
        return self.reported

    def write_down(self, hosts: str, user: str = USER, ago: int = 0) -> None:
        """A start, in the form of the server's accounts."""
        day = self.today - datetime.timedelta(days=ago)
        with self.accounts.with_name(f"{day:%Y%m%d}").open("a") as file:
            file.write(f"{day:%m/%d/%Y} 12:00:00;S;7.head;user={user} group=g jobname=j owner=a@h exec_host={hosts} \n")

    def show(self, samples: bytes = b"") -> int:
        """Take how the job stands that runs."""
        files = {"record.json": json.dumps(RECORD).encode(), "samples.jsonl": samples}
        output = transfer_format.format_announcement("7.head", 1, running=True)
        output += transfer_format.format_parcel(transfer_format.Parcel("7.head", 1, files))
        places = {"state_dir": self.place / "state", "run_dir": self.place / "run"}
        return vtorque_record.receive(io.BytesIO(output), PEER, load=self.load, **places)

    def take(self, environment: t.Mapping[str, str] | None = None, record: t.Mapping[str, t.Any] | None = None) -> int:
        environment, record = PEER if environment is None else environment, RECORD if record is None else record
        files = {"record.json": json.dumps(record).encode(), "vtorque.log": b"began\n"}
        parcel = transfer_format.Parcel(record["job_id"], record["start"], files)
        output = transfer_format.format_announcement(parcel.job_id, parcel.start) + transfer_format.format_parcel(
            parcel
        )
        return vtorque_record.receive(
            io.BytesIO(output), environment, load=self.load, state_dir=self.place / "state",
            run_dir=self.place / "run",
        )  # fmt: skip


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_record_is_kept_for_the_owner_whom_the_server_names(host: Host) -> None:
    """Not for the user whom the record names."""
    assert host.take() == 0
    directory = host.place / "state/records/7.head.1"
    assert json.loads((directory / "record.json").read_text()) == RECORD
    uid = UID.to_bytes(4, "little")
    for path in (directory, directory / "record.json", directory / "vtorque.log"):
        assert uid in os.getxattr(path, "system.posix_acl_access")
        assert path.stat().st_uid == 0
    assert host.take() == 0  # once more is no harm


def test_record_is_the_submitters_where_the_server_hides_as_whom_it_ran_and_its_node_names_them(host: Host) -> None:
    """OpenPBS 23.06.06 shows `euser` to managers alone, of which root of a front end is none."""
    host.reported = Job(euser="")
    with pytest.raises(RecordRejected, match="is alice's, and nobody submitted it"):
        host.take()
    with pytest.raises(RecordRejected, match="is nobody's"):
        host.take(record={key: value for key, value in RECORD.items() if key != "user"})
    assert host.take(record={**RECORD, "user": USER}) == 0
    access = os.getxattr(host.place / "state/records/7.head.1/record.json", "system.posix_acl_access")
    assert UID.to_bytes(4, "little") in access


def test_record_of_a_start_that_its_hook_ended_has_no_exit_status_and_is_kept(host: Host) -> None:
    assert host.take(record={**RECORD, "exit_status": None, "ended": 1795612909.5}) == 0


def test_running_job_is_shown_to_the_owner_whom_the_server_names_until_its_record_is_here(host: Host) -> None:
    assert host.show() == 0
    directory = host.place / "state/running/7.head.1"
    assert json.loads((directory / "record.json").read_text()) == RECORD
    for path in (directory, directory / "record.json", directory / "samples.jsonl"):
        assert UID.to_bytes(4, "little") in os.getxattr(path, "system.posix_acl_access")
    with pytest.raises(VTorqueError, match="no lines of JSON"):
        host.show(b"{}\n" + b"[" * 20_000)
    assert host.take() == 0
    assert not directory.exists()
    assert host.show() == 0
    assert not directory.exists(), "it came late"


@pytest.mark.parametrize("change", [{"nodes": ("cn2", "cn1")}, {"start_count": 0}, {"job_id": "8.head"}])
def test_running_job_that_the_server_contradicts_is_refused(host: Host, change: dict[str, t.Any]) -> None:
    host.reported = dataclasses.replace(Job(), **change)
    with pytest.raises(VTorqueError):
        host.show()
    assert not (host.place / "state").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": ("cn2", "cn1")}, "not its mother superior cn2"),
        ({"nodes": ()}, "has no nodes"),
        ({"start_count": 0}, "the server is at start 0"),
        ({"job_id": "8.head"}, "of 8.head"),
        ({"euser": "nobody-of-this-name"}, "is not known on this host"),
    ],
)
def test_record_that_the_server_contradicts_is_refused(host: Host, change: dict[str, t.Any], message: str) -> None:
    host.reported = dataclasses.replace(Job(), **change)
    with pytest.raises(VTorqueError, match=message):
        host.take()
    assert not (host.place / "state").exists()


def test_record_that_differs_is_refused_for_good(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """The one that came first stays, and who sent the other is told."""
    host.take()
    before = (host.place / "state/records/7.head.1/record.json").read_bytes()
    with pytest.raises(RecordRejected, match="another record"):
        host.take(record={**RECORD, "user": "bob"})
    assert (host.place / "state/records/7.head.1/record.json").read_bytes() == before


def test_job_that_the_server_has_forgotten_is_proved_by_what_it_wrote_down(host: Host) -> None:
    host.fault = UnknownJob("job 7.head", "the batch server does not know it")
    with pytest.raises(RecordRejected, match="does not know it"):
        host.take()
    host.write_down("cn2/0+cn1/0")
    with pytest.raises(VTorqueError, match="not its mother superior cn2"):
        host.take()
    assert not (host.place / "state").exists()
    host.accounts.unlink()
    host.write_down("cn1/0+cn2/0")
    assert host.take() == 0
    directory = host.place / "state/records/7.head.1"
    assert UID.to_bytes(4, "little") in os.getxattr(directory, "system.posix_acl_access")
    with pytest.raises(RecordRejected):
        host.take(record={**RECORD, "start": 2})


def test_job_that_was_forgotten_long_ago_is_proved_while_its_record_may_wait(host: Host) -> None:
    """Which is twice the days that records are kept."""
    host.fault = UnknownJob("job 7.head", "the batch server does not know it")
    host.write_down("cn1/0+cn2/0", ago=2 * parameters.Policy().record_days)
    assert host.take() == 0


def test_files_of_the_server_that_are_away_are_waited_for(host: Host) -> None:
    """It is not what is never taken."""
    host.fault = UnknownJob("job 7.head", "the batch server does not know it")
    host.accounts.parent.rmdir()
    with pytest.raises(SiteFault, match="mounted") as raised:
        host.take()
    assert not isinstance(raised.value, RecordRejected)
    host.fault, host.reported = None, Job(start_count=2)
    with pytest.raises(SiteFault, match="mounted"):
        host.take()
    assert not (host.place / "state").exists()


def test_start_before_the_servers_is_proved_by_who_led_that_one(host: Host) -> None:
    """Where nothing is written down, who leads the job now may hand over what he has of it."""
    host.reported = Job(start_count=2, nodes=("cn2",))
    with pytest.raises(VTorqueError, match="not its mother superior cn2"):
        host.take()
    host.write_down("cn1/0")
    host.write_down("cn2/0")
    assert host.take() == 0
    host.reported = Job(start_count=2, nodes=("cn1",))
    host.accounts.unlink()
    host.write_down("cn2/0")
    with pytest.raises(VTorqueError, match="not its mother superior cn2"):
        host.take()


def test_record_that_is_never_accepted_has_its_own_status(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_words: object) -> t.NoReturn:
        raise RecordRejected("start 1 of job 7.head", "another record of it is kept here")

    monkeypatch.setattr(vtorque_record, "receive", never)
    assert vtorque_record.answer(io.BytesIO(), PEER) == delivery.NEVER
    assert "vtorque-record: start 1 of job 7.head: another record" in capsys.readouterr().err


def test_silent_server_and_no_connection_are_refused(host: Host) -> None:
    with pytest.raises(VTorqueError, match="over ssh alone"):
        host.take({})
    host.fault = SiteFault("qstat", "no answer")
    with pytest.raises(SiteFault):
        host.take()
    assert not (host.place / "state").exists()


def test_broken_configuration_takes_a_record_and_retires_none(host: Host) -> None:
    host.load = lambda: policy_file.parse("record_day: 1\n", "vtorque.yml").policy
    old = host.place / "state/records/1.head.1"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    assert host.take() == 0
    assert (host.place / "state/records/7.head.1/record.json").exists()
    assert old.exists()


def test_old_records_go_when_a_new_one_comes(host: Host) -> None:
    old = host.place / "state/records/1.head.1"
    files_module.make_record_directory(old)
    os.utime(old, (0, 0))
    assert host.take() == 0
    assert not old.exists()


class Sender:
    """The job's first node, and something in place of ssh."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        directory = place / "records/7.head.1"
        files_module.make_record_directory(directory)
        files_module.write(directory / "record.json", json.dumps(RECORD))

    def send(self, script: str, record_host: str | None = "fe", whole: t.BinaryIO | None = None) -> int:
        program = self.place / "ssh"
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >{self.place}/called\n{script}\n")
        program.chmod(0o755)
        report = dataclasses.replace(parameters.Policy(), record_host=record_host)
        return vtorque_record.send(
            "7.head", 1, whole or io.BytesIO(), load=lambda: report, state_dir=self.place, ssh=(str(program),)
        )  # fmt: skip


@pytest.fixture
def sender(tmp_path: pathlib.Path) -> Sender:
    return Sender(tmp_path)


def test_record_is_handed_over_without_anybodys_configuration(
    sender: Sender, capfd: pytest.CaptureFixture[str]
) -> None:
    assert sender.send(f"cat >{sender.place}/came") == 0
    stream = io.BytesIO((sender.place / "came").read_bytes())
    parcel = transfer_format.read(stream, transfer_format.read_announcement(stream))
    assert json.loads(parcel.files["record.json"]) == RECORD
    called = (sender.place / "called").read_text()
    assert called.startswith("-F none -T -l root ")
    assert called.endswith(" fe /opt/vtorque/bin/vtorque-record\n")
    assert "StrictHostKeyChecking=yes" in called
    assert "BatchMode=yes" in called
    assert "LogLevel=ERROR" in called
    assert "UpdateHostKeys=no" in called
    assert "the record was handed over to fe" in capfd.readouterr().err
    assert delivery_queue.list_pending(sender.place) == ()


def test_record_is_announced_before_it_is_whole(sender: Sender) -> None:
    """The other side asks the batch server at once, which may forget the job when its epilogue has ended."""
    announced = sender.place / "announced"
    os.mkfifo(announced)

    class Whole(io.BytesIO):
        """The epilogue, which ends when the other side has heard of the record."""

        def read(self, _size: int | None = -1, /) -> bytes:
            assert json.loads(announced.read_bytes()) == {"version": 2, "job_id": "7.head", "start": 1}
            files_module.write(sender.place / "records/7.head.1/record.json", json.dumps({**RECORD, "exit_status": 5}))
            return b""

    assert sender.send(f'read -r line; echo "$line" >{announced}; cat >{sender.place}/came', whole=Whole()) == 0
    came = (sender.place / "came").read_bytes()
    assert json.loads(came.partition(b"\n")[2])["exit_status"] == 5


def test_front_end_that_refuses_at_once_is_heard(sender: Sender, capfd: pytest.CaptureFixture[str]) -> None:
    assert sender.send("exec <&-; echo no >&2; exit 3") == 1
    assert "was not handed over to fe: no" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'no \033[2J way' >&2; exit 255", "was not handed over to fe: no ?[2J way"),
        ("exec sleep 600", "was not handed over to fe: no answer within 1 s; it waits on this node"),
    ],
)
def test_failure_is_a_line_in_the_log(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], script: str, message: str
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(delivery, "SEND_S", 1)
    assert sender.send(script) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert message in line
    (mark,) = delivery_queue.list_pending(sender.place)
    assert (mark.key, mark.why in line, bool(mark.why)) == ("7.head.1", True, True)


def test_record_that_is_given_up_is_a_loud_word(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(vtorque_record.syslog, "syslog", lambda _level, line: logged.append(line))
    assert sender.send(f"cat >/dev/null; echo 'another record is kept' >&2; exit {delivery.NEVER}") == 1
    text = "was not handed over to fe, and that is given up: another record is kept; it stays on this node"
    assert logged == [f"the record of start 1 of job 7.head {text}"]
    assert text in capfd.readouterr().err
    assert delivery_queue.list_pending(sender.place) == ()


def test_no_record_and_no_front_end(sender: Sender, capfd: pytest.CaptureFixture[str]) -> None:
    for record_host in (None, os.uname().nodename):
        assert sender.send("exit 9", record_host) == 0
    assert capfd.readouterr().err == ""
    (sender.place / "records/7.head.1/record.json").unlink()
    assert sender.send("exit 0") == 1
    assert "No such file" in capfd.readouterr().err


def test_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sent: list[tuple[str, int]] = []
    monkeypatch.setattr(vtorque_record, "send", lambda *arguments: sent.append(arguments[:2]) or 0)
    for arguments, status in (
        (["--send", "7.head", "2"], 0),
        (["--send", "7.head", "x"], 2),
        (["\x1b"], 2),
    ):
        monkeypatch.setattr(vtorque_record.sys, "argv", ["vtorque-record", *arguments])
        monkeypatch.setattr(vtorque_record.os, "nice", lambda _more: 0)
        assert vtorque_record.main() == status
    assert sent == [("7.head", 2)]
    assert "\x1b" not in capsys.readouterr().err


def test_sender_that_never_ends_is_left_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    alarms: list[int] = []
    monkeypatch.setattr(vtorque_record.sys, "argv", ["vtorque-record"])
    monkeypatch.setattr(vtorque_record.signal, "alarm", alarms.append)
    monkeypatch.setattr(vtorque_record, "answer", lambda _stream, _environment: len(alarms) + 6)
    assert vtorque_record.main() == 7
    assert alarms == [vtorque_record.RECEIVE_S]
