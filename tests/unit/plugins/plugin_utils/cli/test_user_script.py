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
from xml.sax.saxutils import escape

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

from .conftest import JOB_ID, JobPlace

PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.user_script"


@dataclasses.dataclass
class Done:
    """What came of it: the job's streams, and the word for root."""

    out: bytes
    err: bytes
    word: dict[str, t.Any]


def run(place: JobPlace, script: bytes, *, joined: bool = False, **changes: t.Any) -> Done:
    """Run a script as root's hook has it run; `joined`: the job's streams are one file."""
    path = place.root / "home/pre.sh"
    path.write_bytes(script)
    place.make_ready(ProcessId.of(os.getpid()))
    order = {
        "key": "vm_prologue", "path": str(path), "digest": hashlib.sha256(script).hexdigest(), "job_id": JOB_ID,
        "directory": "/run/vtorque/jobs/4711.head.1",
        "script": f"{place.root}/torque/mom_priv/jobs/4711.head.1.vm_prologue",
        "variables": {"PBS_JOBID": JOB_ID, "PBS_JOBNAME": "it's"}, "listed": {"PBS_O_QUEUE": "batch"},
        "tools": str(place.root / "tools"), "batch_system": "torque", **changes,
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
            command, input=json.dumps(order).encode(), stdout=subprocess.PIPE, pass_fds=(writing,), timeout=300,
            stderr=subprocess.STDOUT if joined else subprocess.PIPE, env={"PATH": "/usr/bin:/bin"}, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        word = stream.read()
    assert done.returncode == 0, done.stderr
    return Done(done.stdout, done.stderr, json.loads(word))


def qstat(place: JobPlace, listed: str, status: int = 0) -> None:
    """What the batch server tells the job's owner, and nobody else."""
    job = f"<Job_Id>{JOB_ID}</Job_Id><Variable_List>{escape(listed)}</Variable_List>"
    tool = place.root / "tools/qstat"
    tool.parent.mkdir()
    tool.write_text(f"""#!/bin/sh
[ $(id -u) = {place.uid} ] || exit 1
cat <<'end'
<Data><Job>{job}</Job></Data>
end
exit {status}
""")
    tool.chmod(0o755)


def test_script_has_the_variables_that_the_user_passed(job_place: JobPlace) -> None:
    """Byte for byte, where the server can tell them; which not is said."""
    listed = [
        "PBS_O_QUEUE=batch", "PBS_JOBID=forged", "PBS_O_WORKDIR=/else where", r"A=it\'s \"two\"\, <&> $HOME \\ ",
        "B=1\\\n2\r3", "C=\x01", "HOME=/nowhere", "D= ",
    ]  # fmt: skip
    qstat(job_place, ",".join(listed))
    script = b"""#!/usr/bin/python3 -I
import os
names = ("PBS_JOBID", "PBS_O_WORKDIR", "A", "B", "C", "HOME", "D")
print([os.environ.get(name) for name in names])
"""
    done = run(job_place, script, listed={}, variables={"PBS_JOBID": JOB_ID, "PBS_O_WORKDIR": "/else"})
    assert done.err == b"vtorque: vm_prologue runs without C: their values hold what the batch server cannot tell\n"
    assert done.out.decode() == repr([
        JOB_ID, "/else where", "it's \"two\", <&> $HOME \\ ", "1\n2\r3", None,
        str(job_place.root / "home"), " ",
    ]) + "\n"  # fmt: skip


def test_server_that_is_silent_keeps_the_prologue_from_running(job_place: JobPlace) -> None:
    """And is nobody's fault that is asked for it."""
    qstat(job_place, "A=1", status=111)
    done = run(job_place, b"#!/bin/sh\necho RAN\n", listed={})
    assert (done.out, done.word["lost"]) == (b"", True)
    assert done.word["error"]["why"] == "the batch server cannot be reached"


@pytest.mark.parametrize(("listed", "status"), [("A=1", 111), ("", 0)], ids=["silent", "closed"])
def test_epilogue_runs_without_what_the_server_does_not_tell(job_place: JobPlace, listed: str, status: int) -> None:
    qstat(job_place, listed, status)
    done = run(job_place, b"#!/bin/sh\necho RAN $PBS_JOBID $A\n", listed={}, key="vm_epilogue")
    assert done.out == f"RAN {JOB_ID}\n".encode()
    assert done.err.startswith(b"vtorque: vm_epilogue runs without the job's own variables (-v, -V): ")
    assert done.word["number"] == 0


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


def test_streams_that_are_one_file_keep_their_order(job_place: JobPlace) -> None:
    """`qsub -j` counts for the user's scripts around the job too."""
    done = run(job_place, b"for n in $(seq 200); do echo out $n; echo err $n >&2; done\n", joined=True)
    assert done.out.decode().splitlines() == [f"{name} {n}" for n in range(1, 201) for name in ("out", "err")]


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
    ("changes", "message"),
    [
        ({"digest": "0f" * 32}, "was changed after the job was submitted"),
        ({"path": "/not there"}, "cannot be read: No such file or directory"),
        ({"path": "/etc/shadow"}, "cannot be read: Permission denied"),
        ({"path": "/dev/null"}, "is not a file"),
    ],
)
def test_file_that_is_not_what_was_submitted_is_not_run(
    job_place: JobPlace, changes: dict[str, str], message: str
) -> None:
    done = run(job_place, b"#!/bin/sh\necho RAN\n", **changes)
    assert done.out == b""
    assert done.word["error"]["fault"] == "user"
    assert message in done.word["error"]["why"]
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
