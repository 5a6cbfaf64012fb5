# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What root's ssh offers, in the words of the real one."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.doctor import node_checks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.ssh_options import KEX_ALGORITHMS
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.play import node_connection


def offered(*options: str) -> list[str]:
    done = subprocess.run(["/usr/bin/ssh", "-F", "none", "-G", *options, "n1"], capture_output=True, text=True,
                          timeout=30, check=True)  # fmt: skip
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    return lines["kexalgorithms"].split(",")


def test_all_is_offered_as_by_itself_but_for_the_slow_one() -> None:
    usual = offered()
    assert offered("-o", f"KexAlgorithms={KEX_ALGORITHMS}") == [one for one in usual if "sntrup761" not in one]
    assert "curve25519-sha256" in usual


def test_an_ssh_that_knows_no_slow_one_takes_it_too() -> None:
    assert offered("-o", "KexAlgorithms=-nobody-knows-this*") == offered()


@pytest.mark.parametrize(
    "command", [node_connection.ssh_command(pathlib.Path("/opt/v"), "n1", 5), node_checks.ssh_call("n1", 5.0)],
    ids=["the call of a node's program", "the doctor's look at a neighbour"],
)  # fmt: skip
def test_calls_of_other_nodes_do_without_the_slow_one(command: list[str]) -> None:
    ssh = command.index("/usr/bin/ssh")
    options = [command[at + 1] for at, word in enumerate(command) if word == "-o" and at > ssh]
    assert not any("sntrup761" in one for one in offered(*(word for one in options for word in ("-o", one))))
