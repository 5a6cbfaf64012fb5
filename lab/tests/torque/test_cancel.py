# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending and signalling jobs: torque.md, "qdel, qdel -p, qrerun, walltime" and "Signals that the job shell gets"."""

from __future__ import annotations

import os
import subprocess
import threading
import time

import pytest

from lab.torque import recorder, trial


class TestCancel:
    def test_qdel_of_a_running_job_cleans_sisters_runs_precancel_then_terminates(self, system: trial.Trial) -> None:
        job_id = system.submit("-l", "nodes=n2+n1", script="trap 'echo trapped' TERM\nsleep 30\n")
        system.wait(job_id, "R42")
        assert system.run("qdel", job_id).returncode == 0
        assert system.wait(job_id)["exit_status"] == "271"
        ran = system.ran(job_id)
        assert set(ran[-6:-2]) >= {"n1:epilogue.user.parallel", "n2:epilogue.precancel"}
        assert ran[-2:] == ["n2:epilogue.user", "n2:epilogue"]
        precancel = system.seen(job_id, "n2", "epilogue.precancel")
        recorded = recorder.read_record((recorder.RECORDED / "hook-ms-epilogue.precancel.txt").read_text())
        assert precancel.identity.startswith("uid=1001(alice)")
        assert (precancel.umask, precancel.streams) == (recorded.umask, recorded.streams)
        assert (precancel.blocked, precancel.ignored) == (recorded.blocked, recorded.ignored)
        assert len(precancel.arguments) == len(recorded.arguments)
        assert precancel.arguments[10] == recorded.arguments[10] == "0"
        assert system.seen(job_id, "n2", "epilogue").arguments[10] == "271"

    def test_a_shell_that_ignores_term_is_killed_and_one_that_obeys_keeps_its_status(self, system: trial.Trial) -> None:
        deaf = "#!/usr/bin/python3 -I\nimport signal\nsignal.signal(15, signal.SIG_IGN)\nsignal.pause()\n"
        polite = "#!/usr/bin/python3 -I\nimport signal\nsignal.signal(15, lambda *_: exit(9))\nsignal.pause()\n"
        for text, status in ((deaf, "265"), (polite, "9")):
            shell = system.user_file("shell", text.replace("signal.pause", "open('ready').read()\nsignal.pause"))
            fifo = system.fifo("ready")
            job_id = system.submit("-S", shell)
            fifo.write_text("")
            system.run("qdel", job_id)
            assert system.wait(job_id)["exit_status"] == status

    def test_qdel_during_the_prologue_waits_for_its_end(self, system: trial.Trial) -> None:
        gate = system.gate("n1", "prologue")
        job_id = system.submit("-l", "nodes=n1", script="sleep 30\n")
        line = system.command(["qdel", job_id], "alice", "fe", {})
        descriptor = os.open(gate, os.O_WRONLY)
        with subprocess.Popen(line) as qdel:
            with pytest.raises(subprocess.TimeoutExpired):
                qdel.wait(timeout=0.4)
            os.write(descriptor, b"0\n")
            os.close(descriptor)
            assert qdel.wait(timeout=trial.DEADLINE) == 0
        assert system.wait(job_id)["exit_status"] == "271"
        ran = system.ran(job_id)
        assert ran == [
            f"n1:{hook}" for hook in ("prologue", "prologue.user", "epilogue.precancel", "epilogue.user", "epilogue")
        ]

    def test_qdel_during_a_sisters_prologue(self, system: trial.Trial) -> None:
        gate = system.gate("n1", "prologue.parallel")
        job_id = system.submit("-l", "nodes=n2+n1")
        descriptor = os.open(gate, os.O_WRONLY)
        assert system.run("qdel", job_id).returncode == 0
        assert system.ran(job_id)[-1] == "n2:epilogue.precancel"
        os.write(descriptor, b"0\n")
        os.close(descriptor)
        system.wait(job_id)
        ran = system.ran(job_id)
        assert "n2:prologue" not in ran
        assert ran.index("n1:epilogue.parallel") < ran.index("n2:epilogue")

    def test_qdel_of_a_held_job_runs_no_script(self, system: trial.Trial) -> None:
        job_id = system.submit("-h")
        assert system.run("qdel", job_id, user="bob").returncode == 159
        assert system.run("qdel", job_id).returncode == 0
        assert system.attributes(job_id)["job_state"] == "C"
        assert system.ran(job_id) == []
        assert system.run("qdel", job_id).returncode == 170

    def test_a_purged_job_ends_when_the_mom_finds_out(self, system: trial.Trial) -> None:
        gate = system.gate("n1", "epilogue")
        job_id = system.submit("-l", "nodes=n1", script="sleep 30\n")
        system.wait(job_id, "R42")
        assert system.run("qdel", "-p", job_id).returncode == 159
        assert system.run("qdel", "-p", job_id, user="root").returncode == 0
        assert system.run("qstat", job_id).returncode == 153
        system.open_gate(gate)
        assert system.ran(job_id)[-1] == "n1:epilogue"

    def test_a_sister_whose_superior_is_gone_drops_a_purged_job_without_a_hook(self, system: trial.Trial) -> None:
        job_id = system.submit("-l", "nodes=n1+n2", script="sleep 30\n")
        system.wait(job_id, "R42")
        system.stop("n1", 9)
        stored = system.home("n2") / f"mom_priv/jobs/{job_id}.JB"
        assert stored.exists()
        assert system.run("qdel", "-p", job_id, user="root").returncode == 0
        end, pause = time.monotonic() + trial.DEADLINE, threading.Event()
        while stored.exists():
            assert time.monotonic() < end, "her MOM keeps it"
            pause.wait(0.1)
        assert "n2:epilogue.parallel" not in system.ran(job_id)
        system.start("n1")
        system.await_nodes()

    def test_qrerun_starts_the_same_job_again_without_precancel(self, system: trial.Trial) -> None:
        job_id = system.submit("-l", "nodes=n1", script="sleep 30\n")
        system.wait(job_id, "R42")
        assert system.run("qrerun", job_id).returncode == 159
        assert system.run("qrerun", job_id, user="root").returncode == 0
        assert system.wait(job_id, starts=2)["start_count"] == "2"
        assert "n1:epilogue.precancel" not in system.ran(job_id)

    def test_a_hold_of_a_running_job_counts_at_its_rerun(self, system: trial.Trial) -> None:
        job_id = system.submit("-l", "nodes=n1", script="sleep 30\n")
        system.wait(job_id, "R42")
        assert system.run("qhold", job_id).returncode == 0
        printed = system.attributes(job_id)
        assert (printed["job_state"], printed["Hold_Types"]) == ("R", "u")
        system.run("qrerun", job_id, user="root")
        assert system.wait(job_id, "H20")["job_state"] == "H"

    def test_walltime_runs_precancel_deaf_and_ends_with_minus_11(self, system: trial.Trial) -> None:
        job_id, printed = system.finish("-l", "nodes=n1,walltime=1", script="sleep 30\n")
        assert printed["exit_status"] == "-11"
        assert "exceeded limit 1" in system.output(f"STDIN.e{trial.number(job_id)}")
        assert system.seen(job_id, "n1", "epilogue.precancel").blocked == "0000000000014003"
        assert system.seen(job_id, "n1", "epilogue").arguments[10] == "-11"


class TestSignals:
    SHELL = (
        "#!/usr/bin/python3 -I\nimport signal, os\n"
        "signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'usr1\\n') and exit(0))\n"
        "open('ready').read()\nsignal.pause()\n"
    )

    def running(self, system: trial.Trial) -> str:
        fifo = system.fifo("ready")
        job_id = system.submit("-S", system.user_file("shell", self.SHELL))
        fifo.write_text("")
        system.wait(job_id, "R42")
        return job_id

    @pytest.mark.parametrize("name", ["USR1", "SIGUSR1", "10"])
    def test_qsig_by_name_and_number(self, system: trial.Trial, name: str) -> None:
        job_id = self.running(system)
        assert system.run("qsig", "-s", name, job_id).returncode == 0
        assert system.wait(job_id)["exit_status"] == "0"
        assert system.output(f"STDIN.o{trial.number(job_id)}") == "usr1\n"

    def test_suspend_and_resume_are_for_operators(self, system: trial.Trial) -> None:
        job_id = self.running(system)
        denied = system.run("qsig", "-s", "suspend", job_id)
        assert (denied.returncode, "Unauthorized Request" in denied.stderr) == (159, True)
        assert system.run("qsig", "-s", "suspend", job_id, user="root").returncode == 0
        assert system.attributes(job_id)["job_state"] == "S"
        assert system.run("qsig", "-s", "resume", job_id, user="root").returncode == 0
        assert system.attributes(job_id)["job_state"] == "R"

    def test_slots_of_a_suspended_job_are_others_until_it_goes_on(self, system: trial.Trial) -> None:
        job_id = self.running(system)
        assert system.run("qsig", "-s", "suspend", job_id, user="root").returncode == 0
        assert all(job_id not in system.node(host).get("jobs", "") for host in ("n1", "n2"))
        assert system.run("qsig", "-s", "resume", job_id, user="root").returncode == 0
        assert any(job_id in system.node(host).get("jobs", "") for host in ("n1", "n2"))

    def test_resume_takes_slots_that_another_job_has_got(self, system: trial.Trial) -> None:
        first = self.running(system)
        hosts = ("n1", "n2")
        (host,) = [host for host in hosts if first in system.node(host).get("jobs", "")]
        assert system.run("qsig", "-s", "suspend", first, user="root").returncode == 0
        second = system.submit("-l", f"nodes={host}:ppn={system.node(host)['np']}", script="sleep 600\n")
        system.wait(second, "R42")
        assert system.run("qsig", "-s", "resume", first, user="root").returncode == 0
        assert all(job in system.node(host)["jobs"] for job in (first, second))
        assert system.run("qdel", second).returncode == 0
        system.wait(second)
        assert first in system.node(host)["jobs"]

    def test_suspended_time_is_no_walltime(self, system: trial.Trial) -> None:
        """Suspended for as long as its limit, and ended by its owner's signal afterwards.

        On a busy machine the job may have run as long as its limit besides: then it is tried with a longer one.
        """
        fifo, shell = system.fifo("ready"), system.user_file("shell", self.SHELL)
        for limit in (7, 21, 63):
            begun = time.monotonic()
            job_id = system.submit("-l", f"walltime={limit}", "-S", shell)
            fifo.write_text("")
            system.wait(job_id, "R42")
            done = [system.run("qsig", "-s", "suspend", job_id, user="root")]
            suspended = time.monotonic()
            while not done[0].returncode and time.monotonic() < suspended + limit:
                assert system.attributes(job_id)["job_state"] == "S"
                time.sleep(0.5)
            resumed = time.monotonic()
            done.append(system.run("qsig", "-s", "resume", job_id, user="root"))
            done.append(system.run("qsig", "-s", "USR1", job_id))
            status = system.wait(job_id)["exit_status"]
            ran = time.monotonic() - begun - (resumed - suspended)
            if ran < limit or status == "0":
                break
        assert [one.returncode for one in done] == [0, 0, 0]
        assert status == "0"

    def test_suspended_job_is_deleted_at_once(self, system: trial.Trial) -> None:
        job_id = self.running(system)
        assert system.run("qsig", "-s", "suspend", job_id, user="root").returncode == 0
        assert system.run("qdel", job_id).returncode == 0
        assert system.wait(job_id)["job_state"] == "C"

    def test_an_unknown_signal_and_a_waiting_job_are_refused(self, system: trial.Trial) -> None:
        held = system.submit("-h")
        assert system.run("qsig", "-s", "NOPE", held).returncode == 15015 & 0xFF
        assert system.run("qsig", "-s", "USR1", held).returncode == 15018 & 0xFF
