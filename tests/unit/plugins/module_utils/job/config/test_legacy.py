# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every parameter of the original has a home or a reason, and its file becomes one that is good."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.legacy import (
    GONE,
    NEW_NAMES,
    Conversion,
    convert,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import PARAMETERS, RETIRED
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_file import parse

HERE = pathlib.Path(__file__).parent

MANUAL: tuple[tuple[str, str, object, str], ...] = (
    # the administrator's manual, "Cluster": old name, new name, default, why the default is another
    ("DISABLED_HOSTS_LIST", "disabled_hosts_list", None, ""),
    ("REGEX_FE", "regex_fe", ".*", "a bare * is read as all, and was no regular expression"),
    ("TORQUE_HOME", "torque_home", "/var/spool/torque", ""),
    ("PBS_QSUB_ON_FE", "pbs_qsub_on_fe", "/usr/bin/qsub", ""),
    ("PBS_QSUB_ON_NODES", "pbs_qsub_on_nodes", "/usr/bin/qsub", ""),
    ("VM_IMG_DIR", "vm_img_dir", "/opt/vm-images", ""),
    ("RAMDISK_DIR", "ramdisk_dir", "/ramdisk", ""),
    ("VM_NFS_HOME", "vm_nfs_home", None, ""),
    ("VM_NFS_WS", "vm_nfs_ws", None, ""),
    ("VM_NFS_OPT", "vm_nfs_opt", None, ""),
    ("MAC_PREFIX", "mac_prefix", "52:54:00", ""),
    ("HOST_OS_CORE_COUNT", "host_os_core_count", 1, ""),
    ("HOST_OS_RAM_MB", "host_os_ram_mb", 2048, ""),
    ("PBS_EXCLUSIVE_NODE_ALLOC", "pbs_exclusive_node_alloc", True, ""),
    # "Timeouts"
    ("SSH_TIMEOUT", "ssh_timeout", 5, ""),
    ("TIMEOUT", "timeout", 120, ""),
    ("PROLOGUE_TIMEOUT", "prologue_timeout", 270, "600 is more than Torque's $prologalarm, 300, leaves"),
    ("NFS_TIMEOUT", "nfs_timeout", 3, ""),
    # "Networking for VMs"
    ("CUSTOM_IP_MAPPING", "custom_ip_mapping", False, ""),
    ("IP_TO_MAC_SCRIPT", "ip_to_mac_script", None, ""),
    ("DOMAIN", "domain", None, ""),
    ("NAME_SERVER", "name_server", None, ""),
    ("SEARCH_DOMAIN", "search_domain", None, ""),
    ("NTP_SERVER_1", "ntp_server_1", None, ""),
    ("NTP_SERVER_2", "ntp_server_2", None, ""),
    # "VM Defaults for JobSubmission"
    ("FILESYSTEM_TYPE_DEFAULT", "filesystem_type_default", "sharedfs", ""),
    ("IMG_DEFAULT", "img_default", None, ""),
    ("DISTRO_DEFAULT", "distro_default", None, ""),
    ("ARCH_DEFAULT", "arch_default", "x86_64", ""),
    ("VCPUS_DEFAULT", "vcpus_default", 7, ""),
    ("RAM_DEFAULT", "ram_default", 24576, "the code's; the manual has none"),
    ("VMS_PER_NODE_DEFAULT", "vms_per_node_default", 1, ""),
    ("DISK_DEFAULT", "disk_default", None, ""),
    ("VRDMA_ENABLED_DEFAULT", "vrdma_enabled_default", False, "components are off by default"),
    ("IOCM_ENABLED_DEFAULT", "iocm_enabled_default", False, "components are off by default"),
    ("UNCLOT_ENABLED_DEFAULT", "unclot_enabled_default", False, ""),
    ("UNCLOT_SHMEM_DEFAULT", "unclot_shmem_default", None, "nothing is shared by who does not ask"),
    ("IOCM_MIN_CORES_DEFAULT", "iocm_min_cores_default", 1, ""),
    ("IOCM_MAX_CORES_DEFAULT", "iocm_max_cores_default", 4, ""),
    # "Debugging"
    ("PARALLEL", "parallel", True, ""),
    ("ALLOW_USER_IMAGES", "allow_user_images", False, ""),
    # "Logging"
    ("DEBUG_DEFAULT", "debug_default", False, ""),
    ("TRACE_DEFAULT", "trace_default", False, ""),
    ("SHOW_LOG_DEFAULT", "show_log_default", False, ""),
    ("LOG_ROTATE", "log_rotate", True, ""),
    ("LOG_FILE", "log_file", None, "the log of a job is in its record"),
    # "IOcm", "vRDMA", "UNCLOT", "Snap Telemetry"
    ("IOCM_ENABLED", "iocm_enabled", False, ""),
    ("IOCM_MIN_CORES", "iocm_min_cores", 1, ""),
    ("IOCM_MAX_CORES", "iocm_max_cores", 12, ""),
    ("IOCM_NODES", "iocm_nodes", ".*", "as REGEX_FE"),
    ("VRDMA_ENABLED", "vrdma_enabled", False, ""),
    ("VRDMA_NODES", "vrdma_nodes", ".*", "as REGEX_FE"),
    ("UNCLOT_ENABLED", "unclot_enabled", False, ""),
    ("SNAP_MONITORING_ENABLED", "metrics", "record", "no collector is needed for a job's record"),
    ("SNAP_TAG_FORMAT", "metrics_tag", "snapTask-[username]-[jobid]", ""),
    # the older manual, and what other pages call by another name
    ("DISABLE_MIKELANGELO_HPC_STACK", "disable_mikelangelo_hpc_stack", False, ""),
    ("MAX_VMS_PER_NODE", "max_vms_per_node", 4, ""),
    ("HYPERVISOR_DEFAULT", "hypervisor_default", "kvm", ""),
    ("IMAGE_POOL", "vm_img_dir", "/opt/vm-images", ""),
    ("IMAGE_POOL_DIR", "vm_img_dir", "/opt/vm-images", ""),
    ("VM_IMAGE_DIR", "vm_img_dir", "/opt/vm-images", ""),
    ("STATIC_IP_MAPPING", "custom_ip_mapping", False, ""),
    ("REAL_QSUB_ON_SERVER", "pbs_qsub_on_fe", "/usr/bin/qsub", ""),
    ("REAL_QSUB_ON_NODES", "pbs_qsub_on_nodes", "/usr/bin/qsub", ""),
    ("UNCLOT_SHMEM", "unclot_shmem_default", None, ""),
    ("VTORQUE_DIR", "prefix", "/opt/vtorque", ""),
)

ON_ONCE_THEY_ARE_THERE = {"KILL_USER_PROCESSES_AFTER_JOB": True, "VCPU_PINNING_DEFAULT": True}
"""Defaults of the manual that hold as soon as what they belong to is there; until then they are off."""

DROPPED = (
    "SERVER_HOSTNAME",
    "SUSPENDED_IMAGE_DIR",
    "MEASURE_TIME",
    "KEEP_VM_ALIVE",
    "SSH_OPTS",
    "SCP_OPTS",
    "VIRSH_OPTS",
    "SNAP_BIN_DIR",
)

NEW = {
    "log_levels", "log_format", "log_program", "log_program_level",
    "batch_system", "slurm_bin", "suspend_guests", "warm_start", "warm_days", "warm_max",
    # what the original had not: the product's own, and the site's bounds
    "prefix_nodes", "template_dir", "vm_node_property", "allow_emulation", "libvirt_uri", "bridge", "node_number",
    "dhcp_leases_file", "confine_guests", "guest_may_reach", "home_via", "mounts", "metadata_packages",
    "security_updates", "security_updates_timeout", "image_max", "fast_start",
    "vm_epilogue_timeout", "node_fault_retries", "offline_brake", "record_days", "record_host", "cache_max",
    "cache_rate", "vms_per_node_min", "vcpus_min", "vcpus_max", "ram_min", "ram_max", "unclot_shmem_min",
    "vrdma_kind", "vrdma_ports", "vrdma_vlan", "vrdma_bridge", "vrdma_addresses",
    "unclot_shmem_max", "nodes_min", "nodes_max", "metadata_default", "vm_prologue_default", "vm_epilogue_default",
    "nodes_default", "spare_default", "pci_default", "pci_classes", "numa_default", "hugepages_default",
    "hugepages_raise", "numad", "sample_s", "metrics_dir", "networks", "network_default",
    "report_dir", "checkpoint_default", "checkpoint_every_default", "checkpoint_dir", "checkpoint_min",
    "checkpoint_pause", "health_sources", "on_degrading", "spare_nodes", "side_channels",
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "default", "_why"), MANUAL)
def test_parameter_of_the_original_has_a_home_and_its_default(old: str, new: str, default: object, _why: str) -> None:
    assert NEW_NAMES[old] == new
    assert PARAMETERS[new].default == default


@pytest.mark.parametrize(("old", "default"), ON_ONCE_THEY_ARE_THERE.items())
def test_default_that_waits_for_its_feature(old: str, default: object) -> None:
    parameter = PARAMETERS[NEW_NAMES[old]]
    assert parameter.default == default


@pytest.mark.parametrize("old", DROPPED)
def test_parameter_that_is_dropped_has_a_reason(old: str) -> None:
    assert GONE[old]
    assert old not in NEW_NAMES


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_former_parameter_is_dropped_with_its_reason(name: str) -> None:
    done = convert(f"{name.upper()}=x\n", "config.sh")
    assert [(word.fate, word.text) for word in done.entries] == [("dropped", RETIRED[name])]
    assert name not in done.text


def test_comparison_is_complete() -> None:
    named = {old for old, *_rest in MANUAL} | set(ON_ONCE_THEY_ARE_THERE)
    assert {old for old in NEW_NAMES if old not in named} == {"REAL_QSUB_ON_FE"}  # as a page of the original had it
    # a parameter is either the original's or said to be new
    homes = {NEW_NAMES[old] for old in named}
    assert set(PARAMETERS) - homes - NEW == set()
    assert homes & NEW == set()


# a whole file


def texts_of(done: Conversion) -> dict[str, tuple[str, str]]:
    return {word.name: (word.fate, word.text) for word in done.entries}


SAMPLE = """\
#!/bin/bash
# what a site had
source /opt/site/common.sh
export TORQUE_HOME='/var/spool/torque'   # as everywhere
VM_IMG_DIR=/srv/images/
IMG_DEFAULT="$VM_IMG_DIR/old.img"
IMG_DEFAULT="/srv/images/ubuntu.img"
DISTRO_DEFAULT="Debian"
FILESYSTEM_TYPE_DEFAULT="$FILESYSTEM_TYPE_SFS"
REGEX_FE="*"
DISABLED_HOSTS_LIST=""
ARP_BIN=""
MAC_PREFIX="52:54:01 "
SW_PACKAGES_DEBIAN=('nfs-common' 'libnfs1' 'openmpi-bin'
                    'libopenmpi-dev' 'libmetis5' # both
                    'libmetis-dev' '9mount')
SW_PACKAGES_REDHAT=(nfs-utils extra)
PROLOGUE_TIMEOUT=600
TIMEOUT=280
IOCM_ENABLED=true
LOG_FILE="$VM_JOB_DIR/debug.log"
DOMAIN="my-domain.com"
SERVER_HOSTNAME=$(hostname -s)
RAM_DEFAULT=$((24*1024))
VCPUS_DEFULT=3
NFS_TIMEOUT=many
if [ -e /sbin/arp ]; then
  SSH_TIMEOUT=7
fi
PARALLEL=false
HYPERVISOR_DEFAULT=kvm
"""


def test_sample_of_a_site(tmp_path: pathlib.Path) -> None:
    done = convert(SAMPLE, "config.sh")
    policy = parse(done.text, "new").policy
    assert (policy.vm_img_dir, policy.img_default, policy.distro_default) == ("/srv/images", "ubuntu.img", "debian")
    assert (policy.mac_prefix, policy.parallel, policy.regex_fe) == ("52:54:01", False, ".*")
    assert (policy.timeout, policy.prologue_timeout, policy.domain, policy.ram_default) == (120, 270, None, 24576)
    report = texts_of(done)
    expected = {
        "source /opt/site/common.sh": ("skipped", "reads another file: convert that one, too"),
        "TORQUE_HOME": ("mapped", "torque_home: /var/spool/torque"),
        "VM_IMG_DIR": ("mapped", "vm_img_dir: /srv/images"),
        "IMG_DEFAULT": ("changed", "img_default: ubuntu.img (images are called by their names in the pool)"),
        "DISABLED_HOSTS_LIST": ("mapped", "disabled_hosts_list is not set"),
        "ARP_BIN": ("dropped", RETIRED["arp_bin"]),
        "SW_PACKAGES_DEBIAN": ("dropped", RETIRED["sw_packages_debian"]),
        "SW_PACKAGES_REDHAT": ("dropped", RETIRED["sw_packages_redhat"]),
        "TIMEOUT": ("refused", "280: timeout is more than prologue_timeout (270); timeout stays at its default (120)"),
        "LOG_FILE": ("dropped", "each job's log is in its record"),
        "DOMAIN": ("dropped", "domain is not set: my-domain.com is the original's placeholder"),
        "SERVER_HOSTNAME": ("dropped", "Torque's own commands know their server"),
        "VCPUS_DEFULT": ("skipped", "the original has no such parameter; did you mean vcpus_default?"),
    }  # fmt: skip
    assert {name: report[name] for name in expected} == expected
    assert report["PROLOGUE_TIMEOUT"][0] == "changed"
    assert report["RAM_DEFAULT"][0] == "skipped"
    assert report["SSH_TIMEOUT"] == (
        "skipped",
        "stands in what begins in line 27: its value is not known before it is run",
    )
    assert report["NFS_TIMEOUT"][0] == "refused"
    assert "allowed: a whole number from 1 to 3600" in report["NFS_TIMEOUT"][1]
    assert done.needs_review
    assert [word.line for word in done.entries] == sorted(word.line for word in done.entries)
    assert "IMG_DEFAULT" in [word.name for word in done.entries if word.text == "line 7 says it again"]


AS_IT_CAME = """\
set -o nounset;
ABSOLUTE_PATH_CONFIG="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)";
LIB_LOG4BSH=$(find "$ABSOLUTE_PATH_CONFIG/../.." -type f -name log4bsh.sh);
[ -z $LIB_LOG4BSH ] && echo "FATAL ERROR: Log4bsh not found!" && exit 1;
source $LIB_LOG4BSH;
TIMEOUT=200;
TRACE=true
#         DO NOT EDIT BELOW THIS LINE         #
if [ -z ${TRACE-} ] || [ "$TRACE" == "__TRACE__" ]; then
  TRACE=$TRACE_DEFAULT;
fi
SHARED_FS_JOB_DIR="$WS_DIR/$JOBID"; #user is not set in all scripts(?)
SSH_OPTS="-t -n -o BatchMode=yes";
somethingElse=7
MAC_PREFIX="52:54:07"
"""
"""The form of the original's own file, with a setting that a site put at its end."""


def test_originals_own_code_is_no_news() -> None:
    done = convert(AS_IT_CAME, "config.sh")
    assert not done.needs_review
    policy = parse(done.text, "new").policy
    assert (policy.timeout, policy.mac_prefix, policy.trace_default) == (200, "52:54:07", False)
    report = texts_of(done)
    assert report["DO NOT EDIT BELOW THIS LINE"] == ("dropped", "the original's own code follows")
    assert report["TRACE"][0] == "dropped"
    assert "trace_default" in report["TRACE"][1]
    assert {"SSH_OPTS", "somethingElse", "SHARED_FS_JOB_DIR"}.isdisjoint(report)


def test_condition_of_the_sites_own_below_it_is_named() -> None:
    done = convert(AS_IT_CAME + "if [ -e /x ]; then\n  TIMEOUT=9\nfi\n", "config.sh")
    assert texts_of(done)["TIMEOUT"][0] == "skipped"
    assert done.needs_review


def test_legacy_variables_of_roles_have_the_same_values() -> None:
    done = convert(SAMPLE, "config.sh")
    variables = yaml.safe_load(done.variables)
    assert {name.removeprefix("vtorque_"): value for name, value in variables.items()} == yaml.safe_load(done.text)
    assert all(name.startswith("vtorque_") for name in variables)
    assert "PROLOGUE_TIMEOUT changed: prologue_timeout stays at its default" in done.variables


def test_refused_value_is_a_comment_above_the_default() -> None:
    text = convert(SAMPLE, "config.sh").text
    assert "\n# (config.sh, line 26: NFS_TIMEOUT refused: many: allowed: a whole number from 1 to 3600; " in text
    assert "\n#nfs_timeout: 3\n" in text


@pytest.mark.parametrize(
    ("old", "refused"),
    [
        ("PROLOGUE_TIMEOUT=60\n", "PROLOGUE_TIMEOUT"),
        ("TIMEOUT=280\nPROLOGUE_TIMEOUT=275\n", "TIMEOUT"),
        ("CUSTOM_IP_MAPPING=true\n", "CUSTOM_IP_MAPPING"),
        ("STATIC_IP_MAPPING=true\n", "STATIC_IP_MAPPING"),
        ("VMS_PER_NODE_DEFAULT=8\n", "VMS_PER_NODE_DEFAULT"),
        ("HYPERVISOR_DEFAULT=qemu\n", "HYPERVISOR_DEFAULT"),
    ],
)
def test_contradicting_value_is_refused(old: str, refused: str) -> None:
    done = convert(old, "config.sh")
    parse(done.text, "new")
    assert [word.name for word in done.entries if word.fate == "refused"] == [refused]


def test_values_that_fit_each_other_are_kept() -> None:
    done = convert("VMS_PER_NODE_DEFAULT=8\nMAX_VMS_PER_NODE=8\nTIMEOUT=280\nPROLOGUE_TIMEOUT=285\n", "config.sh")
    assert {word.fate for word in done.entries} == {"mapped"}
    policy = parse(done.text, "new").policy
    assert (policy.vms_per_node_default, policy.timeout, policy.prologue_timeout) == (8, 280, 285)
    assert not done.needs_review


@pytest.mark.parametrize("kill", ["", "KILL_USER_PROCESSES_AFTER_JOB=true\n", "KILL_USER_PROCESSES_AFTER_JOB=false\n"])
def test_shared_nodes_stay_shared_and_nobodys_processes_are_killed_there(kill: str) -> None:
    done = convert(f"{kill}PBS_EXCLUSIVE_NODE_ALLOC=false\n", "config.sh")
    policy = parse(done.text, "new").policy
    assert (policy.pbs_exclusive_node_alloc, policy.kill_user_processes_after_job) == (False, False)
    report = [word.text for word in done.entries if word.fate == "changed"]
    assert [text.startswith("kill_user_processes_after_job: false, for it ") for text in report] == [True] * len(report)
    assert bool(report) == ("false" not in kill)


def test_hostile_values_stay_values() -> None:
    done = convert("DOMAIN=$'a\\nbridge: evil'\nSEARCH_DOMAIN='x\nbridge: evil'\nNTP_SERVER_1='a: b # c'\n", "a\nb: c")
    assert parse(done.text, "new").policy.bridge == "br0"
    assert [line for line in done.text.splitlines() if line.startswith(("bridge", "b:"))] == []


@pytest.mark.parametrize(
    ("old", "metrics"), [("true", "both"), ("false", PARAMETERS["metrics"].default), ("TRUE", "both")]
)
def test_snap_becomes_figures_in_the_record_and_for_an_exporter(old: str, metrics: str) -> None:
    done = convert(f"SNAP_MONITORING_ENABLED={old}\nSNAP_BIN_DIR=/opt/snap\nSNAP_TAG_FORMAT='x-[jobid]'\n", "old")
    policy = parse(done.text, "new").policy
    assert (policy.metrics, policy.metrics_tag) == (metrics, "x-[jobid]")
    fates = texts_of(done)
    assert fates["SNAP_MONITORING_ENABLED"][0] == "changed"
    assert fates["SNAP_BIN_DIR"][0] == "dropped"
    assert fates["SNAP_TAG_FORMAT"][0] == "mapped"
    assert not done.needs_review


@pytest.mark.parametrize("text", ["metrics: off", "metrics: 'off'", "metrics: OFF", "metrics: false"])
def test_off_is_off_with_and_without_quotes(text: str) -> None:
    """YAML takes the bare word for a flag."""
    assert parse(f"{text}\n", "new").policy.metrics == "off"
