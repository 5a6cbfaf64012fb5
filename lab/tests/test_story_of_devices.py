# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The story of devices, as far as no machine need boot (tests/e2e/kvm has its job run)."""

from __future__ import annotations

import copy
import pathlib
import subprocess
import typing as t

import pytest

from lab.stories import devices

GUEST = {"cells": "0:0:256", "vcpu_cores": "1", "pages": "2M", "devices": devices.CARDS[0]}
FAR = {**GUEST, "cells": "1:0:256", "vcpu_cores": "2", "devices": devices.CARDS[1]}
RECORD: dict[str, t.Any] = {"exit_status": 0, "guests": [GUEST, FAR]}
OUTPUT = "".join(
    f"Hypervisor vendor: KVM\n02:00.0 0200: 8086:10d3\n0000:02:00.0 near cell {cell}\n" for cell in (-1, 0)
)


def test_story_that_went_as_it_should_passes() -> None:
    devices.check_record(RECORD, OUTPUT)


@pytest.mark.parametrize(
    ("change", "output", "reason"),
    [
        ({"cells": "0:0:256"}, OUTPUT, "not in two cells"),
        ({"vcpu_cores": "1"}, OUTPUT, "cores of their own"),
        ({"pages": ""}, OUTPUT, "not in huge pages"),
        ({}, OUTPUT.replace(devices.CARD_ID, "1af4:1000", 1), "no card of the node"),
        ({}, OUTPUT.replace("KVM", "TCG", 1), "does not name KVM"),
        ({}, OUTPUT.replace("near cell 0", "near cell -1"), "not known to be near"),
        ({"devices": devices.CARDS[0]}, OUTPUT, "not known to be near"),
    ],
)
def test_story_in_which_a_guest_lacks_something_fails_and_names_it(
    change: dict[str, t.Any], output: str, reason: str
) -> None:
    record = copy.deepcopy(RECORD)
    record["guests"][1] |= change
    with pytest.raises(devices.StoryError, match=reason):
        devices.check_record(record, output)


def test_story_whose_job_failed_fails() -> None:
    with pytest.raises(devices.StoryError, match="exit status 1"):
        devices.check_record({**RECORD, "exit_status": 1}, OUTPUT)


def test_look_at_a_guest_succeeds_whatever_its_last_card_is(tmp_path: pathlib.Path) -> None:
    (tmp_path / "programs" / "lib").mkdir(parents=True)
    (tmp_path / "programs" / "lib" / "ld.so").symlink_to("/bin/true")
    done = subprocess.run(
        ["/bin/sh", "-c", devices.LOOK], env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_programs_run_with_the_libraries_that_were_copied_with_them(tmp_path: pathlib.Path) -> None:
    """In a guest without any: the loader is called by its place.  A program that this machine has not is none."""
    assert devices.copy_programs(tmp_path / "programs", ("lscpu", "no-such-program")) == ["lscpu"]
    done = subprocess.run(
        ["./lib/ld.so", "--library-path", "./lib", "./lscpu"],
        cwd=tmp_path / "programs", env={"LC_ALL": "C"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "CPU(s):" in done.stdout
