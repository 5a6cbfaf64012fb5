# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's rows on side channels."""

from __future__ import annotations

import errno
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.health import isolation
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import prctl

from ..placement.test_cache_shares import resctrl
from ..system.test_side_channels import host

OFF, CORES, STRICT = (NodeSettings("cn1", 1, side_channels=level) for level in ("off", "cores", "strict"))


def able() -> bool:
    return True


def unable() -> bool:
    return False


@pytest.mark.parametrize(
    ("settings", "smt", "state", "cell"),
    [
        (OFF, "on", "ok", "on"),
        (OFF, "forceoff", "ok", "off"),
        (STRICT, "on", "bad", "on"),
        (STRICT, "off", "ok", "off"),
    ],
)
def test_threads_of_cores_are_bad_where_the_site_wants_none(
    tmp_path: pathlib.Path, settings: NodeSettings, smt: str, state: str, cell: str
) -> None:
    found = isolation.check_smt(settings, host(tmp_path, smt=smt))
    assert (found.state, found.cell, bool(found.problem)) == (state, cell, state == "bad")


@pytest.mark.parametrize(
    ("line", "can", "bad"),
    [
        ('sched_core = "vcpus"', unable, True),
        ("  sched_core='full'", unable, True),
        ('sched_core = "vcpus"', able, False),
        ('sched_core = "none"', unable, False),
        ('#sched_core = "vcpus"', unable, False),
        ("", unable, False),
    ],
)
def test_core_scheduling_that_the_kernel_has_not_is_found_before_libvirtd_does_not_start(
    tmp_path: pathlib.Path, line: str, can: t.Callable[[], bool], bad: bool
) -> None:
    configuration = tmp_path / "qemu.conf"
    configuration.write_text(f'user = "root"\n{line}\n', "utf-8")
    found = isolation.check_core_scheduling(OFF, host(tmp_path), configuration, can)
    assert (found.state == "bad") is bad
    assert ("libvirtd will not start again" in found.problem) is bad


@pytest.mark.parametrize(
    ("settings", "smt", "can", "line", "state", "cell"),
    [
        (OFF, "on", able, "", "ok", "unset"),
        (OFF, "on", able, 'sched_core = "full"', "ok", "full"),
        (CORES, "on", able, "", "ok", "on"),
        (STRICT, "on", able, "", "ok", "on"),
        (OFF, "on", unable, "", "none", "no"),
        (CORES, "on", unable, "", "warn", "no"),
        (CORES, "off", unable, "", "none", "no threads"),
        (STRICT, "off", unable, "", "none", "no threads"),
    ],
)
def test_row_says_who_keeps_threads_of_a_core_apart(
    tmp_path: pathlib.Path,
    settings: NodeSettings,
    smt: str,
    can: t.Callable[[], bool],
    line: str,
    state: str,
    cell: str,
) -> None:
    (tmp_path / "qemu.conf").write_text(f"{line}\n", "utf-8")
    found = isolation.check_core_scheduling(settings, host(tmp_path, smt=smt), tmp_path / "qemu.conf", can)
    assert (found.state, found.cell, bool(found.problem)) == (state, cell, state == "warn")


@pytest.mark.parametrize(
    ("kernel", "groups", "of_off", "of_strict", "cell"),
    [
        (False, None, "none", "none", "no"),
        (True, None, "ok", "warn", "unused"),
        (True, {"": "L3:0=fffff;1=fffff"}, "ok", "warn", "0 of 20"),
        (True, {"": "L3:0=3;1=fffff"}, "ok", "warn", "0 of 20"),
        (True, {"": "L3:0=3;1=f"}, "ok", "ok", "16 of 20"),
    ],
)
def test_caches_that_could_be_divided_and_are_not_are_a_warning_where_the_site_is_strict(
    tmp_path: pathlib.Path, kernel: bool, groups: dict[str, str] | None, of_off: str, of_strict: str, cell: str
) -> None:
    place = resctrl(tmp_path, groups) if groups else tmp_path / "resctrl"
    (tmp_path / "filesystems").write_text("nodev\tsysfs\n" + "nodev\tresctrl\n" * kernel, "ascii")
    for settings, state in ((OFF, of_off), (CORES, of_off), (STRICT, of_strict)):
        found = isolation.check_caches(settings, place, tmp_path / "filesystems")
        assert (found.state, found.cell) == (state, cell)
        assert bool(found.problem and found.remedy) is (state == "warn")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENODEV])
def test_kernel_without_core_scheduling_says_so(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_words: object) -> t.NoReturn:
        raise OSError(number, "no")

    monkeypatch.setattr(prctl, "_call", refuse)
    assert not prctl.has_core_scheduling()


def test_question_for_core_scheduling_is_asked_of_the_kernel_itself() -> None:
    assert prctl.has_core_scheduling() in (True, False)


@pytest.mark.parametrize(("settings", "state"), [(OFF, "ok"), (CORES, "warn"), (STRICT, "bad")])
def test_faults_without_a_mitigation_are_named(tmp_path: pathlib.Path, settings: NodeSettings, state: str) -> None:
    assert isolation.check_mitigations(settings, host(tmp_path / "good")).state == "ok"
    found = isolation.check_mitigations(settings, host(tmp_path / "weak", weak={"retbleed": "Vulnerable"}))
    assert (found.state, found.problem) == (state, "" if state == "ok" else "retbleed: Vulnerable")
    assert found.cell == ("1 open" if state == "ok" else "1")


def test_kernel_that_tells_of_no_faults_is_bad_for_strict_alone(tmp_path: pathlib.Path) -> None:
    assert isolation.check_mitigations(OFF, tmp_path).state == "none"
    assert isolation.check_mitigations(STRICT, tmp_path).state == "bad"


@pytest.mark.parametrize(("settings", "state"), [(OFF, "ok"), (CORES, "warn"), (STRICT, "bad")])
def test_merged_pages_are_reported(tmp_path: pathlib.Path, settings: NodeSettings, state: str) -> None:
    assert isolation.check_ksm(settings, host(tmp_path / "off")).state == "ok"
    found = isolation.check_ksm(settings, host(tmp_path / "on", ksm="1"))
    assert (found.state, found.cell, bool(found.problem)) == (state, "on", state != "ok")
