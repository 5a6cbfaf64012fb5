# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is left of jobs on a node: run on that node, writes a JSON list of lines on standard output.

Below the product's own directories everything counts that is not named here as what may stay; elsewhere what a job is
known to bring: libvirt's files of its domains, cgroups, devices, processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

from . import batch
from .system.places import PLAN
from .system.state import NodePlan

OURS = ("/run/vtorque", "/var/lib/vtorque")
START = r"[^/]+\.[0-9]+"
MAY_STAY = re.compile(
    "|".join(
        (
            # directories of the product, empty
            r"/run/vtorque/(agents|ansible|authorized_keys|bare|jobs|locks|networks|paused|shells|templates|tombstones|vhostuser)",
            r"/var/lib/vtorque/(devices|devices/(leases|quarantine)|guests|hugepages|images|interrupts|log|records|running|slots|spool|topology)",
            # what belongs to the node and to no job: settings, the configuration as it was read, compiled templates,
            # locks that always have these names, the sweep's suspicions and time, the brake's memory, logs of hooks,
            # copies of images, what the roles have noted, what nodes have
            r"/run/vtorque/(ansible\.cfg|fast_start|templates/.*|locks/(authorized_keys|devices|disk|evacuation|health|images|slots|sweep|vlans|warm)|suspects\.json|swept"
            r"|refused|network_rules|(policy|qemu_user|virtiofsd)\.json)",
            r"/var/lib/vtorque/(log/.*|images/.*|topology/.*|records/\.looked|made|(kernel|health)\.json)",
            # templates of warm starts, which belong to no job
            r"/var/lib/vtorque/warm(/(wanted|failed)(/[^/]+)?|/[0-9a-f]{32}(/(record\.json|mem|disk\.qcow2|seed\.iso|used|failed))?)?",
            # the word that a start is over, for two days: whoever comes late makes nothing any more; and of who took it
            # away what that was, for whoever asks next (a lock that is held is told of below)
            f"/run/vtorque/(tombstones|locks)/{START}",
            # record, log and console outlive the job; so does the mark of a record that the front end has not got
            f"/var/lib/vtorque/records/{START}",
            f"/var/lib/vtorque/records/{START}/(record|alone|superior|used|series|io-cores|moved)\\.json",
            f"/var/lib/vtorque/records/{START}/samples\\.jsonl",
            f"/var/lib/vtorque/records/{START}/(vtorque|[^/]+\\.console)\\.log",
            f"/var/lib/vtorque/spool/{START}",
            # on the front end: how a job stood, until its record comes
            f"/var/lib/vtorque/running/{START}(/(record\\.json|samples\\.jsonl))?",
        )
    )
)
PLACES = {
    "domain's file": "/run/libvirt/qemu",
    "domain's directory": "/var/lib/libvirt/qemu",
    "definition": "/etc/libvirt/qemu",
    "filter": "/run/libvirt/nwfilter-binding",
    "shared memory": "/dev/shm",  # noqa: S108 - looked at, not written to
}
OF_LIBVIRT = re.compile(
    r"/run/libvirt/qemu/(autostarted|driver\.pid|dbus|rdp|vnc|passt|slirp|swtpm|channel|autostart)"
    r"|/var/lib/libvirt/qemu/(channel|channel/target|checkpoint|dump|nvram|ram|save|snapshot|nbdkit|varstore)"
    r"|/etc/libvirt/qemu/(autostart|networks|networks/.*)"
)
"""What libvirt has there without any domain."""
VIRSH, NFT = "/usr/bin/virsh", "/usr/sbin/nft"
PROGRAMS = ("qemu-", "virtiofsd", "swtpm", "passt", "vtorque-virtiofsd:")
LATER = ("vtorque_record", "vtorque_sweep", "--end-left", "vtorque_cache")
"""Programs of ours that a job's end starts and does not wait for: the record's way to the front end, the sweep, and on
a sister the end of what is not the guests' (`--end-left`).  Copies of images are fetched for no single job."""
FIRST_USER, LAST_USER = 1000, 60000


def domains() -> t.Iterator[str]:
    """Every domain that this node's libvirt knows; a libvirt that does not answer is something left, too."""
    if not pathlib.Path("/run/libvirt/libvirt-sock").exists():
        return
    arguments = [VIRSH, "-c", "qemu:///system", "list", "--all", "--name"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    if done.returncode:
        yield f"unknown: libvirt did not answer: {done.stderr.strip()}"
    yield from (f"domain {name}" for name in done.stdout.split())


def below(place: str) -> list[str]:
    """Every path below a directory, in order."""
    return sorted(
        os.path.join(directory, name)  # noqa: PTH118 - of thousands
        for directory, directories, files in os.walk(place)
        for name in (*directories, *files)
    )


def kind(path: str) -> str:
    """What a path below the product's directories is called: by the directory that it lies in."""
    place = path.removeprefix("/run/vtorque/").removeprefix("/var/lib/vtorque/").partition("/")[0]
    names = {"guests": "guest directory", "slots": "slot", "jobs": "run record", "shells": "shell link",
             "bare": "ssh access", "authorized_keys": "authorized keys", "locks": "lock", "agents": "agent",
             "paused": "order of a pause", "ansible": "temporary files"}  # fmt: skip
    return names.get(place, "file")


def files() -> t.Iterator[str]:
    """What lies in the directories of the product and of libvirt's domains; of a directory itself alone."""
    report = ""
    for place in OURS:
        for path in below(place):
            if not MAY_STAY.fullmatch(path) and not (report and path.startswith(f"{report}/")):
                report = path
                yield f"{kind(path)} {path}"
    began = boot_time()
    for what, place in PLACES.items():
        yield from (f"{what} {path}" for path in below(place) if not OF_LIBVIRT.fullmatch(path) and since(path, began))


def boot_time() -> float:
    """When this node was started, in seconds since the epoch, by the clock that gives files their times.

    What it is was written down then (`cluster/node.py`); a test may show another clock to programs.
    """
    return PLAN.stat().st_ctime


def since(path: str, moment: float) -> bool:
    """Return whether it is of this boot: libvirt leaves directories of a domain that a power cut ended on the disk."""
    with contextlib.suppress(FileNotFoundError):
        return not path.startswith("/var/lib/libvirt/") or os.lstat(path).st_ctime >= moment
    return False


def held_locks() -> t.Iterator[str]:
    """Locks of starts that somebody holds, as the kernel lists them: to try them would be to hold them."""
    held = {line.split()[-3] for line in pathlib.Path("/proc/locks").read_text(encoding="ascii").splitlines()}
    for path in sorted(pathlib.Path("/run/vtorque/locks").glob("*")):
        facts = path.stat()
        place = f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"
        if place in held and re.fullmatch(START, path.name):
            yield f"lock {path} is held"


def processes() -> t.Iterator[str]:
    """Every process of a user, of a guest, or of ours: of a job's shell, of a hook, of a playbook, a worker, an ssh."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            fields = path.read_bytes().decode(errors="replace").split("\0")
            uid = path.stat().st_uid
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields == [""] or int(path.parent.name) == os.getpid():  # a zombie, or nobody's
            continue
        program = fields[0].rpartition("/")[2] if not fields[0].startswith(PROGRAMS) else fields[0]
        of_a_job = any(word.startswith(("/run/vtorque/", "/var/lib/vtorque/")) for word in fields)
        of_ours = any("mikelangelo.vtorque" in word or "ansible" in word for word in fields[:5])
        later = any(word.endswith(LATER) for word in fields)
        if program.startswith(PROGRAMS) or FIRST_USER <= uid < LAST_USER or ((of_a_job or of_ours) and not later):
            yield f"process {path.parent.name} {' '.join(fields)[:200].strip()}"


def rules() -> t.Iterator[str]:
    """Every chain of the bridge's packet filter that a guest has."""
    if not pathlib.Path(NFT).exists():
        return
    done = subprocess.run([NFT, "list", "chains", "bridge"], capture_output=True, text=True, timeout=600)
    yield from (f"network rules {name}" for name in re.findall(r"chain (vtq\S+)", done.stdout))


def devices() -> t.Iterator[str]:
    """Every tap of this node, each device of a job's own network, and each address that was bound to a guest."""
    for path in sorted(pathlib.Path("/sys/class/net").glob("*/tun_flags")):
        yield f"tap {path.parent.name}"
    for path in sorted(pathlib.Path("/sys/class/net").glob("vt[px]*")):
        yield f"private network {path.name}"
    arguments = ["/usr/sbin/ip", "neigh", "show", "nud", "permanent"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    yield from (f"neighbour {line.strip()}" for line in done.stdout.splitlines())
    if done.returncode:
        yield f"unknown: {' '.join(arguments)}: {done.stderr.strip()}"


def cgroups() -> t.Iterator[str]:
    """Every cgroup of a guest: a scope where systemd makes them, a directory of libvirt's where it does not."""
    for path in below("/sys/fs/cgroup"):
        name = path.rpartition("/")[2]
        if name.startswith("machine-qemu") or (name.startswith("qemu-") and name.endswith(".libvirt-qemu")):
            yield f"cgroup {path}"


if __name__ == "__main__":
    of_system = batch.of(NodePlan.read(PLAN).batch).leftovers(boot_time())
    found = [*domains(), *files(), *of_system, *held_locks(), *processes(), *devices(), *cgroups(), *rules()]
    json.dump(found, sys.stdout)
