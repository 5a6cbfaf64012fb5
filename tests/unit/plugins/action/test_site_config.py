# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of a configuration that is on a host already."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.action.site_config import (
    alarm_of,
    checked_text,
    former,
    marked,
)

PATH = "/etc/vtorque/vtorque.yml"
OURS = marked(checked_text({"bridge": "br1", "ram_max": "96G"}, PATH)[0])


def test_what_we_wrote_bears_our_mark_and_reads_as_before() -> None:
    told = former(OURS, PATH)
    assert told["said"] == {"bridge": "br1", "ram_max": 98304}
    assert (told["fault"], told["readable"], told["by_hand"]) == ("", True, False)
    assert told["policy"]["timeout"] == 120


@pytest.mark.parametrize(
    "text",
    [
        OURS.replace("br1", "br2"),
        OURS + "timeout: 100\n",
        OURS[:-1],
        OURS.replace("# Lines", "# lines").rsplit("#", 1)[0],
        "bridge: br1\n",
        "",
    ],
)
def test_an_edited_one_is_known(text: str) -> None:
    assert former(text, PATH)["by_hand"]


def test_what_can_be_read_of_a_wrong_one_is_told_with_its_fault() -> None:
    told = former("bridge: br7\nnode_number: seven\nbrigde: x\n", PATH)
    assert told["said"] == {"bridge": "br7"}
    assert "did you mean bridge?" in told["fault"]
    assert told["readable"]


@pytest.mark.parametrize("text", ["bridge: [br0\n", "- bridge\n- br0\n", "{{ lookup('pipe', 'id') }}\n", "\x00"])
def test_what_is_no_configuration_at_all_is_a_fault_and_no_more(text: str) -> None:
    told = former(text, PATH)
    assert (told["said"], told["readable"], told["by_hand"]) == ({}, False, True)
    assert told["fault"]


@pytest.mark.parametrize(
    ("prologue", "epilogue", "seconds", "decides"),
    [
        (270, 60, 300, "prologue_timeout"),
        (270, 240, 300, "prologue_timeout"),
        (270, 241, 301, "vm_epilogue_timeout"),
        (600, 60, 630, "prologue_timeout"),
        (30, 60, 120, "vm_epilogue_timeout"),
    ],
)
def test_alarm_of_a_configuration_fits_what_its_hooks_need(
    prologue: int, epilogue: int, seconds: int, decides: str
) -> None:
    asked = {"prologue_timeout": prologue, "vm_epilogue_timeout": epilogue}
    assert alarm_of(asked) == {"seconds": seconds, "parameter": decides}
