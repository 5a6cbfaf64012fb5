# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ssh that the prologue began for the job's shell ends with what it is for, whoever meets it."""

from __future__ import annotations

import os
import pathlib
import pwd
import select
import shutil
import stat
import subprocess
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import login_fifos, shell_link

from .hook_site import READY, USER, Site, nothing_left


class Begun:
    """A program called ssh, the user's and of no session of ours, that has the FIFO open as ssh has it."""

    def __init__(self, site: Site) -> None:
        program = site.place / "ssh"
        shutil.copyfile(shutil.which("sleep") or "", program)
        program.chmod(0o755)
        # for the end of its playbook the hook waits: it tells its number by a file
        self._told = site.place / "began"
        uid = pwd.getpwnam(USER).pw_uid
        self.line = (
            f'mkfifo "$run_dir/{login_fifos.SAID}"; setsid setpriv --reuid={uid} --clear-groups {program} 1000 '
            f'0<>"$run_dir/{login_fifos.SAID}" >/dev/null 2>&1 & echo $! >{self._told}; '
            f"until grep -qx ssh /proc/$!/comm; do sleep 0.1; done"
        )

    @property
    def pid(self) -> int:
        return int(self._told.read_text())

    def gone(self) -> bool:
        """Has it ended?  Waits for nothing but a process that was killed."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([handle], [], [], 0)[0])
        finally:
            os.close(handle)


@pytest.fixture
def begun(site: Site) -> Begun:
    return Begun(site)


def test_early_ssh_lives_from_ready_to_the_end_of_the_job(site: Site, begun: Begun) -> None:
    site.play(f"{begun.line}; {READY}")
    assert site.prologue().returncode == 0
    assert not begun.gone()
    done = site.epilogue()
    assert (done.returncode, done.stderr) == (0, "")
    assert begun.gone()
    nothing_left(site)


def test_start_that_fails_takes_it_back(site: Site, begun: Begun) -> None:
    """Also where the playbook itself ended well, and took nothing with it."""
    site.play(f'{begun.line}; : >"$run_dir/plan.json"; exit 0')
    site.prologue()
    assert site.refusal()["why"].startswith("the playbook ended well")
    assert begun.gone()
    assert not (site.directory / login_fifos.SAID).exists()


def test_start_that_begins_again_takes_the_former_one_away(site: Site, begun: Begun) -> None:
    site.play(f"{begun.line}; {READY}")
    assert site.prologue().returncode == 0
    assert not begun.gone()
    site.play(READY)
    assert site.prologue().returncode == 0
    assert begun.gone()


def test_removal_of_the_run_directory_ends_the_early_ssh_first(site: Site, begun: Begun) -> None:
    """So does the sweep, when the epilogue is lost."""
    site.play(f"{begun.line}; {READY}")
    assert site.prologue().returncode == 0
    assert "ssh of the job's shell" in shell_link.remove_run(site.directory, site.run_dir)
    assert begun.gone()
    nothing_left(site)


def test_early_ssh_that_does_not_end_is_reported(site: Site, begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory stays, by which the next one finds it."""
    site.play(f"{begun.line}; {READY}")
    assert site.prologue().returncode == 0
    with monkeypatch.context() as patch:
        patch.setattr(login_fifos.signal, "pidfd_send_signal", lambda _handle, _number: None)
        patch.setattr(login_fifos, "EARLY_SSH_END_S", 0.0)
        with pytest.raises(VTorqueError, match="would not end"):
            shell_link.remove_run(site.directory, site.run_dir)
    assert stat.S_ISFIFO((site.directory / login_fifos.SAID).stat().st_mode)
    shell_link.remove_run(site.directory, site.run_dir)
    assert begun.gone()


def test_program_with_roots_rights_is_not_ended_for_its_user(site: Site, begun: Begun) -> None:
    site.play(READY)
    assert site.prologue().returncode == 0
    os.mkfifo(site.directory / login_fifos.SAID)
    output = os.open(site.directory / login_fifos.SAID, os.O_RDWR)
    with subprocess.Popen([site.place / "ssh", "1000"], stdin=output) as other:
        os.close(output)
        try:
            assert not login_fifos.end(site.directory)
            assert other.poll() is None
        finally:
            other.kill()


def test_early_ssh_is_ended_before_its_exec(site: Site) -> None:
    """Between root's call and ssh stands setpriv, at first with root's rights."""
    site.play(READY)
    assert site.prologue().returncode == 0
    os.mkfifo(site.directory / login_fifos.SAID)
    output = os.open(site.directory / login_fifos.SAID, os.O_RDWR)
    shutil.copy(shutil.which("sleep") or "", site.place / "setpriv")
    with subprocess.Popen([site.place / "setpriv", "1000"], stdin=output) as becoming:
        os.close(output)
        name = pathlib.Path(f"/proc/{becoming.pid}/comm")
        try:
            # the kernel closes what Popen waits for before it gives the process its name
            while name.read_text() != "setpriv\n" and becoming.poll() is None:
                time.sleep(0.001)
            assert login_fifos.end(site.directory)
        finally:
            becoming.kill()


def test_other_open_files_of_an_ssh_are_not_inspected(
    site: Site, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lie on a file system that never answers."""
    looked: list[str] = []
    ask = os.stat

    def noted(path: t.Any, **how: t.Any) -> os.stat_result:
        looked.append(str(path))
        return ask(path, **how)

    site.play(f"{begun.line}; {READY}")
    assert site.prologue().returncode == 0
    become = ["setpriv", f"--reuid={pwd.getpwnam(USER).pw_uid}", "--clear-groups"]
    with (
        (site.place / "ssh").open("rb") as file,
        subprocess.Popen([*become, site.place / "ssh", "1000"], stdin=file) as other,
    ):
        try:
            while pathlib.Path(f"/proc/{other.pid}/comm").read_text() != "ssh\n":
                select.select([], [], [], 0.05)
            monkeypatch.setattr(os, "stat", noted)
            assert login_fifos.end(site.directory)
            assert {path for path in looked if "/fd/" in path} == {f"/proc/{begun.pid}/fd/0"}
            assert other.poll() is None
        finally:
            other.kill()
