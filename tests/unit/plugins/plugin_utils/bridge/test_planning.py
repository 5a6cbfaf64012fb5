# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job's user adds to their guests is read again as that user, and held against the site's word again."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import pwd
import tempfile
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import job_snapshot
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request, parse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import (
    Additions,
    Command,
    Owner,
    Package,
)
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import planning

if t.TYPE_CHECKING:
    from tests.unit.conftest import ImagePool

JOB = BatchJob(
    job_id="7.head", name="j", owner_user="nobody", owner_host="fe", euser="nobody", egroup="nogroup", state="R",
    queue="batch", slot_hosts=("cn1",), start_count=1, x="", jobtype="", init_work_dir="/", session_id=0,
    substate=41, interactive=False, walltime_s=0, variables={}, submit_args="", account="",
    resource_list={"mem": "1tb"},
)  # fmt: skip
POLICY = Policy(metadata_packages=("make",))


def job_of(path: pathlib.Path, content: bytes) -> BatchJob:
    """A job whose request says that this was there."""
    request = parse([(f"img=tiny,metadata={path}", "")])
    digests = {"metadata": hashlib.sha256(content).hexdigest()}
    return dataclasses.replace(JOB, x=dataclasses.replace(request, digests=digests).encode())


@pytest.fixture
def path() -> t.Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory() as place:  # the ways to pytest's own are closed to others
        pathlib.Path(place).chmod(0o755)
        yield pathlib.Path(place) / "more.yml"


def test_additions_that_changed_since_the_submission_are_refused(path: pathlib.Path) -> None:
    content = b"packages: [make]\nruncmd: [id]\n"
    path.write_bytes(content)
    job = job_of(path, content)
    assert planning.additions_of(job, POLICY) == Additions((Package("make"),), (), (Command("id"),))
    path.write_bytes(content + b"- id\n")
    with pytest.raises(UserFault, match="was changed after the job was submitted"):
        planning.additions_of(job, POLICY)


def test_who_goes_past_vsub_is_held_against_the_sites_word(path: pathlib.Path) -> None:
    content = b"packages: [curl]\nbootcmd: [id]\n"
    path.write_bytes(content)
    with pytest.raises(UserFault, match=r"line 1: packages.0.: curl is not on the site's list: make; line 2: bootcmd"):
        planning.additions_of(job_of(path, content), POLICY)


def pinned(path: pathlib.Path, content: bytes) -> BatchJob:
    """A job whose request says that this was there."""
    request = parse([(f"img=tiny,vcpu_pinning={path}", "")])
    digests = {"vcpu_pinning": hashlib.sha256(content).hexdigest()}
    return dataclasses.replace(JOB, x=dataclasses.replace(request, digests=digests).encode())


def test_map_that_was_submitted_is_the_one_that_is_planned_and_is_read_strictly_again(path: pathlib.Path) -> None:
    content = b"0: 1\n1: 2,3\nemulator: 0\n"
    path.write_bytes(content)
    found = planning.read_vcpu_map(pinned(path, content))
    assert found is not None
    assert (found.cores_of(0, 2), found.other_cores) == ("1;2,3", "0")
    path.write_bytes(b"0: 1\n")
    with pytest.raises(UserFault, match="was changed after the job was submitted"):
        planning.read_vcpu_map(pinned(path, content))
    hostile = b"<vcpupin vcpu='0' cpuset='0-99'/>\n"
    path.write_bytes(hostile)
    with pytest.raises(UserFault, match=r"line 1: .*XML is not read here"):
        planning.read_vcpu_map(pinned(path, hostile))
    large = b"0: 1\n" * (1 << 18)
    path.write_bytes(large)
    with pytest.raises(UserFault, match=r"was changed after|longer than 64 KiB"):
        planning.read_vcpu_map(pinned(path, large))


@pytest.mark.parametrize("word", ["true", "false"])
def test_job_without_a_map_opens_no_file(word: str) -> None:
    x = parse([(f"img=tiny,vcpu_pinning={word}", "")]).encode()
    assert planning.read_vcpu_map(dataclasses.replace(JOB, x=x)) is None


@pytest.mark.parametrize("x", ["", Request().encode(), parse([("img=tiny", "")]).encode()])
def test_job_that_asks_for_none_opens_no_file(x: str) -> None:
    assert planning.additions_of(dataclasses.replace(JOB, x=x), POLICY) == Additions()


def test_job_that_runs_as_another_opens_no_file(path: pathlib.Path) -> None:
    job = dataclasses.replace(job_of(path, b""), owner_user="alice")
    assert planning.additions_of(job, POLICY) == Additions()


def test_pool_is_not_asked_for_an_image_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the request or by the site: root opens none of them."""
    monkeypatch.setattr(planning, "find", lambda *_words: pytest.fail("the pool was asked"))
    request = dataclasses.replace(parse([("img=/home/a/own.qcow2", "")]), digests={"img": "0f" * 32})
    asked = dataclasses.replace(JOB, x=request.encode())
    silent = dataclasses.replace(JOB, x=Request().encode())
    for job, policy in ((asked, POLICY), (silent, Policy(img_default="/srv/all.qcow2", allow_user_images=True))):
        assert planning.image_of(job, policy) is None


@pytest.fixture
def site(tmp_path: pathlib.Path, image_pool: ImagePool) -> Site:
    """A pool with an image, a node file, and a job that asks for that image."""
    (tmp_path / "nodefile").write_text("cn1\n")
    request = parse([("img=tiny,vcpus=1,ram=192M,distro=debian", "")])
    return Site(
        tmp_path,
        image_pool,
        dataclasses.replace(JOB, x=request.encode()),
        Policy(vm_img_dir=str(image_pool.path), host_os_core_count=0),
    )


class Site:
    """What a plan is made of, which a test may change."""

    def __init__(self, place: pathlib.Path, images: ImagePool, job: BatchJob, policy: Policy) -> None:
        self.place, self.images, self.job, self.policy = place, images, job, policy
        self.nodefile = place / "nodefile"

    @property
    def digest(self) -> str:
        return planning.inputs_of(self.job, self.policy, self.nodefile).digest


def test_same_inputs_have_one_digest_in_every_program(site: Site) -> None:
    """The hook has the server's word itself, and the playbook what the hook has kept of it."""
    first = site.digest
    job_snapshot.save_snapshot(site.job, site.place)
    stored = job_snapshot.read_snapshot(site.job.job_id, site.place)
    assert stored is not None
    site.job, site.policy = stored, Policy(**vars(site.policy))
    assert site.digest == first


def test_plan_bears_the_digest_of_its_inputs(site: Site) -> None:
    plan = planning.plan_start(site.job, site.policy, site.nodefile)
    assert plan.inputs == site.digest
    again = planning.plan_start(site.job, site.policy, site.nodefile)
    assert (again.inputs, again.decision) == (plan.inputs, plan.decision)
    assert again.job_key != plan.job_key


def test_owner_is_looked_up_once_for_digest_and_plan(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the directory says later is of another plan: digest and guests come from one reading."""
    names: list[str] = []
    entry = pwd.getpwnam("nobody")

    def look_up(name: str) -> pwd.struct_passwd:
        names.append(name)
        return pwd.struct_passwd((*entry[:5], f"/home/{len(names)}", entry[6]))

    monkeypatch.setattr(pwd, "getpwnam", look_up)
    inputs = planning.inputs_of(site.job, site.policy, site.nodefile)
    plan = planning.create_plan(inputs)
    assert (plan.inputs, plan.owner.home) == (inputs.digest, "/home/1")
    assert names == ["nobody"]


def test_owner_of_added_files_is_not_looked_up_again(
    site: Site, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"packages: [make]\n"
    path.write_bytes(content)
    request = parse([(f"img=tiny,vcpus=1,ram=192M,distro=debian,metadata={path}", "")])
    digests = {"metadata": hashlib.sha256(content).hexdigest()}
    site.job = dataclasses.replace(site.job, x=dataclasses.replace(request, digests=digests).encode())
    site.policy = dataclasses.replace(site.policy, metadata_packages=("make",))
    inputs = planning.inputs_of(site.job, site.policy, site.nodefile)
    monkeypatch.setattr(planning, "owner_of", lambda *_names: pytest.fail("the owner was looked up again"))
    assert planning.create_plan(inputs).additions == Additions((Package("make"),))


def test_owner_who_is_not_known_is_what_the_plan_says(site: Site) -> None:
    site.job = dataclasses.replace(site.job, euser="no-such-user", owner_user="no-such-user")
    inputs = planning.inputs_of(site.job, site.policy, site.nodefile)
    assert len(inputs.digest) == 64
    with pytest.raises(SiteFault, match="user no-such-user: not known on this node"):
        planning.create_plan(inputs)


CHANGES: dict[str, t.Callable[[Site, pytest.MonkeyPatch], object]] = {
    "the job": lambda site, _patch: setattr(site, "job", dataclasses.replace(site.job, start_count=2)),
    "the nodes": lambda site, _patch: setattr(site, "job", dataclasses.replace(site.job, slot_hosts=("cn1", "cn2"))),
    "the request": lambda site, _patch: setattr(
        site, "job", dataclasses.replace(site.job, x=parse([("img=tiny,vcpus=2", "")]).encode())
    ),
    "a user's file": lambda site, _patch: setattr(
        site,
        "job",
        dataclasses.replace(site.job, x=dataclasses.replace(REQUEST, digests={"metadata": "b" * 64}).encode()),
    ),
    "the policy": lambda site, _patch: setattr(
        site, "policy", dataclasses.replace(site.policy, mounts=("a:/b /c nfs",))
    ),
    "the node file": lambda site, _patch: site.nodefile.write_text("cn2\n"),
    "the image": lambda site, _patch: (site.images.path / "tiny@10").rename(site.place / "retired"),
    "a newer revision": lambda site, _patch: site.images.add("tiny", 11),
    "the record of the image": lambda site, _patch: (site.images.path / "tiny@10/record.json").write_text(
        (site.images.path / "tiny@10/record.json").read_text().replace("for tests", "for others")
    ),
    "the owner's home": lambda _site, patch: patch.setattr(
        planning, "owner_of", lambda *_names: Owner("nobody", 65534, 65534, "nogroup", "/elsewhere", "/bin/sh")
    ),
}
REQUEST = parse([("img=tiny,metadata=/home/alice/more.yml", "")])


@pytest.mark.parametrize("what", CHANGES)
def test_change_of_any_input_is_another_plan(site: Site, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    if what == "a user's file":
        site.job = dataclasses.replace(
            site.job, x=dataclasses.replace(REQUEST, digests={"metadata": "a" * 64}).encode()
        )
    first = site.digest
    CHANGES[what](site, monkeypatch)
    assert site.digest != first


def test_content_of_an_image_is_no_part_of_a_plan(site: Site) -> None:
    """The nodes look at it, and may find it gone."""
    first = site.digest
    disk = site.images.path / "tiny@10/disk.qcow2"
    disk.write_bytes(bytes(disk.stat().st_size))
    assert site.digest == first
    inputs = planning.inputs_of(site.job, site.policy, site.nodefile)
    disk.unlink()
    assert inputs.digest == first


def test_no_part_of_the_policy_is_left_out(site: Site) -> None:
    """Nobody needs to think of a parameter that the site gets one day."""
    first = site.digest
    for field in dataclasses.fields(Policy):
        if field.name in ("vm_img_dir", "img_default"):
            continue
        former = site.policy
        site.policy = dataclasses.replace(former, **{field.name: "another"})
        assert site.digest != first, field.name
        site.policy = former
