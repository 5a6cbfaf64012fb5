# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The look at an installation's places, as the role `common` runs it on a host: by itself, with any Python."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

from ..loaded_program import load_program

PROGRAM = COLLECTION_DIR.parent / "roles/common/files/look_at_places.py"
PREFIX = {"variable": "vtorque_prefix_nodes", "trusted": True}
POOL = {"variable": "vtorque_vm_img_dir", "pool": True}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="places are root's")


def faults(*places: dict[str, t.Any]) -> list[str]:
    done = subprocess.run([sys.executable, PROGRAM, json.dumps(places)], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout)["faults"])


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    tmp_path.chmod(0o755)
    return tmp_path


def test_place_that_is_not_there_yet_is_good(place: pathlib.Path) -> None:
    assert faults({"path": f"{place}/a/b/vtorque", **PREFIX, "room_bytes": 1000}) == []


def test_file_in_the_way_is_named(place: pathlib.Path) -> None:
    (place / "a").touch()
    assert faults({"path": f"{place}/a/b", **PREFIX}) == [f"{place}/a/b: {place}/a is no directory"]


def test_unreadable_place_is_not_taken_for_a_missing_one(place: pathlib.Path) -> None:
    """As below a mount whose server has gone; a link to itself is one that a test can make."""
    (place / "a").symlink_to("a")
    report = "Too many levels of symbolic links"
    remedy = "see to what is mounted there, or choose another place in vtorque_prefix_nodes"
    assert faults({"path": f"{place}/a/b/c", **PREFIX}) == [f"{place}/a/b/c cannot be looked at ({report}): {remedy}"]


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_where_others_may_write_root_runs_nothing(place: pathlib.Path, mode: int) -> None:
    (place / "a").mkdir()
    (place / "a").chmod(mode)
    (fault,) = faults({"path": f"{place}/a/vtorque", **PREFIX})
    assert f"{place}/a could be changed by others than root (owner 0, mode {mode:04o})" in fault
    assert "choose another place in vtorque_prefix_nodes" in fault


def test_place_below_a_foreign_directory_can_be_changed(place: pathlib.Path) -> None:
    (place / "a/b").mkdir(parents=True)
    (place / "a").chmod(0o775)
    assert f"{place}/a could be changed by others" in faults({"path": f"{place}/a/b/vtorque", **PREFIX})[0]


def test_directory_like_tmp_protects_what_is_in_it(place: pathlib.Path) -> None:
    (place / "a/b").mkdir(parents=True)
    (place / "a").chmod(0o1777)
    assert faults({"path": f"{place}/a/b/vtorque", **PREFIX}) == []


def test_link_is_followed_to_where_things_would_lie(place: pathlib.Path) -> None:
    (place / "real").mkdir()
    (place / "real").chmod(0o777)
    (place / "seen").symlink_to("real")
    assert f"{place}/real could be changed by others" in faults({"path": f"{place}/seen/vtorque", **PREFIX})[0]


def test_rooms_on_one_file_system_add_up(place: pathlib.Path) -> None:
    facts = os.statvfs(place)
    half = facts.f_bavail * facts.f_frsize // 2
    one = {"path": f"{place}/a", "room_bytes": half}
    two = {"path": f"{place}/b", "room_bytes": half + 1_000_000_000}
    assert faults(one) == []
    (fault,) = faults(one, two)
    assert f"are needed ({place}/a " in fault
    assert f", {place}/b " in fault
    assert fault.endswith("make room")


def test_file_system_that_is_read_only_and_small_is_told(place: pathlib.Path) -> None:
    script = 'mount -t tmpfs -o ro,size=1m,mode=0755 small "$1" && exec "$2" "$3" "$4"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", place, sys.executable, PROGRAM,
         json.dumps([{"path": f"{place}/vtorque", **PREFIX, "room_bytes": 2_000_000}])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["faults"] == [
        f"{place}/vtorque: {place} is mounted read-only: mount it writable, or choose another place in "
        "vtorque_prefix_nodes",
        f"{place} has 1 MB left, and 2 MB are needed ({place}/vtorque 2 MB): make room",
    ]


def test_pool_that_is_not_there_is_good(place: pathlib.Path) -> None:
    assert faults({"path": f"{place}/images", **POOL}) == []


@pytest.mark.parametrize(
    ("mode", "uid", "good"), [(0o755, 0, True), (0o775, 0, False), (0o757, 0, False), (0o755, 1001, False)]
)
def test_pool_is_roots_alone(place: pathlib.Path, mode: int, uid: int, good: bool) -> None:
    pool = place / "images"
    pool.mkdir()
    pool.chmod(mode)
    os.chown(pool, uid, -1)
    output = faults({"path": str(pool), **POOL})
    assert len(output) == (0 if good else 1)
    assert good or f"{pool} could be changed by others than root (owner {uid}, mode {mode:04o})" in output[0]


def test_pool_behind_a_link_is_refused(place: pathlib.Path) -> None:
    (place / "real").mkdir()
    (place / "images").symlink_to(place / "real")
    assert faults({"path": f"{place}/images", **POOL}) == [
        f"{place}/images is a link to {place}/real: vtorque_vm_img_dir must name the image pool itself"
    ]


REMOVAL = {"variable": "vtorque_vm_img_dir", "removal": True}


def test_images_of_a_pool_of_the_hosts_own_may_be_removed(place: pathlib.Path) -> None:
    (place / "pool").mkdir()
    assert faults({"path": f"{place}/pool", **REMOVAL}, {"path": f"{place}/none", **REMOVAL}) == []


def test_images_behind_a_link_or_on_a_mount_are_not_removed(place: pathlib.Path) -> None:
    (place / "pool").mkdir()
    (place / "link").symlink_to("pool")
    (fault,) = faults({"path": f"{place}/link", **REMOVAL})
    assert fault == f"{place}/link is no directory: vtorque_vm_img_dir must name the image pool itself"
    (fault,) = faults({"path": "/proc", **REMOVAL})
    assert fault.startswith("/proc is a file system of its own (proc), and other hosts may have guests of its images:")
    assert "play it without vtorque_remove_images" in fault


QSUB = {"variable": "vtorque_pbs_qsub_on_fe", "never": "vsub"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qsub", ""), ("torque-qsub", ""), ("none", "is not there"), ("text", "cannot be run"),
        ("ours", "leads to vsub itself"),
    ],
)  # fmt: skip
def test_qsub_is_torques_own(place: pathlib.Path, name: str, message: str) -> None:
    for program in ("qsub", "vsub"):
        (place / program).write_text("#!/bin/sh\n")
        (place / program).chmod(0o755)
    (place / "text").touch(0o644)
    (place / "torque-qsub").symlink_to("qsub")
    (place / "link").symlink_to("vsub")
    (place / "ours").symlink_to("link")
    output = f"{place}/{name} {message}: vtorque_pbs_qsub_on_fe must name the site's own qsub"
    assert faults({"path": f"{place}/{name}", **QSUB}) == ([output] if message else [])


@pytest.fixture
def module() -> types.ModuleType:
    return load_program(PROGRAM)


@pytest.mark.parametrize(
    ("how", "timeout_s", "message"),
    [
        (lambda _place: os.kill(os.getpid(), signal.SIGKILL), 300, "the process that looked at it was ended"),
        (lambda _place: time.sleep(600), 0.2, "no answer in 0.2 s"),
    ],
    ids=["killed", "hangs"],
)
def test_look_that_does_not_end_well_is_a_fault_of_its_place(
    module: types.ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    how: t.Callable[[object], object],
    timeout_s: float,
    message: str,
) -> None:
    monkeypatch.setattr(module, "answer_of", how)
    monkeypatch.setattr(module, "TIMEOUT_S", timeout_s)
    (fault,) = module.asked({"path": "/opt/vm-images"})["faults"]
    assert fault.startswith("/opt/vm-images: ")
    assert message in fault


def test_front_ends_on_one_file_system_do_not_write_at_once(
    place: pathlib.Path, module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"path": f"{place}/vtorque", "variable": "vtorque_prefix", "trusted": True}
    monkeypatch.setattr(module, "mount_of", lambda _path: ("/opt", "nfs4"))
    (fault,) = module.look({**asked, "beside": ["fe2", "fe3"]})["faults"]
    assert f"{place}/vtorque lies on nfs4 (/opt), and fe2, fe3 in this run may see it too" in fault
    assert "-e install_serial=1" in fault
    assert module.look({**asked, "beside": []})["faults"] == []
    monkeypatch.setattr(module, "mount_of", lambda _path: ("/opt", "ext4"))
    assert module.look({**asked, "beside": ["fe2"]})["faults"] == []
