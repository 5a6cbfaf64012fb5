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
import socket
import subprocess
import typing as t
import xml.etree.ElementTree as ET

import pytest

from lab.torque import trial


class TestArrays:
    def test_members_have_the_recorded_names(self, system: trial.Trial) -> None:
        parent = system.submit("-N", "arr", "-t", "1-2", script="echo $PBS_ARRAYID $PBS_JOBID; readlink -f $0\n")
        seq = parent.partition("[")[0]
        assert parent == f"{seq}[].fe"
        printed = system.wait(f"{seq}[2].fe")
        system.wait(parent)
        first = system.output(f"arr.o{seq}-1").splitlines()
        assert first[0] == f"1 {seq}[1].fe"
        assert first[1].endswith(f"/{seq}-1.fe.SC")
        assert (printed["Job_Name"], printed["hashname"], printed["job_array_id"]) == ("arr-2", f"{seq}-2.fe", "2")
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

    def __init__(self, system: trial.Trial, *arguments: str, **variables: str) -> None:
        line = system.command(["qsub", "-I", *arguments], "alice", "fe", {"TERM": "vt100", **variables})
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


COOKIE = "0123456789abcdef" * 2


class Screen:
    """Where an X server of alice's would listen, and her right to use it."""

    def __init__(self, system: trial.Trial) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.number = self.socket.getsockname()[1] - 6000
        self.display = f"localhost:{self.number}.0"
        self.cookies = system.user_home("alice") / ".Xauthority"
        self.cookies.unlink(missing_ok=True)
        arguments = ["-q", "-f", str(self.cookies), "add", f"unix:{self.number}.0", "MIT-MAGIC-COOKIE-1", COOKIE]
        subprocess.run(["/usr/bin/xauth", *arguments], check=True, timeout=trial.DEADLINE)
        os.chown(self.cookies, trial.USERS["alice"], trial.USERS["alice"])

    def known(self, display: str) -> str:
        arguments = ["/usr/bin/xauth", "-f", str(self.cookies), "list", display]
        return subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=trial.DEADLINE).stdout


@pytest.fixture
def screen(system: trial.Trial) -> t.Iterator[Screen]:
    made = Screen(system)
    made.socket.settimeout(trial.DEADLINE)
    yield made
    made.socket.close()
    made.cookies.unlink()


class TestDisplay:
    """TORQUE 6.1.3, sources: process_opts and x11_get_proto of qsub, setup_x11_forwarding of the MOM."""

    def test_display_of_the_user_is_at_the_node_for_as_long_as_the_job(
        self, system: trial.Trial, screen: Screen
    ) -> None:
        session = Session(system, "-X", "-v", "DISPLAY=elsewhere:3", DISPLAY=screen.display)
        job_id = session.expect(r"\d+\.fe")
        session.type('stty -echo; echo "<$DISPLAY>"\n')
        found = re.fullmatch(r"<localhost:(\d+)\.0>", session.expect(r"<localhost:\S+>"))
        assert found
        number = int(found[1])
        assert 50 <= number < 500
        assert screen.known(f"unix:{number}.0").split()[1:] == ["MIT-MAGIC-COOKIE-1", COOKIE]
        for message in (b"one", b"two"):
            with socket.create_connection(("127.0.0.1", 6000 + number), timeout=trial.DEADLINE) as client:
                client.sendall(message)
                server, _address = screen.socket.accept()
                with server:
                    assert server.recv(3, socket.MSG_WAITALL) == message
                    server.sendall(message.upper())
                assert client.recv(16) == message.upper()
                assert client.recv(16) == b""
        printed = [system.run("qstat", "-f", job_id, user=user).stdout for user in ("root", "alice")]
        assert [f"forward_x11 = MIT-MAGIC-COOKIE-1:{COOKIE}:0" in text for text in printed] == [True, False]
        session.type("exit 4\n")
        assert session.end() == 0
        assert system.wait(job_id)["exit_status"] == "4"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", 6000 + number), timeout=trial.DEADLINE)

    def test_job_without_a_terminal_has_none(self, system: trial.Trial, screen: Screen) -> None:
        job_id = system.submit("-X", script='echo "<${DISPLAY-}>"\n', DISPLAY=screen.display)
        system.wait(job_id)
        assert system.output(f"STDIN.o{trial.number(job_id)}") == "<>\n"

    def test_without_a_display_or_the_right_to_use_it_nothing_is_submitted(
        self, system: trial.Trial, screen: Screen
    ) -> None:
        none = system.run("qsub", "-X", text="true\n")
        assert (none.returncode, none.stderr) == (2, "qsub: DISPLAY not set\n")
        other = system.run("qsub", "-X", text="true\n", environment={"DISPLAY": f"localhost:{screen.number + 1}.0"})
        message = "qsub: Failed to get xauth data (check $DISPLAY variable)\n"
        assert (other.returncode, other.stderr) == (2, message)
