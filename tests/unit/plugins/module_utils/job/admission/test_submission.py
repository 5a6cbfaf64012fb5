# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever the user gives qsub, a submission only adds to it; the whole command line is covered in test_vsub."""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.resolve import Offers
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.submission import (
    Site,
    Submission,
    prepare,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub import directives
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub.arguments import Arguments
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub.front import QsubJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub.options import Options
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request import attached_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.demand import NodeSize
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request, RequestErrors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.value_types import format_value
from hypothesis import given, settings
from hypothesis import strategies as st

POLICY = Policy(img_default="tiny", distro_default="debian", vcpus_default=2, ram_default=512)
SITE = Site(Offers(None), {}, lambda _queue: [NodeSize("n1", 16, 65536)])


def asked(texts: list[str], script: bytes = b"") -> QsubJob:
    return QsubJob(Options(Arguments.read(texts), directives.read(script, "job.sh")))


def submission(texts: list[str], script: bytes = b"", policy: Policy = POLICY) -> Submission:
    return prepare(asked(texts, script), policy, SITE, "/home/alice")


def arguments(done: Submission) -> Arguments:
    return Arguments.read(done.command_call.argv)


TEXT = st.text("ab =,:*'\"$\\é-", max_size=6)
OPTION = st.one_of(
    st.tuples(st.sampled_from(["-F", "-N", "-A", "-o", "-e", "-M", "-q", "-W", "-v"]), TEXT).map(list),
    st.sampled_from(
        [["-z"], ["-h"], ["-rn"], ["-Vz"], ["-lwalltime=60"], ["-vm", "vcpus=1"], ["-l", "nodes=n1:ppn=8"]]
    ),
)


@settings(deadline=None)
@given(st.lists(OPTION, max_size=6), st.sampled_from([[], ["job.sh"], ["-"]]))
def test_words_of_qsub_come_through_in_order(options: list[list[str]], operand: list[str]) -> None:
    texts = [word for option in options for word in option] + operand
    done = arguments(submission(texts))
    mine = [word for option in options if option[0] != "-vm" for word in option] + operand
    assert list(done.argv[len(done.argv) - len(mine) :]) == mine
    added = Arguments.read(done.argv[: len(done.argv) - len(mine)])
    assert {option.name for option in added.options} <= {"S", "W", "l", "n"}
    assert added.operands == ()
    request = Request.decode((added.last("W") or "").removeprefix("x="))
    assert request is not None
    assert request.values == ({"vcpus": 1} if ["-vm", "vcpus=1"] in options else {})


@settings(deadline=None)
@given(st.lists(st.text("-vmlSTdtnodes=:1,ppn/x ", max_size=12), max_size=5), st.binary(max_size=60))
def test_any_words_give_a_submission_or_our_faults(texts: list[str], script: bytes) -> None:
    try:
        done = submission(texts, b"#PBS -vm vcpus=1\n#PBS " + script)
    except RequestErrors:
        return
    resources = arguments(done).resources()
    assert "vtorque" in resources["other"].split("+")
    assert arguments(done).all("vm") == ()
    assert len(arguments(done).all("S")) == 1


SHARED = dataclasses.replace(POLICY, vm_nfs_home="fs:/home")


@pytest.mark.parametrize("texts", [["-d", "/home/alice/run"], ["-v", "A=1,PBS_O_INITDIR=/home/alice/run"]])
def test_start_directory_must_be_there_in_the_guest(texts: list[str]) -> None:
    assert submission(texts, policy=SHARED)
    with pytest.raises(RequestErrors, match=r"no such directory in the guest; it has your home, /home/alice \(empty\)"):
        submission(texts)
    assert submission(["-d", "/home/alice/"])


def test_sizes_that_are_all_the_sites_own_are_held_against_the_nodes_as_well() -> None:
    """Nothing in the cluster would ever run the job; it would wait for ever."""
    with pytest.raises(RequestErrors, match=r"more than any node of this site has \(16\)"):
        submission([], policy=dataclasses.replace(POLICY, vcpus_default=16))


@pytest.mark.parametrize(
    ("asked", "given", "hosts", "notices"),
    [
        ("n1:ppn=2+n1:ppn=2", "n1:ppn=2+n1:ppn=2", 1, []),
        ("n1:ppn=1+n1:ppn=2", "n1:ppn=2+n1:ppn=2", 1, ["ppn raised from 3 to 4 (3 vcpus + 1 core for the host)"]),
        ("n1+n1", "n1:ppn=3+n1", 1, ["ppn raised from 2 to 4 (3 vcpus + 1 core for the host)"]),
        ("n1:ppn=8+n1", "n1:ppn=8+n1", 1, []),
        ("n1:ppn=2+n2:ppn=4+n1:ppn=2", "n1:ppn=2+n2:ppn=4+n1:ppn=2", 2, []),
        ("n1+n2", "n1:ppn=4+n2:ppn=4", 2, []),
        ("1:ppn=4+1:ppn=4", "1:ppn=4+1:ppn=4", 2, []),
    ],
)
def test_host_that_is_named_twice_gives_the_sum_and_counts_once(
    asked: str, given: str, hosts: int, notices: list[str]
) -> None:
    done = submission(["-l", f"nodes={asked}", "-vm", "vcpus=3"])
    resources = arguments(done).resources()
    assert (resources["nodes"], resources["mem"]) == (given, f"{hosts * (512 + 2048)}mb")
    assert list(done.notices) == notices


def test_region_that_is_raised_is_said_and_asked_for_as_memory() -> None:
    sharing = dataclasses.replace(POLICY, unclot_enabled=True)
    done = submission(["-l", "nodes=1:ppn=4", "-vm", "vcpus=3,unclot=true,unclot_shmem=100M"], policy=sharing)
    assert list(done.notices) == ["unclot_shmem=100M becomes 128M, the next power of two"]
    assert arguments(done).resources()["mem"] == f"{512 + 128 + 2048}mb"
    plain = submission(["-l", "nodes=1:ppn=4", "-vm", "vcpus=3,unclot=true"], policy=sharing)
    assert list(plain.notices) == []


def test_host_that_is_named_twice_may_not_be_asked_for_more_than_it_has() -> None:
    with pytest.raises(RequestErrors, match=r"ppn=18: more than any node of this site has \(16\)"):
        submission(["-l", "nodes=n1:ppn=9+n1:ppn=9"])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("1:ppn=4", "more than any node of this site has (64G)"),
        ("2:ppn=4", "more than 2 nodes of this site have together (128G)"),
        ("n1:ppn=4+n1:ppn=4", "more than any node of this site has (64G)"),
    ],
)
def test_memory_of_the_job_is_held_against_that_of_all_its_nodes(nodes: str, message: str) -> None:
    with pytest.raises(RequestErrors) as refused:
        submission(["-l", f"nodes={nodes},mem=200gb"])
    assert [fault.message for fault in refused.value.faults] == [message]


@pytest.mark.parametrize(
    "value", ["vtorque:e30", "x=vtorque:e30", "x=a;vtorque:e30", "x=a; vtorque:e30", "a=b,x='vtorque:"]
)
def test_request_that_another_made_is_not_the_users_to_give(value: str) -> None:
    with pytest.raises(RequestErrors, match="vtorque: is what vsub itself puts there"):
        submission(["-W", value])


@pytest.mark.parametrize("value", ["stageout=/o@myvtorque:/p", "stagein=/a@vtorque:/b", "x=my-vtorque:1"])
def test_host_may_be_named_as_the_product(value: str) -> None:
    assert value in arguments(submission(["-W", value])).argv


def test_work_directory_is_only_a_variable() -> None:
    assert arguments(submission(["-w", "/usr"])).last("w") == "/usr"


def test_command_that_lies_in_a_home_which_guests_do_not_have_is_refused() -> None:
    texts = ["-I", "-x", "/home/alice/bin/look", "a b"]
    assert list(arguments(submission(texts, policy=SHARED)).argv[-4:]) == texts
    with pytest.raises(RequestErrors, match="lies in your home, and the guest's is empty"):
        submission(texts)


SITE_FILES = dataclasses.replace(
    POLICY, disk_default="~/data.img", metadata_default="/etc/more.yml", vm_prologue_default="~/bin/pre"
)


def prepared(texts: list[str], policy: Policy, home: str, **site: t.Any) -> Submission:
    report = dataclasses.replace(SITE, look=lambda word, _runs: (word, b"runcmd: [id]\n"), **site)
    return prepare(asked(texts), policy, report, home)


def sent(done: Submission) -> Request:
    request = Request.decode((arguments(done).last("W") or "").removeprefix("x="))
    assert request is not None
    return request


def test_files_of_the_site_travel_as_if_the_user_had_named_them(tmp_path: pathlib.Path) -> None:
    """Those of a home where they are; the others must be there."""
    looked: list[str] = []
    done = prepared([], SITE_FILES, str(tmp_path), disk=looked.append)
    assert sent(done).values == {"metadata": "/etc/more.yml"}
    assert set(sent(done).digests) == {"metadata"}
    assert (done.resolved.text("metadata"), done.resolved.origins["metadata"]) == ("/etc/more.yml", "site default")
    (tmp_path / "data.img").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pre").symlink_to("gone")
    done = prepared([], SITE_FILES, str(tmp_path), disk=looked.append)
    disk, before = str(tmp_path / "data.img"), str(tmp_path / "bin/pre")
    assert sent(done).values == {"metadata": "/etc/more.yml", "disk": disk, "vm_prologue": before}
    assert looked == [disk]
    assert done.resolved.origins["disk"] == "site default"


def test_word_of_the_users_counts_in_place_of_the_sites_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data.img").touch()
    done = prepared(["-vm", "disk=/own.img,metadata=/own.yml"], SITE_FILES, str(tmp_path))
    assert sent(done).values == {"metadata": "/own.yml", "disk": "/own.img"}
    assert done.resolved.origins["disk"] == "command line"


def test_file_of_the_site_that_is_bad_is_told_as_the_sites(tmp_path: pathlib.Path) -> None:
    def refuses(_path: str) -> None:
        raise UserFault("disk", "is no disk")

    (tmp_path / "data.img").touch()
    with pytest.raises(RequestErrors) as caught:
        prepared([], SITE_FILES, str(tmp_path), disk=refuses)
    path = format_value(f"{tmp_path}/data.img")  # cut where it is long
    assert [str(fault) for fault in caught.value.faults] == [f"disk={path}: is no disk (site default)"]


MAP = b"0: 1\n1: 2-4\n"


def with_map(content: bytes, *texts: str, policy: Policy = POLICY) -> Submission:
    site = dataclasses.replace(SITE, look=lambda word, _runs: (word, content))
    return prepare(asked(["-vm", "vcpu_pinning=/home/a/pins", *texts]), policy, site, "/home/a")


def test_map_of_vcpus_travels_by_its_digest_and_the_job_gets_the_cores_that_it_names() -> None:
    done = with_map(MAP, "-l", "nodes=1:ppn=2")
    assert sent(done).digests == {"vcpu_pinning": attached_file.digest(MAP)}
    assert done.notices[0] == "ppn raised from 2 to 5 (5 cores for the map of vcpu_pinning and the host)"
    assert done.pinned.startswith("vCPU 0 on 1, vCPU 1 on 2,3,4; other threads on what is left")
    by_the_site = dataclasses.replace(POLICY, vcpu_pinning_default="/srv/pins")
    site = dataclasses.replace(SITE, look=lambda word, _runs: (word, MAP))
    done = prepare(asked([]), by_the_site, site, "/home/a")
    assert sent(done).values == {"vcpu_pinning": "/srv/pins"}


def test_pinning_is_described_with_its_sum() -> None:
    each = "2 cores for vCPUs, one each; 1 for all other threads"
    assert submission(["-vm", "vcpu_pinning=yes"]).pinned == each
    assert submission([]).pinned == f"where the job has enough: {each}"
    assert submission(["-vm", "vcpu_pinning=no"]).pinned == ""


@pytest.mark.parametrize(
    ("content", "faults"),
    [
        (b"", ["pins: holds no vCPU"]),
        (b"0: 1\n", ["pins: vCPU 1 of guest 0 is missing"]),
        (b"0: 1\n1: 1\n<x/>", ["pins:2: core 1 is given away in line 1 already", "pins:3: '<x/>': XML is not read"]),
        (b"0: 1\n1: 16\n", ["ppn=17: 17 cores for the map of vcpu_pinning and the host: more than any node"]),
        (b"x" * (1 << 20), ["pins: longer than 64 KiB"]),
    ],
)
def test_map_that_is_none_or_leaves_the_job_is_refused_at_submission(content: bytes, faults: list[str]) -> None:
    with pytest.raises(RequestErrors) as caught:
        with_map(content)
    found = [str(fault) for fault in caught.value.faults]
    assert [text for text, begin in zip(found, faults, strict=True) if not text.startswith(begin)] == []


ALLOWS = dataclasses.replace(POLICY, allow_user_images=True)


def test_own_image_travels_with_what_it_was() -> None:
    done = prepared(["-vm", "img=/home/a/own.qcow2"], ALLOWS, "/home/a", image=lambda path: f"{len(path):064x}")
    assert (sent(done).values["img"], sent(done).digests) == ("/home/a/own.qcow2", {"img": f"{17:064x}"})
    by_the_site = dataclasses.replace(ALLOWS, img_default="/srv/all.qcow2")
    done = prepared([], by_the_site, "/home/a", image=lambda path: f"{len(path):064x}")
    assert (sent(done).values, sent(done).digests) == ({"img": "/srv/all.qcow2"}, {"img": f"{14:064x}"})
    assert done.resolved.origins["img"] == "site default"


def test_user_image_with_a_fault_is_reported_with_the_other_faults() -> None:
    def refuses(path: str) -> str:
        raise UserFault(path, "has a backing file", "convert it")

    with pytest.raises(RequestErrors) as caught:
        prepared(["-vm", "img=/home/a/own.qcow2,vcpu=3"], ALLOWS, "/home/a", image=refuses)
    report = {fault.key: str(fault) for fault in caught.value.faults}
    assert report["img"] == "img=/home/a/own.qcow2: has a backing file; convert it (command line)"
    assert "did you mean vcpus?" in report["vcpu"]


def test_own_image_is_not_opened_where_the_site_allows_none() -> None:
    def opens(_path: str) -> str:
        raise AssertionError("nobody may")

    with pytest.raises(RequestErrors, match="allow_user_images"):
        prepared(["-vm", "img=/home/a/own.qcow2"], POLICY, "/home/a", image=opens)


@pytest.mark.parametrize(
    ("nodes", "wanted"), [("2:ppn=4", "3:ppn=4"), ("2:big:ppn=4", "3:ppn=4:big"), ("1", "2:ppn=3"), ("", "2:ppn=3")]
)
def test_spare_node_is_asked_for_besides_with_memory_for_its_guests(nodes: str, wanted: str) -> None:
    done = submission([*(("-l", f"nodes={nodes}") if nodes else ()), "-vm", "spare=1"])
    alone = submission([*(("-l", f"nodes={nodes}") if nodes else ())])
    resources = arguments(done).resources()
    count = int(wanted[0])
    assert resources["nodes"] == wanted
    assert int(resources["mem"].removesuffix("mb")) == done.need.mem_mib * count
    assert (done.hosts, done.vm_hosts) == (alone.hosts, alone.vm_hosts) == (count - 1, count - 1)
    assert sent(done).values["spare"] == 1


def test_spare_node_of_the_sites_default_travels_in_the_request() -> None:
    done = submission([], policy=dataclasses.replace(POLICY, spare_default=1))
    assert arguments(done).resources()["nodes"].startswith("2:")
    assert sent(done).values["spare"] == 1
    none = submission(["-vm", "spare=0"], policy=dataclasses.replace(POLICY, spare_default=1))
    assert arguments(none).resources()["nodes"].startswith("1:")
    assert sent(none).values["spare"] == 0


@pytest.mark.parametrize("nodes", ["n1:ppn=4", "1:ppn=4+1:ppn=8", "n1+n2"])
def test_spare_node_that_could_not_take_every_place_is_refused(nodes: str) -> None:
    with pytest.raises(UserFault, match="takes the place of any other"):
        submission(["-l", f"nodes={nodes}", "-vm", "spare=1"])
