# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles do on hosts of an OpenPBS site, by Ansible itself: commands of OpenPBS are stand-ins."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.openpbs import doctor_checks, hook_calls
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

from . import playing
from .playing import ROLES

PRINTED = "#\n# Create and define resource vtorque\n#\ncreate resource vtorque\nset resource vtorque type = string\n"
OURS = {"Jobs": {"7.p0": {"job_state": "Q", "Resource_List": {"ncpus": 1, "vtorque": "vtorque:eyJ"}}}}
BARE = {"Jobs": {"8.p0": {"job_state": "R", "Job_Name": "vtorque:", "Resource_List": {"ncpus": 1}}}}
QSUB = {"stdout": '{"faults": []}', "rc": 0}


def play(place: pathlib.Path, role: str, tasks: list[t.Any], **variables: t.Any) -> tuple[bool, list[dict[str, t.Any]]]:
    """See `playing.play`."""
    return playing.play("openpbs", place, role, tasks, **variables)


def included(role: str, name: str) -> dict[str, t.Any]:
    """See `playing.included`."""
    return playing.included("openpbs", role, name)


def command(place: pathlib.Path, name: str, text: str, status: int = 0) -> None:
    (place / f"{name}.answer").write_text(text)
    (place / name).write_text(
        f'#!/bin/sh\necho "{name} $*" >>{place}/asked\ncat {place}/{name}.answer\nexit {status}\n'
    )
    (place / name).chmod(0o755)


@pytest.mark.parametrize("printed", ["", PRINTED])
def test_front_end_gets_the_hook_and_the_lines_that_import_it(tmp_path: pathlib.Path, printed: str) -> None:
    command(tmp_path, "qmgr", printed)
    files = {"mikelangelo.vtorque.host_files": {"entries": "{{ __frontend_batch_entries }}"}}
    gone = {"mikelangelo.vtorque.host_files": {"entries": "{{ __frontend_batch_removed }}"}}
    asked = {"__common_answers": {"answers": {"qsub": QSUB}}}
    arguments = {"ansible.builtin.debug": {"msg": "{{ __frontend_words }}"}}
    there = {"ansible.builtin.slurp": {"src": "{{ __frontend_openpbs_place }}/vtorque_hook.py"}}
    place = {"ansible.builtin.set_fact": {"__frontend_openpbs_place": str(tmp_path / "openpbs")}}
    good, results = play(
        tmp_path, "frontend", [place, included("frontend", "check.yml"), files, there, arguments, gone], **asked
    )
    assert good
    assert not (tmp_path / "openpbs").exists(), "uninstall leaves nothing of it"
    (output,) = (result["msg"] for result in results if "msg" in result)
    hook = tmp_path / "openpbs/vtorque_hook.py"
    assert f"qmgr -c 'import hook vtorque application/x-python default {hook}'" in output
    assert f"qmgr -c 'set hook vtorque alarm = {300 + hook_calls.MARGIN_S}'" in output
    assert (doctor_checks.CREATE in output) == (doctor_checks.RESOURCE in output) == (not printed)
    assert (tmp_path / "asked").read_text() == "qmgr -c print resource vtorque\n", "nothing is written into a server"


def test_the_hook_of_a_front_end_is_the_one_that_the_doctor_expects() -> None:
    text = (ROLES / "frontend/vars/batch/openpbs.yml").read_text(encoding="utf-8")
    assert 'values: {prefix: "{{ common_configuration.policy.prefix_nodes }}"}' in text
    assert "template: batch/openpbs/vtorque_hook.py.j2" in text
    assert tuple(yaml.safe_load(text)["__frontend_openpbs_events"]) == doctor_checks.EVENTS
    assert str(pathlib.PurePath(doctor_checks.PLACE).parent) in text
    assert Policy().prefix_nodes in doctor_checks.expected_hook(Policy().prefix_nodes)


@pytest.mark.parametrize(
    ("answer", "status", "good"),
    [(json.dumps(OURS), 0, False), (json.dumps(BARE), 0, True), ("", 0, True), ("", 111, False)],
    ids=["ours", "bare", "none", "silent"],
)
def test_nothing_is_taken_away_under_jobs(tmp_path: pathlib.Path, answer: str, status: int, good: bool) -> None:
    command(tmp_path, "qstat", answer, status)
    assert play(tmp_path, "frontend", [included("frontend", "idle.yml")])[0] == good


@pytest.mark.parametrize("here", [True, False])
def test_node_without_a_mom_of_openpbs_is_refused(tmp_path: pathlib.Path, here: bool) -> None:
    if here:
        (tmp_path / "pbs/mom_priv").mkdir(parents=True)
    command(tmp_path, "qsub", "")
    ask = {"mikelangelo.vtorque.host_info": {"questions": "{{ questions }}"}, "register": "__common_answers"}
    output = {"ansible.builtin.debug": {"msg": "{{ __compute_node_batch_faults }}"}}
    wanted = "{{ __compute_node_batch_questions | dict2items | rejectattr('key', 'eq', 'jobs') | items2dict"
    jobs = wanted + " | combine({'jobs': {'argv': ['true']}}) }}"
    good, results = play(tmp_path, "compute_node", [ask, included("compute_node", "check.yml"), output], questions=jobs)
    assert good
    (faults,) = (result["msg"] for result in results if "msg" in result)
    assert bool(faults) == (not here)
    assert here or "vtorque_torque_home must name PBS_HOME" in faults[0]


@pytest.mark.parametrize("hook", [True, False])
def test_node_says_how_the_server_forgets_the_hook(tmp_path: pathlib.Path, hook: bool) -> None:
    (tmp_path / "pbs/mom_priv/hooks").mkdir(parents=True)
    if hook:
        (tmp_path / "pbs/mom_priv/hooks/vtorque.HK").touch()
    tasks = [included("compute_node", name) for name in ("hooks.yml", "hooks_absent.yml", "property_absent.yml")]
    good, results = play(
        tmp_path, "compute_node", tasks, __compute_node_property="vm", ansible_facts={"hostname": "p1"}
    )
    assert good
    output = " ".join(str(result["msg"]) for result in results if "msg" in result)
    assert ("delete hook vtorque" in output) == hook
    assert "unset node p1 resources_available.vm" in output
