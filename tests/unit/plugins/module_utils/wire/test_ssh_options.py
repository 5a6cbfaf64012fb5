# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What root's ssh offers, in the words of the real one."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.doctor import node_checks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import node_command, ssh_options
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.ssh_options import KEX_ALGORITHMS


def read_by_ssh(*options: str) -> dict[str, str]:
    """What ssh itself takes from its arguments, by the option's name in small letters."""
    done = subprocess.run(["/usr/bin/ssh", "-F", "none", "-G", *options, "n1"], capture_output=True, text=True,
                          timeout=30, check=True)  # fmt: skip
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def offered(*options: str) -> list[str]:
    return read_by_ssh(*options)["kexalgorithms"].split(",")


def test_all_is_offered_as_by_itself_but_for_the_slow_one() -> None:
    usual = offered()
    assert offered("-o", f"KexAlgorithms={KEX_ALGORITHMS}") == [one for one in usual if "sntrup761" not in one]
    assert "curve25519-sha256" in usual


def test_ssh_that_knows_no_slow_one_takes_it_too() -> None:
    assert offered("-o", "KexAlgorithms=-nobody-knows-this*") == offered()


@pytest.mark.parametrize(
    "command", [node_command.ssh_command(pathlib.Path("/opt/v"), "n1", 5), node_checks.ssh_call("n1", 5.0)],
    ids=["the call of a node's program", "the doctor's look at a neighbour"],
)  # fmt: skip
def test_calls_of_other_nodes_do_without_the_slow_one(command: list[str]) -> None:
    ssh = command.index("/usr/bin/ssh")
    options = [command[at + 1] for at, word in enumerate(command) if word == "-o" and at > ssh]
    assert not any("sntrup761" in one for one in offered(*(word for one in options for word in ("-o", one))))


ROOT = ssh_options.root_arguments("n1", 5.0)


@pytest.mark.parametrize(
    "options", [ssh_options.NODE, ssh_options.GUEST_PROBE, ssh_options.GUEST_LOGIN],
    ids=["to a node", "a look at a guest", "the job's shell"],
)  # fmt: skip
def test_ssh_asks_nobody_and_leaves_nothing_on_every_way(options: tuple[str, ...]) -> None:
    taken = read_by_ssh(*ssh_options.option_arguments(options))
    wanted = {"batchmode": "yes", "stricthostkeychecking": "true", "updatehostkeys": "false", "forwardagent": "no",
              "forwardx11": "no", "clearallforwardings": "yes", "permitlocalcommand": "no", "controlmaster": "false",
              "loglevel": "ERROR"}  # fmt: skip
    assert {name: taken[name] for name in wanted} == wanted
    assert "controlpath" not in taken


def test_root_reaches_another_node_with_the_same_options_for_every_purpose() -> None:
    program = node_command.ssh_command(pathlib.Path("/opt/v"), "n1", 5)
    assert program[-len(ROOT) - 2 : -1] == ["/usr/bin/ssh", *ROOT]
    assert node_checks.ssh_call("n1", 5.0) == ["/usr/bin/ssh", *ROOT]
    taken = read_by_ssh(*ROOT[:-2])
    silent_s = int(taken["serveraliveinterval"]) * int(taken["serveralivecountmax"])
    assert (taken["connecttimeout"], silent_s, taken["user"]) == ("5", 15, "root")


@pytest.mark.parametrize("timeout_s", [0.2, 1.9])
def test_time_for_a_connection_is_never_none(timeout_s: float) -> None:
    """`ConnectTimeout=0` would wait as long as TCP does."""
    assert "ConnectTimeout=1" in ssh_options.root_arguments("n1", timeout_s)


def test_display_of_a_job_goes_before_the_options_of_its_shell() -> None:
    taken = read_by_ssh(*ssh_options.option_arguments((*ssh_options.X11, *ssh_options.GUEST_LOGIN)))
    assert (taken["forwardx11"], taken["loglevel"]) == ("yes", "FATAL")
