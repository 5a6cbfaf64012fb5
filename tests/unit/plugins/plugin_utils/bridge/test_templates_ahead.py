# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The template of the site's default guest is wanted before a job wants it."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import copy_queue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import wants
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge import templates_ahead

SITE: dict[str, t.Any] = {"warm_start": True, "img_default": "debian12", "vcpus_default": 2, "ram_default": 4096}


class Ahead:
    """A look ahead on a node of a site."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.settings = NodeSettings(
            node_name="cn1", node_number=1, state_dir=directory / "state", run_dir=directory / "run", warm_start=True
        )
        self.record: dict[str, str] = {"warm": "1"}
        self.called = 0
        patch.setattr(images, "find", self._find)
        patch.setattr(copy_queue, "ensure_worker", self._call)

    def _find(self, name: str, pool: pathlib.Path) -> images.Image:
        if name == "missing":
            raise UserFault("img=missing", "no such image")
        return images.Image(f"{name}@3", pool, "qcow2", images.Boot(), "debian", "x86_64", 1, self.record)

    def _call(self, _settings: NodeSettings) -> None:
        self.called += 1

    def look(self, **changes: t.Any) -> list[str]:
        """What is wanted afterwards."""
        self.output = templates_ahead.want_default_template(Policy(**{**SITE, **changes}), self.settings)
        return [str(what) for what in wants.wanted(self.settings)]


@pytest.fixture
def ahead(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Ahead:
    return Ahead(tmp_path, monkeypatch)


def test_default_guest_is_wanted_and_the_unit_is_called(ahead: Ahead) -> None:
    assert ahead.look() == ["debian12@3:2:4096:sharedfs:kvm:x86_64"]
    assert (ahead.called, ahead.output) == (1, "")


@pytest.mark.parametrize("changes", [{"warm_start": False}, {"img_default": None}, {"img_default": "~/own.qcow2"}])
def test_site_without_a_default_that_can_be_warm_wants_none(ahead: Ahead, changes: dict[str, t.Any]) -> None:
    assert ahead.look(**changes) == []
    assert (ahead.called, ahead.output) == (0, "")


def test_image_that_cannot_be_warm_is_not_wanted(ahead: Ahead) -> None:
    ahead.record = {}
    assert ahead.look() == []


def test_unit_is_not_called_while_a_job_has_guests_here(ahead: Ahead) -> None:
    (ahead.settings.guests_dir / "7.head.1").mkdir(parents=True)
    assert ahead.look() != []
    assert ahead.called == 0


def test_sweep_says_what_is_wrong_and_goes_on(ahead: Ahead) -> None:
    assert ahead.look(img_default="missing") == []
    assert "no such image" in ahead.output
