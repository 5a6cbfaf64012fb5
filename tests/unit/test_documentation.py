# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No command of the documentation is without a word on where it runs, and no key without an example.

The commands themselves are run by tests/e2e/test_documentation.py.
"""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.keys import KEYS
from ansible_collections.mikelangelo.vtorque.tests.texts.blocks import PAGES, PROMPTS, Block, blocks, missing
from ansible_collections.mikelangelo.vtorque.tests.texts.calls import calls, holds

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCKS = [block for page in PAGES for block in blocks(page)]
CONSOLE = [block for block in BLOCKS if block.language == "console"]
MARK = re.compile(r"(alice|root)@(fe|cn1|cn2|job)( status=[1-9][0-9]*)?|in=\S+|not-run: \S.*")
DATA = {"ini", "json", "yaml"}
"""Languages in which a `#` begins a remark."""
SCRIPT = ("#!", "#PBS")
PLAY = "ansible-playbook -i cluster.ini mikelangelo.vtorque"


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block_is_of_a_kind_whose_commands_are_known(block: Block) -> None:
    if block.language == "console":
        assert MARK.fullmatch(block.mark), "say behind `console` where it runs: docs/developer/testing.md"
        assert block.text.startswith(PROMPTS), "the first line is a command"
    elif block.language == "sh":
        assert block.text.startswith(SCRIPT), "what is typed is a block `console`"
    else:
        assert block.language in {"text", "{toctree}", "{include}", *DATA}, (
            "an indented block, or one of an unknown language"
        )
        prompts = PROMPTS[:1] if block.language in DATA else PROMPTS
        assert not [line for line in block.text.splitlines() if line.startswith(prompts)], "a command without a mark"


@pytest.mark.parametrize("block", [block for block in CONSOLE if block.file], ids=str)
def test_test_that_is_named_holds_the_command(block: Block) -> None:
    called = calls(ROOT / block.file)
    assert [command.text for command in block.commands if not holds(command.text, called)] == []


def test_commands_of_users_do_not_need_root() -> None:
    for block in CONSOLE:
        if block.place:
            prompt = "# " if block.place.startswith("root@") else "$ "
            assert block.text.startswith(prompt), block


@pytest.mark.parametrize("key", KEYS)
def test_every_key_has_an_example_that_runs(key: str) -> None:
    examples = [
        block
        for block in CONSOLE
        if block.page == "docs/user/keys.md" and block.place == "alice@fe"
        for command in block.commands
        if re.search(rf"-vm (\S+,)?{key}=", command.text)
    ]
    assert examples
    assert any(block.status == 0 for block in examples)


@pytest.mark.parametrize(
    ("printed", "output", "lacks"),
    [
        (("4711.head",), "12.fe\n", ""),
        (("4711.head",), "12.elsewhere\n", "4711.head"),
        (("a  b", "c"), "x\n  a b\nc\n", ""),
        (("a", "c"), "c\na\n", "c"),
        (("name ... value", "..."), "name  from  value\n", ""),
        (("name ... value",), "name value\n", ""),
        (("name ... value",), "name of a value!\n", "name ... value"),
        (("what (is) *",), "what (is) *\n", ""),
        (("4711",), "", "4711"),
    ],
)
def test_output_is_held_against_what_is_shown(printed: tuple[str, ...], output: str, lacks: str) -> None:
    assert missing(printed, output) == lacks


@pytest.mark.parametrize(
    ("command", "name", "text", "report"),
    [
        ("make demo", "a.sh", "run make demo\n", True),
        ("make demo", "a.sh", 'run "make demo"; others\n', True),
        ("make demo", "a.sh", "# make demo\n", False),
        ("make demo", "a.sh", "make; demo\n", False),
        ("make demo", "a.sh", "make demonstration\n", False),
        ("vsub -I -X", "a.py", 'Terminal("vsub", "-I", "-X", *request)', True),
        ("vsub -I -X", "a.py", 'Terminal("vsub", "-I", *request, "-X")', False),
        ("vsub -I -X", "a.py", 'Terminal("vsub")\nTerminal("-I", "-X")', False),
        ("vsub -I", "a.py", '"""vsub -I"""\n# vsub -I\n', False),
        ("vsub -I", "a.py", 'NAME = "vsub"\nrun([NAME, "-I"])', True),
        ("vmgr doctor", "a.py", 'on("fe", "true; vmgr doctor --json | cat")', True),
        ("vmgr image show debian12", "a.py", 'on("vmgr", "image", "show", "tiny", "--json")', True),
        ("vmgr image show debian12", "a.py", 'on("vmgr", "image", "show", "other")', False),
        ("vmgr doctor", "a.yml", "- argv: [vmgr, doctor]\n", True),
        ("vmgr doctor", "a.yml", "# vmgr doctor\n- name: vmgr\n", False),
        (f"{PLAY}.in", "a.yml", "- import_playbook: mikelangelo.vtorque.in", True),
        (f"{PLAY}.in -C", "a.yml", "- import_playbook: mikelangelo.vtorque.in", False),
        (f"{PLAY}.in", "a.yml", "- import_playbook: mikelangelo.vtorque.out", False),
        (f"{PLAY}.in -C", "a.py", 'run("playbook", "mikelangelo.vtorque.in", "--check")', True),
        (f"{PLAY}.in", "a.py", 'run("playbook", "mikelangelo.vtorque.in", "--check")', False),
        (f"{PLAY}.in [-e a=b]", "a.py", 'run("playbook", "mikelangelo.vtorque.in")', True),
        (f"{PLAY}.in", "a.sh", "ansible-playbook \\\n  mikelangelo.vtorque.in", True),
        (f"{PLAY}.in", "a.yml", "roles: [mikelangelo.vtorque.in]", False),
        (f"{PLAY}.in", "a.yml", "- role: mikelangelo.vtorque.in", False),
    ],
)  # fmt: skip
def test_command_is_found_in_a_test(tmp_path: pathlib.Path, command: str, name: str, text: str, report: bool) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert holds(command, calls(tmp_path / name)) == report


RECORDS = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))
FOR_DEVELOPERS = (
    "CONTRIBUTING.md",
    "docs/developer/architecture.md",
    "docs/developer/fast-start.md",
    "docs/developer/suspend.md",
    *(str(record.relative_to(ROOT)) for record in RECORDS),
)
ROOTS = (ROOT, *(ROOT / "plugins" / name for name in ("", "module_utils", "plugin_utils")))


def file_of(name: str) -> pathlib.Path | None:
    """A file of the checkout that a page names, from its root or from a directory of `plugins/`."""
    return next((root / name for root in ROOTS if (root / name).exists()), None)


@pytest.mark.parametrize("page", FOR_DEVELOPERS)
def test_file_that_a_page_for_developers_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`([a-z][A-Za-z0-9_.-]*/[A-Za-z0-9_./-]*\.[a-z0-9]+)`", text)
    assert named
    assert [name for name in named if file_of(name) is None] == []


@pytest.mark.parametrize(("page", "least"), [("architecture.md", 25), ("moves.md", 2), ("suspend.md", 3)])
def test_function_that_a_sequence_names_is_in_its_file(page: str, least: int) -> None:
    text = (ROOT / "docs/developer" / page).read_text(encoding="utf-8")
    named = re.findall(r"([a-z_/]+\.py)`? `?([a-z_]+)\(\)", text)
    assert len(named) >= least
    wrong = [
        f"{name} {function}"
        for name, function in named
        if (file := file_of(name)) is None or f"\ndef {function}(" not in file.read_text(encoding="utf-8")
    ]
    assert wrong == []


def test_architecture_has_a_line_for_every_package() -> None:
    """What is inside of a package with a line is its own; `job` and `node` are the columns of the picture."""
    text = (ROOT / "docs/developer/architecture.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z][a-z_/]+)` \|", text, re.MULTILINE))
    plugins = ROOT / "plugins"
    packages = {str(path.parent.relative_to(plugins)) for path in plugins.rglob("__init__.py")}
    packages -= {"module_utils/job", "module_utils/node"}
    assert {name for name in packages if not name.startswith(tuple(f"{one}/" for one in listed))} == listed


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_decision_has_its_form_and_a_row_in_the_index(record: pathlib.Path) -> None:
    text = record.read_text(encoding="utf-8")
    title = re.match(rf"# {record.name[:4]}\. (.+)\n", text)
    assert title
    assert re.findall(r"^(\*\*Status:\*\*|## .*)", text, re.MULTILINE) == [
        "**Status:**", "## Context", "## Decision", "## Consequence",
    ]  # fmt: skip
    index = (record.parent / "index.md").read_text(encoding="utf-8")
    assert f"| [{record.name[:4]}]({record.name}) | {title[1]} |" in index
    assert f"\n{record.stem}\n" in index


def test_numbers_of_decisions_are_used_once_and_in_order() -> None:
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_citation_names_the_version_of_the_collection() -> None:
    citation, galaxy = (
        yaml.safe_load((ROOT / name).read_text(encoding="utf-8")) for name in ("CITATION.cff", "galaxy.yml")
    )
    assert citation["version"] == galaxy["version"]
    assert [citation["license"]] == galaxy["license"]
    assert citation["repository-code"] == galaxy["repository"]


def test_decision_that_a_file_names_is_there() -> None:
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "plugins").rglob("*.py")]
    named = {name for file in files for name in re.findall(r"docs/adr/[\w-]+\.md", file.read_text(encoding="utf-8"))}
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
