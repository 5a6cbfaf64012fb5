# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many questions to a host in one call."""

from __future__ import annotations

import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.modules import host_info

from .running import run


def test_host_info_tells_what_each_wrote_and_its_status(capfd: pytest.CaptureFixture[str]) -> None:
    questions = {
        "input": {"argv": ["cat"], "stdin": "two\nlines\n\n"},
        "variable": {"argv": ["sh", "-c", 'echo "$WORD $LC_ALL"; exit 3'], "environment": {"WORD": "x"}},
        "missing": {"argv": ["/nowhere/program", "-x"]},
        "complaint": {"argv": ["sh", "-c", "echo wrong >&2; exit 1"]},
    }
    result = run(host_info, capfd, questions=questions, _ansible_check_mode=True)
    assert not result["changed"]
    assert result["answers"] == {
        "input": {"rc": 0, "stdout": "two\nlines", "stderr": ""},
        "variable": {"rc": 3, "stdout": "x C.UTF-8", "stderr": ""},
        "missing": {"rc": 127, "stdout": "", "stderr": "/nowhere/program: No such file or directory"},
        "complaint": {"rc": 1, "stdout": "", "stderr": "wrong"},
    }


def test_host_info_runs_a_program_by_its_own_python(capfd: pytest.CaptureFixture[str]) -> None:
    program = (
        "import pathlib, sys\nprint(sys.executable, sys.flags.isolated, pathlib.Path(__file__).exists(), sys.argv[1])"
    )
    result = run(host_info, capfd, questions={"one": {"program": program, "argv": ["a b"], "must": True}})
    assert result["answers"]["one"]["stdout"] == f"{sys.executable} 1 True a b"


def test_host_info_gives_json_for_words_that_are_no_text(capfd: pytest.CaptureFixture[str]) -> None:
    question = {"argv": ["printf", "%s|", 'a "b"', 7, [{"path": "/x", "local": True}]]}
    result = run(host_info, capfd, questions={"one": question})
    assert result["answers"]["one"]["stdout"] == 'a "b"|7|[{"path": "/x", "local": true}]|'


def test_host_info_without_an_answer_that_must_be_fails_and_names_the_question(
    capfd: pytest.CaptureFixture[str],
) -> None:
    result = run(host_info, capfd, questions={"rights": {"argv": ["sh", "-c", "echo why >&2; exit 5"], "must": True}})
    assert (result["failed"], result["msg"]) == (True, "rights: status 5: why")


def test_host_info_ends_what_does_not_end(capfd: pytest.CaptureFixture[str]) -> None:
    questions = {"slow": {"argv": ["sh", "-c", "echo begun; sleep 600 & wait"]}, "next": {"argv": ["true"]}}
    result = run(host_info, capfd, questions=questions, timeout=1)
    assert result["answers"]["slow"] == {"rc": 124, "stdout": "begun", "stderr": "no end after 1 s"}
    assert result["answers"]["next"]["rc"] == 0


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("uname -r", "it is no dictionary"),
        ({}, "neither argv nor a program"),
        ({"argv": []}, "neither argv nor a program"),
        ({"argv": "uname -r"}, "argv is no list"),
        ({"argv": ["cat"], "stdin": 5}, "stdin is no str"),
        ({"argv": ["env"], "environment": None}, "environment is no dict"),
        ({"argv": ["id"], "timeout": 5}, "it has timeout; allowed: argv, stdin"),
    ],
)
def test_host_info_refuses_what_is_no_question(capfd: pytest.CaptureFixture[str], question: object, why: str) -> None:
    result = run(host_info, capfd, questions={"odd": question})
    assert result["failed"]
    assert "odd is no question: " in result["msg"]
    assert why in result["msg"]


def test_word_with_a_zero_byte_is_a_command_that_cannot_be_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(host_info, capfd, questions={"odd": {"argv": ["echo", "a\0b"]}})["answers"]["odd"]["rc"] == 127


def test_questions_are_not_written_into_the_journal_of_the_host(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(host_info.AnsibleModule, "log", lambda _self, text, **_more: logged.append(str(text)))
    run(host_info, capfd, questions={"pip": {"argv": ["true"], "environment": {"TOKEN": "PRIVATE"}}})
    assert logged == ["Invoked with questions pip"]
