# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests began on a host that stays bare: found by where it came from, and ended; real processes."""

from __future__ import annotations

import ipaddress
import os
import pathlib
import shutil
import subprocess
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.bare import ssh_sessions

# nobody comes from there (RFC 1112), and no test beside us ends what is ours
GUEST, OTHER = (str(ipaddress.IPv4Address((net << 24) + os.getpid())) for net in (240, 241))
PATIENCE_S = 120


@pytest.fixture
def begin() -> t.Iterator[t.Callable[..., subprocess.Popen[bytes]]]:
    begun: list[subprocess.Popen[bytes]] = []

    def one(address: str, command: t.Sequence[str] = ("sleep", "600"), **more: t.Any) -> subprocess.Popen[bytes]:
        environment = {"PATH": "/usr/bin:/bin"}
        if address:
            environment["SSH_CONNECTION"] = f"{address} 40000 192.0.2.12 22"
        begun.append(subprocess.Popen(command, env=environment, **more))
        # the kernel shows the environment of a program a moment after it has begun
        end = time.monotonic() + PATIENCE_S
        while not pathlib.Path(f"/proc/{begun[-1].pid}/environ").read_bytes():
            assert time.monotonic() < end
        return begun[-1]

    yield one
    for process in begun:
        process.kill()
        process.wait(PATIENCE_S)


def test_only_what_came_from_the_guests_ends(begin: t.Callable[..., subprocess.Popen[bytes]]) -> None:
    """Also what left its session."""
    mine, mapped, apart = begin(GUEST), begin(f"::ffff:{GUEST}"), begin(GUEST, start_new_session=True)
    others = [begin(OTHER), begin("")]
    ended = ssh_sessions.end({GUEST}, os.getuid())
    assert {mine.pid, mapped.pid, apart.pid} <= set(ended)
    assert not {one.pid for one in others} & set(ended)
    assert [one.wait(PATIENCE_S) for one in (mine, mapped, apart)] == [-15, -15, -15]
    assert [one.poll() for one in others] == [None, None]


def test_session_that_ignores_a_request_is_killed(
    begin: t.Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_sessions, "SESSION_END_S", 0.1)
    deaf = begin(GUEST, ["/bin/sh", "-c", "trap '' TERM; echo up; sleep 600 & wait"], stdout=subprocess.PIPE)
    assert t.cast("t.IO[bytes]", deaf.stdout).readline() == b"up\n"
    assert deaf.pid in ssh_sessions.end({GUEST}, os.getuid())
    assert deaf.wait(PATIENCE_S) == -9


def test_sshd_that_serves_a_session_ends_with_it(
    begin: t.Callable[..., subprocess.Popen[bytes]], tmp_path: pathlib.Path
) -> None:
    """It would wait for a peer who is gone; by its name, for it says nothing of its session itself."""
    sh = shutil.copy("/bin/sh", tmp_path / "sshd-session")
    script = f"SSH_CONNECTION='{GUEST} 1 192.0.2.12 22' /bin/sh -c 'echo up; sleep 600 & wait' & wait"
    server = begin("", [str(sh), "-c", script], stdout=subprocess.PIPE)
    assert t.cast("t.IO[bytes]", server.stdout).readline() == b"up\n"
    assert server.pid in ssh_sessions.end({GUEST}, os.getuid())
    assert server.wait(PATIENCE_S) == -15


def test_sessions_of_other_users_are_not_inspected(begin: t.Callable[..., subprocess.Popen[bytes]]) -> None:
    begin(GUEST)
    assert ssh_sessions.begun({GUEST}, os.getuid() + 1) == ()
    assert ssh_sessions.end({GUEST}, os.getuid() + 1) == ()
