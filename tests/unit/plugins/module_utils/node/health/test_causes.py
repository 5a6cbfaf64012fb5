# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each cause for which a node goes offline can be tested, and tests bad when it is there."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import CAUSES, NodeFault, SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import disk_space
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.capabilities import Capabilities
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import causes
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import addresses
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import guest_networks

BOTH = Capabilities({"x86_64": ("kvm", "qemu")})
GIB = 1 << 30


class Disk(t.NamedTuple):
    """What shutil.disk_usage answers."""

    total: int
    used: int
    free: int


class Node:
    """A node that is well, and can be made ill."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.settings = NodeSettings(
            node_name="cn1", node_number=1, pool=directory / "pool", state_dir=directory / "state",
            **{tool: pathlib.Path("/usr/bin/true") for tool in ("qemu_img", "ssh", "flock")},
        )  # fmt: skip
        self.bridge = directory / "net" / "br0"
        self.bridge.mkdir(parents=True)
        (self.bridge / "flags").write_text("0x1003\n")
        patch.setattr(addresses, "SYS_NET", directory / "net")
        patch.setattr(addresses, "node_address", lambda _bridge, _deadline: "10.77.0.11")
        patch.setattr(causes, "kvm_usable", lambda _arch, _offered: "")
        self.offers(BOTH)
        self.has(free=10 * GIB)
        self.images(2 * GIB)

    def offers(self, capabilities: Capabilities | None) -> None:
        class Connection:
            def __init__(self, uri: str) -> None:
                if capabilities is None:
                    raise NodeFault(f"libvirt at {uri}", "gave no answer", cause="libvirt")

            def __enter__(self) -> t.Any:
                return self

            def __exit__(self, *_error: object) -> None:
                return None

            def capabilities(self) -> Capabilities:
                assert capabilities
                return capabilities

        self.patch.setattr(causes, "Domains", Connection)

    def has(self, *, free: int, total: int = 100 * GIB) -> None:
        self.patch.setattr(causes.shutil, "disk_usage", lambda _place: Disk(total, total - free, free))

    def images(self, *sizes: int) -> None:
        known = tuple(
            (str(size), images.Image(str(size), pathlib.Path("/x"), "qcow2", images.Boot(), virtual_bytes=size))
            for size in sizes
        )
        self.patch.setattr(images, "list_images", lambda _pool: known)

    def troubles(self, cause: str = "") -> list[str]:
        found = causes.troubles(self.settings, cause)
        assert all(fault.cause in CAUSES for fault in found)
        return [f"{fault.cause}: {fault}" for fault in found]


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_node_that_is_well_has_no_troubles(node: Node) -> None:
    assert [node.troubles(cause) for cause in ("", *CAUSES)] == [[]] * (1 + len(CAUSES))


def test_libvirt_that_is_silent_is_a_trouble_and_virtualisation_cannot_be_told_then(node: Node) -> None:
    node.offers(None)
    assert [word.partition(":")[0] for word in node.troubles()] == ["libvirt", "libvirt"]
    assert node.troubles("bridge") == []


@pytest.mark.parametrize(
    ("usual", "offered", "kvm", "message"),
    [
        (("kvm", "x86_64"), BOTH, "", ""),
        (("kvm", "x86_64"), BOTH, "/dev/kvm is missing", "/dev/kvm is missing"),
        (("skvm", "x86_64"), BOTH, "/dev/kvm is missing", "/dev/kvm is missing"),
        (("qemu", "x86_64"), BOTH, "/dev/kvm is missing", ""),
        (("qemu", "x86_64"), Capabilities({"x86_64": ("kvm",)}), "", "cannot emulate"),
        (("qemu", "aarch64"), BOTH, "", "arch=aarch64"),
    ],
)
def test_virtualisation_is_tested_for_what_the_sites_jobs_use(
    node: Node, usual: tuple[str, str], offered: Capabilities, kvm: str, message: str
) -> None:
    node.offers(offered)
    node.settings = dataclasses.replace(node.settings, hypervisor_default=usual[0], arch_default=usual[1])
    node.patch.setattr(causes, "kvm_usable", lambda _arch, _offered: kvm)
    found = node.troubles("virtualisation")
    assert [message in word and word.startswith("virtualisation") for word in found] == ([True] if message else [])


def test_bridge_that_is_down_or_gone_is_a_trouble(node: Node) -> None:
    (node.bridge / "flags").write_text("0x1002\n")
    assert "is down" in node.troubles("bridge")[0]
    node.patch.undo()
    missing = dataclasses.replace(node.settings, bridge="vtq-no-bridge")
    assert "is missing" in str(causes.troubles(missing, "bridge")[0])


@pytest.mark.parametrize(
    ("sizes", "free", "well"),
    [
        ((2 * GIB,), 3 * GIB, True),
        ((2 * GIB,), 1 * GIB, False),
        ((2 * GIB, 8 * GIB), 3 * GIB, False),
        ((2 * GIB, 200 * GIB), 3 * GIB, True),
        ((), 1 * GIB, True),
        ((), 1 << 20, False),
    ],
)
def test_disk_needs_room_for_the_largest_guest_that_it_could_bear(
    node: Node, sizes: tuple[int, ...], free: int, well: bool
) -> None:
    node.images(*sizes)
    node.has(free=free)
    found = node.troubles("disk")
    assert bool(found) is not well
    assert all("no room" in word for word in found)


def test_pool_that_cannot_be_read_is_no_trouble_of_the_node(node: Node) -> None:
    node.has(free=1 * GIB)
    node.patch.setattr(images, "list_images", missing)
    assert node.troubles("disk") == []


def missing(_pool: pathlib.Path) -> t.NoReturn:
    raise SiteFault("image pool", "cannot be read")


def test_room_that_is_promised_to_running_guests_is_not_free(node: Node) -> None:
    overlay = node.settings.guests_dir / "7.head.1" / "vcn1-1" / "disk.qcow2"
    overlay.parent.mkdir(parents=True)
    overlay.write_bytes(b"QFI\xfb\0\0\0\3" + b"\0" * 16 + (9 * GIB).to_bytes(8, "big"))
    assert 0 <= 9 * GIB - disk_space.read_disk_use(node.settings.guests_dir).promised_bytes < 1 << 16
    assert "promised" in node.troubles("disk")[0]
    overlay.unlink()
    assert node.troubles("disk") == []


def test_disk_that_takes_nothing_is_a_trouble(node: Node) -> None:
    node.settings.state_dir.write_text("a file where a directory should be")
    assert node.troubles("disk")[0].startswith("disk: the disk of")


@pytest.mark.parametrize(
    ("program", "message"),
    [("/usr/bin/no-such-program", "No such file"), ("/usr/bin/false", "status 1"), ("/etc/passwd", "Permission")],
)
@pytest.mark.parametrize("tool", ["qemu_img", "ssh", "flock"])
def test_program_that_is_missing_or_does_not_run_is_a_trouble(
    node: Node, tool: str, program: str, message: str
) -> None:
    settings = dataclasses.replace(node.settings, **{tool: pathlib.Path(program)})
    (fault,) = causes.troubles(settings, "programs")
    assert fault.cause == "programs"
    assert message in str(fault)


def test_program_of_private_networks_is_one_where_the_site_has_such(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a node could make no table of a job's own network."""
    mine = guest_networks.read_line("mine vxlan addresses=172.31.0.0/16")
    monkeypatch.setattr(causes, "TOOL_ENVIRONMENT", {"PATH": "/nowhere"})
    causes.check_programs(node.settings)
    with pytest.raises(NodeFault, match="bridge on cn1: No such file") as caught:
        causes.check_programs(dataclasses.replace(node.settings, networks=(mine,)))
    assert caught.value.cause == "programs"


def test_virtiofsd_is_one_of_the_programs_where_the_site_shares_by_it(node: Node) -> None:
    none = dataclasses.replace(node.settings, virtiofsd=(pathlib.Path("/usr/bin/no-such-program"),))
    assert causes.troubles(none, "programs") == ()
    (fault,) = causes.troubles(dataclasses.replace(none, home_via="virtiofs"), "programs")
    assert (fault.cause, fault.why) == ("programs", "is not installed, and the site shares directories by it")


def test_cause_that_cannot_be_tested_is_not_healthy(node: Node) -> None:
    (node.bridge / "flags").unlink()
    assert node.troubles("bridge")[0].startswith("bridge: bridge of cn1: ")


def test_cause_that_nobody_knows_tests_everything(node: Node) -> None:
    node.offers(None)
    assert node.troubles("weather") == node.troubles()
