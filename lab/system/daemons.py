# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's own configuration and daemons: users, ssh, DHCP on the front end, libvirt on the compute nodes.

Everything here runs in the node, on the node's own root: plain paths, nothing of the machine is touched.
"""

from __future__ import annotations

import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import uuid

from . import cgroups
from .state import NETWORK, NodePlan

RUN = pathlib.Path("/run/lab")
"""Where the number of the node's batch daemon is, for who wants to stop it."""
KEYS = RUN / "keys"
GUEST_RANGE = (f"{NETWORK}.100", f"{NETWORK}.250")
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
USERS = {"alice": (1001, 1001), "bob": (1002, 2000)}
"""uid and primary gid: alice has a group of her own, bob's primary group has a blank in its name."""
GROUPS = {"alice": (1001, ()), "HPC Users": (2000, ("alice",))}


class DaemonError(Exception):
    """A daemon of the node did not start."""


def start(plan: NodePlan) -> None:
    """Configure the node and start its daemons; each has its sockets open when this returns.

    Raises:
        DaemonError: one did not start; says its last words.
    """
    _names(plan)
    _users(plan)
    _ssh(plan)
    if plan.is_front_end:
        _dhcp()
    else:
        _libvirt()


def put(path: str | pathlib.Path, text: str, mode: int = 0o644) -> None:
    """Write a file of root's with this mode, and the directories above it.

    Args:
        path: absolute, in the node.
        text: the whole content.
        mode: permissions.
    """
    place = pathlib.Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    # the machine's own file, seen through the node's root, may be a link to somewhere
    place.unlink(missing_ok=True)
    place.touch(mode=0o600)
    place.write_text(text, encoding="utf-8")
    place.chmod(mode)


def run(*command: str, **more: str) -> None:
    """Run a program that ends soon, or goes into the background by itself when it is ready.

    Args:
        command: its words.
        more: what its environment holds besides the path.

    Raises:
        DaemonError: it failed.
    """
    # a file and not a pipe: a daemon may keep its standard error open for life
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=600, env={**ENVIRONMENT, **more}
        )  # fmt: skip
        if done.returncode:
            output.seek(0)
            last = output.read().decode(errors="replace").strip()[-800:]
            raise DaemonError(f"{command[0]} ended with status {done.returncode}: {last}")


def _names(plan: NodePlan) -> None:
    put("/etc/hostname", f"{plan.name}\n")
    put("/etc/hosts", hosts_file(plan))
    put("/etc/resolv.conf", f"nameserver {NETWORK}.1\n")
    # a fresh identity: a machine-id shared by all nodes would give them one DHCP lease and one libvirt host
    put("/etc/machine-id", f"{uuid.uuid4().hex}\n", 0o444)


def hosts_file(plan: NodePlan) -> str:
    """The content of /etc/hosts: every node, and nobody else."""
    named = {name: dict.fromkeys((name, name.partition(".")[0])) for name in plan.peers}
    lines = ["127.0.0.1 localhost", *(f"{address} {' '.join(named[name])}" for name, address in plan.peers.items())]
    return "\n".join(lines) + "\n"


def _users(plan: NodePlan) -> None:
    """The machine's system accounts, and the lab's two people instead of the machine's own."""

    def is_system(line: str) -> bool:
        # Debian policy 9.2.2: people have 1000 to 59999; above are system accounts again (libvirt-qemu: 64055)
        number = line.split(":")[2]
        return number.isdigit() and not 1000 <= int(number) < 60000

    def stored(file: str) -> list[str]:
        lines = pathlib.Path(file).read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line.count(":") >= 3 and is_system(line)]

    passwd = stored("/etc/passwd") + [f"{u}:x:{uid}:{gid}:{u}:/home/{u}:/bin/bash" for u, (uid, gid) in USERS.items()]
    group = stored("/etc/group") + [f"{g}:x:{gid}:{','.join(who)}" for g, (gid, who) in GROUPS.items()]
    put("/etc/passwd", "\n".join(passwd) + "\n")
    put("/etc/group", "\n".join(group) + "\n")
    # no password lets anybody in; "*" is no password and not a locked account, which sshd would refuse
    put("/etc/shadow", "".join(f"{line.split(':')[0]}:*:19000:0:99999:7:::\n" for line in passwd), 0o600)
    # what the machine's root has his shells do is his affair; bash reads .bashrc for each command that comes by ssh
    for file in (".bashrc", ".profile", ".bash_profile", ".bash_login"):
        put(f"/root/{file}", "")
    if plan.is_front_end:
        make_homes(pathlib.Path("/home"))


def make_homes(place: pathlib.Path) -> None:
    """The people's homes below `place`."""
    for user, (uid, gid) in USERS.items():
        home = place / user
        home.mkdir(mode=0o755, exist_ok=True)
        shutil.chown(home, uid, gid)
        # the tiny guest puts its keys over it: its sshd looks for them nowhere else
        (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
        shutil.chown(home / ".ssh", uid, gid)


def _ssh(plan: NodePlan) -> None:
    """sshd, and root's way from node to node; host keys are known beforehand, checking is never off."""

    def key(name: str) -> str:
        return (KEYS / name).read_text(encoding="ascii")

    put("/etc/ssh/ssh_host_ed25519_key", key("host"), 0o600)
    put("/etc/ssh/ssh_host_ed25519_key.pub", key(f"{plan.name}.pub"))
    known = [f"{name},{address} {key(f'{name}.pub')}" for name, address in plan.peers.items()]
    ways = pathlib.Path("/root/.ssh/authorized_keys")
    if not (plan.by_roles and ways.exists()):
        # the roles add to them, and they are the node's own then
        put("/etc/ssh/ssh_known_hosts", "".join(known))
        put(ways, key("root.pub"), 0o600)
    if not plan.by_roles:
        put("/root/.ssh/id_ed25519", key("root"), 0o600)
        put("/root/.ssh/id_ed25519.pub", key("root.pub"))
    ways.parent.chmod(0o700)
    # what the product places there
    put(
        "/etc/ssh/ssh_config",
        "Include /etc/ssh/ssh_config.d/*-vtorque.conf\nHost *\n  StrictHostKeyChecking yes\n  BatchMode yes\n",
    )
    settings = {
        "Include": "/etc/ssh/sshd_config.d/*-vtorque.conf", "Port": "22", "ListenAddress": plan.address,
        "HostKey": "/etc/ssh/ssh_host_ed25519_key", "PidFile": "/run/sshd.pid",
        "PermitRootLogin": "prohibit-password", "PasswordAuthentication": "no", "KbdInteractiveAuthentication": "no",
        "UsePAM": "no", "UseDNS": "no", "Subsystem": "sftp internal-sftp",
    }  # fmt: skip
    if plan.is_front_end:  # a node's are as a distribution has them: what jobs need beyond that is the product's
        settings |= {"MaxStartups": "100", "MaxSessions": "100"}
    put("/etc/ssh/sshd_config", "".join(f"{name} {value}\n" for name, value in settings.items()), 0o600)
    # privilege separation's directory, which systemd would make
    pathlib.Path("/run/sshd").mkdir(mode=0o755)
    run("/usr/sbin/sshd", "-f", "/etc/ssh/sshd_config", "-E", "/var/log/sshd.log")


def _dhcp() -> None:
    run(*dhcp_command())


def dhcp_command() -> tuple[str, ...]:
    """The command of a server of addresses for guests, which goes into the background by itself.

    Without --no-ping the server tries an address for up to 3 s before it gives it.
    """
    return (
        "/usr/sbin/dnsmasq", "--conf-file=/dev/null", "--user=root", "--interface=eth0", "--bind-interfaces",
        "--except-interface=lo", "--no-resolv", f"--dhcp-range={GUEST_RANGE[0]},{GUEST_RANGE[1]},10m",
        f"--dhcp-option=option:router,{NETWORK}.1", "--dhcp-authoritative", "--dhcp-rapid-commit",
        "--dhcp-no-override", "--no-ping", "--dhcp-leasefile=/var/lib/misc/dnsmasq.leases", "--log-dhcp",
        "--log-facility=/var/log/dnsmasq.log", "--pid-file=/run/dnsmasq.pid",
    )  # fmt: skip


def _libvirt() -> None:
    """libvirtd as the distribution sets it up, and nothing of what the machine itself defined."""
    for place in ("/etc/libvirt/qemu/networks/autostart", "/etc/libvirt/qemu/autostart", "/etc/libvirt/storage"):
        shutil.rmtree(place, ignore_errors=True)
    for domain in pathlib.Path("/etc/libvirt/qemu").glob("*.xml"):
        domain.unlink()
    for place in ("save", "snapshot", "nvram", "checkpoint"):
        for leftover in pathlib.Path("/var/lib/libvirt/qemu", place).glob("*"):
            leftover.unlink()
    put("/etc/libvirt/libvirtd.conf", LIBVIRTD_CONF.format(uuid=uuid.uuid4()))
    run("/usr/sbin/virtlogd", "-d")
    start_libvirt()


def start_libvirt() -> None:
    """Start libvirtd, at boot or again; its sockets are there when this returns.

    Raises:
        DaemonError: it did not start; says its last words.
    """
    cgroups.make_machine()
    run("/usr/sbin/libvirtd", "-d")


def make_volatile() -> None:
    """Make what packages and roles want to find in /run after each boot, which is systemd's to do where it runs.

    Raises:
        DaemonError: it could not be made.
    """
    wanted = sorted(pathlib.Path("/etc/tmpfiles.d").glob("*.conf"))
    if wanted:
        run("/usr/bin/systemd-tmpfiles", "--create", "--boot", *map(str, wanted))


def start_nfs() -> None:
    """Serve the front end's /home by NFS, in user space; the port is open when this returns.

    Raises:
        DaemonError: it did not start; says its last words.
    """
    put("/etc/ganesha/lab.conf", GANESHA_CONF)
    # Ganesha 6.5 (Debian 13) serves no tmpfs, where these homes may be, and takes types of file systems from here alone
    mounts = pathlib.Path("/proc/self/mounts").read_text("utf-8")
    put("/etc/mtab", mounts.replace(" /home tmpfs ", " /home xfs "))
    log = pathlib.Path("/var/log/ganesha.log")
    run("/usr/bin/ganesha.nfsd", "-f", "/etc/ganesha/lab.conf", "-L", str(log), "-p", "/run/ganesha.pid")
    end = time.monotonic() + 60
    while True:
        with socket.socket() as asking:
            if asking.connect_ex((f"{NETWORK}.1", 2049)) == 0:
                return
        if time.monotonic() > end:
            raise DaemonError(f"nobody listens for NFS: {log.read_text(errors='replace')[-800:]}")
        time.sleep(0.1)


def start_switch() -> None:
    """Start the distribution's Open vSwitch with DPDK, without hardware, and a bridge of it as a site has one.

    Its one thread of packets sleeps when there are none; else it would take a processor for itself.

    Raises:
        DaemonError: it did not start; says its last words.
    """
    place = pathlib.Path("/run/openvswitch")
    place.mkdir(mode=0o755, exist_ok=True)
    database = pathlib.Path("/var/lib/openvswitch/lab.db")
    if not database.exists():
        run("/usr/bin/ovsdb-tool", "create", str(database), "/usr/share/openvswitch/vswitch.ovsschema")
    log = "--log-file=/var/log/openvswitch/{}.log"
    socket_ = f"unix:{place}/db.sock"
    run("/usr/sbin/ovsdb-server", str(database), f"--remote=p{socket_}", "--pidfile", "--detach", log.format("ovsdb"))
    run("/usr/bin/ovs-vsctl", "--no-wait", "init", "--", "set", "Open_vSwitch", ".", *SWITCH)
    run(
        "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
        socket_,
        f"--unixctl={SWITCH_CONTROL}",
        "--detach",
        log.format("vswitchd"),
    )
    bridge = ("set", "Bridge", DPDK_BRIDGE, "datapath_type=netdev", "fail_mode=secure")
    run("/usr/bin/ovs-vsctl", "--timeout=60", "--may-exist", "add-br", DPDK_BRIDGE, "--", *bridge)


SWITCH_CONTROL = "/run/openvswitch/vswitchd.ctl"
"""Where `ovs-appctl -t` reaches it: the program has another name than is looked for."""
DPDK_BRIDGE = "brv"
SWITCH = (
    "other_config:dpdk-init=true",
    'other_config:dpdk-extra="--no-pci --no-huge --legacy-mem -m 256"',
    "other_config:pmd-cpu-mask=0x1",
    "other_config:pmd-maxsleep=1000",
    "other_config:per-port-memory=true",
)
"""Of Open vSwitch, without huge pages: by itself it adds `--in-memory`, which does not go with their absence."""

GANESHA_CONF = f"""\
NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = 2049; Bind_addr = {NETWORK}.1; Enable_NLM = false; Enable_RQUOTA = false;
    allow_set_io_flusher_fail = true; }}
NFSv4 {{ Graceless = true; Minor_Versions = 1,2; RecoveryRoot = "/run/ganesha"; Only_Numeric_Owners = true;
    Delegations = false; }}
EXPORT_DEFAULTS {{ Attr_Expiration_Time = 0; }}
EXPORT {{ Export_Id = 1; Path = "/home"; Pseudo = "/home"; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
    Protocols = 4; Transports = TCP; FSAL {{ Name = VFS; }} }}
"""
"""The guest's root mounts the homes: it is not squashed here, as on many clusters it is.  The front end writes behind
the server's back, which by itself would believe for a minute that what it once missed is still missing.  Ganesha 6
(Debian 13) does not start without the right to be an IO flusher, which root of a container lacks; 4.3 needs none."""

LIBVIRTD_CONF = """\
# without polkit's daemon: root alone, by the socket's mode
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_rw_perms = "0700"
# every node would take the machine's own uuid else
host_uuid = "{uuid}"
log_outputs = "3:file:/var/log/libvirt/libvirtd.log"
"""
