# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's scontrol reads and writes lists of hosts as Slurm's does, under the shells of images."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

PROGRAM = templates.COLLECTION_DIR / "batch/slurm/guest/scontrol.sh"
SHELLS = (("/bin/dash",), ("/bin/busybox", "sh"))
Result = subprocess.CompletedProcess[str]


def run(shell: tuple[str, ...], *arguments: str, **variables: str) -> Result:
    """Its end."""
    return subprocess.run(
        [*shell, str(PROGRAM), *arguments],
        env={"PATH": "/usr/bin:/bin", **variables}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n[1-3,5],m07", "n1 n2 n3 n5 m07"),
        ("n[09-11]", "n09 n10 n11"),
        ("n[9-11]", "n9 n10 n11"),
        ("r[1-2]n[3-4]", "r1n3 r1n4 r2n3 r2n4"),
        ("vcn1-0,vcn2-0", "vcn1-0 vcn2-0"),
        ("a", "a"),
    ],
)
def test_hostnames_are_a_host_a_line(shell: tuple[str, ...], text: str, hosts: str) -> None:
    """Recorded of Slurm 22.05.8."""
    done = run(shell, "show", "hostnames", text)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, hosts.split(), "")


@pytest.mark.parametrize("shell", SHELLS)
def test_hostnames_without_a_list_are_the_jobs(shell: tuple[str, ...]) -> None:
    assert run(shell, "show", "hostnames", SLURM_JOB_NODELIST="v[1-2]").stdout == "v1\nv2\n"
    assert run(shell, "show", "hostnames").returncode == 1


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("a1,a2,b,a3", "a[1-2],b,a3"),
        ("n2,n1", "n[2,1]"),
        ("n1,n02,n03", "n[1,02-03]"),
        ("n9,n10,n11", "n[9-11]"),
        ("vcn1-0,vcn2-0", "vcn1-0,vcn2-0"),
        ("vcn1-0,vcn1-1,vcn1-2", "vcn1-[0-2]"),
        ("a,b", "a,b"),
    ],
)
def test_hostlist_is_one_word(shell: tuple[str, ...], tmp_path: pathlib.Path, names: str, text: str) -> None:
    """Recorded of Slurm 22.05.8."""
    assert run(shell, "show", "hostlist", names).stdout == f"{text}\n"
    (tmp_path / "names").write_text(names.replace(",", "\n") + "\n")
    assert run(shell, "show", "hostlist", str(tmp_path / "names")).stdout == f"{text}\n"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("text", ["n[1-2", "n1-2]", "n[x]", "n[]", "n[1-2-3]", "n[[1]]", "n[1-99999999]"])
def test_list_that_cannot_be_read_is_refused(shell: tuple[str, ...], text: str) -> None:
    done = run(shell, "show", "hostnames", text)
    assert done.returncode == 1
    assert f"{text} is no list of hosts" in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("message", ["", "show job 3", "requeue 3", "show hostlist", "update jobid=3 timelimit=9"])
def test_all_else_is_refused_with_what_can_be_done(shell: tuple[str, ...], message: str) -> None:
    done = run(shell, *message.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: " in done.stderr
    if message != "show hostlist":
        assert f"'{message}' is not possible in a guest" in done.stderr
        assert "ask on a front end" in done.stderr
