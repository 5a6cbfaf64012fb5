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


def test_written_configuration_has_our_mark_and_the_same_values() -> None:
    report = former(OURS, PATH)
    assert report["said"] == {"bridge": "br1", "ram_max": 98304}
    assert (report["fault"], report["readable"], report["by_hand"]) == ("", True, False)
    assert report["policy"]["timeout"] == 120


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
def test_edited_one_is_known(text: str) -> None:
    assert former(text, PATH)["by_hand"]


def test_faulty_configuration_returns_its_good_values_and_the_fault() -> None:
    report = former("bridge: br7\nnode_number: seven\nbrigde: x\n", PATH)
    assert report["said"] == {"bridge": "br7"}
    assert "did you mean bridge?" in report["fault"]
    assert report["readable"]


@pytest.mark.parametrize("text", ["bridge: [br0\n", "- bridge\n- br0\n", "{{ lookup('pipe', 'id') }}\n", "\x00"])
def test_file_without_a_configuration_is_only_a_fault(text: str) -> None:
    report = former(text, PATH)
    assert (report["said"], report["readable"], report["by_hand"]) == ({}, False, True)
    assert report["fault"]


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
