# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The story that `make demo` tells on a lab that is up: what a user of a site sees."""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import threading
import time
import typing as t
import xml.etree.ElementTree as ET

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from . import batch

JOB_TIMEOUT_S = 600
"""Under software emulation, on a machine that may be busy: generous."""


class Failure(RuntimeError):
    """The story did not go as it is told."""


def on(node: str, *command: str, user: str = "", stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command on a node of the lab."""
    who = ["--user", user] if user else []
    return subprocess.run(
        [sys.executable, "-m", "lab", "on", node, *who, "--", *command],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def job_facts(job_id: str) -> dict[str, str]:
    """What the batch system says of a job (`qstat -x -f`)."""
    job = ET.fromstring(on("fe", "qstat", "-x", "-f", job_id).stdout).find("Job")  # noqa: S314 - our own lab's words
    if job is None:
        raise Failure(f"{job_id} is not known to the batch system")
    return {child.tag: child.text or "" for child in job}


STATES = {"Q": "queued", "R": "its guest starts, or its script runs", "E": "its guest goes", "H": "held", "C": "ended"}


def follow(job_id: str, console: Console) -> dict[str, str]:
    """Wait for the end of a job, showing its state on a terminal."""
    end = time.monotonic() + JOB_TIMEOUT_S
    pause = threading.Event()
    columns = (TextColumn("    "), SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(job_id)
        while (facts := job_facts(job_id))["job_state"] != "C":
            progress.update(task, description=f"{job_id}: {STATES.get(facts['job_state'], facts['job_state'])}")
            if time.monotonic() > end:
                raise Failure(f"{job_id} did not end within {JOB_TIMEOUT_S} s")
            pause.wait(0.2)
    return facts


def tell_job(console: Console, title: str, shown: str, vsub: t.Sequence[str], stdin: str) -> tuple[str, str]:
    """Submit, follow, show; returns what the job wrote and its exit status."""
    console.print(f"\n{title}\n  alice@fe $ {shown}", highlight=False, markup=False)
    submitted = on("fe", "vsub", *vsub, user="alice", stdin=stdin)
    if submitted.returncode:
        raise Failure(submitted.stderr)
    job_id = submitted.stdout.strip()
    console.print(f"  {job_id}", highlight=False, markup=False)
    begin = time.monotonic()
    facts = follow(job_id, console)
    written = ""
    for key in ("Output_Path", "Error_Path"):
        path = facts[key].partition(":")[2]
        text = on("fe", "cat", path).stdout
        written += text
        name = path.rpartition("/")[2]
        for line in text.splitlines():
            console.print(f"    {name:<14} {line}", highlight=False, markup=False)
    took = time.monotonic() - begin
    console.print(f"    exit status {facts['exit_status']}, after {took:.0f} s", highlight=False, markup=False)
    return written, facts["exit_status"]


def tell_pool(console: Console, image: str) -> None:
    """What a user may choose from: the image was published as a site's are, and nothing is copied for a job."""
    console.print("\nthe images of the site\n  alice@fe $ vmgr image list", highlight=False, markup=False)
    listed = on("fe", "vmgr", "image", "list", user="alice")
    for line in (listed.stdout + listed.stderr).splitlines():
        console.print(f"    {line}", highlight=False, markup=False)
    if listed.returncode or not any(line.startswith(f"{image}@") for line in listed.stdout.splitlines()):
        raise Failure(f"the pool has no {image}")


NEXT = """
The cluster is up. Next:
  alias lab='build/runtime/bin/python -m lab'
  lab on fe --user alice -- vsub -I -vm img={image}        # a terminal in a virtual machine
  job=$(echo hostname | lab on fe --user alice -- vsub)  # a job: its output lands in alice's home
  lab on fe --user alice -- sh -c 'qstat; tail *.[oe]*'
  lab on fe --user alice -- vmgr job list                # her jobs
  lab on fe --user alice -- vmgr job show "$job"         # what became of it, once it has ended
  lab on fe -- vmgr doctor                               # is the site fit for virtual machines? (root)
  lab on fe --user alice -- vsub --help
  lab left                                               # what of jobs is on any node
  make down                                              # ends it
"""
"""What `make lab` suggests."""


NEXT_WITH_SLURM = """
The cluster is up. Next:
  alias lab='build/runtime/bin/python -m lab'
  lab on fe -- sinfo                                     # two nodes, the second also in the partition fast
  job=$(lab on fe --user alice -- sbatch --parsable --wrap hostname)
  lab on fe -- scontrol show job "$job"                  # what became of it; its output lands in alice's home
  lab on fe --user alice -- srun -N 2 hostname           # on both nodes at once
  lab on fe --user alice -- salloc -N 1                  # a terminal on a node
  lab left                                               # what of jobs is on any node
  make down                                              # ends it
"""
"""What `make lab BATCH=slurm` suggests."""


SCRIPT = """#!/bin/sh
echo "this is $(hostname), $(uname -s) $(uname -r), user $(id -un) ($(id -u))"
echo "my node file: $(tr '\\n' ' ' <"$PBS_NODEFILE")"
"""


def tell(console: Console, image: str) -> None:
    """The whole story; a part that does not go as told is a failure."""
    here = on("cn1", "uname", "-r").stdout.strip()
    console.print(f"\nthe nodes run Linux {here}; nothing of a job is on them", highlight=False)
    script = "/home/alice/where.sh"
    on("fe", "sh", "-c", 'cat >"$1"', "sh", script, user="alice", stdin=SCRIPT)
    tell_pool(console, image)
    choice = ("-vm", f"img={image}") if image != "tiny" else ()
    flags = "".join(f"{word} " for word in choice)

    text, status = tell_job(console, "1. a batch job", f"vsub {flags}where.sh", [*choice, script], "")
    if status != "0" or "this is vcn" not in text or (image == "tiny" and "user alice (1001)" not in text):
        raise Failure("the job's output does not come from a guest")
    piped = "echo hello from $(hostname)"
    text, status = tell_job(console, "2. a piped job", f"echo '{piped}' | vsub {flags}".rstrip(), choice, piped + "\n")
    if status != "0" or "hello from vcn" not in text:
        raise Failure("the piped job's output does not come from a guest")
    failing = "echo going wrong >&2; exit 37"
    text, status = tell_job(
        console, "3. a failing job", f"echo '{failing}' | vsub {flags}".rstrip(), choice, failing + "\n"
    )
    if status != "37" or "going wrong" not in text:
        raise Failure("the failing job's status or words are lost")

    console.print(
        "\n4. a wrong request\n  alice@fe $ vsub -vm img=tinny,vcpu=2 where.sh", highlight=False, markup=False
    )
    wrong = on("fe", "vsub", "-vm", "img=tinny,vcpu=2", script, user="alice")
    for line in wrong.stderr.splitlines():
        console.print(f"  {line}", highlight=False, markup=False)
    if wrong.returncode != 2:
        raise Failure("a wrong request was not refused")

    left = subprocess.run([sys.executable, "-m", "lab", "left"], capture_output=True, text=True, check=False)
    console.print(f"\n5. what is left of the jobs on all nodes\n  {left.stdout.strip() or 'nothing'}", highlight=False)
    if left.returncode:
        raise Failure("something of the jobs is left")
    console.print(
        "\nNext: make lab (the cluster stays, for you to try) · make test (every test) · README.md (what a site does)",
        highlight=False,
    )


def main() -> int:
    """Tell the story; exit status 1 when it did not go as told."""
    parser = argparse.ArgumentParser(prog="python -m lab.story", description=__doc__)
    parser.add_argument("--image", default="tiny", help="image of the guests (default: %(default)s)")
    parser.add_argument(
        "--batch", default=batch.TORQUE, choices=tuple(batch.SYSTEMS), help="the lab's batch system (%(default)s)"
    )
    parser.add_argument("--next", action="store_true", help="only what to type next on a lab that stays")
    arguments = parser.parse_args()
    if arguments.next:
        text = NEXT_WITH_SLURM if arguments.batch == batch.SLURM else NEXT
        print(text.format(image=arguments.image), end="")
        return 0
    console = Console(soft_wrap=True)
    with contextlib.suppress(KeyboardInterrupt):
        try:
            tell(console, arguments.image)
        except Failure as failure:
            console.print(f"\nthe demo failed: {failure}", highlight=False, markup=False)
            return 1
        return 0
    return 130


if __name__ == "__main__":
    raise SystemExit(main())
