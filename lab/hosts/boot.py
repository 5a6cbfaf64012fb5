# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m lab.hosts.boot FILE PARENT`: make the root of one host, and become the systemd-nspawn that boots it.

All mounts are in a mount namespace of its own: they end with the host, however it ends.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import sys

from ..system import cgroups, namespaces
from ..system.namespaces import MS_PRIVATE, MS_REC, mount
from ..system.state import Mount, NodePlan
from . import furnish


@dataclasses.dataclass(frozen=True)
class Order:
    """What to boot.

    Attributes:
        plan: the host, as a node of the lab's is described; its `mounts` are what the host sees of the machine.
        layers: directories of which its root is made, the topmost first.
        place: the host's own directory.
        group: name of its cgroup and of its network namespace.
    """

    plan: NodePlan
    layers: tuple[str, ...]
    place: str
    group: str

    @classmethod
    def read(cls, path: pathlib.Path) -> Order:
        """The order as `write` left it."""
        data = json.loads(path.read_text(encoding="utf-8"))
        plan = {**data["plan"], "mounts": tuple(Mount(**printed) for printed in data["plan"]["mounts"])}
        return cls(NodePlan(**plan), tuple(data["layers"]), data["place"], data["group"])

    def write(self, path: pathlib.Path) -> None:
        """Keep it where the booting process reads it."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1), encoding="utf-8")


def boot(order: Order, parent: int) -> None:
    """Become systemd-nspawn; does not return.

    Args:
        order: what to boot.
        parent: process id of `up`; without it nothing is begun.

    Raises:
        OSError: a mount was refused.
    """
    cgroups.join_for(parent, order.group)
    namespaces.unshare(mounts=True)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    place = pathlib.Path(order.place)
    for name in ("upper", "work", "root"):
        (place / name).mkdir(mode=0o755, exist_ok=True)
    options = f"lowerdir={':'.join(order.layers)},upperdir={place / 'upper'},workdir={place / 'work'}"
    mount("vtorque-host", place / "root", "overlay", 0, options)
    furnish.furnish(order.plan, place / "root", place / "keys")
    printed = [f"--bind{'-ro' if each.read_only else ''}={each.source}:{each.target}" for each in order.plan.mounts]
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "NOTIFY_SOCKET": os.environ["NOTIFY_SOCKET"],
        # as on a machine of its own: one hierarchy of cgroups, every system call, its own network's settings
        "UNIFIED_CGROUP_HIERARCHY": "yes",
        "SYSTEMD_SECCOMP": "0",
        "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
    }
    arguments = [
        "/usr/bin/systemd-nspawn", "--quiet", "--boot", "--console=pipe", "--notify-ready=yes",
        # neither the machine's systemd nor its machined have to be there
        "--keep-unit", "--register=no",
        f"--directory={place / 'root'}", f"--machine={order.group}", f"--hostname={order.plan.name}",
        f"--network-namespace-path=/run/netns/{order.group}", "--capability=all", "--resolv-conf=off",
        "--timezone=off", "--link-journal=no", "--bind=/dev/net/tun", *printed,
    ]  # fmt: skip
    os.execve(arguments[0], arguments, environment)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    boot(Order.read(pathlib.Path(sys.argv[1])), int(sys.argv[2]))
