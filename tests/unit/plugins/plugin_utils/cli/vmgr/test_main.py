# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr shows what is there, as a table and as JSON."""

from __future__ import annotations

import functools
import json
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import installed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A configuration and a pool with a good and a bad image."""
    mine = os.getuid()
    monkeypatch.setattr(main, "load", functools.partial(policy_file.load, owner_uid=mine))
    monkeypatch.setattr(images, "list_images", functools.partial(images.list_images, owner_uid=mine))
    monkeypatch.setattr(images, "find", functools.partial(images.find, owner_uid=mine))
    tmp_path.chmod(0o755)
    pool = tmp_path / "pool"
    pool.mkdir(mode=0o755)
    for name, mode in (("debian12.qcow2", 0o444), ("odd.img", 0o666)):
        (pool / name).write_bytes(b"")
        (pool / name).chmod(mode)
    file = tmp_path / "vtorque.yml"
    file.write_text(json.dumps({"vm_img_dir": str(pool), "bridge": "virbr7"}))
    file.chmod(0o644)
    return file


def test_images(site: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_subject(["image", "list"], site) == 0
    header, good, bad = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "wrong"]
    assert good.split() == ["debian12.qcow2", "-"]
    assert "can be written by others than root" in bad
    main.run_subject(["image", "list", "--json"], site)
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["debian12.qcow2", "odd.img"]


def test_one_image(site: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_subject(["image", "show", "debian12"], site) == 0
    assert "format         qcow2" in capsys.readouterr().out.splitlines()
    main.run_subject(["image", "show", "debian12", "--json"], site)
    assert json.loads(capsys.readouterr().out)["name"] == "debian12.qcow2"
    with pytest.raises(UserFault, match="no such image"):
        main.run_subject(["image", "show", "debian13"], site)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["show", "images"], ["image", "list"]),
        (["show", "image", "odd"], ["image", "show", "odd"]),
        (["show", "config", "bridge"], ["config", "show", "bridge"]),
        (["add", "a", "b"], ["image", "add", "a", "b"]),
        (["update", "a"], ["image", "update", "a"]),
        (["delete", "a"], ["image", "delete", "a"]),
        (["image", "show", "config"], ["image", "show", "config"]),
        (["show"], ["show"]),
    ],
)
def test_originals_words_mean_what_they_meant(old: list[str], new: list[str]) -> None:
    assert list(main._of_today(old)) == new


def test_version_is_the_collections(site: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.run_subject(["--version"], site)
    assert (ended.value.code, capsys.readouterr().out) == (0, f"vmgr {installed.version()}\n")


def test_unknown_word_is_a_usage_error(site: pathlib.Path) -> None:
    with pytest.raises(SystemExit) as caught:
        main.run_subject(["image", "lst"], site)
    assert caught.value.code == 2
