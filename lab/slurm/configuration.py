# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm.conf and cgroup.conf of a lab, the same on every node, as Slurm wants it."""

from __future__ import annotations

import pathlib
import typing as t

CONTROLLER_PORT, NODE_PORT = 6817, 6818
SPOOL = pathlib.Path("/var/lib/slurm")
LOGS = pathlib.Path("/var/log/slurm")
DEFAULT_MIB = 1024
"""Memory of a job that asks for none, per processor; less where the machine has less."""
FEATURE = "vtorque"
"""What jobs in virtual machines ask of a node; a property of the same name serves it on Torque."""
FAST = "fast"
"""Name of the second partition, and of the feature that its node alone has."""
PROGRAMS = {"Prolog": pathlib.Path("/etc/vtorque/slurm/prolog"), "Epilog": pathlib.Path("/etc/vtorque/slurm/epilog")}
"""Where an installed product has what Slurm calls for each job; without them a lab runs bare jobs alone."""

SLURM_CONF = """\
ClusterName=lab
SlurmctldHost={front_end}
SlurmUser=slurm
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={spool}/slurmctld
SlurmdSpoolDir={spool}/slurmd
SlurmctldPidFile={run}/server.pid
SlurmdPidFile={run}/mom.pid
SlurmctldLogFile={logs}/slurmctld.log
SlurmdLogFile={logs}/slurmd.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
JobAcctGatherType=jobacct_gather/cgroup
JobCompType=jobcomp/filetxt
JobCompLoc={logs}/jobcomp.log
MpiDefault=none
MailProg=/bin/true
LaunchParameters=use_interactive_step
PrologFlags=Alloc,Contain
# beyond what a prologue of the product may take: after it (and 10 s) a job whose prologue is still at work is taken
# for lost as soon as its node registers
BatchStartTimeout=360
# a node that boots again comes back by itself
ReturnToService=2
# tests need not wait as long as people would
KillWait=15
SlurmdTimeout=15
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1
DefMemPerCPU={memory_mib}
{hooks}NodeName=DEFAULT {hardware} State=UNKNOWN
{nodes}PartitionName=DEFAULT MaxTime=INFINITE State=UP
PartitionName=batch Nodes=ALL Default=YES
PartitionName={fast} Nodes={last}
"""


def slurm_conf(peers: t.Sequence[str], hardware: str, run: pathlib.Path, programs: t.Mapping[str, pathlib.Path]) -> str:
    """The whole slurm.conf.

    Args:
        peers: the nodes' names, the front end first.
        hardware: of a compute node, as `slurmd -C` says it, from `CPUs=` to `RealMemory=`.
        run: directory for the numbers of the daemons.
        programs: Prolog and Epilog, where there are such.
    """
    front_end, *compute = peers
    last = compute[-1]
    facts = dict(word.split("=", 1) for word in hardware.split())
    nodes = [f"NodeName={name} Features={FEATURE}{f',{FAST}' if name == last else ''}\n" for name in compute]
    return SLURM_CONF.format(
        front_end=front_end, controller_port=CONTROLLER_PORT, node_port=NODE_PORT, spool=SPOOL, logs=LOGS, run=run,
        memory_mib=min(DEFAULT_MIB, int(facts["RealMemory"]) // int(facts["CPUs"])), hardware=hardware,
        hooks="".join(f"{name}={path}\n" for name, path in programs.items()), nodes="".join(nodes), fast=FAST,
        last=last,
    )  # fmt: skip


def cgroup_conf(*, unified: bool) -> str:
    """The whole cgroup.conf.

    Args:
        unified: has the machine version 2 alone?  Without systemd slurmd is to make what systemd would.
    """
    lines = ["CgroupPlugin=cgroup/v2", "IgnoreSystemd=yes"]
    if not unified:
        lines = ["CgroupPlugin=cgroup/v1", "CgroupMountpoint=/sys/fs/cgroup"]
    return "\n".join([*lines, "ConstrainCores=yes", "ConstrainRAMSpace=yes", "ConstrainDevices=no"]) + "\n"
