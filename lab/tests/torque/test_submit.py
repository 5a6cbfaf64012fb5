# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `qsub` takes and refuses, and what `qalter` may change."""

from __future__ import annotations

import os

import pytest

from lab.torque import trial


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
