# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user types on each batch system of a lab, and how it shows them their jobs: for the story of `make demo`."""

from __future__ import annotations

import dataclasses
import re
import typing as t
import xml.etree.ElementTree as ET

from .. import batch

Ask = t.Callable[..., str]
"""Runs a command on the front end as root; returns what it wrote."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """A job at one moment.

    Attributes:
        state: in words for people.
        files: of its output, which are there when it is over.
        exit_status: "" while it is not over.
        held: why it is held, "" where it is not: nothing but a person's command lets it go on.
    """

    state: str
    files: tuple[str, ...]
    exit_status: str
    held: str = ""


@dataclasses.dataclass(frozen=True)
class Front:
    """A batch system, as its users type and read it.

    Attributes:
        submit: the command that submits a job in a virtual machine.
        piped: a line of shell, `{command}` and `{flags}` in it, that submits the script on its standard input.
        failing: the same of a script that writes "going wrong" to its standard error and ends with 37.
        two_nodes: options of a job over two nodes.
        one_node: options of a job on the first node.
        written: where the job's first line appears there, `{job}` in it.
        hosts: the variable that names the file with a line for each process of the job.
        interactive: what asks for a terminal in a virtual machine.
        ready: what the terminal shows before a line can be typed.
        session: what the terminal shows of the job it belongs to; its first group is the job.
        find: returns what is known of a job, None: the batch system does not know it.
    """

    submit: str
    piped: str
    failing: str
    two_nodes: str
    one_node: str
    written: str
    hosts: str
    interactive: str
    ready: str
    session: str
    find: t.Callable[[Ask, str], Seen | None]


OF_TORQUE = {
    "Q": "queued", "R": "its guest starts, or its script runs", "E": "its guest goes", "H": "held", "C": "ended",
}  # fmt: skip
OF_SLURM = {
    "PENDING": "queued", "CONFIGURING": "its guest starts", "RUNNING": "its guest starts, or its script runs",
    "COMPLETING": "its guest goes",
}  # fmt: skip


def _ask_torque(ask: Ask, job: str) -> Seen | None:
    found = ET.fromstring(ask("qstat", "-x", "-f", job)).find("Job")  # noqa: S314 - our own lab's words
    if found is None:
        return None
    facts = {child.tag: child.text or "" for child in found}
    files = tuple(facts[key].partition(":")[2] for key in ("Output_Path", "Error_Path"))
    letter = facts["job_state"]
    held = facts.get("comment", "no comment says why") if letter == "H" else ""
    return Seen(OF_TORQUE.get(letter, letter), files, facts["exit_status"] if letter == "C" else "", held)


def _ask_slurm(ask: Ask, job: str) -> Seen | None:
    answer = ask("scontrol", "show", "job", job)
    # no word of the story's jobs that is read by its name has a blank
    facts = dict(word.split("=", 1) for word in answer.split() if "=" in word)
    if "JobState" not in facts:
        return None
    state, (status, _, signal) = facts["JobState"], facts["ExitCode"].partition(":")
    # an interactive job has no file
    files = tuple({facts[key] for key in ("StdOut", "StdErr") if key in facts})
    over = "" if state in OF_SLURM else status if signal == "0" else f"{status}:{signal}"
    held = ""
    if facts["Reason"].startswith("JobHeld"):
        comment = re.search(r"^ *AdminComment=(.*)$", answer, re.MULTILINE)
        held = comment[1] if comment else facts["Reason"]
    return Seen(OF_SLURM.get(state, state.lower()), files, over, held)


FRONTS = {
    batch.TORQUE: Front(
        submit="vsub", two_nodes="-l nodes=2", one_node="-l nodes=cn1", written="/var/spool/torque/spool/{job}.OU",
        hosts="PBS_NODEFILE",
        piped="echo 'echo hello from $(hostname)' | {command}{flags}",
        failing="echo 'echo going wrong >&2; exit 37' | {command}{flags}",
        interactive="vsub -I{flags}", ready="ready", session=r"job (\S+) ready", find=_ask_torque,
    ),
    batch.SLURM: Front(
        submit="vsbatch", two_nodes="-N 2", one_node="-w cn1", written="/home/alice/slurm-{job}.out",
        hosts="HYDRA_HOST_FILE",
        piped=r"printf '#!/bin/sh\necho hello from $(hostname)\n' | {command}{flags}",
        failing="{command}{flags} --wrap 'echo going wrong >&2; exit 37'",
        interactive="vsalloc{flags}", ready="Granted", session=r"job allocation (\d+)", find=_ask_slurm,
    ),
}  # fmt: skip


NEXT_ON_TORQUE = """
The cluster is up. Next:
  alias lab='build/runtime/bin/python -m lab'
  lab on fe --user alice -- vsub -I -vm img={image}        # a terminal in a virtual machine
  job=$(echo hostname | lab on fe --user alice -- vsub)  # a job: its output lands in alice's home
  printf '#!/bin/sh\\nhostname\\n' | lab on fe --user alice -- sh -c 'cat >job.sh'  # a script in her home
  job=$(lab on fe --user alice -- vsub job.sh)           # and a job of it
  lab on fe --user alice -- vmgr job watch "$job"        # until it has ended; Ctrl-C ends the watching alone
  lab on fe --user alice -- sh -c 'qstat; tail *.[oe]*'
  lab on fe --user alice -- vmgr job list                # her jobs that have ended
  lab on fe --user alice -- vmgr job show "$job"         # its result, guests and times
  lab on fe -- vmgr doctor                               # is the site fit for virtual machines? (root)
  lab on fe --user alice -- vsub --help
  lab left                                               # what of jobs is on any node
  make down                                              # ends it
"""
NEXT_ON_SLURM = """
The cluster is up. Next:
  alias lab='build/runtime/bin/python -m lab'
  lab on fe --user alice -- vsalloc -vm img={image}        # a terminal in a virtual machine
  job=$(lab on fe --user alice -- vsbatch --parsable -vm img={image} --wrap hostname)
  printf '#!/bin/sh\\nhostname\\n' | lab on fe --user alice -- sh -c 'cat >job.sh'  # a script in her home
  job=$(lab on fe --user alice -- vsbatch --parsable job.sh)   # and a job of it
  lab on fe --user alice -- vmgr job watch "$job"        # until it has ended; Ctrl-C ends the watching alone
  lab on fe --user alice -- sh -c 'squeue -t all; tail slurm-*.out'
  lab on fe --user alice -- vmgr job list                # her jobs that have ended
  lab on fe --user alice -- vmgr job show "$job"         # its result, guests and times
  lab on fe --user alice -- sbatch --wrap hostname       # a job without a virtual machine, on a node itself
  lab on fe -- sinfo                                     # two nodes, the second also in the partition fast
  lab on fe -- vmgr doctor                               # is the site fit for virtual machines? (root)
  lab on fe --user alice -- vsbatch --help
  lab left                                               # what of jobs is on any node
  make down                                              # ends it
"""
NEXT = {batch.TORQUE: NEXT_ON_TORQUE, batch.SLURM: NEXT_ON_SLURM}
"""What `make lab` suggests."""


def next_lines(system: str, image: str, *, is_interactive: bool) -> str:
    """Return what to type next on a lab that stays.

    Args:
        system: name of the batch system.
        image: of the guests.
        is_interactive: can the front give a terminal in a virtual machine?
    """
    opens = FRONTS[system].interactive.partition("{")[0]
    lines = NEXT[system].format(image=image).splitlines(keepends=True)
    return "".join(line for line in lines if is_interactive or opens not in line)
