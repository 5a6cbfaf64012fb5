# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates that are compiled once, and what of them is believed."""

from __future__ import annotations

import os
import pathlib

import jinja2
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates


@pytest.fixture
def compiled(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The templates that jinja2 compiled; the site's are in `site`, what is kept in `kept`."""
    (tmp_path / "site").mkdir()
    names: list[str] = []
    real = jinja2.Environment.compile

    def compile_it(self: jinja2.Environment, source: object, name: str, *more: object) -> object:
        names.append(name)
        return real(self, source, name, *more)  # type: ignore[call-overload]

    monkeypatch.setattr(jinja2.Environment, "compile", compile_it)
    return names


def render(tmp_path: pathlib.Path, text: str = "", **values: str) -> str:
    if text:
        (tmp_path / "site/word.j2").write_text(text)
    return templates.render("word.j2", site_dir=tmp_path / "site", compiled=tmp_path / "kept", **values)


def test_template_is_compiled_once_for_all_that_is_made_of_it(tmp_path: pathlib.Path, compiled: list[str]) -> None:
    assert render(tmp_path, "{{ word | quote }}", word="a b") == "'a b'"
    assert render(tmp_path, word="c d") == "'c d'"
    assert compiled == ["word.j2"]
    assert (tmp_path / "kept").stat().st_mode & 0o7777 == 0o700
    assert [path.stat().st_mode & 0o077 for path in (tmp_path / "kept").iterdir()] == [0]


def test_template_that_was_changed_is_compiled_anew(tmp_path: pathlib.Path, compiled: list[str]) -> None:
    assert render(tmp_path, "{{ word }}", word="x") == "x"
    assert render(tmp_path, "<{{ word }}>", word="x") == "<x>"
    assert compiled == ["word.j2"] * 2


@pytest.mark.parametrize("what", ["jinja2", "the collection"])
def test_upgrade_compiles_anew_and_leaves_nothing_of_before(
    tmp_path: pathlib.Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    (tmp_path / "kept").mkdir(mode=0o700)
    (tmp_path / "kept/__jinja2_0123.cache").write_text("of a version that named them so")
    (tmp_path / "kept/other").write_text("")
    render(tmp_path, "{{ word }}", word="x")
    (before,) = (tmp_path / "kept").glob("__jinja2_*")
    if what == "jinja2":
        monkeypatch.setattr(jinja2, "__version__", "99.0")
    else:
        changed = tmp_path / "templates.py"
        changed.write_bytes(pathlib.Path(templates.__file__).read_bytes() + b"# other options\n")
        monkeypatch.setattr(templates, "__file__", str(changed))
    assert render(tmp_path, word="y") == "y"
    assert compiled == ["word.j2"] * 2
    (after,) = (tmp_path / "kept").glob("__jinja2_*")
    assert after != before
    assert (tmp_path / "kept/other").exists()
    assert render(tmp_path, word="z") == "z"
    assert compiled == ["word.j2"] * 2


def test_jinja2_that_does_not_say_its_version_is_told_apart(
    tmp_path: pathlib.Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(jinja2, "__version__")
    assert render(tmp_path, "{{ word }}", word="x") == render(tmp_path, word="x")
    assert compiled == ["word.j2"]


@pytest.mark.parametrize("length", [0, 5, 40, 400], ids=str)
def test_truncated_bytecode_is_compiled_again(tmp_path: pathlib.Path, compiled: list[str], length: int) -> None:
    render(tmp_path, "{{ word }}", word="x")
    (path,) = (tmp_path / "kept").iterdir()
    data = path.read_bytes()
    assert length < len(data)
    path.write_bytes(data[:length])
    assert render(tmp_path, word="y") == "y"
    assert path.read_bytes() == data
    assert compiled == ["word.j2"] * 2


def test_file_without_bytecode_is_compiled_again(tmp_path: pathlib.Path, compiled: list[str]) -> None:
    render(tmp_path, "{{ word }}", word="x")
    (path,) = (tmp_path / "kept").iterdir()
    path.write_bytes(path.read_bytes()[:15] + b"\xff" * 500)
    assert render(tmp_path, word="y") == "y"
    assert len(compiled) == 2


@pytest.mark.parametrize("how", ["writable", "another's", "a link", "a file", "no parent"])
def test_cache_directory_that_others_can_write_is_not_used(
    tmp_path: pathlib.Path, compiled: list[str], how: str
) -> None:
    stored = tmp_path / "kept"
    there = tmp_path / "there"
    if how in ("writable", "another's"):
        stored.mkdir()
        stored.chmod(0o777 if how == "writable" else 0o755)
    if how == "another's":
        os.chown(stored, 65534, -1)
    if how == "a link":
        there.mkdir(mode=0o700)
        stored.symlink_to(there)
    if how == "a file":
        stored.write_text("")
    place = tmp_path / "nothing/kept" if how == "no parent" else stored
    (tmp_path / "site/word.j2").write_text("{{ word }}")
    for _time in range(2):
        assert templates.render("word.j2", site_dir=tmp_path / "site", compiled=place, word="x") == "x"
    assert compiled == ["word.j2"] * 2
    assert not any(path.is_file() for path in (*tmp_path.glob("kept/*"), *tmp_path.glob("there/*")))


def test_full_disk_stops_nothing(tmp_path: pathlib.Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_words: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    assert render(tmp_path, "{{ word }}", word="x") == "x"
    assert compiled == ["word.j2"]


def test_render_without_a_directory_writes_nothing(tmp_path: pathlib.Path, compiled: list[str]) -> None:
    (tmp_path / "site/word.j2").write_text("{{ word }}")
    for _time in range(2):
        templates.render("word.j2", site_dir=tmp_path / "site", word="x")
    assert compiled == ["word.j2"] * 2
