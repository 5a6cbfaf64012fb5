# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of cloud-config that a user may not have in `metadata=`, and why."""

from __future__ import annotations

_ROOT = "needs root, which users are not in a guest"
_USERS = "the guest's one user is the job's, with the ids of the node"
_SSH = "who enters a guest, and by which key, is decided for each job anew"
_DISKS = "what a guest mounts is the site's list"
_SOURCES = "packages come from the image's own sources"
_NAMES = "names, addresses and time are the node's to give"
REFUSED: dict[str, str] = {
    **dict.fromkeys(("users", "user", "groups", "chpasswd", "password", "create_hostname_file"), _USERS),
    **dict.fromkeys(
        (
            "ssh_authorized_keys",
            "ssh_keys",
            "ssh_import_id",
            "ssh_pwauth",
            "ssh",
            "ssh_deletekeys",
            "ssh_genkeytypes",
            "ssh_publish_hostkeys",
            "disable_root",
            "disable_root_opts",
            "no_ssh_fingerprints",
            "allow_public_ssh_keys",
            "authkey_hash",
        ),
        _SSH,
    ),
    **dict.fromkeys(
        (
            "mounts",
            "mount_default_fields",
            "swap",
            "fs_setup",
            "disk_setup",
            "device_aliases",
            "growpart",
            "resize_rootfs",
        ),
        _DISKS,
    ),
    **dict.fromkeys(
        (
            "apt",
            "apt_pipelining",
            "apk_repos",
            "yum_repos",
            "yum_repo_dir",
            "zypper",
            "snap",
            "ca_certs",
            "ca-certs",
            "rh_subscription",
            "ubuntu_advantage",
            "ubuntu_pro",
            "package_update",
            "package_upgrade",
            "package_reboot_if_required",
        ),
        _SOURCES,
    ),
    **dict.fromkeys(
        (
            "hostname",
            "fqdn",
            "prefer_fqdn_over_hostname",
            "preserve_hostname",
            "manage_etc_hosts",
            "manage_resolv_conf",
            "resolv_conf",
            "network",
            "ntp",
            "timezone",
        ),
        _NAMES,
    ),
    "bootcmd": f"{_ROOT}; what runs as yourself stands in runcmd",
    **dict.fromkeys(
        (
            "power_state",
            "phone_home",
            "output",
            "reporting",
            "rsyslog",
            "random_seed",
            "seed_random",
            "salt_minion",
            "chef",
            "puppet",
            "mcollective",
            "ansible",
            "landscape",
            "lxd",
            "wireguard",
            "grub_dpkg",
            "grub-dpkg",
            "fan",
            "locale",
            "locale_configfile",
            "keyboard",
            "system_info",
            "datasource",
            "datasource_list",
            "cloud_init_modules",
            "cloud_config_modules",
            "cloud_final_modules",
            "merge_how",
            "merge_type",
            "vendor_data",
            "final_message",
            "updates",
            "spacewalk",
            "byobu_by_default",
            "drivers",
            "autoinstall",
            "sudo",
        ),
        _ROOT,
    ),
}
"""Keys of cloud-config that a user may not have, and why."""
REFUSED_OF_FILES: dict[str, str] = {
    "owner": "the files are yours",
    "append": "a file is written whole",
    "defer": "files are written when your home is there",
    "source": "the content stands in content",
}
