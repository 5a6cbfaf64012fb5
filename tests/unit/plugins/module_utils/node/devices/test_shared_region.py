# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A region of memory that guests of a start share: whose it is at every moment, and that it goes with the start."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import stat
import types
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import doctor, sweep
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.devices import (
    api,
    host_devices,
    leases,
    shared_region,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.creation import preflight
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal.leftovers import (
    list_leftovers_without_libvirt,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import memory
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError, from_dict, to_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.node_answers import GuestFacts

from ..conftest import Node, spec

KEY = "7.head.1"
NUMBER = bytes(range(8))
NAME = "vtorque-0001020304050607"


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """What stands for /dev/shm."""
    place = tmp_path / "shm"
    place.mkdir()
    place.chmod(0o1777)
    monkeypatch.setattr(shared_region, "PLACE", place)
    return place


@pytest.fixture
def settings(tmp_path: pathlib.Path, place: pathlib.Path) -> NodeSettings:
    assert place
    return NodeSettings("cn1", 1, state_dir=tmp_path / "state", run_dir=tmp_path / "run", shares_regions=True)


@pytest.fixture
def sharing(node: Node, place: pathlib.Path) -> Node:
    """A node whose site lets guests share memory."""
    assert place
    node.settings = dataclasses.replace(node.settings, shares_regions=True)
    return node


def foresee(monkeypatch: pytest.MonkeyPatch, *numbers: bytes) -> None:
    """Let the next names be these, as no user could."""
    left = list(numbers)
    monkeypatch.setattr(shared_region.os, "urandom", lambda _count: left.pop(0))


def taking(settings: NodeSettings, size_mib: int = 2, guests: int = 2, key: str = KEY) -> api.Taking:
    specs = tuple(spec(index, shared_mib=size_mib) for index in range(guests))
    return api.Taking(key, specs, settings, (), (), Deadline.after(60))


def attached(settings: NodeSettings, **more: t.Any) -> str:
    """The name of a region that was made."""
    found = host_devices.take(taking(settings, **more))
    every = [device for devices in found.values() for device in devices]
    host_devices.attach(every, (0, 0), Deadline.after(60))
    return every[0].name


def test_take_leases_one_region_for_all_guests_and_makes_nothing(settings: NodeSettings, place: pathlib.Path) -> None:
    found = host_devices.take(taking(settings, guests=3))
    [name] = {device.name for devices in found.values() for device in devices}
    assert sorted(found) == [0, 1, 2]
    assert leases.read_leases(settings) == (leases.Lease(name, KEY, 0, "region"),)
    assert list(place.iterdir()) == []


def test_attach_makes_a_file_of_the_whole_size_for_qemu_alone(settings: NodeSettings, place: pathlib.Path) -> None:
    facts = (place / attached(settings)).lstat()
    assert (stat.S_IMODE(facts.st_mode), facts.st_uid, facts.st_size) == (0o600, 0, 2 << 20)
    assert facts.st_blocks * 512 >= 2 << 20, "a page that is not there would end the guest that touches it"


def test_attach_lets_nobody_else_in_at_any_moment(
    settings: NodeSettings, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mode is looked at after each call to the system, whatever the umask is."""
    seen = []
    given: list[tuple[int, ...]] = []

    class Watched(types.SimpleNamespace):
        def __getattr__(self, name: str) -> t.Any:
            real = getattr(os, name)
            if not callable(real) or isinstance(real, type):
                return real

            def call(*args: t.Any, **named: t.Any) -> t.Any:
                if name == "fchown":
                    given.append(args[1:])
                    value = None
                else:
                    value = real(*args, **named)
                seen.extend((name, stat.S_IMODE(path.lstat().st_mode)) for path in place.iterdir())
                return value

            return call

    found = host_devices.take(taking(settings))
    monkeypatch.setattr(shared_region, "os", Watched())
    before = os.umask(0)
    try:
        host_devices.attach(found[0], (64055, 109), Deadline.after(60))
    finally:
        os.umask(before)
    calls = collections.Counter(name for name, _mode in seen)
    assert {"open", "posix_fallocate", "fchown"} <= set(calls)
    assert {mode for _name, mode in seen} == {0o600}
    assert given == [(64055, 109)]
    assert [name for name, _mode in seen].index("fchown") > [name for name, _mode in seen].index("posix_fallocate")


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "directory"])
def test_attach_touches_nothing_of_that_name(
    settings: NodeSettings, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, kind: str
) -> None:
    foresee(monkeypatch, NUMBER)
    victim = tmp_path / "victim"
    if kind == "file":
        (place / NAME).write_text("theirs")
    elif kind == "directory":
        (place / NAME).mkdir()
    else:
        if kind == "link":
            victim.write_text("theirs")
        (place / NAME).symlink_to(victim)
    if kind == "file":
        os.chown(place / NAME, 4711, 4711)
    found = host_devices.take(taking(settings))
    with pytest.raises(VTorqueError, match="it cannot be made: File exists"):
        host_devices.attach(found[0], (0, 0), Deadline.after(60))
    assert host_devices.give_back(settings, KEY) == ()
    assert leases.read_leases(settings) == ()
    assert os.path.lexists(place / NAME), "it is not ours to remove"
    assert not victim.exists() if kind != "link" else victim.read_text() == "theirs"


def test_take_after_a_start_that_ended_half_way_leaves_one_region(settings: NodeSettings, place: pathlib.Path) -> None:
    first = attached(settings)
    second = attached(settings)
    assert first != second
    assert [path.name for path in place.iterdir()] == [second]
    assert [lease.device for lease in leases.read_leases(settings)] == [second]


def test_give_back_removes_the_region_of_its_start_alone(settings: NodeSettings, place: pathlib.Path) -> None:
    mine, other = attached(settings), attached(settings, key="8.head.1")
    assert host_devices.give_back(settings, KEY) == (f"region {mine}",)
    assert [path.name for path in place.iterdir()] == [other]


def test_give_back_that_fails_is_tried_again(
    settings: NodeSettings, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = attached(settings)

    def refuse(*_args: object, **_named: object) -> t.NoReturn:
        raise PermissionError(1, "no")

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "unlink", refuse)
        assert host_devices.give_back(settings, KEY) == ()
    assert [lease.device for lease in leases.read_leases(settings)] == [name]
    assert host_devices.give_back(settings, KEY) == (f"region {name}",)
    assert list(place.iterdir()) == []


def test_take_of_more_than_the_node_has_is_refused_with_figures(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = types.SimpleNamespace(f_blocks=1024, f_bavail=256, f_frsize=1 << 20)
    monkeypatch.setattr(shared_region.os, "statvfs", lambda _place: room)
    with pytest.raises(UserFault, match=r"unclot_shmem=2G: .* of cn1 holds 1024 MiB"):
        host_devices.take(taking(settings, 2048))
    with pytest.raises(VTorqueError, match=r"unclot_shmem=512M: .* has 256 MiB left") as error:
        host_devices.take(taking(settings, 512))
    assert type(error.value) is VTorqueError, "another time there may be room"
    assert leases.read_leases(settings) == ()


def test_take_is_refused_where_the_site_or_the_node_cannot_have_it(settings: NodeSettings, place: pathlib.Path) -> None:
    with pytest.raises(UserFault, match="unclot_enabled"):
        host_devices.take(taking(dataclasses.replace(settings, shares_regions=False)))
    place.chmod(0o777)
    with pytest.raises(SiteFault, match=r"lets every user remove files of others \(mode 777, not 1777\)"):
        host_devices.take(taking(settings))
    place.rmdir()
    with pytest.raises(SiteFault, match="No such file or directory"):
        host_devices.take(taking(settings))


def test_doctor_names_a_place_in_which_no_region_can_be_made(settings: NodeSettings, place: pathlib.Path) -> None:
    assert doctor.check_devices(settings).state == "none"
    place.chmod(0o777)
    found = doctor.check_devices(settings)
    assert (found.state, "mode 777, not 1777" in found.problem) == ("bad", True)
    assert doctor.check_devices(dataclasses.replace(settings, shares_regions=False)).state == "none"


def test_attach_without_memory_is_no_fault_of_a_disk(
    settings: NodeSettings, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> t.NoReturn:
        raise OSError(28, "No space left on device")

    found = host_devices.take(taking(settings))
    monkeypatch.setattr(shared_region.os, "posix_fallocate", full)
    with pytest.raises(VTorqueError, match="No space left on device") as error:
        host_devices.attach(found[0], (0, 0), Deadline.after(60))
    assert error.value.__cause__ is None
    assert host_devices.give_back(settings, KEY)
    assert list(place.iterdir()) == []


def test_attach_ends_with_its_deadline(settings: NodeSettings) -> None:
    found = host_devices.take(taking(settings))
    with pytest.raises(VTorqueError, match="not there in time"):
        host_devices.attach(found[0], (0, 0), Deadline.after(0))


# -- starts


def regions(node: Node) -> list[tuple[str, str | None]]:
    """Name and size of the region of each guest."""
    elements = [ET.fromstring(one.xml).find("devices/shmem") for one in node.hypervisor.running.values()]
    return [(one.get("name", ""), one.findtext("size")) for one in elements if one is not None]


def test_guests_of_a_start_have_one_region_that_goes_with_them(sharing: Node, place: pathlib.Path) -> None:
    for start in (1, 2):
        facts = sharing.present(sharing.part(2, start=start, shared_mib=2))
        assert [one.devices for one in facts] == ["unclot:2M", "unclot:2M"]
        [path] = place.iterdir()
        assert regions(sharing) == [(path.name, "2"), (path.name, "2")]
        assert [one.shares_region for one in sharing.seeds[-2:]] == [True, True]
        assert f"region {path.name}" in sharing.absent(start)
        assert list(place.iterdir()) == []
    assert present_absent.describe_leftovers(sharing.settings) == ()


def test_starts_of_a_node_have_regions_of_their_own(sharing: Node, place: pathlib.Path) -> None:
    sharing.present(sharing.part(shared_mib=2))
    sharing.present(sharing.part(shared_mib=2, job_id="8.head"))
    assert len({name for name, _size in regions(sharing)}) == len(list(place.iterdir())) == 2


def test_guest_that_shares_nothing_has_none(sharing: Node, place: pathlib.Path) -> None:
    sharing.present()
    assert regions(sharing) == []
    assert list(place.iterdir()) == []
    assert not sharing.settings.devices_dir.exists()


def test_region_of_a_start_that_did_not_come_up_is_removed(sharing: Node, place: pathlib.Path) -> None:
    sharing.hypervisor.refuses = "internal error: qemu unexpectedly closed the monitor"
    with pytest.raises(VTorqueError, match="closed the monitor"):
        sharing.present(sharing.part(2, shared_mib=2))
    assert len(list(place.iterdir())) == 1
    sharing.absent()
    assert list(place.iterdir()) == []
    assert list_leftovers_without_libvirt(sharing.settings) == ()


def test_region_whose_qemu_was_killed_with_libvirt_is_removed(sharing: Node, place: pathlib.Path) -> None:
    """Nobody knows of the guest any more but its lease."""
    sharing.present(sharing.part(shared_mib=2))
    [path] = place.iterdir()
    sharing.hypervisor.forget()
    assert f"device {path.name} of {KEY}" in present_absent.describe_leftovers(sharing.settings, "7.head", 1)
    sharing.absent()
    assert list(place.iterdir()) == []
    assert present_absent.describe_leftovers(sharing.settings) == ()


def test_region_without_a_lease_is_told_and_strangers_files_are_not(sharing: Node, place: pathlib.Path) -> None:
    for number, owner in enumerate((0, 4711)):
        path = place / f"vtorque-{number:016x}"
        path.write_bytes(b"")
        os.chown(path, owner, owner)
    (place / "sem.other").write_bytes(b"")
    found = sweep.inspect_starts(sharing.settings, lambda *_start: True, lambda _job: True, Deadline.after(60))
    assert [one.why for one in found] == [f"region vtorque-{0:016x}: whose it is cannot be told"]


def test_region_counts_as_memory_of_the_node(sharing: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "node_mib", lambda: 1024)
    monkeypatch.setattr(preflight.memory, "reserved_memory", lambda *_args: (0, "the host"))
    sharing.present(sharing.part(2, shared_mib=2))
    with pytest.raises(UserFault, match=r"ram: 1152 MiB for the guests on cn1, of which they share 1024"):
        sharing.present(sharing.part(2, start=2, shared_mib=1024))


def test_answer_of_a_node_takes_regions_beside_addresses() -> None:
    answer = to_dict(GuestFacts(0, "vcn1-1", "52:54:00:01:02:03", "10.0.0.1", {}))
    for devices in ("unclot:64M", "0000:3b:00.0 unclot:64M"):
        assert from_dict(GuestFacts, {**answer, "devices": devices}).devices == devices
    with pytest.raises(FormError):
        from_dict(GuestFacts, {**answer, "devices": "unclot:64M; reboot"})
