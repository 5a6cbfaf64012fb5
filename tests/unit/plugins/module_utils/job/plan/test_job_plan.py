# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What root makes of a job that was just started."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission import vcpu_map
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resolve import ImageFacts, Offers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.host_match import same_host
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.mom_files import check_node_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.job_plan import JobPlan, make_plan
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request import attached_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import RequestErrors, parse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError

ALICE = messages.Owner(user="alice", uid=1001, gid=1001, group="alice", home="/home/alice", shell="/bin/bash")
OFFERS = Offers(images=(ImageFacts("debian12@3", "debian", "x86_64"),))
POLICY = Policy(host_os_core_count=1)
X = parse([("img=debian12,vcpus=2,ram=1G", "command line")]).with_shell("/bin/zsh").encode()

JOB = BatchJob(
    job_id="4711.head",
    name="$(reboot);`id`",
    owner_user="alice",
    owner_host="head",
    euser="alice",
    egroup="alice",
    state="R",
    queue="batch",
    slot_hosts=("n1", "n1", "n1"),
    start_count=2,
    x=X,
    jobtype="",
    init_work_dir="/home/alice",
    session_id=0,
    substate=41,
    interactive=False,
    walltime_s=3600,
    variables={},
    submit_args="job.sh",
    resource_list={"nodes": "1:ppn=3", "mem": "100gb"},
    account="'; rm -rf /",
)


def planned(node_file: str = "n1\nn1\nn1\n", policy: Policy = POLICY, **changes: t.Any) -> JobPlan:
    job = dataclasses.replace(JOB, **changes)
    return make_plan(job, policy, OFFERS, node_file=node_file, timeout_s=120.0, find_owner=lambda user, group: ALICE)


def test_plan_holds_one_guest_on_the_jobs_node() -> None:
    plan = planned()
    assert (plan.job_id, plan.start, plan.mother_superior) == ("4711.head", 2, "n1")
    assert (plan.owner, plan.user_shell) == (ALICE, "/bin/zsh")
    assert list(plan.parts) == ["n1"]
    part = plan.parts["n1"]
    assert (part.do, part.job_id, part.start, part.node, part.timeout_s) == ("present", "4711.head", 2, "n1", 120.0)
    (guest,) = part.guests
    assert (guest.rank, guest.index, guest.image, guest.distro) == (0, 0, "debian12@3", "debian")
    assert (guest.vcpus, guest.ram_mib, guest.arch) == (2, 1024, "x86_64")
    assert (guest.hypervisor, guest.fs_type) == ("kvm", "sharedfs")
    assert guest.authorized_key == plan.job_key.public
    assert guest.host_key.public != plan.job_key.public


@pytest.mark.parametrize(("known", "planned_as"), [("/ws/alice", "/ws/alice"), ("", ""), ("ws", ""), ("/a\nb", "")])
def test_plan_has_the_directory_that_the_server_has_of_the_job(known: str, planned_as: str) -> None:
    assert planned(init_work_dir=known).directory == planned_as


def test_plan_has_for_the_record_what_the_guests_live_through() -> None:
    plan = planned(policy=dataclasses.replace(POLICY, suspend_guests="save", home_via="virtiofs"), interactive=True)
    reason = "it mounts a directory of its node by virtiofs"
    assert plan.survival.suspended == f"its guests are paused, and not saved: {reason}"
    assert plan.survival.checkpoint.startswith("no, because ")
    assert f"{reason}; it has a terminal" in plan.survival.checkpoint
    x = parse([("img=debian12,vcpus=2,ram=1G,nodes=1", "command line")]).encode()
    mixed_job = planned("n1\nn1\nn1\nn2\n", x=x, slot_hosts=("n1", "n1", "n1", "n2"))
    assert "some of its hosts stay bare" in mixed_job.survival.moved


def test_request_for_checkpoints_is_refused_by_root_whoever_submitted_it() -> None:
    x = parse([("img=debian12,vcpus=2,ram=1G,checkpoint=on", "command line")]).encode()
    with pytest.raises(RequestErrors, match="checkpoint=on: it mounts a directory of its node by virtiofs"):
        planned(x=x, policy=dataclasses.replace(POLICY, home_via="virtiofs"))


@pytest.mark.parametrize(
    ("text", "minutes"), [("checkpoint=on", 0), ("checkpoint_every=2h", 120), ("checkpoint=off", -1), ("nodes=1", -1)]
)
def test_plan_says_to_nodes_how_often_guests_are_saved(text: str, minutes: int) -> None:
    x = parse([(f"img=debian12,vcpus=2,ram=1G,vcpu_pinning=true,numa=off,{text}", "command line")]).encode()
    plan = planned(x=x, policy=dataclasses.replace(POLICY, checkpoint_dir="/checkpoints"))
    assert plan.parts["n1"].checkpoint_min == minutes


IN_OSV = dataclasses.replace(OFFERS, images=(ImageFacts("osv@1", "osv", "x86_64"),))


def in_osv(text: str = "", shell: str = "", **changes: t.Any) -> JobPlan:
    request = parse([(f"img=osv,vcpus=1,ram=1G{text}", "command line")])
    job = dataclasses.replace(JOB, x=(request.with_shell(shell) if shell else request).encode(), **changes)
    nodes = "".join(f"{node}\n" for node in job.slot_hosts)
    return make_plan(job, POLICY, IN_OSV, node_file=nodes, timeout_s=9.0, find_owner=lambda user, group: ALICE)


def test_job_in_osv_is_one_guest_whoever_asks() -> None:
    """Root decides again what vsub has refused."""
    assert [guest.distro for guest in in_osv().parts["n1"].guests] == ["osv"]
    with pytest.raises(UserFault, match="vms_per_node=2: OSv is one process"):
        in_osv(",vms_per_node=2")
    with pytest.raises(UserFault, match="-l nodes: OSv is one process"):
        in_osv(slot_hosts=("n1", "n1", "n2", "n2"))
    with pytest.raises(UserFault, match="disk=/home/alice/data: nothing in OSv would mount it"):
        in_osv(",disk=/home/alice/data")
    with pytest.raises(UserFault, match="-I: OSv has no shell"):
        in_osv(interactive=True)
    with pytest.raises(UserFault, match="-S: OSv has no shell"):
        in_osv(shell="/bin/zsh")


RDMA_X = parse([("img=debian12,vcpus=2,ram=1G,vrdma=true", "command line")]).encode()


def test_rdma_device_of_each_guest_is_of_the_sites_kind() -> None:
    site = dataclasses.replace(POLICY, vrdma_enabled=True, vrdma_nodes="n[12]")
    plan = planned("n1\n" * 3 + "N2\n" * 3, site, x=RDMA_X, slot_hosts=("n1",) * 3 + ("N2",) * 3)
    assert [guest.rdma for part in plan.parts.values() for guest in part.guests] == ["rxe", "rxe"]
    assert [guest.rdma for guest in planned(policy=site).parts["n1"].guests] == [""]


def test_job_on_a_node_without_rdma_is_refused_by_root_with_its_name() -> None:
    site = dataclasses.replace(POLICY, vrdma_enabled=True, vrdma_nodes="n1")
    with pytest.raises(UserFault, match=r"vrdma=true: no guest of n2 can have one \(vrdma_nodes\)"):
        planned("n1\n" * 3 + "n2\n" * 3, site, x=RDMA_X, slot_hosts=("n1",) * 3 + ("n2",) * 3)


def test_nodes_know_each_other_where_the_job_has_a_network_for_itself() -> None:
    """Bare hosts are not on it, and are told of nobody."""
    mine, fast = "mine vxlan addresses=172.31.0.0/16", "fast bridge bridge=br1 addresses=10.9.0.0/16"
    site = dataclasses.replace(POLICY, networks=(mine, fast))

    def parts(text: str) -> list[tuple[list[str], str]]:
        x = parse([(f"img=debian12,vcpus=2,ram=1G,{text}", "command line")]).encode()
        hosts = ("n1",) * 3 + ("N2",) * 3 + ("n3",) * 3
        plan = planned("\n".join(hosts) + "\n", site, x=x, slot_hosts=hosts)
        return [([guest.networks for guest in part.guests], part.peers) for part in plan.parts.values()]

    assert parts("network=fast+mine") == [(["fast+mine"], "n1 N2 n3")] * 3
    assert parts("network=fast") == [(["fast"], "")] * 3
    assert parts("network=mine,nodes=2") == [(["mine"], "n1 N2")] * 2 + [([], "")]


def test_disk_of_the_users_is_rank_0s_alone() -> None:
    x = parse([("img=debian12,vcpus=1,ram=1G,vms_per_node=2,disk=/home/alice/data", "command line")]).encode()
    plan = planned("n1\n" * 3 + "n2\n" * 3, x=x, slot_hosts=("n1",) * 3 + ("n2",) * 3)
    disks = [guest.data_disk for part in plan.parts.values() for guest in part.guests]
    assert disks == ["/home/alice/data", "", "", ""]


def test_image_of_the_users_goes_to_every_guest_with_its_digest() -> None:
    """The pool is not asked for it."""
    request = parse([("img=/home/alice/$(id) {{7*7}},distro=debian,vcpus=1,ram=1G,vms_per_node=2", "command line")])
    x = dataclasses.replace(request, digests={"img": "ab" * 32}).encode()
    plan = planned(x=x, policy=dataclasses.replace(POLICY, allow_user_images=True))
    guests = [guest for part in plan.parts.values() for guest in part.guests]
    assert [(guest.image, guest.image_digest, guest.own_image) for guest in guests] == [
        ("/home/alice/$(id) {{7*7}}", "ab" * 32, True)
    ] * 2
    with pytest.raises(RequestErrors, match="allow_user_images"):
        planned(x=x)


def test_disk_where_the_site_mounts_something_is_refused() -> None:
    x = parse([("img=debian12,vcpus=1,ram=1G,disk=/home/alice/data", "command line")]).encode()
    with pytest.raises(RequestErrors, match="mounts something of its own on /data"):
        planned(x=x, policy=dataclasses.replace(POLICY, mounts=("fs:/d /data nfs",)))


def test_additions_are_kept_once_and_reach_every_node_with_guests() -> None:
    added = messages.Additions(commands=(messages.Command("id"),))
    job = dataclasses.replace(JOB, slot_hosts=("n1", "n1", "n1", "n2", "n2", "n2", "n3"))
    job = dataclasses.replace(job, x=parse([("img=debian12,vcpus=2,ram=1G,nodes=2", "command line")]).encode())
    plan = make_plan(
        job, POLICY, OFFERS, node_file="n1\n" * 3 + "n2\n" * 3 + "n3\n", timeout_s=120.0,
        find_owner=lambda user, group: ALICE, additions=added,
    )  # fmt: skip
    assert plan.to_json().count('"line"') == 1
    again = JobPlan.from_json(plan.to_json())
    assert {node: part.additions for node, part in again.parts.items()} == {
        "n1": added, "n2": added, "n3": messages.Additions(),
    }  # fmt: skip
    parts = tuple(dataclasses.replace(part, additions=added) for part in plan.node_parts)
    with pytest.raises(FormError, match="additions"):
        JobPlan.from_json(dataclasses.replace(plan, node_parts=parts).to_json())


def test_keys_are_new_for_each_plan_and_are_not_shown() -> None:
    first, second = planned(), planned()
    assert first.job_key != second.job_key
    assert "PRIVATE" not in repr(first)


def variants(one: t.Any) -> t.Iterator[tuple[str, t.Any]]:
    """Each copy of a dataclass in which one thing is another, with that thing's place."""
    for field in dataclasses.fields(one):
        value = getattr(one, field.name)
        if isinstance(value, tuple):
            for index, item in enumerate(value):
                for place, other in variants(item):
                    changed = (*value[:index], other, *value[index + 1 :])
                    yield f"{field.name}.{place}", dataclasses.replace(one, **{field.name: changed})
        elif dataclasses.is_dataclass(value):
            for place, other in variants(value):
                yield f"{field.name}.{place}", dataclasses.replace(one, **{field.name: other})
        else:
            another = f"{value}x" if isinstance(value, str) else value + 1
            yield field.name, dataclasses.replace(one, **{field.name: another})


def test_plan_tells_nodes_how_vcpus_are_pinned() -> None:
    """By the site's default, by the request, and by the user's map, which is no text of theirs any more."""

    def cores(policy: Policy, text: str, content: bytes | None = None) -> list[tuple[str, str]]:
        request = dataclasses.replace(parse([(f"img=debian12,vcpus=2,ram=1G{text}", "")]), digests={})
        pinning = None if content is None else vcpu_map.read(content, "map")
        if content is not None:
            request = dataclasses.replace(request, digests={"vcpu_pinning": attached_file.digest(content)})
        job = dataclasses.replace(JOB, x=request.encode(), slot_hosts=("n1",) * 5)
        plan = make_plan(
            job, policy, OFFERS, node_file=None, timeout_s=9.0, find_owner=lambda *_names: ALICE, pinning=pinning
        )
        return [(guest.vcpu_cores, guest.other_cores) for guest in plan.node_parts[0].guests]

    off = dataclasses.replace(POLICY, vcpu_pinning_default=False)
    assert cores(POLICY, "") == [("prefer", "")]
    assert cores(off, ",vcpu_pinning=true") == [("auto", "")]
    assert cores(off, "") == cores(POLICY, ",vcpu_pinning=false") == [("", "")]
    by_map = ",vcpu_pinning=/home/alice/pins"
    assert cores(off, by_map, b"1: 0\n0: 2-3\nemulator: 1") == [("2,3;0", "1")]
    with pytest.raises(UserFault, match="vCPU 1 of guest 0 is missing"):
        cores(off, by_map, b"0: 2-3")
    with pytest.raises(UserFault, match="5 of the 8 that its guests need on n1: 8 cores for the map"):
        cores(off, by_map, b"0: 2\n1: 7")


@pytest.mark.parametrize(
    ("text", "default", "cores"),
    [
        ("", False, (0, 0, False)),
        (",iocm=true,iocm_max_cores=2", False, (1, 2, True)),
        ("", True, (1, 4, False)),
        (",iocm=false", True, (0, 0, False)),
    ],
)
def test_plan_tells_nodes_which_cores_virtual_io_has_and_whether_the_user_wants_them(
    text: str, default: bool, cores: tuple[int, int, bool]
) -> None:
    policy = dataclasses.replace(POLICY, iocm_enabled=True, iocm_enabled_default=default)
    request = parse([(f"img=debian12,vcpus=2,ram=1G{text}", "")])
    job = dataclasses.replace(JOB, x=request.encode(), slot_hosts=("n1",) * 4)
    plan = make_plan(job, policy, OFFERS, node_file=None, timeout_s=9.0, find_owner=lambda *_names: ALICE)
    assert [(one.io_min, one.io_max, one.io_required) for one in plan.node_parts[0].guests] == [cores]


def test_job_with_too_few_cores_for_virtual_io_is_refused_on_the_mother_superior() -> None:
    policy = dataclasses.replace(POLICY, iocm_enabled=True)
    request = parse([("img=debian12,vcpus=2,ram=1G,iocm=true,iocm_min_cores=2", "")])
    job = dataclasses.replace(JOB, x=request.encode(), slot_hosts=("n1",) * 4)
    with pytest.raises(UserFault, match=r"4 of the 5 that its guests need on n1: .* 2 cores for virtual I/O"):
        make_plan(job, policy, OFFERS, node_file=None, timeout_s=9.0, find_owner=lambda *_names: ALICE)


def test_decision_is_all_of_a_plan_but_its_keys_and_the_time() -> None:
    """A field that a plan gets one day counts without anybody's thinking of it."""
    additions = messages.Additions(
        (messages.Package("gcc"),), (messages.AddedFile("/home/alice/x", "644", "eA=="),), (messages.Command("true"),)
    )
    owner = dataclasses.replace(ALICE, groups=(messages.Group("chem", 2000),))
    job = dataclasses.replace(JOB, slot_hosts=("n1",) * 3 + ("n2",) * 3)
    plan, again = (
        make_plan(
            job, POLICY, OFFERS, node_file="n1\n" * 3 + "n2\n" * 3, timeout_s=120.0, additions=additions,
            find_owner=lambda *_names: owner,
        )
        for _plan in range(2)
    )  # fmt: skip
    assert plan.job_key != again.job_key
    assert plan.decision == again.decision
    assert {place for place, other in variants(plan) if other.decision == plan.decision} == {
        "inputs", "job_key.private", "job_key.public", "node_parts.timeout_s", "node_parts.guests.authorized_key",
        "node_parts.guests.host_key.private", "node_parts.guests.host_key.public",
    }  # fmt: skip


def test_start_directory_that_no_guest_has_is_refused_where_the_server_shows_it() -> None:
    assert planned(variables={"PBS_O_INITDIR": "/home/alice"}, init_work_dir="/usr")
    with pytest.raises(UserFault, match="/usr/share: no such directory in the guest; it has your home"):
        planned(variables={"PBS_O_INITDIR": "/usr/share"})


def test_plan_of_an_array_member_can_be_made() -> None:
    assert planned(job_id="72[1].head").job_id == "72[1].head"


def test_plan_comes_back_from_its_json() -> None:
    plan = planned()
    assert JobPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"job_id": "x"},
        {"extra": 1},
        {"mother_superior": "n2"},
        {"node_parts": []},
        {"start": 3},
        {"user_shell": "zsh"},
        {"job_key": None},
    ],
)
def test_json_that_is_not_a_plan_is_refused(change: dict[str, object]) -> None:
    data = {**json.loads(planned().to_json()), **change}
    with pytest.raises(FormError):
        JobPlan.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, " " * (1 << 23)])
def test_text_that_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(FormError):
        JobPlan.from_json(text)


def test_form_errors_do_not_repeat_secrets() -> None:
    data = json.loads(planned().to_json())
    data["job_key"]["private"] = "secret-in-a-wrong-form"
    with pytest.raises(FormError) as caught:
        JobPlan.from_json(json.dumps(data))
    assert "secret-in" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"jobtype": "orig"}, "other hooks"),
        ({"x": ""}, "holds no request"),
        ({"x": "GRES:foo"}, "holds no request"),
        ({"x": f"{X};{X}"}, "2 requests"),
        ({"x": "vtorque:garbage"}, "garbage"),
        ({"euser": "bob"}, "it would run as bob, and its owner is alice"),
        ({"slot_hosts": ("n1",)}, "the job has 1 of the 3 that its guests need on n1: 2 vcpus + 1 core for the host"),
        ({"slot_hosts": ("n1", "n1", "n1", "n2")}, "the job has 1 of the 3 that its guests need on n2"),
        ({"resource_list": {"mem": "9g", "devices": "gpu:1"}}, "gpu:1: devices that the batch system gives to a job"),
        ({"resource_list": {}}, "no mem: its guests need 3G: 1G of ram + 2G for the host"),
        ({"resource_list": {"mem": "3071mb"}}, "mem=3071mb: its guests need 3G: 1G of ram + 2G for the host"),
        ({"resource_list": {"mem": "much"}}, "mem=much: its guests need 3G"),
        (
            {"resource_list": {"mem": "5gb"}, "slot_hosts": ("n1", "n1", "n1", "n2", "n2", "n2")},
            "its guests need 6G: 1G of ram + 2G for the host, on each of 2 nodes",
        ),
    ],
)
def test_forbidden_vm_job_is_the_users_fault(changes: dict[str, t.Any], why: str) -> None:
    hosts = changes.get("slot_hosts", JOB.slot_hosts)
    with pytest.raises(UserFault) as caught:
        planned("\n".join(hosts), **changes)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"slot_hosts": ()}, "names no node of it"),
        ({"slot_hosts": ("n1;reboot",)}, "not of the form of a host name"),
        ({"euser": ""}, "nor our hook says as whom it runs"),
    ],
)
def test_gap_in_the_servers_word_is_a_site_fault(changes: dict[str, t.Any], why: str) -> None:
    with pytest.raises(SiteFault, match=why):
        planned("\n".join(changes.get("slot_hosts", JOB.slot_hosts)), **changes)


def test_job_whose_memory_is_not_counted_is_a_site_fault() -> None:
    """Where the system counts memory, a user has asked for none."""
    changes: dict[str, t.Any] = {"resource_list": {"mem": "0mb"}}
    with pytest.raises(SiteFault, match=f"the batch system counts none in {JOB.queue}"):
        planned(**changes, memory_uncounted=True)
    with pytest.raises(UserFault, match="mem=0mb: its guests need 3G"):
        planned(**changes)


def test_job_id_out_of_form_makes_no_plan() -> None:
    with pytest.raises(VTorqueError, match="job id"):
        planned(job_id="../../etc")


def test_request_is_decided_again_by_roots_policy() -> None:
    with pytest.raises(RequestErrors) as caught:
        planned(policy=Policy(vcpus_max=1, vcpus_default=1))
    assert [fault.key for fault in caught.value.faults] == ["vcpus"]


def test_owner_is_asked_for_by_the_servers_names() -> None:
    asked: list[tuple[str, str]] = []

    def find(user: str, group: str) -> messages.Owner:
        asked.append((user, group))
        return ALICE

    make_plan(JOB, POLICY, OFFERS, node_file="n1\n" * 3, timeout_s=9.0, find_owner=find)
    assert asked == [("alice", "alice")]


# node file


@pytest.mark.parametrize(
    ("content", "exec_host"),
    [
        ("n1\n", ("n1",)),
        ("t2\nt2\nt1\nt1\n", ("t2", "t2", "t1", "t1")),
        ("n1.site\nn10.site\n", ("n1", "n10")),
        ("n1\nn10\n", ("n1.site", "n10.site")),
        ("N1.Site\n", ("n1.site",)),
        ("n1.a\nn1.b\n", ("n1.a", "n1.b")),
    ],
)
def test_node_file_that_says_what_the_server_says_passes(content: str, exec_host: tuple[str, ...]) -> None:
    assert check_node_file(content, exec_host) is None


@pytest.mark.parametrize(
    ("content", "exec_host"),
    [
        ("", ("n1",)),
        ("n1\n", ()),
        ("n10\n", ("n1",)),
        ("n1\n", ("n10",)),
        ("n1\nn1\n", ("n1",)),
        ("n1\nn1\n", ("n1", "n2")),
        ("n2\nn1\n", ("n1", "n2")),
        ("n1.other\n", ("n1.site",)),
        ("n1\nn1\n", ("n1.a", "n1.b")),
        ("evil.example\n10.0.0.1\n", ("n1",)),
        ("n1\nx\ny\n", ("n1", "n2", "n3")),
        ("n1\n" * 100_000, ("n1",)),
    ],
)
def test_node_file_that_disagrees_is_refused(content: str, exec_host: tuple[str, ...]) -> None:
    with pytest.raises(UserFault, match="not the batch server's") as caught:
        check_node_file(content, exec_host)
    assert len(str(caught.value)) < 2000


def test_forged_node_file_stops_the_plan() -> None:
    with pytest.raises(UserFault, match="BEOWULF_JOB_MAP"):
        planned("evil.example\n10.0.0.1\n")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("n1", "n1", True),
        ("n1", "N1", True),
        ("n1", "n1.site", True),
        ("n1.site.", "n1.site", True),
        ("n1.a", "n1.b", False),
        ("n1", "n10", False),
        ("n10.site", "n1", False),
        ("site", "n1.site", False),
    ],
)
def test_host_names_are_compared_as_names(one: str, other: str, same: bool) -> None:
    assert same_host(one, other) is same
    assert same_host(one=other, other=one) is same
