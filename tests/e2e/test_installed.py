# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes onto which the playbook `install` has put the product, and nobody else.

In a lab of its own, whose nodes have just booted: other tests change files that the roles would make again.
"""

from __future__ import annotations

import contextlib
import json
import os
import typing as t

import pytest

from .conftest import Site
from .trouble import NODES, sweep

START_WAYS = ("fast",)  # nodes as the roles leave them

WRITTEN = "written by mikelangelo.vtorque.install"


@pytest.fixture(scope="module")
def site() -> t.Iterator[Site]:
    here = Site(os.environ.get("VTORQUE_LAB", "/run/vtorque-lab") + "-new")
    with contextlib.ExitStack() as stack:
        stack.callback(here.run, "down")
        here.up(by_roles=True)
        yield here


@pytest.mark.parametrize("node", ["fe", *NODES])
def test_the_roles_have_made_it(site: Site, node: str) -> None:
    """What only they do: a note of what was here before, ways of root to others, manual pages."""
    assert site.on(node, "test", "-e", "/var/lib/vtorque/made").returncode == 0
    assert site.on(node, "mountpoint", "/opt/vtorque/venv").returncode != 0, "nothing of this machine's is shown there"
    assert WRITTEN in site.root(node, "cat /etc/ssh/ssh_known_hosts")
    owner = site.root(node, "stat -c %U /opt/vtorque/venv/lib/python3*/site-packages/ansible_collections/*/vtorque")
    assert owner == "root\n"
    assert "man1/vsub.1" in site.root(node, "cd /opt/vtorque/share/man && ls */*")


def test_root_of_a_node_reaches_another_for_one_command_only(site: Site) -> None:
    """By a key of the node's own; guests are made and taken away on sisters over it."""
    keys = {site.root(node, "cat /root/.ssh/id_ed25519.pub") for node in NODES}
    assert len(keys) == len(NODES)
    output = site.on("cn1", "ssh", "cn2", "id", stdin="")
    assert json.loads(output.stdout)["ok"] is False, "vtorque-node, which was told nothing"
    assert "uid=" not in output.stdout


@pytest.mark.parametrize("node", NODES)
def test_a_sweep_finds_nothing_on_it(site: Site, node: str) -> None:
    done = sweep(site, node)
    assert (done.returncode, done.stderr) == (0, "")
