# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's configuration, and what it makes of requests."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.eligibility import guest_saving
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission import numa, vcpu_map
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission import resolve as policy_module
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resolve import (
    ImageFacts,
    Offers,
    ResolvedRequest,
    resolve,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resources import (
    demand,
    too_big,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.registry import open_terms
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import consistency
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import (
    BOUNDS_OF,
    DEFAULT_OF,
    PARAMETERS,
    Policy,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_file import PolicyErrors, load
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.demand import Demand, NodeSize
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.host_expressions import host_matches
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.keys import KEYS
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import (
    Request,
    RequestErrors,
    parse,
)

POOL = Offers(
    images=(
        ImageFacts("debian12@2", "debian", "x86_64"),
        ImageFacts("debian12@10", "debian", "x86_64"),
        ImageFacts("jammy@1", "ubuntu", "x86_64"),
        ImageFacts("arm@1", "debian", "aarch64"),
        ImageFacts("osv@1", "osv"),
        ImageFacts("osv-base@1", "osvbase", "x86_64"),
        ImageFacts("tiny.qcow2"),
    )
)


def write(directory: pathlib.Path, text: str) -> pathlib.Path:
    directory.chmod(0o755)
    path = directory / "vtorque.yml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


def loaded(directory: pathlib.Path, text: str) -> Policy:
    return load(write(directory, text), owner_uid=os.getuid())


def ask(text: str, policy: Policy | None = None, offers: Offers = POOL) -> ResolvedRequest:
    request = parse([(text, "command line")]) if text else Request()
    return resolve(request, policy or Policy(), offers)


def objections(text: str, policy: Policy | None = None, offers: Offers = POOL) -> dict[str, str]:
    with pytest.raises(RequestErrors) as caught:
        ask(text, policy, offers)
    return {fault.key: fault.message for fault in caught.value.faults}


# the file


def test_empty_file_gives_the_shipped_defaults(tmp_path: pathlib.Path) -> None:
    assert loaded(tmp_path, "# nothing\n") == Policy()


def test_file_is_read_into_typed_values(tmp_path: pathlib.Path) -> None:
    policy = loaded(
        tmp_path,
        "vcpus_default: 2\nram_default: 1.5G\nram_max: '4096'\nmac_prefix: '52:54:AB'\nallow_emulation: yes\n"
        "hypervisor_default: QEMU\ndisabled_hosts_list: '*'\nnode_number: 7\nimg_default: tiny\ndomain:\n",
    )
    assert (policy.vcpus_default, policy.ram_default, policy.ram_max) == (2, 1536, 4096)
    assert (policy.mac_prefix, policy.allow_emulation, policy.hypervisor_default) == ("52:54:ab", True, "qemu")
    assert (policy.disabled_hosts_list, policy.node_number, policy.domain) == (".*", 7, None)


def test_every_fault_of_the_file_is_named_at_once(tmp_path: pathlib.Path) -> None:
    text = (
        "vcpu_default: 3\nmac_prefix: 52:54:00\nspare_default: no\nvcpus_default: 2\nvcpus_default: 3\n"
        "ram_default: 4X\ncustom_ip_mapping: true\nIMAGE_POOL: /x\nTIMEOUT: 3\nhypervisor_default: qemu\n"
        "regex_fe: '('\nprefix:\nbridge: [br0]\nname_server: ns.site.org\n"
    )
    with pytest.raises(PolicyErrors) as caught:
        loaded(tmp_path, text)
    report = {(fault.key, fault.origin): fault.message for fault in caught.value.faults}
    expected = {
        ("vcpu_default", "line 1"): "did you mean vcpus_default?",
        ("mac_prefix", "line 2"): "in quotes",
        ("spare_default", "line 3"): "0 to 1000",
        ("vcpus_default", "line 5"): "is given twice, in line 4 too",
        ("ram_default", "line 6"): "a number with K, M, G or T",
        ("custom_ip_mapping", "line 7"): "needs ip_to_mac_script",
        ("IMAGE_POOL", "line 8"): "it is called vm_img_dir",
        ("TIMEOUT", "line 9"): "it is called timeout",
        ("hypervisor_default", "line 10"): "needs allow_emulation",
        ("regex_fe", "line 11"): "a regular expression",
        ("prefix", "line 12"): "an absolute path",
        ("bridge", "line 13"): "the name of an interface",
        ("name_server", "line 14"): "an address",
    }
    assert set(report) == set(expected)
    assert [key for key, arguments in expected.items() if arguments not in report[key]] == []
    assert caught.value.fault == "site"
    assert "ram_default=4X" in str(caught.value)


SWITCH = "vrdma_kind: vhostuser\nvrdma_bridge: brv\n"


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("vcpus_max: 4\n", "vcpus_default", "at most 4 on this site"),
        ("vcpus_min: 9\nvcpus_max: 8\n", "vcpus_min", "is more than vcpus_max (8)"),
        ("timeout: 300\n", "timeout", "is more than prologue_timeout (270)"),
        (
            "security_updates: true\nsecurity_updates_timeout: 151\n",
            "security_updates_timeout",
            "and timeout together are 271 s, more than prologue_timeout (270)",
        ),
        ("img_default: /home/a/own.img\n", "img_default", "a path needs allow_user_images"),
        ("allow_user_images: yes\nconfine_guests: no\n", "allow_user_images", "needs confine_guests"),
        ("allow_user_images: yes\nvm_nfs_home: fs:/home\n", "allow_user_images", "does not go with vm_nfs_home: "),
        (
            "allow_user_images: yes\nvm_nfs_ws: fs:/w\nvm_nfs_opt: fs:/o\nmounts: ['fs:/d /data nfs ro']\n",
            "allow_user_images",
            "does not go with vm_nfs_ws, vm_nfs_opt, mounts: ",
        ),
        (
            "disk_default: ~/d.img\nmounts: ['fs:/d /data nfs']\n",
            "disk_default",
            "something of the site's own on /data",
        ),
        ("disk_default: /home/all.img\n", "disk_default", "~/PATH: the file in each user's home"),
        ("metadata_default: more.yml\n", "metadata_default", "or ~/PATH: the file in each user's home"),
        ("hypervisor_default: skvm\n", "hypervisor_default", "write kvm, with iocm=true for I/O cores and vrdma=true"),
        ("vrdma_enabled_default: yes\n", "vrdma_enabled_default", "needs vrdma_enabled: "),
        ("vrdma_kind: vhostuser\nvrdma_addresses: 10.8.0.0/16\n", "vrdma_kind", "vhostuser needs vrdma_bridge"),
        ("vrdma_kind: vhostuser\nvrdma_bridge: brv\n", "vrdma_kind", "vhostuser needs vrdma_addresses"),
        (f"{SWITCH}vrdma_addresses: 10.8.1.0/16\n", "vrdma_addresses", "the network is 10.8.0.0/16"),
        (f"{SWITCH}vrdma_addresses: fast\n", "vrdma_addresses", "an IPv4 network from /8 to /29"),
        (
            f"{SWITCH}vrdma_addresses: 10.8.0.0/24\nnode_number: 7\n",
            "vrdma_addresses",
            "no addresses for guests of node_number",
        ),
        (
            f"{SWITCH}vrdma_addresses: 10.8.0.0/16\nnetworks: ['fast bridge bridge=br1 addresses=10.8.0.0/16']\n",
            "vrdma_addresses",
            "its addresses are those of ",
        ),
        (
            f"{SWITCH}vrdma_addresses: 10.8.0.0/16\nnetworks: ['vrdma bridge bridge=br1 addresses=10.9.0.0/16']\n",
            "vrdma_addresses",
            "vrdma is there twice",
        ),
        ("vrdma_kind: sriov\nconfine_guests: no\n", "vrdma_kind", "sriov needs vrdma_ports"),
        ("vrdma_kind: sriov\nvrdma_ports: [ens1f0]\n", "vrdma_kind", "sriov does not go with confine_guests"),
        ("vrdma_vlan: 4095\n", "vrdma_vlan", "1 to 4094"),
        ("pbs_exclusive_node_alloc: no\n", "kill_user_processes_after_job", "needs pbs_exclusive_node_alloc: "),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(
    tmp_path: pathlib.Path, text: str, key: str, message: str
) -> None:
    with pytest.raises(PolicyErrors) as caught:
        loaded(tmp_path, text)
    assert [fault.key for fault in caught.value.faults if message in fault.message] == [key]


def test_virtual_functions_are_for_sites_that_confine_no_guests(tmp_path: pathlib.Path) -> None:
    site = loaded(tmp_path, "vrdma_kind: sriov\nvrdma_ports: [ens1f0, ib0]\nvrdma_vlan: 7\nconfine_guests: no\n")
    assert (site.vrdma_ports, site.vrdma_vlan) == (("ens1f0", "ib0"), 7)


@pytest.mark.parametrize("component", ["vrdma", "iocm", "unclot"])
def test_component_that_the_site_has_not_is_nobodys_default(component: str) -> None:
    """Told for policies that are made by themselves: the parameters of the file wait for the components."""
    without = Policy(**{f"{component}_enabled_default": True})  # type: ignore[arg-type]
    report = [(f"{component}_enabled_default", f"needs {component}_enabled")]
    assert [
        (name, arguments.partition(":")[0]) for name, arguments in consistency.find_contradictions(without)
    ] == report
    both = Policy(**{f"{component}_enabled_default": True, f"{component}_enabled": True})  # type: ignore[arg-type]
    assert list(consistency.find_contradictions(both)) == []


def test_shared_nodes_are_for_sites_that_end_nothing_of_their_users(tmp_path: pathlib.Path) -> None:
    assert Policy().kill_user_processes_after_job
    policy = loaded(tmp_path, "pbs_exclusive_node_alloc: no\nkill_user_processes_after_job: no\n")
    assert not policy.kill_user_processes_after_job


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "just text\n", "\x00", "a: !!python/object:os.system x\n"])
def test_file_that_is_not_a_list_of_names_and_values_is_a_site_fault(tmp_path: pathlib.Path, text: str) -> None:
    with pytest.raises(SiteFault, match=r"vtorque\.yml"):
        loaded(tmp_path, text)


def test_missing_file_is_a_site_fault(tmp_path: pathlib.Path) -> None:
    with pytest.raises(SiteFault, match="the file is missing"):
        load(tmp_path / "vtorque.yml")


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_file_that_others_can_write_is_not_believed(tmp_path: pathlib.Path, mode: int) -> None:
    path = write(tmp_path, "")
    path.chmod(mode)
    with pytest.raises(SiteFault, match="not believed"):
        load(path, owner_uid=os.getuid())


def test_file_of_another_owner_or_in_an_open_directory_is_not_believed(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, "")
    with pytest.raises(SiteFault, match="not believed"):
        load(path, owner_uid=os.getuid() + 1)
    tmp_path.chmod(0o777)
    with pytest.raises(SiteFault, match="not believed"):
        load(path, owner_uid=os.getuid())


# requests


def test_silent_request_gets_the_sites_defaults() -> None:
    resolved = ask("", Policy(img_default="debian12", vcpus_default=3))
    assert set(resolved.values) == set(KEYS)
    assert (resolved.text("img"), resolved.figure("vcpus"), resolved.figure("ram")) == ("debian12@10", 3, 24576)
    assert resolved.origins["img"] == "site default (debian12)"
    assert resolved.origins["vcpus"] == "site default"
    assert resolved.text("fs_type") == "sharedfs"
    assert resolved.values["vcpu_pinning"] is True
    assert resolved.text("disk") == ""


def test_request_wins_over_the_sites_defaults_and_its_shell_goes_along() -> None:
    request = parse([("img=tiny,distro=debian,vcpus=2", "job.sh, line 4")]).with_shell("/bin/zsh")
    resolved = resolve(request, Policy(img_default="debian12"), POOL)
    assert (resolved.text("img"), resolved.figure("vcpus"), resolved.shell) == ("tiny.qcow2", 2, "/bin/zsh")
    assert resolved.origins["vcpus"] == "job.sh, line 4"


@pytest.mark.parametrize(
    ("text", "name", "distro", "arch"),
    [
        ("img=debian12", "debian12@10", "debian", "x86_64"),
        ("img=debian12@2", "debian12@2", "debian", "x86_64"),
        ("img=jammy,distro=debian", "jammy@1", "ubuntu", "x86_64"),
        ("img=tiny.qcow2,distro=centos", "tiny.qcow2", "centos", "x86_64"),
        ("img=tiny,distro=debian", "tiny.qcow2", "debian", "x86_64"),
        ("img=tiny.img,distro=debian", "tiny.qcow2", "debian", "x86_64"),
        ("img=arm", "arm@1", "debian", "aarch64"),
    ],
)
def test_image_is_found_and_its_record_fills_the_gaps(text: str, name: str, distro: str, arch: str) -> None:
    resolved = ask(text, offers=Offers(POOL.images, archs=("x86_64", "aarch64")))
    assert (resolved.text("img"), resolved.text("distro"), resolved.text("arch")) == (name, distro, arch)


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("vcpus=2", "img", "this site has no default"),
        ("img=debain12", "img", "no such image in the pool; did you mean debian12?"),
        ("img=debian12@3", "img", "no such image in the pool"),
        ("img=osv-base", "img", "is a base, of which images are made (vmgr image compose); no job runs in it"),
        ("img=debian", "img", "no such image in the pool"),
        ("img=tiny", "distro", "has no record that says it"),
        ("img=debian12,distro=ubuntu", "distro", "the image debian12@10 is debian"),
        ("img=debian12,arch=ppc64le", "arch", "the image debian12@10 is x86_64"),
        ("img=tiny,distro=debian,arch=aarch64", "arch", "the nodes offer x86_64"),
        ("img=arm", "arch", "the nodes offer x86_64"),
        ("img=debian12,hypervisor=qemu", "hypervisor", "does not allow software emulation"),
        ("img=debian12,hypervisor=skvm", "hypervisor", "write kvm, with iocm=true for I/O cores and vrdma=true"),
        ("img=debian12,iocm=true", "iocm", "this site has switched it off (iocm_enabled)"),
        ("img=debian12,iocm_min_cores=5,iocm_max_cores=2", "iocm_max_cores", "goes with iocm=true"),
    ],
)
def test_value_that_the_site_lacks_is_refused_with_a_reason(text: str, key: str, message: str) -> None:
    assert message in objections(text)[key]


CAN_SAVE = {"checkpoint_dir": "/checkpoints"}


@pytest.mark.parametrize("text", ["checkpoint=on", "checkpoint_every=30m"])
def test_resolve_of_a_request_for_checkpoints_refuses_it_with_all_that_is_in_the_way(text: str) -> None:
    key = text.partition("=")[0]
    policy = Policy(unclot_enabled=True, checkpoint_dir="/checkpoints")
    message = objections(f"img=debian12,disk=/home/alice/d.img,unclot=true,{text}", policy)[key]
    assert message == "it shares memory with other guests; a process of the user's serves its disk or image"
    message = objections(f"img=debian12,{text}", Policy(home_via="virtiofs"))[key]
    assert message.startswith("it mounts a directory of its node by virtiofs; this site has no directory for checkpoin")
    for changes, reason in (({"suspend_guests": "session"}, "run on"), ({"batch_system": "openpbs"}, "batch system")):
        assert reason in objections(f"img=debian12,{text}", Policy(checkpoint_dir="/c", **changes))[key]  # type: ignore[arg-type]


def test_resolve_of_a_request_for_checkpoints_that_can_be_had_takes_it() -> None:
    policy = Policy(checkpoint_dir="/checkpoints")
    for text, wanted in (
        ("checkpoint=on", True),
        ("checkpoint_every=30m", True),
        ("checkpoint=off", False),
        ("checkpoint=off,checkpoint_every=30m", False),
        ("vcpus=1", False),
    ):
        resolved = resolve(parse([(f"img=debian12,{text}", "x")]), policy, POOL)
        assert policy_module.wants_checkpoints(resolved.values, resolved.origins) is wanted, text


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("img=debian12", {}, set()),
        ("img=debian12", {"home_via": "virtiofs"}, {"virtiofs"}),
        ("img=debian12", {"mounts": ("/data /data 9p",)}, {"9p"}),
        ("img=debian12", {"mounts": ("fs:/data /data nfs",)}, set()),
        ("img=debian12,network=fast", {"networks": ("fast bridge bridge=br1 addresses=10.9.0.0/16",)}, {"networks"}),
        ("img=debian12,pci=gpu:1", {"pci_classes": ("gpu 0000:01:00.0",)}, {"pci"}),
        ("img=debian12,unclot=true", {"unclot_enabled": True}, {"shared memory"}),
        ("img=debian12,disk=/home/alice/d.img", {}, {"user disk"}),
        ("img=/home/alice/i.img,distro=debian", {"allow_user_images": True}, {"user disk"}),
        ("img=debian12,vcpu_pinning=true", {}, {"cells"}),
        ("img=debian12,vcpu_pinning=true,numa=off", {}, set()),
        ("img=debian12,vcpu_pinning=true,hugepages=2M", {}, {"cells", "huge pages"}),
        ("img=efi", {}, {"uefi"}),
        ("img=osv", {"home_via": "virtiofs"}, {"osv"}),
    ],
)
def test_parts_in_the_way_of_a_request_are_what_its_guests_will_have(
    text: str, changes: dict[str, t.Any], expected: set[str]
) -> None:
    images = (
        ImageFacts("debian12@1", "debian", "x86_64", "bios"),
        ImageFacts("efi@1", "debian", "x86_64", "uefi"),
        ImageFacts("osv@1", "osv", "x86_64"),
    )
    offers, policy = Offers(images), Policy(**{**CAN_SAVE, **changes})
    resolved = resolve(parse([(text, "command line")]), policy, offers)
    assert policy_module.parts_in_the_way(resolved.values, resolved.origins, policy, offers) == expected
    survival = policy_module.survival_of(resolved, policy, offers, interactive=True, bare=True)
    assert "it has a terminal" in survival.checkpoint
    for outcome in (survival.checkpoint, survival.moved):
        assert "some of its hosts stay bare" in outcome


def test_guest_with_cards_on_further_networks_is_not_said_to_move() -> None:
    policy = Policy(networks=("fast bridge bridge=br1 addresses=10.9.0.0/16",), spare_nodes=("cn9",))
    offers = Offers((ImageFacts("debian12@1", "debian", "x86_64", "bios"),))
    alone, further = (resolve(parse([(f"img=debian12{more}", "x")]), policy, offers) for more in ("", ",network=fast"))
    yes, no = (
        policy_module.survival_of(one, policy, offers, interactive=False, bare=False) for one in (alone, further)
    )
    assert yes.moved.startswith("yes")
    assert no.moved == "no, because its addresses on further networks are those of its node and place"


def test_spare_node_and_a_network_of_the_jobs_own_exclude_each_other() -> None:
    networks = ("mine vxlan addresses=172.31.0.0/16", "fast bridge bridge=br1 addresses=10.9.0.0/16")
    policy = Policy(networks=networks)
    assert "knows its nodes" in objections("img=debian12,network=fast+mine,spare=1", policy)["spare"]
    assert ask("img=debian12,network=fast,spare=1", policy).values["spare"] == 1
    assert ask("img=debian12,network=mine", Policy(networks=networks, spare_default=1)).values["spare"] is None


SHARING = Policy(unclot_enabled=True)


@pytest.mark.parametrize(
    ("asked", "size", "origin"),
    [
        ("unclot=true", 64, "site default"),
        ("unclot=true,unclot_shmem=1G", 1024, "command line"),
        ("unclot=0,unclot_shmem=100M", 128, "command line (100M, raised to a power of two)"),
        ("unclot=true,unclot_shmem=1M", 1, "command line"),
    ],
)
def test_region_has_the_size_that_was_asked_for_or_the_next_power_of_two(asked: str, size: int, origin: str) -> None:
    found = ask(f"img=debian12,{asked}", SHARING)
    assert (found.values["unclot_shmem"], found.origins["unclot_shmem"]) == (size, origin)
    need = demand(found, SHARING)
    assert need.mem_mib == found.figure("ram") + size + SHARING.host_os_ram_mb
    assert " that they share + " in need.mem_sum


@pytest.mark.parametrize(
    ("asked", "key", "message"),
    [
        ("img=debian12,unclot_shmem=64M", "unclot_shmem", "goes with unclot=true"),
        ("img=osv,unclot=true", "unclot", "OSv has no user to whom"),
        ("img=debian12,unclot=true,unclot_shmem=4M", "unclot_shmem", "at least 8M"),
        ("img=debian12,unclot=true,unclot_shmem=2G", "unclot_shmem", "at most 100M"),
        ("img=debian12,unclot=true,unclot_shmem=65M", "unclot_shmem", "becomes 128M, the next power of two: at most"),
    ],
)
def test_region_that_cannot_be_had_is_refused(asked: str, key: str, message: str) -> None:
    site = dataclasses.replace(SHARING, unclot_shmem_min=8, unclot_shmem_max=100)
    assert message in objections(asked, site)[key]


def test_region_is_the_sites_to_allow() -> None:
    assert "unclot_enabled" in objections("img=debian12,unclot=true")["unclot"]
    by_default = dataclasses.replace(SHARING, unclot_enabled_default=True, unclot_shmem_default=16)
    assert ask("img=debian12", by_default).values["unclot_shmem"] == 16
    silent = ask("img=osv", by_default)
    assert (silent.values["unclot"], silent.origins["unclot"]) == (False, "OSv has none")
    assert demand(silent, by_default).mem_mib == silent.figure("ram") + by_default.host_os_ram_mb
    assert (
        ask("img=debian12,unclot=true", Policy(unclot_enabled=True, unclot_shmem_min=512)).figure("unclot_shmem") == 512
    )


def test_default_region_that_its_own_raise_makes_too_large_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(PolicyErrors, match="is raised to a power of two, 128M: at most 100M on this site"):
        loaded(tmp_path, "unclot_shmem_default: 100M\nunclot_shmem_max: 100M\n")
    assert consistency.region_mib(loaded(tmp_path, "unclot_shmem_max: 50M\n")) == 32


RDMA = Policy(vrdma_enabled=True)
VERBS = Offers((ImageFacts("hpc@1", "debian", rdma="yes"), ImageFacts("cloud@1", "debian", rdma="no"),
                ImageFacts("old@1", "debian"), ImageFacts("osv@1", "osv")))  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "parts"), [("rxe", set()), ("sriov", {guest_saving.PCI}), ("vhostuser", {guest_saving.VHOST_USER})]
)
def test_memory_of_a_guest_with_a_device_of_its_nodes_is_not_saved_or_moved(kind: str, parts: set[str]) -> None:
    site = dataclasses.replace(RDMA, vrdma_kind=kind)
    found = resolve(parse([("img=hpc,vrdma=true", "command line")]), site, VERBS)
    there = policy_module.parts_in_the_way(found.values, found.origins, site, VERBS)
    assert there & {guest_saving.PCI, guest_saving.VHOST_USER} == parts
    for objections in (guest_saving.objections_to_saving, guest_saving.objections_to_move):
        assert len(objections(parts)) == len(parts)


@pytest.mark.parametrize("image", ["hpc", "old"])
def test_rdma_device_is_of_the_sites_kind_in_images_that_have_verbs_or_do_not_say_it(image: str) -> None:
    found = resolve(parse([(f"img={image},vrdma=0", "command line")]), RDMA, VERBS)
    assert (found.values["vrdma"], found.origins["vrdma"]) == (True, "command line (rxe)")


def test_fast_card_is_for_images_without_verbs_too() -> None:
    site = dataclasses.replace(RDMA, vrdma_kind="vhostuser")
    found = resolve(parse([("img=cloud,vrdma=true", "command line")]), site, VERBS)
    assert (found.values["vrdma"], found.origins["vrdma"]) == (True, "command line (vhostuser)")


@pytest.mark.parametrize(
    ("asked", "policy", "message"),
    [
        ("img=cloud,vrdma=true", RDMA, "guests of the image cloud@1 have no verbs, as its record says"),
        ("img=osv,vrdma=true", RDMA, "OSv has no verbs"),
        ("img=hpc,vrdma=true", Policy(), "this site has switched it off (vrdma_enabled)"),
    ],
)
def test_rdma_device_that_cannot_be_had_is_refused(asked: str, policy: Policy, message: str) -> None:
    with pytest.raises(RequestErrors) as caught:
        resolve(parse([(asked, "command line")]), policy, VERBS)
    assert [(fault.key, fault.message) for fault in caught.value.faults] == [("vrdma", message)]


@pytest.mark.parametrize(("image", "origin"), [("cloud", "the image's record"), ("osv", "OSv has none")])
def test_rdma_device_by_default_gives_way_to_an_image_without_verbs(image: str, origin: str) -> None:
    by_default = dataclasses.replace(RDMA, vrdma_enabled_default=True)
    assert resolve(parse([("img=hpc", "command line")]), by_default, VERBS).values["vrdma"] is True
    silent = resolve(parse([(f"img={image}", "command line")]), by_default, VERBS)
    assert (silent.values["vrdma"], silent.origins["vrdma"]) == (False, origin)


def test_images_of_users_are_the_sites_to_allow(tmp_path: pathlib.Path) -> None:
    allows = loaded(tmp_path, "allow_user_images: yes\nhome_via: virtiofs\nvm_nfs_home: fs:/home\n")
    own = parse([("img=/home/a/own.qcow2,distro=ubuntu", "command line")])
    for policy in (Policy(), Policy(img_default="debian12")):
        with pytest.raises(RequestErrors) as caught:
            resolve(own, policy, POOL)
        ((key, value, arguments),) = [(one.key, one.value, one.message) for one in caught.value.faults]
        assert (key, value) == ("img", "/home/a/own.qcow2")
        assert "allow_user_images" in arguments
    for offers in (POOL, Offers(None)):
        found = resolve(own, allows, offers)
        assert (found.text("img"), found.text("distro"), found.text("fs_type")) == (
            "/home/a/own.qcow2", "ubuntu", "sharedfs",
        )  # fmt: skip


def test_own_image_has_no_record_that_could_tell_its_family(tmp_path: pathlib.Path) -> None:
    allows = loaded(tmp_path, "allow_user_images: yes\nfilesystem_type_default: local\n")
    assert objections("img=/home/a/own.qcow2", allows) == {
        "distro": "the image /home/a/own.qcow2 has no record that says it: give one of "
        "debian, ubuntu, redhat, centos, rocky, alma or osv"
    }
    for kind in ("local", "ramdisk"):
        report = objections(f"img=/home/a/own.qcow2,distro=debian,fs_type={kind}", allows)
        assert report == {"fs_type": "an own image is read where it lies: fs_type=sharedfs"}
    found = ask("img=/home/a/own.qcow2,distro=debian", allows)
    assert (found.text("fs_type"), found.origins["fs_type"]) == ("sharedfs", "nodes make no copy of it")


def test_files_of_the_site_are_nobodys_before_vsub_has_found_them(tmp_path: pathlib.Path) -> None:
    """Root never opens one that a request does not name."""
    policy = loaded(
        tmp_path,
        "img_default: debian12\ndisk_default: ~/data.img\nmetadata_default: /etc/more.yml\n"
        "vm_prologue_default: ~/pre\nvm_epilogue_default: /etc/post\n",
    )
    found = ask("", policy)
    assert [found.text(key) for key in ("disk", "metadata", "vm_prologue", "vm_epilogue")] == [""] * 4


def test_image_without_a_digest_is_not_copied() -> None:
    plain = Offers(images=(ImageFacts("old.img"),))
    assert objections("img=old,distro=debian,fs_type=local", offers=plain)["fs_type"].startswith(
        "the image old.img has no record"
    )
    found = resolve(
        parse([("img=old,distro=debian", "command line")]), Policy(filesystem_type_default="ramdisk"), plain
    )
    assert (found.values["fs_type"], found.origins["fs_type"]) == ("sharedfs", "nodes make no copy of it")
    assert ask("img=debian12,fs_type=local").text("fs_type") == "local"


@pytest.mark.parametrize("text", ["vrdma=1", "iocm=no", "unclot=disabled", "vcpu_pinning=false", "vms_per_node=1"])
def test_key_that_asks_for_what_is_off_anyway_is_no_fault(text: str) -> None:
    assert ask(f"img=debian12,{text}").origins[text.partition("=")[0]] == "command line"


def test_all_objections_are_told_at_once_with_their_origin() -> None:
    request = parse([("img=debain12,vcpus=40,ram=1T", "command line"), ("pci=gpu:1", "job.sh, line 2")])
    with pytest.raises(RequestErrors) as caught:
        resolve(request, Policy(vcpus_max=16, ram_max=96 * 1024, ram_min=512), POOL)
    report = {fault.key: (fault.value, fault.message, fault.origin) for fault in caught.value.faults}
    assert report["vcpus"] == ("40", "at most 16 on this site", "command line")
    assert report["ram"] == ("1T", "at most 96G on this site", "command line")
    assert report["pci"][2] == "job.sh, line 2"
    assert "img" in report


def test_bounds_hold_at_both_ends() -> None:
    policy = Policy(vcpus_min=2, vcpus_max=4, vcpus_default=3)
    assert ask("img=debian12,vcpus=2", policy).figure("vcpus") == 2
    assert ask("img=debian12,vcpus=4", policy).figure("vcpus") == 4
    assert objections("img=debian12,vcpus=1", policy)["vcpus"] == "at least 2 on this site"


def test_pool_that_nobody_could_look_at_leaves_the_name_alone() -> None:
    assert ask("img=whatever,distro=debian", offers=Offers(images=None)).text("img") == "whatever"


def test_emulation_is_had_where_the_site_allows_it() -> None:
    assert ask("img=debian12,hypervisor=qemu", Policy(allow_emulation=True)).text("hypervisor") == "qemu"


def test_bounds_of_virtual_io_cores_must_not_cross() -> None:
    request = Request({"img": "debian12", "iocm_min_cores": 5, "iocm_max_cores": 2})
    with pytest.raises(RequestErrors):
        resolve(request, Policy(), POOL)
    policy = Policy(iocm_min_cores_default=5, iocm_max_cores_default=2)
    assert "is more than iocm_max_cores (2, site default)" in objections("img=debian12", policy)["iocm_min_cores"]


@pytest.mark.parametrize(
    ("text", "bounds", "origin"),
    [
        ("iocm=true", (1, 4), ("site default", "site default")),
        ("iocm=0", (1, 4), ("site default", "site default")),
        ("iocm=true,iocm_min_cores=6", (6, 6), ("command line", "as iocm_min_cores")),
        ("iocm=true,iocm_max_cores=1", (1, 1), ("site default", "command line")),
        ("iocm=true,iocm_min_cores=2,iocm_max_cores=3", (2, 3), ("command line", "command line")),
    ],
)
def test_bounds_of_virtual_io_cores_are_the_users_and_else_the_sites(
    text: str, bounds: tuple[int, int], origin: tuple[str, str]
) -> None:
    found = ask(f"img=debian12,{text}", WITH_IO)
    assert found.values["iocm"] is True
    assert tuple(found.values[key] for key in ("iocm_min_cores", "iocm_max_cores")) == bounds
    assert tuple(found.origins[key] for key in ("iocm_min_cores", "iocm_max_cores")) == origin


def test_bounds_of_virtual_io_cores_are_within_the_sites() -> None:
    found = objections("img=debian12,iocm=true,iocm_max_cores=13", WITH_IO)
    assert found == {"iocm_max_cores": "at most 12 on this site"}
    assert objections("img=debian12,iocm=true,iocm_min_cores=13", WITH_IO) == {
        "iocm_min_cores": "at most 12 on this site"
    }


def test_cores_for_virtual_io_of_the_sites_default_are_no_ones_wish() -> None:
    policy = Policy(iocm_enabled=True, iocm_enabled_default=True, iocm_max_cores_default=2)
    found = ask("img=debian12", policy)
    assert numa.io_cores(found.values, asked=False) == numa.IoCores(1, 2, required=False)
    assert numa.io_cores(ask("img=debian12,iocm=false", policy).values, asked=True) == numa.IoCores()


# the sum


def test_sum_counts_guests_host_and_says_how() -> None:
    need = demand(ask("img=debian12,vcpus=6,ram=4G"), Policy())
    assert (need.cores, need.mem_mib) == (7, 6144)
    assert need.cores_sum == "6 vcpus + 1 core for the host"
    assert need.mem_sum == "4G of ram + 2G for the host"


WITH_IO = Policy(iocm_enabled=True, host_os_core_count=0, host_os_ram_mb=100)


@pytest.mark.parametrize(
    ("text", "cores", "how"),
    [
        ("vcpu_pinning=false", 8, "2 cores for virtual I/O (iocm_min_cores)"),
        ("vcpu_pinning=true", 9, "3 cores for virtual I/O (iocm_max_cores)"),
        ("", 8, "2 cores for virtual I/O (iocm_min_cores)"),
    ],
    ids=["vCPUs share cores", "each has its own", "each has, where there are enough"],
)
def test_sum_counts_several_guests_and_cores_for_virtual_io(text: str, cores: int, how: str) -> None:
    """Where each vCPU has its core, more for I/O can only come from idle ones."""
    request = "img=debian12,vcpus=3,ram=1G,vms_per_node=2,iocm=true,iocm_min_cores=2,iocm_max_cores=3"
    need = demand(ask(",".join(filter(None, (request, text))), WITH_IO), WITH_IO)
    assert (need.cores, need.mem_mib) == (cores, 2148)
    assert need.cores_sum == f"2 x 3 vcpus + 0 cores for the host + {how}"
    assert need.mem_sum == "2 x 1G of ram + 100M for the host"


@pytest.mark.parametrize(
    ("text", "cores", "how"),
    [
        (b"0: 1\n1: 2\n", 3, "2 vcpus + 1 core for the host"),
        (b"0: 4\n1: 7\n", 8, "8 cores for the map of vcpu_pinning and the host"),
        (b"0: 0-3\n1: 4-7\n", 9, "9 cores for the map of vcpu_pinning and the host"),
        (b"0: 0\n1: 1\nemulator: 11", 12, "12 cores for the map of vcpu_pinning and the host"),
    ],
)
def test_sum_covers_the_cores_of_a_map_and_the_hosts(text: bytes, cores: int, how: str) -> None:
    need = demand(ask("img=debian12,vcpus=2"), Policy(), vcpu_map.read(text, "map"))
    assert (need.cores, need.cores_sum) == (cores, how)


@pytest.mark.parametrize(
    ("sizes", "arguments"),
    [
        ([], []),
        ([("a", 4, 4096), ("b", 8, 8192)], []),
        ([("a", 8, 0)], []),
        ([("a", 4, 8192)], ["more than any node of this site has (4)"]),
        ([("a", 8, 4096)], ["more than any node of this site has (4G)"]),
        ([("a", 4, 4096)], ["more than any node of this site has (4)", "more than any node of this site has (4G)"]),
        ([("a", 4, 8192), ("b", 8, 4096)], ["no node of this site has both"]),
    ],
)
def test_request_beyond_every_node_is_refused_with_the_sum(
    sizes: list[tuple[str, int, int]], arguments: list[str]
) -> None:
    need = Demand(8, 8192, "7 vcpus + 1 core for the host", "6G of ram + 2G for the host")
    faults = too_big(need, [NodeSize(*size) for size in sizes], open_terms("torque"))
    assert [
        (" for the host" in fault.message, word in fault.message) for fault, word in zip(faults, arguments, strict=True)
    ] == [(True, True)] * len(arguments)


@pytest.mark.parametrize(
    ("expression", "host", "fits"),
    [
        (None, "n1", False),
        (".*", "n1.site", True),
        ("n1", "n1", True),
        ("n1", "n10", False),
        ("n1", "n1.site", True),
        (r"n\d", "n1.site", True),
        ("site", "n1.site", False),
    ],
)
def test_host_expressions_match_whole_names(expression: str | None, host: str, fits: bool) -> None:
    assert host_matches(expression, host) is fits


# the table


def test_every_key_has_a_default_and_bounds_that_exist() -> None:
    assert set(DEFAULT_OF) == set(KEYS)
    assert set(DEFAULT_OF.values()) <= set(PARAMETERS)
    assert {name for pair in BOUNDS_OF.values() for name in pair} <= set(PARAMETERS)
    assert set(BOUNDS_OF) <= set(KEYS)


@pytest.mark.parametrize("name", list(PARAMETERS))
def test_default_is_what_its_own_kind_reads(name: str) -> None:
    parameter = PARAMETERS[name]
    assert parameter.default is None or parameter.kind.read(parameter.default) == parameter.default
    assert parameter.meaning


def test_components_are_off_as_shipped() -> None:
    policy = Policy()
    on = [policy.vrdma_enabled, policy.iocm_enabled, policy.unclot_enabled]
    on += [policy.vrdma_enabled_default, policy.iocm_enabled_default, policy.unclot_enabled_default]
    assert on == [False] * 6
    assert policy.vcpu_pinning_default is True  # as the original's


@pytest.mark.parametrize(("system", "printed"), [("slurm", "Slurm"), ("openpbs", "OpenPBS")])
@pytest.mark.parametrize("key", ["vm_prologue", "vm_epilogue"])
def test_script_for_hooks_is_refused_where_the_batch_system_has_no_word_for_it(
    key: str, system: str, printed: str
) -> None:
    """Slurm does not tell the job's variables, without which a prologue is never run, and the job was held."""
    request = Request({key: "/home/alice/setup.sh", "img": "debian12"}, {key: "command line"})
    assert resolve(request, Policy(), POOL).text(key) == "/home/alice/setup.sh"
    with pytest.raises(RequestErrors, match=f"{key}=/home/alice/setup.sh: cannot run with {printed}"):
        resolve(request, Policy(batch_system=system), POOL)


@pytest.mark.parametrize("name", ["vm_prologue_default", "vm_epilogue_default"])
def test_site_cannot_have_a_script_for_hooks_where_it_would_be_refused(name: str) -> None:
    policy = dataclasses.replace(Policy(), **{name: "/opt/site/setup.sh"})
    assert name not in dict(consistency.find_contradictions(policy))
    assert name in dict(consistency.find_contradictions(dataclasses.replace(policy, batch_system="slurm")))
