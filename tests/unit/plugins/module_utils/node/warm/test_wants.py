# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates that starts wanted in vain are made while no job is here, and give way to one."""

from __future__ import annotations

import dataclasses
import os
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import copy_queue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import clone_xml, making, template, wants

from ..conftest import Node
from .template_node import TemplateNode

WANT = wants.TemplateWant("tiny@1", clone_xml.Size(2, 64, "qemu", "x86_64"), "sharedfs")


class Making:
    """Stands in for `making.make`: what comes while a template is made, and how that ends."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.meanwhile: t.Callable[[], None] = lambda: None
        self.error: VTorqueError | None = None

    def __call__(self, wanted: making.TemplateSpec, *more: t.Any) -> template.Template:
        self.meanwhile()
        more[-1]("it boots")
        if self.error:
            raise self.error
        self.made.append(wanted.spec.vcpus)
        return t.cast("template.Template", MADE)


MADE = type("Made", (), {"record": type("Record", (), {"seconds": 2.0})})


@pytest.fixture
def warm(node: Node, monkeypatch: pytest.MonkeyPatch) -> TemplateNode:
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: None)
    found = TemplateNode(node, monkeypatch)
    found.image = dataclasses.replace(found.image, name="tiny@1")
    monkeypatch.setattr(wants, "Domains", found.hypervisor.connect)
    return found


@pytest.fixture
def making_of(monkeypatch: pytest.MonkeyPatch) -> Making:
    found = Making()
    monkeypatch.setattr(making, "make", found)
    return found


def work_off(warm: TemplateNode) -> list[str]:
    heard: list[str] = []
    wants.work_off(warm.node.settings, heard.append)
    return heard


def test_start_without_a_template_wants_one(warm: TemplateNode) -> None:
    assert warm.present() == "no, because this node has no template of this shape"
    assert wants.wanted(warm.node.settings) == (WANT,)


def test_start_that_cannot_be_warm_wants_none(warm: TemplateNode) -> None:
    warm.image = dataclasses.replace(warm.image, record={})
    warm.present()
    assert wants.wanted(warm.node.settings) == ()


def test_bell_is_rung_when_the_last_job_has_gone(warm: TemplateNode) -> None:
    settings = warm.node.settings
    warm.present()
    bell = copy_queue.marks_of(settings) / wants.REQUEST_MARK
    assert not wants.request_making(settings)
    assert not bell.exists()
    warm.node.absent()
    assert wants.request_making(settings)
    assert bell.exists()
    assert {what.image for what in copy_queue.wanted(settings)} <= {"tiny@1"}, "it is no image"


def test_what_is_wanted_is_made_once(warm: TemplateNode, making_of: Making) -> None:
    wants.want(warm.node.settings, WANT)
    wants.request_making(warm.node.settings)
    assert work_off(warm) == [f"template {WANT}: made in 2.0 s"]
    assert making_of.made == [2]
    assert work_off(warm) == []
    assert not (copy_queue.marks_of(warm.node.settings) / wants.REQUEST_MARK).exists()


def test_two_never_make_what_is_wanted(warm: TemplateNode, making_of: Making) -> None:
    """Without systemd whoever wants something starts a worker."""
    settings = warm.node.settings
    wants.want(settings, WANT)
    heard: list[str] = []
    making_of.meanwhile = lambda: heard.extend([*work_off(warm), str(wants.request_making(settings))])
    assert work_off(warm) == [f"template {WANT}: made in 2.0 s"]
    assert heard == ["False"]
    assert making_of.made == [2]


def test_what_is_there_is_not_made_again(warm: TemplateNode, making_of: Making) -> None:
    warm.make_template()
    wants.want(warm.node.settings, WANT)
    assert work_off(warm) == [f"template {WANT}: is there"]
    assert making_of.made == []


@pytest.mark.parametrize("what", ["job", "image"])
def test_making_gives_way_and_is_done_later(warm: TemplateNode, making_of: Making, what: str) -> None:
    settings = warm.node.settings
    wants.want(settings, WANT)
    other = settings.guests_dir / "8.head.1"
    marks = copy_queue.marks_of(settings)

    def come() -> None:
        (other if what == "job" else marks).mkdir(parents=True)
        if what == "image":
            (marks / "local:tiny@1").touch()

    making_of.meanwhile = come
    (line,) = work_off(warm)
    assert "a job has come, or an image is wanted" in line
    assert wants.wanted(settings) == (WANT,)
    assert making_of.made == []


def test_template_that_cannot_be_made_is_not_wanted_again_for_a_day(warm: TemplateNode, making_of: Making) -> None:
    settings = warm.node.settings
    making_of.error = VTorqueError("the guest of the template ended", "no channel")
    wants.want(settings, WANT)
    assert "no channel" in work_off(warm)[0]
    assert wants.wanted(settings) == ()
    assert not wants.want(settings, WANT)
    failed = settings.warm_dir / "failed" / str(WANT)
    assert "no channel" in failed.read_text()
    os.utime(failed, (0, time.time() - wants.AGAIN_S - 1))
    assert wants.want(settings, WANT)


def test_no_more_templates_are_wanted_than_may_be(warm: TemplateNode) -> None:
    settings = dataclasses.replace(warm.node.settings, warm_max=2)
    sizes = [dataclasses.replace(WANT.size, vcpus=number) for number in (1, 2, 3)]
    assert [wants.want(settings, dataclasses.replace(WANT, size=size)) for size in sizes] == [True, True, False]


def test_site_without_warm_starts_makes_none(warm: TemplateNode, making_of: Making) -> None:
    wants.want(warm.node.settings, WANT)
    warm.node.settings = dataclasses.replace(warm.node.settings, warm_start=False)
    assert not wants.request_making(warm.node.settings)
    assert work_off(warm) == []
    assert making_of.made == []


@pytest.mark.parametrize(
    "name", ["", "tiny", "tiny@1:2:64:sharedfs:qemu", "../x:2:64:sharedfs:qemu:x86_64", "a:b:c:d:e:f"]
)
def test_mark_of_another_form_is_none(name: str) -> None:
    assert wants.TemplateWant.of(name) is None
    assert wants.TemplateWant.of(str(WANT)) == WANT
