# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab for the measurements alone, and the programs that run inside its nodes."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import typing as t

from lab import batch
from lab.cluster import lifecycle, on_nodes
from lab.system.places import VENV
from lab.system.state import DEFAULT, LabError, State

INSIDE = pathlib.Path(__file__).resolve().parent / "inside"
USER = "alice"


class Trouble(RuntimeError):
    """Nothing can be measured; the text is for the person who typed it."""


class Program:
    """One of `inside/`, at work on a node: it says lines of JSON, the first when it is ready to see."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process = process
        self._name = name

    def line(self) -> t.Any:
        """Its next line.

        Raises:
            Trouble: it ended instead; says its last words.
        """
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            _out, complaint = self._process.communicate()
            raise Trouble(f"{self._name} ended with status {self._process.returncode}: {complaint[-2000:].strip()}")
        return json.loads(text)

    def finish(self) -> None:
        """Tell it, by the end of its input, that there is nothing more to see."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        """See to it that it is gone."""
        if self._process.poll() is None:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()


class Site:
    """The lab, as a context manager: up, and down again however it ends.

    Args:
        pool: directory of images.
        nodes: its compute nodes.
        system: its batch system.
    """

    def __init__(
        self, pool: pathlib.Path, nodes: t.Sequence[str] = ("cn1",), system: str = batch.TORQUE
    ) -> None:  # fmt: skip
        # beside a lab that may be up for other things
        directory = pathlib.Path(os.environ.get("VTORQUE_LAB") or DEFAULT)
        which = "" if system == batch.TORQUE else f"-{system}"
        self._state = State(directory.with_name(f"{directory.name}-bench{which}"))
        self._system = system
        self._pool = pool
        self._nodes = tuple(nodes)

    def __enter__(self) -> Site:
        try:
            lifecycle.up(self._state, lifecycle.Plan(("fe", *self._nodes), self._pool.absolute(), batch=self._system))
        except LabError as error:
            raise Trouble(str(error)) from error
        return self

    def __exit__(self, *_error: object) -> None:
        # whoever interrupts once more only waits for the same
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        lifecycle.down(self._state)

    def line(self, node: str, arguments: t.Sequence[str], user: str) -> list[str]:
        """The command line that runs words on a node as a user."""
        return on_nodes.command(self._state.running(), node, arguments, user=user)

    @contextlib.contextmanager
    def program(self, node: str, name: str, *given: t.Any, user: str = "root") -> t.Iterator[Program]:
        """Run a program of `inside/` on a node.

        Args:
            name: of its file, without suffix.
            given: its arguments, handed on as JSON.
        """
        source = (INSIDE / f"{name}.py").read_text(encoding="utf-8")
        arguments = [str(VENV / "bin/python"), "-I", "-c", source, *map(json.dumps, given)]
        process = subprocess.Popen(
            self.line(node, arguments, user),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        program = Program(process, f"{name} on {node}")
        try:
            yield program
        finally:
            program.end()

    def root_of(self, node: str) -> pathlib.Path:
        """Return where this machine sees the files of a node."""
        return pathlib.Path(f"/proc/{self._state.running().init(node).pid}/root")

    def ask(self, node: str, name: str, *given: t.Any, user: str = "root") -> t.Any:
        """Run a program of `inside/` that says one thing."""
        with self.program(node, name, *given, user=user) as program:
            return program.line()
