# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr config: shown, checked, converted."""

from __future__ import annotations

import io
import json
import os
import pathlib
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import PARAMETERS
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import config, main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The site's configuration."""

    def read(path: pathlib.Path, *, owner_uid: int | None = os.getuid()) -> policy_file.PolicyFile:
        return policy_file.read(path, owner_uid=owner_uid)

    monkeypatch.setattr(config, "read", read)
    tmp_path.chmod(0o755)
    path = tmp_path / "vtorque.yml"
    path.write_text("# ours\nbridge: virbr7\ntimeout: 120\n")
    path.chmod(0o644)
    return path


def run(file: pathlib.Path, *arguments: str) -> int:
    return main.run_subject(["config", *arguments], file)


# show


def test_show_says_value_whether_it_was_set_and_what_it_does(file: pathlib.Path, capsys: Capture) -> None:
    assert run(file, "show") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "value", "from", "meaning"]
    assert [line.split()[0] for line in lines[1:]] == list(PARAMETERS)
    report = {line.split()[0]: line.split(maxsplit=3)[1:] for line in lines if "  " in line}
    assert report["bridge"] == ["virbr7", "set", "bridge of the guests"]
    assert report["timeout"] == ["120", "set", "seconds for a guest to become ready"]
    assert report["mac_prefix"][:2] == ["52:54:00", "default"]


def test_show_tells_the_origin_of_what_is_asked_for(file: pathlib.Path, capsys: Capture) -> None:
    assert run(file, "show", "--origin", "bridge", "domain") == 0
    lines = [line.split(maxsplit=5) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["name", "value", "from", "line", "default", "meaning"],
        ["bridge", "virbr7", "set", "2", "br0", "bridge of the guests"],
        ["domain", "-", "default", "-", "-", "domain of the guests"],
    ]


def test_show_for_programs(file: pathlib.Path, capsys: Capture) -> None:
    assert run(file, "show", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(PARAMETERS)
    assert rows["bridge"] == {
        "name": "bridge", "value": "virbr7", "from": "set", "line": 2, "default": "br0",
        "meaning": "bridge of the guests",
    }  # fmt: skip


def test_show_knows_no_other_names(file: pathlib.Path) -> None:
    with pytest.raises(UserFault, match="brigde: no such parameter"):
        run(file, "show", "brigde")


def test_configuration_that_is_wrong_is_not_shown(file: pathlib.Path) -> None:
    file.write_text("brigde: x\n")
    with pytest.raises(SiteFault, match="brigde=x: no such parameter; did you mean bridge"):
        run(file, "show")


# check


def test_good_configuration(file: pathlib.Path, capsys: Capture) -> None:
    assert run(file, "check") == 0
    assert capsys.readouterr().out == f"{file}: good, 2 of {len(PARAMETERS)} parameters are set\n"


def test_former_parameter_is_read_over_and_check_says_why(file: pathlib.Path, capsys: Capture) -> None:
    file.write_text("arp_bin: /usr/sbin/arp\nbridge: virbr7\n")
    assert run(file, "check") == 0
    report = capsys.readouterr()
    assert report.out == f"{file}: good, 1 of {len(PARAMETERS)} parameters are set\n"
    assert report.err.startswith("vmgr: line 1: arp_bin has no effect any more, remove it: addresses are read from")
    with pytest.raises(UserFault, match="arp_bin: is no parameter any more: addresses"):
        run(file, "show", "arp_bin")


@pytest.mark.parametrize("named", [False, True])
def test_check_names_everything_with_its_line(file: pathlib.Path, capsys: Capture, named: bool) -> None:
    file.write_text("brigde: br1\nmac_prefix: 52:54:00\nram_max: 4X\nbridge: [a]\nram_max: 5G\n")
    assert run(file, "check", *([str(file)] if named else [])) == 2
    report = capsys.readouterr()
    assert report.out == ""
    head, *lines = report.err.splitlines()
    assert head == f"vmgr: the site's configuration {file}:"
    assert [line.split("=")[0].strip() for line in lines] == ["brigde", "mac_prefix", "ram_max", "bridge", "ram_max"]
    assert [line[-8:] for line in lines] == [f"(line {number})" for number in range(1, 6)]


def test_draft_may_be_anybodys_and_that_is_said(file: pathlib.Path, capsys: Capture) -> None:
    draft = file.parent / "draft.yml"
    draft.write_text("timeout: 100\n")
    draft.chmod(0o666)
    assert run(file, "check", str(draft)) == 0
    assert capsys.readouterr().out.endswith("; a draft: who may have written it was not looked at\n")
    file.chmod(0o666)
    assert run(file, "check") == 2
    assert "can be written by its group and everybody" in capsys.readouterr().err


def test_check_of_standard_input(file: pathlib.Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"timeout: many\n")))
    assert run(file, "check", "-") == 2
    assert "timeout=many" in capsys.readouterr().err


def test_check_of_what_is_not_there(file: pathlib.Path, capsys: Capture) -> None:
    assert run(file, "check", str(file.parent / "none.yml")) == 2
    assert "the file is missing" in capsys.readouterr().err


# convert


def test_convert_writes_a_new_file_and_a_word_on_every_name(file: pathlib.Path, capsys: Capture) -> None:
    old, new = file.parent / "config.sh", file.parent / "new.yml"
    old.write_text("DOMAIN=site.org\nSERVER_HOSTNAME=head\nTIMEOUT=7\n")
    assert run(file, "convert", str(old), "-o", str(new)) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in out[:3]] == [
        ["line", "1", "mapped", "DOMAIN"], ["line", "2", "dropped", "SERVER_HOSTNAME"],
        ["line", "3", "mapped", "TIMEOUT"],
    ]  # fmt: skip
    assert out[3] == "3 names and lines, 0 of them need a look"
    assert policy_file.read(new, owner_uid=None).policy.domain == "site.org"
    with pytest.raises(UserFault, match="is there already"):
        run(file, "convert", str(old), "-o", str(new))


def test_convert_without_a_new_file_is_for_a_pipe(file: pathlib.Path, capsys: Capture) -> None:
    old = file.parent / "config.sh"
    old.write_text("DOMAIN=site.org\nNFS_TIMEOUT=$(date)\n")
    assert run(file, "convert", str(old)) == 1
    report = capsys.readouterr()
    assert policy_file.parse(report.out, "x").policy.domain == "site.org"
    assert "line 2    skipped  NFS_TIMEOUT bash would have to work it out" in report.err
    assert "1 of them need a look" in report.err


@pytest.mark.parametrize("content", [None, b"#" * (policy_file.MAX_FILE + 1)])
def test_old_file_that_cannot_be_read(file: pathlib.Path, content: bytes | None) -> None:
    old = file.parent / "config.sh"
    if content is not None:
        old.write_bytes(content)
    with pytest.raises(UserFault, match=r"config\.sh"):
        run(file, "convert", str(old))


# help


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("show", ["--origin", "--json", "examples:", "vmgr config check"]),
        ("check", ["exit status:", "a draft", "examples:"]),
        ("convert", ["read and never run", "refused", "exit status:", "examples:", "--output"]),
    ],
)
def test_help_teaches(file: pathlib.Path, capsys: Capture, verb: str, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(file, verb, "--help")
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert [word for word in arguments if word not in out] == []
    assert max(map(len, out.splitlines())) <= 120
