# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's srun, under the shells of images, over an ssh that notes where to, and runs everything here."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

from .launched_program import SHELLS, LaunchedProgram, Result, check_includes_alone

HERE = os.uname().nodename
LINES = (HERE, HERE, "vcn2-0", "vcn2-0")
WHERE = 'echo "$SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $SLURMD_NODENAME"'


class Guest(LaunchedProgram):
    """Where srun is tested."""

    def hosts(self, *lines: str) -> None:
        """Give the job other guests."""
        (self.place / "hosts").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(params=SHELLS)
def guest(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> t.Iterator[Guest]:
    """A job of two guests with two processors each, this one the first."""
    job = f"{os.getpid()}{abs(hash(tmp_path)) % 10**6}"
    here = Guest.under(request.param, tmp_path, "bin/srun", SLURM_JOB_ID=job, VTORQUE_HOSTS=str(tmp_path / "hosts"))
    for name in ("srun", "scontrol"):
        here.add_program(name, templates.render(f"batch/slurm/guest/{name}.sh", site_dir=None))
    here.hosts(*LINES)
    yield here
    subprocess.run(["rm", "-rf", f"/tmp/.srun.{os.getuid()}.{job}"], check=True)


def lines(done: Result) -> list[str]:
    """What tasks wrote everywhere."""
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.splitlines())


H = HERE


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ((), [f"0 0 0 {H}", "1 1 0 vcn2-0"]),
        (("-n4",), [f"0 0 0 {H}", f"1 0 1 {H}", "2 1 0 vcn2-0", "3 1 1 vcn2-0"]),
        (("-n", "3"), [f"0 0 0 {H}", f"1 0 1 {H}", "2 1 0 vcn2-0"]),
        (("--ntasks=2",), [f"0 0 0 {H}", "1 1 0 vcn2-0"]),
        (("-n1",), [f"0 0 0 {H}"]),
        (("-N1",), [f"0 0 0 {H}"]),
        (("--nodes", "1", "--ntasks", "2"), [f"0 0 0 {H}", f"1 0 1 {H}"]),
        (("--ntasks-per-node=2",), [f"0 0 0 {H}", f"1 0 1 {H}", "2 1 0 vcn2-0", "3 1 1 vcn2-0"]),
        (("-c2",), [f"0 0 0 {H}", "1 1 0 vcn2-0"]),
        (("-w", "vcn2-[0-0]", "-n2"), ["0 0 0 vcn2-0", "1 0 1 vcn2-0"]),
        (("-n4", "-m", "cyclic"), [f"0 0 0 {H}", "1 1 0 vcn2-0", f"2 0 1 {H}", "3 1 1 vcn2-0"]),
        (("-On5",), [f"0 0 0 {H}", f"1 0 1 {H}", f"2 0 2 {H}", "3 1 0 vcn2-0", "4 1 1 vcn2-0"]),
    ],
)
def test_options_choose_tasks_and_their_guests_as_slurms_do(
    guest: Guest, options: tuple[str, ...], tasks: list[str]
) -> None:
    assert lines(guest.run(*options, "sh", "-c", WHERE)) == tasks
    assert guest.called() == ["vcn2-0"] * any("vcn2-0" in task for task in tasks)


def test_jobs_own_number_of_tasks_counts_where_none_is_given(guest: Guest) -> None:
    assert len(lines(guest.run("echo", SLURM_NTASKS="3"))) == 3
    assert len(lines(guest.run("-n2", "echo", SLURM_NTASKS="3"))) == 2


def test_jobs_own_number_gives_way_to_what_the_guests_have(guest: Guest) -> None:
    """It counts the hosts' processors, of which the guests have not all."""
    assert len(lines(guest.run("echo", SLURM_NTASKS="9"))) == len(LINES)
    assert guest.run("-n9", "echo").returncode == 1


def test_each_task_has_the_variables_of_its_step(guest: Guest) -> None:
    names = "NTASKS NPROCS STEP_ID STEPID STEP_NUM_TASKS STEP_NUM_NODES STEP_NODELIST STEP_TASKS_PER_NODE CPUS_PER_TASK"
    script = "echo " + " ".join(f"$SLURM_{name}" for name in names.split())
    assert lines(guest.run("-c1", "-n3", "sh", "-c", script)) == [f"3 3 0 0 3 2 {H},vcn2-0 2,1 1"] * 3


def test_steps_count_on(guest: Guest) -> None:
    found = [guest.run("-n1", "sh", "-c", "echo $SLURM_STEP_ID").stdout for _ in range(3)]
    assert found == ["0\n", "1\n", "2\n"]


def test_greatest_status_is_the_status_and_others_than_0_are_reported(guest: Guest) -> None:
    done = guest.run("-n4", "sh", "-c", 'exit "$((SLURM_PROCID * 10))"')
    assert done.returncode == 30
    assert sorted(done.stderr.splitlines()) == [
        f"srun: error: {host}: task {n}: Exited with exit code {n}0"
        for n, host in sorted({1: H, 2: "vcn2-0", 3: "vcn2-0"}.items(), key=lambda item: (item[1], item[0]))
    ]
    assert guest.run("-Q", "-n1", "sh", "-c", "exit 7").stderr == ""


def test_tasks_that_end_before_their_input_is_looked_after_have_no_words_of_it_in_their_output(guest: Guest) -> None:
    """On a busy machine the task has ended, and the place is removed, before the first look for signals."""
    text = templates.render("batch/slurm/guest/srun.sh", site_dir=None)
    late = text.replace('$(wc -l <"$place/signals")', '$(sleep 0.5; wc -l <"$place/signals")')
    assert late != text
    guest.add_program("srun", late)
    done = guest.run("-n1", "echo", "over")
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")


def test_program_that_is_not_there_ends_with_127(guest: Guest) -> None:
    done = guest.run("-n1", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program" in done.stderr


def test_label_is_before_each_line_of_both_streams(guest: Guest) -> None:
    done = guest.run("-l", "-n4", "sh", "-c", 'echo "a  b"; echo "c\\d" >&2')
    assert sorted(done.stdout.splitlines()) == [f"{n}: a  b" for n in range(4)]
    assert sorted(done.stderr.splitlines()) == [f"{n}: c\\d" for n in range(4)]
    done = guest.run("-ln11", "-O", "echo", "x")
    assert sorted(done.stdout.splitlines()) == sorted(f"{n:2d}: x" for n in range(11))


@pytest.mark.parametrize(
    ("options", "readers"),
    [
        ((), [0, 1, 2, 3]),
        (("-i", "none"), []),
        (("--input=0",), [0]),
        (("-i3",), [3]),
    ],
)
def test_input_reaches_whom_it_is_for_whole(guest: Guest, options: tuple[str, ...], readers: list[int]) -> None:
    text = "line\n" * 40_000 + "end"
    done = guest.run("-n4", *options, "sh", "-c", "echo $SLURM_PROCID $(wc -c)", stdin=text)
    assert lines(done) == [f"{n} {len(text) if n in readers else 0}" for n in range(4)]


def test_input_of_a_file(guest: Guest) -> None:
    (guest.place / "in").write_text("some")
    assert lines(guest.run("-n3", "--input", "in", "cat"))[0] == "some" * 3


def test_input_of_one_task_here_streams(guest: Guest) -> None:
    with subprocess.Popen(
        [*guest.command, "-n1", "sh", "-c", "read x; echo got $x; exec >&-; cat >/dev/null"],
        env=guest.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        assert process.stdout.readline() == "got first\n"
        process.stdin.close()
        assert process.wait(timeout=300) == 0


@pytest.mark.parametrize("host", [HERE, "vcn2-0"])
def test_words_variables_directory_and_umask_arrive_as_they_are(guest: Guest, host: str) -> None:
    arguments = ["it's", "", "a  b", "*", "$HOME `x` \\n", "two\nlines\n", "-n", "ü"]
    odd = 'it\'s "q" $HOME `x` ü\tand\nmore, a=b; \\'
    script = 'umask 077; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *guest.command, "-n1", "-w", host, "sh", "-c",
         'printf "%s|" "$@" "$ODD" "$(pwd)" "$(umask)"', "sh", *arguments],
        env={**guest.environment, "ODD": odd}, cwd=guest.place, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("|".join([*arguments, odd, str(guest.place), "0077"]) + "|", "")


def test_directory_and_files_of_output_are_as_given(guest: Guest) -> None:
    done = guest.run("-n2", "-D", "home", "-o", "out", "sh", "-c", "pwd; echo bad >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = sorted((guest.place / "out").read_text().splitlines())
    assert found == sorted([guest.environment["HOME"], "bad"] * 2)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
@pytest.mark.parametrize("host", [HERE, "vcn2-0"])
def test_signal_reaches_the_tasks_and_srun_waits_for_them(guest: Guest, host: str, sent: signal.Signals) -> None:
    name = sent.name.removeprefix("SIG")
    script = f"trap 'echo caught; exit 9' {name}; echo up; while :; do sleep 0.1; done"
    command = [*guest.command, "-n1", "-w", host, "sh", "-c", script]
    with subprocess.Popen(
        command, env=guest.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(sent)
        with contextlib.ExitStack() as stack:
            stack.callback(process.kill)
            assert process.communicate(timeout=300)[0] == "caught\n"
    assert process.returncode == 9


MKFIFO = """#!/bin/sh
case $1 in */line.1) kill -USR1 "$PPID" ;; esac
exec /usr/bin/mkfifo "$@"
"""


@pytest.mark.parametrize("guest", ["dash"], indirect=True)  # busybox takes no other mkfifo than its own
def test_signal_that_comes_while_guests_are_called_reaches_all_tasks(guest: Guest) -> None:
    """One guest has been called, the other has not; each task ends by the signal, once, and srun with them."""
    guest.add_program("mkfifo", MKFIFO)
    with subprocess.Popen(
        [*guest.command, "-n2", "sleep", "1000"], env=guest.environment, stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    ) as process, contextlib.ExitStack() as stack:  # fmt: skip
        stack.callback(process.kill)
        arguments = process.communicate(timeout=300)[1]
    assert process.returncode == 128 + signal.SIGUSR1
    assert sorted(line for line in arguments.splitlines() if line.startswith("srun: error: ")) == sorted(
        f"srun: error: {host}: task {task}: Exited with exit code 138" for task, host in enumerate((HERE, "vcn2-0"))
    )


@pytest.mark.parametrize("host", [HERE, "vcn2-0"])
def test_tasks_end_with_an_srun_that_was_killed(guest: Guest, host: str) -> None:
    """The pipe closes when the program and what it started are gone."""
    command = [*guest.command, "-n1", "-w", host, "sh", "-c", "echo up; sleep 1000; echo never"]
    with subprocess.Popen(
        command, env=guest.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
        assert process.communicate(timeout=300)[0] == ""


LDD = "#!/bin/sh\necho '\tlibmpi.so.40 => /usr/lib/libmpi.so.40'\n"
MPIEXEC = """#!/bin/sh
echo "words $*"
cat "$HYDRA_HOST_FILE"
echo $OMPI_MCA_orte_default_hostfile = $HYDRA_HOST_FILE
exit 6
"""


@pytest.mark.parametrize(("options", "ldd"), [(("--mpi=pmi2",), "#!/bin/sh\n"), ((), LDD)])
def test_program_of_mpi_is_started_by_mpiexec(guest: Guest, options: tuple[str, ...], ldd: str) -> None:
    guest.add_program("mpiexec", MPIEXEC)
    guest.add_program("ldd", ldd)
    guest.add_program("app", "#!/bin/sh\n")
    done = guest.run(*options, "-n3", "app", "-x")
    first, *hosts, files = done.stdout.splitlines()
    assert (done.returncode, first, hosts) == (6, "words -n 3 app -x", [H, H, "vcn2-0"])
    assert len(set(files.split(" = "))) == 1


def test_program_of_mpi_is_refused_where_no_mpiexec_is(guest: Guest) -> None:
    guest.add_program("ldd", LDD)
    guest.add_program("app", "#!/bin/sh\necho ran\n")
    missing = {**guest.environment, "PATH": str(guest.place / "bin")}
    for name in ("sh", "awk", "grep", "sed", "id", "mkdir", "printf"):
        with contextlib.suppress(FileExistsError):
            (guest.place / "bin" / name).symlink_to(f"/usr/bin/{name}")
    done = guest.run("-n1", "app", **missing)
    assert (done.returncode, done.stdout) == (1, "")
    assert "app wants MPI, and this image has no mpiexec" in done.stderr
    assert lines(guest.run("--mpi=none", "-n1", "app")) == ["ran"]


def test_pty_runs_on_this_very_terminal(guest: Guest) -> None:
    done = guest.run("--pty", "sh", "-c", "read x; echo $x $SLURM_PROCID; exit 5", stdin="typed\n")
    assert (done.returncode, done.stdout) == (5, "typed 0\n")


@pytest.mark.parametrize(
    ("arguments", "variables", "text"),
    [
        (("-n5", "true"), {}, "more processors are asked for than there are in 2 guests"),
        (("-c3", "-n1", "true"), {}, "more processors are asked for than there are in 1 guest"),
        (("-N3", "true"), {}, "more guests are asked for (3) than there are (2)"),
        (("-w", "vcn9-0", "true"), {}, "vcn9-0 is no guest of this job"),
        (("-w", "vcn[", "true"), {}, ""),
        (("-n0", "true"), {}, "-n: '0' is no number"),
        (("-nx", "true"), {}, "-n: 'x' is no number"),
        (("--multi-prog", "true"), {}, "--multi-prog is not possible in a guest"),
        (("--exclusive", "true"), {}, "--exclusive is not possible in a guest"),
        (("--jobid=3", "true"), {}, "--jobid is not possible in a guest"),
        (("-p", "batch", "true"), {}, "-p is not possible in a guest"),
        (("--export=NONE", "true"), {}, "--export: in a guest it can be ALL alone"),
        (("-o", "x.%j", "true"), {}, "in a guest a name of a file has no %"),
        (("-i", "9", "true"), {}, "there is no task 9"),
        (("-i", "nowhere", "true"), {}, "nowhere cannot be read"),
        (("-n",), {}, "-n needs a value"),
        ((), {}, "no program is given"),
        (("true",), {"SLURM_JOB_ID": ""}, "this is no job"),
        (("true",), {"VTORQUE_HOSTS": "/nowhere"}, "list of hosts '/nowhere' cannot be read"),
    ],
)
def test_srun_with_impossible_options_runs_nothing(
    guest: Guest, arguments: tuple[str, ...], variables: dict[str, str], text: str
) -> None:
    done = guest.run(*arguments, **variables)
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr
    assert "error: " in done.stderr.splitlines()[0]
    assert guest.called() == []


def test_help_tells_the_options(guest: Guest) -> None:
    done = guest.run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: srun")


@pytest.mark.parametrize("name", ["srun", "scontrol"])
def test_program_can_be_included_in_a_template(name: str) -> None:
    """A shell's length expansion would open a comment of Jinja's."""
    check_includes_alone(f"batch/slurm/guest/{name}.sh")
