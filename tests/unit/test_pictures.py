# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Screens in the documentation are those that the product draws on a terminal."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.tests.texts.blocks import PAGES, Block, blocks

from tests import pictures
from tests.screen import Screen

from .loaded_program import load_program

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE_PICTURE = load_program(ROOT / "tests/site_picture.py")
MARK = "screen="
BLOCKS = [block for page in PAGES for block in blocks(page) if block.mark.startswith(MARK)]
STATUS = {"doctor": 1}
"""Of programs that find something wrong."""


@functools.cache
def screen_of(name: str) -> Screen:
    status, screen = pictures.screen_of(name)
    assert status == STATUS.get(name, 0), screen.text
    return screen


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_screen_of_a_page_is_what_the_product_draws(block: Block) -> None:
    name = block.mark.removeprefix(MARK)
    text = block.text.rstrip("\n")
    frames = screen_of(name).frames
    assert any(f"\n{text}\n" in f"\n{frame}\n" for frame in frames), frames[-1]


@pytest.mark.parametrize("name", SITE_PICTURE.PICTURES)
def test_picture_of_the_sites_page_is_of_the_page_as_it_is(name: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests/site_picture.py", "--digest"], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    assert SITE_PICTURE.read_digest(SITE_PICTURE.STATIC / f"{name}.png") == done.stdout.strip(), (
        "draw them anew: tests/site_picture.py"
    )


def test_every_picture_is_in_a_page() -> None:
    drawn = {name for page in PAGES for name in re.findall(r"_static/([^)]+)\)", (ROOT / page).read_text())}
    assert drawn == {path.name for path in (ROOT / "docs/_static").glob("*.[ps][nv]g")}
    assert {block.mark.removeprefix(MARK) for block in BLOCKS} == {*pictures.PICTURES}


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_no_line_of_a_screen_is_cut_or_wrapped(name: str) -> None:
    """A name that has no place on its line would go on in the next, or be cut by the table."""
    screen = screen_of(name)
    columns = pictures.PICTURES[name].size[1]
    assert all(len(line) < columns for line in screen.lines), screen.text
    assert "…" not in screen.text


def test_show_draws_bars_of_the_same_length_one_below_the_other() -> None:
    lines = [line for line in screen_of("job-show").lines if "█" in line or "░" in line]
    assert len(lines) == 10
    begins = {min(line.find(cell) for cell in "█░" if cell in line) for line in lines}
    assert len(begins) == 1
    assert {sum(line.count(cell) for cell in "█░") for line in lines} == {24}


def test_doctor_paints_what_is_bad_and_what_is_well() -> None:
    screen = screen_of("doctor")
    assert screen.styles_of("bad") == {("red", True)}
    assert screen.styles_of("91%") == {("brown", False)}, "the emulator's name of yellow"
    assert screen.styles_of("13% .. 28%") == {("green", False)}


def test_watch_draws_over_its_own_table() -> None:
    """Each moment is one table, in the order of a job's life; the last one stays."""
    screen = screen_of("job-watch")
    assert all(frame.count(" job  ") <= 1 for frame in screen.frames)
    states = [line.split()[3] for frame in screen.frames for line in frame.splitlines() if "train-43" in line]
    assert list(dict.fromkeys(states)) == ["queued", "running", "gone"]
    assert states == sorted(states, key=["queued", "running", "gone"].index)
    rows = [line.split() for line in screen.lines if "alice" in line]
    assert rows[0][:7] == ["4711.head", "relax", "alice", "finished,", "exit", "status", "0"]
    assert "asking the batch server" not in screen.text
