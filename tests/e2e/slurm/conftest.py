# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with a real Slurm, beside the one of the other tests, as its users and its administrator see it."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pathlib
import typing as t
import zlib

import pytest

from ..conftest import DEFAULT, Result, Site, look_afterwards

INTERPRETER = "#!/opt/vtorque/bin/vtorque-shell\n"
OVER = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"})
ENOUGH = ("-n2", "--mem=2G")
"""What the default guest and its host need of a node."""
HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Ended:
    """A job that is over.

    Attributes:
        state: Slurm's word for its end.
        code: status and signal, as Slurm shows them.
        out: what its owner finds in slurm-N.out; None: there is no such file.
        nodes: where it ran, as Slurm lists them.
    """

    number: str
    state: str
    code: str
    out: str | None
    nodes: str


class SlurmSite(Site):
    """See `Site`."""

    def sbatch(self, *arguments: str, script: str, user: str = "alice") -> str:
        """Submit a script from standard input; it must be taken.  Returns its number."""
        done = self.on("fe", "sbatch", "--parsable", *arguments, user=user, stdin=script)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit_vm(self, script: str, *arguments: str, vm: t.Mapping[str, str] | None = None) -> str:
        """Submit a VM job by what `vsbatch` makes of it."""
        return self.sbatch(*ENOUGH, f"--comment={comment(vm or {})}", *arguments, script=INTERPRETER + script)

    def facts(self, job_id: str) -> dict[str, str]:
        """What Slurm says of a job without blanks in its name; {} for an unknown job."""
        done = self.on("fe", "scontrol", "-o", "show", "job", job_id)
        return dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)

    def wait_for_state(self, number: str, *states: str) -> dict[str, str]:
        """Wait until the job is in one of these states."""
        return t.cast(
            "dict[str, str]",
            self.wait_for(
                f"job {number} in {states}",
                lambda: facts if (facts := self.facts(number)).get("JobState") in states else None,
                seen=lambda: self.facts(number),
            ),
        )

    def ended(self, number: str) -> Ended:
        """Wait for the end of a job."""
        facts = self.wait_for_state(number, *OVER)
        found = self.on("fe", "cat", facts["StdOut"])
        out = found.stdout if found.returncode == 0 else None
        return Ended(number, facts["JobState"], facts["ExitCode"], out, facts["NodeList"])

    def vm(self, script: str, *arguments: str, vm: t.Mapping[str, str] | None = None) -> Ended:
        """A VM job from its submission to its end."""
        return self.ended(self.submit_vm(script, *arguments, vm=vm))

    def bare(self, script: str) -> Ended:
        """The same job on the node itself."""
        return self.ended(self.sbatch(script=script))

    def reason(self, node: str) -> str:
        """Why a node takes no jobs, "" when it does."""
        return self.root("fe", f"sinfo -h -n {node} -N -p batch -o %E").strip().removeprefix("none")

    def jobs(self) -> dict[str, str]:
        """All jobs that wait or are at work, with their states."""
        return dict(line.split() for line in self.root("fe", "squeue -h -t all -o '%A %T'").splitlines())

    def left(self) -> list[str]:
        """What there still is of any job, and nodes that take none."""
        things = list(self.left_on_nodes())
        things += [f"job {number} in state {state}" for number, state in self.jobs().items() if state not in OVER]
        things += [f"node {node}: {reason}" for node in ("cn1", "cn2") if (reason := self.reason(node))]
        return things

    def tidy(self) -> None:
        """End what a test has left, for the next one."""
        self.root("fe", "squeue -h -o %A | xargs -r scancel; sleep 1")
        for node in ("cn1", "cn2"):
            if self.reason(node):
                self.root("fe", f"scontrol update nodename={node} state=resume")


def comment(vm: t.Mapping[str, str]) -> str:
    """A request as a job's comment, made without the product."""
    wire = json.dumps({"v": 1, "k": dict(vm), "s": ""}).encode()
    return "vtorque:" + base64.urlsafe_b64encode(zlib.compress(wire)).decode().rstrip("=")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, as those of the others that run on a lab with Slurm."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slurm)


@pytest.fixture(scope="session")
def site() -> t.Iterator[SlurmSite]:
    """The lab, up; it ends with the tests unless it was up before them."""
    here = SlurmSite(f"{os.environ.get('VTORQUE_LAB') or DEFAULT}-slurm")
    was_up = here.run("status").returncode == 0
    if not was_up:
        here.up("--batch", "slurm", by_roles=False)
    yield here
    if not was_up and not os.environ.get("VTORQUE_KEEP_LAB"):
        here.run("down")


@pytest.fixture(autouse=True)
def leaves_nothing(site: SlurmSite) -> t.Iterator[None]:
    """Every test ends with a look at what is left of its jobs anywhere, and finds nothing."""
    yield
    look_afterwards(site)


__all__ = ["ENOUGH", "INTERPRETER", "Ended", "Result", "SlurmSite", "comment"]
