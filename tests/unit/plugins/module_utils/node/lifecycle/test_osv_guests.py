# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A guest of OSv on its node: its seed, the proof that it is the one, and the console that its user gets."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import pathlib
import select
import shutil
import socket
import stat
import subprocess
import tempfile
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.osv import osv_console, osv_probe
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed.seed import read_iso, render, write_iso
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.guest_file import GuestFile
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.osv_rest import Rest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout

from ...osv_server import OsvServer
from ..seed.test_seed import SEED

OSV_SEED = dataclasses.replace(SEED, distro="osv", vcpus=3, domain="hpc.example")
KEPT = GuestFile(0, 1, "vcn1-1", "52:54:00:00:01:01", "uuid", SEED.token, 1001, "digest", kind="osv")


def test_seed_is_what_osvs_cloud_init_reads(tmp_path: pathlib.Path) -> None:
    """Exactly these modules of it, in this order, each told once; and nothing of it is a key or names a user."""
    write_iso(render(OSV_SEED, None), tmp_path / "seed.iso")
    files = read_iso(tmp_path / "seed.iso")
    assert files is not None
    assert set(files) == {"user-data"}
    document = yaml.safe_load(files["user-data"])
    assert list(document) == ["hostname", "files", "run"]
    assert document == {
        "hostname": "vcn1-1.hpc.example",
        "files": {"/var/spool/torque/aux/4711.head": "vcn1-1\nvcn1-1\nvcn1-1\n"},
        "run": [
            {"POST": "/env/VTORQUE_TOKEN", "val": SEED.token},
            {"PUT": "/app/", "command": f"/usr/lib/vtorque-launcher.so announce {SEED.token} 10.77.0.11"},
        ],
    }
    for secret in (SEED.host_key.private, SEED.host_key.public, SEED.authorized_key, "alice"):
        assert secret not in files["user-data"]


@pytest.mark.parametrize("place", ["/var/spool/to: rque", '/x"\\', "/x/# y", "/x/{{ 7*7 }}", "/ü"])
def test_odd_places_stay_data(place: str) -> None:
    document = yaml.safe_load(render(dataclasses.replace(OSV_SEED, torque_home=place), None)["user-data"])
    assert list(document["files"]) == [f"{place}/aux/4711.head"]
    assert len(document["run"]) == 2


def test_token_that_could_be_more_than_a_word_is_refused() -> None:
    with pytest.raises(SiteFault, match="token"):
        dataclasses.replace(OSV_SEED, token='x" & /bin/evil')


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[OsvServer]:
    with OsvServer() as one:
        monkeypatch.setattr(osv_probe, "Rest", lambda address, call_s: Rest(address, port=one.port, call_s=call_s))
        yield one
        one.shutdown()


def answer(token: str = SEED.token) -> str | None:
    probe = osv_probe.OsvProbe(token, "127.0.0.1", 30.0)
    try:
        assert select.select([probe.fileno()], [], [], 60)[0]
        probe._thread.join(60)
        return probe.answer()
    finally:
        probe.end()


def test_osv_guest_with_the_token_of_the_seed_is_accepted(server: OsvServer) -> None:
    assert "has no token yet" in (answer() or "")
    server.environ["VTORQUE_TOKEN"] = "somebody"
    assert answer() == "wrong"
    server.environ["VTORQUE_TOKEN"] = "s\u00fcmebody"
    assert answer() == "wrong"
    server.environ["VTORQUE_TOKEN"] = SEED.token
    assert answer() == "right"


def test_silence_is_not_yet(server: OsvServer) -> None:
    server.shutdown()
    server.server_close()
    assert "no answer" in (answer() or "")


class Settings:
    """Two places of a node."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.run_dir = directory

    def agent_socket(self, slot: int) -> pathlib.Path:
        return self.run_dir / str(slot)


def hand_over(directory: pathlib.Path) -> pathlib.Path:
    run = layout.run_directory("7.head", 1, directory)
    run.mkdir(parents=True, exist_ok=True)
    osv_console.hand_over(KEPT, "7.head", 1, t.cast(t.Any, Settings(directory)))
    return run / layout.CONSOLE


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")
def test_jobs_user_alone_hears_the_console() -> None:
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as console:
        place = pathlib.Path(name)  # which others may pass through, as they may through /run/vtorque
        place.chmod(0o711)
        console.bind(str(place / "1"))
        console.listen()
        (place / "1").chmod(0o700)
        link = hand_over(place)
        assert hand_over(place) == link, "done again, it does no harm"
        assert link.readlink() == place / "1"
        call = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        for uid, status in ((1001, 0), (1002, 1)):
            done = subprocess.run(
                ["/usr/bin/python3", "-c", call, str(place / "1")], user=uid, group=uid, extra_groups=[],
                capture_output=True, check=False, timeout=60,
            )  # fmt: skip
            assert done.returncode == status, done.stderr
        facts = (place / "1").stat()
        assert stat.S_ISSOCK(facts.st_mode)
        assert facts.st_uid == 0


def test_console_that_is_no_socket_is_handed_to_nobody(tmp_path: pathlib.Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "1").symlink_to(tmp_path / "secret")
    with pytest.raises(VTorqueError):
        hand_over(tmp_path)
    (tmp_path / "1").unlink()
    (tmp_path / "1").write_text("x")
    with pytest.raises(VTorqueError, match="is not a socket"):
        hand_over(tmp_path)
    (tmp_path / "1").unlink()
    with pytest.raises(VTorqueError, match="may have ended"):
        hand_over(tmp_path)


PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) { printf("%d %s %s", argc, argv[1], getenv("WHO")); return atoi(argv[2]); }
"""
CALL = """
import ctypes, os, sys
launcher = ctypes.CDLL(sys.argv[1])
words = [word.encode() for word in sys.argv[1:]]
os._exit(launcher.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None)) & 0xFF)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")
class TestLauncher:
    """The program that an image of OSv has, in another process's address space, as there."""

    @pytest.fixture
    def launcher(self, tmp_path: pathlib.Path) -> pathlib.Path:
        built = tmp_path / "launcher.so"
        self.compile(COLLECTION_DIR / "osv/launcher.c", built)
        assert ctypes.CDLL(str(built)).main
        return built

    def compile(self, source: pathlib.Path, target: pathlib.Path) -> None:
        subprocess.run(
            ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-o", target, source, "-ldl"], check=True
        )

    def call(self, launcher: pathlib.Path, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            ["/usr/bin/python3", "-c", CALL, str(launcher), *arguments], env={"WHO": "alice"},
            stdout=subprocess.PIPE, check=False, timeout=60,
        )  # fmt: skip
        return done.returncode, done.stdout.decode()

    def test_it_says_when_a_program_begins_and_what_it_returned(
        self, launcher: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        (tmp_path / "program.c").write_text(PROGRAM)
        self.compile(tmp_path / "program.c", tmp_path / "program.so")
        output = self.call(launcher, "run", "0af", str(tmp_path / "program.so"), "a b", "37")
        assert output == (37, "vtorque-0af-begin\n3 a b alicevtorque-0af-end exit 37\n")

    def test_what_is_no_program_is_said(self, launcher: pathlib.Path) -> None:
        status, output = self.call(launcher, "run", "0af", "/nothing.so")
        assert status == 1
        assert output.startswith("vtorque-0af-begin\nvtorque-0af-end broken /nothing.so: ")

    def test_it_says_where_the_guest_is_and_lets_the_node_know(self, launcher: pathlib.Path) -> None:
        output = self.call(launcher, "announce", "0af", "127.0.0.1")
        assert output == (0, "vtorque-ready 0af 127.0.0.1\n")
        status, arguments = self.call(launcher, "announce", "0af", "nowhere")
        assert status == 1
        assert arguments.startswith("vtorque-failed 0af network: ")
