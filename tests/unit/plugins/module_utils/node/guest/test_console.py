# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serial consoles: the ready line, how far a guest came, and words that are harmless on a terminal."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.console import Console, plain
from hypothesis import given
from hypothesis import strategies as st

TOKEN = "0123456789abcdef"
READY = f"vtorque-ready {TOKEN} 10.77.0.100"


@pytest.fixture
def console(tmp_path: pathlib.Path) -> Console:
    return Console(tmp_path / "console.log", TOKEN)


def test_console_that_does_not_exist_yet_is_silent(console: Console) -> None:
    assert console.read() == 0
    assert console.describe() == "its console is silent"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (f"{READY}\r\n", "10.77.0.100"),
        (f"\x1b[0;32m[    3.1] {READY}\x1b[0m\r\n", "10.77.0.100"),
        (f"vtorque-ready {TOKEN} fd00::5\n", "fd00::5"),
        (READY, None),  # the line has not ended: the address may not either
        (f"vtorque-ready {TOKEN}0 10.77.0.100\n", None),
        ("vtorque-ready fedcba9876543210 10.77.0.100\n", None),
        (f"vtorque-ready {TOKEN} \n", None),
        (f"vtorque-ready {TOKEN} 10.77.0.100;reboot\n", None),
        (f"{'x' * 9000}\n{READY}\n", "10.77.0.100"),
    ],
)
def test_ready_line_holds_this_guests_token_and_an_address(console: Console, text: str, address: str | None) -> None:
    console.path.write_text(text)
    console.read()
    assert console.ready_address == address


def test_line_that_comes_in_pieces_is_one_line(console: Console) -> None:
    with console.path.open("w") as stream:
        for piece in (READY[:7], READY[7:30], READY[30:], "\n"):
            assert console.ready_address is None
            stream.write(piece)
            stream.flush()
            console.read()
    assert console.ready_address == "10.77.0.100"


def test_console_that_was_replaced_is_read_on(console: Console) -> None:
    console.path.write_text("Linux version 6.1\n")
    console.read()
    console.path.rename(console.path.with_suffix(".0"))
    console.path.write_text(f"{READY}\n")
    console.read()
    assert console.ready_address == "10.77.0.100"
    assert console.bytes_seen == len(f"Linux version 6.1\n{READY}\n")


def test_console_failure_is_quoted_without_escapes(console: Console) -> None:
    console.path.write_text(f"vtorque-failed {TOKEN} \x1b]0;title\x07identity: \x1b[31mno user\x00 alice\n")
    console.read()
    assert console.failed == "identity: no user  alice"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Linux version 6.1.0", "the kernel is running"),
        ("Linux version 6.1.0\n[  1.0] systemd[1]: Hostname set", "the system is starting"),
        ("Cloud-init v. 22.4 running 'init-local' at Thu", "cloud-init has begun"),
        ("Cloud-init v. 22.4 running 'modules:final' at Thu", "last stage"),
        ("SeaBIOS (version 1.16)", "nothing of a system"),
    ],
)
def test_how_far_a_guest_came_is_recognised(console: Console, text: str, message: str) -> None:
    console.path.write_text(f"{text}\n")
    console.read()
    assert message in console.describe()


def test_first_words_of_a_panic_are_kept(console: Console) -> None:
    console.path.write_text(
        "[ 2.0] Kernel panic - not syncing: no init\n[ 2.1] ---[ end Kernel panic - not syncing ]---\n"
    )
    console.read()
    assert console.panic == "Kernel panic - not syncing: no init"


def test_a_guest_that_never_ends_its_line_does_not_fill_our_memory(console: Console) -> None:
    console.path.write_bytes(b"x" * (1 << 20))
    assert console.read() == 1 << 20
    assert len(console._rest) <= 4096
    assert len(console.last_output()) <= 1500


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_console_that_is_no_file_is_not_read(console: Console, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(console.path)
    else:
        console.path.symlink_to("/etc/shadow")
    with pytest.raises((VTorqueError, OSError)):
        console.read()


@given(st.text())
def test_no_control_character_gets_through(text: str) -> None:
    assert all(character.isprintable() for character in plain(text))


@given(st.binary(max_size=3000))
def test_any_bytes_can_be_read(data: bytes) -> None:
    console = Console(pathlib.Path("/nonexistent"), TOKEN)
    console._take(data)
    assert all(character.isprintable() for character in console.last_output())
