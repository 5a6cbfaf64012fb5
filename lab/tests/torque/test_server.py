# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the server answers, writes down, and survives; what a MOM that is started again does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import xml.etree.ElementTree as ET

import pytest

from lab.torque import recorder, trial
from lab.torque.mom import hooks


def test_a_broken_request_is_refused_and_the_server_goes_on(system: trial.Trial) -> None:
    assert system.ask({"op": "status"})["code"] == 15004
    assert system.ask({"op": "no such"})["code"] == 15004
    with pytest.raises(ConnectionResetError):
        system.ask_raw(b"no json\n")
    assert system.node("n1")["state"] == "free"


class TestLook:
    def test_an_unknown_job_is_status_153_and_the_recorded_words(self, system: trial.Trial) -> None:
        done = system.run("qstat", "-f", "9999")
        arguments, status = (recorder.RECORDED / "qstat-f-unknown.txt").read_text().splitlines()
        assert (done.stderr, f"rc={done.returncode}") == (arguments.replace(".th", ".fe") + "\n", status)

    def test_a_hung_server_lets_qstat_wait_and_a_gone_one_is_status_111(self, system: trial.Trial) -> None:
        os.kill(system.daemon("fe"), signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(system.command(["qstat"], "alice", "n1", {}), timeout=0.5, check=False)
        os.kill(system.daemon("fe"), signal.SIGCONT)
        job_id = system.submit("-h")
        system.stop("fe", signal.SIGKILL)
        done = system.run("qstat", host="n1")
        system.start("fe")
        system.await_nodes()
        theirs = (recorder.RECORDED / "qstat-server-gone.txt").read_text().partition("Command exited")[0]
        assert done.returncode == 111
        assert re.sub(r"\(\d[\d.]+\)", "()", done.stderr).replace("fe", "th") == re.sub(r"\(\d[\d.]+\)", "()", theirs)
        assert system.attributes(job_id)["job_state"] == "H"

    def test_a_job_that_ends_while_the_server_is_away_is_complete_when_it_is_back(self, system: trial.Trial) -> None:
        gate = system.gate("n1", "epilogue")
        job_id = system.submit("-l", "nodes=n1", script="exit 6\n")
        descriptor = os.open(gate, os.O_WRONLY)
        system.stop("fe", signal.SIGKILL)
        os.write(descriptor, b"0\n")
        os.close(descriptor)
        system.start("fe")
        system.await_nodes()
        assert system.wait(job_id)["exit_status"] == "6"

    def test_a_job_whose_mom_was_killed_is_queued_again(self, system: trial.Trial) -> None:
        job_id = system.submit("-l", "nodes=n1", script="sleep 30\n")
        session = int(system.wait(job_id, "R42")["session_id"])
        system.stop("n1", signal.SIGKILL)
        assert system.node("n1")["state"] == "down"
        system.start("n1")
        system.await_nodes()
        assert system.wait(job_id, starts=2)["start_count"] == "2"
        assert hooks.session_processes(session) == []

    def test_with_dash_p_a_job_outlives_the_mom_that_leads_it(self, system: trial.Trial) -> None:
        fifo = system.fifo("goes-on")
        job_id = system.submit("-l", "nodes=n1+n2", script="echo one\nread line <goes-on\necho two\nexit 6\n")
        session = system.wait(job_id, "R42")["session_id"]
        system.stop("n1")
        system.start("n1", "-p")
        system.await_nodes()
        printed = system.attributes(job_id)
        assert (printed["job_state"], printed["session_id"], printed["start_count"]) == ("R", session, "1")
        fifo.write_text("\n")
        # whose child it was is gone with its status
        assert system.wait(job_id)["exit_status"] == "0"
        assert system.output(f"STDIN.o{trial.number(job_id)}") == "one\ntwo\n"
        ran = system.ran(job_id)
        assert ran.index("n2:epilogue.parallel") < ran.index("n1:epilogue")
        assert [path.name for host in ("n1", "n2") for path in (system.home(host) / "mom_priv/kept").iterdir()] == []

    def test_with_dash_p_a_sister_that_was_started_again_still_ends_her_job(self, system: trial.Trial) -> None:
        fifo = system.fifo("goes-on")
        job_id = system.submit("-l", "nodes=n1+n2", script="read line <goes-on\nexit 6\n")
        system.wait(job_id, "R42")
        system.stop("n2", signal.SIGKILL)
        system.start("n2", "-p")
        system.await_nodes()
        fifo.write_text("\n")
        assert system.wait(job_id)["exit_status"] == "6"
        ran = system.ran(job_id)
        assert ran.index("n2:epilogue.parallel") < ran.index("n1:epilogue")

    def test_qstat_x_has_the_text_s_values(self, system: trial.Trial) -> None:
        job_id, printed = system.finish("-W", "x=<&>")
        ((element,),) = [list(ET.fromstring(system.run("qstat", "-x", "-f", job_id, user="root").stdout))]
        assert element.findtext("x") == "<&>"
        assert element.findtext("Resource_List/nodes") == printed["Resource_List.nodes"]
        assert element.findtext("Job_Id") == job_id

    def test_pbsnodes(self, system: trial.Trial) -> None:
        text = system.run("pbsnodes").stdout
        assert text.startswith("n1\n     state = free\n     power_state = Running\n     np = 2\n")
        root = ET.fromstring(system.run("pbsnodes", "-x", "n2").stdout)
        assert [node.findtext("name") for node in root] == ["n2"]
        assert system.run("pbsnodes", "nowhere").returncode == 15064 & 0xFF

    def test_qmgr_names_managers_and_lets_managers_add_them(self, system: trial.Trial) -> None:
        assert system.run("qmgr", "-c", "s s managers += root@n1").returncode == 159
        assert system.run("qmgr", "-c", "s s managers += root@n1", user="root").returncode == 0
        assert "set server managers += root@n1\n" in system.run("qmgr", "-c", "p s").stdout
        assert system.run("qmgr", "-c", "set server managers -= root@n1", user="root").returncode == 0

    def test_managers_alone_set_the_properties_of_nodes(self, system: trial.Trial) -> None:
        def set_node(message: str, user: str = "root") -> int:
            return system.run("qmgr", "-c", f"set node n2 {message}", user=user).returncode

        def properties() -> str:
            return system.run("pbsnodes", "n2").stdout.partition("properties = ")[2].partition("\n")[0]

        assert set_node("properties += vm", user="alice") == 159
        assert properties() == ""
        assert (set_node("properties += big"), set_node("properties += vm")) == (0, 0)
        assert properties() == "vm,big"
        assert (set_node("properties -= big"), set_node("properties -= vm")) == (0, 0)
        assert properties() == ""


class TestAccounts:
    def test_a_start_and_an_end_are_written_down_as_torques_server_does(self, system: trial.Trial) -> None:
        """accounting.c of TORQUE 6: what is read of them when the server has forgotten the job."""
        job_id, printed = system.finish("-l", "nodes=2", "-A", "two words", "-N", "named")
        (day,) = (system.home("fe") / "server_priv/accounting").iterdir()
        lines = [line.split(";", 3) for line in day.read_text().splitlines() if f";{job_id};" in line]
        assert [kind for _date, kind, _job, _text in lines] == ["S", "E"]
        assert all(re.fullmatch(r"\d{2}/\d{2}/\d{4} \d{2}:\d{2}:\d{2}", date) for date, *_rest in lines)
        for _date, _kind, _job, text in lines:
            begin = f"user={printed['euser']} group={printed['egroup']} account=two words jobname=named queue=batch "
            assert text.startswith(begin)
            assert f" owner={printed['Job_Owner']} exec_host={printed['exec_host']} Resource_List." in text
        assert " Exit_status=0 " in lines[1][3]
