# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node: namespaces, a root file system of its own over the machine's, and process 1 in it.

`python -m lab.cluster.node enter FD DIRECTORY NETNS CGROUP PARENT` is run by `up` on the machine; it becomes the node's
process 1 and goes on as `python -m lab.cluster.node init FD`, the node's own Python in the node's own root.  FD is a
pipe to `up`: on it go a line with the process id, then `ok` or what went wrong.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import typing as t
import uuid

from ..system import cgroups, namespaces
from ..system.namespaces import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
)
from ..system.places import LAB, OWN_VENV, PLAN, VENV
from ..system.state import NodePlan

INSTALLED = (
    "var/spool/torque", "etc/vtorque", "var/lib/vtorque", "opt/vtorque", "etc/munge", "var/lib/munge", "var/log/munge",
    "etc/slurm", "var/lib/slurm", "var/log/slurm",
)  # fmt: skip
"""Where a batch system and the product lie on a machine that has them: a node gets its own."""


def enter(ready: int, directory: pathlib.Path, netns: str, cgroup: str, parent: int) -> None:
    """Become process 1 of a new node; does not return.

    Args:
        ready: descriptor of the pipe to `up`.
        directory: the node's directory in the lab's state: `node.json`, and room for its root.
        netns: name of its network namespace.
        cgroup: name of its cgroup.
        parent: process id of `up`; without it nothing is begun.
    """
    cgroups.join_for(parent, cgroup)
    namespaces.join_network(netns)
    namespaces.unshare(mounts=True, cgroup=True, uts=True, ipc=True, pid=True)
    child = os.fork()
    if child:
        # the number that the machine knows process 1 by; the node itself cannot see it
        os.write(ready, f"{child}\n".encode())
        os._exit(0)
    os.setsid()
    try:
        _become(ready, directory)
    except (OSError, subprocess.SubprocessError) as error:
        os.write(ready, f"{error}\n".encode())
        raise


def _become(ready: int, directory: pathlib.Path) -> t.NoReturn:
    plan = NodePlan.read(directory / "node.json")
    hierarchies = cgroups.hierarchies()
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    root = _root(directory)
    _system(root, hierarchies)
    (root / PLAN.relative_to("/")).parent.mkdir()
    if plan.prefix:
        # no layer of the root: that one lies in the machine's file system, which is another
        _overlay(pathlib.Path(plan.prefix), directory / "prefix", root / str(VENV.parent).lstrip("/"))
    for printed in plan.mounts:
        _bind(pathlib.Path(printed.source), root / printed.target.lstrip("/"), read_only=printed.read_only)
    _hide(root / str(directory.parents[1]).lstrip("/"))
    plan.write(root / PLAN.relative_to("/"))
    _boot_id(root)
    os.chdir(root)
    # util-linux: glibc has no pivot_root; the old root ends up on top of the new one and is taken off
    subprocess.run(["/usr/sbin/pivot_root", ".", "."], check=True, timeout=10)
    subprocess.run(["/usr/bin/umount", "-l", "."], check=True, timeout=10, cwd="/")
    os.chdir("/")
    cgroups.delegate()
    socket.sethostname(plan.name)
    environment = {
        "PATH": f"{OWN_VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": str(LAB),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
    }
    os.set_inheritable(ready, True)
    python = str(OWN_VENV / "bin/python")
    os.execve(python, [python, "-m", "lab.cluster.node", "init", str(ready)], environment)  # noqa: S606 - no shell is wanted


def _root(directory: pathlib.Path, machine: pathlib.Path = pathlib.Path("/")) -> pathlib.Path:
    """The machine's file system, with everything the node writes kept in the node's directory."""
    root = directory / "root"
    if not (directory / "upper").exists():  # else the node boots again, with what it had
        _leave_out(machine, directory / "upper")
    _overlay(machine, directory, root)
    return root


def _leave_out(machine: pathlib.Path, upper: pathlib.Path) -> None:
    """Begin a node's disk without what the machine itself has installed: of its MOM's files a front end has none."""
    for place in INSTALLED:
        if (machine / place).is_dir():
            own = upper / place
            own.mkdir(mode=0o755, parents=True)
            os.setxattr(own, "trusted.overlay.opaque", b"y")


def _overlay(lower: pathlib.Path, stored: pathlib.Path, target: pathlib.Path) -> None:
    places = {name: stored / name for name in ("upper", "work")}
    for place in (*places.values(), target):
        # there already when a lost node comes back, with what it had written
        place.mkdir(mode=0o755, parents=True, exist_ok=True)
    mount("vtorque-lab", target, "overlay", 0, f"lowerdir={lower},upperdir={places['upper']},workdir={places['work']}")


def _system(root: pathlib.Path, hierarchies: t.Sequence[cgroups.Hierarchy]) -> None:
    """What a system finds mounted when it boots."""
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("sysfs", root / "sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if hierarchies and hierarchies[0].place:
        mount("tmpfs", root / "sys/fs/cgroup", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755")
    for hierarchy in hierarchies:
        where = root / "sys/fs/cgroup" / hierarchy.place
        where.mkdir(exist_ok=True)
        mount(hierarchy.kind, where, hierarchy.kind, MS_NOSUID | MS_NODEV | MS_NOEXEC, hierarchy.options)
    _devices(root / "dev")
    for place, mode in (("run", "755"), ("tmp", "1777")):
        mount("tmpfs", root / place, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode}")


def _devices(dev: pathlib.Path) -> None:
    mount("tmpfs", dev, "tmpfs", MS_NOSUID, "mode=755")
    names = ["null", "zero", "full", "random", "urandom", "tty", "net/tun", "fuse", "vhost-net"]
    # without the processor's help it starts no kernel
    if re.search(r"^flags\b.*\b(svm|vmx)\b", pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii"), re.MULTILINE):
        names.append("kvm")
    for name in names:
        there = pathlib.Path("/dev") / name
        if not there.exists():
            continue
        (dev / name).parent.mkdir(exist_ok=True)
        facts = there.stat()
        os.mknod(dev / name, facts.st_mode, facts.st_rdev)
        (dev / name).chmod(facts.st_mode & 0o7777)
        os.chown(dev / name, facts.st_uid, facts.st_gid)
    if (vfio := pathlib.Path("/dev/vfio")).is_dir():  # the kernel makes a file there for each group that is handed on
        _bind(vfio, dev / "vfio", read_only=False)
    links = {"fd": "/proc/self/fd", "ptmx": "pts/ptmx", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for link, target in links.items():
        (dev / link).symlink_to(target)
    (dev / "pts").mkdir()
    mount("devpts", dev / "pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5")
    (dev / "shm").mkdir()
    mount("tmpfs", dev / "shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    if re.search(r"\bhugetlbfs$", pathlib.Path("/proc/filesystems").read_text(encoding="ascii"), re.MULTILINE):
        (dev / "hugepages").mkdir()
        mount("hugetlbfs", dev / "hugepages", "hugetlbfs", MS_NOSUID | MS_NODEV, "mode=755")


def _boot_id(root: pathlib.Path) -> None:
    """A boot of the node's own: the machine's kernel boots no second time when a lost node comes back."""
    own = root / "run/lab/boot_id"
    own.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    own.chmod(0o444)
    mount(own, root / "proc/sys/kernel/random/boot_id", None, MS_BIND)
    # Linux lets a user namespace mount its own /proc only where one is that nothing covers; virtiofsd in Rust does so
    whole = root / "run/lab/proc"
    whole.mkdir(mode=0o700)
    mount("proc", whole, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def _hide(place: pathlib.Path) -> None:
    """Cover the lab's own directory where the machine's file system shows it."""
    if place.is_dir():
        mount("tmpfs", place, "tmpfs", MS_RDONLY)


def _bind(source: pathlib.Path, target: pathlib.Path, *, read_only: bool) -> None:
    target.mkdir(parents=True, exist_ok=True)
    mount(source, target, None, MS_BIND)
    if read_only:
        mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def init(ready: int) -> None:
    """Process 1 in the node's own root: start the daemons, say so, then reap whatever ends."""
    from ..system import daemons

    os.set_inheritable(ready, False)
    plan = NodePlan.read(PLAN)
    try:
        if not (plan.bare or plan.by_roles or plan.is_front_end):
            _furnish_ssh()
        daemons.start(plan)
        if not plan.bare:
            _furnish(plan)
        answer = "ok"
    except (OSError, subprocess.SubprocessError, daemons.DaemonError) as error:
        answer = str(error)
    os.write(ready, f"{answer}\n".encode())
    os.close(ready)
    # not before: every process of the node would have inherited it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    _reap()
    while answer == "ok":
        if signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) == signal.SIGTERM:
            break
        _reap()


def _furnish(plan: NodePlan) -> None:
    # they need what only the installed environment has
    from .. import batch
    from ..installation import site
    from ..system import daemons

    if plan.by_roles:
        daemons.make_volatile()
    else:
        site.install(plan)
    system = batch.of(plan.batch)
    system.install(plan)
    system.start(plan)


def _furnish_ssh() -> None:
    from ..installation import site

    site.place_drop_ins()


def _reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                return
        except ChildProcessError:
            return


def main() -> None:
    """`enter` on the machine, `init` in the node."""
    if sys.argv[1] == "enter":
        enter(int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]))
    else:
        init(int(sys.argv[2]))


if __name__ == "__main__":
    main()
