# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A template is made, tried and published, or nothing of it is left."""

from __future__ import annotations

import base64
import os
import pathlib
import re
import shutil
import typing as t
import xml.etree.ElementTree as ET

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import DomainFacts, read_facts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import seed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import clone_xml, making, template
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm.save_header import header_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

from ..conftest import Node
from .template_node import GuestOfTemplate, TemplateNode, WarmConnection, WarmHypervisor

MEMORY = b"QEVM" + bytes(range(256)) * 3000


class MakingConnection(WarmConnection):
    """libvirt with a guest that says on its console what the test wants of it."""

    says = "vtorque-warm {token}"
    steps: t.ClassVar[list[str]] = []

    def create(self, xml: str, *, autodestroy: bool = False) -> DomainFacts:
        assert autodestroy, "a maker that is killed leaves no guest"
        facts = read_facts(xml, "running", False)
        assert facts.mark is None, "it is no guest of a job"
        root = ET.fromstring(xml)
        assert [card.get("type") for card in root.findall("devices/interface")] == ["ethernet"]
        place = pathlib.Path(facts.disks[0]).parent
        files = seed.read_iso(place / "seed.iso")
        assert files is not None
        found = re.search('"/etc/vtorque/warm.env".*content: "([^"]*)"', files["user-data"])
        assert found is not None
        token = base64.b64decode(found[1]).decode().split("'")[1]
        hypervisor = t.cast("WarmHypervisor", self.hypervisor)
        hypervisor.token = token
        (hypervisor.place / f"{facts.name}.xml").write_text(xml)
        (place / "console.log").write_text(f"{self.says.format(token=token)}\n")
        channel = root.find("devices/channel/source")
        assert channel is not None
        GuestOfTemplate(pathlib.Path(channel.get("path", "")), True, token).start()
        self.steps.append("boot")
        return facts

    def save(self, name: str, path: pathlib.Path) -> None:
        there = self.hypervisor.place / f"{name}.xml"
        assert (self.hypervisor.place / f"{name}.still").exists(), "a guest stands still before it is saved"
        t.cast("WarmHypervisor", self.hypervisor).memory = MEMORY
        path.write_bytes(header_of(there.read_text(), b"<cookie/>\0") + MEMORY)
        there.unlink()
        (self.hypervisor.place / f"{name}.still").unlink()
        self.steps.append("save")


class Maker:
    """Makes the template of the default guest."""

    def __init__(self, warm: TemplateNode) -> None:
        self.warm, self.settings = warm, warm.node.settings
        self.domains = MakingConnection(warm.hypervisor)
        self.heard: list[str] = []

    def make(self, left_s: float = 60.0) -> template.Template:
        size = clone_xml.Size(2, 64, "qemu", "x86_64")
        wanted = making.TemplateSpec(clone_xml.spec_of(self.warm.image, size, self.settings), self.warm.image)
        return making.make(wanted, self.settings, self.domains, Deadline.after(left_s), self.heard.append)  # type: ignore[arg-type]

    @property
    def left(self) -> list[str]:
        """What there is of templates and their guests."""
        places = self.settings.warm_dir.iterdir() if self.settings.warm_dir.is_dir() else ()
        return [*(path.name for path in places), *self.warm.hypervisor.running, *self.settings.agents_dir.glob("*")]  # type: ignore[list-item]


@pytest.fixture
def maker(node: Node, monkeypatch: pytest.MonkeyPatch) -> Maker:
    monkeypatch.setattr(making, "SETTLE_S", 0.0)
    monkeypatch.setattr(os, "chown", lambda *_words: None)
    return Maker(TemplateNode(node, monkeypatch))


def test_template_is_made_tried_and_used(maker: Maker) -> None:
    made = maker.make()
    assert template.find(made.record.key, maker.settings) == made
    assert maker.left == [made.record.key]
    assert sorted(path.name for path in made.place.iterdir()) == ["disk.qcow2", "mem", "record.json", "seed.iso"]
    assert [name.endswith("-trial") for name in maker.warm.hypervisor.restored] == [True]
    assert "/usr/lib/vtorque/ready" in made.record.files
    assert "/etc/vtorque/warm.env" not in made.record.files
    assert maker.heard[-2:] == ["its memory is saved", "a guest is made from it"]
    assert maker.warm.present() == "yes"


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("vtorque-failed {token} no channel", "no channel"),
        ("Kernel panic - not syncing: lost", "Kernel panic"),
        ("vtorque-warm 0000", "was not settled in time"),
    ],
)
def test_guest_that_cannot_be_saved_leaves_nothing(maker: Maker, says: str, why: str) -> None:
    maker.domains.says = says
    with pytest.raises(VTorqueError, match=why):
        maker.make(left_s=1.0)
    assert maker.left == []


def test_template_whose_trial_does_not_obey_is_not_published(maker: Maker) -> None:
    maker.warm.hypervisor.obeys = False
    with pytest.raises(VTorqueError, match="mac: no such device"):
        maker.make()
    assert maker.left == []


def test_template_without_room_is_not_begun(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(maker.settings.pool)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=100 << 20))
    with pytest.raises(SiteFault, match="MiB are needed"):
        maker.make()
    assert maker.left == []
    assert maker.warm.hypervisor.restored == []


def test_guest_of_a_killed_maker_is_ended_by_the_next(maker: Maker) -> None:
    (maker.warm.hypervisor.place / "vtorque-warm-00000000-trial.xml").write_text(
        "<domain><name>vtorque-warm-00000000-trial</name></domain>"
    )
    made = maker.make()
    assert maker.left == [made.record.key]
