# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of this host could confine guests, and whether the site's qemu.conf switches it off.  Nothing is changed.

Runs on the host, with whatever Python is there.  Writes one line of JSON: `kernel`, the names of what the kernel
has, and `faults`, sentences of what is wrong.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import typing as t

RESTRICTED = (
    "/bin/", "/etc/", "/lib", "/lost+found/", "/proc/", "/sbin/", "/selinux/", "/sys/", "/usr/bin/", "/usr/lib",
    "/usr/sbin/", "/usr/share/", "/usr/local/bin/", "/usr/local/etc/", "/usr/local/lib", "/usr/local/sbin/",
)  # fmt: skip
"""Where libvirt lets no guest under AppArmor have a file (virt-aa-helper.c: valid_path)."""
CONFIGURATION = "etc/libvirt/qemu.conf"


def confiners(root: pathlib.Path) -> list[str]:
    """What the running kernel has of AppArmor and SELinux; a permissive SELinux confines nobody."""
    found = []
    if read(root / "sys/module/apparmor/parameters/enabled").strip() == "Y":
        found.append("apparmor")
    if read(root / "sys/fs/selinux/enforce").strip() == "1":
        found.append("selinux")
    return found


def read(path: pathlib.Path) -> str:
    """A text, or nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def settings(text: str) -> dict[str, list[str]]:
    """The values of qemu.conf; a value in brackets is a list, which may go over several lines."""
    lines = re.sub(r"(?m)^\s*#.*$", "", text)
    found = re.findall(r"(?m)^\s*(\w+)\s*=\s*(\[[^\]]*\]|[^\n]*)", lines)
    return {name: re.findall(r'"([^"]*)"', value) or [value.split("#")[0].strip()] for name, value in found}


def faults(configured: t.Mapping[str, list[str]], kernel: t.Sequence[str], pool: str) -> list[str]:
    """What lets guests out, although the host could keep them in."""
    wrong = []
    drivers = configured.get("security_driver", [])
    if drivers and kernel and not set(drivers) & set(kernel):
        wrong.append(f"security_driver says {', '.join(drivers)}, and the kernel has {', '.join(kernel)}")
    if kernel and configured.get("security_default_confined") == ["0"]:
        wrong.append("security_default_confined is 0")
    if configured.get("seccomp_sandbox") == ["0"]:
        wrong.append("seccomp_sandbox is 0")
    if configured.get("user") in (["root"], ["0"], ["+0"]):
        wrong.append("user is root")
    found = []
    if wrong:
        found.append(
            f"/{CONFIGURATION} lets guests out ({'; '.join(wrong)}): take that out and restart libvirt when no job is"
            " here, or say compute_node_unconfined=true"
        )
    if "apparmor" in kernel and f"{pool}/".startswith(RESTRICTED):
        found.append(
            f"{pool}: libvirt gives no guest under AppArmor a file there (virt-aa-helper): name another pool in"
            " vtorque_vm_img_dir"
        )
    return found


def main() -> None:
    """Look, and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pool", help="of images")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"))
    arguments = parser.parse_args()
    kernel = confiners(arguments.root)
    configured = settings(read(arguments.root / CONFIGURATION))
    print(json.dumps({"kernel": kernel, "faults": faults(configured, kernel, arguments.pool)}))


if __name__ == "__main__":
    main()
