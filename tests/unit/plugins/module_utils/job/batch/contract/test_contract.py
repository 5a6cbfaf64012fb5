# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every batch system's adapter keeps of the contract (docs/adr/0028-contract-of-a-batch-system.md)."""

from __future__ import annotations

import os
import pathlib
import re
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resolve import Offers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.submission import (
    Site,
    Submission,
    prepare,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import liveness, registry
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import (
    NOTE_PREFIX,
    BatchSystem,
    UnknownJob,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import HookEnd, Role
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.own_job import JobId
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.batch_systems import (
    BATCH_SYSTEMS,
    commands_parameter,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import PARAMETERS, Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import RequestErrors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.shell.environment import guest_variables
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.records import ReadyGuest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import CHECKS, Finding
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import JOB_ID
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import settings_of

from .material import Material

NOW = 1_000_000.0
"""Seconds of the monotonic clock."""


@pytest.fixture
def batch(material: Material) -> BatchSystem:
    return registry.open_batch(material.policy, timeout_s=20.0)


def test_systems_of_the_registry_are_those_of_the_parameter() -> None:
    parameter = PARAMETERS["batch_system"]
    assert [parameter.kind.read(system) for system in registry.SYSTEMS] == list(registry.SYSTEMS)
    assert Policy().batch_system in registry.SYSTEMS
    assert list(BATCH_SYSTEMS) == list(registry.SYSTEMS), "the configuration knows each"
    for open_part in (
        registry.open_hooks,
        registry.open_node,
        registry.open_doctor,
        registry.open_shell,
        registry.open_front,
        registry.open_guest,
    ):
        with pytest.raises(SiteFault, match="batch_system 'sge'"):
            open_part("sge")


@pytest.mark.parametrize("role", Role)
def test_recorded_call_of_a_hook_is_read(material: Material, role: Role) -> None:
    call = registry.open_hooks(material.system).read_call(*material.call(role))
    assert (call.role, call.marked, call.job_id, call.user) == (role, True, material.job_id, material.user)
    assert re.fullmatch(JOB_ID, call.job_id)
    assert call.first == role.endswith("-first")
    assert call.mother_superior in ("", material.nodes[0])
    assert call.nodes in ((), material.nodes)
    assert call.exit_status == (material.exit_status if role == Role.END_FIRST else call.exit_status)
    assert call.exit_status is None or role in (Role.END_FIRST, Role.END_OTHER)
    assert call.session == 0 or role == Role.END_FIRST


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("broken", [{"job_id": "../7"}, {"job_id": "7;reboot"}, {"user": "al ice"}, {"user": "-x"}])
def test_call_of_another_form_is_refused(material: Material, role: Role, broken: dict[str, str]) -> None:
    with pytest.raises(VTorqueError, match="not of the form"):
        registry.open_hooks(material.system).read_call(*material.call(role, **broken))


def test_every_end_of_a_hook_has_a_status_and_a_job_that_may_run_has_none(material: Material) -> None:
    status = {end: registry.open_hooks(material.system).exit_status(end) for end in HookEnd}
    assert status[HookEnd.DONE] == 0
    assert status[HookEnd.FAILED] != 0
    assert all(0 <= number < 126 for number in status.values()), "of a shell, or of a signal"


@pytest.mark.parametrize("role", Role)
def test_time_of_a_hook_is_bounded_by_the_systems_own_word(material: Material, role: Role) -> None:
    hooks = registry.open_hooks(material.system)
    limits = hooks.hook_limits(material.policy)
    assert limits.seconds > 0
    assert limits.setting
    assert limits.figure
    assert "321" in limits.remedy(311) or "311" in limits.remedy(311)
    ends = hooks.hook_ends(hooks.read_call(*material.call(role)), material.policy, NOW)
    assert NOW < ends <= NOW + limits.seconds


def test_server_describes_a_job_that_runs(material: Material, batch: BatchSystem) -> None:
    job = batch.job(material.job_id)
    assert (job.job_id, job.euser, job.nodes) == (material.job_id, material.user, material.nodes)
    assert job.start_count >= 0
    assert material.job_id in batch.jobs(material.node)


def test_job_that_the_server_does_not_know_is_told_from_silence(material: Material, batch: BatchSystem) -> None:
    strange = re.sub("^[0-9]+", "99", material.job_id)
    with pytest.raises(UnknownJob):
        batch.job(strange)
    material.server("gone")
    with pytest.raises(SiteFault) as caught:
        batch.job(material.job_id)
    assert not isinstance(caught.value, UnknownJob)


def test_server_that_is_silent_holds_nobody_up(material: Material) -> None:
    material.server("silent")
    began = time.monotonic()
    for batch in (
        registry.open_batch(material.policy, timeout_s=0.2),
        registry.open_batch(material.policy, deadline=Deadline.after(0.2)),
        registry.open_batch(material.policy, deadline=Deadline.after(-1.0)),
    ):
        with pytest.raises(SiteFault):
            batch.job(material.job_id)
    assert time.monotonic() - began < 30, "a stand-in sleeps for a minute"


@pytest.mark.parametrize("job_id", ["", "7", "../7.th", "7.th;reboot", "-x", "7.th 8.th"])
def test_text_that_is_no_job_id_reaches_no_command(material: Material, batch: BatchSystem, job_id: str) -> None:
    for ask in (batch.job, batch.hold, batch.delete):
        with pytest.raises(SiteFault, match="job id"):
            ask(job_id)
    assert material.read_orders() == []


def test_node_goes_offline_with_our_note_and_comes_back(material: Material, batch: BatchSystem) -> None:
    note = "bridge: br0 is missing (job 7.th)"
    seen = batch.offline(material.node, note)
    assert (seen.name, seen.offline) == (material.node, True)
    assert seen.note == batch.note(material.node) == NOTE_PREFIX + note
    assert not batch.clear(material.node, "another")
    assert batch.node(material.node).offline
    assert batch.clear(material.node, note)
    assert (batch.node(material.node).offline, batch.note(material.node)) == (False, "")


def test_note_of_an_administrator_is_left_alone(material: Material, batch: BatchSystem) -> None:
    material.write_note("fan")
    assert batch.offline(material.node, "bridge: br0 is missing").note == "fan"
    assert not batch.clear(material.node, "bridge: br0 is missing")
    assert batch.note(material.node) == "fan"
    assert material.read_orders() == []


def test_note_is_one_line_that_a_server_cannot_misread(material: Material, batch: BatchSystem) -> None:
    seen = batch.offline(material.node, "disk:\nn\x1b[2J " + "x" * 5000)
    assert seen.note.startswith(f"{NOTE_PREFIX}disk: n")
    assert seen.note.isprintable()
    assert len(seen.note) <= 1024


def test_order_that_was_not_carried_out_is_a_fault(material: Material, batch: BatchSystem) -> None:
    material.server("deaf")
    with pytest.raises(SiteFault):
        batch.offline(material.node, "bridge: br0 is missing")
    with pytest.raises(SiteFault):
        batch.hold(material.job_id)
    assert len(material.read_orders()) == 2, "each was tried once"


def test_job_is_held_so_that_its_owner_can_release_it(material: Material, batch: BatchSystem) -> None:
    batch.hold(material.job_id)
    assert batch.job(material.job_id).hold_types not in ("", "n")


def test_job_that_a_user_names_is_found(material: Material, batch: BatchSystem) -> None:
    for named in (material.job_id, material.display_id, material.job_id.partition(".")[0]):
        assert batch.find_id(named) == material.job_id
    assert all(material.display_id.partition(".")[0] in question for question in material.read_questions())


@pytest.mark.parametrize("named", ["", "x", "../7", "7;reboot", "-x", "7 8", "7[", "7_", "7[x]"])
def test_text_that_names_no_job_reaches_no_command(material: Material, batch: BatchSystem, named: str) -> None:
    with pytest.raises(SiteFault, match="job id"):
        batch.find_id(named)
    assert material.read_questions() == []


@pytest.mark.parametrize("named", ["99", "99[1]"])
def test_name_of_no_job_is_told_from_silence(material: Material, batch: BatchSystem, named: str) -> None:
    with pytest.raises(UnknownJob):
        batch.find_id(named)
    material.server("gone")
    with pytest.raises(SiteFault) as caught:
        batch.find_id(named)
    assert not isinstance(caught.value, UnknownJob)


def test_question_about_one_job_never_costs_the_whole_queue(material: Material, batch: BatchSystem) -> None:
    """A site may have fifty thousand jobs, and a verdict two seconds."""
    job = batch.job(material.job_id)
    batch.start_state(material.job_id, job.start_count)
    batch.comment(material.job_id, "vtorque: held")
    batch.requeue(material.job_id)
    batch.hold(material.job_id)
    batch.release_command(material.job_id)
    batch.delete(material.job_id)
    lives = liveness.by_server(liveness.JobAnswers(registry.open_batch(material.policy, timeout_s=20.0)), material.node)
    lives(material.job_id, job.start_count)
    questions = material.read_questions()
    assert len(questions) >= 3
    assert all(material.display_id in question.split() for question in questions)


def test_owner_of_a_held_job_is_told_a_command_with_its_own_id(material: Material, batch: BatchSystem) -> None:
    assert batch.display_id(material.job_id) == material.display_id
    program, *arguments = batch.release_command(material.job_id).split()
    assert program
    assert material.display_id in arguments


def test_text_that_is_no_job_id_is_not_queued_again(material: Material, batch: BatchSystem) -> None:
    batch.requeue(material.job_id)
    with pytest.raises(SiteFault, match="job id"):
        batch.requeue("../7")


def test_job_id_of_a_recorded_call_is_one_of_the_product(material: Material) -> None:
    call = registry.open_hooks(material.system).read_call(*material.call(Role.BEGIN_FIRST))
    assert str(JobId.parse(call.job_id)) == call.job_id


@pytest.mark.parametrize(
    ("text", "number", "member", "array"),
    [("4711.head", 4711, None, ""), ("72[1].head.example", 72, 1, "72[].head.example"), ("7[0].x", 7, 0, "7[].x")],
)
def test_job_id_is_read_and_written(text: str, number: int, member: int | None, array: str) -> None:
    job_id = JobId.parse(text)
    assert (job_id.number, job_id.member, job_id.array, str(job_id)) == (number, member, array, text)


@pytest.mark.parametrize("text", ["", "7", "7.", "7[].head", "7[1.head", "x.head", "7.he ad", "7.head\n"])
def test_text_of_another_form_is_no_job_id(text: str) -> None:
    with pytest.raises(SiteFault, match="job id"):
        JobId.parse(text)


def test_traces_of_a_job_tell_that_it_lives_here(material: Material) -> None:
    node = registry.open_node(material.system)
    other = re.sub("^[0-9]+", "99", material.job_id)
    assert node.is_node(material.policy)
    assert not node.alive_here(material.policy)(material.job_id)
    material.leave_traces()
    assert node.alive_here(material.policy)(material.job_id)
    assert not node.alive_here(material.policy)(other)
    assert node.others_here(material.policy, material.job_id) == ()
    assert node.others_here(material.policy, other)


def test_plain_job_has_no_program_of_its_user_before_its_shell(material: Material, batch: BatchSystem) -> None:
    assert not registry.open_node(material.system).runs_users_programs_first(
        batch.job(material.job_id), material.policy
    )


def test_node_whose_traces_cannot_be_read_does_not_guess(material: Material) -> None:
    node = registry.open_node(material.system)
    material.hide_traces()
    with pytest.raises(SiteFault):
        node.alive_here(material.policy)(material.job_id)
    with pytest.raises(SiteFault):
        node.others_here(material.policy, material.job_id)


@pytest.fixture
def own_input() -> t.Iterator[None]:
    """Standard input is as it was afterwards."""
    former = os.dup(0)
    yield
    os.dup2(former, 0)
    os.close(former)


@pytest.mark.usefixtures("own_input")
def test_shell_of_a_batch_job_finds_its_script_and_its_id(material: Material) -> None:
    shell = registry.open_shell(material.system)
    script = shell.read_script(material.offer_script(b"#!/bin/sh\nexit 7\n"))
    assert script.content == b"#!/bin/sh\nexit 7\n"
    assert script.path.startswith(b"/")
    assert script.by_login_shell == bool(script.line)
    assert shell.job_id_of(material.environment) == material.job_id
    assert shell.job_id_of({}) == ""
    assert shell.own_job(material.environment) is None, "root noted nothing of this process"


def test_shell_that_is_started_by_hand_is_told_from_a_job(material: Material) -> None:
    shell = registry.open_shell(material.system)
    with pytest.raises(VTorqueError):
        shell.read_command(["what", "is", "this"])
    assert shell.read_command([]) == b""


def test_variables_of_a_guest_count_guests_and_name_nothing_of_the_node(material: Material) -> None:
    shell = registry.open_shell(material.system)
    guest = guest_variables(shell, material.environment, (ReadyGuest(0, "v1-1", "n1", "10.0.0.1", vcpus=3),))
    assert not set(shell.NODE_PATHS) & set(guest)
    assert shell.counts(processors=3, hosts=1, first=3).items() <= guest.items()
    assert guest[b"HYDRA_BOOTSTRAP"] == guest[b"I_MPI_HYDRA_BOOTSTRAP"] == b"ssh"
    theirs = guest_variables(shell, {**material.environment, b"HYDRA_BOOTSTRAP": b"fork"}, ())
    assert theirs[b"HYDRA_BOOTSTRAP"] == b"fork"
    assert shell.display_of({b"DISPLAY": b"elsewhere:0"}) == ""
    assert shell.start_directory({}, "/home/alice") == b""
    assert shell.rename_directories({}, b"/home/alice") == {}


def test_script_that_a_hook_starts_gets_the_variables_that_root_knows(material: Material, batch: BatchSystem) -> None:
    shell = registry.open_shell(material.system)
    known = shell.variables_of_root(batch.job(material.job_id), material.policy)
    assert shell.job_id_of({os.fsencode(name): os.fsencode(value) for name, value in known.items()}) == material.job_id
    assert all(known.values())
    assert any(map(shell.is_submitted, known)) or not known
    assert not all(map(shell.is_submitted, known))
    assert shell.script_path(material.policy, "x").startswith("/")


def test_file_with_the_nodes_of_a_job_is_believed_only_where_the_server_says_the_same(material: Material) -> None:
    node, hosts = registry.open_node(material.system), [host for host in material.nodes for _slot in range(2)]
    if node.node_file(material.policy, material.job_id) is None:
        assert material.node_file == ""
        return
    node.check_node_file(material.node_file, hosts)
    for forged in ("", material.node_file.replace(material.nodes[1], "elsewhere"), "\n".join(reversed(hosts))):
        with pytest.raises(UserFault, match="not the batch server's"):
            node.check_node_file(forged, hosts)


@pytest.mark.parametrize("thorough", [False, True])
def test_checks_of_the_doctor_are_listed_and_answer(material: Material, thorough: bool) -> None:
    doctor = registry.open_doctor(material.system)
    checks = doctor.node_checks(material.policy, material.node, owner_uid=0, thorough=thorough)
    assert set(checks) <= set(CHECKS)
    for name, check in checks.items():
        finding = check()
        assert isinstance(finding, Finding)
        assert finding.check == name
        assert finding.state != "ok", "nothing is installed here"


def test_job_that_nobody_wrote_down_is_unknown(material: Material) -> None:
    with pytest.raises(UnknownJob):
        registry.find_past_job(material.policy, material.job_id, 1, days=1)


def test_command_that_is_not_there_is_a_fault_with_the_parameter_to_mend(material: Material) -> None:
    tools = pathlib.Path("/nowhere")
    with pytest.raises(SiteFault, match="cannot be run") as raised:
        registry.open_commands(material.system, tools).job(material.job_id)
    assert commands_parameter(material.system) in raised.value.hint


POLICY = Policy(img_default="tiny", distro_default="debian", vcpus_default=2, ram_default=512)


def unread() -> bytes:
    raise AssertionError("the script does not stand on standard input")


def submission(material: Material, arguments: list[str]) -> Submission:
    asked = registry.open_front(material.system).read_call(arguments, {}).read_script(unread)
    return prepare(asked, POLICY, Site(Offers(None), {}, lambda _queue: ()), "/home/alice")


def test_command_that_takes_jobs_is_beside_the_sites_qsub(material: Material) -> None:
    front = registry.open_front(material.system)
    path = pathlib.Path(front.command_path("/opt/bin/qsub"))
    assert (path.parent, path.name) == (pathlib.Path("/opt/bin"), front.COMMAND)
    assert registry.submit_command(material.policy, front_end=True) == front.command_path(
        material.policy.pbs_qsub_on_fe
    )
    assert front.USAGE.startswith(f"usage: {front.PROGRAM} ")


def test_request_of_the_command_line_counts_over_that_of_the_script(material: Material, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{material.vm_line} vcpus=3,ram=1G\ntrue\n{material.vm_line} vcpus=9\n")
    arguments = ["-vm", "vcpus=5", str(script)]
    asked = registry.open_front(material.system).read_call(arguments, {}).read_script(unread)
    assert asked.vm_lines == (2,)
    (text, origin), _own = (layer[0] for layer in asked.layers)
    assert text == "vcpus=3,ram=1G"
    assert origin.endswith("job.sh, line 2")
    command_call = submission(material, arguments).command_call
    request = material.request_in(command_call.argv)
    assert request is not None
    assert request.values == {"vcpus": 5, "ram": 1024}
    assert not {"-vm", "vcpus=5"} & set(command_call.argv)


def test_script_is_read_where_it_stands_and_its_arguments_stay_last(material: Material, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{material.vm_line} vcpus=3\ntrue\n")
    command_call = submission(material, [str(script)]).command_call
    assert command_call.argv[command_call.at] == str(script)
    assert command_call.text is not None
    assert command_call.text.endswith(b"\ntrue\n")
    assert pathlib.Path(command_call.name).name == "job.sh"
    assert command_call.note
    for missing in (str(tmp_path), str(tmp_path / "gone")):
        with pytest.raises(RequestErrors, match="the script"):
            submission(material, [missing])


def test_job_without_machines_is_the_commands_alone(material: Material, tmp_path: pathlib.Path) -> None:
    front, piped = registry.open_front(material.system), b"#!/bin/sh\ntrue\n"
    (tmp_path / "job.sh").write_bytes(piped)
    command_call = front.read_call([str(tmp_path / "job.sh")], {}).read_script(unread).as_it_is()
    assert (command_call.argv, command_call.text) == ((str(tmp_path / "job.sh"),), None)
    command_call = front.read_call([], {}).read_script(lambda: piped).as_it_is()
    assert (command_call.argv, command_call.text, command_call.at) == ((), piped, -1)


def test_our_own_words_are_not_for_the_command(material: Material) -> None:
    call = registry.open_front(material.system).read_call(["--dry-run", "--json", "--query", "a.b", "-q", "fast"], {})
    assert dict(call.own) == {"--dry-run": None, "--json": None, "--query": "a.b"}
    assert (call.argv, call.question) == (("-q", "fast"), False)
    assert "--help" in registry.open_front(material.system).read_call(["--help"], {}).own


def test_request_that_is_wrong_is_told_with_its_place(material: Material, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{material.vm_line} vcpus=many\n")
    with pytest.raises(RequestErrors) as caught:
        submission(material, ["-vm", "img=tiny,ram=x", str(script)])
    places = {fault.key: fault.origin for fault in caught.value.faults}
    assert places["vcpus"].endswith("job.sh, line 2")
    assert places["ram"] == "command line"


def test_terms_are_the_systems_own_and_not_anothers(material: Material) -> None:
    terms = registry.open_terms(material.system)
    names = [name for name in vars(terms) if name.isupper()]
    assert all(getattr(terms, name) for name in names)
    assert "3" in terms.ASK_FOR_HOSTS.format(hosts=3)
    assert terms.ASK_FOR_HOSTS.startswith(terms.HOSTS)
    torques = registry.open_terms("torque")
    assert (terms.ASK_FOR_HOSTS == torques.ASK_FOR_HOSTS) == (material.system == "torque")


def test_table_of_a_guest_names_what_a_job_finds_there(material: Material) -> None:
    table, shell = registry.open_guest(material.system), registry.open_shell(material.system)
    settings = settings_of(material.policy, material.node)
    found = settings.variables_of(material.job_id)
    assert shell.job_id_of({name.encode(): value.encode() for name, value in found.items()}) == material.job_id
    assert f"{settings.torque_home}/aux/{material.job_id}" in found.values()
    assert shell.script_path(material.policy, "x") == f"{settings.torque_home}/{table.GUEST_SCRIPTS}/x"
    for program in table.GUEST_PROGRAMS:
        assert (COLLECTION_DIR / program).read_text(encoding="utf-8").startswith("#!/bin/sh\n")
