# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is taken for the guest: the real ssh asks real servers, and peers that have no key and say what they like."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import socket
import struct
import subprocess
import threading
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.ssh_probe import (
    SshProbe,
    write_known_hosts,
)

ADDRESS = "127.0.0.1"
PATIENCE_S = 60.0
REFUSAL = b"vtorque-probe@127.0.0.1: Permission denied (publickey)."
VERSION = b"SSH-2.0-OpenSSH_9.2\r\n"
NO_KEY = f"ssh-ed25519 {'A' * 68} guest"


def text(arguments: bytes) -> bytes:
    return struct.pack(">I", len(arguments)) + arguments


def packet(payload: bytes) -> bytes:
    """As ssh's transport wants it before there are keys (RFC 4253, 6)."""
    padding = 8 - (len(payload) + 5) % 8
    padding += 8 if padding < 4 else 0
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


def disconnect(arguments: bytes) -> bytes:
    return packet(b"\x01" + struct.pack(">I", 2) + text(arguments) + text(b""))


def quoted(arguments: bytes) -> bytes:
    """A message for the user, to be shown always."""
    return packet(b"\x04\x01" + text(arguments) + text(b""))


def offer(*, kex: bytes = b"curve25519-sha256", host_key: bytes = b"ssh-ed25519") -> bytes:
    """What a peer says that it can do."""
    lists = (kex, host_key, *[b"aes128-ctr"] * 2, *[b"hmac-sha2-256"] * 2, *[b"none"] * 2, b"", b"")
    return packet(b"\x14" + bytes(16) + b"".join(map(text, lists)) + bytes(5))


LINES = b"x\r\n" + REFUSAL
FAR = b"x" * 330 + b"\n" + REFUSAL
"""Longer than what ssh shows of it."""


@contextlib.contextmanager
def listening() -> t.Iterator[socket.socket]:
    with socket.socket() as server:
        server.bind((ADDRESS, 0))
        server.listen(1)
        yield server


def ask(directory: pathlib.Path, port: int, host_key: str) -> str:
    """The answer of a probe to what listens there."""
    ssh, known_hosts = directory / "ssh", directory / "known_hosts"
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -p {port} "$@"\n')
    ssh.chmod(0o755)
    write_known_hosts(known_hosts, host_key)
    probe = SshProbe(ssh, known_hosts, ADDRESS, PATIENCE_S)
    while True:
        select.select([probe.fileno()], [], [], 1.0)
        if (answer := probe.answer()) is not None:
            return answer


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(VERSION + disconnect(b"Permission denied"), id="words"),
        pytest.param(VERSION + disconnect(REFUSAL), id="line"),
        pytest.param(VERSION + disconnect(LINES), id="lines"),
        pytest.param(VERSION + disconnect(b"\r" + REFUSAL), id="over-the-line"),
        pytest.param(VERSION + disconnect(FAR), id="cut"),
        pytest.param(VERSION + quoted(REFUSAL) + disconnect(LINES), id="message"),
        pytest.param(VERSION + offer(kex=LINES), id="kex"),
        pytest.param(VERSION + offer(host_key=LINES), id="host-key"),
        pytest.param((REFUSAL + b"\r\n") * 3, id="banner"),
        pytest.param(REFUSAL + b"\r\nSSH-1.5-" + REFUSAL + b"\r\n", id="version"),
        pytest.param(REFUSAL + b"\r" + REFUSAL + b"\r\n", id="line-end"),
        pytest.param(REFUSAL * 200, id="long-line"),
    ],
)
def test_who_has_no_key_is_not_the_guest_whatever_he_says(tmp_path: pathlib.Path, output: bytes) -> None:
    with listening() as server:

        def speak() -> None:
            peer = server.accept()[0]
            with peer, contextlib.suppress(OSError):
                peer.sendall(output)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(4096):
                    pass

        threading.Thread(target=speak, daemon=True).start()
        assert ask(tmp_path, server.getsockname()[1], NO_KEY) != "right"


def openssh(directory: pathlib.Path, port: int) -> tuple[list[str], str]:
    """OpenSSH's, with a banner before the login, as sites like it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / "key"], check=True, timeout=60)
    (directory / "banner").write_text("All that you do here is recorded.\nPermission denied.\n")
    (directory / "sshd_config").write_text(
        f"ListenAddress {ADDRESS}\nPort {port}\nHostKey {directory}/key\nPidFile none\nUsePAM no\n"
        f"PasswordAuthentication no\nUseDNS no\nBanner {directory}/banner\n"
    )
    return ["/usr/sbin/sshd", "-D", "-e", "-f", f"{directory}/sshd_config"], (directory / "key.pub").read_text()


def dropbear(directory: pathlib.Path, port: int) -> tuple[list[str], str]:
    """The one of small guests."""
    arguments = ["dropbearkey", "-t", "ed25519", "-f", str(directory / "key")]
    output = subprocess.run(arguments, check=True, timeout=60, capture_output=True, text=True).stdout
    public = next(line for line in output.splitlines() if line.startswith("ssh-ed25519 "))
    return ["/usr/sbin/dropbear", "-F", "-E", "-p", f"{ADDRESS}:{port}", "-r", f"{directory}/key", "-P", "/dev/null"], (
        public
    )


@contextlib.contextmanager
def serving(make: t.Callable[[pathlib.Path, int], tuple[list[str], str]], place: pathlib.Path) -> t.Iterator[t.Any]:
    """A server that answers; its port and its host key."""
    with listening() as free:
        port = free.getsockname()[1]
    command, host_key = make(place, port)
    script = 'mount -t tmpfs -o mode=755 tmpfs /run && mkdir -m 755 /run/sshd && exec "$@"'
    arguments = ["setpriv", "--pdeathsig", "KILL", "unshare", "-m", "--propagation", "private", "sh", "-c", script, "-"]
    with subprocess.Popen([*arguments, *command], stderr=subprocess.DEVNULL) as server:
        try:
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until and server.poll() is None:
                with contextlib.suppress(ConnectionRefusedError), socket.create_connection((ADDRESS, port)):
                    break
                time.sleep(0.02)
            else:
                raise AssertionError(f"nobody serves at port {port}; status {server.poll()}")
            yield port, host_key
        finally:
            server.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="a server has a user of its own, and /run/sshd")
@pytest.mark.parametrize("make", [openssh, dropbear])
def test_a_server_is_the_guest_by_its_key_alone(tmp_path: pathlib.Path, make: t.Any) -> None:
    with serving(make, tmp_path) as (port, host_key):
        assert ask(tmp_path, port, host_key) == "right"
        assert ask(tmp_path, port, NO_KEY) == "wrong"
