# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of health_sources: what they mean, and which are refused with a reason."""

from __future__ import annotations

import re

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists import health_sources
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists.health_sources import HealthSource


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (
            "counter memory /sys/devices/system/edac/mc/mc*/ce_count limit=100",
            HealthSource("counter", "memory", "/sys/devices/system/edac/mc/mc*/ce_count", 100),
        ),
        (
            "counter pcie /sys/bus/pci/devices/*/aer_dev_fatal  field=TOTAL_ERR_FATAL limit=1 hosts=gn[0-9]+",
            HealthSource("counter", "pcie", "/sys/bus/pci/devices/*/aer_dev_fatal", 1, "TOTAL_ERR_FATAL", "gn[0-9]+"),
        ),
        ("program nhc /usr/sbin/nhc", HealthSource("program", "nhc", "/usr/sbin/nhc")),
        ("message mom", HealthSource("message", "mom")),
    ],
)
def test_line_of_each_kind_is_read(line: str, source: HealthSource) -> None:
    assert health_sources.read_line(line) == source
    assert health_sources.read_line(health_sources.write_line(line)) == source


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "a line"),
        ("counter", "a line"),
        ("sensor heat /sys/x limit=1", "a line"),
        ("counter Heat /sys/x limit=1", "a line"),
        ("counter heat", "absolute path"),
        ("counter heat sys/x limit=1", "absolute path"),
        ("counter heat /sys/../etc/x limit=1", "absolute path"),
        ("counter heat /sys/x", "needs limit=N"),
        ("counter heat /sys/x limit=0", "limit=0: no such option"),
        ("counter heat /sys/x limit=1 limit=2", "limit=2: no such option"),
        ("program nhc /usr/sbin/nhc -v", "-v: no such option of a program"),
        ("program nhc /usr/sbin/nhc limit=1", "no such option of a program"),
        ("message mom /x", "/x: no such option of a message"),
        ("program nhc /usr/sbin/nhc hosts=(", "no regular expression"),
    ],
)
def test_line_of_another_form_is_refused_with_a_reason(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        health_sources.read_line(line)


def test_sources_of_a_host_are_those_that_name_it() -> None:
    lines = ("program nhc /a hosts=gn[0-9]+", "program nhc /b", "message mom hosts=gn1")
    assert [(one.name, one.path) for one in health_sources.sources_on(lines, "gn1.cluster")] == [
        ("nhc", "/a"),
        ("mom", ""),
    ]
    assert [(one.name, one.path) for one in health_sources.sources_on(lines, "cn1")] == [("nhc", "/b")]
