# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest in which an image is tried: its domain, its seed, and its place; that it boots is shown end to end."""

from __future__ import annotations

import os
import pathlib
import subprocess
import types
import typing as t
import xml.etree.ElementTree as ET

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.events import DomainEvent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool.images import Boot, Image
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.trial import boot
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

PLACE = pathlib.Path("/var/lib/vtorque/trial.x1")
SPEC: dict[str, t.Any] = {
    "name": "vtorque-trial-x1", "hypervisor": "qemu", "arch": "x86_64", "place": PLACE,
    "image": pathlib.Path("/opt/vm-images/.work.1/it's <here>"), "image_format": "qcow2", "boot": Boot(),
    "network": True,
}  # fmt: skip
KERNEL = Boot("kernel", PLACE / "vmlinuz", PLACE / "initrd", "console=ttyS0 <x>")
VARIANTS: dict[str, dict[str, t.Any]] = {
    "bios": {}, "kvm": {"hypervisor": "kvm"}, "uefi": {"boot": Boot("uefi")}, "kernel": {"boot": KERNEL},
    "kernel alone": {"boot": Boot("kernel", PLACE / "vmlinuz")}, "raw": {"image_format": "raw"},
    "arm": {"arch": "aarch64", "boot": Boot("uefi")}, "no network": {"network": False},
}  # fmt: skip


def xml(**changes: t.Any) -> str:
    return boot._xml(boot.TrialDomain(**{**SPEC, **changes}))


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_every_variant_is_valid_for_libvirts_schema(changes: dict[str, t.Any], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "domain.xml"
    file.write_text(xml(**changes), encoding="utf-8")
    done = subprocess.run(["virt-xml-validate", file, "domain"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_trial_guest_is_on_no_network_of_the_host(changes: dict[str, t.Any]) -> None:
    root = ET.fromstring(xml(**changes))
    assert root.findall("devices/interface") == []
    arguments = [arg.get("value", "") for arg in root.iter("{http://libvirt.org/schemas/domain/qemu/1.0}arg")]
    assert [word for word in arguments if word.startswith("user,")] == (
        [] if changes.get("network") is False else ["user,id=trial,restrict=on"]
    )
    # no domain of a job's: sweep and doctor pass it by
    assert root.find("metadata") is None


def test_image_is_read_and_the_overlay_written() -> None:
    root = ET.fromstring(xml())
    assert root.find("devices/disk[1]/source").get("file") == f"{PLACE}/disk.qcow2"  # type: ignore[union-attr]
    source = root.find("devices/disk[1]/backingStore/source")
    assert source is not None
    assert source.get("file") == "/opt/vm-images/.work.1/it's <here>"
    assert {label.get("relabel") for label in source.findall("seclabel")} == {"no"}


def test_seed_is_what_cloud_init_reads() -> None:
    seed = boot._seed("0123456789abcdef")
    data = yaml.safe_load(seed["user-data"])
    assert seed["user-data"].startswith("#cloud-config\n")
    assert data["users"] == ["root"]
    assert all(isinstance(word, str) for command in data["bootcmd"] for word in command)
    assert [command[0] for command in data["bootcmd"]] == ["sh", "sh", "systemd-run", "sh"]
    (card,) = yaml.safe_load(seed["network-config"])["ethernets"].values()
    assert card == {"match": {"macaddress": boot.MAC}, "dhcp4": True}


@pytest.mark.parametrize("shell", [["dash"], ["bash", "--posix"]])
def test_report_is_told_by_any_shell(shell: list[str], tmp_path: pathlib.Path) -> None:
    """As a guest runs it, with a file for its console."""
    program = (COLLECTION_DIR / "trial/report.sh").read_text()
    for old, new in (
        ('[ -c "/dev/$tty" ]', "true"), ('>"/dev/$tty"', f">>{tmp_path}/console"),
        ("/proc/sys/kernel/printk", f"{tmp_path}/printk"), ("timeout 60 systemctl", "true"),
        ("/etc/machine-id", f"{tmp_path}/machine-id"), ("/etc/ssh/", f"{tmp_path}/"),
    ):  # fmt: skip
        assert old in program
        program = program.replace(old, new)
    (tmp_path / "printk").write_text("4 4 1 7\n")
    (tmp_path / "report").write_text(program)
    # what is as old as the machine, or empty, is no identity of an image
    brought = tmp_path / "ssh_host_ed25519_key"
    for name, text, time_s in (("machine-id", "", 0), (brought.name, "x", 0), ("ssh_host_rsa_key", "x", None)):
        (tmp_path / name).write_text(text)
        if time_s is not None:
            os.utime(tmp_path / name, (time_s, time_s))
    for when in ("begun", "up"):
        subprocess.run([*shell, tmp_path / "report", "abc", when], check=True, timeout=60)
    lines = [line for line in (tmp_path / "console").read_text().splitlines() if line]
    assert lines[0].startswith("vtorque-trial abc begun ")
    assert lines[1].startswith("vtorque-trial abc up ")
    assert lines[-1] == "vtorque-trial abc end"
    assert [line for line in lines if " identity " in line] == [f"vtorque-trial abc identity {brought}"]
    assert all(line.startswith("vtorque-trial abc ") for line in lines)
    assert (tmp_path / "printk").read_text() == "4 4 1 7\n"


def test_host_without_libvirt_says_nothing_of_the_image(tmp_path: pathlib.Path) -> None:
    image = Image("debian12", tmp_path / "disk", "qcow2", Boot())
    uri = f"qemu+unix:///system?socket={tmp_path}/none"
    with pytest.raises(boot.NotTried, match="not booted: libvirt at"):
        boot.boot(image, uri, Deadline.after(5), allow_emulation=True, tell=lambda _words: None, places=tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (DomainEvent("x", "suspended", "no room"), "its guest was paused: no room"),
        (DomainEvent("", "lost", "libvirt ended"), "libvirt: was lost while the image booted: libvirt ended"),
    ],
)
def test_failure_of_the_host_blames_no_image(event: DomainEvent, message: str) -> None:
    domains: t.Any = types.SimpleNamespace(events=lambda: (DomainEvent("y", "stopped"), event))
    with pytest.raises(boot.NotTried, match=message), boot._trying():
        boot._ended(domains, "x")


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ((), ""),
        ((DomainEvent("x", "started"), DomainEvent("y", "stopped", "it crashed")), ""),
        ((DomainEvent("x", "stopped", "it shut down"),), "it shut down"),
        ((DomainEvent("x", "crashed"),), "crashed"),
    ],
)
def test_end_of_the_guest_is_heard(events: tuple[DomainEvent, ...], why: str) -> None:
    domains: t.Any = types.SimpleNamespace(events=lambda: events)
    assert boot._ended(domains, "x") == why


def test_place_is_gone_and_what_the_killed_left_goes_too(tmp_path: pathlib.Path) -> None:
    places = tmp_path / "state"
    (places / "trial.left/deeper").mkdir(parents=True)
    (places / "guests").mkdir()
    with boot._place(places) as place:
        assert sorted(os.listdir(places)) == ["guests", place.name]
        assert place.stat().st_mode & 0o777 == 0o711
        (place / "disk.qcow2").touch()
        with boot._place(places) as other:
            # that of who works there stays
            assert sorted(os.listdir(places)) == sorted(["guests", place.name, other.name])
        assert (place / "disk.qcow2").exists()
    assert os.listdir(places) == ["guests"]
