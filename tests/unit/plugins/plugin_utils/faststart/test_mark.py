# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hook begins early where an earlier one read this very configuration and was allowed to, and nowhere else."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.faststart import mark


@pytest.fixture
def config(tmp_path: pathlib.Path) -> pathlib.Path:
    """A configuration that an earlier hook has read."""
    path = tmp_path / "vtorque.yml"
    path.write_text("fast_start: true\n")
    mark.set_to(mark.name_of(path), tmp_path / "mark")
    return path


def rewrite(config: pathlib.Path) -> None:
    """As long as before, and with the time of before: `cp -p` of another file."""
    facts = config.stat()
    config.write_text("fast_start: fals\n")
    os.utime(config, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def replace(config: pathlib.Path) -> None:
    other = config.with_name("other")
    other.write_text(config.read_text())
    other.rename(config)


def test_mark_of_the_same_configuration_allows(config: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert mark.allows(tmp_path / "mark", config)
    assert (tmp_path / "mark").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("change", [rewrite, replace, pathlib.Path.unlink])
def test_mark_of_another_configuration_does_not_allow(
    config: pathlib.Path, tmp_path: pathlib.Path, change: t.Callable[[pathlib.Path], object]
) -> None:
    change(config)
    assert not mark.allows(tmp_path / "mark", config)


def test_mark_that_is_not_there_does_not_allow(config: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Nor where the configuration is not there either: nothing equals nothing."""
    assert not mark.allows(tmp_path / "none", config)
    assert not mark.allows(tmp_path / "none", tmp_path / "neither")


def test_mark_is_taken_away_when_nothing_is_allowed(config: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for _again in range(2):
        mark.set_to("", tmp_path / "mark")
        assert not mark.allows(tmp_path / "mark", config)
        assert not (tmp_path / "mark").exists()


def test_mark_that_says_the_same_is_not_written_again(config: pathlib.Path, tmp_path: pathlib.Path) -> None:
    before = (tmp_path / "mark").stat()
    mark.set_to(mark.name_of(config), tmp_path / "mark")
    assert (tmp_path / "mark").stat().st_ino == before.st_ino
