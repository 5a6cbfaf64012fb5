# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies in /run/vtorque and speaks of nothing any more."""

from __future__ import annotations

import errno
import os
import pathlib
import time

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import run_files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId

LONG_AGO = time.time() - 10 * start_lock.STONE_KEPT_S
GONE = ProcessId(os.getpid(), 1)
"""Our number, but a process of another time."""
NO_PROCESS = 1 << 22
"""Above the greatest number that Linux gives a process."""


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    for name in ("jobs", "shells", "locks", "tombstones"):
        (tmp_path / "run" / name).mkdir(parents=True)
    return NodeSettings(node_name="cn1", node_number=1, state_dir=tmp_path / "state", run_dir=tmp_path / "run")


def test_link_goes_when_process_and_directory_are_gone(settings: NodeSettings) -> None:
    (settings.run_dir / "jobs" / "7.head.1").mkdir()
    here, gone = settings.run_dir / "jobs" / "7.head.1", settings.run_dir / "jobs" / "8.head.1"
    myself = ProcessId.of(os.getpid())
    for shell, directory in ((GONE, gone), (ProcessId(1, 1), here), (myself, gone)):
        shell_link.point(shell, directory, settings.run_dir)
    (settings.run_dir / "shells" / "README").write_text("not a link of ours")
    assert run_files.tidy(settings) == (f"shell link {GONE}",)
    assert {path.name for path in (settings.run_dir / "shells").iterdir()} == {"1.1", str(myself), "README"}


def test_shell_of_a_start_is_known_by_number_and_time(settings: NodeSettings) -> None:
    directory = settings.run_dir / "jobs" / "7.head.1"
    directory.mkdir()
    shell_link.point(GONE, directory, settings.run_dir)
    assert run_files.living_shell(settings, "7.head.1") is None
    myself = ProcessId.of(os.getpid())
    shell_link.point(myself, directory, settings.run_dir)
    assert run_files.living_shell(settings, "7.head.1") == myself
    assert run_files.living_shell(settings, "7.head.10") is None


@pytest.mark.parametrize(
    ("name", "age_s", "goes"),
    [
        (f".ready.json.{NO_PROCESS}", 0.0, True),
        (".ready.json.US", 0.0, False),
        (".ready.json.US", 7200.0, True),
        (".hidden", 7200.0, False),
        ("ready.json", 7200.0, False),
        (f"ready.{NO_PROCESS}", 7200.0, False),
    ],
)
@pytest.mark.parametrize("place", ["run", "run/shells", "run/jobs/7.head.1", "state/records/7.head.1"])
def test_half_a_file_goes_with_its_writer(
    settings: NodeSettings, place: str, name: str, age_s: float, goes: bool
) -> None:
    name = name.replace("US", str(os.getpid()))
    directory = settings.run_dir.parent / place
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text("{")
    os.utime(directory / name, (time.time() - age_s,) * 2)
    assert run_files.tidy(settings) == ((f"half a file {name}",) if goes else ())
    assert (directory / name).exists() is not goes


@pytest.mark.parametrize(
    ("name", "age_s", "goes"),
    [
        (f"ansible-local-{NO_PROCESS}abc_1239", 0.0, True),
        ("ansible-local-USabc_1239", 0.0, False),
        ("ansible-local-USabc_1239", 7200.0, True),
        (f"ansible-local-{NO_PROCESS}", 7200.0, False),
        ("tmp", 7200.0, False),
    ],
)
def test_temporary_files_go_with_their_playbook(settings: NodeSettings, name: str, age_s: float, goes: bool) -> None:
    """One that was killed leaves them."""
    name = name.replace("US", str(os.getpid()))
    directory = settings.run_dir / "ansible" / name
    directory.mkdir(parents=True)
    (directory / "something").touch()
    os.utime(directory, (time.time() - age_s,) * 2)
    assert run_files.tidy(settings) == ((f"temporary files {name}",) if goes else ())
    assert directory.exists() is not goes


def test_disk_that_takes_nothing_keeps_nothing_else_waiting(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(_path: pathlib.Path, **_how: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    directory = settings.state_dir / "records" / "7.head.1"
    directory.mkdir(parents=True)
    (directory / f".record.json.{NO_PROCESS}").touch()
    monkeypatch.setattr(pathlib.Path, "unlink", read_only)
    assert run_files.tidy(settings) == ()


def test_old_words_and_locks_are_forgotten_and_young_ones_kept(settings: NodeSettings) -> None:
    for place in ("tombstones", "locks"):
        for name, when in (("7.head.1", LONG_AGO), ("8.head.1", time.time())):
            (settings.run_dir / place / name).touch()
            os.utime(settings.run_dir / place / name, (when, when))
    assert run_files.tidy(settings) == ("tombstone 7.head.1", "lock file 7.head.1")


def test_lock_that_somebody_holds_stays_however_old_it_is(settings: NodeSettings) -> None:
    lock = start_lock.start_lock(settings, "7.head.1")
    with start_lock.lock_alone(lock, settings, Deadline.after(60.0)):
        os.utime(lock, (LONG_AGO, LONG_AGO))
        assert run_files.tidy(settings) == ()
        assert start_lock.is_locked(lock)


def test_run_files_of_a_new_node_are_none(tmp_path: pathlib.Path) -> None:
    settings = NodeSettings(node_name="cn1", node_number=1, state_dir=tmp_path / "s", run_dir=tmp_path / "r")
    assert run_files.tidy(settings) == ()
    assert run_files.run_keys(settings) == ()
