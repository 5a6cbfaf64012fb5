# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with a real Slurm, behind the methods of the one with Torque: for tests that run on both."""

from __future__ import annotations

import json
import typing as t

from .batch_facts import HELD_BY_USER, SLURM, SLURM_NODES, SLURM_STATES
from .conftest import Node, Result, Site


class OnSlurm(Site):
    """See `Site`; a job is its number, the member of an array, too."""

    batch = SLURM

    def vsub(self, *arguments: str, stdin: str | bytes | None = None, user: str = "alice") -> Result[str]:
        """See `Site`; the answer is the job's number alone."""
        return self._submit(self.batch.vm, arguments, stdin, user)

    def qsub(self, *arguments: str, stdin: str | bytes | None = None, user: str = "alice") -> Result[str]:
        """See `Site`."""
        return self._submit(self.batch.bare, arguments, stdin, user)

    def _submit(
        self, command: str, arguments: t.Sequence[str], stdin: str | bytes | None, user: str
    ) -> Result[str]:  # fmt: skip
        data = stdin.encode() if isinstance(stdin, str) else stdin
        if data is not None and not data.startswith(b"#!"):
            data = self.batch.interpreter.encode() + data
        return self.on("fe", command, "--parsable", *self.batch.apart, *arguments, user=user, stdin=data)

    def _all(self) -> t.Iterator[dict[str, t.Any]]:
        """Every job that the controller knows."""
        shown = self.root("fe", "squeue --json")
        yield from json.loads(shown[shown.index("{") :])["jobs"]

    def facts(self, job_id: str) -> dict[str, str]:
        """See `Site`, under the same names."""
        for job in self._all():
            if str(job["job_id"]) == job_id:
                return facts_of(job)
        return {}

    def jobs(self) -> dict[str, str]:
        """See `Site`."""
        return {str(job["job_id"]): letter_of(job) for job in self._all()}

    def nodes(self) -> dict[str, Node]:
        """See `Site`, in the same words."""
        found = {}
        for line in self.root("fe", "sinfo -h -N -p batch -o '%N|%T|%E'").splitlines():
            name, state, note = line.split("|", 2)
            ours = SLURM_NODES.get(state, "down" if state.endswith("*") else state)
            found[name] = Node(frozenset({ours}), "" if note == "none" else note)
        return found

    def output_so_far(self, job_id: str) -> str:
        """See `Site`."""
        return self.read(self.facts(job_id)["Output_Path"].partition(":")[2])

    def tidy(self) -> None:
        """See `Site`."""
        self.root("fe", "squeue -h -o %A | xargs -r scancel")
        self.wait_for("the end of all jobs", lambda: set(self.jobs().values()) <= {"C"}, seen=self.jobs)
        for name, node in self.nodes().items():
            if not node.usable:
                self.root("fe", self.batch.clear.format(name))


def letter_of(job: t.Mapping[str, t.Any]) -> str:
    """Return the letter for a job's state."""
    if job["job_state"] == "PENDING" and job["priority"] == 0:
        return "H"
    return SLURM_STATES.get(job["job_state"], "C")


def facts_of(job: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return what Slurm says of a job, under the names that qstat has for it."""
    status, signal = divmod(job["exit_code"], 256)
    out, err = (job[f"standard_{name}"].replace("%j", str(job["job_id"])) for name in ("output", "error"))
    return {
        "job_state": letter_of(job),
        "exit_status": str(128 + (signal & 127) if signal else status),
        "start_count": str(job["restart_cnt"] + (1 if job["batch_host"] else 0)),
        "exec_host": f"{job['batch_host']}/0",
        "Output_Path": f"fe:{out}",
        "Error_Path": f"fe:{err}",
        "Job_Name": job["name"],
        "Hold_Types": "u" if job["state_reason"] in HELD_BY_USER else "n",
        "comment": job["admin_comment"],
        "end": job["job_state"],
        "reason": job["state_reason"],
    }
