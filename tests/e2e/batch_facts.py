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
        interpreter: first line of a piped script that has none; "": none is needed.
        pair: options of a job over cn1 and cn2, of which the first leads.
        two: options of a job over any two nodes.
        on_first: options of a job that only cn1 may run.
        named: the option with a job's name.
        array: options of an array with two members.
        piped_name: a job's name whose script was piped.
        cancel, cancel_slowly: by the owner; slowly: so that no KILL comes before a busy guest has ended by TERM.
        drop_all: by root, of what a test has left; jobs behind it.
        signal: sends a signal to the script; its name and the job behind it.
        release, requeue: by the owner or root, the job behind it.
        release_line: what a held job's owner is to type, as a format.
        clear: the line of shell that takes back what a node has against jobs, as a format.
        offline: what a node is called that takes no more jobs.
        hosts: variable of a job that names the file of its hosts.
        script: the last word of the path under which a job's script runs.
        cancelled: exit status of a job that TERM ended by a cancel.
        record: a job's name where the product keeps something of it, as a format.
    """

    name: str
    vm: str
    bare: str
    apart: tuple[str, ...]
    interpreter: str
    pair: tuple[str, ...]
    two: tuple[str, ...]
    on_first: tuple[str, ...]
    named: str
    array: tuple[str, ...]
    piped_name: str
    cancel: tuple[str, ...]
    cancel_slowly: tuple[str, ...]
    drop_all: tuple[str, ...]
    signal: tuple[str, ...]
    release: tuple[str, ...]
    requeue: tuple[str, ...]
    release_line: str
    clear: str
    offline: str
    hosts: str
    script: str
    cancelled: int
    record: str

    def at(self, node: str) -> tuple[str, ...]:
        """Return the options of a job that this node alone may run."""
        return tuple(word.replace("cn1", node) for word in self.on_first)

    def full_id(self, job_id: str) -> str:
        """Return a job's name as the product has it in records, notes and file names."""
        return self.record.format(job_id)


TORQUE = Batch(
    name="torque", vm="vsub", bare="qsub", apart=(), interpreter="",
    pair=("-l", "nodes=cn1:ppn=2+cn2:ppn=2"), two=("-l", "nodes=2"), on_first=("-l", "nodes=cn1:ppn=2"),
    named="-N", array=("-t", "1-2"),
    piped_name="STDIN",
    cancel=("qdel",), cancel_slowly=("qdel", "-W", "600"), drop_all=("qdel", "-p"), signal=("qsig", "-s"),
    release=("qrls",), requeue=("qrerun",), release_line="qrls {}",
    clear="pbsnodes -c -N '' {}", offline="offline", hosts="PBS_NODEFILE",
    script="SC", cancelled=256 + 15, record="{}",
)  # fmt: skip
SLURM = Batch(
    name="slurm", vm="vsbatch", bare="sbatch", apart=("-o", "slurm-%j.out", "-e", "slurm-%j.err"),
    interpreter="#!/bin/bash\n", pair=("-N2",), two=("-N2",), on_first=("-w", "cn1"), named="-J",
    array=("-a", "1-2"), piped_name="sbatch",
    cancel=("scancel",), cancel_slowly=("scancel",), drop_all=("scancel",), signal=("scancel", "-b", "-s"),
    release=("scontrol", "release"), requeue=("scontrol", "requeue"),
    release_line="scontrol release {}", clear="scontrol update nodename={} state=resume", offline="drain",
    hosts="HYDRA_HOST_FILE", script="slurm_script",
    cancelled=128 + 15, record="{}.lab",
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
