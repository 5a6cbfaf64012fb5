# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell of a job and its output: torque.md, "The job shell", "How the script is launched"."""

from __future__ import annotations

import os
import re
import stat

import pytest

from lab.torque import recorder, trial

SHELL = """#!/usr/bin/python3 -I
import os, sys, time
print("argv", sys.argv, flush=True)
print("line", repr(sys.stdin.readline()), "rest", repr(sys.stdin.read()))
print("me", os.getpid(), open("/proc/self/stat").read().rpartition(")")[2].split()[19])
sys.stderr.write("to stderr\\n")
sys.exit(37)
"""


class TestJobShell:
    def test_dash_s_makes_any_program_the_job_shell(self, system: trial.Trial) -> None:
        shell = system.user_file("shell", SHELL)
        script = system.user_file("job.sh", "#!/bin/sh\n#PBS -N named\n#PBS -S /bin/false\ntrue\n")
        job_id = system.run("qsub", "-S", shell, "-F", "a b", "-l", "nodes=n1", script).stdout.strip()
        printed = system.wait(job_id)
        out = system.output(f"named.o{trial.number(job_id)}")
        spooled = f"{system.home('n1')}/mom_priv/jobs/{job_id}.SC"
        assert f"argv ['{shell}']\n" in out
        assert f"line '{spooled} a b\\n' rest ''\n" in out
        assert system.output(f"named.e{trial.number(job_id)}") == "to stderr\n"
        assert (printed["exit_status"], printed["Shell_Path_List"]) == ("37", shell)
        assert (printed["job_arguments"], printed["Job_Name"]) == ("a b", "named")

    def test_the_process_above_the_prologue_becomes_the_job_shell(self, system: trial.Trial) -> None:
        shell = system.user_file("shell", SHELL)
        job_id, printed = system.finish("-S", shell, "-l", "nodes=n1+n2")
        pid, started = re.findall(r"me (\d+) (\d+)", system.output(f"STDIN.o{trial.number(job_id)}"))[0]
        seen = system.seen(job_id, "n1", "prologue")
        assert (seen.parent, seen.parent_started) == (int(pid), int(started))
        assert printed["session_id"] == pid
        assert system.seen(job_id, "n1", "epilogue").arguments[5] == pid

    def test_the_login_shell_runs_the_script_by_its_own_first_line(self, system: trial.Trial) -> None:
        job_id, _shown = system.finish(script="#!/usr/bin/python3 -I\nimport sys\nprint(sys.argv[0])\n")
        assert system.output(f"STDIN.o{trial.number(job_id)}").endswith(f"/mom_priv/jobs/{job_id}.SC\n")

    def test_python_as_the_shell_fails_because_it_reads_a_path_as_code(self, system: trial.Trial) -> None:
        job_id, printed = system.finish("-S", "/usr/bin/python3", script="print(1)\n")
        assert printed["exit_status"] == "1"
        assert "SyntaxError" in system.output(f"STDIN.e{trial.number(job_id)}")

    def test_a_shell_that_is_not_there_is_status_254(self, system: trial.Trial) -> None:
        job_id, printed = system.finish("-S", "/nonexistent")
        assert printed["exit_status"] == "254"
        assert "exec of shell" in system.output(f"STDIN.e{trial.number(job_id)}")

    def test_the_login_profile_is_read_and_signals_are_as_everywhere(self, system: trial.Trial) -> None:
        profile = system.user_file(".bash_profile", "export FROM_PROFILE=yes\n")
        job_id, _shown = system.finish(script="echo $FROM_PROFILE $(umask)\ngrep -E 'Sig(Blk|Ign)' /proc/self/status\n")
        os.unlink(profile)
        lines = system.output(f"STDIN.o{trial.number(job_id)}").split()
        assert lines[:5] == ["yes", "0077", "SigBlk:", "0" * 16, "SigIgn:"]
        assert recorder.settable(lines[5]) == "0" * 16

    def test_the_environment_has_the_recorded_names_and_values(self, system: trial.Trial) -> None:
        job_id, _shown = system.finish(
            *("-N", "fx", "-l", "nodes=2:ppn=2,walltime=10:00", "-v", "A=1,B=two"),
            script="env\n",
            PATH="/usr/local/bin:/usr/bin:/bin",
            MAIL="/var/mail/alice",
        )
        lines = (line.partition("=")[::2] for line in system.output(f"fx.o{trial.number(job_id)}").splitlines())
        ours = {name: value for name, value in lines if name.startswith("PBS_")}
        theirs = dict(
            line.split("=", 1) for line in (recorder.RECORDED / "job-environment-pbs.txt").read_text().splitlines()
        )
        assert ours.keys() == theirs.keys()
        varying = {"PBS_JOBCOOKIE", "PBS_O_PATH"}
        for name in theirs.keys() - varying:
            value = ours[name].replace(str(system.home("n2")), "/var/spool/torque")
            value = value.replace(str(system.user_home("alice")), "/home/alice").replace(job_id, "11.th")
            assert value.replace("fe", "th") == theirs[name], name
        assert re.fullmatch("[0-9A-F]{32}", ours["PBS_JOBCOOKIE"])

    def test_it_starts_in_home_or_in_dash_d(self, system: trial.Trial) -> None:
        first, _shown = system.finish(script="pwd\n")
        second, printed = system.finish("-d", "/usr", script="pwd; echo $PBS_O_WORKDIR\n")
        home = str(system.user_home("alice"))
        assert system.output(f"STDIN.o{trial.number(first)}") == f"{home}\n"
        assert system.output(f"STDIN.o{trial.number(second)}") == f"/usr\n{home}\n"
        assert printed["init_work_dir"] == "/usr"

    @pytest.mark.parametrize(
        ("name", "left"), [("a,b", "a"), ("a\nb", "a"), ("a\\b", "ab"), ("blank ", "blank"), ("end\\", "end,")]
    )
    def test_a_directory_whose_name_the_list_of_variables_does_not_hold_ends_it(
        self, system: trial.Trial, name: str, left: str
    ) -> None:
        (system.user_home("alice") / name).mkdir(exist_ok=True)
        for arguments in (("-d", str(system.user_home("alice") / name)), ("-d", name)):
            job_id, printed = system.finish(*arguments, "-l", "nodes=n1", script="pwd\n")
            assert (printed["job_state"], printed["exit_status"]) == ("C", "-2")
            assert f",PBS_O_INITDIR={system.user_home('alice')}/{left}," in printed["Variable_List"].replace("\\", "")
            assert system.seen(job_id, "n1", "epilogue").arguments[10] == "-2"
            assert not list(system.user_home("alice").glob(f"STDIN.?{trial.number(job_id)}"))

    def test_a_start_directory_that_is_not_there_or_not_the_users_ends_it(self, system: trial.Trial) -> None:
        for place in ("/nowhere", "/root"):
            assert system.finish("-d", place)[1]["exit_status"] == "-2"

    def test_the_submit_directory_of_such_a_name_is_cut_off(self, system: trial.Trial) -> None:
        job_id, _shown = system.finish("-w", "/usr/a,b", script="pwd; echo $PBS_O_WORKDIR\n")
        assert system.output(f"STDIN.o{trial.number(job_id)}") == f"{system.user_home('alice')}\n/usr/a\n"


class TestOutput:
    def test_goes_to_the_submit_directory_as_the_users_files(self, system: trial.Trial) -> None:
        job_id, printed = system.finish("-N", "out", script="echo o; echo e >&2\n")
        path = system.user_home("alice") / f"out.o{trial.number(job_id)}"
        assert (path.read_text(), path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == ("o\n", 1001, 0o600)
        assert system.output(f"out.e{trial.number(job_id)}") == "e\n"
        assert printed["Output_Path"] == f"fe:{path}"
        assert not list((system.home(printed["exec_host"].split("/")[0]) / "spool").glob(f"{job_id}*"))

    @pytest.mark.parametrize(
        ("arguments", "files"),
        [
            (("-o", "there", "-e", "sub/"), {"there": "o\n", "sub/n.eN": "e\n"}),
            (("-j", "oe"), {"n.oN": "o\ne\n"}),
            (("-j", "eo"), {"n.eN": "o\ne\n"}),
            (("-o", "fe:sub", "-k", "e"), {"sub/n.oN": "o\n", "n.eN": "e\n"}),
        ],
    )
    def test_dash_o_e_j_k(self, system: trial.Trial, arguments: tuple[str, ...], files: dict[str, str]) -> None:
        directory = system.user_home("alice") / "sub"
        directory.mkdir(exist_ok=True)
        os.chown(directory, 1001, 1001)
        job_id, _shown = system.finish("-N", "n", *arguments, script="echo o; echo e >&2\n")
        for name, text in files.items():
            assert system.output(name.replace("N", trial.number(job_id))) == text
