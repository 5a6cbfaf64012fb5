# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job that is suspended to disk, saved and moved, beside `virsh save`, `restore` and `migrate` of a bare guest."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import re
import subprocess
import time
import typing as t

from .measure import SCRIPT, Guest, Progress
from .site import USER, Site, Trouble

NODES = HERE, SPARE = ("cn1", "cn2")
RUNS = 2
TEXT = "#!/bin/sh\nuntil [ -e ~/bench.go.$PBS_JOBID ]; do echo line; sleep 0.05; done\n"
GO = "/home/alice/bench.go.{}"
"""A name for each job: for a while the file server still has one that was removed behind its back."""
STORE = "/home/.checkpoints"
SETTINGS = {
    "host_os_core_count": 0,
    "suspend_guests": "save",
    "home_via": "nfs",
    "vm_nfs_home": "10.77.0.1:/home",
    "checkpoint_dir": STORE,
    "checkpoint_min": 0,
    "spare_nodes": [SPARE],
}
NFS = "env PYTHONPATH=/opt/vtorque-lab /opt/vtorque-lab/venv/bin/python -m lab.revive nfs"
OUTPUT = "/var/spool/torque/spool/*.OU"
STOOD_STILL = r"checkpoint \d+ of job \S+: its guests stood still for ([0-9.]+) s"
PATIENCE_S = 600.0
MEMORY = "/var/tmp/bench-memory"


@dataclasses.dataclass(frozen=True)
class Bare:
    """What libvirt alone takes for a guest, in seconds."""

    save_s: float
    restore_s: float
    move_s: float


@dataclasses.dataclass(frozen=True)
class Suspension:
    """One suspension of a job to disk, in seconds.

    Attributes:
        pause_s: from the order until its guest stands still.
        save_s: from then until it is on the disk.
        resume_s: from the order to resume until it runs.
    """

    pause_s: float
    save_s: float
    resume_s: float


@dataclasses.dataclass(frozen=True)
class Move:
    """One move to a spare node, in seconds.

    Attributes:
        move_s: as `vmgr node evacuate` reports it.
        gap_s: the longest silence on the job's connection meanwhile.
    """

    move_s: float
    gap_s: float


def measure(site: Site, guest: Guest, progress: Progress) -> dict[str, list[float]]:
    """The figures, by key; a bare guest and a job in turn.

    Args:
        site: has nodes cn1 and cn2.
        guest: which guest.
        progress: told what is at work.

    Raises:
        Trouble: a guest did not do what it was to.
    """
    site.ask("fe", "write_file", SCRIPT, TEXT, user=USER)
    root(site, "fe", f"mkdir -m 700 {STORE}; {NFS}; pbsnodes -o -N 'vtorque: spare' {SPARE}")
    for host in ("fe", *NODES):
        for name, value in SETTINGS.items():
            site.ask(host, "set_parameter", name, value)
    bare, suspensions, pauses, moves = [], [], [], []
    for number in range(RUNS):
        progress("a bare guest: virsh save, restore, migrate", number, RUNS)
        bare.append(measure_bare(site, guest))
        progress("a job: suspended to disk, saved", number, RUNS)
        with job(site, f"{guest.request},checkpoint=on") as (job_id, name):
            suspensions.append(suspend(site, job_id, name))
            pauses.append(save(site, job_id))
        progress("a job: moved", number, RUNS)
        with job(site, guest.request):
            moves.append(move(site))
    return figures_of(bare, suspensions, pauses, moves)


def figures_of(
    bare: t.Sequence[Bare], suspensions: t.Sequence[Suspension], pauses: t.Sequence[float], moves: t.Sequence[Move]
) -> dict[str, list[float]]:
    """Return the figures of jobs, each held against the bare guest of its own turn.

    Args:
        bare: what libvirt alone took.
        suspensions: of jobs.
        pauses: of checkpoints, in seconds.
        moves: of jobs.
    """
    return {
        "survive_pause_s": [one.pause_s for one in suspensions],
        "survive_save_s": [one.save_s for one in suspensions],
        "survive_save_ratio": [one.save_s / alone.save_s for one, alone in zip(suspensions, bare, strict=True)],
        "survive_resume_s": [one.resume_s for one in suspensions],
        "survive_resume_ratio": [one.resume_s / alone.restore_s for one, alone in zip(suspensions, bare, strict=True)],
        "survive_checkpoint_s": list(pauses),
        "survive_move_s": [one.move_s for one in moves],
        "survive_move_ratio": [one.move_s / alone.move_s for one, alone in zip(moves, bare, strict=True)],
        "survive_gap_s": [one.gap_s for one in moves],
    }


def root(site: Site, node: str, line: str, given: str = "") -> str:
    """Run a line of shell as root; returns its output.

    Args:
        site: has the node.
        node: where.
        line: of shell.
        given: its input.

    Raises:
        Trouble: it failed.
    """
    call = site.line(node, ["/bin/sh", "-c", line], "root")
    done = subprocess.run(call, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Trouble(f"{node}: {line}: {done.stderr.strip()}")
    return done.stdout


def wait(what: str, look: t.Callable[[], bool]) -> None:
    """Wait until something is so.

    Raises:
        Trouble: it is not for minutes.
    """
    until = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > until:
            raise Trouble(f"{what} is not there after {PATIENCE_S:.0f} s")
        time.sleep(0.1)


@contextlib.contextmanager
def job(site: Site, request: str) -> t.Iterator[tuple[str, str]]:
    """A job that writes lines; yields its id and its guest's name, and ends it."""
    job_id = site.ask("fe", "submit", request, SCRIPT, user=USER)
    wait("the job's first line", lambda: "line" in root(site, HERE, f"cat {OUTPUT} 2>/dev/null; :"))
    yield job_id, root(site, HERE, "virsh list --name").strip()
    root(site, "fe", f"touch {GO.format(job_id)}")
    ended = f"qstat -f {job_id} 2>/dev/null | grep -c 'job_state = C'; :"
    wait("the job's end", lambda: root(site, "fe", ended).strip() == "1")
    free = f'pbsnodes {SPARE} | grep -c "note = vtorque: spare$"; :'
    wait("the spare node", lambda: root(site, "fe", free).strip() == "1")


def suspend(site: Site, job_id: str, name: str) -> Suspension:
    """Suspend a job to disk, and resume it."""
    with site.program(HERE, "state_watch", name, "paused", "", "running") as watch:
        watch.line()
        ordered = time.time()
        root(site, "fe", f"qsig -s suspend {job_id}")
        paused, saved = watch.line(), watch.line()
        again = time.time()
        root(site, "fe", f"qsig -s resume {job_id}")
        return Suspension(paused - ordered, saved - paused, watch.line() - again)


def save(site: Site, job_id: str) -> float:
    """Take a checkpoint of a job; returns for how long its guest stood still, as its log has it."""
    root(site, "fe", f"vmgr job checkpoint {job_id}")
    log = f"cat /var/lib/vtorque/records/{job_id}.1/vtorque.log"
    wait("the checkpoint", lambda: bool(re.search(STOOD_STILL, root(site, HERE, log))))
    return float(re.findall(STOOD_STILL, root(site, HERE, log))[-1])


def move(site: Site) -> Move:
    """Move the guest of a job to the spare node.

    Raises:
        Trouble: it stays.
    """
    with site.program(HERE, "gap_watch", OUTPUT) as watch:
        watch.line()
        (row,) = json.loads(root(site, "fe", f"vmgr node evacuate {HERE} --json; :"))
        watch.finish()
        if row["why"]:
            raise Trouble(f"the guest was not moved: {row['why']}")
        return Move(row["seconds"], watch.line()["gap_s"])


def measure_bare(site: Site, guest: Guest) -> Bare:
    """What `virsh` takes for a guest that libvirt alone has booted, and that no worker watches."""
    with site.program(HERE, "bare_boot", guest.image, guest.ram_mib, USER, 1, True) as booted:
        name = booted.line()["names"][0]
        save_s = virsh(site, f"save {name} {MEMORY}")
        restore_s = virsh(site, f"restore {MEMORY}")
        root(site, HERE, f"rm {MEMORY}")
        move_s = _migrate(site, name)
        booted.finish()
        booted.line()
    return Bare(save_s, restore_s, move_s)


def virsh(site: Site, arguments: str) -> float:
    """Have virsh do something on cn1; returns the seconds."""
    began = time.monotonic()
    root(site, HERE, f"virsh -q {arguments}")
    return time.monotonic() - began


def _migrate(site: Site, name: str) -> float:
    """Migrate a guest as an administrator would, who has opened ports, and has copied all but the disk before."""
    place = root(site, HERE, f"dirname $(virsh domblklist {name} | awk '/disk.qcow2/{{print $2}}')").strip()
    facts = root(site, HERE, f"qemu-img info -U --output=json {place}/disk.qcow2")
    base = json.loads(facts)["full-backing-filename"]
    others = root(site, HERE, f"cd {place} && tar -c --exclude=disk.qcow2 . | base64 -w0").strip()
    channel = "sed -n \"s/.*<source mode='bind' path='\\([^']*\\)'.*/\\1/p\""
    agents = root(site, HERE, f"dirname $(virsh dumpxml {name} | {channel})").strip()
    root(site, SPARE, f"mkdir -p -m 711 {place} {agents} && cd {place} && base64 -d | tar -x", others)
    root(site, SPARE, f"cd {place} && qemu-img create -q -f qcow2 -F qcow2 -b {base} disk.qcow2")
    address = root(site, SPARE, "ip -4 -o addr show br0 | awk '{print $4}' | cut -d/ -f1").strip()
    source, target = (site.root_of(node) for node in NODES)
    uri = "qemu+unix:///system?socket={}/run/libvirt/libvirt-sock"
    call = ["virsh", "-q", "-c", uri.format(source), "migrate", "--live", "--copy-storage-inc"]
    call += ["--migrateuri", f"tcp://{address}", name, uri.format(target)]
    began = time.monotonic()
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode:
        raise Trouble(f"virsh migrate: {done.stderr.strip()}")
    root(site, SPARE, f"virsh -q destroy {name}; rm -rf {pathlib.PurePath(place).parent}")
    return seconds
