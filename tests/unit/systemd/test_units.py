# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The units of systemd: when the sweep runs, and before whom; who fetches images."""

from __future__ import annotations

import configparser
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import copy_queue
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR, render
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vtorque_sweep
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.site_report import gather

UNITS = {path.name.removesuffix(".j2"): path for path in (COLLECTION_DIR / "systemd").iterdir()}


def read(name: str) -> configparser.ConfigParser:
    text = render(f"systemd/{UNITS[name].name}", site_dir=None, prefix="/opt/vtorque")
    unit = configparser.ConfigParser(strict=True, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    return unit


SWEEP = {"vtorque-sweep.service", "vtorque-sweep.timer", "vtorque-sweep-boot.service"}
CACHE = {"vtorque-cache.path", "vtorque-cache.service"}
REPORT = {"vtorque-report.timer", "vtorque-report.service"}


def test_there_are_a_timer_its_service_one_for_the_boot_two_for_images_and_two_for_the_sites_page() -> None:
    assert set(UNITS) == SWEEP | CACHE | REPORT


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("vtorque-sweep.service", "/opt/vtorque/bin/vtorque-sweep"),
        ("vtorque-sweep-boot.service", "/opt/vtorque/bin/vtorque-sweep --boot"),
    ],
)
def test_service_runs_once_and_may_take_as_long_as_the_program(name: str, command: str) -> None:
    service = read(name)["Service"]
    assert (service["Type"], service["ExecStart"]) == ("oneshot", command)
    assert int(service["TimeoutStartSec"]) > vtorque_sweep.DEADLINE_S + vtorque_sweep.LAST_S


def test_program_of_the_site_that_a_sweep_calls_outlives_it() -> None:
    assert read("vtorque-sweep.service")["Service"]["KillMode"] == "process"


def test_boot_is_swept_before_the_mom_starts() -> None:
    unit = read("vtorque-sweep-boot.service")
    assert {"pbs_mom.service", "torque-mom.service", "slurmd.service"} <= set(unit["Unit"]["Before"].split())
    assert unit["Unit"]["RequiresMountsFor"].split() == ["/opt/vtorque", "/var/lib/vtorque"]
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_timer_comes_again_and_not_on_all_nodes_at_once() -> None:
    timer = read("vtorque-sweep.timer")
    assert timer["Timer"]["OnUnitInactiveSec"] == "2min"
    assert int(timer["Timer"]["RandomizedDelaySec"]) > 0
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_images_are_fetched_when_a_mark_is_there_and_for_as_long_as_it_takes() -> None:
    node = NodeSettings(node_name="cn1", node_number=1)
    assert read("vtorque-cache.path")["Path"]["DirectoryNotEmpty"] == str(copy_queue.marks_of(node))
    assert copy_queue.UNIT in CACHE
    service = read("vtorque-cache.service")["Service"]
    assert (service["Type"], service["ExecStart"]) == ("oneshot", "/opt/vtorque/bin/vtorque-cache fill")
    assert (service["TimeoutStartSec"], service["Nice"]) == ("infinity", "19")


def test_page_of_the_site_is_written_soon_and_again_after_each_time() -> None:
    timer, service = read("vtorque-report.timer"), read("vtorque-report.service")["Service"]
    assert (timer["Timer"]["OnActiveSec"], timer["Timer"]["OnUnitInactiveSec"]) == ("10s", "5min")
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert (service["Type"], service["ExecStart"]) == ("oneshot", "/opt/vtorque/bin/vmgr site report")
    assert service["Nice"] == "19"
    assert int(service["TimeoutStartSec"]) > 3 * gather.BATCH_S


@pytest.mark.parametrize(
    ("units", "page"), [(SWEEP, "vtorque-sweep.8"), (CACHE, "vtorque-cache.8"), (REPORT, "vmgr.1")]
)
def test_manual_page_that_the_units_name_is_there(units: set[str], page: str) -> None:
    pages = {read(name)["Unit"]["Documentation"] for name in units}
    name, _dot, section = page.rpartition(".")
    assert pages == {f"man:{name}({section})"}
    assert (pathlib.Path(COLLECTION_DIR).parent / f"docs/man/{page}").is_file()
