# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin: which nodes a job has, in which groups, and how they are reached."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

import pytest
from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible_collections.mikelangelo.vtorque.plugins.inventory import pbs_nodefile
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import job_snapshot
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

CANARY = "$(touch /tmp/canary) {{ lookup('pipe', 'id') }}"
"""Stands wherever the submitter of a job can write; it must not be found in the inventory."""


def job(*exec_host: str, **others: t.Any) -> BatchJob:
    """What a batch server says of a running job, with a hostile submitter."""
    values: dict[str, t.Any] = {field.name: CANARY for field in dataclasses.fields(BatchJob)}
    values |= {"job_id": "4711.head", "slot_hosts": exec_host, "start_count": 2, "state": "R", "session_id": 0}
    values |= {"substate": 41, "interactive": False, "walltime_s": 60, "variables": {"A": CANARY}, "resource_list": {}}
    return BatchJob(**(values | others))


class Server:
    """A batch server that knows one job, or does not answer."""

    def __init__(self, answer: BatchJob | SiteFault) -> None:
        self.answer = answer

    def job(self, job_id: str) -> BatchJob:
        if isinstance(self.answer, SiteFault):
            raise self.answer
        assert job_id == self.answer.job_id
        return self.answer


def new_plugin() -> t.Any:
    """As Ansible's loader makes it."""
    plugin = pbs_nodefile.InventoryModule()
    # the loader's own mark: ansible-core 2.18 gives it no default
    plugin._redirected_names = [plugin.NAME]
    return plugin


@pytest.fixture
def parse(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., InventoryData]:
    """Parse an inventory file; arguments: the batch server's answer, this host's name, the file's options."""

    def run(
        answer: BatchJob | SiteFault | None = None, *, here: str = "n1", where: pathlib.Path = tmp_path, **options: str
    ) -> InventoryData:
        monkeypatch.setattr(pbs_nodefile.socket, "gethostname", lambda: here)
        monkeypatch.setattr(pbs_nodefile.policy_file, "load", lambda path: Policy())
        if answer is not None:
            server = Server(answer)
            monkeypatch.setattr(pbs_nodefile, "open_batch", lambda policy: server)
        source = where / "job.pbs_nodefile.yml"
        lines = [f"{key}: {json.dumps(value)}\n" for key, value in options.items()]
        source.write_text("plugin: mikelangelo.vtorque.pbs_nodefile\n" + "".join(lines))
        plugin = new_plugin()
        plugin._load_name = pbs_nodefile.InventoryModule.NAME
        plugin.set_options = lambda direct=None, **_others: plugin._options.update(  # the loader's part
            {"job_id": None, "nodefile": None, "config": "/etc/vtorque/vtorque.yml"} | dict(direct or {})
        )
        plugin._options = {}
        assert plugin.verify_file(str(source))
        inventory = InventoryData()
        plugin.parse(inventory, DataLoader(), str(source))
        return inventory

    return run


def members(inventory: InventoryData, group: str) -> list[str]:
    return [host.name for host in inventory.groups[group].get_hosts()]


def variables(inventory: InventoryData, host: str) -> dict[str, t.Any]:
    return {key: value for key, value in inventory.hosts[host].vars.items() if not key.startswith("inventory_")}


def nodefile(path: pathlib.Path, *names: str) -> str:
    path.write_text("".join(f"{name}\n" for name in names))
    return str(path)


def test_nodes_of_a_file_need_no_batch_system(parse: t.Any, tmp_path: pathlib.Path) -> None:
    inventory = parse(nodefile=nodefile(tmp_path / "nodes", "n1", "n10", "n1", "n2", "n10"))
    assert members(inventory, "job_nodes") == ["n1", "n10", "n2"]
    assert members(inventory, "mother_superior") == ["n1"]
    assert members(inventory, "sisters") == ["n10", "n2"]
    assert [variables(inventory, name)["vtorque_rank"] for name in ("n1", "n10", "n2")] == [0, 1, 2]
    assert variables(inventory, "n10") == {"ansible_connection": "ssh", "vtorque_rank": 1}


def test_one_node_has_no_sisters(parse: t.Any, tmp_path: pathlib.Path) -> None:
    inventory = parse(nodefile=nodefile(tmp_path / "nodes", "n1"))
    assert members(inventory, "sisters") == []


@pytest.mark.parametrize(
    ("here", "node", "connection"),
    [
        ("n1", "n1", "local"),
        ("n1.cluster.example", "n1", "local"),
        ("n1", "n1.cluster.example", "local"),
        ("N1.Cluster.Example", "n1.cluster.example", "local"),
        ("n1", "n10", "ssh"),
        ("n10", "n1", "ssh"),
        ("n1.one.example", "n1.two.example", "ssh"),
    ],
)
def test_inventory_reaches_this_machine_without_a_connection(
    parse: t.Any, tmp_path: pathlib.Path, here: str, node: str, connection: str
) -> None:
    inventory = parse(here=here, nodefile=nodefile(tmp_path / "nodes", node))
    assert variables(inventory, node)["ansible_connection"] == connection


def test_a_host_under_its_short_and_its_full_name_is_one(parse: t.Any, tmp_path: pathlib.Path) -> None:
    inventory = parse(nodefile=nodefile(tmp_path / "nodes", "n1.cluster", "n2", "n1", "n1.other"))
    assert members(inventory, "job_nodes") == ["n1.cluster", "n2", "n1.other"]


def test_nodes_of_a_job_come_from_the_server(parse: t.Any) -> None:
    inventory = parse(job("n2", "n2", "n1"), here="n2", job_id="4711.head")
    assert members(inventory, "mother_superior") == ["n2"]
    assert variables(inventory, "n1") == {
        "ansible_connection": "ssh",
        "vtorque_rank": 1,
        "vtorque_job_id": "4711.head",
        "vtorque_start": 2,
        "vtorque_run_dir": "/run/vtorque/jobs/4711.head.2",
        "vtorque_config": "/etc/vtorque/vtorque.yml",
    }


def test_nothing_that_the_submitter_wrote_is_a_variable(parse: t.Any) -> None:
    inventory = parse(job("n1", "n2"), job_id="4711.head")
    assert "canary" not in repr([host.vars for host in inventory.hosts.values()])
    assert "canary" not in repr([(group.name, group.vars) for group in inventory.groups.values()])


def test_directory_of_this_start_is_kept(parse: t.Any, tmp_path: pathlib.Path) -> None:
    where = run_directory(tmp_path, start=2)
    inventory = parse(job("n1"), where=where, job_id="4711.head")
    assert variables(inventory, "n1")["vtorque_run_dir"] == str(where)


@pytest.mark.parametrize("lines", [("n1", "evil"), ("n1",), ("n10", "n2"), ("n2", "n1")])
def test_a_node_file_that_disagrees_is_refused(parse: t.Any, tmp_path: pathlib.Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(AnsibleParserError, match="BEOWULF_JOB_MAP"):
        parse(job("n1", "n2"), job_id="4711.head", nodefile=nodefile(tmp_path / "nodes", *lines))


def test_node_file_may_say_short_names_for_full_ones(parse: t.Any, tmp_path: pathlib.Path) -> None:
    server = job("n1.cluster", "n2.cluster")
    inventory = parse(server, job_id="4711.head", nodefile=nodefile(tmp_path / "nodes", "n1", "n2"))
    assert members(inventory, "job_nodes") == ["n1.cluster", "n2.cluster"]


@pytest.mark.parametrize(
    ("options", "output"),
    [
        ({}, "name the job, or a file with its nodes"),
        ({"job_id": "4711; id"}, "not of the form"),
        ({"nodefile": "/nonexistent/nodes"}, "No such file"),
    ],
)
def test_inventory_with_faults_names_them(parse: t.Any, options: dict[str, str], output: str) -> None:
    with pytest.raises(AnsibleParserError, match=output):
        parse(**options)


@pytest.mark.parametrize("names", [(), ("n1", "n2;id"), ("{{ x }}",), ("-oProxyCommand=id",)])
def test_node_file_holds_host_names_or_is_refused(parse: t.Any, tmp_path: pathlib.Path, names: tuple[str, ...]) -> None:
    with pytest.raises(AnsibleParserError):
        parse(nodefile=nodefile(tmp_path / "nodes", *names))


def run_directory(place: pathlib.Path, *, start: int) -> pathlib.Path:
    """Of a start of the job, and empty."""
    directory = place / f"4711.head.{start}"
    directory.mkdir()
    return directory


def require_start_2_of_n2(inventory: InventoryData) -> None:
    assert members(inventory, "mother_superior") == ["n2"]
    assert variables(inventory, "n1")["vtorque_start"] == 2


def test_lost_server_leaves_what_root_had_planned(parse: t.Any, tmp_path: pathlib.Path) -> None:
    where = run_directory(tmp_path, start=2)
    plan = {"mother_superior": "n2", "node_parts": [{"node": "n1"}, {"node": "n2"}]}
    (where / "plan.json").write_text(json.dumps(plan))
    (where / "plan.json").chmod(0o400)
    require_start_2_of_n2(parse(SiteFault("qstat", "no answer"), where=where, job_id="4711.head"))


def test_inventory_with_a_saved_answer_asks_no_server(parse: t.Any, tmp_path: pathlib.Path) -> None:
    where = run_directory(tmp_path, start=2)
    job_snapshot.save_snapshot(job("n2", "n1"), where)
    require_start_2_of_n2(parse(SiteFault("qstat", "nobody is to ask"), where=where, job_id="4711.head"))


def test_later_start_elsewhere_is_not_this_ones(parse: t.Any, tmp_path: pathlib.Path) -> None:
    """A node that lost its server ends start 1 while start 2 runs on another one."""
    where = run_directory(tmp_path, start=1)
    with pytest.raises(AnsibleParserError, match="speaks of start 2"):
        parse(job("n9"), where=where, job_id="4711.head")
    (where / "plan.json").write_text(json.dumps({"mother_superior": "n1", "node_parts": [{"node": "n1"}]}))
    (where / "plan.json").chmod(0o400)
    inventory = parse(job("n9"), where=where, job_id="4711.head")
    assert members(inventory, "job_nodes") == ["n1"]
    assert variables(inventory, "n1")["vtorque_start"] == 1


def test_lost_server_without_a_plan_is_an_error(parse: t.Any) -> None:
    with pytest.raises(AnsibleParserError, match="no answer"):
        parse(SiteFault("qstat", "no answer"), job_id="4711.head")


def test_hook_reads_what_was_wrong(parse: t.Any, tmp_path: pathlib.Path) -> None:
    where = run_directory(tmp_path, start=2)
    with pytest.raises(AnsibleParserError):
        parse(SiteFault("qstat", "no answer"), where=where, job_id="4711.head")
    assert json.loads((where / "error.json").read_text())["fault"] == "site"


def test_other_files_are_left_to_others() -> None:
    plugin = new_plugin()
    assert not plugin.verify_file(__file__)
