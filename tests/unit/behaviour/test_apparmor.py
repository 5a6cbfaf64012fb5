# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a guest's files libvirt names to AppArmor, by libvirt's own program; the kernel here need not have it."""

from __future__ import annotations

import dataclasses
import fnmatch
import pathlib
import re
import subprocess

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import DomainSpec, render_xml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm.start import FIFO
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

HELPER = pathlib.Path("/usr/lib/libvirt/virt-aa-helper")
VARIABLES = COLLECTION_DIR.parent / "roles/compute_node/vars/main.yml"
GUEST = pathlib.Path("/var/lib/vtorque/guests/7.head.1/vcn1-1")
IMAGE = pathlib.Path("/opt/vm-images/tiny@1")
SPEC = DomainSpec(
    name="vcn1-1", uuid="3b33ef89-55f0-47d0-bcf7-e06aa1dd1806", job_id="7.head", start=1, owner="alice", rank=0,
    node="cn1", hypervisor="kvm", arch="x86_64", ram_mib=256, vcpus=2, disk=GUEST / "disk.qcow2",
    image=IMAGE / "disk.qcow2", image_format="qcow2", seed=GUEST / "seed.iso", console=GUEST / "console.log",
    agent=pathlib.Path("/run/vtorque/agents/1"), bridge="br0", tap="vtq1", mac="52:54:00:00:01:01",
    boot_mode="kernel", kernel=IMAGE / "vmlinuz", initrd=IMAGE / "initrd", cmdline="console=ttyS0",
    virtiofs=(("vtorque0", GUEST / "vtorque0.sock"),), plan9=(("vtorque1", "/srv/data"),),
)  # fmt: skip

pytestmark = pytest.mark.skipif(not HELPER.exists(), reason="libvirt of a distribution with AppArmor")


def rules(spec: DomainSpec) -> dict[str, str]:
    """What the guest's profile would let it do with which file; `-w`: it denies to write there."""
    done = subprocess.run(
        [HELPER, "--create", "--dryrun", "--uuid", f"libvirt-{spec.uuid}"],
        input=render_xml(spec, site_dir=None), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = {}
    for deny, path, word in re.findall(r'(?m)^ *(deny)? *"([^"]+)" (\w+),$', done.stderr + done.stdout):
        found[path] = found.get(path, "") + (f"-{word}" if deny else word)
    return found


def test_a_guest_may_have_its_own_files_and_read_its_image() -> None:
    found = rules(SPEC)
    assert {path: found.get(str(path)) for path in (SPEC.disk, SPEC.console, SPEC.agent)} == {
        SPEC.disk: "rwk", SPEC.console: "rw", SPEC.agent: "rw",
    }  # fmt: skip
    for path in (SPEC.image, SPEC.seed, SPEC.kernel, SPEC.initrd):
        assert re.fullmatch("rk?-w", found[str(path)])
    assert found["/srv/data/**"] == "r"


def test_sockets_of_homes_and_the_memory_of_a_template_are_ours_to_name() -> None:
    ((_tag, socket),) = SPEC.virtiofs
    assert str(socket) not in rules(SPEC)
    block = yaml.safe_load(VARIABLES.read_text())["__compute_node_apparmor"]
    lines = re.findall(r"(?m)^(\S+) (\w+),$", block["content"])
    assert len(lines) == len(block["content"].splitlines())
    for path, wanted in ((socket, "rw"), (GUEST / FIFO, "r")):
        assert [right for form, right in lines if fnmatch.fnmatchcase(str(path), form)] == [wanted]


@pytest.mark.parametrize("pool", ["/usr/local/lib/images", "/usr/share/images"])
def test_pool_that_the_role_refuses_would_stop_guests(pool: str) -> None:
    spec = dataclasses.replace(SPEC, image=pathlib.Path(pool, "tiny@1/disk.qcow2"))
    with pytest.raises(AssertionError, match="skipped restricted file"):
        rules(spec)
