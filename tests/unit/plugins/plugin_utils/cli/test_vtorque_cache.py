# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque-cache: what it says of the copies on a node, and how it ends (`vtorque-cache list`, `get`, ...)."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import ImageFault, SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import copy_queue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.copy_queue import Want
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.locations import cache_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vtorque_cache

from ...module_utils.node.pool import image_pool


class Node:
    """A node with a pool, and calls of the program on it."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.settings: NodeSettings = image_pool.settings_for(directory)
        self.logged: list[str] = []
        self._capsys = capsys
        image_pool.add(self.settings.pool)
        patch.setattr(vtorque_cache.syslog, "syslog", lambda _level, arguments: self.logged.append(arguments))
        patch.setattr(vtorque_cache.cgroup, "leave_all", lambda: None)
        patch.setattr(vtorque_cache.os, "nice", lambda _more: 0)
        patch.setattr(copy_queue, "ensure_worker", lambda _settings: None)

    def call(self, *arguments: str) -> tuple[int, str]:
        status = vtorque_cache.run(arguments, lambda: self.settings)
        return status, self._capsys.readouterr().out

    def want(self, name: str = "tiny@1") -> None:
        copy_queue.want(self.settings, Want("local", name))

    def filled(self) -> Node:
        self.want()
        assert self.call("fill")[0] == 0
        return self


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Node:
    return Node(tmp_path, monkeypatch, capsys)


def images(node: Node) -> list[dict[str, t.Any]]:
    return t.cast("list[dict[str, t.Any]]", json.loads(node.call("list", "--json")[1])["images"])


def test_empty_cache_is_a_good_one(node: Node) -> None:
    status, out = node.call("list")
    assert (status, out.splitlines()[0]) == (0, "none")
    assert "0 MiB of 1.0 GiB (cache_max)" in out


def test_fill_does_what_is_wanted_and_says_so_to_the_log(node: Node) -> None:
    node.filled()
    assert [line.split(",")[0] for line in node.logged] == ["local:tiny@1: fetched"]
    (row,) = images(node)
    assert (row["image"], row["state"], row["guests"]) == ("tiny@1", "verified", [])
    assert row["bytes"] >= 4 * image_pool.MIB


def test_list_tells_of_what_waits_and_what_failed(node: Node) -> None:
    image_pool.spoil(node.settings.pool / "tiny@1/disk.img")
    node.filled()
    image_pool.add(node.settings.pool, "next@1")
    node.want("next@1")
    assert [(row["image"], row["state"].split(": ")[0:2]) for row in images(node)] == [
        ("next@1", ["local", "is waited for"]), ("tiny@1", ["local", "failed"]),
    ]  # fmt: skip
    assert "its record says" in node.call("list")[1]


def test_get_waits_and_tells_why_it_waits_in_vain(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_queue, "ensure_worker", lambda _settings: node.call("fill"))
    assert node.call("get", "tiny")[1].endswith("tiny@1 is on cn1\n")
    image_pool.add(node.settings.pool, "bad@1")
    image_pool.spoil(node.settings.pool / "bad@1/disk.img")
    with pytest.raises(ImageFault, match="its record says"):
        node.call("get", "bad")
    with pytest.raises(UserFault, match="no such image"):
        node.call("get", "tini")


def test_verify_tells_by_its_status_that_a_copy_was_broken(node: Node) -> None:
    node.filled()
    assert node.call("verify") == (0, "local:tiny@1: verified\n")
    image_pool.spoil(cache_of(node.settings).place / "tiny@1/disk.img")
    status, out = node.call("verify", "tiny@1")
    assert status == vtorque_cache.BROKEN
    assert "fetched" in out.splitlines()[-1]
    assert node.call("verify")[0] == 0
    with pytest.raises(UserFault, match=r"other@1.*there is tiny@1"):
        node.call("verify", "other@1")


def test_remove_takes_away_what_nobody_uses(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.filled()
    monkeypatch.setattr("ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache.copy_store.bases",
                        lambda _dir: [("vcn1-0", cache_of(node.settings).place / "tiny@1/disk.img")])  # fmt: skip
    assert images(node)[0]["guests"] == ["vcn1-0"]
    with pytest.raises(SiteFault, match="in use by vcn1-0"):
        node.call("remove", "tiny@1")
    monkeypatch.undo()
    assert node.call("remove", "tiny@1") == (0, "tiny@1 is gone from cn1\n")
    assert images(node) == []
    with pytest.raises(UserFault, match="no such copy"):
        node.call("remove", "tiny@1")


def test_vtorque_cache_without_root_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1001)
    with pytest.raises(UserFault, match="call it as root"):
        node.call("list")
