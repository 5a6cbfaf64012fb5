# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the contract's tests need of a batch system: recorded calls, a stand-in for its commands, traces of jobs."""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import Role
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

if t.TYPE_CHECKING:
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request

FIXTURES = pathlib.Path(__file__).resolve().parents[6] / "fixtures"


class Material(t.Protocol):
    """A batch system's recorded material, on a node of its own.

    Attributes:
        system: its name in the registry.
        policy: of a site that has it, with all its files in a directory of the test.
        job_id: a job that ran, in the product's form; it is in the calls and in the server's answers.
        display_id: the same as the system's users write it.
        user: as whom it ran.
        nodes: its nodes, the first one before the others.
        node: a node that the server knows.
        node_file: what the system writes for a job with two slots on each of `nodes`; "": it writes nothing.
        environment: of the job's shell, as recorded.
        vm_line: the beginning of a script's line that asks for a virtual machine.
        exit_status: of the job, in the call of its end.
    """

    system: str
    policy: Policy
    job_id: str
    display_id: str
    user: str
    nodes: tuple[str, ...]
    node: str
    node_file: str
    environment: dict[bytes, bytes]
    vm_line: str
    exit_status: int

    def call(self, role: Role, *, job_id: str = "", user: str = "") -> tuple[list[str], dict[str, str]]:
        """Return arguments and environment of the hooks' program for a recorded call.

        Args:
            role: which.
            job_id: stands in the place of the recorded id, in the system's own form.
            user: the same for the user.
        """

    def request_in(self, arguments: t.Sequence[str]) -> Request | None:
        """Return the request among the arguments of the command that takes jobs."""

    def server(self, state: str) -> None:
        """Let the commands answer as a server that is `well`, `gone`, `silent`, or one that is `deaf` to orders."""

    def write_note(self, note: str) -> None:
        """Let an administrator write a note about `node`."""

    def read_orders(self) -> list[str]:
        """Return each order that the server got, a line each."""

    def read_questions(self) -> list[str]:
        """Return each question about jobs that the server got, a line each."""

    def offer_script(self, content: bytes) -> list[str]:
        """Let this process be started as the shell of a batch job with this script, and return its arguments."""

    def leave_traces(self) -> None:
        """Leave on this node what the system has of `job_id` while it runs."""

    def hide_traces(self) -> None:
        """Make what the system has on this node unreadable."""


class FakeServer:
    """Programs that answer as a batch system's commands were recorded to, and what tests do to them.

    Args:
        place: an empty directory; the programs are in its `bin`.
        texts: of files in it, by name.
        programs: texts of shell, by name; `{place}` and `{fixtures}` stand for directories.
    """

    def __init__(self, place: pathlib.Path, texts: t.Mapping[str, str], programs: t.Mapping[str, str]) -> None:
        self.place = place
        (place / "bin").mkdir()
        for name, text in {"note": "", "orders": "", "asked": "", "state": "well", **texts}.items():
            (place / name).write_text(text)
        for name, text in programs.items():
            text = text.replace("{place}", str(place)).replace("{fixtures}", str(FIXTURES))
            (place / "bin" / name).write_text("#!/bin/sh\n" + text)
            (place / "bin" / name).chmod(0o755)

    def server(self, state: str) -> None:
        """See `Material.server`."""
        (self.place / "state").write_text(state)

    def write_note(self, note: str) -> None:
        """See `Material.write_note`."""
        (self.place / "note").write_text(note)

    def read_orders(self) -> list[str]:
        """See `Material.read_orders`."""
        return (self.place / "orders").read_text().splitlines()

    def read_questions(self) -> list[str]:
        """See `Material.read_questions`."""
        return (self.place / "asked").read_text().splitlines()
