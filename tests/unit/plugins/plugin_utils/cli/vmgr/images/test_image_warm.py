# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr image warm`: what there is, what goes, and what is refused before anything is made."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import key, template
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import Configuration
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.images import image_warm

ONE, OTHER = "a" * 32, "b" * 32
Call = t.Callable[..., int]


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    return NodeSettings(node_name="cn1", node_number=1, state_dir=tmp_path / "state", run_dir=tmp_path / "run")


@pytest.fixture
def call(settings: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    parser = argparse.ArgumentParser()
    image_warm.add_arguments(parser)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--query")

    def run(*arguments: str, **policy: t.Any) -> int:
        return image_warm.run(parser.parse_args(arguments), Configuration(Policy(**policy), settings))

    return run


def put(settings: NodeSettings, of_key: str, image: str, made: float) -> None:
    with template.workplace(settings) as place:
        for name in (template.MEMORY, template.DISK, template.SEED):
            (place / name).write_bytes(b"abc")
        record = template.Record(key.FORM, of_key, image, 2, 4096, "0" * 32, made, 21.4, 3, "", "", {})
        template.publish(place, record, settings)


def test_list_shows_templates_and_what_is_none(
    call: Call, settings: NodeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    put(settings, ONE, "debian12@3", time.time())
    (settings.warm_dir / OTHER).mkdir()
    assert call("list", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = found["templates"]
    assert (one["key"], one["image"], one["vcpus"], one["ram_mib"], one["old"]) == (ONE, "debian12@3", 2, 4096, False)
    assert OTHER in found["broken"][0]
    assert call("list") == 0
    printed = capsys.readouterr().out
    assert "aaaaaaaa" in printed
    assert "4G" in printed


@pytest.mark.parametrize("name", ["aaaa", "debian12@3", "debian12", ONE])
def test_remove_takes_away_what_is_meant(
    call: Call, settings: NodeSettings, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(settings, ONE, "debian12@3", time.time())
    put(settings, OTHER, "rocky9@1", time.time())
    assert call("remove", name, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"removed": [ONE]}
    assert [path.name for path in settings.warm_dir.iterdir()] == [OTHER]


@pytest.mark.parametrize(
    ("arguments", "policy", "why"),
    [
        (("remove", "aaaa"), {}, "is not on this node"),
        (("remove",), {}, "which"),
        (("make",), {"img_default": None}, "no default image"),
        (("make", "tiny", "--ram", "lots"), {}, "--ram"),
        (("make", "tiny", "--vcpus", "0"), {}, "--vcpus"),
        (("make", "cold"), {}, "does not say that it can be warm"),
        (("make", "uefi"), {}, "boots by UEFI"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    call: Call,
    settings: NodeSettings,
    arguments: tuple[str, ...],
    policy: dict[str, t.Any],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(name: str, _pool: pathlib.Path) -> images.Image:
        record = {} if name == "cold" else {"warm": "1"}
        mode = "uefi" if name == "uefi" else "bios"
        return images.Image(f"{name}@1", settings.pool, "qcow2", images.Boot(mode), "debian", "x86_64", 1, record)

    monkeypatch.setattr(images, "find", find)
    with pytest.raises(UserFault, match=why):
        call(*arguments, **policy)
    assert not settings.warm_dir.exists()


def test_templates_are_roots(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserFault, match="as root"):
        call("list")
