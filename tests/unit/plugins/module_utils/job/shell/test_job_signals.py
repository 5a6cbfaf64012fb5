# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a batch system sends to all processes of a job, beside what it sends to its shell alone."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell import job_signals

SHELL = """
import os, select, sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell import job_signals
witness = job_signals.Witness()
with job_signals.caught() as own:
    print(f"listens {witness._pid}", flush=True)
    while True:
        for fd in select.select([own, witness.fileno(), 0], [], [])[0]:
            if not fd:
                witness.close()
                sys.exit(0)
            numbers = os.read(own, 99) if fd == own else witness.read()
            for number in numbers:
                print("script" if fd == own else "others", number, flush=True)
"""


@contextlib.contextmanager
def shell() -> t.Iterator[subprocess.Popen[str]]:
    """A process with a witness, in a group of its own; the line in which it tells its witness is read."""
    with subprocess.Popen(
        [sys.executable, "-c", SHELL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_signal_for_all_processes_is_heard_twice_and_one_for_the_shell_once() -> None:
    with shell() as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline().startswith("listens")
        os.kill(process.pid, signal.SIGUSR1)
        assert process.stdout.readline() == f"script {int(signal.SIGUSR1)}\n"
        os.killpg(process.pid, signal.SIGTERM)
        both = {process.stdout.readline(), process.stdout.readline()}
        assert both == {f"script {int(signal.SIGTERM)}\n", f"others {int(signal.SIGTERM)}\n"}
        process.stdin.close()
        assert process.wait() == 0
        assert process.stdout.read() == ""


def test_witness_ends_with_the_shell_and_holds_none_of_its_streams() -> None:
    with shell() as process:
        assert process.stdout is not None
        witness = int(process.stdout.readline().split()[1])
        gone = os.pidfd_open(witness)
        process.kill()
        assert process.stdout.read() == "", "nobody else has it open"
        assert select.select([gone], [], [], 60)[0]
        os.close(gone)


def test_suspension_is_no_signal_for_the_others() -> None:
    witness = job_signals.Witness()
    with contextlib.closing(witness):
        for number in (signal.SIGTSTP, signal.SIGCONT):
            os.kill(witness._pid, number)
        os.kill(witness._pid, signal.SIGUSR2)
        heard = b""
        while not heard:
            assert select.select([witness.fileno()], [], [], 60)[0]
            heard += witness.read() or b""
        assert heard == bytes([signal.SIGUSR2])


def test_signal_that_comes_while_others_are_not_caught_yet_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel that comes when the job's shell begins reaches the guest."""
    install = signal.signal
    sent = []

    def send_at_once(number: int, action: t.Any) -> t.Any:
        former = install(number, action)
        if number == signal.SIGUSR1 and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)
        return former

    monkeypatch.setattr(signal, "signal", send_at_once)
    with job_signals.caught() as wakeup:
        assert os.read(wakeup, 16) == bytes([signal.SIGUSR1])
