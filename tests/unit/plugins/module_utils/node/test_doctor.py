# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node tells of itself: each check good and bad."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    ImageFault,
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import doctor, sweep
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.bare import sshd
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import copy_queue, copy_worker
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import causes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import hugepages
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import memory
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists.mounts import Mount
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import delivery_queue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import CHECKS, Finding

from .placement.pools import Pools
from .pool import image_pool


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    for name in ("state", "run", "pool"):
        (tmp_path / name).mkdir()
    return NodeSettings(
        node_name="cn1", node_number=1, pool=tmp_path / "pool", state_dir=tmp_path / "state", run_dir=tmp_path / "run"
    )


def seen(finding: Finding) -> tuple[str, str]:
    return finding.state, finding.cell


@pytest.mark.parametrize(
    ("look", "check", "printed"),
    [
        (doctor.check_libvirt, "check_libvirt", "ok"),
        (doctor.check_virtualisation, "check_virtualisation", "kvm"),
        (doctor.check_bridge, "check_bridge", "ok"),
        (doctor.check_programs, "check_programs", "ok"),
    ],
)
def test_causes_of_notes_are_checked(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, look: t.Any, check: str, printed: str
) -> None:
    """What would put the node offline is what the doctor finds."""
    asked: list[NodeSettings] = []
    monkeypatch.setattr(causes, check, asked.append)
    assert seen(look(settings)) == ("ok", printed)
    assert asked == [settings]
    fault = NodeFault("it", "is broken", cause="bridge")
    monkeypatch.setattr(causes, check, raiser(fault))
    with pytest.raises(NodeFault) as caught:
        look(settings)
    assert caught.value is fault


def raiser(error: Exception) -> t.Callable[..., t.NoReturn]:
    def call(*_words: object) -> t.NoReturn:
        raise error

    return call


def test_libvirts_silence_is_told_once(settings: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "check_virtualisation", raiser(NodeFault("libvirt", "is silent", cause="libvirt")))
    assert seen(doctor.check_virtualisation(settings)) == ("none", "-")


@pytest.mark.parametrize(
    ("hypervisor", "is_there", "found"),
    [("kvm", True, ("ok", "ok")), ("kvm", False, ("warn", "no")), ("qemu", False, ("none", "-"))],
)
def test_vhost_net_is_missed_only_where_guests_run_under_kvm(
    settings: NodeSettings, tmp_path: pathlib.Path, hypervisor: str, is_there: bool, found: tuple[str, str]
) -> None:
    device = tmp_path / "vhost-net"
    if is_there:
        device.touch()
    finding = doctor.check_vhost_net(dataclasses.replace(settings, hypervisor_default=hypervisor), device)
    assert seen(finding) == found
    assert ("modprobe vhost_net" in finding.remedy) == (found[0] == "warn")


def test_daemon_that_moves_threads_of_guests_is_named(settings: NodeSettings, tmp_path: pathlib.Path) -> None:
    for number, name in (("1", "systemd"), ("7", "irqbalance"), ("self", "numad")):
        (tmp_path / number).mkdir()
        (tmp_path / number / "comm").write_text(f"{name}\n")
    assert seen(doctor.check_affinity(settings, tmp_path)) == ("ok", "ok")
    (tmp_path / "12").mkdir()
    (tmp_path / "12/comm").write_text("numad\n")
    assert seen(doctor.check_affinity(settings, tmp_path, os.getuid() + 1)) == ("ok", "ok"), "any user's is none"
    finding = doctor.check_affinity(settings, tmp_path, os.getuid())
    assert seen(finding) == ("warn", "numad")
    assert "process 12" in finding.problem


def test_daemon_that_moves_interrupts_is_named_where_jobs_have_cores_for_virtual_io(
    settings: NodeSettings, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/comm").write_text("irqbalance\n")
    assert seen(doctor.check_affinity(settings, tmp_path, os.getuid())) == ("ok", "ok")
    with_io = dataclasses.replace(settings, io_cores=True)
    finding = doctor.check_affinity(with_io, tmp_path, os.getuid())
    assert seen(finding) == ("warn", "irqbalance")
    assert "process 7" in finding.problem
    missing = doctor.check_vhost_net(with_io, tmp_path / "vhost-net")
    assert "jobs with iocm=true are refused here" in missing.problem


GOOD = t.cast(images.Image, object())
BROKEN = ImageFault("image odd", "can be written by others than root")


@pytest.mark.parametrize(
    ("found", "state", "message"),
    [
        ([("a", GOOD)], "ok", ""),
        ([("a", GOOD), ("odd", BROKEN)], "warn", "1 of 2 images cannot be used: image odd: can be written"),
        ([("odd", BROKEN)], "bad", "none of 1 images can be used: image odd"),
        ([], "bad", "no image in "),
    ],
)
def test_pool(
    settings: NodeSettings,
    monkeypatch: pytest.MonkeyPatch,
    found: list[tuple[str, images.Image | VTorqueError]],
    state: str,
    message: str,
) -> None:
    monkeypatch.setattr(images, "list_images", lambda _pool: found)
    finding = doctor.check_pool(settings.pool)
    assert finding.state == state
    assert finding.problem.startswith(message)
    assert bool(finding.problem) == bool(message)


@pytest.mark.parametrize(("default", "state"), [("debian12", "ok"), ("debian13", "bad"), (None, "ok")])
def test_pool_has_the_image_of_jobs_that_name_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, default: str | None, state: str
) -> None:
    def find(name: str, pool: pathlib.Path) -> images.Image:
        assert pool == tmp_path
        if name == "debian13":
            raise UserFault("img=debian13", "no such image")
        return GOOD

    monkeypatch.setattr(images, "list_images", lambda _pool: [("debian12@1", GOOD)])
    monkeypatch.setattr(images, "find", find)
    finding = doctor.check_pool(tmp_path, default)
    assert finding.state == state
    assert ("get debian13 (img_default)" in finding.problem) == (state == "bad")


class Disk(t.NamedTuple):
    """What shutil.disk_usage answers."""

    total: int
    used: int
    free: int


@pytest.mark.parametrize(
    ("free", "expected"),
    [(29, ("ok", "71%", "")), (3, ("warn", "97%", "3G left under ")), (10, ("warn", "90%", "10G"))],
)
def test_disk(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, free: int, expected: tuple[str, str, str]
) -> None:
    monkeypatch.setattr(causes, "check_disk", lambda _settings: None)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: Disk(100 << 30, 0, free << 30))
    finding = doctor.check_disk(settings)
    assert seen(finding) == expected[:2]
    assert finding.problem.startswith(expected[2])
    assert bool(finding.problem) == bool(expected[2])


def test_disk_without_room(settings: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "check_disk", raiser(NodeFault("no room", cause="disk")))
    with pytest.raises(NodeFault, match="no room"):
        doctor.check_disk(settings)


@pytest.mark.parametrize(("word", "state"), [(0, "ok"), (3, "ok"), (5, "warn")])
def test_clock_that_nobody_keeps_is_told(settings: NodeSettings, word: int, state: str) -> None:
    finding = doctor.check_clock(settings, lambda: word)
    assert finding.state == state
    assert bool(finding.problem) is (state == "warn")


def test_kernel_tells_of_its_clock(settings: NodeSettings) -> None:
    assert doctor.check_clock(settings).state in ("ok", "warn")


@pytest.mark.parametrize(
    ("age_s", "up_s", "expected"),
    [
        (10, 99999, ("ok", "ok")),
        (1900, 99999, ("bad", "late")),
        (None, 99999, ("bad", "never")),
        (None, 60, ("ok", "new")),
    ],
)
def test_sweep_that_does_not_come(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, age_s: int | None, up_s: int, expected: tuple[str, str]
) -> None:
    monkeypatch.setattr(doctor.time, "clock_gettime", lambda _clock: up_s)
    if age_s is not None:
        doctor.note_sweep(settings)
        when = time.time() - age_s
        os.utime(settings.run_dir / doctor.SWEPT, (when, when))
    finding = doctor.check_sweep(settings, settings.run_dir / "no-systemd")
    assert seen(finding) == expected
    assert ("vtorque-sweep" in finding.explanation) is (expected[0] == "bad")


@pytest.mark.parametrize(
    ("systemctl", "expected"), [("true", ("ok", "ok")), ("false", ("bad", "off")), ("gone", ("bad", "off"))]
)
def test_timer_of_the_sweep(settings: NodeSettings, systemctl: str, expected: tuple[str, str]) -> None:
    doctor.note_sweep(settings)
    finding = doctor.check_sweep(settings, settings.run_dir, f"/usr/bin/{systemctl}")
    assert seen(finding) == expected
    assert ("systemctl enable --now vtorque-sweep.timer" in finding.remedy) is (expected[0] == "bad")


def test_leftovers_of_the_last_sweep_are_reported(settings: NodeSettings) -> None:
    """Until one leaves nothing."""
    doctor.note_sweep(settings, ["4.fe.1: still\nhere\x1b[2J", *map(str, range(9))])
    finding = doctor.check_sweep(settings, settings.run_dir / "no-systemd")
    assert seen(finding) == ("warn", "left")
    assert finding.problem == "the last one left: 4.fe.1: still here?[2J; 0; 1; 2; 3"
    doctor.note_sweep(settings)
    assert seen(doctor.check_sweep(settings, settings.run_dir / "no-systemd")) == ("ok", "ok")


@pytest.mark.parametrize(
    ("changes", "expected", "message"),
    [
        ({}, ("ok", "-"), ""),
        ({"home_export": "127.0.0.1:/home"}, ("ok", "nfs"), ""),
        ({"home_export": "no.such.invalid:/home"}, ("bad", "bad"), "NFS server no.such.invalid: "),
        ({"mounts": (Mount("nfs", "no.such.invalid:/sw", "/sw"),)}, ("bad", "bad"), "NFS server no.such.invalid: "),
        ({"mounts": (Mount("9p", "/sw", "/sw"),)}, ("ok", "-"), ""),
    ],
)
def test_sharing(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, changes: dict[str, t.Any], expected: tuple[str, str],
    message: str,
) -> None:  # fmt: skip
    def resolve(name: str, *_more: object, **_how: object) -> list[object]:
        if name.endswith(".invalid"):
            raise OSError(-2, "Name or service not known")
        return []

    monkeypatch.setattr(doctor.socket, "getaddrinfo", resolve)
    finding = doctor.check_sharing(dataclasses.replace(settings, **changes))
    assert seen(finding) == expected
    assert finding.problem.startswith(message)
    assert bool(finding.problem) == bool(message)


def test_sharing_without_its_program(settings: NodeSettings) -> None:
    wanting = dataclasses.replace(settings, home_via="virtiofs", virtiofsd=(settings.run_dir / "gone",))
    with pytest.raises((NodeFault, SiteFault), match="virtiofsd"):
        doctor.check_sharing(wanting)


def test_whom_confined_guests_may_reach_has_an_address(settings: NodeSettings) -> None:
    """A job would be held for it."""
    confined = dataclasses.replace(settings, home_via="nfs", confine_guests=True, may_reach=("127.0.0.1",))
    assert doctor.check_sharing(confined).state == "ok"
    with pytest.raises(SiteFault, match=r"the address of licences\.invalid: is not known here"):
        doctor.check_sharing(dataclasses.replace(confined, may_reach=("licences.invalid",)))


def test_host_that_could_not_stay_bare_is_well(settings: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many sites have no mixed requests."""
    monkeypatch.setattr(sshd, "check_sshd", raiser(SiteFault("sshd of cn1", "takes no keys of jobs", "place it")))
    finding = doctor.check_bare(settings)
    assert (finding.state, finding.remedy) == ("warn", "place it")
    monkeypatch.setattr(sshd, "check_sshd", lambda *_words: None)
    assert doctor.check_bare(settings) == Finding("bare")


@pytest.mark.parametrize(("alive", "expected"), [(True, ("ok", "ok")), (False, ("warn", "1"))])
def test_leftovers_are_reported_and_not_removed(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, alive: bool, expected: tuple[str, str]
) -> None:
    monkeypatch.setattr(sweep, "Domains", raiser(NodeFault("libvirt", "is silent", cause="libvirt")))
    there = settings.guests_dir / "4.fe.1" / "g0"
    there.mkdir(parents=True)
    finding = doctor.check_leftovers(settings, lambda _job, _start: alive, lambda _job: False)
    assert seen(finding) == expected
    assert ("directory 4.fe.1" in finding.problem) is not alive
    assert there.exists()
    assert not (settings.run_dir / "suspects.json").exists()


def test_mark_of_a_sweep_is_renewed_and_never_in_the_way(settings: NodeSettings, tmp_path: pathlib.Path) -> None:
    mark = settings.run_dir / doctor.SWEPT
    doctor.note_sweep(settings)
    os.utime(mark, (1, 1))
    doctor.note_sweep(settings)
    assert (mark.stat().st_mtime > 1, mark.stat().st_mode & 0o777) == (True, 0o600)
    mark.unlink()
    mark.symlink_to(tmp_path / "elsewhere")
    doctor.note_sweep(settings)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("ages_s", "why", "expected", "message"),
    [
        ((), "", ("ok", "0"), ""),
        ((10.0, 60.0), "", ("ok", "2"), ""),
        ((10.0, 7300.0), "Connection refused", ("warn", "2"), r"2 records .* for 2 hours: Connection refused"),
        ((7300.0,), "", ("warn", "1"), "has not tried it yet"),
    ],
)
def test_records_that_the_front_end_does_not_get_are_told(
    settings: NodeSettings, ages_s: tuple[float, ...], why: str, expected: tuple[str, str], message: str
) -> None:
    """A word, and never more: the node is well."""
    for number, age_s in enumerate(ages_s):
        key = f"{number}.head.1"
        record = settings.state_dir / "records" / key / "record.json"
        record.parent.mkdir(parents=True)
        record.write_text("{}")
        os.utime(record, (time.time() - age_s,) * 2)
        delivery_queue.mark_pending(key, settings.state_dir)
        delivery_queue.tried(key, why, settings.state_dir)
    finding = doctor.check_spool(settings)
    assert seen(finding) == expected
    assert re.search(message, finding.problem)


def test_each_check_is_known(settings: NodeSettings) -> None:
    assert set(doctor.checks(settings)) < set(CHECKS)
    assert set(doctor.checks(settings)) >= {
        "libvirt",
        "virtualisation",
        "vhost-net",
        "affinity",
        "bridge",
        "pool",
        "disk",
        "programs",
    }


def test_cache_is_told_of_how_full_it_is_and_of_what_is_wrong(
    settings: NodeSettings, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> Finding:
        return doctor.check_cache(dataclasses.replace(settings, cache_bytes=8 << 20), tmp_path / "no systemd")

    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    assert seen(look()) == ("ok", "-")
    settings.pool.chmod(0o755)
    image_pool.add(settings.pool, "tiny@1")
    for name in ("tiny@1", "gone@1"):
        copy_queue.want(settings, copy_queue.Want("local", name))
    copy_worker.work_off(settings, lambda *_words: None)
    assert seen(look()) == ("warn", "50%")
    assert "gone@1: no such image" in look().problem
    copy_queue.want(settings, copy_queue.Want("local", "gone@1"))
    assert seen(look()) == ("ok", "50%")
    image_pool.spoil(settings.images_dir / "copies/tiny@1/disk.img")
    assert "copy of tiny@1: disk.img was changed since it was verified" in look().problem


def test_cache_that_nobody_fills_needs_somebody(settings: NodeSettings, tmp_path: pathlib.Path) -> None:
    assert seen(doctor.check_cache(settings, tmp_path, "/bin/false")) == ("bad", "off")
    assert doctor.check_cache(settings, tmp_path, "/bin/true").state == "ok"


@pytest.mark.parametrize(
    ("totals", "raises", "state", "printed", "message"),
    [
        ((0, 0), True, "ok", "-", ""),
        ((0, 0), False, "warn", "-", "hugepages_raise is false"),
        ((100, 100), False, "ok", "380/400 MiB", ""),
        ((100, 0), True, "warn", "180/200 MiB", "some cells have none: cell 0: 90 of 100 pages of 2M are free"),
        ((300, 250), True, "warn", "1080/1100 MiB", "1100 MiB in huge pages leave no ordinary memory for guests"),
    ],
)
def test_huge_pages_are_counted_and_warned_of_where_they_hinder(
    settings: NodeSettings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    totals: tuple[int, int],
    raises: bool,
    state: str,
    printed: str,
    message: str,
) -> None:
    pools = Pools(tmp_path / "sys", monkeypatch)
    for cell, total in enumerate(totals):
        pools.set(cell, total, 10 if total and not cell else 0)
    monkeypatch.setattr(memory, "node_mib", lambda: 1000)
    finding = doctor.check_pages(dataclasses.replace(settings, host_ram_mib=100, pages_raise=raises))
    assert (seen(finding), message in finding.problem) == ((state, printed), True)


def test_kernel_without_huge_pages_is_nothing_to_look_at(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(hugepages, "NODES", tmp_path)
    assert seen(doctor.check_pages(settings)) == ("none", "-")
