# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with a real /dev/kvm, under software emulation: its start, a command in it, its end.

Its root is the machine's below, read only, under an overlay in memory: it sees the same files at the same places, and
what it writes ends with it.
"""

from __future__ import annotations

import json
import os
import pathlib
import platform
import selectors
import shlex
import shutil
import subprocess
import sys
import typing as t

from ..cluster import lifecycle
from ..system import keys, network, places
from ..system.ending import DOWN_TIMEOUT_S
from ..system.state import Facts, LabError, Process, State, stat_fields
from . import hardware, image

NAME = "machine"
QEMU = pathlib.Path("/usr/bin/qemu-system-x86_64")
HERE = pathlib.Path(__file__).parent
READY, NO_KVM = b"lab machine: ready", b"lab machine: no /dev/kvm"
STALLED = b" blocked for more than "
"""What its kernel says of a process that has waited for a device for two minutes of its own time (hung_task)."""
BOOTS = 3
"""An emulated device was seen to have served all requests (9p, 1463 of them) while the kernel waited for one."""
CGROUPS_VERSION = 1 if platform.freedesktop_os_release()["VERSION_ID"] == "12" else 2
"""Debian 13's kernel has no memory and no cpuset in version 1 (6.12: MEMCG_V1 and CPUSETS_V1 are not set)."""
BOOT_TIMEOUT_S = 600
"""For a boot that takes some seconds when nothing else is at work."""
BOOT_CPU_S = 150
"""Processor time for a boot that takes 20 to 30 s of it, whatever else is at work: more is spent by a kernel that waits
in a loop.  One was seen to have used 900 s and said nothing for 600 s.
"""
KERNEL_MODULES = (
    "kvm_amd", "vhost_net", "tun", "bridge", "veth", "nf_tables", "nft_chain_nat", "fuse", "vfio_pci", "dummy",
    "virtio_net", "e1000e", "nvme", "loop", "ext4", "isofs",
)  # fmt: skip
"""What the lab and its guests need of the kernel and would be loaded by udev, which is not there."""
CMDLINE = (
    "console=ttyS0 quiet panic=-1 intel_iommu=on cryptomgr.notests mitigations=off "
    "tsc=reliable nowatchdog rcupdate.rcu_cpu_stall_suppress=1 clearcpuid=rep_good transparent_hugepage=never"
)
"""Nobody attacks its processor: what guards against that, and a fifth level of pages, was a quarter of its boot.

All of its processors have one counter of cycles, which the kernel doubts by itself.  Without it each look at the clock
goes to a timer on the bus, for which emulated processors wait for each other.  On a busy machine its kernel gets no
processor for many seconds, which is no fault of its own; to look for the reason by NMI was seen to end it for good.
"""


class StalledError(LabError):
    """The machine waits, for a device that has answered or in a loop: it does not go on, and another boot does."""


def state_of(lab: State) -> State:
    """Return where the machine's state is: beside the lab's, as both may be up."""
    return State(lab.directory.with_name(f"{lab.directory.name}-machine"))


def up(state: State, size: hardware.Size, cgroups_version: int) -> float:
    """Boot the machine, unless it is up already.

    Args:
        state: of the machine (`state_of`).
        size: how large it is.
        cgroups_version: which version of cgroups it mounts, 1 or 2.

    Returns:
        Seconds that its kernel had run when it was ready; 0.0: it was up already.

    Raises:
        LabError: something is missing, or it did not boot; the end of its console is on standard error.
    """
    if os.geteuid() != 0:
        raise LabError("root is needed: the machine reads all of this one's files")
    if not QEMU.exists():
        raise LabError(f"{QEMU} is not installed (lab/prepare.sh)")
    facts = state.load()
    if facts and facts.up and NAME in facts.inits and facts.inits[NAME].alive:
        return 0.0
    require_memory(size)
    lifecycle.down(state)
    boots = image.make(places.CHECKOUT / "build/machine", places.CHECKOUT / "build/cache")
    for left in reversed(range(BOOTS)):
        try:
            with state.lock():
                return _boot(state, size, cgroups_version, boots)
        except BaseException as error:
            console = state.directory / "console.log"
            if console.exists():
                sys.stderr.write(console.read_text(encoding="utf-8", errors="replace")[-4000:])
            lifecycle.down(state)
            if not (left and isinstance(error, StalledError)):
                raise
            print(f"lab machine: {error}; it is booted once more", file=sys.stderr)
    raise AssertionError("the last boot returns or raises")


def require_memory(size: hardware.Size, meminfo: pathlib.Path = pathlib.Path("/proc/meminfo")) -> None:
    """See to it that this machine has room for the other.

    Raises:
        LabError: it has not.
    """
    facts = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
    free_mib = int(facts["MemAvailable"].split()[0]) >> 10
    if free_mib < size.memory_mib:
        why = f"{size.memory_mib} MiB are needed, and {free_mib} MiB are available"
        raise LabError(f"the machine does not fit: {why} (lab machine up --memory MIB)")


def down(state: State) -> bool:
    """Switch the machine off; done again, it does nothing.

    Returns:
        Was there anything?
    """
    return lifecycle.down(state)


def command(state: State, arguments: t.Sequence[str], cwd: str, *, terminal: bool) -> list[str]:
    """Return the command line that runs `arguments` in the machine, as root.

    Args:
        state: of the machine.
        arguments: of the command.
        cwd: where; the machine has the same directories.
        terminal: whether it gets a terminal of its own.

    Raises:
        LabError: the machine is not up.
    """
    facts = state.load()
    if not (facts and facts.up and NAME in facts.inits and facts.inits[NAME].alive):
        raise LabError(f"no machine is up in {state.directory} (python -m lab machine up)")
    environment = {
        "HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash", "LANG": "C.UTF-8",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM": os.environ.get("TERM", "dumb"),
    }  # fmt: skip
    clean = ["/usr/bin/env", "-i", f"--chdir={cwd}", *(f"{name}={value}" for name, value in environment.items())]
    # one connection each: a shared one would live on after the machine
    alone = ["-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "LogLevel=ERROR"]
    line = shlex.join([*clean, *arguments])
    return ["/usr/bin/ssh", "-F", str(state.directory / "ssh_config"), *alone, "-tt" if terminal else "-T", NAME, line]


def _boot(state: State, size: hardware.Size, cgroups_version: int, boots: pathlib.Path) -> float:
    facts = Facts({NAME: "127.0.0.1"}, "", "", bare=True)
    state.claim()
    state.save(facts)
    keys.make(state, [NAME])
    keys.ssh_config(state, facts.addresses)
    network.make_empty(state, NAME)
    _hand_over(state, boots, cgroups_version)
    console = state.directory / "console.log"
    console.touch(mode=0o600)
    order = state.directory / "order.json"
    boot = {"group": state.name(NAME), "weight": size.processors, "words": _words(state, size, boots)}
    order.write_text(json.dumps(boot), encoding="utf-8")
    with (state.directory / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.machine.boot", str(order), str(os.getpid())],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=places.CHECKOUT,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    facts.inits[NAME] = Process.of(process.pid)
    state.save(facts)
    seconds = _wait(state, process, console)
    facts.up = True
    state.save(facts)
    return seconds


def _hand_over(state: State, boots: pathlib.Path, cgroups_version: int) -> None:
    """Put down what its first programs read before they have a /run of their own."""
    place = state.directory / NAME
    place.mkdir(mode=0o700)
    shutil.copy(HERE / "init.sh", place)
    shutil.copy(state.node(NAME) / "keys/host", place / "host_key")
    shutil.copy(state.node(NAME) / "keys/root.pub", place / "authorized_keys")
    settings = {
        "MODULES": str(boots / "modules"), "KERNEL_MODULES": " ".join(KERNEL_MODULES), "CARD": hardware.CARD,
        "CGROUPS": str(cgroups_version),
    }  # fmt: skip
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items())
    (place / "settings").write_text(text, encoding="utf-8")
    own = f"/run/lab-{NAME}"
    (place / "sshd_config").write_text(
        f"HostKey {own}/host_key\nAuthorizedKeysFile {own}/authorized_keys\nPidFile {own}/sshd.pid\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nUseDNS no\n"
        "KexAlgorithms curve25519-sha256\n",  # the default one takes an emulated processor longer
        encoding="ascii",
    )
    for name in hardware.DISKS:
        with (state.directory / f"{name}.raw").open("wb") as disk:
            disk.truncate(hardware.DISK_MIB << 20)


def _words(state: State, size: hardware.Size, boots: pathlib.Path) -> list[str]:
    return [
        str(QEMU), "-nodefaults", "-display", "none", "-no-reboot", *hardware.options(size, state.directory),
        "-kernel", str(boots / "kernel"), "-initrd", str(boots / "initrd"),
        "-append", f"{CMDLINE} lab.state={state.directory} ",
        "-serial", f"file:{state.directory / 'console.log'}",
        "-monitor", f"unix:{state.directory / 'monitor'},server=on,wait=off",
        # nothing of this machine can change by it
        "-fsdev", "local,id=below,path=/,security_model=none,readonly=on,multidevs=remap",
        "-device", "virtio-9p-pci,bus=pcie.0,fsdev=below,mount_tag=below",
        # of a network namespace with nothing else in it: the machine comes in, and nothing goes out
        "-netdev", "user,id=below,restrict=on,hostfwd=tcp:127.0.0.1:22-:22",
        "-device", f"virtio-net-pci,bus=pcie.0,netdev=below,mac={hardware.CARD}",
    ]  # fmt: skip


def booted_after(console: bytes) -> float:
    """Return the seconds in the word of the machine's process 1; 0.0: it has said nothing yet.

    Raises:
        LabError: it has booted, and is of no use.
        StalledError: it will not boot any more.
    """
    before, ready, after = console.partition(READY)
    found = after.split()
    if not ready and STALLED in before:
        raise StalledError("the machine waits for a device while it boots, and does not go on")
    if len(found) <= 2:
        return 0.0
    if NO_KVM in before:
        why = "this qemu emulates no SVM, as that of Debian 12 does (7.2, -accel tcg -cpu max)"
        raise LabError(f"the machine has no /dev/kvm: {why}. What needs it (make kvm) cannot run here")
    return float(found[1])


def used_cpu_s(pid: int) -> float:
    """Return the seconds that all threads of a process not waited for have had of a processor (fields 14, 15)."""
    return sum(map(int, stat_fields(pid)[11:13])) / os.sysconf("SC_CLK_TCK")


def _wait(state: State, process: subprocess.Popen[bytes], console: pathlib.Path) -> float:
    """Wait for the word of its process 1, and return the seconds in it (`booted_after`)."""
    ended = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ)
            for _look in range(BOOT_TIMEOUT_S * 5):
                if seconds := booted_after(console.read_bytes()):
                    return seconds
                if (used_s := used_cpu_s(process.pid)) > BOOT_CPU_S:
                    raise StalledError(f"the machine has used {used_s:.0f} s of processor time, and has not booted")
                if selector.select(0.2):
                    last = (state.directory / "qemu.log").read_text(encoding="utf-8", errors="replace").strip()
                    raise LabError(f"the machine ended while it booted (status {process.wait(DOWN_TIMEOUT_S)}) {last}")
    finally:
        os.close(ended)
    raise LabError(f"the machine has not booted after {BOOT_TIMEOUT_S} s")
