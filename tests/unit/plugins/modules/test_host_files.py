# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many files on a host in one call: what is placed, changed and removed, and what check mode and diff say of it."""

from __future__ import annotations

import functools
import os
import pathlib
import stat
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.host import host_files as files
from ansible_collections.mikelangelo.vtorque.plugins.modules import host_files

from .running import run

Result = t.Dict[str, t.Any]
Place = t.Callable[..., Result]
MARKER = "# {mark} VTORQUE: written"
BLOCK = "# BEGIN VTORQUE: written\nours\n# END VTORQUE: written\n"


@pytest.fixture
def place(capfd: pytest.CaptureFixture[str]) -> Place:
    """Runs the module with entries."""

    def _place(*entries: Result, check: bool = False, diff: bool = False, gone: t.Iterable[str] = ()) -> Result:
        arguments = {"entries": list(entries), "gone": list(gone)}
        return run(host_files, capfd, **arguments, _ansible_check_mode=check, _ansible_diff=diff)

    return _place


def tree(place: pathlib.Path) -> dict[str, tuple[str, bytes]]:
    """Everything below, with its mode and content."""
    return {
        str(path.relative_to(place)): (
            stat.filemode(path.lstat().st_mode),
            path.read_bytes() if path.is_file() and not path.is_symlink() else b"",
        )
        for path in place.rglob("*")
    }


def everything(root: pathlib.Path) -> list[Result]:
    """An entry of each kind."""
    return [
        {"path": f"{root}/product/bin", "state": "directory"},
        {"path": f"{root}/product/bin/vsub", "content": "#!/bin/sh\n", "mode": "0755"},
        {"path": f"{root}/product/note", "content": "once\n", "force": False},
        {"path": f"{root}/link", "state": "link", "target": "product/bin/vsub"},
        {"path": f"{root}/keys", "state": "block", "content": "ours", "marker": MARKER, "mode": "0600"},
        {"path": f"{root}/old", "state": "absent"},
        {"path": f"{root}/missing/vsub", "content": "x", "within": f"{root}/missing"},
    ]


def test_host_files_places_all_and_a_second_run_changes_nothing(tmp_path: pathlib.Path, place: Place) -> None:
    (tmp_path / "old").mkdir()
    entries = everything(tmp_path)
    result = place(*entries)
    assert (result["changed"], result["paths"]) == (True, [entry["path"] for entry in entries[:-1]])
    assert tree(tmp_path) == {
        "product": ("drwxr-xr-x", b""),
        "product/bin": ("drwxr-xr-x", b""),
        "product/bin/vsub": ("-rwxr-xr-x", b"#!/bin/sh\n"),
        "product/note": ("-rw-r--r--", b"once\n"),
        "link": ("lrwxrwxrwx", b""),
        "keys": ("-rw-------", BLOCK.encode()),
    }
    assert (tmp_path / "link").resolve() == tmp_path / "product/bin/vsub"
    again = place(*entries)
    assert (again["changed"], again["paths"]) == (False, [])


def test_host_files_in_check_mode_says_the_same_and_changes_nothing(tmp_path: pathlib.Path, place: Place) -> None:
    (tmp_path / "old").touch()
    before = tree(tmp_path)
    expected = place(*everything(tmp_path), check=True)
    assert tree(tmp_path) == before
    assert place(*everything(tmp_path))["paths"] == expected["paths"]


def test_host_files_shows_each_difference(tmp_path: pathlib.Path, place: Place) -> None:
    (tmp_path / "unit").write_text("former\n")
    (tmp_path / "open").write_text("same\n")
    (tmp_path / "open").chmod(0o666)
    (tmp_path / "gone").mkdir()
    entries = [
        {"path": f"{tmp_path}/unit", "content": "newer\n"},
        {"path": f"{tmp_path}/open", "content": "same\n"},
        {"path": f"{tmp_path}/gone", "state": "absent"},
        {"path": f"{tmp_path}/directory", "state": "directory", "mode": "0711"},
    ]
    printed = place(*entries, check=True, diff=True)["diff"]
    assert [each["before_header"] for each in printed] == [entry["path"] for entry in entries]
    assert (printed[0]["before"], printed[0]["after"]) == ("former\n", "newer\n")
    assert ("mode 0666" in printed[1]["before"], "mode 0644" in printed[1]["after"]) == (True, True)
    assert (printed[2]["before"], printed[2]["after"]) == ("directory\n", "")
    assert (printed[3]["before"], "mode 0711" in printed[3]["after"]) == ("", True)
    assert place(*entries, diff=True)["diff"] == printed


def test_host_files_does_not_tell_every_text_once_more(tmp_path: pathlib.Path, place: Place) -> None:
    result = place({"path": f"{tmp_path}/file", "content": "a long text"})
    assert "a long text" not in str(result)


def test_host_files_makes_parents_and_mends_modes_once(tmp_path: pathlib.Path, place: Place) -> None:
    (tmp_path / "old").mkdir(mode=0o700)
    entries = [
        {"path": f"{tmp_path}/a/b", "state": "directory", "mode": "0711"},
        {"path": f"{tmp_path}/old", "state": "directory"},
    ]
    assert place(*entries)["paths"] == [f"{tmp_path}/a/b", f"{tmp_path}/old"]
    assert {name: mode for name, (mode, _content) in tree(tmp_path).items()} == {
        "a": "drwxr-xr-x", "a/b": "drwx--x--x", "old": "drwxr-xr-x",
    }  # fmt: skip
    assert place(*entries)["paths"] == place(*entries, check=True)["paths"] == []


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("state", "there", "message"),
    [
        ("directory", "file", "is no directory"),
        ("file", "directory", "is a directory, and a file is wanted"),
        ("link", "file", "is no link"),
    ],
)
def test_host_files_fails_where_something_else_is_and_names_it(
    tmp_path: pathlib.Path, place: Place, check: bool, state: str, there: str, message: str
) -> None:
    path = tmp_path / there
    path.write_text("the site's") if there == "file" else path.mkdir()
    result = place({"path": str(path), "state": state, "target": "x"}, check=check)
    assert result["failed"]
    assert f"{path} {message}" in result["msg"]
    assert there == "directory" or path.read_text() == "the site's"


def test_host_files_into_a_directory_that_is_missing_fails(tmp_path: pathlib.Path, place: Place) -> None:
    result = place({"path": f"{tmp_path}/missing/file", "content": "x"})
    assert result["failed"]
    assert f"{tmp_path}/missing/file: No such file" in result["msg"]


def test_host_files_removes_what_is_there_and_spares_what_links_lead_to(
    placed: list[str], tmp_path: pathlib.Path, place: Place
) -> None:
    entries = [{"path": path, "state": "absent"} for path in placed]
    before = tree(tmp_path)
    assert place(*entries, check=True)["paths"] == placed[:4]
    assert tree(tmp_path) == before
    assert place(*entries)["paths"] == placed[:4]
    assert sorted(tree(tmp_path)) == ["site", "site/precious"]
    assert place(*entries)["paths"] == []


def test_file_in_the_place_of_a_link_leaves_what_it_led_to(tmp_path: pathlib.Path, place: Place) -> None:
    (tmp_path / "site").write_text("the site's")
    (tmp_path / "unit").symlink_to(tmp_path / "site")
    place({"path": f"{tmp_path}/unit", "content": "ours"})
    assert ((tmp_path / "site").read_text(), (tmp_path / "unit").is_symlink()) == ("the site's", False)


@pytest.fixture
def ssh(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "ssh").mkdir()
    (tmp_path / "ssh/keys").touch()
    (tmp_path / "ssh/key").touch()
    return tmp_path


def empty(*paths: pathlib.Path) -> list[Result]:
    return [{"path": str(path), "state": "empty"} for path in paths]


def test_directory_goes_with_the_last_thing_in_it(ssh: pathlib.Path, place: Place) -> None:
    (ssh / "ssh/key").unlink()
    wanted = [ssh / "ssh/keys", ssh / "ssh"]
    assert place(*empty(*wanted))["paths"] == [str(path) for path in wanted]
    assert not (ssh / "ssh").exists()
    assert place(*empty(*wanted))["paths"] == []


def test_directory_with_content_stays(ssh: pathlib.Path, place: Place) -> None:
    (ssh / "ssh/keys").write_text("the site's")
    (ssh / "link").symlink_to("nowhere")
    assert place(*empty(ssh / "ssh/keys", ssh / "ssh", ssh / "link"))["paths"] == []
    assert (ssh / "ssh/keys").read_text() == "the site's"


def test_check_mode_says_what_would_be_empty_and_changes_nothing(ssh: pathlib.Path, place: Place) -> None:
    (ssh / "ssh/keys").write_text(BLOCK)
    wanted = [ssh / "ssh/keys", ssh / "ssh"]
    output = functools.partial(place, *empty(*wanted), check=True, gone=[str(ssh / "ssh/key")])
    assert output()["paths"] == [str(path) for path in wanted]
    assert (ssh / "ssh/keys").read_text() == BLOCK
    (ssh / "ssh/keys").write_text(f"the site's\n{BLOCK}")
    assert output()["paths"] == []


def test_check_mode_counts_what_earlier_entries_would_remove(ssh: pathlib.Path, place: Place) -> None:
    entries = [
        {"path": str(ssh / "ssh/key"), "state": "absent"},
        {"path": str(ssh / "ssh/key"), "state": "absent"},
        *empty(ssh / "ssh/keys", ssh / "ssh"),
    ]
    expected = place(*entries, check=True)["paths"]
    assert expected == place(*entries)["paths"] == [str(ssh / name) for name in ("ssh/key", "ssh/keys", "ssh")]


def test_block_that_is_still_there_is_no_empty_file(ssh: pathlib.Path, place: Place) -> None:
    (ssh / "ssh/keys").write_text(BLOCK)
    assert place(*empty(ssh / "ssh/keys"))["paths"] == []


@pytest.mark.parametrize("site", ["", "the site's\n", "\n\n", "several\nlines\n"])
def test_block_comes_changes_and_goes_and_the_site_s_lines_stay_byte_for_byte(
    tmp_path: pathlib.Path, place: Place, site: str
) -> None:
    path = tmp_path / "config"
    path.write_text(site)
    path.chmod(0o640)
    block = {"path": str(path), "state": "block", "marker": MARKER, "mode": "0600"}
    assert place({**block, "content": "ours"})["changed"]
    assert path.read_text() == site + BLOCK
    path.write_text(f"{site}{BLOCK}later\n")
    assert place({**block, "content": "newer\ntwo"})["changed"]
    assert path.read_text() == f"{site}{BLOCK.replace('ours', f'newer{chr(10)}two')}later\n"
    assert not place({**block, "content": "newer\ntwo\n"})["changed"]
    assert place(block)["changed"]
    assert path.read_text() == f"{site}later\n"
    assert not place(block)["changed"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_empty_block_makes_no_file(tmp_path: pathlib.Path, place: Place) -> None:
    assert not place({"path": f"{tmp_path}/config", "state": "block"})["changed"]
    assert tree(tmp_path) == {}


def test_block_goes_where_a_link_leads(tmp_path: pathlib.Path, place: Place) -> None:
    (tmp_path / "real").write_text("the site's\n")
    (tmp_path / "config").symlink_to("real")
    place({"path": f"{tmp_path}/config", "state": "block", "content": "ours", "marker": MARKER})
    assert (tmp_path / "config").is_symlink()
    assert (tmp_path / "real").read_text() == f"the site's\n{BLOCK}"


def test_file_that_is_not_valid_is_not_placed(tmp_path: pathlib.Path, place: Place) -> None:
    entry = {"path": f"{tmp_path}/config", "validate": "grep -q good %s"}
    assert place({**entry, "content": "good"})["changed"]
    result = place({**entry, "content": "wrong"})
    assert "would not be good (grep -q good %s)" in result["msg"]
    assert tree(tmp_path) == {"config": ("-rw-r--r--", b"good")}


def test_files_placed_before_a_fault_stay_and_are_reported(tmp_path: pathlib.Path, place: Place) -> None:
    (tmp_path / "site").mkdir()
    first = {"path": f"{tmp_path}/first", "state": "directory"}
    result = place(first, {"path": f"{tmp_path}/site", "content": "x"}, {"path": f"{tmp_path}/third", "content": "x"})
    assert (result["failed"], result["changed"], result["paths"]) == (True, True, [first["path"]])
    assert sorted(tree(tmp_path)) == ["first", "site"]


def test_full_file_system_leaves_no_half_of_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    writer = files.EntryWriter(check=False, removed_paths=(), label=lambda _path: None, run=lambda _words: (0, ""))
    for entry in (files.Entry(f"{tmp_path}/file", content="x"), files.Entry(f"{tmp_path}/link", "link", target="x")):
        with pytest.raises(files.PlacingError, match="No space left on device"):
            writer.apply([entry])
    assert tree(tmp_path) == {}


def test_block_in_a_file_of_the_site_leaves_its_acl_and_other_attributes(tmp_path: pathlib.Path, place: Place) -> None:
    path = tmp_path / "config"
    path.write_text("the site's\n")
    path.chmod(0o640)
    subprocess.run(["setfacl", "-m", "u:1000:rw", str(path)], check=True)
    os.setxattr(path, "user.site", b"kept")
    before = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    assert len(before) == 2
    block = {"path": str(path), "state": "block", "marker": MARKER}
    for content in ("ours", ""):
        assert place({**block, "content": content})["changed"]
        assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o660, "the mask of the ACL, not more for the group"


def test_parents_of_a_directory_can_be_entered_whatever_root_s_umask_is(tmp_path: pathlib.Path, place: Place) -> None:
    before = os.umask(0o077)
    try:
        place({"path": f"{tmp_path}/a/b/c", "state": "directory"})
    finally:
        os.umask(before)
    assert {mode for mode, _content in tree(tmp_path).values()} == {"drwxr-xr-x"}


def test_texts_are_not_written_into_the_journal_of_the_host(
    tmp_path: pathlib.Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(host_files.AnsibleModule, "log", lambda _self, text, **_more: logged.append(str(text)))
    place({"path": f"{tmp_path}/file", "content": "PRIVATE"})
    assert logged
    assert "PRIVATE" not in "".join(logged)


def test_check_mode_counts_what_earlier_entries_would_do(tmp_path: pathlib.Path, place: Place) -> None:
    (tmp_path / "config").write_text(f"{BLOCK}the site's\n")
    (tmp_path / "file").write_text("same")
    (tmp_path / "old").mkdir()
    (tmp_path / "old/inner").touch()
    block = {"path": f"{tmp_path}/config", "state": "block", "marker": MARKER}
    entries = [
        block,
        {**block, "content": "ours"},
        {"path": f"{tmp_path}/file", "state": "absent"},
        {"path": f"{tmp_path}/file", "content": "same"},
        {"path": f"{tmp_path}/new", "state": "directory"},
        {"path": f"{tmp_path}/new/file", "content": "x", "within": f"{tmp_path}/new"},
        {"path": f"{tmp_path}/old", "state": "absent"},
        {"path": f"{tmp_path}/old/inner", "state": "absent"},
        {"path": f"{tmp_path}/old/later", "content": "x", "within": f"{tmp_path}/old"},
    ]
    expected = place(*entries, check=True, diff=True)
    assert expected["paths"] == [entry["path"] for entry in entries[:7]]
    done = place(*entries, diff=True)
    assert (done["paths"], done["diff"]) == (expected["paths"], expected["diff"])
    assert (tmp_path / "config").read_text() == f"the site's\n{BLOCK}"


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"path": "etc/relative"}, "does not begin at the root"),
        ({"mode": "u=rw"}, "mode 'u=rw' is not of octal digits"),
        ({"mode": "420"}, "mode '420' is not of octal digits"),
        ({"path": "{root}/dangling", "state": "directory"}, "a link that leads nowhere"),
    ],
)
def test_entry_that_cannot_be_meant_is_refused_and_named(
    tmp_path: pathlib.Path, place: Place, check: bool, entry: Result, message: str
) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    whole = {"path": "{root}/file", "content": "x", **entry}
    result = place({**whole, "path": whole["path"].replace("{root}", str(tmp_path))}, check=check)
    assert result["failed"]
    assert message in result["msg"]
    assert sorted(tree(tmp_path)) == ["dangling"]


def test_link_to_a_directory_is_no_directory_within_which_a_file_is_wanted(
    tmp_path: pathlib.Path, place: Place
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "modulefiles").symlink_to("shared")
    place({"path": f"{tmp_path}/modulefiles/vtorque", "content": "x", "within": f"{tmp_path}/modulefiles"})
    assert sorted(tree(tmp_path)) == ["modulefiles", "shared"]


@pytest.mark.parametrize("site", [b"no line feed", b"", b"# BEGIN of the site's\n", b"\xff\x00"])
def test_taking_out_a_block_that_is_not_there_changes_no_byte(
    tmp_path: pathlib.Path, place: Place, site: bytes
) -> None:
    (tmp_path / "config").write_bytes(site)
    assert not place({"path": f"{tmp_path}/config", "state": "block", "marker": MARKER})["changed"]
    assert (tmp_path / "config").read_bytes() == site


def test_block_whose_last_mark_has_no_line_feed_is_taken_out(tmp_path: pathlib.Path, place: Place) -> None:
    (tmp_path / "config").write_text(f"site\n{BLOCK.rstrip()}")
    assert place({"path": f"{tmp_path}/config", "state": "block", "marker": MARKER})["changed"]
    assert (tmp_path / "config").read_text() == "site\n"
