# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hook's launcher, rendered and run for real: what a job without our marker meets, and what ours meets."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

NODES = "nodes=1:ppn=2,neednodes=1:ppn=2,walltime=01:00:00"
OURS = f"nodes=1,other=vtorque,{NODES}"
SCRIPT = "/var/spool/torque/mom_priv/jobs/0.trqhead.SC"
ENVIRONMENT = {
    "PATH": "/bin:/usr/bin", "LANG": "C.UTF-8", "PBS_RESOURCE_NODES": "1:ppn=2", "PBS_NUM_NODES": "1",
    "PBS_NUM_PPN": "2", "PBS_NP": "2", "PBS_MSHOST": "trqn2", "PBS_O_WORKDIR": "/home/alice",
    "PBS_NODEFILE": "/var/spool/torque/aux//0.trqhead", "MOAB_JOBNAME": "$(touch /tmp/x) 'a\nb",
}  # fmt: skip
"""Of a root hook, recorded on TORQUE 6.1.3, with one of the variables that a user can forge."""

ORIGINAL = """#!/usr/bin/env python3
import os, signal, sys
closed = [fd for fd in (0, 1, 2) if not os.path.exists(f"/proc/self/fd/{{fd}}")]
with open({log!r}, "a") as log:
    blocked = sorted(int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    extra = os.path.exists("/proc/self/fd/9")
    variables = {{k: v for k, v in os.environ.items() if not k.startswith(("PWD", "OLDPWD", "SHLVL", "_"))}}
    print(repr(("original", sys.argv[1:], variables, closed, blocked, extra, os.getcwd())), file=log)
{end}
"""

PYTHON = """#!/bin/sh
[ "$2" = -S ] && exec {real} "$@"
{real} {recorder} "$@"
{end}
"""

RECORDER = """
import os, sys
print(repr(("ours", sys.argv[1:], dict(os.environ))), file=open({log!r}, "a"))
"""


@dataclasses.dataclass
class Hook:
    """A rendered launcher, its prefix, and what was run in which order."""

    place: pathlib.Path

    @property
    def log(self) -> pathlib.Path:
        return self.place / "log"

    def original(self, role: str, end: str = "") -> None:
        """Put a hook of the site's in place."""
        self._write(self.place / "site" / role, ORIGINAL.format(log=str(self.log), end=end))

    def ours(self, end: str = "exit 0") -> None:
        """Put our program in place; `end` is how it ends."""
        real = pathlib.Path(sys.base_prefix) / "bin/python3"
        recorder = self.place / "recorder.py"
        recorder.write_text(RECORDER.format(log=str(self.log)))
        text = PYTHON.format(real=real, recorder=f"'{recorder}'", end=end)
        self._write(self.place / "opt/venv/bin/python", text)

    @staticmethod
    def _write(path: pathlib.Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o500)

    def run(self, arguments: t.Sequence[str], *, rank: int = 0, **how: t.Any) -> int:
        """Run it as the MOM does; the status is negative for a signal."""
        environment = {**ENVIRONMENT, "PBS_NODENUM": str(rank)}
        options: dict[str, t.Any] = {"stdin": subprocess.DEVNULL, "timeout": 120, **how}
        return subprocess.run(
            [self.place / "hook", *arguments], env=environment, cwd=self.place, check=False, **options
        ).returncode

    def ran(self) -> list[t.Any]:
        """What was run, in order."""
        return [eval(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def names(self) -> list[str]:
        return [entry[0] for entry in self.ran()]


@pytest.fixture
def hook() -> t.Iterator[Hook]:
    with tempfile.TemporaryDirectory(prefix="vtorque hook ") as place:  # a blank: everything is quoted
        made = Hook(pathlib.Path(place))
        text = templates.render(
            "batch/torque/hook.sh.j2",
            site_dir=None,
            prefix=f"{place}/opt",
            site_hooks=f"{place}/site",
            run_dir=f"{place}/run",
            state_dir=f"{place}/state",
            pause=f"touch '{place}/paused'",
        )
        made._write(made.place / "hook", text)
        made.ours()
        yield made


def prologue(resources: str = NODES) -> list[str]:
    return ["0.trqhead", "alice", "alice", "a;$(b)", resources, "batch", "an account", SCRIPT]


def epilogue(resources: str = NODES) -> list[str]:
    return ["0.trqhead", "alice", "alice", "a;$(b)", "30955", resources, "cput=00:00:00", "batch", "", "0", SCRIPT]


ROLES = [
    pytest.param("prologue", prologue, 0, id="prologue"),
    pytest.param("prologue.parallel", prologue, 1, id="prologue.parallel"),
    pytest.param("epilogue", epilogue, 0, id="epilogue"),
    pytest.param("epilogue.parallel", epilogue, 2, id="epilogue.parallel"),
]
Arguments = t.Callable[..., list[str]]


@pytest.mark.parametrize(("role", "arguments", "rank"), ROLES)
def test_bare_job_meets_the_sites_hook_and_nothing_else(hook: Hook, role: str, arguments: Arguments, rank: int) -> None:
    hook.original(role, "sys.exit(37)")
    assert hook.run(arguments(), rank=rank) == 37
    ((_who, argv, variables, closed, _blocked, _extra, cwd),) = hook.ran()
    assert argv == arguments()
    assert variables == {**ENVIRONMENT, "PBS_NODENUM": str(rank)}
    assert closed == []
    assert cwd == str(hook.place)


@pytest.mark.parametrize(("role", "arguments", "rank"), ROLES)
def test_bare_job_passes_where_the_site_has_no_hook(hook: Hook, role: str, arguments: Arguments, rank: int) -> None:
    assert hook.run(arguments(), rank=rank) == 0
    assert hook.ran() == []


def test_bare_job_keeps_descriptors_and_a_death_by_signal(hook: Hook) -> None:
    hook.original("prologue", "os.kill(os.getpid(), 9)")
    command = ["bash", "-c", 'exec 9>/dev/null; exec "$@"', "bash", str(hook.place / "hook"), *prologue()]
    done = subprocess.run(command, env={**ENVIRONMENT, "PBS_NODENUM": "0"}, cwd=hook.place, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    assert hook.ran()[0][5] is True


@pytest.mark.parametrize(
    "resources",
    ["other=vtorque", "nodes=1,other=mine+vtorque,walltime=1", "other=vtorque+mine", "other=a+vtorque+b,nodes=1"],
)
def test_marker_is_seen(hook: Hook, resources: str) -> None:
    assert hook.run(prologue(resources)) == 0
    assert hook.names() == ["ours"]


@pytest.mark.parametrize(
    "resources",
    ["", "other=", "other=vtorque2", "other=my-vtorque", "another=vtorque", "nodes=other=vtorque", "other=a,vtorque",
     "other=VTORQUE", "file=other=vtorque", "other=*", "other=[a-z]*"],
)  # fmt: skip
def test_resources_with_a_lookalike_of_the_marker_are_a_bare_job(hook: Hook, resources: str) -> None:
    assert hook.run(prologue(resources)) == 0
    assert hook.names() == []


@pytest.mark.parametrize("long", ["nodes=" + "n" * 2042, "nodes=" + "ä" * 1010])
def test_list_that_torque_may_have_cut_is_left_to_the_server(hook: Hook, long: str) -> None:
    hook.original("prologue")
    assert hook.run(prologue(long)) == 0
    assert hook.names() == ["original", "ours"]
    assert hook.ran()[1][1][3:5] == ["prologue", "unknown"]


def test_our_program_gets_the_facts_and_a_clean_environment(hook: Hook) -> None:
    assert hook.run(prologue(OURS)) == 0
    ((_who, argv, variables),) = hook.ran()
    program = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.hook"
    assert argv[:3] == ["-I", "-m", program]
    assert argv[3:] == ["prologue", "yes", str(os.getpid()), "trqn2", *prologue(OURS)]
    assert {name for name in variables if name not in ("PWD", "SHLVL", "_", "OLDPWD")} <= {"PATH", "LC_ALL", "LC_CTYPE"}


@pytest.mark.parametrize(
    "end",
    [*(f"exit {status}" for status in (1, 2, 3, 74, 76, 120, 126, 127, 255)), "kill -9 $$", "kill -TERM $$",
     "kill -SEGV $$", "exec /nonexistent", "exec python3 -I -m no_such_module", "exec python3 -I -c 1/0"],
)  # fmt: skip
@pytest.mark.parametrize(("role", "arguments", "rank"), ROLES)
def test_our_failure_is_never_torques_business(
    hook: Hook, role: str, arguments: Arguments, rank: int, end: str
) -> None:
    """A crash, a signal, a missing module: no end but one of ours is ever more than 0 to Torque."""
    hook.ours(end)
    assert hook.run(arguments(OURS), rank=rank) == 0


@pytest.mark.parametrize(
    ("role", "arguments", "rank", "status"),
    [("prologue", prologue, 0, 2), ("prologue.parallel", prologue, 1, 0), ("epilogue", epilogue, 0, 0),
     ("epilogue.parallel", epilogue, 2, 0)],
)  # fmt: skip
def test_verdict_that_queues_the_job_again_is_told_to_torque_by_the_prologue_alone(
    hook: Hook, role: str, arguments: Arguments, rank: int, status: int
) -> None:
    hook.ours("exit 75")
    hook.original(role)
    assert hook.run(arguments(OURS), rank=rank) == status
    assert "original" in hook.names()


@pytest.mark.parametrize("status", [1, 2, 143, 255])
def test_site_prologue_comes_first_and_its_refusal_counts(hook: Hook, status: int) -> None:
    hook.original("prologue", f"sys.exit({status})")
    assert hook.run(prologue(OURS)) == status
    assert hook.names() == ["original"]


def test_site_prologue_killed_by_a_signal_is_a_success_as_for_torque(hook: Hook) -> None:
    hook.original("prologue", "os.kill(os.getpid(), 15)")
    assert hook.run(prologue(OURS)) == 0
    assert hook.names() == ["original", "ours"]


@pytest.mark.parametrize("end", ["exit 1", "exit 127", "kill -9 $$", "exec /nonexistent"])
def test_python_that_does_not_work_is_never_torques_business(hook: Hook, end: str) -> None:
    """Else each VM job of a node with a broken venv would be started again and again, twice a second."""
    hook.original("prologue", "sys.exit(3)")
    hook._write(hook.place / "opt/venv/bin/python", f"#!/bin/sh\n{end}\n")
    assert hook.run(prologue(OURS)) == 0


@pytest.mark.parametrize(
    ("job", "resources", "end", "paused"),
    [
        ("72[1].trqhead", OURS, "exit 1", True),
        ("72[1].trqhead", OURS, "kill -9 $$", True),
        ("72[1].trqhead", OURS, None, True),
        ("72[1].trqhead", OURS, "exit 0", False),
        ("72[1].trqhead", OURS, "exit 75", False),
        ("72.trqhead", OURS, "exit 1", False),
        ("72[1].trqhead", NODES, "exit 1", False),
        # most probably not ours
        ("72[1].trqhead", NODES.ljust(2048, "x"), "exit 1", False),
    ],
)
@pytest.mark.parametrize("site", [False, True])
def test_broken_program_does_not_eat_an_array(
    hook: Hook, job: str, resources: str, end: str | None, paused: bool, site: bool
) -> None:
    """Nothing can be held without our program, so that each member takes its time."""
    if site:
        hook.original("prologue")
    if end is None:
        (hook.place / "opt/venv/bin/python").unlink()
    else:
        hook.ours(end)
    assert hook.run([job, *prologue(resources)[1:]]) == (2 if end == "exit 75" and resources == OURS else 0)
    assert (hook.place / "paused").exists() is paused
    assert ("original" in hook.names()) is site


def test_site_prologue_of_our_job_meets_what_torque_gives(hook: Hook) -> None:
    hook.original("prologue")
    assert hook.run(prologue(OURS)) == 0
    _who, argv, variables, closed, _blocked, _extra, cwd = hook.ran()[0]
    assert argv == prologue(OURS)
    assert variables == {**ENVIRONMENT, "PBS_NODENUM": "0"}
    assert (closed, cwd) == ([], str(hook.place))


def test_site_prologue_of_our_job_writes_to_the_job_and_gets_no_descriptor_of_ours(hook: Hook) -> None:
    """A daemon that it leaves would keep ours open, and the job waiting."""
    hook.original("prologue", 'print([fd for fd in range(3, 99) if os.path.exists(f"/proc/self/fd/{fd}")])')
    output = hook.place / "job.OU"
    with output.open("wb") as stream:
        assert hook.run(prologue(OURS), stdout=stream) == 0
    assert output.read_text() == "[]\n"


def test_epilogue_is_ours_first_then_the_sites(hook: Hook) -> None:
    hook.original("epilogue", "sys.exit(5)")
    assert hook.run(epilogue(OURS)) == 5
    assert hook.names() == ["ours", "original"]
    assert hook.ran()[1][1] == epilogue(OURS)


@pytest.mark.parametrize("place", ["run/jobs", "state/guests"])
@pytest.mark.parametrize(("job_id", "key"), [("0.trqhead", "0.trqhead"), ("72[1].trqhead", "72-1.trqhead")])
def test_epilogue_takes_back_what_was_made_although_the_marker_is_gone(
    hook: Hook, place: str, job_id: str, key: str
) -> None:
    """qalter may change a job's resources between its hooks."""
    (hook.place / place / f"{key}.1").mkdir(parents=True)
    assert hook.run([job_id, *epilogue()[1:]]) == 0
    assert hook.names() == ["ours"]


def test_epilogue_of_another_job_is_not_taken_for_it(hook: Hook) -> None:
    """`7.head` is not `17.head`, and `1.head` not `1.head2`."""
    for key in ("10.trqhead.1", "0.trqhead2.1"):
        (hook.place / "run/jobs" / key).mkdir(parents=True)
    assert hook.run(epilogue()) == 0
    assert hook.names() == []


def test_prologue_parallel_is_the_sites_alone(hook: Hook) -> None:
    hook.original("prologue.parallel", "sys.exit(3)")
    assert hook.run(prologue(OURS), rank=1) == 3
    assert hook.names() == ["original"]


def close_and_block() -> None:
    """As MOM starts epilogue.parallel (recorded on TORQUE 6.1.3)."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD])
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.close(1)
    os.close(2)


@pytest.mark.parametrize("resources", [NODES, OURS])
def test_epilogue_parallel_bears_closed_output_and_blocked_signals(hook: Hook, resources: str) -> None:
    hook.original("epilogue.parallel")
    command = [str(hook.place / "hook"), *epilogue(resources)]
    process = subprocess.Popen(
        command, env={**ENVIRONMENT, "PBS_NODENUM": "1"}, cwd=hook.place, preexec_fn=close_and_block,
        stdin=subprocess.DEVNULL, restore_signals=False,
    )  # fmt: skip
    assert process.wait(timeout=120) == 0
    assert hook.names() == (["ours", "original"] if resources == OURS else ["original"])
    _who, argv, _variables, closed, blocked, _extra, _cwd = hook.ran()[-1]
    assert argv == epilogue(resources)
    assert closed == [1, 2]
    if resources == NODES:
        assert blocked == [1, 2, 15, 17]


def test_epilogue_parallel_that_hangs_is_killed_in_time(hook: Hook) -> None:
    """Torque would wait, and take the node down; a TERM is blocked there."""
    hook.ours("exec sleep 1000")
    process = subprocess.Popen(
        [str(hook.place / "hook"), *epilogue(OURS)], env={**ENVIRONMENT, "PBS_NODENUM": "1"}, cwd=hook.place,
        preexec_fn=close_and_block, stdin=subprocess.DEVNULL, restore_signals=False,
    )  # fmt: skip
    assert process.wait(timeout=500) == 0


@pytest.mark.parametrize(("role", "arguments", "rank"), ROLES)
def test_without_our_program_the_sites_hook_still_runs(hook: Hook, role: str, arguments: Arguments, rank: int) -> None:
    hook.original(role)
    (hook.place / "opt/venv/bin/python").unlink()
    assert hook.run(arguments(OURS), rank=rank) == 0
    assert hook.names() == ["original"]


@pytest.mark.parametrize("count", [0, 1, 7, 9, 10, 12])
def test_another_number_of_arguments_is_no_hook_of_ours(hook: Hook, count: int) -> None:
    hook.original("prologue")
    assert hook.run(["other=vtorque"] * count) == 0
    assert hook.ran() == []


@pytest.mark.parametrize("name", ["batch/torque/hook.sh.j2", "launchers/vtorque-shell.sh.j2"])
def test_launchers_are_clean_for_shellcheck(name: str) -> None:
    text = templates.render(name, site_dir=None, prefix="/opt/vtorque", site_hooks="/etc/vtorque/hooks")
    done = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_far_end_is_clean_for_shellcheck() -> None:
    path = templates.COLLECTION_DIR / "guest" / "run.sh"
    done = subprocess.run(["shellcheck", path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
