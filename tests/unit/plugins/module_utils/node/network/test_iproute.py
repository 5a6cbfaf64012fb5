# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `ip` is asked of a real kernel, and what becomes of an `ip` that fails or prints something else."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import iproute
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import tool
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

from .kernel import run_in_network

LATER = Deadline(float("inf"))

KERNEL = """
import subprocess
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import iproute
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
LATER = Deadline(float("inf"))
MAC = "52:54:00:00:01:01"
def ip(words): subprocess.run(["ip", *words.split()], check=True)
for bridge in ("br0", "br1"):
    ip(f"link add {bridge} type bridge")
ip("addr add 10.77.0.1/16 dev br0")
ip("addr add fd00::1/64 dev br0 nodad")
ip("addr add 10.78.0.1/16 dev br1")
for bridge in ("br0", "br1"):
    ip(f"link set {bridge} up")
assert set(iproute.read_addresses("br0", LATER)) >= {"10.77.0.1", "fd00::1"}
assert "10.78.0.1" not in iproute.read_addresses("br0", LATER), "it is another interface's"
assert iproute.read_neighbours("br0", LATER) == ()
for address in ("10.77.0.5", "fd00::5"):
    ip(f"neigh replace {address} lladdr {MAC} dev br0 nud reachable")
ip("neigh replace 10.77.0.6 dev br0 nud failed")
ip(f"neigh replace 10.78.0.5 lladdr {MAC} dev br1 nud reachable")
found = {address for mac, address in iproute.read_neighbours("br0", LATER) if mac == MAC}
assert found == {"10.77.0.5", "fd00::5"}, found
for address in found:
    assert iproute.forget_neighbour(address, "br0", LATER)
    assert not iproute.forget_neighbour(address, "br0", LATER), "it is gone"
assert not [address for mac, address in iproute.read_neighbours("br0", LATER) if mac == MAC]
assert (MAC, "10.78.0.5") in iproute.read_neighbours("br1", LATER), "another bridge keeps what it knows"
for call in (
    lambda: iproute.read_addresses("br9", LATER),
    lambda: iproute.read_neighbours("br9", LATER),
    lambda: iproute.forget_neighbour("10.77.0.5", "br9", LATER),
):
    try:
        call()
    except VTorqueError as error:
        assert "br9" in str(error) and ("Cannot find device" in error.why or "does not exist" in error.why), error
    else:
        raise AssertionError("there is no such interface")
print("all held")
"""


def test_kernels_tables_are_asked_and_changed() -> None:
    """In a network namespace of its own."""
    done = run_in_network(KERNEL)
    assert done.stdout == "all held\n", done.stderr


@pytest.fixture
def pretend(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[[str], None]:
    """Put a program of another text in the place of `ip`."""
    monkeypatch.setattr(tool, "TOOL_ENVIRONMENT", {"PATH": str(tmp_path)})

    def put(script: str) -> None:
        (tmp_path / "ip").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "ip").chmod(0o755)

    return put


def test_neighbour_that_cannot_be_forgotten_is_an_error_with_the_reason(pretend: t.Callable[[str], None]) -> None:
    pretend("echo 'RTNETLINK answers: Operation not permitted' >&2; exit 2")
    with pytest.raises(VTorqueError, match="Operation not permitted"):
        iproute.forget_neighbour("10.77.0.5", "br0", LATER)


@pytest.mark.parametrize("answer", ["{}", "[]", '["x"]', '[{"dst": "10.77.0.5"}]', ""])
def test_answer_without_a_neighbour_names_none(pretend: t.Callable[[str], None], answer: str) -> None:
    pretend(f"printf %s '{answer}'")
    assert iproute.read_neighbours("br0", LATER) == ()


@pytest.mark.parametrize("answer", ["{", "7", "null", "br0: up"])
def test_answer_of_another_form_is_an_error(pretend: t.Callable[[str], None], answer: str) -> None:
    pretend(f"printf %s '{answer}'")
    with pytest.raises(VTorqueError, match="no list of JSON"):
        iproute.read_neighbours("br0", LATER)


def test_ip_that_is_not_installed_is_a_fault_of_the_node(tmp_path: pathlib.Path, pretend: object) -> None:
    with pytest.raises(NodeFault, match="install iproute2"):
        iproute.read_addresses("br0", LATER)


def test_ip_that_does_not_answer_is_ended(pretend: t.Callable[[str], None]) -> None:
    pretend("exec /bin/sleep 60")
    with pytest.raises(VTorqueError, match="no answer within"):
        iproute.read_addresses("br0", Deadline.after(0.2))
