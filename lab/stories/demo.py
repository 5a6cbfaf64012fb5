# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The story that `make demo` tells on a lab that is up: what a user of a site sees."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import typing as t

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .. import batch
from . import fronts, session
from .fronts import Front, Seen

JOB_TIMEOUT_S = 600
"""Under software emulation, on a machine that may be busy: generous."""
LOOK_S = 1.0
"""Between two looks at a job: each starts two interpreters, on the processors that the guest is emulated on."""


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


def ask(*command: str) -> str:
    """Return what a command on the front end writes."""
    return on("fe", *command).stdout


def find_job(front: Front, job_id: str) -> Seen:
    """Return what the batch system says of a job."""
    seen = front.find(ask, job_id)
    if seen is None:
        raise Failure(f"{job_id} is not known to the batch system")
    return seen


def follow(front: Front, job_id: str, console: Console) -> Seen:
    """Wait for the end of a job, showing its state on a terminal.

    Raises:
        Failure: it is held, or did not end in time; says why, and what the job has written.
    """
    end = time.monotonic() + JOB_TIMEOUT_S
    pause = threading.Event()
    columns = (TextColumn("    "), SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(job_id)
        while not (seen := find_job(front, job_id)).exit_status:
            progress.update(task, description=f"{job_id}: {seen.state}")
            if seen.held:
                raise Failure(f"{job_id} is held: {seen.held}{format_output(seen.files)}")
            if time.monotonic() > end:
                output = format_output(seen.files)
                raise Failure(f"{job_id} ({seen.state}) did not end within {JOB_TIMEOUT_S} s{output}")
            pause.wait(LOOK_S)
    return seen


def format_output(files: t.Iterable[str]) -> str:
    """Return the content of a job's files, a line each with the file's name before it; "" where they have none."""
    lines = [(path.rpartition("/")[2], line) for path in files for line in ask("cat", path).splitlines()]
    return "".join(f"\n  {name:<14} {line}" for name, line in lines)


def tell_job(console: Console, front: Front, title: str, line: str) -> tuple[str, str]:
    """Submit by a line of shell, follow, show; returns what the job wrote and its exit status."""
    console.print(f"\n{title}\n  alice@fe $ {line}", highlight=False, markup=False)
    submitted = on("fe", "/bin/sh", "-c", line, user="alice")
    if submitted.returncode:
        raise Failure(submitted.stderr)
    console.print(f"  {submitted.stdout.strip()}", highlight=False, markup=False)
    begin = time.monotonic()
    seen = follow(front, submitted.stdout.split()[-1], console)
    written = format_output(seen.files)
    for printed in written.splitlines()[1:]:
        console.print(f"  {printed}", highlight=False, markup=False)
    took = time.monotonic() - begin
    console.print(f"    exit status {seen.exit_status}, after {took:.0f} s", highlight=False, markup=False)
    return written, seen.exit_status


WATCH = 'until [ -s "$1" ]; do sleep 0.2; done; stat -c %.3Y "$1"'
"""When the first line of a job was written: the file has no other."""
FIRST_LINE_S = 5
CONFIGURE = 'sed -i "/^warm_start:/d" "$1" && echo "warm_start: true" >>"$1"'


def tell_warm(console: Console, front: Front, title: str, image: str, flags: str) -> None:
    """A guest that starts from a template of its node: what its record says of that, and what was measured."""
    console.print(f"\n{title}\n  root@cn1 # vmgr image warm make {image}", highlight=False, markup=False)
    for node in ("fe", "cn1", "cn2"):
        on(node, "/bin/sh", "-c", CONFIGURE, "sh", "/etc/vtorque/vtorque.yml")
    begin = time.monotonic()
    made = on("cn1", "vmgr", "image", "warm", "make", image)
    if made.returncode:
        # the tiny guest can be warm where the machine that made it has a compiler
        console.print(f"    warm: no, because {made.stderr.strip()}", highlight=False, markup=False)
        return
    console.print(f"    a booted guest is saved, after {time.monotonic() - begin:.0f} s; from now on", highlight=False)
    # what begins early is known to be wanted from the first job on that has read the changed configuration
    for heading in ("the first job since the change", "the second job"):
        console.print(f"  {heading}", highlight=False, markup=False)
        _tell_start(console, front, f"{front.submit} {front.one_node}{flags} where.sh")


def _tell_start(console: Console, front: Front, line: str) -> None:
    """Submit a job on cn1, and show how its guest came up and when its first line came.

    Raises:
        Failure: it did not run.
    """
    console.print(f"  alice@fe $ {line}", highlight=False, markup=False)
    submitted = on("fe", "/bin/sh", "-c", line, user="alice")
    if submitted.returncode:
        raise Failure(submitted.stderr)
    job_id = submitted.stdout.split()[-1]
    watch = [
        sys.executable,
        "-m",
        "lab",
        "on",
        "cn1",
        "--",
        "/bin/sh",
        "-c",
        WATCH,
        "sh",
        front.written.format(job=job_id),
    ]
    with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as watching:
        seen = follow(front, job_id, console)
        try:
            written = watching.communicate(timeout=FIRST_LINE_S)[0]
        except subprocess.TimeoutExpired:
            watching.kill()
            written = ""
    if seen.exit_status != "0":
        raise Failure(f"the job ended with status {seen.exit_status}")
    record = json.loads(on("cn1", "vmgr", "job", "show", job_id, "--json").stdout)
    for found in warm_lines(record, written.strip()):
        console.print(f"    {found}", highlight=False, markup=False)


def warm_lines(record: dict[str, t.Any], written: str) -> list[str]:
    """Return what a job's record says of the start of its guests, and when its first line came.

    Args:
        record: of the job.
        written: when its first line was written, in seconds since the epoch; "" where nobody saw it.
    """
    lines = [f"warm start of {guest['name']}: {guest.get('warm') or 'no'}" for guest in record["guests"]]
    began = record["phases"]["prologue"]["began"]
    came = f"{float(written) - began:.1f} s after the start of the job" if written else "not seen"
    return [*lines, f"the job's first line: {came} (load of this machine: {os.getloadavg()[0]:.1f})"]


def tell_session(console: Console, front: Front, title: str, line: str) -> None:
    """Open a terminal in a guest, type into it, and show what it showed."""
    console.print(f"\n{title}\n  alice@fe $ {line}", highlight=False, markup=False)
    status, text = session.type_line(
        [sys.executable, "-m", "lab", "on", "fe", "--user", "alice", "--", "/bin/sh", "-c", line],
        front.ready, "uname -sr; exit 5", JOB_TIMEOUT_S,
    )  # fmt: skip
    for printed in text.splitlines():
        console.print(f"    {printed}", highlight=False, markup=False)
    job = re.search(front.session, text)
    if job is None:
        raise Failure("the terminal names no job")
    seen = follow(front, job.group(1), console)
    ended = str(status) if status else seen.exit_status  # qsub's own status says nothing of the session
    console.print(f"    exit status {ended}", highlight=False, markup=False)
    if "Linux " not in text or ended != "5":
        raise Failure("the terminal in the virtual machine showed nothing, or its status is lost")


def can_open(front: Front) -> bool:
    """Return whether the front end has what gives a terminal in a virtual machine."""
    command = front.interactive.replace("{", " ").split()[0]
    return on("fe", "/bin/sh", "-c", 'command -v "$1"', "sh", command).returncode == 0


def tell_pool(console: Console, image: str) -> None:
    """What a user may choose from: the image was published as a site's are, and nothing is copied for a job."""
    console.print("\nthe images of the site\n  alice@fe $ vmgr image list", highlight=False, markup=False)
    listed = on("fe", "vmgr", "image", "list", user="alice")
    for line in (listed.stdout + listed.stderr).splitlines():
        console.print(f"    {line}", highlight=False, markup=False)
    if listed.returncode or not any(line.startswith(f"{image}@") for line in listed.stdout.splitlines()):
        raise Failure(f"the pool has no {image}")


SCRIPT = """#!/bin/sh
echo "this is $(hostname), $(uname -s) $(uname -r), user $(id -un) ($(id -u))"
"""
EACH = """#!/bin/sh
for host in $(sort -u "${hosts}"); do ssh "$host" 'echo "here is $(hostname)"'; done
"""


def tell(console: Console, image: str, system: str) -> None:
    """The whole story; a part that does not go as told is a failure."""
    front = fronts.FRONTS[system]
    here = on("cn1", "uname", "-r").stdout.strip()
    console.print(f"\nthe nodes run Linux {here}; nothing of a job is on them", highlight=False)
    for name, text in (("where.sh", SCRIPT), ("each.sh", EACH.replace("{hosts}", front.hosts))):
        on("fe", "sh", "-c", 'cat >"$1"', "sh", f"/home/alice/{name}", user="alice", stdin=text)
    tell_pool(console, image)
    flags = f" -vm img={image}" if image != "tiny" else ""
    number = itertools.count(1)

    text, status = tell_job(console, front, f"{next(number)}. a batch job", f"{front.submit}{flags} where.sh")
    if status != "0" or "this is vcn" not in text or (image == "tiny" and "user alice (1001)" not in text):
        raise Failure("the job's output does not come from a guest")
    line = front.piped.format(command=front.submit, flags=flags)
    text, status = tell_job(console, front, f"{next(number)}. a piped job", line)
    if status != "0" or "hello from vcn" not in text:
        raise Failure("the piped job's output does not come from a guest")
    line = front.failing.format(command=front.submit, flags=flags)
    text, status = tell_job(console, front, f"{next(number)}. a failing job", line)
    if status != "37" or "going wrong" not in text:
        raise Failure("the failing job's status or words are lost")
    line = f"{front.submit} {front.two_nodes}{flags} each.sh"
    text, status = tell_job(console, front, f"{next(number)}. a job over two nodes", line)
    if status != "0" or not all(f"here is v{node}-" in text for node in ("cn1", "cn2")):
        raise Failure("the job has no guest on each node, or they do not reach each other")
    if can_open(front):
        tell_session(console, front, f"{next(number)}. a terminal in a guest", front.interactive.format(flags=flags))
    tell_warm(console, front, f"{next(number)}. a guest that starts from a template, without a boot", image, flags)

    line = f"{front.submit} -vm img=tinny,vcpu=2 where.sh"
    console.print(f"\n{next(number)}. a wrong request\n  alice@fe $ {line}", highlight=False, markup=False)
    wrong = on("fe", *line.split(), user="alice")
    for printed in wrong.stderr.splitlines():
        console.print(f"  {printed}", highlight=False, markup=False)
    if wrong.returncode != 2:
        raise Failure("a wrong request was not refused")

    left = subprocess.run([sys.executable, "-m", "lab", "left"], capture_output=True, text=True, check=False)
    title = f"{next(number)}. what is left of the jobs on all nodes"
    console.print(f"\n{title}\n  {left.stdout.strip() or 'nothing'}", highlight=False)
    if left.returncode:
        raise Failure("something of the jobs is left")
    console.print(
        "\nNext: make lab (the cluster stays, for you to try) · make test (every test) · README.md (what a site does)",
        highlight=False,
    )


def play(story: t.Callable[[Console], None]) -> int:
    """Tell a story; returns the exit status: 1 when it did not go as told, 130 when somebody ended it."""
    console = Console(soft_wrap=True)
    with contextlib.suppress(KeyboardInterrupt):
        try:
            story(console)
        except Failure as failure:
            console.print(f"\nthe demo failed: {failure}", highlight=False, markup=False)
            return 1
        return 0
    return 130


def main() -> int:
    """Tell the story; exit status 1 when it did not go as told."""
    parser = argparse.ArgumentParser(prog="python -m lab.stories.demo", description=__doc__)
    parser.add_argument("--image", default="tiny", help="image of the guests (default: %(default)s)")
    parser.add_argument(
        "--batch", default=batch.TORQUE, choices=tuple(batch.SYSTEMS), help="the lab's batch system (%(default)s)"
    )
    parser.add_argument("--next", action="store_true", help="only what to type next on a lab that stays")
    arguments = parser.parse_args()
    if arguments.next:
        is_interactive = can_open(fronts.FRONTS[arguments.batch])
        print(fronts.next_lines(arguments.batch, arguments.image, is_interactive=is_interactive), end="")
        return 0
    return play(lambda console: tell(console, arguments.image, arguments.batch))


if __name__ == "__main__":
    raise SystemExit(main())
