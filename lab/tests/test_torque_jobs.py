# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From submission to end: torque.md, "The job shell", "qdel", "Signals", "How the script is launched"."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import xml.etree.ElementTree as ET

import pytest

from lab.torque import recorder, trial
from lab.torque.mom import hooks

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


class TestScript:
    """get_script, istext and isWindowsFormat of qsub_functions.c; a script on standard input is taken as it is."""

    ASCII = "qsub:  file must be an ascii script\n"
    DOS = "qsub:  script is written in DOS/Windows text format\n"

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"#!/bin/sh\r\ntrue\r\n", DOS),
            (b"true\n" * 900 + b"true\r\n", DOS),
            (b"true\rx", DOS),
            (b"true\r\r\n", DOS),
            (b"\xef\xbb\xbf#!/bin/sh\ntrue\n", ASCII),
            (b"\xef\xbb\xbf#!/bin/sh\r\ntrue\r\n", ASCII),
            ("#!/bin/sh\n# f\xfcr alle\n".encode(), ASCII),
            (b"#" * 49 + b"\xc3\xbc\n", ASCII),
            (b"\x7fELF", ASCII),
            (b"true\n\0", ASCII),
        ],
    )
    def test_what_qsub_takes_for_no_script_is_refused(self, system: trial.Trial, content: bytes, message: str) -> None:
        script = system.user_home("alice") / "refused.sh"
        script.write_bytes(content)
        done = system.run("qsub", str(script))
        assert (done.returncode, done.stdout, done.stderr) == (1, "", message)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"#" * 50 + "\xfc\n".encode() + b"echo ran\n",
            b"echo a\rb >/dev/null\n\n\t\v\f\necho ran\n",
            b"echo ran\r",
        ],
    )
    def test_what_qsub_takes_is_taken(self, system: trial.Trial, content: bytes) -> None:
        script = system.user_home("alice") / "taken.sh"
        script.write_bytes(content)
        done = system.run("qsub", "-h", str(script))
        assert (done.returncode, done.stderr) == (0, "")

    def test_what_is_no_file_is_refused(self, system: trial.Trial) -> None:
        done = system.run("qsub", str(system.user_home("alice")))
        assert (done.returncode, done.stderr) == (1, "qsub: script not a file\n")
        done = system.run("qsub", "/nowhere")
        content_text = "qsub: script file '/nowhere' cannot be loaded - No such file or directory\n"
        assert (done.returncode, done.stderr) == (1, content_text)

    def test_standard_input_is_not_looked_at_and_loses_its_carriage_returns(self, system: trial.Trial) -> None:
        job_id, printed = system.finish(script="#PBS -N dos\r\necho ran\r\n")
        assert (printed["Job_Name"], system.output(f"dos.o{trial.number(job_id)}")) == ("dos", "ran\n")
        _job_id, printed = system.finish(script="\ufeff#PBS -N no\necho ran\n")
        # its first line is a command, behind which there are no directives
        assert printed["Job_Name"] == "STDIN"


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


class TestSubmit:
    def test_the_command_line_wins_over_directives_and_x_is_joined(self, system: trial.Trial) -> None:
        script = "#!/bin/sh\n#PBS -N script -W x=one\n#PBS -l walltime=5:00,mem=1gb\n#PBS -v A=s,B=s\nenv\n"
        job_id, printed = system.finish(
            "-N", "line", "-W", "x=two", "-W", "x=three", "-l", "walltime=2:00", "-v", "A=l", script=script
        )
        assert (printed["Job_Name"], printed["x"]) == ("line", "one;two;three")
        assert (printed["Resource_List.walltime"], printed["Resource_List.mem"]) == ("00:02:00", "1gb")
        assert {"A=l", "B=s"} <= set(system.output(f"line.o{trial.number(job_id)}").splitlines())
        assert printed["submit_args"] == "-N line -W x=two -W x=three -l walltime=2:00 -v A=l"

    def test_dash_c_changes_the_prefix(self, system: trial.Trial) -> None:
        _job_id, printed = system.finish("-C", "#XYZ", script="#PBS -N no\n#XYZ -A yes\ntrue\n")
        assert (printed["Job_Name"], printed["Account_Name"]) == ("STDIN", "yes")

    def test_dash_V_takes_the_whole_environment(self, system: trial.Trial) -> None:
        job_id, printed = system.finish("-V", script="echo $THING\n", THING="a, b")
        assert system.output(f"STDIN.o{trial.number(job_id)}") == "a, b\n"
        assert "THING=a\\, b" in printed["Variable_List"]

    @pytest.mark.parametrize(
        ("arguments", "status", "message"),
        [
            (("-l", "unknown=1"), 15037 & 0xFF, "Unknown resource type"),
            (("-W", "unknown=1"), 154, "Undefined attribute"),
            (("-q", "nowhere"), 172, "Unknown queue"),
            (("-l", "nodes=9"), 15038 & 0xFF, "Job exceeds queue resource limits"),
            (("-W", "group_list=root"), 15047 & 0xFF, "Bad GID"),
            (("-y",), 2, "invalid option"),
            (("-N", "a b"), 2, "illegal -N value"),
            (("-W", "depend"), 2, "illegal -W value"),
        ],
    )
    def test_what_is_unknown_is_refused(
        self, system: trial.Trial, arguments: tuple[str, ...], status: int, message: str
    ) -> None:
        done = system.run("qsub", *arguments, text="true\n")
        assert (done.returncode, done.stdout) == (status, "")
        assert message in done.stderr

    def test_root_may_not_submit(self, system: trial.Trial) -> None:
        assert "Bad UID" in system.run("qsub", user="root", text="true\n").stderr

    def test_dash_z_prints_nothing_and_dash_h_holds(self, system: trial.Trial) -> None:
        assert system.run("qsub", "-z", text="true\n").stdout == ""
        job_id = system.submit("-h")
        assert system.attributes(job_id)["job_state"] == "H"
        system.run("qrls", job_id)
        assert system.wait(job_id)["exit_status"] == "0"

    def test_dash_n_has_the_node_for_itself(self, system: trial.Trial) -> None:
        first = system.submit("-n", "-l", "nodes=n1", script="sleep 30\n")
        printed = system.wait(first, "R42")
        second = system.submit("-l", "nodes=n1")
        assert printed["node_exclusive"] == "True"
        assert system.node("n1")["state"] == "job-exclusive"
        assert system.attributes(second)["job_state"] == "Q"
        system.run("qdel", first)
        assert system.wait(second)["exit_status"] == "0"

    def test_a_long_x_comes_back_whole(self, system: trial.Trial) -> None:
        x = "v" * 60000
        job_id = system.submit("-h", "-W", f"x={x}")
        text = system.run("qstat", "-f", job_id).stdout
        assert f"    x = {x}\n" in text.replace("\n\t", "")

    def test_the_submit_filter_sees_arguments_and_script_and_may_reject(self, system: trial.Trial) -> None:
        program = system.directory / "filter"
        program.write_text('#!/bin/sh\n[ "$1" = -A ] && exit 255\nsed s/old/new/\n')
        program.chmod(0o755)
        config = system.home("fe") / "torque.cfg"
        config.write_text(f"SUBMITFILTER {program}\n")
        job_id, _shown = system.finish(script="echo old\n")
        rejected = system.run("qsub", "-A", "x", text="true\n")
        config.unlink()
        assert system.output(f"STDIN.o{trial.number(job_id)}") == "new\n"
        assert "administratively rejected" in rejected.stderr
        assert rejected.returncode == 1


def test_a_broken_request_is_refused_and_the_server_goes_on(system: trial.Trial) -> None:
    assert system.ask({"op": "status"})["code"] == 15004
    assert system.ask({"op": "no such"})["code"] == 15004
    with pytest.raises(ConnectionResetError):
        system.ask_raw(b"no json\n")
    assert system.node("n1")["state"] == "free"


class TestAlter:
    def test_x_may_change_while_the_job_waits(self, system: trial.Trial) -> None:
        job_id = system.submit("-h", "-W", "x=one")
        assert system.run("qalter", "-W", "x=two", job_id).returncode == 0
        assert system.attributes(job_id)["x"] == "two"
        assert system.run("qalter", "-W", "comment=c", job_id).returncode == 15003 & 0xFF
        assert system.run("qalter", "-W", "what=c", job_id).returncode == 15002 & 0xFF

    def test_shell_and_variables_may_change_during_the_prologue(self, system: trial.Trial) -> None:
        gate = system.gate("n1", "prologue")
        job_id = system.submit("-l", "nodes=n1")
        descriptor = os.open(gate, os.O_WRONLY)
        assert system.run("qalter", "-S", "/bin/sh", "-v", "NEW=1", job_id).returncode == 0
        assert system.run("qalter", "-W", "x=1", job_id).returncode == 169
        os.write(descriptor, b"0\n")
        os.close(descriptor)
        printed = system.wait(job_id)
        assert printed["Shell_Path_List"] == "/bin/sh"
        assert "NEW=1" in printed["Variable_List"]


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
