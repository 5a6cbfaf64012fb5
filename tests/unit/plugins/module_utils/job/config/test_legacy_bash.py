# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assignments are read out of bash, nothing is run, and what is not plain is named."""

from __future__ import annotations

import pathlib
import shlex
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.legacy_bash import (
    Assignment,
    SkippedLine,
    read,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st


def values(text: str) -> dict[str, object]:
    found, skipped = read(text, {"KNOWN": "k"})
    assert skipped == (), text
    return {one.name: one.value for one in found}


PLAIN = [
    ("A=b", "b"),
    ("A=", ""),
    ("A=''", ""),
    ("A='b c'  # comment", "b c"),
    ("A=b#c", "b#c"),
    ('A="b \\"c\\" \\$d \\x \'e\'"', "b \"c\" $d \\x 'e'"),
    ("A=b\\ c'd'\"e\"", "b cde"),
    ("export A=b", "b"),
    ("readonly A=b;", "b"),
    ("declare -r A=b", "b"),
    ("  A=*", "*"),
    ("A='^n[0-9]+$'", "^n[0-9]+$"),
    ("B=x\nA=$B/y", "x/y"),
    ('B=x A="${B}y"', "xy"),
    ('A="a\nb"', "a\nb"),
    ("A=('b' \"c d\" e)", ("b", "c d", "e")),
    ("A=(\n  b # first\n  c\n)", ("b", "c")),
    ("A=()", ()),
    ("A=nfs:/x,y", "nfs:/x,y"),
    ("A='a'\r\n", "a"),
    ("A=a\\\nb", "ab"),
    ('A="a\\\nb"', "ab"),
    ("A='a\\\nb'", "a\\\nb"),
    ("export \\\n  A=b", "b"),
    ("A=(a \\\n b)", ("a", "b")),
]


@pytest.mark.parametrize(("text", "value"), PLAIN)
def test_plain_assignment(text: str, value: object) -> None:
    assert values(text)["A"] == value


@pytest.mark.parametrize(("text", "value"), PLAIN)
def test_bash_reads_the_same(text: str, value: object) -> None:
    script = text.replace("\r\n", "\n") + '\nprintf "%s\\0" "${A[@]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, cwd="/")
    wanted = list(value) if isinstance(value, tuple) else [value]
    assert done.stdout.decode().split("\0")[:-1] == (wanted or [""])


def test_variable_that_is_known_beforehand() -> None:
    assert values("A=$KNOWN") == {"A": "k"}


def test_lines_are_those_of_the_file() -> None:
    found, _skipped = read("# x\nA='\n'\nB=(\n1\n)\nC=2 D=3\n", {})
    assert {one.name: one.line for one in found} == {"A": 2, "B": 4, "C": 7, "D": 7}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("$(date)", "bash would have to work it out"),
        ("`date`", "bash would have to work it out"),
        ('"x$(echo "a b")y"', "bash would have to work it out"),
        ("$((1 + 2))", "bash would have to work it out"),
        ("${B:-c}", "bash would have to work it out"),
        ("$'\\n'", "bash would have to work it out"),
        ("$OTHER", "it uses OTHER, which the file does not say"),
        ('"$OTHER/x"', "it uses OTHER, which the file does not say"),
        ("~/x", "~ is somebody's home"),
        ("(a $(b\nc) d)", "bash would have to work it out"),
        ("([x]=y)", "the array is no list of words"),
        ('$"b"', "bash would translate it"),
        ("b:~/x", "~ is somebody's home"),
        ("(*.img)", "bash would work out which words it stands for"),
        ("(n[12])", "bash would work out which words it stands for"),
        ("(a{1,2})", "bash would work out which words it stands for"),
        ("(a)b", "something stands behind the array"),
    ],
)
def test_value_that_bash_would_work_out_is_not_guessed_at(value: str, why: str) -> None:
    found, skipped = read(f"A={value}\nB=b\n", {})
    assert found == (Assignment("A", None, 1, why), Assignment("B", "b", 2 + value.count("\n")))
    assert skipped == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("B='b c'\nA=($B)", "bash would divide it into words"),
        ("B='*'\nA=(x$B)", "bash would divide it into words"),
        ("B=\nA=($B)", "bash would divide it into words"),
        ("export A=n{1,2}", "bash would work out which words it stands for"),
        ("readonly A=1\nA=2", "line 1 makes it read-only"),
        ("declare -rx A=1\nexport A=2", "line 1 makes it read-only"),
        ("A=(a b)\nA=c", "line 1 makes it an array"),
        ("export A= A=(b)", "one declaration sets it twice"),
        ("export B=b A=$B", "it uses B, which the file does not say"),
    ],
)
def test_value_that_hangs_on_what_came_before_is_not_guessed_at(text: str, why: str) -> None:
    found, skipped = read(f"{text}\n", {})
    last = [one for one in found if one.name == "A"][-1]
    assert (last.value, last.why.startswith(why)) == (None, True)
    assert skipped == ()


@pytest.mark.parametrize(
    ("text", "name", "line", "why"),
    [
        ("declare -i A=1+1", "declare -i", 1, "is no plain assignment"),
        ("typeset -u A=b", "typeset -u", 1, "is no plain assignment"),
        ("A=1 & true", "A=1 &", 1, "is no plain assignment"),
        ("A=1 | cat", "A=1 |", 1, "is no plain assignment"),
        ("(A=1; B=2)", "(A=1;", 1, "what it sets is lost"),
        ("( cd /x\n  A=1 )", "A", 2, "stands in what begins in line 1"),
        ("if true; then A=1; fi", "A", 1, "stands in what begins in line 1"),
        ("if [[ $x == 1 && y ]]\nthen\n  A=1\nelse\nB=2\nfi", "A", 3, "stands in what begins in line 1"),
        ("for x in a b; do A=$x; done", "A", 1, "stands in what begins in line 1"),
        ("while read x; do\nA=1\ndone <f", "A", 2, "stands in what begins in line 1"),
        ("f() {\n  A=1\n}", "A", 2, "stands in what begins in line 1"),
        ("function f {\n  local y; A=1\n}", "A", 2, "stands in what begins in line 1"),
        ("case $x in\n a) A=1;;\nesac", "a) A=1;;", 2, "stands in what begins in line 1"),
        ("{ A=1; }", "A", 1, "stands in what begins in line 1"),
        ("[ -e /x ] && A=1", "A", 1, "depends on a condition"),
        ("false || A=1", "A", 1, "depends on a condition"),
        ("A=1 make", "A=1 make", 1, "is no plain assignment"),
        ("A+=(x)", "A+=(x)", 1, "is no plain assignment"),
        ("A[1]=x", "A[1]=x", 1, "is no plain assignment"),
        (". /etc/other.sh", ". /etc/other.sh", 1, "reads another file"),
        ("echo hello; rm -rf /", "rm -rf /", 1, "is no plain assignment"),
        ("export A", "export A", 1, "is no plain assignment"),
    ],
)
def test_statement_that_is_no_assignment_is_named_with_its_line(text: str, name: str, line: int, why: str) -> None:
    found, skipped = read(f"{text}\nAFTER=1\n", {})
    assert [one.name for one in found] == ["AFTER"]
    named = [one for one in skipped if one.text.startswith(name)]
    assert [(one.line, one.why.startswith(why)) for one in named] == [(line, True)]


@pytest.mark.parametrize("change", ["if true; then B=2; fi", "true && B=2", "B=(2)", "B=$(date)"])
def test_variable_that_may_have_changed_is_not_known_any_more(change: str) -> None:
    found, _skipped = read(f"B=1\n{change}\nA=$B\n", {})
    assert found[-1].name == "A"
    assert found[-1].why == "it uses B, which the file does not say"


PIECES = (
    "b", "'b c'", '"b c"', '"$B"', "$B", "${B}/x", "\\ ", "a\\\nb", '"a\\\nb"', "'x\ny'", '"x\ny"', "b#c", "\\#c",
    "*", "~x", "a=b", "(a b)", "('a' \"b c\")", "( a # c\n b)", "()", '"a\\"b"', '"\\x"', "\\x", "a:b/c,d", "{a,b}",
    "a{b}", "[x]", "!", "+", "07", "$", "'$'", '"$"', "a$", "'a'\\''b'", "\"'\"", '"${B} $C"', "?", "\t", '" a "',
    '"a \\\\"', "\\\\", '""', "$'a'", '$"a"', "a&", "<", "a;", "(B=c)", "é",
)  # fmt: skip
BEFORE = ("", "export ", "readonly ", "declare -r ", "export \\\n", "declare -a ", "declare -i ", "declare -u ", "(")
AFTER = ("\n", ";", " ", "\n\n", " # x\n", "\r\n", " \\\n", " & ", " | ", ")\n")
PRINTED = 'printf "%s\\0" "${#A[@]}" "${A[@]}" "${#B[@]}" "${B[@]}" "${#C[@]}" "${C[@]}"'


@given(
    st.lists(
        st.tuples(
            st.sampled_from(BEFORE), st.sampled_from("ABC"),
            st.lists(st.sampled_from(PIECES), max_size=3).map("".join), st.sampled_from(AFTER),
        ).map("{0[0]}{0[1]}={0[2]}{0[3]}".format), min_size=1, max_size=4,
    ).map("".join)
)  # fmt: skip
@settings(max_examples=400, deadline=None)
def test_file_that_is_read_whole_sets_in_bash_what_is_read(text: str) -> None:
    """Nothing is run that is more than an assignment: where there is more, something is named.

    A file in which bash finds an error of syntax configured nobody.
    """
    found, skipped = read(f"{text}\n", {})
    last = {one.name: one.value for one in found}
    if skipped or any(one.value is None for one in found):
        return
    script = text.replace("\r\n", "\n") + "\n" + PRINTED
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, cwd="/", env={"PATH": "/nonexistent"})
    assume(b"syntax error" not in done.stderr)
    wanted: list[str] = []
    for value in (last.get(name) for name in "ABC"):
        arguments = [] if value is None else [value] if isinstance(value, str) else value
        wanted += [str(len(arguments)), *arguments]
    assert done.stdout.decode().split("\0")[:-1] == wanted, (text, done.stderr)


def test_here_document_sets_nothing() -> None:
    found, skipped = read("cat <<-'EOF' >x\n\tA=1\n\tEOF\nB=2\n", {})
    assert [one.name for one in found] == ["B"]
    assert [one.text for one in skipped] == ["cat <<-'EOF' >x"]


def test_legacy_configuration_is_never_executed(tmp_path: pathlib.Path) -> None:
    read(f"A=$(touch {tmp_path}/a)\ntouch {tmp_path}/b\nB=`touch {tmp_path}/c`\nC=(<(touch {tmp_path}/d))\n", {})
    assert list(tmp_path.iterdir()) == []


@given(st.text(alphabet="AB=()'\"$`{}\\ \n;&|#<>EOF[]if then fi~", max_size=80))
@settings(max_examples=300, deadline=None)
def test_any_text_comes_to_an_end(text: str) -> None:
    found, skipped = read(text, {})
    assert all(isinstance(one, Assignment) and 1 <= one.line <= text.count("\n") + 1 for one in found)
    assert all(isinstance(one, SkippedLine) and 1 <= one.line <= text.count("\n") + 1 for one in skipped)


@given(st.text(alphabet="aZ09 /.:*?+^$_-'\"\\`\n\t;|&<>()#~", max_size=30))
@settings(max_examples=100, deadline=None)
def test_quoted_text_comes_out_as_it_went_in(text: str) -> None:
    assert values(f"A={shlex.quote(text)}\n") == {"A": text}
