# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The terminal of the tests draws what a program writes, as a person's terminal does."""

from __future__ import annotations

import pathlib
import sys

import pytest

from tests.screen import OnTerminal, Screen, read_screen


def test_screen_has_what_was_drawn_over_in_its_frames_alone() -> None:
    screen = Screen((5, 20))
    screen.feed(b"one\r\n\x1b[31mtwo\x1b[0m\r\n\x1b[1A\x1b[2Kthree\r\n")
    assert screen.lines == ["one", "three"]
    assert list(screen.frames) == ["one", "one\ntwo", "one\nthree"]


def test_screen_of_a_character_that_came_in_two_pieces_is_whole() -> None:
    screen = Screen((5, 20))
    for byte in "█░ run".encode():
        screen.feed(bytes([byte]))
    assert list(screen.frames) == [], "no line is complete"
    screen.feed(b"ning\r\n")
    assert list(screen.frames) == [screen.text] == ["█░ running"]


def test_line_without_an_end_is_a_frame_when_it_is_drawn_over() -> None:
    screen = Screen((5, 20))
    screen.feed(b"ask")
    screen.feed(b"ing")
    screen.feed(b"\r\x1b[2Kdone\r\n")
    assert list(screen.frames) == ["asking", "done"]


def test_screen_wraps_and_scrolls() -> None:
    screen = Screen((3, 10))
    screen.feed(b"1\r\n2\r\n0123456789abc")
    assert screen.lines == ["2", "0123456789", "abc"]


def test_screen_knows_colours() -> None:
    screen = Screen()
    screen.feed(b"all \x1b[1;31mbad\x1b[0m\r\n")
    assert screen.styles_of("bad") == {("red", True)}
    assert screen.styles_of("all") == {("default", False)}
    with pytest.raises(ValueError, match="is not on the screen"):
        screen.styles_of("well")


def test_program_on_a_terminal_is_typed_to() -> None:
    program = "import sys; print(sys.stdout.isatty()); print(input('name: '))"
    terminal = OnTerminal([sys.executable, "-c", program])
    terminal.expect_frame("name:")
    terminal.type("alice")
    terminal.expect("alice\r\nalice")
    assert terminal.close() == 0
    assert terminal.screen.lines[:3] == ["True", "name: alice", "alice"]


def test_size_of_a_terminal_is_not_that_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "33")
    program = "import os, shutil; print(*shutil.get_terminal_size()); os._exit(3)"
    status, screen = read_screen([sys.executable, "-u", "-c", program], (7, 99), checkout=pathlib.Path("."))
    assert (status, screen.lines) == (3, ["99 7"])
