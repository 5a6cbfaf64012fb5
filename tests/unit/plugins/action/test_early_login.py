# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For which jobs `job_guests` begins the connection of the job's shell, and with what."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.action import job_guests, job_plan, job_record
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import job_snapshot
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import JobPlan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request, parse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import records
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_id
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import node_settings
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart import early_login, early_ssh
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.job_actions import node_connection

from .task import FACTS, JOB, OWNER, START, Node, act, good

REQUEST = parse([("img=tiny", "-vm")])
SCRIPTED = dataclasses.replace(
    REQUEST, values={**REQUEST.values, "vm_prologue": "/home/alice/p"}, digests={"vm_prologue": "a" * 64}
)
ADDING = dataclasses.replace(
    REQUEST, values={**REQUEST.values, "metadata": "/home/alice/m"}, digests={"metadata": "a" * 64}
)

REFUSED = {"ok": False, "error": {"fault": "site", "what": "the site's prologue in guest vn1-3", "why": "status 3"}}


class Begun(t.NamedTuple):
    """What was begun."""

    record: records.ReadyRecord
    directory: pathlib.Path
    owner: messages.Owner


class Place(t.NamedTuple):
    """Where the site keeps its own scripts, and its configuration: none of them is where it is by default."""

    guest_hooks: pathlib.Path
    mom_priv: pathlib.Path
    config: pathlib.Path

    def configure(self, **settings: object) -> None:
        self.config.write_text(json.dumps({"torque_home": str(self.mom_priv.parent), **settings}))
        self.config.chmod(0o644)


@pytest.fixture(autouse=True)
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path / "guest-hooks", tmp_path / "torque/mom_priv", tmp_path / "site/vtorque.yml")
    for path in (found.guest_hooks, found.mom_priv, found.config.parent):
        path.mkdir(parents=True)
    found.configure()

    def settings_of(policy: Policy, node_name: str) -> NodeSettings:
        settings = node_settings.settings_of(policy, node_name)
        return dataclasses.replace(settings, guest_hooks_dir=found.guest_hooks)

    monkeypatch.setattr(early_login, "settings_of", settings_of)
    return found


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Begun]:
    found: list[Begun] = []
    monkeypatch.setattr(early_ssh, "begin", lambda *given: found.append(Begun(*given)))
    monkeypatch.setenv("VTORQUE_SHELL", str(process_id.ProcessId.of(os.getpid())))
    return found


def keep_job(run_dir: pathlib.Path, request: Request, *, interactive: bool = False, **resources: str) -> None:
    """What the hook has kept of the server's word."""
    empty: dict[str, t.Any] = {field.name: "" for field in dataclasses.fields(BatchJob)}
    report = {"job_id": JOB, "slot_hosts": (), "x": request.encode(), "interactive": interactive, "start_count": START}
    report["resource_list"] = resources
    job_snapshot.save_snapshot(BatchJob(**{**empty, **report}), run_dir)


@pytest.mark.usefixtures("plan")
def test_batch_job_is_reached_before_its_shell_is_there(
    run_dir: pathlib.Path, begun: list[Begun], place: Place
) -> None:
    """By the same record that the shell will find, and with the files that it names."""
    keep_job(run_dir, REQUEST)
    assert act(job_guests, run_dir, Node(good(FACTS)), timeout=77, config=str(place.config))["changed"]
    (one,) = begun
    assert (one.directory, one.owner) == (run_dir, OWNER)
    assert (run_dir / "job_key").exists()
    assert (run_dir / "known_hosts").exists()
    assert not (run_dir / "ready.json").exists()
    act(job_record, run_dir, records_dir=str(run_dir.parents[1] / "records"))
    assert records.ReadyRecord.from_dict(files.read_json(run_dir / "ready.json")) == one.record


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize(
    ("request_of_job", "interactive"),
    [
        pytest.param(REQUEST, True, id="a terminal"),
        pytest.param(SCRIPTED, False, id="a script of the user's first"),
        pytest.param(ADDING, False, id="commands of the user first"),
    ],
)
def test_others_wait_for_their_shell(
    run_dir: pathlib.Path, begun: list[Begun], request_of_job: Request, interactive: bool, place: Place
) -> None:
    keep_job(run_dir, request_of_job, interactive=interactive)
    assert act(job_guests, run_dir, Node(good(FACTS)), timeout=77, config=str(place.config))["changed"]
    assert begun == []
    assert not (run_dir / "job_key").exists()


@pytest.mark.usefixtures("plan")
def test_script_of_the_users_on_the_node_goes_first(run_dir: pathlib.Path, begun: list[Begun], place: Place) -> None:
    """It may change the start files of a home that the guest shares."""
    keep_job(run_dir, REQUEST, prologue="node-pro")
    assert act(job_guests, run_dir, Node(good(FACTS)), timeout=77, config=str(place.config))["changed"]
    assert begun == []


@pytest.mark.usefixtures("plan")
def test_site_script_for_users_delays_the_login(run_dir: pathlib.Path, begun: list[Begun], place: Place) -> None:
    (place.mom_priv / "prologue.user").touch()
    keep_job(run_dir, REQUEST)
    assert act(job_guests, run_dir, Node(good(FACTS)), timeout=77, config=str(place.config))["changed"]
    assert begun == []


@pytest.mark.usefixtures("plan", "begun")
@pytest.mark.parametrize("updates", [False, True])
def test_sites_configuration_is_opened_once(
    run_dir: pathlib.Path, place: Place, updates: bool, opened: t.Callable[[pathlib.Path], int]
) -> None:
    place.configure(security_updates=updates)
    keep_job(run_dir, REQUEST)
    act(job_guests, run_dir, Node(good(FACTS)), timeout=77, config=str(place.config))
    assert opened(place.config) == 1


def test_updates_may_change_what_a_login_meets(place: Place) -> None:
    """As a prologue of the site's may: an sshd of a new version is started anew."""
    assert not early_login.site_speaks_first(policy_file.load(place.config))
    place.configure(security_updates=True)
    assert early_login.site_speaks_first(policy_file.load(place.config))


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize("name", ["prologue", "prologue.parallel", "updates"])
def test_sites_prologue_in_guests_ends_before_the_login_begins(
    run_dir: pathlib.Path, begun: list[Begun], place: Place, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The node's second answer comes after it."""
    heard: list[str] = []
    hear = node_connection.read_replies

    def noted(*given: t.Any, **named: t.Any) -> t.Any:
        assert begun == []
        heard.append("an answer")
        return hear(*given, **named)

    monkeypatch.setattr(job_guests, "read_replies", noted)
    if name == "updates":
        place.configure(security_updates=True)
    else:
        (place.guest_hooks / name).touch()
    keep_job(run_dir, REQUEST)
    assert act(job_guests, run_dir, Node(good(FACTS)), timeout=77, config=str(place.config))["changed"]
    assert (len(heard), len(begun)) == (2, 1)


@pytest.mark.usefixtures("plan")
def test_start_that_the_sites_prologue_refuses_has_no_login(
    run_dir: pathlib.Path, begun: list[Begun], place: Place
) -> None:
    (place.guest_hooks / "prologue").touch()
    keep_job(run_dir, REQUEST)
    assert act(
        job_guests, run_dir, Node(good(FACTS), join={**good(), **REFUSED}), timeout=77, config=str(place.config)
    )["failed"]
    assert begun == []


@pytest.mark.usefixtures("plan")
def test_without_a_hook_nothing_is_begun(
    run_dir: pathlib.Path, begun: list[Begun], monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """A playbook that somebody plays by hand has no shell that could use it."""
    monkeypatch.delenv("VTORQUE_SHELL")
    keep_job(run_dir, REQUEST)
    act(job_guests, run_dir, Node(good(FACTS)), timeout=77, config=str(place.config))
    assert begun == []


@pytest.mark.usefixtures("begun")
def test_login_that_cannot_begin_fails_no_start(
    run_dir: pathlib.Path, plan: JobPlan, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    def fail(*_given: object) -> t.NoReturn:
        raise OSError("no FIFO can be made")

    monkeypatch.setattr(early_ssh, "begin", fail)
    keep_job(run_dir, REQUEST)
    assert act(job_guests, run_dir, Node(good(FACTS)), timeout=77, config=str(place.config))["guests"].keys() == set(
        plan.parts
    )


def test_playbook_gives_each_step_the_configuration_that_it_was_given() -> None:
    plays = yaml.safe_load((templates.COLLECTION_DIR.parent / "playbooks/prologue.yml").read_text())
    steps = {name: arguments for task in plays[0]["tasks"] for name, arguments in task.items() if "." in name}
    for module in (job_plan, job_guests, job_record):
        given = steps[f"mikelangelo.vtorque.{module.__name__.rpartition('.')[2]}"].get("config")
        assert given == ("{{ vtorque_config }}" if "config" in module.ActionModule.SPEC else None)
    assert "config" in job_guests.ActionModule.SPEC
