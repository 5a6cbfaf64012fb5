# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenSSH's own sshd, with what guests and bare hosts tell it, loses none of the logins that a job begins at once."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import shutil
import socket
import subprocess
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
LOGINS = 128
"""64 from each of two guests."""
PATIENCE_S = 120
PORTS_TRIED = 10

pytestmark = pytest.mark.skipif(SSHD is None or os.geteuid() != 0, reason="there is no sshd, or nobody it obeys")


def of_a_guest() -> str:
    owner = types.SimpleNamespace(user="alice")
    return templates.render("cloud-init/sshd.conf.j2", site_dir=None, seed=types.SimpleNamespace(owner=owner))


def of_a_bare_host() -> str:
    return templates.render(
        "ssh/sshd-vtorque.conf.j2", site_dir=None, run_dir="/run/vtorque", authorized_keys_files=".ssh/authorized_keys",
        max_startups="256", max_sessions="256",
    )  # fmt: skip


def sshd(place: pathlib.Path, settings: str, *options: str, port: int = 22) -> list[str]:
    """The call of sshd with these settings, and a key and a place of its own."""
    if not (place / "host").exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / "host"], check=True, timeout=60)
    given = "".join(f"{line}\n" for line in settings.splitlines() if not line.startswith("HostKey "))
    more = f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {place / 'host'}\nPidFile none\nUsePAM no\n"
    (place / "config").write_text(given + more)
    # it wants a directory that an installation makes
    script = 'mount -t tmpfs run /run; mkdir -m 755 /run/sshd; exec "$@"'
    own = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    return [*own, str(SSHD), *options, "-f", str(place / "config")]


@contextlib.contextmanager
def serving(place: pathlib.Path, settings: str) -> t.Iterator[int]:
    """An sshd with these settings; its port.  Another may take a port between our look and sshd's."""
    for _attempt in range(PORTS_TRIED):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with subprocess.Popen(
            sshd(place, settings, "-D", "-e", port=port), stderr=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stderr
                answer = server.stderr.readline()
                if "listening" in answer:
                    yield port
                    return
            finally:
                server.kill()
    raise AssertionError(answer)


def greeted(port: int) -> int:
    """How many of them are greeted, of whom none logs in before all are there."""
    with contextlib.ExitStack() as stack:
        peers = {}
        poll = select.poll()
        for _login in range(LOGINS):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
            peers[peer.fileno()] = peer
            poll.register(peer, select.POLLIN)
        answers = []
        while peers and (ready := poll.poll(PATIENCE_S * 1000)):
            for number, _events in ready:
                poll.unregister(number)
                with contextlib.suppress(ConnectionError):
                    answers.append(peers.pop(number).recv(100))
    return sum(answer.startswith(b"SSH-2.0-") for answer in answers)


@pytest.mark.parametrize("settings", [of_a_guest, of_a_bare_host])
def test_sshd_greets_all_that_come_at_once(tmp_path: pathlib.Path, settings: t.Callable[[], str]) -> None:
    with serving(tmp_path, settings()) as port:
        assert greeted(port) == LOGINS


@pytest.mark.parametrize("settings", [of_a_guest, of_a_bare_host])
def test_one_connection_carries_as_many_sessions(tmp_path: pathlib.Path, settings: t.Callable[[], str]) -> None:
    """Of a ControlMaster; sshd itself says what it takes."""
    done = subprocess.run(sshd(tmp_path, settings(), "-T"), capture_output=True, text=True, check=True, timeout=60)
    (sessions,) = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("maxsessions ")]
    assert int(sessions) >= LOGINS
