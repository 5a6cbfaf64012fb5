# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between batch systems for tests that run on each: one table.

States of jobs are the letters of qstat on every system: Q waits, H is held, R was started on a node, E ends, C is over.
"""

from __future__ import annotations

import dataclasses
import types
import typing as t


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch system in what its users type and read.

    Attributes:
        name: as `lab up --batch` has it.
        vm, bare: commands that submit a job in a guest, and one on a node itself.
        apart: options by which a job's output and errors lie in files of their own.
        joined: options by which its output and errors are one file, whose name is given beside them.
        interpreter: first line of a piped script that has none; "": none is needed.
        pair: options of a job over cn1 and cn2, of which the first leads.
        two: options of a job over any two nodes.
        three: options of a job over any three nodes.
        on_first: options of a job that only cn1 may run.
        led_by_last: where any nodes are asked for, the last one in their order leads, else the first.
        goes_on: options of a job that goes on when a node of it is lost.
        alone: of a job that has a node for itself, with two processors of it.
        enough: of a job past vsub, that a guest has what it needs.
        held: options of a job that waits for its release.
        directory: the option with a job's directory.
        named: the option with a job's name.
        array: options of an array with two members.
        piped_name: a job's name whose script was piped.
        cancel, cancel_slowly: by the owner; slowly: so that no KILL comes before a busy guest has ended by TERM.
        cancel_waits: that order ends with the prologue that runs, which hears nothing of it.
        too_late: what its order says that comes when the job is over or forgotten.
        drop_all: by root, of what a test has left; jobs behind it.
        signal: sends a signal to the script; its name and the job behind it.
        release, requeue: by the owner or root, the job behind it.
        release_line: what a held job's owner is to type, as a format.
        offline: the line of shell that lets a node get no more jobs, as a format.
        offline_with_note: the same with a note that is given, as a format of `note` and `node`.
        suspend, resume: by root; the job behind it.
        clear: the line of shell that takes back what a node has against jobs, as a format.
        alter: another user's attempt at a job, as formats.
        variables: of the environment of a job, as formats.
        number: variable of a job with its id.
        hosts: variable of a job that names the file of its hosts.
        script: the last word of the path under which a job's script runs.
        counts: a line of shell with what a job's variables say of its hosts, and what that is for one guest and one
            bare host of two processors.
        on_each: the command that runs one on every host of a job.
        untold: of Open MPI that is not told to use ssh, the pattern of its words on that, and what it finds: for
            Torque those of components of ours (mpi/tm.c), for Slurm its own on the program srun of guests.
        session: command of an interactive job.
        ready: what a terminal shows when that job has its nodes.
        session_id: pattern of a line there with its id.
        session_over: what a terminal shows when that job is cancelled, as a format.
        session_tells: the command's own status is the session's; else the job has it.
        cancelled: exit status of a job that TERM ended by a cancel.
        cancelled_early: of one that was cancelled before its script began.
        guests: so many have room on a node at a time: one of Slurm has the machine's processors, and not more.
        users_scripts: users may have scripts of their own around a job (`vm_prologue`, `vm_epilogue`).
        hook_lost: its prologue was killed: "ended" is the job without having run; "held", and the node takes no more.
        unknown: the id of a job that nobody has submitted.
        stays_lost: has a job that runs wait when its node is lost, the job behind it; (): for two minutes it does.
        over_bridge: its daemons speak over the bridge of guests, the one network of a lab's node: without it a node is
            lost.
        reports_in: of `Site.facts`, the file where an owner reads why a job did not run.
        record: a job's name where the product keeps something of it, as a format.
    """

    name: str
    vm: str
    bare: str
    apart: tuple[str, ...]
    joined: tuple[str, ...]
    interpreter: str
    pair: tuple[str, ...]
    two: tuple[str, ...]
    three: tuple[str, ...]
    led_by_last: bool
    goes_on: tuple[str, ...]
    alone: tuple[str, ...]
    enough: tuple[str, ...]
    held: tuple[str, ...]
    directory: str
    on_first: tuple[str, ...]
    named: str
    array: tuple[str, ...]
    piped_name: str
    cancel: tuple[str, ...]
    cancel_slowly: tuple[str, ...]
    cancel_waits: bool
    too_late: tuple[str, ...]
    drop_all: tuple[str, ...]
    signal: tuple[str, ...]
    release: tuple[str, ...]
    requeue: tuple[str, ...]
    release_line: str
    offline: str
    offline_with_note: str
    suspend: tuple[str, ...]
    resume: tuple[str, ...]
    clear: str
    alter: tuple[str, ...]
    variables: tuple[str, ...]
    number: str
    hosts: str
    script: str
    counts: tuple[str, str]
    on_each: str
    untold: tuple[str, frozenset[str]]
    session: tuple[str, ...]
    ready: str
    session_id: str
    session_over: str
    session_tells: bool
    cancelled: int
    cancelled_early: int
    guests: int
    users_scripts: bool
    hook_lost: str
    unknown: str
    stays_lost: tuple[str, ...]
    over_bridge: bool
    reports_in: str
    record: str

    def at(self, node: str) -> tuple[str, ...]:
        """Return the options of a job that this node alone may run."""
        return tuple(word.replace("cn1", node) for word in self.on_first)

    def environment(self, job_id: str) -> tuple[str, ...]:
        """Return the beginning of a command that has a job's variables."""
        return ("env", *(one.format(job_id) for one in self.variables))

    def led(self, *nodes: str) -> tuple[str, ...]:
        """Return nodes that were free for a job over any so many of them, the leading one first."""
        return tuple(reversed(nodes)) if self.led_by_last else nodes

    def full_id(self, job_id: str) -> str:
        """Return a job's name as the product has it in records, notes and file names."""
        return self.record.format(job_id)


TORQUE = Batch(
    name="torque", vm="vsub", bare="qsub", apart=(), joined=("-j", "oe"), interpreter="",
    pair=("-l", "nodes=cn1:ppn=2+cn2:ppn=2"), two=("-l", "nodes=2"),
    three=("-l", "nodes=3:ppn=2"), led_by_last=True, goes_on=(), alone=("-n", "-l", "nodes=1:ppn=2"),
    enough=("-l", "nodes=1:ppn=2"), held=("-h",), directory="-d",
    on_first=("-l", "nodes=cn1:ppn=2"), named="-N", array=("-t", "1-2"),
    piped_name="STDIN",
    cancel=("qdel",), cancel_slowly=("qdel", "-W", "600"), cancel_waits=True,
    too_late=("invalid state", "Unknown Job"),
    drop_all=("qdel", "-p"), signal=("qsig", "-s"),
    release=("qrls",), requeue=("qrerun",), release_line="qrls {}",
    offline="pbsnodes -o {}", offline_with_note="pbsnodes -o -N '{note}' {node}",
    suspend=("qsig", "-s", "suspend"), resume=("qsig", "-s", "resume"), clear="pbsnodes -c -N '' {}",
    alter=("qalter", "-v", "LD_PRELOAD=/home/bob/x.so", "{}"),
    variables=("PBS_JOBID={}", "PBS_NODENUM=0", "PBS_ENVIRONMENT=PBS_BATCH"), number="PBS_JOBID", hosts="PBS_NODEFILE",
    script="SC", counts=('echo "np $PBS_NP nodes $PBS_NUM_NODES ppn $PBS_NUM_PPN"', "np 3 nodes 2 ppn 1"),
    on_each="pbsdsh -u",
    untold=("tm is asked for [a-z]*", frozenset({"tm is asked for plm", "tm is asked for ras"})),
    session=("vsub", "-I"), ready="ready", session_id=r"\bjob (\S+\.fe)\b", session_over="qsub: job {} completed",
    session_tells=False,
    cancelled=256 + 15, cancelled_early=256 + 15, guests=2, users_scripts=True, hook_lost="ended",
    unknown="99999.fe", stays_lost=("qhold", "-h", "u"), over_bridge=False, reports_in="Error_Path", record="{}",
)  # fmt: skip
SLURM = Batch(
    name="slurm", vm="vsbatch", bare="sbatch", apart=("-o", "slurm-%j.out", "-e", "slurm-%j.err"), joined=(),
    interpreter="#!/bin/bash\n", pair=("-N2",), two=("-N2",), three=("-N3",), led_by_last=False,
    goes_on=("-k",), alone=("--exclusive",), enough=("-n2",), held=("-H",), directory="-D",
    on_first=("-w", "cn1"), named="-J", array=("-a", "1-2"), piped_name="sbatch",
    cancel=("scancel",), cancel_slowly=("scancel",), cancel_waits=False,
    too_late=("already completing or completed", "Invalid job id"), drop_all=("scancel",),
    signal=("scancel", "-b", "-s"),
    release=("scontrol", "release"), requeue=("scontrol", "requeue"),
    release_line="scontrol release {}",
    offline="scontrol update nodename={} state=drain reason=test",
    offline_with_note="scontrol update nodename={node} state=drain reason='{note}'",
    suspend=("scontrol", "suspend"), resume=("scontrol", "resume"), clear="scontrol update nodename={} state=resume",
    alter=("scontrol", "update", "jobid={}", "comment=mine"),
    variables=("SLURM_JOB_ID={}", "SLURM_CLUSTER_NAME=lab", "SLURM_NODEID=0"),
    number="SLURM_JOB_ID", hosts="VTORQUE_HOSTS", script="slurm_script",
    counts=('echo "nodes $SLURM_JOB_NUM_NODES of $SLURM_JOB_CPUS_PER_NODE"', "nodes 2 of 1,2"), on_each="srun -N2 -n2",
    # it starts srun, whose words it hides
    untold=("An ORTE daemon has unexpectedly failed", frozenset({"An ORTE daemon has unexpectedly failed"})),
    # salloc wants a terminal of its session's own, as a login has one
    session=("setsid", "--ctty", "--wait", "vsalloc"), ready="Granted job allocation",
    session_id="job allocation ([0-9]+)", session_over="Job allocation {} has been revoked",
    session_tells=True,
    cancelled=128 + 15, cancelled_early=0, guests=1, users_scripts=False, hook_lost="held",
    unknown="99999", stays_lost=(), over_bridge=True, reports_in="Output_Path", record="{}.lab",
)  # fmt: skip
BATCHES: t.Mapping[str, Batch] = types.MappingProxyType({one.name: one for one in (TORQUE, SLURM)})

SLURM_STATES: t.Mapping[str, str] = types.MappingProxyType(
    {"PENDING": "Q", "CONFIGURING": "R", "RUNNING": "R", "SUSPENDED": "S", "COMPLETING": "E"}
)
"""Slurm's words as letters of qstat; any other one is an end."""
SLURM_NODES: t.Mapping[str, str] = types.MappingProxyType(
    {"idle": "free", "mixed": "free", "allocated": "job-exclusive", "completing": "job-exclusive", "drained": "offline",
     "draining": "offline"}
)  # fmt: skip
"""Slurm's words for a node as pbsnodes has them; any other one is its own."""
HELD_BY_USER = ("JobHeldUser", "job requeued in held state")
"""Reasons of a job that its owner may release."""
