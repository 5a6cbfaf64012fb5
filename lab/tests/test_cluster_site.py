# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab with the batch system and the product on it, short of a guest."""

from __future__ import annotations

import pathlib
import threading
import time
import typing as t

import pytest

from lab.cluster import lifecycle
from lab.installation import runtime
from lab.system import places
from lab.system.state import State
from lab.tests.commands import on, out

NODES = ("fe", "cn1", "cn2")
CHECK = """
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
print(policy_file.load())
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[State]:
    runtime.install(places.CHECKOUT, places.RUNTIME)
    state = State(tmp_path_factory.mktemp("site") / "state")
    lifecycle.up(state, lifecycle.Plan(pool=pathlib.Path(tmp_path_factory.mktemp("pool"))))
    yield state
    lifecycle.down(state)


def test_nodes_run_the_installed_collection(lab: State) -> None:
    arguments = (
        "/opt/vtorque/venv/bin/python",
        "-I",
        "-c",
        "import ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors as m; print(m.__file__)",
    )
    for node in NODES:
        assert out(lab, node, *arguments).startswith("/opt/vtorque/venv/lib/")


def test_every_node_s_configuration_is_good_and_numbers_differ(lab: State) -> None:
    output = [out(lab, node, "/opt/vtorque/venv/bin/python", "-I", "-c", CHECK) for node in NODES]
    assert all("img_default='tiny'" in arguments for arguments in output)
    assert ["node_number=1," in output[1], "node_number=2," in output[2]] == [True, True]
    assert "node_number=None" in output[0]


def test_hooks_are_root_s_and_as_torque_demands(lab: State) -> None:
    for node in ("cn1", "cn2"):
        printed = out(lab, node, "sh", "-c", "stat -c '%n %U %a' /var/spool/torque/mom_priv/[pe]*logue*")
        assert printed.splitlines() == [
            f"/var/spool/torque/mom_priv/{name} root 500"
            for name in ("epilogue", "epilogue.parallel", "prologue", "prologue.parallel")
        ]
    assert on(lab, "fe", "test", "-e", "/var/spool/torque/mom_priv").returncode == 1


def test_a_plain_job_runs_on_a_node_and_leaves_nothing(lab: State) -> None:
    job = out(lab, "fe", "qsub", user="alice", stdin="hostname; id -un\n")
    end, pause = time.monotonic() + 60, threading.Event()
    while "job_state = C" not in out(lab, "fe", "qstat", "-f", job):
        assert time.monotonic() < end, f"{job} does not end"
        pause.wait(0.1)
    number = job.split(".")[0]
    assert out(lab, "fe", "cat", f"/home/alice/STDIN.o{number}").splitlines() == ["cn1", "alice"]
    for node in NODES:
        found = out(lab, node, "/usr/bin/env", "PYTHONPATH=/opt/vtorque-lab", "python3", "-m", "lab.leftovers")
        assert found == "[]"


def test_root_of_a_node_is_an_operator_and_no_manager(lab: State) -> None:
    job = out(lab, "fe", "qsub", "-h", user="alice", stdin="true\n")
    assert on(lab, "cn1", "qhold", "-h", "o", job).returncode == 0
    assert on(lab, "cn1", "qhold", "-h", "s", job).returncode != 0
    assert on(lab, "cn1", "pbsnodes", "-o", "-N", "a note", "cn2").returncode == 0
    assert "note = a note" in out(lab, "fe", "pbsnodes", "cn2")
    out(lab, "cn1", "pbsnodes", "-c", "-N", "", "cn2")
    out(lab, "fe", "qdel", job, user="alice")


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "galaxy.yml").write_text("build_ignore: [build, '*.tar.gz']\n")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/one.py").write_text("1\n")
    return tmp_path


@pytest.mark.parametrize("change", ["plugins/one.py", "plugins/two.py", "playbooks/p.yml"])
def test_a_change_of_the_sources_is_noticed(checkout: pathlib.Path, change: str) -> None:
    before = runtime._digest(checkout)
    (checkout / change).parent.mkdir(exist_ok=True)
    (checkout / change).write_text("2\n")
    assert runtime._digest(checkout) != before


@pytest.mark.parametrize("change", ["build/x", "x.tar.gz", "plugins/__pycache__/one.pyc"])
def test_what_is_not_in_the_tarball_does_not_count(checkout: pathlib.Path, change: str) -> None:
    before = runtime._digest(checkout)
    (checkout / change).parent.mkdir(exist_ok=True)
    (checkout / change).write_text("2\n")
    assert runtime._digest(checkout) == before
