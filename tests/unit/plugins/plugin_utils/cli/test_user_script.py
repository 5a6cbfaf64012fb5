# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A script of the user's in a guest, run by the process that has become the user."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.records import ProcessId

from .conftest import JOB_ID, JobPlace

PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.user_script"


@dataclasses.dataclass
class Done:
    """What came of it: the job's streams, and the word for root."""

    out: bytes
    err: bytes
    word: dict[str, t.Any]


def run(place: JobPlace, script: bytes, **changes: t.Any) -> Done:
    """Run a script as root's hook has it run."""
    path = place.root / "home/pre.sh"
    path.write_bytes(script)
    place.make_ready(ProcessId.of(os.getpid()))
    order = {
        "key": "vm_prologue", "path": str(path), "digest": hashlib.sha256(script).hexdigest(), "job_id": JOB_ID,
        "directory": "/run/vtorque/jobs/4711.head.1", "torque_home": str(place.root / "torque"),
        "variables": {"PBS_JOBID": JOB_ID, "PBS_JOBNAME": "it's"}, **changes,
    }  # fmt: skip
    jobs = place.root / "torque/mom_priv/jobs"
    jobs.mkdir(parents=True, exist_ok=True)
    os.chown(jobs, place.uid, place.uid)
    reading, writing = os.pipe()
    command = [
        "nsenter", f"--mount=/proc/{place.node.process.pid}/ns/mnt", "setpriv", f"--reuid={place.uid}",
        f"--regid={place.uid}", "--clear-groups", "--inh-caps=-all", str(place.prefix / "venv/bin/python"), "-I", "-m",
        PROGRAM, "1", "2", str(writing),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, input=json.dumps(order).encode(), capture_output=True, pass_fds=(writing,), timeout=300,
            env={"PATH": "/usr/bin:/bin"}, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        word = stream.read()
    assert done.returncode == 0, done.stderr
    return Done(done.stdout, done.stderr, json.loads(word))


def test_script_runs_in_the_guest_with_the_jobs_environment(job_place: JobPlace) -> None:
    script = b"""#!/bin/sh
pwd; umask; echo $PBS_JOBID $PBS_JOBNAME $PBS_NP $DISTRO; id -u; echo ${0##*/}; wc -c; echo no >&2
"""
    done = run(job_place, script)
    name = b"4711.head.1.vm_prologue"
    lines = [str(job_place.root / "home").encode(), b"0022", b"4711.head it's 3 SLG", b"%d" % job_place.uid, name, b"0"]
    assert [line.strip() for line in done.out.splitlines()] == lines
    assert done.err == b"no\n"
    assert (done.word["kind"], done.word["number"]) == ("exit", 0)


@pytest.mark.parametrize(
    ("end", "kind", "number"),
    [(b"exit 3", "exit", 3), (b"exit 255", "exit", 255), (b"kill -9 $PPID; sleep 9", "signal", 9)],
)
def test_end_and_last_words_are_told(job_place: JobPlace, end: bytes, kind: str, number: int) -> None:
    done = run(job_place, b"#!/bin/sh\nseq 1 3000; echo last >&2; " + end + b"\n")
    assert (done.word["kind"], done.word["number"]) == (kind, number)
    assert "2999\n3000\n" in done.word["tail"]
    assert "last\n" in done.word["tail"]
    assert len(done.word["tail"]) <= 2000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"digest": "0f" * 32}, "was changed after the job was submitted"),
        ({"path": "/not there"}, "cannot be read: No such file or directory"),
        ({"path": "/etc/shadow"}, "cannot be read: Permission denied"),
        ({"path": "/dev/null"}, "is not a file"),
    ],
)
def test_file_that_is_not_what_was_submitted_is_not_run(
    job_place: JobPlace, changes: dict[str, str], words: str
) -> None:
    done = run(job_place, b"#!/bin/sh\necho RAN\n", **changes)
    assert done.out == b""
    assert done.word["error"]["fault"] == "user"
    assert words in done.word["error"]["why"]
    assert "lost" not in done.word


def test_guest_that_is_lost_is_told_apart(job_place: JobPlace) -> None:
    job_place.make_ready(ProcessId.of(os.getpid()))
    job_place.lose(heard=False)
    done = run(job_place, b"#!/bin/sh\necho RAN\n")
    assert (done.out, done.word["lost"]) == (b"", True)
    assert "was lost" in done.word["error"]["what"]


def test_guest_that_does_not_answer(job_place: JobPlace) -> None:
    job_place.port = 1
    done = run(job_place, b"#!/bin/sh\necho RAN\n")
    assert "no connection to guest" in done.word["error"]["why"]
