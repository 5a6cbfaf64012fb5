# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of a host's own sshd; OpenSSH's own answers its settings."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.bare import sshd
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")

pytestmark = pytest.mark.skipif(SSHD is None or os.geteuid() != 0, reason="there is no sshd, or nobody it obeys")


class Host:
    """A host whose sshd has a configuration of its own, and somebody who greets on its port."""

    def __init__(self, place: pathlib.Path, patch: pytest.MonkeyPatch, greeting: bytes) -> None:
        self.place = place
        self.settings = NodeSettings("cn2", 2, run_dir=place / "run", sshd=place / "sshd", bridge="vtq-no-bridge")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / "host"], check=True)
        # sshd wants a directory that an installation makes
        inside = f'mount -t tmpfs run /run; mkdir -m 755 /run/sshd; exec {SSHD} -f {place / "config"} "$@"'
        program = f"#!/bin/sh\nexec unshare -m /bin/sh -c '{inside}' sh \"$@\"\n"
        (place / "sshd").write_text(program)
        (place / "sshd").chmod(0o755)
        self.peer = socket.create_server(("127.0.0.1", 0))
        patch.setattr(sshd, "PORT", self.peer.getsockname()[1])
        patch.setattr(sshd, "address_of", lambda *_words: "127.0.0.1")
        self._greeter = threading.Thread(target=self._greet, args=(greeting,), daemon=True)
        self._greeter.start()
        drop_in = templates.render(
            "ssh/sshd-vtorque.conf.j2", site_dir=None, run_dir=str(self.settings.run_dir),
            authorized_keys_files=".ssh/authorized_keys", max_startups="256", max_sessions="256",
        )  # fmt: skip
        self.configure(drop_in)

    def _greet(self, greeting: bytes) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _address = self.peer.accept()
                with one:
                    one.sendall(greeting)

    def configure(self, more: str, key: str = "host") -> None:
        base = f"Port {sshd.PORT}\nHostKey {self.place / key}\nUsePAM no\n"
        (self.place / "config").write_text(base + more)

    def look(self) -> t.Any:
        return sshd.check_sshd("root", self.settings, "", Deadline.after(30))


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Host]:
    made = Host(tmp_path, monkeypatch, b"SSH-2.0-test\r\n")
    yield made
    made.peer.close()


def test_drop_in_is_what_it_takes(host: Host) -> None:
    found = host.look()
    assert found.address == "127.0.0.1"
    assert found.host_key == " ".join((host.place / "host.pub").read_text().split()[:2])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "takes no keys of jobs"),
        ("AuthorizedKeysFile .ssh/authorized_keys\n", "takes no keys of jobs"),
        ("Nonsense yes\n", "cannot be told"),
    ],
)
def test_settings_that_keep_a_job_out_are_told(host: Host, more: str, message: str) -> None:
    host.configure(more)
    with pytest.raises(SiteFault, match=message):
        host.look()


def test_match_block_counts(host: Host) -> None:
    """What holds for this user, and not what stands first."""
    files = f"{host.settings.run_dir}/authorized_keys/%u"
    host.configure(f"Match User root\nAuthorizedKeysFile {files}\n")
    assert host.look().address == "127.0.0.1"


def test_host_key_of_another_kind_is_not_enough(host: Host) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", host.place / "other"], check=True)
    host.configure((host.place / "config").read_text().split("\n", 2)[2], key="other")
    with pytest.raises(SiteFault, match="no ed25519 host key"):
        host.look()


def test_somebody_else_on_its_port_is_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Host(tmp_path, monkeypatch, b"220 mail\r\n")
    with contextlib.closing(made.peer), pytest.raises(SiteFault, match="which is not ssh"):
        made.look()


def test_sshd_that_does_not_listen_is_a_fault(host: Host) -> None:
    # a listening socket that a thread waits in lives on when it is closed
    host.peer.shutdown(socket.SHUT_RDWR)
    host.peer.close()
    with pytest.raises(SiteFault, match="is sshd running"):
        host.look()


def test_guests_own_network_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = NodeSettings("cn2", 2)
    monkeypatch.setattr(sshd, "node_address", lambda _bridge, _deadline: "192.0.2.12")
    assert sshd.address_of(settings, Deadline.after(60), "198.51.100.12") == "192.0.2.12"

    def no_bridge(_bridge: str, _deadline: Deadline) -> t.NoReturn:
        raise NodeFault("bridge br0", "is missing", cause="bridge")

    monkeypatch.setattr(sshd, "node_address", no_bridge)
    assert sshd.address_of(settings, Deadline.after(60), "198.51.100.12") == "198.51.100.12"
    monkeypatch.setattr(sshd.socket, "getaddrinfo", lambda *_w, **_m: [(2, 1, 6, "", ("127.0.1.1", 0))])
    with pytest.raises(SiteFault, match="loopback"):
        sshd.address_of(settings, Deadline.after(60), "")
