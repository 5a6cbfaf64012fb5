# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arrays, and jobs on a terminal: torque.md, "The job shell", "Files", "Further facts"."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import xml.etree.ElementTree as ET

import pytest

from lab.torque import trial


class TestArrays:
    def test_members_have_the_recorded_names(self, system: trial.Trial) -> None:
        parent = system.submit("-N", "arr", "-t", "1-2", script="echo $PBS_ARRAYID $PBS_JOBID; readlink -f $0\n")
        seq = parent.partition("[")[0]
        assert parent == f"{seq}[].fe"
        shown = system.wait(f"{seq}[2].fe")
        system.wait(parent)
        first = system.output(f"arr.o{seq}-1").splitlines()
        assert first[0] == f"1 {seq}[1].fe"
        assert first[1].endswith(f"/{seq}-1.fe.SC")
        assert (shown["Job_Name"], shown["hashname"], shown["job_array_id"]) == ("arr-2", f"{seq}-2.fe", "2")
        seen = system.seen(f"{seq}[1].fe", "n1", "prologue")
        assert seen.arguments[8].endswith(f"/{seq}-1.fe.SC")
        assert seen.environment["PBS_NODEFILE"].endswith(f"aux//{seq}[1].fe")
        assert "PBS_ARRAYID" not in seen.environment
        members = ET.fromstring(system.run("qstat", "-x", "-f", f"{seq}[]").stdout).findall("Job/Job_Id")
        assert [member.text for member in members] == [parent, f"{seq}[1].fe", f"{seq}[2].fe"]

    def test_deleting_the_parent_deletes_every_member(self, system: trial.Trial) -> None:
        parent = system.submit("-t", "1-3%1", script="sleep 30\n")
        seq = parent.partition("[")[0]
        system.wait(f"{seq}[1].fe", "R42")
        assert system.attributes(f"{seq}[2].fe")["job_state"] == "Q"
        assert system.run("qdel", parent).returncode == 0
        assert system.wait(parent)["job_state"] == "C"


class Session:
    """A `qsub -I` on a pty."""

    def __init__(self, system: trial.Trial, *words: str) -> None:
        line = system.command(["qsub", "-I", *words], "alice", "fe", {"TERM": "vt100"})
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvp(line[0], line)
        self.text = ""

    def expect(self, pattern: str) -> str:
        """Read until the pattern is there."""
        while not re.search(pattern, self.text):
            if not select.select([self.terminal], [], [], trial.DEADLINE)[0]:
                raise AssertionError(f"no {pattern!r} in {self.text!r}")
            try:
                self.text += os.read(self.terminal, 65536).decode()
            except OSError:
                break
        found = re.search(pattern, self.text)
        assert found, self.text
        return found.group(0)

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def end(self) -> int:
        self.expect("completed\r\n")
        _pid, status = os.waitpid(self.pid, 0)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)


class TestInteractive:
    def job(self, session: Session) -> str:
        return session.expect(r"\d+\.fe")

    def test_is_a_login_shell_on_a_terminal_with_all_hooks_and_no_script_file(self, system: trial.Trial) -> None:
        system.do("n1", "prologue", "echo from the prologue")
        session = Session(system, "-l", "nodes=n1")
        job_id = self.job(session)
        session.expect("from the prologue\r\n")
        session.type("echo $0-$PBS_ENVIRONMENT-$TERM-$PPID; [ -t 0 ] && echo tty:; exit 5\n")
        found = session.expect(r"-bash-PBS_INTERACTIVE-vt100-\d+")
        session.expect("tty:\r\n")
        assert session.end() == 0
        assert system.wait(job_id)["exit_status"] == "5"
        prologue, epilogue = (system.seen(job_id, "n1", hook) for hook in ("prologue", "epilogue"))
        assert prologue.parent == int(found.rpartition("-")[2])
        assert prologue.streams["1"].startswith("/dev/pts/")
        assert epilogue.streams["1"] == "/dev/null"
        assert prologue.arguments[8].endswith(".SC")
        assert not [name for name in prologue.files if name.endswith(".SC")]
        assert system.attributes(job_id)["interactive"] == "True"

    def test_dash_x_runs_a_command_in_the_shell(self, system: trial.Trial) -> None:
        shell = system.user_file("shell", "#!/usr/bin/python3 -I\nimport sys\nprint(sys.argv)\nsys.exit(3)\n")
        session = Session(system, "-S", shell, "-x", "./cmd", "a", "b")
        job_id = self.job(session)
        session.expect(re.escape(f"['{shell}', '-c', './cmd a b']"))
        assert session.end() == 0
        assert system.wait(job_id)["exit_status"] == "3"

    @pytest.mark.parametrize("status", [1, 2])
    def test_a_failing_prologue_aborts_it(self, system: trial.Trial, status: int) -> None:
        system.do("n1", "prologue", f"echo no luck; status={status}")
        session = Session(system, "-l", "nodes=n1")
        job_id = self.job(session)
        session.expect("no luck\r\n")
        assert session.end() == 0
        assert system.wait(job_id)["exit_status"] == "-2"

    def test_parallel_epilogues_have_dev_null_in_place_of_closed_streams(self, system: trial.Trial) -> None:
        session = Session(system, "-l", "nodes=n2+n1", "-x", "true")
        job_id = self.job(session)
        session.end()
        system.wait(job_id)
        assert system.seen(job_id, "n1", "epilogue.parallel").streams["1"] == "/dev/null"

    def test_a_user_who_goes_away_ends_the_job(self, system: trial.Trial) -> None:
        session = Session(system)
        job_id = self.job(session)
        session.type("echo up-$((1+1))\n")
        session.expect("up-2")
        os.kill(session.pid, signal.SIGKILL)
        os.waitpid(session.pid, 0)
        os.close(session.terminal)
        assert system.wait(job_id)["job_state"] == "C"
