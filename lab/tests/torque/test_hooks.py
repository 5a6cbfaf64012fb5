# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who runs what, where, when, and with what around a job: torque.md and the hooks recorded on TORQUE 6.1.3."""

from __future__ import annotations

import os
import pathlib
import re
import typing as t

import pytest

from lab.torque import recorder, trial

RECORDED = recorder.RECORDED

ON_SUPERIOR = {"prologue", "prologue.user", "epilogue", "epilogue.user"}
ON_SISTER = {"prologue.parallel", "prologue.user.parallel", "epilogue.parallel", "epilogue.user.parallel"}


SLOTS = {"n1": 2, "n2": 2, "n3": 2}


@pytest.fixture
def system(cluster: trial.Trial) -> trial.Trial:
    cluster.fresh()
    return cluster


@pytest.fixture(scope="module")
def pair(cluster: trial.Trial) -> str:
    """A job over two nodes with two slots each, as recorded; n2 leads, n1 helps."""
    cluster.fresh()
    stored = cluster.directory / "pair"
    job_id, _shown = cluster.finish("-l", "nodes=2:ppn=2", "-N", "hello.sh", script="echo hello\nsleep 0.1\n")
    stored.mkdir()
    for path in cluster.log.iterdir():
        path.rename(stored / path.name)
    return job_id


def seen_in_pair(cluster: trial.Trial, pair: str, hook: str) -> recorder.Seen:
    host = "n2" if hook in ON_SUPERIOR else "n1"
    return recorder.read_record((cluster.directory / "pair" / f"{pair}.{host}.{hook}").read_text())


def recorded(hook: str) -> recorder.Seen:
    kind = "ms" if hook in ON_SUPERIOR or hook == "epilogue.precancel" else "sister"
    return recorder.read_record((RECORDED / f"hook-{kind}-{hook}.txt").read_text())


def neutral(text: str, cluster: trial.Trial) -> str:
    """Our paths, hosts and ids under the recorded names."""
    for ours, theirs in (
        (str(cluster.home("n1")), "/var/spool/torque"),
        (str(cluster.home("n2")), "/var/spool/torque"),
        (str(cluster.user_home("alice")), "/home/alice"),
    ):
        text = text.replace(ours, theirs)
    text = re.sub(r"\b\d+\.(fe|trqhead)\b", "JOB", text)
    return re.sub(r"\b(?:trq)?n([12])\b", r"n\1", text)


@pytest.mark.parametrize("hook", sorted(ON_SUPERIOR | ON_SISTER))
class TestAHookOfATwoNodeJobSeesWhatTheRecordedOneSaw:
    def test_arguments(self, cluster: trial.Trial, pair: str, hook: str) -> None:
        ours = [neutral(text, cluster) for text in seen_in_pair(cluster, pair, hook).arguments]
        theirs = [neutral(text, cluster) for text in recorded(hook).arguments]
        assert len(ours) == (9 if hook.startswith("prologue") else 12)
        if hook in ("epilogue", "epilogue.user"):
            assert ours.pop(5).isdigit()
            assert theirs.pop(5).isdigit()
        assert ours == theirs

    def test_environment_as_a_whole(self, cluster: trial.Trial, pair: str, hook: str) -> None:
        ours = seen_in_pair(cluster, pair, hook).environment
        ours = {name: neutral(value, cluster) for name, value in ours.items() if name not in ("PWD", "SHLVL", "_")}
        assert ours == {name: neutral(value, cluster) for name, value in recorded(hook).environment.items()}

    def test_user_groups_umask_and_directory(self, cluster: trial.Trial, pair: str, hook: str) -> None:
        ours, theirs = seen_in_pair(cluster, pair, hook), recorded(hook)
        assert ours.identity.replace(",1500(helpers)", "") == theirs.identity
        assert ours.umask == theirs.umask
        assert neutral(ours.cwd, cluster) == theirs.cwd

    def test_signals_blocked_and_ignored(self, cluster: trial.Trial, pair: str, hook: str) -> None:
        ours, theirs = seen_in_pair(cluster, pair, hook), recorded(hook)
        assert (ours.blocked, ours.ignored) == (theirs.blocked, theirs.ignored)

    def test_node_file(self, cluster: trial.Trial, pair: str, hook: str) -> None:
        ours = seen_in_pair(cluster, pair, hook).nodes
        assert ours == (("n2", "n2", "n1", "n1") if hook in ON_SUPERIOR else ())


@pytest.mark.parametrize(("hook", "blocked"), [("prologue", 0x10000), ("epilogue.parallel", 0x14003)])
def test_sigchld_is_blocked_for_hooks_that_are_no_shell(system: trial.Trial, hook: str, blocked: int) -> None:
    """bash takes SIGCHLD out of its mask when it starts and blocks it around forks: its own word proves nothing."""
    printed = system.log / "status"
    text = f"#!/usr/bin/python3 -SEI\nopen({str(printed)!r}, 'w').write(open('/proc/self/status').read())\n"
    host = "n2" if hook == "prologue" else "n1"
    system.script(host, hook, text)
    system.finish("-l", "nodes=n2+n1")
    found = re.search(r"SigBlk:\s+(\S+)", printed.read_text())
    assert found
    assert int(found.group(1), 16) == blocked


@pytest.mark.parametrize("hook", sorted(ON_SUPERIOR | ON_SISTER))
def test_standard_input_is_dev_null(cluster: trial.Trial, pair: str, hook: str) -> None:
    assert seen_in_pair(cluster, pair, hook).streams["0"] == "/dev/null"


@pytest.mark.parametrize("hook", sorted(ON_SUPERIOR))
def test_the_superiors_hooks_write_into_the_jobs_output(cluster: trial.Trial, pair: str, hook: str) -> None:
    streams = seen_in_pair(cluster, pair, hook).streams
    assert streams["1"].endswith(f"/spool/{pair}.OU")
    assert streams["2"].endswith(f"/spool/{pair}.ER")


@pytest.mark.parametrize("hook", ["epilogue.parallel", "epilogue.user.parallel"])
def test_standard_output_and_error_are_closed_in_parallel_epilogues(cluster: trial.Trial, pair: str, hook: str) -> None:
    streams = seen_in_pair(cluster, pair, hook).streams
    assert (streams["1"], streams["2"]) == ("", "")


@pytest.mark.parametrize(
    ("hook", "numbers"),
    [
        ("prologue", {9, 10, 11, 12, 13, 14, 16}),
        ("prologue.user", {9, 10, 11, 12, 13, 14, 16}),
        ("prologue.parallel", {10, 11}),
        ("epilogue", {10, 11}),
        ("epilogue.parallel", set()),
    ],
)
def test_descriptors_besides_the_first_three_are_the_recorded_ones(
    cluster: trial.Trial, pair: str, hook: str, numbers: set[int]
) -> None:
    scripts_own = {3, 255}
    assert recorded(hook).others - scripts_own == numbers
    assert seen_in_pair(cluster, pair, hook).others - scripts_own == numbers


@pytest.mark.parametrize("hook", ["prologue", "prologue.user", "epilogue", "epilogue.user"])
def test_files_on_the_mother_superior_have_the_recorded_owners_and_modes(
    cluster: trial.Trial, pair: str, hook: str
) -> None:
    files = seen_in_pair(cluster, pair, hook).files
    if hook.endswith(".user"):
        assert not [name for name in files if name.startswith("mom_priv/jobs/") and "*" not in name]
    else:
        assert files[f"mom_priv/jobs/{pair}.SC"] == ("alice", "700")
        assert files[f"mom_priv/jobs/{pair}.JB"] == ("root", "644")
    assert files[f"aux/{pair}"] == ("root", "644")
    assert files[f"spool/{pair}.OU"] == files[f"spool/{pair}.ER"] == ("alice", "600")
    assert (f"mom_priv/jobs/{pair}.TK" in files) is (hook == "epilogue")


def test_a_sister_has_no_job_file_in_its_prologue_and_only_the_jb_in_its_epilogue(
    cluster: trial.Trial, pair: str
) -> None:
    assert seen_in_pair(cluster, pair, "prologue.parallel").files == {}
    assert seen_in_pair(cluster, pair, "epilogue.parallel").files == {f"mom_priv/jobs/{pair}.JB": ("root", "644")}


def test_the_order_of_a_two_node_job_is_the_recorded_one(cluster: trial.Trial, pair: str) -> None:
    lines = [line.split() for line in (RECORDED / "order-2-node-job.txt").read_text().splitlines()]
    theirs = [
        (arguments[1], arguments[3].removeprefix("trq"), arguments[4])
        for arguments in lines
        if arguments[2] == "1.trqhead"
    ]
    ours = [line.split() for line in sorted((cluster.directory / "pair" / "events").read_text().splitlines())]
    assert [(arguments[1], arguments[3], arguments[4]) for arguments in ours][: len(theirs)] == theirs


def test_sisters_run_together_and_before_the_superior_at_start_and_at_end(system: trial.Trial) -> None:
    gates = {}
    for hook in ("prologue.parallel", "epilogue.parallel"):
        for host in ("n1", "n2"):
            gates[host, hook] = system.gate(host, hook)
    job_id = system.submit("-l", "nodes=n3+n1+n2")
    for hook, superiors in (("prologue.parallel", "n3:prologue"), ("epilogue.parallel", "n3:epilogue")):
        for host in ("n1", "n2"):
            # waits until the hook is at its gate, which it does not pass before a word comes
            descriptor = os.open(gates[host, hook], os.O_WRONLY)
            gates[host, hook] = descriptor  # type: ignore[assignment]
        assert {f"n1:{hook}", f"n2:{hook}"} <= set(system.ran(job_id))
        assert superiors not in system.ran(job_id)
        for host in ("n1", "n2"):
            os.write(t.cast(int, gates[host, hook]), b"0\n")
            os.close(t.cast(int, gates[host, hook]))
    system.wait(job_id)
    assert "n3:epilogue" in system.ran(job_id)


def test_a_job_of_one_node_runs_no_parallel_script(system: trial.Trial) -> None:
    job_id, _shown = system.finish("-l", "nodes=1:ppn=2")
    assert system.ran(job_id) == [f"n1:{hook}" for hook in ("prologue", "prologue.user", "epilogue.user", "epilogue")]


def test_qstat_shows_the_job_running_during_all_prologues(system: trial.Trial) -> None:
    gate = system.gate("n1", "prologue.parallel")
    job_id = system.submit("-l", "nodes=n2+n1")
    printed = system.wait(job_id, "R41")
    assert (printed["job_state"], printed["session_id"], printed["exec_host"]) == ("R", "0", "n2/0+n1/0")
    system.open_gate(gate)
    assert system.wait(job_id)["exit_status"] == "0"


def test_missing_strings_are_empty_arguments_and_user_text_reaches_root_unchanged(system: trial.Trial) -> None:
    job_id, _shown = system.finish("-A", "my $(account) ;", "-N", "x;$(id)")
    seen = system.seen(job_id, "n1", "prologue").arguments
    assert (seen[4], seen[7]) == ("x;$(id)", "my $(account) ;")
    assert system.seen(system.finish()[0], "n1", "prologue").arguments[7] == ""


def test_the_environment_shows_only_the_forgeable_variables_of_a_job(system: trial.Trial) -> None:
    forged = "PATH=/evil,LD_PRELOAD=/x,BASH_ENV=/x,PBS_JOBID=9,PBS_NODEFILE=/x,TMPDIR=/x,FOO=1,PBS_O_WORKDIR=/w"
    job_id, _shown = system.finish("-v", f"{forged},MOAB_QOS=q,PBS_CPUCLOCK=c,PBS_SCHED_HINT=h")
    root = system.seen(job_id, "n1", "prologue").environment
    assert (root["PATH"], root["PBS_O_WORKDIR"]) == ("/bin:/usr/bin", "/w")
    assert (root["MOAB_QOS"], root["PBS_CPUCLOCK"], root["PBS_SCHED_HINT"]) == ("q", "c", "h")
    assert not {"LD_PRELOAD", "BASH_ENV", "PBS_JOBID", "TMPDIR", "FOO", "HOME", "USER"} & set(root)
    assert root["PBS_NODEFILE"].endswith(f"/aux//{job_id}")
    assert "MOAB_QOS" not in system.seen(job_id, "n1", "prologue.user").environment


def test_beowulf_job_map_forges_the_node_file_but_not_exec_host(system: trial.Trial) -> None:
    job_id, printed = system.finish("-v", "BEOWULF_JOB_MAP=evil.example:10.0.0.1", "-l", "nodes=n1")
    assert system.seen(job_id, "n1", "prologue").nodes == ("evil.example", "10.0.0.1")
    assert printed["exec_host"] == "n1/0"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("nodes=1,other=vtorque", "nodes=1,other=vtorque,neednodes=1,walltime=01:00:00"),
        ("nodes=1,walltime=10:00,mem=1gb,gres=g", "nodes=1,walltime=00:10:00,mem=1gb,gres=g,neednodes=1"),
        ("software=s,feature=f,host=n1,nodes=1", "nodes=1,neednodes=1,walltime=01:00:00"),
        ("other=mine+vtorque", "other=mine+vtorque,nodes=1,walltime=01:00:00,neednodes=1"),
        (f"nodes=1,other={'x' * 2040},file=1kb", "nodes=1,file=1kb,neednodes=1,walltime=01:00:00"),
    ],
)
def test_the_resource_list_in_argv(system: trial.Trial, asked: str, expected: str) -> None:
    job_id, printed = system.finish("-l", asked)
    assert system.seen(job_id, "n1", "prologue").arguments[5] == expected
    assert system.seen(job_id, "n1", "epilogue").arguments[6] == expected
    assert printed["Resource_List.nodect"] == "1"


def test_gres_is_in_the_environment_too(system: trial.Trial) -> None:
    assert system.seen(system.finish("-l", "gres=g")[0], "n1", "prologue").environment["PBS_RESOURCE_GRES"] == "g"


def test_num_nodes_is_0_for_named_hosts(system: trial.Trial) -> None:
    seen = system.seen(system.finish("-l", "nodes=n1+n2")[0], "n1", "prologue").environment
    assert (seen["PBS_NUM_NODES"], seen["PBS_NP"], seen["PBS_NUM_PPN"]) == ("0", "2", "1")


def test_jobtype_prefers_its_own_hook_and_each_hook_falls_back_for_itself(system: trial.Trial) -> None:
    system.record("n1", "prologue", name="prologue.orig")
    job_id, printed = system.finish("-T", "orig")
    system.remove("n1", "prologue.orig")
    assert system.ran(job_id)[0] == "n1:prologue.orig"
    assert "n1:prologue" not in system.ran(job_id)
    assert system.ran(job_id)[-1] == "n1:epilogue"
    assert printed["jobtype"] == "orig"


def test_jobtype_precancel_runs_precancel_as_root_in_place_of_the_epilogue(system: trial.Trial) -> None:
    job_id, _shown = system.finish("-T", "precancel")
    assert system.ran(job_id)[-1] == "n1:epilogue.precancel"
    assert system.seen(job_id, "n1", "epilogue.precancel").identity.startswith("uid=0(root)")


class TestThePrologueOfTheUser:
    def script(self, system: trial.Trial, mode: int = 0o700) -> pathlib.Path:
        path = system.user_home("alice") / "pro.sh"
        path.write_text("#!/bin/bash\necho own $1 as $(id -un) $(umask) $PWD\nexit ${STATUS:-0}\n")
        os.chown(path, 1001, 1001)
        path.chmod(mode)
        return path

    def test_runs_as_the_user_with_a_path_from_the_working_directory(self, system: trial.Trial) -> None:
        self.script(system)
        job_id, printed = system.finish("-N", "own", "-l", "prologue=pro.sh")
        number = job_id.split(".")[0]
        assert system.output(f"own.o{number}") == f"own {job_id} as alice 0077 {system.user_home('alice')}\n"
        assert printed["Resource_List.prologue"] == "pro.sh"

    def test_a_missing_one_is_skipped(self, system: trial.Trial) -> None:
        assert system.finish("-l", "prologue=~/pro.sh")[1]["exit_status"] == "0"

    def test_an_unsafe_one_keeps_the_job_in_the_retry_loop(self, system: trial.Trial) -> None:
        self.script(system, mode=0o720)
        job_id = system.submit("-l", "prologue=pro.sh")
        assert system.wait(job_id, starts=2)["exit_status"] == "-14"
        system.run("qdel", job_id)


def test_presetup_prologue_runs_first_with_the_host_list_as_ninth_argument(system: trial.Trial) -> None:
    system.record("n1", "prologue", name="presetup")
    config = system.hook_path("n1", "config")
    config.write_text(f"$presetup_prologue {system.hook_path('n1', 'presetup')}\n")
    system.reread("n1")
    job_id, _shown = system.finish("-l", "nodes=n1+n2")
    config.unlink()
    system.reread("n1")
    system.remove("n1", "presetup")
    assert system.ran(job_id)[0] == "n1:presetup"
    assert system.seen(job_id, "n1", "presetup").arguments[9] == "n1+n2"
