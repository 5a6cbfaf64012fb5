# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hook's end does to the job and to the node: torque.md, "Exit codes", "Timeouts", "The tools for a verdict"."""

from __future__ import annotations

import os
import signal
import typing as t

import pytest

from lab.torque import trial
from lab.torque.mom import hooks

SLOTS = {"n1": 1, "n2": 1, "n3": 1}


@pytest.fixture(autouse=True)
def no_configuration(cluster: trial.Trial) -> t.Iterator[None]:
    """What a test had a MOM read is not there for the next one."""
    yield
    for host in cluster.nodes:
        cluster.remove(host, "config")


def configure(system: trial.Trial, host: str, text: str) -> None:
    system.hook_path(host, "config").write_text(text)
    system.reread(host)


def only_n1(system: trial.Trial) -> None:
    """No other node can take a job."""
    system.run("pbsnodes", "-o", "n2", "n3", user="root")


def test_a_prologue_that_exits_0_lets_the_job_run(system: trial.Trial) -> None:
    assert system.finish(script="exit 7\n")[1]["exit_status"] == "7"


def test_a_prologue_that_exits_1_aborts_the_job_without_output(system: trial.Trial) -> None:
    system.do("n1", "prologue", "echo words; status=1")
    job_id, printed = system.finish("-N", "aborted", "-l", "nodes=n1")
    assert (printed["job_state"], printed["exit_status"], printed["start_count"]) == ("C", "-2", "1")
    assert not list(system.user_home("alice").glob("aborted.*"))
    assert (system.home("n1") / "spool" / f"{job_id}.OU").read_text() == "words\n"
    assert system.ran(job_id) == ["n1:prologue", "n1:epilogue.user", "n1:epilogue"]
    assert system.seen(job_id, "n1", "epilogue").arguments[10] == "-2"
    assert job_id in (system.home("fe") / "mail" / "alice").read_text()


@pytest.mark.parametrize("status", [2, 127, 255])
def test_any_other_status_of_the_prologue_is_tried_again_at_once_and_without_end(
    system: trial.Trial, status: int
) -> None:
    system.do("n1", "prologue", f"status={status}")
    job_id = system.submit("-l", "nodes=n1", "-r", "n")
    printed = system.wait(job_id, starts=2)
    assert (printed["exit_status"], printed["comment"][:14]) == ("-14", "Job started on")
    assert printed["Hold_Types"] == "n"
    system.do("n1", "prologue", "status=0")
    printed = system.wait(job_id)
    assert (printed["job_state"], printed["exit_status"]) == ("C", "0")
    assert int(printed["start_count"]) >= 2
    assert system.ran(job_id).count("n1:epilogue") == int(printed["start_count"])
    assert (system.user_home("alice") / f"STDIN.o{job_id.split('.')[0]}").exists()


@pytest.mark.parametrize("number", ["KILL", "TERM"])
def test_a_prologue_killed_by_a_signal_counts_as_success(system: trial.Trial, number: str) -> None:
    system.do("n1", "prologue", f"kill -{number} $$; read -t 5 <>/dev/null")
    assert system.finish("-l", "nodes=n1", script="exit 5\n")[1]["exit_status"] == "5"


def unsafe(system: trial.Trial, kind: str) -> None:
    path = system.hook_path("n1", "prologue")
    modes = {"not executable": 0o644, "no read": 0o100, "group-writable": 0o770, "other-writable": 0o707}
    if kind in modes:
        path.chmod(modes[kind])
    elif kind == "not root's":
        os.chown(path, 1001, 1001)
    elif kind == "directory":
        system.remove("n1", "prologue")
        path.mkdir()
    else:
        texts = {"bad interpreter": "#!/nonexistent\n", "no interpreter": "exit 0\n"}
        system.script("n1", "prologue", texts[kind])


@pytest.mark.parametrize(
    "kind",
    [
        *("not executable", "no read", "group-writable", "other-writable"),
        *("not root's", "directory", "bad interpreter", "no interpreter"),
    ],
)
def test_an_unsafe_prologue_is_tried_again_without_end(system: trial.Trial, kind: str) -> None:
    unsafe(system, kind)
    job_id = system.submit("-l", "nodes=n1")
    assert system.wait(job_id, starts=2)["exit_status"] == "-14"


@pytest.mark.parametrize("mode", [0o500, 0o555])
def test_a_prologue_that_only_root_or_everybody_may_read_and_run_is_fine(system: trial.Trial, mode: int) -> None:
    system.hook_path("n1", "prologue").chmod(mode)
    job_id, printed = system.finish("-l", "nodes=n1")
    assert (printed["exit_status"], system.ran(job_id)[0]) == ("0", "n1:prologue")


def test_a_symlink_to_a_good_prologue_works(system: trial.Trial) -> None:
    path = system.hook_path("n1", "prologue")
    path.rename(system.log / "real")
    path.symlink_to(system.log / "real")
    job_id, _shown = system.finish("-l", "nodes=n1")
    assert system.ran(job_id)[0] == "n1:prologue"


@pytest.mark.parametrize("dangling", [False, True])
def test_a_missing_prologue_is_skipped_without_a_word(system: trial.Trial, dangling: bool) -> None:
    system.remove("n1", "prologue")
    if dangling:
        system.hook_path("n1", "prologue").symlink_to(system.log / "missing")
    job_id, printed = system.finish("-l", "nodes=n1")
    assert (printed["exit_status"], system.ran(job_id)[0]) == ("0", "n1:prologue.user")


@pytest.mark.parametrize("status", [1, 2])
def test_a_failing_sister_gives_retry_a_node_down_and_no_prologue_on_the_superior(
    system: trial.Trial, status: int
) -> None:
    system.do("n1", "prologue.parallel", f"status={status}")
    job_id = system.submit("-l", "nodes=n3+n2+n1")
    system.wait(job_id, "Q10")
    printed = system.attributes(job_id)
    assert (printed["exit_status"], printed["start_count"]) == ("-3", "1")
    ran = system.ran(job_id)
    assert "n3:prologue" not in ran
    assert ran[-1] == "n3:epilogue"
    assert system.seen(job_id, "n3", "epilogue").arguments[10] == "-3"
    assert not [run for run in ran if "epilogue" in run and "parallel" in run]
    node = system.node("n1")
    assert node["state"] == "down"
    assert node["note"].startswith("ERROR: prolog/epilog failed, file: ")
    assert node["note"].endswith(f"prologue.parallel, exit: {status}, nonzero p/e exit status")
    system.do("n1", "prologue.parallel", "status=0")
    system.run("momctl", "-q", "clearmsg", user="root", host="n1")
    assert system.wait(job_id)["exit_status"] == "0"
    assert system.node("n1")["state"] == "free"


def test_a_failing_prologue_on_the_superior_leaves_its_node_up_and_the_sisters_uncleaned(system: trial.Trial) -> None:
    system.do("n2", "prologue", "status=2")
    job_id = system.submit("-l", "nodes=n2+n1")
    system.wait(job_id, starts=2)
    ran = system.ran(job_id)
    assert "n1:prologue.parallel" in ran
    assert "n1:epilogue.parallel" not in ran
    assert "note" not in system.node("n2")


def test_an_epilogues_status_is_ignored(system: trial.Trial) -> None:
    system.do("n1", "epilogue", "status=2")
    assert system.finish("-l", "nodes=n1", script="exit 4\n")[1]["exit_status"] == "4"
    assert system.node("n1")["state"] == "free"


def test_a_failing_parallel_epilogue_marks_the_node_down_and_the_job_completes(system: trial.Trial) -> None:
    system.do("n1", "epilogue.parallel", "status=2")
    assert system.finish("-l", "nodes=n2+n1", script="exit 4\n")[1]["exit_status"] == "4"
    assert system.node("n1")["state"] == "down"


def test_a_node_is_up_again_after_its_mom_was_restarted(system: trial.Trial) -> None:
    system.do("n1", "epilogue.parallel", "status=2")
    system.finish("-l", "nodes=n2+n1")
    system.stop("n1")
    assert system.node("n1")["state"] == "down"
    system.start("n1")
    system.await_nodes()
    node = system.node("n1")
    assert (node["state"], "note" in node) == ("free", False)


class TestTimeouts:
    """`$prologalarm` above 10: scripts are killed 10 s earlier; after 4 s where recorders must come to their `do`."""

    def test_prologue(self, system: trial.Trial) -> None:
        configure(system, "n1", "$prologalarm 14\n")
        system.do("n1", "prologue", f"sleep 30 & echo $! >>{system.log}/child; sleep 30")
        job_id = system.submit("-l", "nodes=n1")
        assert system.wait(job_id, starts=2)["exit_status"] == "-14"
        # the second start may have one already, which lives
        child = int((system.log / "child").read_text().split()[0])
        assert hooks.process_fields(child)[:1] in ([], ["Z"])

    def test_parallel_prologue(self, system: trial.Trial) -> None:
        configure(system, "n1", "$prologalarm 11\n")
        system.do("n1", "prologue.parallel", "sleep 30")
        job_id = system.submit("-l", "nodes=n2+n1")
        system.wait(job_id, "Q10")
        assert system.attributes(job_id)["exit_status"] == "-3"
        assert "exit: -4" in system.node("n1")["note"]

    def test_epilogue(self, system: trial.Trial) -> None:
        configure(system, "n1", "$prologalarm 14\n")
        system.do("n1", "epilogue", "sleep 30")
        assert system.finish("-l", "nodes=n1")[1]["exit_status"] == "0"

    def test_the_moms_own_clock_runs_from_the_jobs_arrival(self, system: trial.Trial) -> None:
        """Two scripts of 4.5 s are each within 8 s, both together are not."""
        for host in ("n1", "n2"):
            configure(system, host, "$prologalarm 8\n")
        system.do("n1", "prologue.parallel", "sleep 4.5")
        system.do("n2", "prologue", "sleep 4.5")
        job_id = system.submit("-l", "nodes=n2+n1")
        assert system.wait(job_id, starts=2)["exit_status"] == "-3"
        assert system.node("n1")["state"] != "down"


class TestToolsForAVerdict:
    """Commands of root@node, an operator, in root's prologue."""

    def command(self, system: trial.Trial, host: str, *arguments: str) -> str:
        return " ".join([str(system.directory / host / "bin" / arguments[0]), *arguments[1:]])

    @pytest.mark.parametrize("letter", ["o", "u"])
    def test_qhold_then_exit_2_holds_the_job_after_one_start(self, system: trial.Trial, letter: str) -> None:
        system.do("n1", "prologue", self.command(system, "n1", "qhold", f"-h {letter}", "$1") + "; status=2")
        job_id = system.submit("-l", "nodes=n1")
        printed = system.wait(job_id, "H20")
        assert (printed["Hold_Types"], printed["exit_status"], printed["start_count"]) == (letter, "-14", "1")
        system.do("n1", "prologue", "status=0")
        owner = system.run("qrls", "-h", letter, job_id)
        assert owner.returncode == (0 if letter == "u" else 159)
        system.run("qrls", "-h", letter, job_id, user="root", host="n1")
        assert system.wait(job_id)["start_count"] == "2"

    def test_a_system_hold_needs_a_manager(self, system: trial.Trial) -> None:
        job_id = system.submit("-h")
        assert system.run("qhold", "-h", "s", job_id, user="root", host="n1").returncode == 159
        assert system.run("qhold", "-h", "s", job_id, user="root").returncode == 0
        assert system.attributes(job_id)["Hold_Types"] == "us"

    def test_offline_then_exit_2_starts_the_job_on_another_node(self, system: trial.Trial) -> None:
        offline = self.command(system, "n1", "pbsnodes", "-o", "-N", "'disk is full'", "n1")
        system.do("n1", "prologue", f"{offline}; status=2")
        _job_id, printed = system.finish()
        assert (printed["exec_host"], printed["start_count"]) == ("n2/0", "2")
        assert system.node("n1")["state"] == "offline"
        assert system.node("n1")["note"] == "disk is full"
        assert system.run("pbsnodes", "-c", "n1").returncode == 159
        system.run("pbsnodes", "-c", "-N", "", "n1", user="root", host="n1")
        assert system.node("n1")["state"] == "free"
        assert "note" not in system.node("n1")

    def test_qstat_in_every_root_hook_shows_the_job_with_its_start_count(self, system: trial.Trial) -> None:
        for host, hook in (
            ("n1", "prologue.parallel"),
            ("n2", "prologue"),
            ("n1", "epilogue.parallel"),
            ("n2", "epilogue"),
        ):
            qstat = self.command(system, host, "qstat", "-f", "$1")
            system.do(host, hook, f"{qstat} >{system.log}/qstat.{hook}")
        system.finish("-l", "nodes=n2+n1", "-W", "x=vtorque:abc")
        for hook in ("prologue.parallel", "prologue", "epilogue.parallel", "epilogue"):
            text = (system.log / f"qstat.{hook}").read_text()
            assert "    start_count = 1\n" in text
            assert "    exec_host = n2/0+n1/0\n" in text
            assert "    x = vtorque:abc\n" in text
            assert "Variable_List" not in text

    def test_qalter_from_the_prologue(self, system: trial.Trial) -> None:
        alter = self.command(system, "n1", "qalter")
        system.do(
            "n1",
            "prologue",
            f"{alter} -W comment='in prologue' $1; echo $? >{system.log}/a;"
            f" {alter} -p 5 $1; echo $? >>{system.log}/a; {alter} -W x=y $1; echo $? >>{system.log}/a",
        )
        _job_id, printed = system.finish("-l", "nodes=n1")
        assert (system.log / "a").read_text() == "0\n0\n169\n"
        assert (printed["comment"], printed["Priority"], "x" in printed) == ("in prologue", "5", False)


def test_a_background_child_of_the_prologue_holds_nothing_up(system: trial.Trial) -> None:
    system.do("n1", "prologue", f"setsid sleep 30 & echo $! >{system.log}/child")
    assert system.finish("-l", "nodes=n1")[1]["exit_status"] == "0"
    system.stop("n1")
    system.start("n1")
    system.await_nodes()
    assert system.finish("-l", "nodes=n1")[1]["exit_status"] == "0"
    for child in (system.log / "child").read_text().split():
        os.kill(int(child), signal.SIGKILL)
