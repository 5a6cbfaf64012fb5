# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with a real Slurm, behind the methods of the one with Torque: for tests that run on both."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import typing as t
import zlib

from .batch_facts import HELD_BY_USER, SLURM, SLURM_NODES, SLURM_STATES
from .conftest import Ended, Node, Result, Site


class OnSlurm(Site):
    """See `Site`; a job is its number, and the member of an array `33_1`."""

    batch = SLURM

    def vsub(
        self, *arguments: str, stdin: str | bytes | None = None, user: str = "alice", through: t.Sequence[str] = ()
    ) -> Result[str]:
        """See `Site`; the answer is the job's number alone."""
        return self._submit((*through, self.batch.vm), arguments, stdin, user)

    def qsub(self, *arguments: str, stdin: str | bytes | None = None, user: str = "alice") -> Result[str]:
        """See `Site`."""
        return self._submit((self.batch.bare,), arguments, stdin, user)

    def _submit(
        self, command: t.Sequence[str], arguments: t.Sequence[str], stdin: str | bytes | None, user: str
    ) -> Result[str]:  # fmt: skip
        data = stdin.encode() if isinstance(stdin, str) else stdin
        if data is not None and not data.startswith(b"#!"):
            data = self.batch.interpreter.encode() + data
        return self.on("fe", *command, "--parsable", *self.batch.apart, *arguments, user=user, stdin=data)

    def _all(self) -> t.Iterator[dict[str, t.Any]]:
        """Every job that the controller knows."""
        printed = self.root("fe", "squeue -a -t all --json")
        yield from map(plain, json.loads(printed[printed.index("{") :])["jobs"])

    def submit_past_vsub(self, x: str, *arguments: str, stdin: str | bytes) -> str:
        """See `Site`; the request travels in the job's comment."""
        script = stdin.encode() if isinstance(stdin, str) else stdin
        asked = (*ENOUGH, f"--comment={comment_of(x)}", *arguments)
        done = self.qsub(*asked, stdin=SHELL.encode() + self.batch.interpreter.encode() + script)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def queue_again(self, job_id: str) -> None:
        """See `Site`; Slurm has a job wait for two minutes, and an administrator may lift that."""
        super().queue_again(job_id)
        self.wait_state(job_id, "Q")
        self.root("fe", f"scontrol update jobid={job_id} StartTime=now")

    def members(self, array: str) -> list[str]:
        """See `Site`."""
        return [f"{array}_{number}" for number in (1, 2)]

    def full_id(self, job_id: str) -> str:
        """See `Site`; the product has the member of an array by its number."""
        if "_" not in job_id:
            return self.batch.full_id(job_id)
        number = next((str(job["job_id"]) for job in self._all() if job_id in names_of(job)), job_id)
        return self.batch.full_id(number)

    def facts(self, job_id: str) -> dict[str, str]:
        """See `Site`, under the same names."""
        for job in self._all():
            if job_id in names_of(job):
                return facts_of(job)
        return {}

    def end(self, job_id: str) -> Ended:
        """See `Site`; without slurmstepd's word on a signal that came when the script had ended (`trouble.finish`)."""
        ended = super().end(job_id)
        return dataclasses.replace(ended, err=TOO_LATE.sub("", ended.err))

    def all_facts(self) -> dict[str, dict[str, str]]:
        """See `Site`; the members of an array by their numbers."""
        return {str(job["job_id"]): facts_of(job) for job in self._all()}

    def forget(self, job_id: str) -> None:
        """See `Site`; its controller looks each minute for what is older than it keeps."""
        conf = "/etc/slurm/slurm.conf"
        self.root("fe", f"cp -p {conf} {conf}.former && echo MinJobAge=2 >>{conf} && scontrol reconfigure")
        try:
            self.wait_for("the controller to forget the job", lambda: not self.facts(job_id))
        finally:
            self.root("fe", f"mv {conf}.former {conf} && scontrol reconfigure")

    def nodes(self) -> dict[str, Node]:
        """See `Site`, in the same words."""
        found = {}
        for line in self.root("fe", "sinfo -h -N -p batch -o '%N|%T|%E'").splitlines():
            name, state, note = line.split("|", 2)
            # one that does not answer (idle*) is not given up yet
            ours = SLURM_NODES.get(state, "down" if state.startswith("down") else state)
            found[name] = Node(frozenset({ours}), "" if note == "none" else note)
        return found

    def output_place(self, job_id: str) -> tuple[str, str]:
        """See `Site`; every node sees the home, in which it is from the beginning."""
        return "fe", self.facts(job_id)["Output_Path"].partition(":")[2]

    def tidy(self) -> None:
        """See `Site`."""
        self.root("fe", "squeue -h -o %A | xargs -r scancel")
        self.wait_for("the end of all jobs", lambda: set(self.jobs().values()) <= {"C"}, seen=self.jobs)
        for name, node in self.nodes().items():
            if not node.usable:
                self.on("fe", "/bin/sh", "-c", self.batch.clear.format(name))  # one that only completes refuses it


ENOUGH = ("-n2", "--mem=2G")
"""What the default guest and its host need of a node."""
SHELL = "#!/opt/vtorque/bin/vtorque-shell\n"


TOO_LATE = re.compile(r"slurmstepd-\S+ error: _handle_signal_container: failed signal .* No such process\n")


def comment_of(x: str) -> str:
    """Return a request as a job's comment has it, made without the product; garbage as it is."""
    head, _colon, text = x.partition(":")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return x
    return f"{head}:{base64.urlsafe_b64encode(zlib.compress(data)).decode().rstrip('=')}"


def plain(job: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return a job of `squeue --json` as 22.05 writes it, also of 24.11; read without the product."""
    found = {key: plain_number(value) for key, value in job.items()}
    if isinstance(states := found["job_state"], list):
        found["job_state"] = next((one for one in states if one == "COMPLETING"), states[0])
    if isinstance(code := found["exit_code"], dict):
        signal = plain_number(code["signal"]["id"])
        found["exit_code"] = signal or (plain_number(code["return_code"]) or 0) << 8
    if found["array_job_id"] == 0:
        found["array_task_id"] = None
    return found


def plain_number(value: t.Any) -> t.Any:
    """Return the number of 24.11's `{set, infinite, number}`, None: there is none; anything else as it is."""
    if not isinstance(value, dict) or set(value) != {"set", "infinite", "number"}:
        return value
    return value["number"] if value["set"] and not value["infinite"] else None


def names_of(job: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """Return what a job is called: its number, and that of its array with its own there."""
    member = job["array_task_id"]
    return (str(job["job_id"]), *([] if member is None else [f"{job['array_job_id']}_{member}"]))


def letter_of(job: t.Mapping[str, t.Any]) -> str:
    """Return the letter for a job's state."""
    if job["job_state"] == "PENDING" and job["priority"] == 0:
        return "H"
    return SLURM_STATES.get(job["job_state"], "C")


def facts_of(job: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return what Slurm says of a job, under the names that qstat has for it."""
    status, signal = divmod(job["exit_code"], 256)
    # where the user names no file, nothing is said of it
    named = job["standard_output"] or f"{job['current_working_directory']}/slurm-{names_of(job)[-1]}.out"
    out, err = (name.replace("%j", str(job["job_id"])) for name in (named, job["standard_error"] or named))
    return {
        "job_state": letter_of(job),
        "exit_status": str(128 + (signal & 127) if signal else status),
        "start_count": str(job["restart_cnt"] + (1 if job["batch_host"] else 0)),
        "exec_host": f"{job['batch_host'] or ''}/0",
        "Output_Path": f"fe:{out}",
        "Error_Path": f"fe:{err}",
        "Job_Name": job["name"],
        "Hold_Types": "u" if job["state_reason"] in HELD_BY_USER else "n",
        "comment": job["admin_comment"],
        "end": job["job_state"],
        "reason": job["state_reason"],
    }
