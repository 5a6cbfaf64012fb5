# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's Prolog and Epilog, rendered and run for real in the environment that slurmd gives them."""

from __future__ import annotations

import base64
import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures/slurm"
PYTHON = """#!/bin/sh
{{ printf '%s\\n' "$@"; env; }} >{place}/ran
exit {status}
"""


def environment(file: str, **changes: str) -> dict[str, str]:
    recorded = dict(line.split("=", 1) for line in (FIXTURES / file).read_text().splitlines())
    return {name: value for name, value in {**recorded, **changes}.items() if value != "ABSENT"}


@pytest.fixture(params=["dash", "busybox"])
def place(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    """Both launchers under one shell, and a program in place of ours."""
    shell = {"dash": "/usr/bin/dash", "busybox": "/usr/bin/busybox sh"}[request.param]
    for name in ("prolog", "epilog"):
        text = templates.render(
            f"batch/slurm/{name}.sh.j2", site_dir=None, prefix=f"{tmp_path}/opt", run_dir=f"{tmp_path}/run",
            state_dir=f"{tmp_path}/state",
        )  # fmt: skip
        (tmp_path / name).write_text(text.replace("#!/bin/sh", f"#!{shell}", 1))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "opt/venv/bin").mkdir(parents=True)
    end(tmp_path, 0)
    return tmp_path


def end(place: pathlib.Path, status: int) -> None:
    """Let our program end so."""
    python = place / "opt/venv/bin/python"
    python.write_text(PYTHON.format(place=place, status=status))
    python.chmod(0o755)


def run(place: pathlib.Path, name: str, variables: t.Mapping[str, str]) -> int:
    return subprocess.run([place / name], env=variables, stdin=subprocess.DEVNULL, timeout=60, check=False).returncode


def ran(place: pathlib.Path) -> tuple[list[str], dict[str, str]]:
    """Role and marker, and the environment with which our program was called."""
    lines = (place / "ran").read_text().splitlines()
    return lines[3:5], dict(line.split("=", 1) for line in lines[5:])


@pytest.mark.parametrize("name", ["prolog", "epilog"])
@pytest.mark.parametrize("comment", ["ABSENT", "", "mine", "x vtorque:abc", "Vtorque:abc", "\nvtorque:abc"])
def test_job_without_our_comment_calls_nothing(place: pathlib.Path, name: str, comment: str) -> None:
    assert run(place, name, environment(f"{name}-cn1.txt", SLURM_JOB_COMMENT=comment)) == 0
    assert not (place / "ran").exists()


@pytest.mark.parametrize(
    ("nodes", "node", "role"),
    [
        ("cn[1-2]", "cn1", "prologue"),
        ("cn[1-2]", "cn2", "prologue.other"),
        ("cn1", "cn1", "prologue"),
        ("cn1,m[2-3]", "cn1", "prologue"),
        ("n[03,07-09]x", "n03x", "prologue"),
        ("n[03,07-09]x,m1", "n03x", "prologue"),
        ("n[03,07-09]x", "n07x", "prologue.other"),
        ("a-b.c[10-12]", "a-b.c10", "prologue"),
        ("cn2,cn[1,3]", "cn1", "prologue.other"),
    ],
)
def test_first_node_of_the_list_makes_haste(place: pathlib.Path, nodes: str, node: str, role: str) -> None:
    assert run(place, "prolog", environment("prolog-cn1.txt", SLURM_NODELIST=nodes, SLURMD_NODENAME=node)) == 0
    assert ran(place)[0] == [role, "yes"]


def test_program_gets_a_clean_environment_with_slurms_facts(place: pathlib.Path) -> None:
    hostile = "vtorque:$(touch x) \"q\" 'p'"
    variables = environment("prolog-cn1.txt", SLURM_JOB_COMMENT=hostile, LD_LIBRARY_PATH="/evil", PYTHONPATH="/evil")
    assert run(place, "prolog", variables) == 0
    seen = ran(place)[1]
    assert seen["SLURM_JOB_COMMENT"] == hostile
    assert {name: seen[name] for name in ("SLURM_JOB_ID", "SLURM_NODELIST", "VTORQUE_BATCH_SYSTEM")} == {
        "SLURM_JOB_ID": "4", "SLURM_NODELIST": "cn[1-2]", "VTORQUE_BATCH_SYSTEM": "slurm",
    }  # fmt: skip
    assert not {"LD_LIBRARY_PATH", "PYTHONPATH"} & set(seen)
    assert seen["PATH"] == "/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.mark.parametrize("status", [1, 2, 75, 137])
def test_program_that_fails_lets_no_vm_job_run_on_the_node(place: pathlib.Path, status: int) -> None:
    end(place, status)
    assert run(place, "prolog", environment("prolog-cn1.txt")) == 1


def test_program_that_is_not_there_lets_no_vm_job_run_on_the_node(place: pathlib.Path) -> None:
    (place / "opt/venv/bin/python").unlink()
    assert run(place, "prolog", environment("prolog-cn1.txt")) == 1
    assert run(place, "prolog", environment("prolog-cn1.txt", SLURM_JOB_COMMENT="mine")) == 0


@pytest.mark.parametrize("status", [0, 1, 137])
def test_epilog_drains_no_node(place: pathlib.Path, status: int) -> None:
    end(place, status)
    assert run(place, "epilog", environment("epilog-cn1.txt")) == 0
    assert ran(place)[0] == ["epilogue", "yes"]
    assert ran(place)[1]["SLURM_JOB_EXIT_CODE2"] == "0:0"


@pytest.mark.parametrize("path", ["run/jobs/4.lab.1", "state/guests/4.lab.2"])
def test_epilog_takes_back_what_was_made_though_the_comment_is_another_now(place: pathlib.Path, path: str) -> None:
    (place / path).mkdir(parents=True)
    assert run(place, "epilog", environment("epilog-cn1.txt", SLURM_JOB_COMMENT="mine")) == 0
    assert (place / "ran").exists()


def test_epilog_leaves_other_jobs_alone(place: pathlib.Path) -> None:
    for path in ("run/jobs/44.lab.1", "state/guests/4.labs.2", "run/jobs/14.lab.1"):
        (place / path).mkdir(parents=True)
    assert run(place, "epilog", environment("epilog-cn1.txt", SLURM_JOB_COMMENT="mine")) == 0
    assert not (place / "ran").exists()


def test_shell_says_whose_it_is(tmp_path: pathlib.Path) -> None:
    rendered = [
        templates.render("launchers/vtorque-shell.sh.j2", site_dir=None, prefix="/opt/vtorque", **more)
        for more in ({}, {"batch_system": "torque"}, {"batch_system": "slurm"})
    ]
    assert ["VTORQUE_BATCH_SYSTEM=slurm" in text for text in rendered] == [False, False, True]
    assert rendered[0] == rendered[1]


@pytest.mark.parametrize(("name", "session"), [("vsbatch", ""), ("vsalloc", "yes")])
def test_launcher_of_the_front_end_hands_on_words_and_the_whole_environment(
    tmp_path: pathlib.Path, name: str, session: str
) -> None:
    """Names that no shell could have are the user's, too: bash exports functions by such."""
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$VTORQUE_BATCH_SYSTEM $VTORQUE_SESSION"; printf "%s|" "$@"; cat <&3\n')
    python.chmod(0o755)
    launcher = tmp_path / name
    launcher.write_text(templates.render(f"batch/slurm/{name}.sh.j2", site_dir=None, prefix=str(tmp_path)))
    mine = {"ODD": "a\nb", "BASH_FUNC_f%%": "() { :; }", "with.dot-and": "x", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["/bin/sh", launcher, "-n1", "a  b", ""], capture_output=True, text=True, check=True, env=mine
    )
    first, _line, rest = done.stdout.partition("\n")
    arguments, _mark, data = rest.rpartition("|")
    assert first == f"slurm {session}"
    assert arguments.endswith("vsub|-n1|a  b|")
    there = base64.b64decode(data).decode().rstrip("\0").split("\0")
    assert set(there) == {f"{key}={value}" for key, value in mine.items()}
