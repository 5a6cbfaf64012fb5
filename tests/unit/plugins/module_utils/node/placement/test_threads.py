# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The threads of guests, in a tree like /proc: those that are astray are moved, and named where they cannot be."""

from __future__ import annotations

import errno
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.pins import Pins
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.threads import (
    place_threads,
    read_threads,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import cpus

QEMU, SERVER = 100, 150
PINS = Pins(((1,), (2, 3)), (0,))
QEMU_GROUP = "0::/machine/qemu-1-vcn1-1.libvirt-qemu/libvirt/emulator\n"


class Proc:
    """A tree of processes and threads whose cores can be changed."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.stuck: set[int] = set()
        self.in_group: set[int] = set()
        """Threads that go nowhere before they are in another control group."""
        self.group = root / "cgroup" / "machine/qemu-1-vcn1-1.libvirt-qemu/libvirt/emulator"
        (root / "mounts").parent.mkdir(exist_ok=True)
        (root / "mounts").write_text(f"cgroup2 {root / 'cgroup'} cgroup2 rw 0 0\n")
        self.places: dict[int, pathlib.Path] = {}

    def put(self, number: int, name: str, cores: str, *, of: int = 0, parent: int = 1, group: str = "0::/\n") -> None:
        path = self.root / str(of) / "task" / str(number) if of else self.root / str(number)
        path.mkdir(parents=True, exist_ok=True)
        (path / "status").write_text(f"Name:\t{name}\nPPid:\t{parent}\nCpus_allowed_list:\t{cores}\n")
        (path / "comm").write_text(f"{name}\n")
        (path / "cgroup").write_text(group)
        self.places[number] = path / "status"

    def move(self, number: int, cores: t.Iterable[int]) -> None:
        joined = (self.group / "cgroup.threads").exists() and (self.group / "cgroup.threads").read_text() == str(number)
        if number in self.stuck or (number in self.in_group and not joined):
            raise OSError(errno.EINVAL, "Invalid argument")
        lines = self.places[number].read_text().splitlines()
        lines[2] = f"Cpus_allowed_list:\t{cpus.format_cores(sorted(cores))}"
        self.places[number].write_text("\n".join(lines))

    def place(self, pins: Pins = PINS, *, exactly: bool = False) -> tuple[str, ...]:
        return place_threads("vcn1-1", QEMU, (SERVER,), pins, exactly=exactly, move=self.move, proc=self.root)


@pytest.fixture
def proc(tmp_path: pathlib.Path) -> Proc:
    """A guest of two vCPUs, whose threads are all where they must be."""
    made = Proc(tmp_path)
    made.put(QEMU, "qemu-system-x86", "0", group=QEMU_GROUP)
    made.put(QEMU, "qemu-system-x86", "0", of=QEMU, group=QEMU_GROUP)
    for number, name, cores in ((101, "CPU 0/KVM", "1"), (102, "CPU 1/KVM", "2-3"), (103, "IO mon_iothread", "0")):
        made.put(number, name, cores, of=QEMU)
    made.put(SERVER, "virtiofsd", "0")
    made.put(SERVER, "virtiofsd", "0", of=SERVER)
    made.put(3, "vhost-999", "0-7", parent=2)
    return made


def test_threads_that_are_where_they_must_be_are_left_alone(proc: Proc) -> None:
    assert proc.place() == ()


@pytest.mark.parametrize(
    ("number", "name", "where"),
    [
        (201, f"vhost-{QEMU}", {"parent": 2}),
        (202, f"kvm-pit/{QEMU}", {"parent": 2}),
        (203, f"kvm-nx-lpage-recovery-{QEMU}", {"parent": 2}),
        (204, "kvm-nx-lpage-re", {"parent": 2, "group": QEMU_GROUP}),
        (205, f"vhost-{QEMU}", {"of": QEMU}),
        (206, "kvm-nx-lpage-re", {"of": QEMU}),
        (207, "worker", {"of": QEMU}),
        (209, "IO iothread1", {"of": QEMU}),
        (208, "virtiofsd", {"of": SERVER}),
        (101, "CPU 0/TCG", {"of": QEMU}),
    ],
)
def test_thread_that_is_astray_is_moved_whoever_made_it(
    proc: Proc, number: int, name: str, where: dict[str, t.Any]
) -> None:
    proc.put(number, name, "0-7", **where)
    assert proc.place() == (name,)
    found = {thread.number: thread.allowed for thread in read_threads(QEMU, (SERVER,), proc.root)}
    assert found[number] == ((1,) if name.startswith("CPU 0") else (0,))


def test_thread_of_another_guest_or_of_a_user_is_not_touched(proc: Proc) -> None:
    proc.put(301, f"vhost-{QEMU}", "0-7", parent=1)  # anybody may call their process so
    proc.put(302, f"vhost-{QEMU}9", "0-7", parent=2)
    proc.put(303, "kvm-nx-lpage-re", "0-7", parent=2, group="0::/machine/qemu-2-vcn1-2.libvirt-qemu/libvirt/emulator\n")
    assert proc.place() == ()


def test_thread_whose_group_does_not_reach_so_far_is_put_into_that_of_the_emulator(proc: Proc) -> None:
    """As the kernel's own in the group of the first vCPU (6.14 and later)."""
    proc.group.mkdir(parents=True)
    (proc.group / "cgroup.threads").touch()
    proc.put(206, "kvm-nx-lpage-re", "1", of=QEMU)
    proc.in_group.add(206)
    assert proc.place() == ("kvm-nx-lpage-re",)


@pytest.mark.parametrize(("number", "name", "of"), [(202, f"kvm-pit/{QEMU}", 0), (102, "CPU 1/KVM", QEMU)])
def test_thread_that_cannot_be_moved_is_the_nodes_fault_and_named(proc: Proc, number: int, name: str, of: int) -> None:
    proc.put(number, name, "0-7", of=of, parent=2)
    proc.stuck.add(number)
    with pytest.raises(NodeFault, match=rf"guest vcn1-1: {name} \({number}\) may run on 0-7, and its place is"):
        proc.place()


def test_one_thread_of_all_vcpus_may_run_on_the_cores_of_all(proc: Proc) -> None:
    for number, name in ((101, "ALL CPUs/TCG"), (102, "worker")):
        proc.put(number, name, "0", of=QEMU)
    assert proc.place() == ("ALL CPUs/TCG",)
    found = {thread.name: thread.allowed for thread in read_threads(QEMU, (), proc.root)}
    assert found["ALL CPUs/TCG"] == (1, 2, 3)


def test_vcpu_without_a_thread_is_the_nodes_fault(proc: Proc) -> None:
    proc.put(102, "CPU 1", "2-3", of=QEMU)
    with pytest.raises(NodeFault, match="vCPU 1 has no thread of its own"):
        proc.place()


def test_thread_that_ends_while_it_is_read_is_none(proc: Proc) -> None:
    (proc.root / str(QEMU) / "task" / "103" / "status").unlink()
    (proc.root / "401").mkdir()
    assert proc.place() == ()


def test_threads_that_get_more_cores_are_let_onto_all_of_them(proc: Proc) -> None:
    """Cores for virtual I/O grow: to be within them is not enough."""
    proc.put(201, f"vhost-{QEMU}", "0", parent=2)
    more = Pins(((1,), (2, 3)), (0, 4))
    assert proc.place(more) == ()
    assert set(proc.place(more, exactly=True)) == {"qemu-system-x86", "IO mon_iothread", "virtiofsd", f"vhost-{QEMU}"}
    assert {thread.allowed for thread in read_threads(QEMU, (SERVER,), proc.root) if thread.vcpu is None} == {(0, 4)}
    assert proc.place(more, exactly=True) == ()


def test_thread_that_its_group_keeps_from_more_cores_is_no_fault(proc: Proc) -> None:
    proc.stuck.add(103)
    assert "IO mon_iothread" in proc.place(Pins(((1,), (2, 3)), (0, 4)), exactly=True)
