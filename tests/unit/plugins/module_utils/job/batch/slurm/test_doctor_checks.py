# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is Slurm set as vTorque needs it?"""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import doctor_checks, hook_calls
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.adapter import Slurm
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import Finding

CONFIG = (pathlib.Path(__file__).resolve().parents[6] / "fixtures/slurm/config.txt").read_text()


class Controller(Slurm):
    def __init__(self, text: str) -> None:
        super().__init__(pathlib.Path("/nowhere"))
        self.text = text

    def _run(self, *command: str, subject: str = "") -> bytes:
        if not self.text:
            raise SiteFault("scontrol", "is silent")
        return self.text.encode()


@pytest.mark.parametrize(
    ("old", "new", "remedy"),
    [
        ("= Alloc,Contain", "= (null)", "PrologFlags=Alloc,Contain"),
        ("= 360 sec", "= 10 sec", "BatchStartTimeout=300"),
        ("= /etc/vtorque/slurm/epilog", "= (null)", "Epilog=/etc/vtorque/slurm/epilog"),
        ("= proctrack/cgroup", "= proctrack/linuxproc", "ProctrackType=proctrack/cgroup"),
        ("= 65534", "= 60", "PrologEpilogTimeout=300"),
        ("= Match", "= Different Ours=0x1 Slurmctld=0x2", "copy the controller's"),
        ("= lab\n", "= hpc_main\n", "ClusterName=hpc-main"),
        ("= CR_CORE_MEMORY", "= CR_CORE", "SelectTypeParameters=CR_CORE_MEMORY into"),
        ("= CR_CORE_MEMORY", "= NONE", "SelectTypeParameters=CR_CORE_MEMORY into"),
        ("= CR_CORE_MEMORY", "= CR_CPU,CR_LLN", "SelectTypeParameters=CR_CPU_MEMORY,CR_LLN into"),
        ("= CR_CORE_MEMORY", "= CR_ONE_TASK_PER_CORE", "SelectTypeParameters=CR_CORE_MEMORY,CR_ONE_TASK_PER_CORE into"),
        ("= 22.05.8", "= 21.08.5", "Slurm 22.05"),
    ],
)
def test_setting_that_keeps_jobs_from_running_is_named_with_its_line(old: str, new: str, remedy: str) -> None:
    assert doctor_checks.check_server(Controller(CONFIG), ()).state == "ok"
    finding = doctor_checks.check_server(Controller(CONFIG.replace(old, new)), ())
    assert finding.state == "bad"
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("version", "commands", "state"),
    [
        ("22.05.8", "22.05.11", "ok"),
        ("23.02.1", "", "ok"),
        ("24.11.5", "24.11.5", "ok"),
        ("26.05.3", "26.05.0-0rc1", "ok"),
        ("24.11.5", "23.11.1", "warn"),
        ("24.11.5", "25.05.3", "warn"),
        ("26.11.0-0rc1", "26.11.0-0rc1", "warn"),
        ("27.05.1", "", "warn"),
        ("next", "", "warn"),
    ],
)
def test_version_is_never_refused_for_being_new(version: str, commands: str, state: str) -> None:
    class Upgraded(Controller):
        def _run(self, *command: str, subject: str = "") -> bytes:
            if "--version" in command:
                return f"slurm-wlm {commands}\n".encode()
            return super()._run(*command, subject=subject)

    finding = doctor_checks.check_server(Upgraded(CONFIG.replace("= 22.05.8", f"= {version}")), ())
    assert (finding.state, version in (finding.problem or version)) == (state, True)
    wrong = CONFIG.replace("= 22.05.8", f"= {version}").replace("= 360 sec", "= 10 sec")
    assert doctor_checks.check_server(Upgraded(wrong), ()).state == "bad"


def test_node_whose_name_no_prolog_reads_is_named(node: Node) -> None:
    assert doctor_checks.check_server(Controller(CONFIG), ("cn1", "cn1.site")).state == "ok"
    finding = doctor_checks.check_server(Controller(CONFIG), ("cn1", "gpu_n1"))
    assert (finding.state, "node gpu_n1: " in finding.problem) == ("warn", True)
    assert node.look().state == "ok"
    finding = node.look(name="gpu_n1")
    assert (finding.state, "node gpu_n1: " in finding.problem) == ("bad", True)


def test_host_that_slurm_knows_by_another_name_is_bad(node: Node) -> None:
    assert node.look(host="cn1.site.example").state == "ok"
    finding = node.look(host="compute-0-1")
    assert (finding.state, "NodeName=compute-0-1" in finding.remedy) == ("bad", True)


def test_controller_that_is_silent_is_nobodys_fault() -> None:
    assert doctor_checks.check_server(Controller(""), ()).state == "warn"


def test_launcher_that_others_could_change_is_bad(tmp_path: pathlib.Path) -> None:
    owner = tmp_path.stat().st_uid
    for name, mode in (("prolog", 0o755), ("epilog", 0o755)):
        (tmp_path / name).touch(mode)
        (tmp_path / name).chmod(mode)
    assert doctor_checks.check_hooks(tmp_path, owner).state == "ok"
    (tmp_path / "epilog").chmod(0o777)
    assert "epilog could be changed by others" in doctor_checks.check_hooks(tmp_path, owner).problem


class Node:
    """A node with our launchers, and what its Slurm says."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.owner = place.stat().st_uid
        self.text = CONFIG.replace("/etc/vtorque/slurm", str(place))
        for name in doctor_checks.LAUNCHERS:
            (place / name).write_text("#!/bin/sh\n")
            (place / name).chmod(0o755)

    def look(self, features: tuple[str, ...] = (), name: str = "cn1", host: str = "", **policy: object) -> Finding:
        node = BatchNode(name, frozenset({"free"}), 2, 1000, frozenset(features), "")
        batch = Controller(self.text)
        batch.nodes = lambda: (node,)  # type: ignore[method-assign]
        given = Policy(batch_system="slurm", **policy)  # type: ignore[arg-type]
        return doctor_checks.check_hooks(self.place, self.owner, batch=batch, policy=given, node=host or name)


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "remedy"),
    [
        ("= Alloc,Contain", "= (null)", "PrologFlags=Alloc,Contain"),
        ("= 360 sec", "= 300 sec", "BatchStartTimeout=320"),
        ("= 65534", "= 310", "PrologEpilogTimeout=320"),
        ("= Match", "= Different Ours=0x1 Slurmctld=0x2", "copy the controller's"),
        ("/epilog", "/of-the-site", "write Epilog="),
        ("/prolog\n", "/prolog.d/*\n", "write Prolog="),
    ],
)
def test_setting_that_does_not_suit_the_nodes_policy_is_named_with_its_line(
    node: Node, old: str, new: str, remedy: str
) -> None:
    assert node.look(prologue_timeout=300).state == "ok"
    node.text = node.text.replace(old, new)
    finding = node.look(prologue_timeout=300)
    assert finding.state == "bad"
    assert remedy in finding.remedy


def test_prolog_of_the_site_that_calls_ours_is_well(node: Node) -> None:
    directory = node.place / "prolog.d"
    directory.mkdir()
    (directory / "50-vm").symlink_to(node.place / "prolog")
    (node.place / "own").write_text(f"#!/bin/sh\n{node.place}/epilog || exit 1\n")
    node.text = node.text.replace("/prolog\n", "/prolog.d/*\n").replace("/epilog\n", "/own\n")
    assert f"{directory}/*" in node.text
    assert f"{node.place}/own\n" in node.text
    assert node.look().state == "ok"


def test_shared_node_without_cpusets_is_bad(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = {"pbs_exclusive_node_alloc": False, "kill_user_processes_after_job": False}
    monkeypatch.setattr(hook_calls, "CONFIGURATIONS", (node.place / "slurm.conf",))
    (node.place / "slurm.conf").write_text("TaskPlugin=task/cgroup,task/affinity\n")
    (node.place / "cgroup.conf").write_text("ConstrainCores=yes\n")
    assert node.look(**shared).state == "ok"
    (node.place / "cgroup.conf").write_text("ConstrainCores=no\n")
    assert node.look().state == "ok"
    finding = node.look(**shared)
    assert finding.state == "bad"
    assert "ConstrainCores=yes" in finding.remedy


def test_node_without_the_feature_of_vm_jobs_is_bad(node: Node) -> None:
    assert node.look(("vm",), vm_node_property="vm").state == "ok"
    finding = node.look(("fast",), vm_node_property="vm")
    assert (finding.state, "Features=vm to NodeName=cn1" in finding.remedy) == ("bad", True)


def test_controller_that_is_silent_is_not_the_nodes_fault(node: Node) -> None:
    node.text = ""
    assert node.look().state == "warn"


@pytest.mark.parametrize("path", ["docs/admin/slurm.md", "templates/batch/slurm/vtorque_job_submit.lua.j2"])
def test_lines_that_call_the_module_are_those_of_the_manual(path: str) -> None:
    text = (COLLECTION_DIR.parent / path).read_text(encoding="utf-8")
    module = doctor_checks.PLACE / "vtorque_job_submit.lua"
    assert all(line.format(module) in text for line in doctor_checks.CALL)
