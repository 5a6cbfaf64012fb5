# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster's administrator has done to a host before vTorque comes: names, users, ssh, DHCP, the batch system."""

from __future__ import annotations

import pathlib
import uuid

from ..system import daemons
from ..system.state import NETWORK, NodePlan
from ..torque import install as torque
from ..torque_stand_in import CORES, SOCKETS

TORQUE_HOME = "var/spool/torque"


def furnish(plan: NodePlan, root: pathlib.Path, keys: pathlib.Path) -> None:
    """Write it into the host's root, before the host boots.

    Args:
        keys: what `lab.system.keys` made for it.
    """
    _names(plan, root)
    _users(root)
    _ssh(plan, root, keys)
    if plan.is_front_end:
        _unit(root, "site-dhcp", "Addresses for the guests of jobs", " ".join(daemons.dhcp_command()), kind="forking")
    if not plan.bare:
        _batch(plan, root)


def _names(plan: NodePlan, root: pathlib.Path) -> None:
    daemons.put(root / "etc/hostname", f"{plan.name}\n")
    daemons.put(root / "etc/hosts", daemons.hosts_file(plan))
    daemons.put(root / "etc/resolv.conf", f"nameserver {NETWORK}.1\n")
    daemons.put(root / "etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)


def _users(root: pathlib.Path) -> None:
    users, groups = daemons.USERS, daemons.GROUPS
    _append(root / "etc/passwd", [f"{u}:x:{uid}:{gid}:{u}:/home/{u}:/bin/bash" for u, (uid, gid) in users.items()])
    _append(root / "etc/group", [f"{g}:x:{gid}:{','.join(who)}" for g, (gid, who) in groups.items()])
    _append(root / "etc/shadow", [f"{user}:*:19000:0:99999:7:::" for user in users])


def _append(path: pathlib.Path, lines: list[str]) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in lines)


def _ssh(plan: NodePlan, root: pathlib.Path, keys: pathlib.Path) -> None:
    """Root's way to every host, from the machine and from the front end; all host keys are known beforehand."""

    def key(name: str) -> str:
        return (keys / name).read_text(encoding="ascii")

    daemons.put(root / "etc/ssh/ssh_host_ed25519_key", key("host"), 0o600)
    daemons.put(root / "etc/ssh/ssh_host_ed25519_key.pub", key(f"{plan.name}.pub"))
    known = [f"{name},{address} {key(f'{name}.pub')}" for name, address in plan.peers.items()]
    daemons.put(root / "etc/ssh/ssh_known_hosts", "".join(known))
    daemons.put(root / "root/.ssh/authorized_keys", key("root.pub"), 0o600)
    (root / "root/.ssh").chmod(0o700)


def _batch(plan: NodePlan, root: pathlib.Path) -> None:
    """The lab's batch system in the places where Torque's own installation puts it, started by systemd."""
    front_end = next(iter(plan.peers))
    torque.install(str(root), "/usr/bin", sockets=str(SOCKETS), host=plan.name, server=front_end)
    daemons.put(root / TORQUE_HOME / "server_name", f"{front_end}\n")
    if plan.is_front_end:
        compute = [name for name in plan.peers if name != plan.name]
        nodes = "".join(f" --node {name}:{CORES} --operator root@{name}" for name in compute)
        _daemon(root, "pbs_server", f"server --host {plan.name}{nodes}")
    else:
        home = root / TORQUE_HOME
        (home / "mom_priv").mkdir(parents=True)
        (home / "mom_priv").chmod(0o751)
        daemons.put(home / "mom_priv/config", f"$pbsserver {front_end}\n$logevent 255\n")
        # running jobs outlive their MOM's daemon, as with Torque's own unit
        _daemon(root, "pbs_mom", f"mom --host {plan.name}", "ExecReload=/bin/kill -HUP $MAINPID\nKillMode=process")


def _daemon(root: pathlib.Path, name: str, message: str, more: str = "") -> None:
    """Under Torque's name for it, which is how others know the process."""
    (root / "usr/sbin" / name).symlink_to(torque.ARCHIVE)
    _unit(root, name, f"the batch system ({name})", f"/usr/sbin/{name} {message}", more)


def _unit(root: pathlib.Path, name: str, description: str, command: str, more: str = "", kind: str = "simple") -> None:
    text = (
        f"[Unit]\nDescription={description}\nAfter=network.target local-fs.target\n\n[Service]\nType={kind}\n"
        f"ExecStart={command}\n{more}\n\n[Install]\nWantedBy=multi-user.target\n"
    )
    daemons.put(root / f"etc/systemd/system/{name}.service", text)
    wanted = root / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / f"{name}.service").symlink_to(f"../{name}.service")
