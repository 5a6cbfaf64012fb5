# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sweep takes what is proved to be over, and nothing else; on real files and libvirt's own test driver."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import typing as t
import uuid

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import sweep
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.connection import Domains
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import DomainSpec, render_xml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.io_cores import interrupts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import hugepages
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import leftovers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import slots, start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.layout import job_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_id
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

EARLIER = "00000000-0000-4000-8000-000000000000"
SILENT = NodeFault("libvirt", "gave no answer", cause="libvirt")


def dead(_job: str, _start: int) -> bool:
    return False


def alive(_job: str, _start: int) -> bool:
    return True


def unknown(_job: str, _start: int) -> bool:
    raise SiteFault("qstat", "the batch server cannot be reached")


def no_files(_job: str) -> bool:
    return False


class Node:
    """A node with a hypervisor that runs nothing, and what jobs made there."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch, hypervisor: Domains) -> None:
        self.hypervisor = hypervisor
        self.settings = NodeSettings(
            node_name="cn1", node_number=1, state_dir=directory / "state", run_dir=directory / "run",
            libvirt_uri="test:///default", template_dir=None, bridge="vtq-no-bridge",
        )  # fmt: skip
        patch.setattr(leftovers, "SYS_NET", directory / "net")
        self.patch = patch

    def start(
        self, number: int, start: int = 1, *, domain: bool = True, boot: str | None = None, run: bool = False
    ) -> str:
        """What `present` leaves when it is done: slot, directory, domain."""
        job_id = f"{number}.head"
        key = job_key(job_id, start)
        name = f"vcn1-{number}"
        guest = self.settings.guests_dir / key / name
        guest.mkdir(parents=True)
        (guest / "guest.json").write_text(json.dumps({"boot_id": boot} if boot else {}))
        self.settings.slots_dir.mkdir(exist_ok=True)
        (self.settings.slots_dir / str(number)).symlink_to(f"{key}/{name}")
        if domain:
            spec = DomainSpec(
                name=name, uuid=str(uuid.uuid4()), job_id=job_id, start=start, owner="alice", rank=0, node="cn1",
                hypervisor="test", arch="x86_64", ram_mib=64, vcpus=1, disk=guest / "disk.qcow2",
                image=pathlib.Path("/pool/disk.qcow2"), image_format="qcow2", seed=guest / "seed.iso",
                console=guest / "console.log", agent=guest / "agent", bridge="br0", tap=f"vtq{number}",
                mac=f"52:54:00:00:01:{number:02x}",
            )  # fmt: skip
            self.hypervisor.create(render_xml(spec, site_dir=None))
        if run:
            self.run(key)
        return key

    def run(self, key: str, *, shell: ProcessId | None = None, boot: str = "") -> None:
        """What the prologue leaves on the mother superior."""
        directory = self.settings.run_dir / "jobs" / key
        files.make_directory(directory)
        (directory / "ready.json").write_text(json.dumps({"boot_id": boot or process_id.boot_id()}))
        shell_link.point(shell or ended(), directory, self.settings.run_dir)

    def sweep(
        self, is_alive: sweep.IsAlive = dead, has_files: sweep.HasFiles = no_files, *, twice_s: float = 0.0,
        any_number: bool = False, mass: int = sweep.MASS,
    ) -> sweep.SweepReport:  # fmt: skip
        return sweep.sweep(
            self.settings, is_alive, has_files, Deadline.after(60.0), twice_s=twice_s, any_number=any_number, mass=mass
        )

    def silence_libvirt(self) -> None:
        def connect(_uri: str) -> t.NoReturn:
            raise SILENT

        self.patch.setattr(sweep, "Domains", connect)

    @property
    def things(self) -> set[str]:
        """The keys of which something is here, and the names of domains."""
        jobs = self.settings.run_dir / "jobs"
        return {
            *(path.name for path in (*jobs.glob("*"), *self.settings.guests_dir.glob("*"))),
            *(facts.name for facts in self.hypervisor.list()),
            *(owner.partition("/")[0] for owner in slots.read_slots(self.settings).values()),
        }


def ended() -> ProcessId:
    """A process that is no more."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        return ProcessId.of(process.pid)


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Node]:
    with Domains("test:///default") as hypervisor:
        yield Node(tmp_path, monkeypatch, hypervisor)
        for facts in hypervisor.list():
            hypervisor.destroy(facts.name)


def test_what_does_not_live_goes_and_nothing_else(node: Node) -> None:
    node.start(7, 1, run=True)
    node.start(8, 2, run=True)
    (node.settings.guests_dir / "lost+found").mkdir()
    swept = node.sweep(lambda job_id, _start: job_id == "8.head")
    assert [(output.key, [thing.split()[0] for thing in output.things]) for output in swept.removed] == [
        ("7.head.1", ["domain", "directory", "slot", "shell", "run"])
    ]
    assert [output.key for output in swept.living] == ["8.head.2"]
    assert swept.left == ()
    assert node.things == {"8.head.2", "vcn1-8", "lost+found"}


def test_sweep_without_leftovers_succeeds(node: Node) -> None:
    assert node.sweep(unknown) == sweep.SweepReport()
    assert not (node.settings.run_dir / "suspects.json").exists()


def test_one_look_removes_nothing(node: Node) -> None:
    node.start(7)
    for _look in range(3):
        swept = node.sweep(twice_s=3600.0)
        assert swept.removed == ()
        assert [output.key for output in swept.left] == ["7.head.1"]
    assert node.things == {"7.head.1", "vcn1-7"}
    assert [output.key for output in node.sweep(twice_s=0.0).removed] == ["7.head.1"]


def test_second_look_counts_from_the_first_one(node: Node) -> None:
    node.start(7)
    node.sweep(twice_s=60.0)
    file = node.settings.run_dir / "suspects.json"
    stored = json.loads(file.read_text())
    for earlier_s, goes in ((50.0, False), (61.0, True)):
        file.unlink()
        moved = {key: first - earlier_s for key, first in stored["suspects"].items()}
        file.write_text(json.dumps({**stored, "suspects": moved}))
        assert bool(node.sweep(twice_s=60.0).removed) is goes


@pytest.mark.parametrize("who", ["server", "mom", "shell", "maker"])
def test_start_that_shows_life_again_is_no_suspect_any_more(node: Node, who: str) -> None:
    node.start(7)
    node.sweep(twice_s=3600.0)
    lock = start_lock.start_lock(node.settings, "7.head.1")
    with contextlib.ExitStack() as stack:
        if who == "maker":
            stack.enter_context(start_lock.lock_alone(lock, node.settings, Deadline.after(60.0)))
        if who == "shell":
            node.run("7.head.1", shell=ProcessId.of(os.getpid()))
        swept = node.sweep(alive if who in ("server", "maker") else dead, lambda _job: who == "mom")
    assert [output.key for output in swept.living] == ["7.head.1"]
    assert json.loads((node.settings.run_dir / "suspects.json").read_text())["suspects"] == {}
    assert node.sweep(twice_s=3600.0).removed == ()


@pytest.mark.parametrize("garbage", ["", "[]", "{", '{"version": 1, "suspects": [1]}', "\0\xff", '{"suspects": {}}'])
def test_file_of_suspects_that_says_nothing_costs_only_time(node: Node, garbage: str) -> None:
    node.start(7)
    (node.settings.run_dir).mkdir(exist_ok=True)
    (node.settings.run_dir / "suspects.json").write_text(garbage)
    assert node.sweep(twice_s=3600.0).removed == ()
    assert node.sweep(twice_s=0.0).removed


@pytest.mark.parametrize(
    "changes",
    [
        {"boot_id": EARLIER},
        {"version": 2},
        {"suspects": {"7.head.1": 1e12}},
        {"suspects": {"7.head.1": True}},
        {"suspects": {"7.head.1": "long ago"}},
    ],
)
def test_suspicion_of_another_boot_or_form_is_none(node: Node, changes: dict[str, object]) -> None:
    node.start(7)
    node.settings.run_dir.mkdir()
    report = {"version": 1, "boot_id": process_id.boot_id(), "suspects": {"7.head.1": 0.0}, **changes}
    (node.settings.run_dir / "suspects.json").write_text(json.dumps(report))
    assert node.sweep(twice_s=1.0).removed == ()


def test_a_restored_server_that_knows_no_job_kills_no_living_guest(node: Node) -> None:
    """A maker's lock, the MOM's files and the job's shell protect one start each; the fourth is over."""
    for number in (1, 2, 3, 4):
        node.start(number)
    node.run("3.head.1", shell=ProcessId.of(os.getpid()))
    with start_lock.lock_alone(start_lock.start_lock(node.settings, "1.head.1"), node.settings, Deadline.after(60.0)):
        for _look in range(3):
            node.sweep(dead, lambda job_id: job_id == "2.head")
        swept = node.sweep(dead, lambda job_id: job_id in ("1.head", "2.head"))
    assert node.things == {"1.head.1", "2.head.1", "3.head.1", "vcn1-1", "vcn1-2", "vcn1-3"}
    assert {output.key: output.why for output in swept.living} == {
        "1.head.1": f"process {os.getpid()} is at work for it",
        "2.head.1": "the batch system has something of its job here",
        "3.head.1": f"its job's shell lives, process {os.getpid()}",
    }
    assert not start_lock.tombstone(node.settings, "1.head.1").exists()


def test_holder_of_a_lock_without_a_job_is_named_and_not_ended(node: Node) -> None:
    node.start(7)
    with start_lock.lock_alone(start_lock.start_lock(node.settings, "7.head.1"), node.settings, Deadline.after(60.0)):
        (left,) = node.sweep(dead).left
        assert f"process {os.getpid()} holds its lock, although there is no such job" in left.why
        assert node.sweep(unknown).left == ()
    assert "vcn1-7" in node.things


def test_watcher_of_a_lost_job_is_notified_of_its_end(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the lock as long as the guests live, and nobody else would ever end it."""
    node.start(7)
    lock = start_lock.start_lock(node.settings, "7.head.1")
    files.make_directory(lock.parent)
    watcher = lock.open("w")
    fcntl.flock(watcher, fcntl.LOCK_SH)
    real = sweep.present_absent.absent

    def absent(*arguments: t.Any, **how: t.Any) -> tuple[str, ...]:
        watcher.close()
        return real(*arguments)

    monkeypatch.setattr(sweep.present_absent, "absent", absent)
    assert node.sweep(unknown).removed == ()
    assert node.sweep(dead, lambda _job: True).removed == ()
    assert node.sweep(dead, twice_s=3600.0).removed == ()
    assert not watcher.closed
    assert [output.key for output in node.sweep().removed] == ["7.head.1"]


def test_unknown_is_never_over_and_keeps_no_other_start_waiting(node: Node) -> None:
    node.start(7)
    node.start(8)
    swept = node.sweep(lambda job_id, start: unknown(job_id, start) if job_id == "7.head" else False)
    assert [output.key for output in swept.removed] == ["8.head.1"]
    assert [(output.key, "cannot be reached" in output.why) for output in swept.left] == [("7.head.1", True)]
    assert node.things == {"7.head.1", "vcn1-7"}


def test_sweep_without_the_moms_answer_removes_nothing(node: Node) -> None:
    def unreadable(_job: str) -> bool:
        raise SiteFault("mom_priv/jobs", "what the MOM has here is not known")

    node.start(7)
    assert node.sweep(dead, unreadable).removed == ()
    assert node.things == {"7.head.1", "vcn1-7"}


@pytest.mark.parametrize(("count", "any_number", "goes"), [(2, False, 2), (3, False, 0), (3, True, 3)])
def test_many_at_once_are_looked_at_by_a_person_first(node: Node, count: int, any_number: bool, goes: int) -> None:
    for number in range(1, count + 1):
        node.start(number)
    swept = node.sweep(mass=2, any_number=any_number)
    assert len(swept.removed) == goes
    assert len(swept.left) == count - goes
    assert all("3 starts at once" in output.why for output in swept.left)


def test_a_silent_libvirt_is_never_an_absent_guest(node: Node) -> None:
    node.start(7)
    node.run("9.head.1")
    node.silence_libvirt()
    swept = node.sweep()
    assert [(output.key, output.things[-1]) for output in swept.removed] == [("9.head.1", "run directory 9.head.1")]
    assert [output.key for output in swept.left] == ["", "7.head.1"]
    assert all("gave no answer" in output.why for output in swept.left)
    assert node.things == {"7.head.1", "vcn1-7"}


def test_domain_without_files_is_found(node: Node) -> None:
    key = node.start(7)
    (node.settings.slots_dir / "7").unlink()
    for path in sorted((node.settings.guests_dir / key).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (node.settings.guests_dir / key).rmdir()
    assert [output.things for output in node.sweep().removed] == [("domain vcn1-7",)]


@pytest.mark.parametrize("how", ["sweep", "boot"])
def test_what_is_of_an_earlier_boot_goes_at_once_without_anybodys_word(node: Node, how: str) -> None:
    for number in range(1, 7):  # more than a mass
        node.start(number, domain=False, boot=EARLIER)
    node.run("1.head.1", boot=EARLIER)
    node.start(8, boot=process_id.boot_id())
    node.start(9)
    node.silence_libvirt()
    if how == "boot":
        swept = sweep.sweep_earlier_boot(node.settings, Deadline.after(60.0))
        assert swept.left == ()
    else:
        swept = node.sweep(unknown, lambda _job: True)
    assert [output.key for output in swept.removed] == [f"{number}.head.1" for number in range(1, 7)]
    assert node.things == {"8.head.1", "9.head.1", "vcn1-8", "vcn1-9"}


def raised_pages(node: Node, key: str, boot: str) -> pathlib.Path:
    """What a start leaves that has set huge pages apart, of a cell that this machine has not."""
    path = node.settings.pages_dir / key
    files.make_directory(path.parent)
    files.write(path, json.dumps({"boot": boot, "due": [], "raised": [[99, 2048, 5]]}))
    return path


def test_huge_pages_of_a_dead_start_are_given_back_by_the_sweep(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is left of it: whoever was killed came no further."""
    path = raised_pages(node, "7.head.1", process_id.boot_id())
    living = raised_pages(node, "8.head.1", process_id.boot_id())
    lowered = []
    monkeypatch.setattr(hugepages, "read_pools", lambda: {(99, 2048): hugepages.Pool(12, 5)})
    monkeypatch.setattr(hugepages, "_set", lambda pool, count: lowered.append((pool, count)) or "")
    assert [output.key for output in node.sweep(lambda job, _start: job == "8.head").removed] == ["7.head.1"]
    assert lowered == [((99, 2048), 7)]
    assert not path.exists()
    assert living.exists()


def test_huge_pages_of_an_earlier_boot_are_forgotten(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.start(7, domain=False, boot=EARLIER)
    path = raised_pages(node, "7.head.1", EARLIER)
    monkeypatch.setattr(hugepages, "_set", lambda *_pool: pytest.fail("the site's pages were taken away"))
    sweep.sweep_earlier_boot(node.settings, Deadline.after(60.0))
    assert not path.exists()


def moved_interrupts(node: Node, key: str, boot: str) -> pathlib.Path:
    """What a start leaves whose worker was killed while the network card's interrupts were on its cores."""
    path = node.settings.interrupts_dir / key
    files.make_directory(path.parent)
    files.write(path, json.dumps({"boot": boot, "former": [[24, "0-3"]]}))
    return path


def test_interrupts_of_a_dead_start_are_put_back_by_the_sweep(
    node: Node, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "IRQS", tmp_path)
    file = tmp_path / "24/smp_affinity_list"
    file.parent.mkdir()
    file.write_text("7\n")
    path = moved_interrupts(node, "7.head.1", process_id.boot_id())
    assert [output.key for output in node.sweep(lambda _job, _start: False).removed] == ["7.head.1"]
    assert (file.read_text(), path.exists()) == ("0-3", False)


def test_interrupts_of_an_earlier_boot_are_forgotten(
    node: Node, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "IRQS", tmp_path)
    node.start(7, domain=False, boot=EARLIER)
    path = moved_interrupts(node, "7.head.1", EARLIER)
    sweep.sweep_earlier_boot(node.settings, Deadline.after(60.0))
    assert not path.exists()


def test_console_of_a_guest_that_lost_its_power_is_kept(node: Node) -> None:
    node.start(7, domain=False, boot=EARLIER)
    (node.settings.start_dir("7.head", 1) / "vcn1-7" / "console.log").write_text("Kernel panic\x1b[2J\n")
    sweep.sweep_earlier_boot(node.settings, Deadline.after(60.0))
    assert "Kernel panic" in (node.settings.record_dir("7.head", 1) / "vcn1-7.console.log").read_text()


def test_leftovers_of_an_earlier_boot_are_removed_by_one_sweep(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mother superior of its job may ask for the same: who comes second finds nothing, and no fault in that."""
    key = node.start(7, domain=False, boot=EARLIER)
    lock = start_lock.start_lock(node.settings, key)
    alone: list[bool] = []
    monkeypatch.setattr(sweep, "save_console", lambda *_: alone.append(start_lock.is_locked_alone(lock)))
    former = start_lock.bury

    def meanwhile(settings: NodeSettings, key: str) -> None:
        former(settings, key)
        shutil.rmtree(settings.start_dir("8.head", 1), ignore_errors=True)

    node.start(8, domain=False, boot=EARLIER)
    monkeypatch.setattr(start_lock, "bury", meanwhile)
    swept = sweep.sweep_earlier_boot(node.settings, Deadline.after(60.0))
    assert (swept.left, alone) == ((), [True])
    assert not lock.exists()


def test_earlier_is_only_what_nobody_works_on_and_what_says_so_whole(node: Node) -> None:
    held = node.start(1, domain=False, boot=EARLIER)
    node.start(2, domain=False, boot=EARLIER)
    node.run("2.head.1")
    node.start(3, domain=False, boot=EARLIER)
    (node.settings.guests_dir / "3.head.1" / "vcn1-30").mkdir()
    (node.settings.guests_dir / "3.head.1" / "vcn1-30" / "guest.json").write_text("{")
    with start_lock.lock_alone(start_lock.start_lock(node.settings, held), node.settings, Deadline.after(60.0)):
        assert sweep.sweep_earlier_boot(node.settings, Deadline.after(60.0)) == sweep.SweepReport()


def test_guest_that_runs_is_of_this_boot_whatever_its_files_say(node: Node) -> None:
    node.start(7, boot=EARLIER)
    assert node.sweep(alive).removed == ()
    assert node.things == {"7.head.1", "vcn1-7"}


def test_leftover_after_its_removal_is_reported(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    key = node.start(7)
    monkeypatch.setattr(sweep.present_absent, "absent", lambda *_words, **_how: ("domain vcn1-7",))
    swept = node.sweep()
    assert swept.removed == ()
    assert [output.key for output in swept.left] == [key]
    assert "still here" in swept.left[0].why


def test_failed_removal_is_reported_and_stops_no_other(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.start(7)
    node.start(8)
    real = sweep.present_absent.absent

    def absent(job_id: str, *rest: t.Any, **how: t.Any) -> tuple[str, ...]:
        if job_id == "7.head":
            raise VTorqueError("the domain", "would not end")
        return real(job_id, *rest)

    monkeypatch.setattr(sweep.present_absent, "absent", absent)
    swept = node.sweep()
    assert [output.key for output in swept.removed] == ["8.head.1"]
    (left,) = swept.left
    assert left.key == "7.head.1"
    assert "domain vcn1-7" in left.why
    assert "would not end" in left.why


def test_sweep_without_time_left_reports_the_rest(node: Node) -> None:
    for number in (7, 8):
        node.start(number)
    at = time.monotonic() + 3600.0

    def asks_for_long(_job: str, _start: int) -> bool:
        node.patch.setattr(time, "monotonic", lambda: at)
        return False

    for is_alive in (asks_for_long, dead):
        swept = sweep.sweep(node.settings, is_alive, no_files, Deadline(at), twice_s=0.0)
        assert sorted(output.key for output in swept.left) == ["7.head.1", "8.head.1"]
        assert all("no time was left" in output.why for output in swept.left)
    assert node.things == {"7.head.1", "8.head.1", "vcn1-7", "vcn1-8"}


def test_leftover_of_unknown_owner_is_reported(node: Node) -> None:
    (node.settings.guests_dir / "something").mkdir(parents=True)
    (left,) = node.sweep().left
    assert left == sweep.StartReport("", "directory something: whose it is cannot be told")


def test_one_sweep_at_a_time(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.start(7)
    monkeypatch.setattr(sweep, "WAIT_S", 0.1)
    lock = node.settings.run_dir / "locks" / "sweep"
    with (
        start_lock.lock_alone(lock, node.settings, Deadline.after(60.0)),
        pytest.raises(VTorqueError, match=str(os.getpid())),
    ):
        node.sweep()
    assert node.sweep().removed


def test_worker_that_begins_before_the_removal_is_not_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.start(7)
    answers = iter([False, True])
    monkeypatch.setattr(sweep.start_lock, "is_locked_alone", lambda _path: next(answers))
    swept = node.sweep()
    assert "begun to work" in swept.left[0].why
    assert not start_lock.tombstone(node.settings, "7.head.1").exists()


def test_report_is_json_as_it_is(node: Node) -> None:
    node.start(7)
    assert json.loads(json.dumps(dataclasses.asdict(node.sweep())))["removed"][0]["key"] == "7.head.1"
