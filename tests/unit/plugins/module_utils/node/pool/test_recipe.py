# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a recipe may say, and that all that it may not is told at once."""

from __future__ import annotations

import contextlib
import pathlib
import tarfile

import hypothesis
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import recipe, recipe_bundle
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR
from hypothesis import strategies

WHOLE = """
packages: [openmpi-bin, libc6=2.36-9]
files:
  - path: /opt-vm/solver/solve
    source: solve
    mode: 0755
  - {path: /etc/profile.d/solver.sh, content: "PATH=$PATH:/opt-vm/solver\\n", owner: root}
commands:
  - ldconfig
  - |
    cd /opt-vm
    ls
"""


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "solve").write_text("#!/bin/sh\n")
    (tmp_path / "tree").mkdir()
    return tmp_path


def faults(text: str, place: pathlib.Path) -> list[str]:
    with pytest.raises(recipe.RecipeErrors) as caught:
        recipe.parse(text, place / "recipe.yml")
    return list(caught.value.faults)


def test_recipe_is_packages_files_and_commands(place: pathlib.Path) -> None:
    found = recipe.parse(WHOLE, place / "recipe.yml")
    assert found.packages == ("openmpi-bin", "libc6=2.36-9")
    assert found.commands == ("ldconfig", "cd /opt-vm\nls\n")
    assert [(file.path, file.mode) for file in found.files] == [
        ("/opt-vm/solver/solve", 0o755), ("/etc/profile.d/solver.sh", 0o644),
    ]  # fmt: skip
    assert found.files[0].source == place / "solve"
    assert found.files[1].content == b"PATH=$PATH:/opt-vm/solver\n"


def test_the_recipe_of_the_manual_is_one(place: pathlib.Path) -> None:
    page = (COLLECTION_DIR.parent / "docs/admin/image-building.md").read_text()
    found = recipe.parse(page.partition("```yaml\n")[2].partition("```")[0], place / "recipe.yml")
    assert (found.packages, len(found.files), len(found.commands)) == (("openmpi-bin",), 2, 1)


@pytest.mark.parametrize("text", ["", "# nothing\n", "packages:\nfiles:\n", "commands: []\n", "{}"])
def test_empty_recipe_is_a_recipe(place: pathlib.Path, text: str) -> None:
    assert recipe.parse(text, place / "recipe.yml") == recipe.Recipe()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pakages: []", "line 1: pakages: no such key; did you mean packages?"),
        ("runcmd: []", "line 1: runcmd: no such key; there are packages, files, commands"),
        ("commands: []\n\ncommands: []", "line 3: commands: is given twice"),
        ("users: [joe]", "line 1: users: an image has no users: the job's own is made in the guest"),
        ("group: [joe]", "line 1: group: an image has no users"),
        ("- a", "line 1: the recipe: is a mapping of packages, files, commands"),
        ("packages: less", "line 1: packages: is a list"),
        ("packages: [[less]]", "line 1: packages: is a text"),
        ("packages: [null]", "line 1: packages: is a text"),
        ("packages: ['less,sudo']", "line 1: packages: less,sudo: is no name of a package"),
        ("packages: ['--option=x']", "is no name of a package"),
        ("commands: [' ']", "line 1: commands: a command is empty"),
        ('commands: ["a\\0b"]', "line 1: commands: a command is empty, or holds a zero byte"),
        ("files: [/etc/x]", "line 1: files: is a mapping of path, content, source, mode, owner"),
        ("files: [{content: x}]", "line 1: files: a file without a path"),
        ("files: [{pth: /etc/x, content: x}]", "line 1: pth: no such key; did you mean path?"),
        ("files: [{path: /etc/x}]", "line 1: /etc/x: has either content or a source"),
        ("files: [{path: /etc/x, content: x, source: solve}]", "/etc/x: has either content or a source"),
        ("files: [{path: /etc/x, content: null}]", "line 1: content: is a text"),
        ("files: [{path: /etc/x, source: none}]", "/etc/x: source none: No such file or directory"),
        ("files: [{path: /etc/x, source: tree}]", "source tree: is no file; bring a tree as an archive"),
        ("files: [{path: /etc/x, content: x, owner: alice}]", "/etc/x: owner alice: files of an image are root's"),
        ("files: [{path: /etc/x, content: x, user: alice}]", "user: an image has no users"),
        ("files: [{path: /etc/x, content: x, mode: 0666}]", "mode 0666: three octal digits, and nobody but root"),
        ("files: [{path: /etc/x, content: x, mode: '4755'}]", "/etc/x: mode 4755: three octal digits"),
        ("files: [{path: /etc/x, content: x, mode: rw}]", "/etc/x: mode rw: three octal digits"),
        ("files: [{path: /usr/bin/x, content: x}]", "/usr/bin/x: lies outside /opt-vm, /usr/local, /etc"),
        ("files: [{path: /opt-vm, content: x}]", "/opt-vm: lies outside"),
        ("files: [{path: /opt-vmx/y, content: x}]", "/opt-vmx/y: lies outside"),
        ("files: [{path: /etc/../root/x, content: x}]", "/etc/../root/x: is no plain path from the root"),
        ("files: [{path: //etc/x, content: x}]", "//etc/x: is no plain path from the root"),
        ("files: [{path: etc/x, content: x}]", "etc/x: is no plain path from the root"),
        ("files: [{path: /etc/x/, content: x}]", "/etc/x/: is no plain path from the root"),
        ('files: [{path: "/etc/x\\ny", content: x}]', "/etc/x?y: is no plain path from the root"),
        ("files: [{path: /etc/passwd, content: x}]", "/etc/passwd: may not be brought: accounts are"),
        ("files: [{path: /etc/machine-id, content: x}]", "/etc/machine-id: may not be brought: it is each guest's own"),
        ("files: [{path: /etc/ssh/ssh_host_rsa_key, content: x}]", "a host key is each guest's own"),
        ("files: [{path: /etc/cloud/cloud.cfg.d/1.cfg, content: x}]", "may not be brought: it is what makes"),
        ("files: [{path: /etc/sudoers.d/all, content: x}]", "may not be brought: users have no rights of root"),
        ("files: [{path: /etc/x, content: x}, {path: /etc/x, content: y}]", "/etc/x: is given twice"),
        ("files: [{path: /etc/x, content: x}, {path: /etc/x/y, content: y}]", "/etc/x: is a file and the directory of"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(place: pathlib.Path, text: str, message: str) -> None:
    (fault,) = faults(text, place)
    assert message in fault


def test_everything_that_is_wrong_is_told_at_once(place: pathlib.Path) -> None:
    text = "pakages: [a]\nfiles:\n- {path: /bin/x, content: x, mod: '1', owner: joe}\ncommands: [a, '']\nusers: [joe]\n"
    report = faults(text, place)
    assert len(report) == 6
    assert [fault.partition(":")[0] for fault in report] == ["line 1", "line 3", "line 3", "line 3", "line 4", "line 5"]


@pytest.mark.parametrize("text", ["a: [", "\x00", "a: *b", "[" * 3000])
def test_recipe_that_is_no_yaml_is_refused(place: pathlib.Path, text: str) -> None:
    with pytest.raises(UserFault) as caught:
        recipe.parse(text, place / "recipe.yml")
    assert "recipe.yml" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff", "no text in UTF-8"), (b"#" * (1 << 21), "more than 1024 KiB")]
)
def test_recipe_file_that_cannot_be_read_is_refused(place: pathlib.Path, content: bytes, message: str) -> None:
    (place / "recipe.yml").write_bytes(content)
    with pytest.raises(UserFault, match=message):
        recipe.read(place / "recipe.yml")
    with pytest.raises(UserFault, match="No such file"):
        recipe.read(place / "none.yml")


@hypothesis.given(strategies.recursive(
    strategies.none() | strategies.integers() | strategies.text(max_size=8)
    | strategies.sampled_from([*recipe.KEYS, *recipe.FILE_KEYS, "/etc/x", "/opt-vm/y", "users"]),
    lambda inner: strategies.lists(inner, max_size=3)
    | strategies.dictionaries(strategies.sampled_from([*recipe.KEYS, *recipe.FILE_KEYS, "x"]), inner, max_size=4),
))  # fmt: skip
def test_recipe_of_any_content_is_read_or_refused(data: object) -> None:
    import yaml

    text = yaml.safe_dump(data)
    with contextlib.suppress(recipe.RecipeErrors):
        found = recipe.parse(text, pathlib.Path("/nonexistent/recipe.yml"))
        assert all(file.path.startswith(recipe.ALLOWED_DIRECTORIES) for file in found.files)


def test_digest_is_of_what_is_asked_for(place: pathlib.Path) -> None:
    known = recipe.parse(WHOLE, place / "recipe.yml").digest()
    same = WHOLE.replace("[openmpi-bin, libc6=2.36-9]", "[libc6=2.36-9, openmpi-bin] # two").replace("0755", "'755'")
    assert recipe.parse(same, place / "recipe.yml").digest() == known
    others = [WHOLE.replace(*change) for change in (
        ("openmpi-bin", "mpich"), ("0755", "0700"), ("solver.sh", "other.sh"), ("PATH=$PATH", "PATH=$HOME"),
        ("- ldconfig\n", "- true\n"),
    )]  # fmt: skip
    found = {recipe.parse(text, place / "recipe.yml").digest() for text in others}
    (place / "solve").write_text("#!/bin/bash\n")
    assert len({known, recipe.parse(WHOLE, place / "recipe.yml").digest(), *found}) == 7


def test_bundle_holds_files_of_roots_and_the_commands(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    recipe_bundle.pack(recipe.parse(WHOLE, place / "recipe.yml"), out)
    first = (out / "recipe.tar").read_bytes()
    assert (out / "recipe.commands").read_bytes() == b"ldconfig\0cd /opt-vm\nls\n\0"
    with tarfile.open(out / "recipe.tar") as archive:
        members = archive.getmembers()
        held = [(one.name, one.mode, one.uid, one.gid, archive.extractfile(one).read()) for one in members]  # type: ignore[union-attr]
    assert held == [
        ("opt-vm/solver/solve", 0o755, 0, 0, b"#!/bin/sh\n"),
        ("etc/profile.d/solver.sh", 0o644, 0, 0, b"PATH=$PATH:/opt-vm/solver\n"),
    ]
    recipe_bundle.pack(recipe.parse(WHOLE, place / "recipe.yml"), out)
    assert (out / "recipe.tar").read_bytes() == first


def test_source_that_is_gone_is_named(place: pathlib.Path, tmp_path: pathlib.Path) -> None:
    found = recipe.parse(WHOLE, place / "recipe.yml")
    (place / "solve").unlink()
    with pytest.raises(UserFault, match=r"/opt-vm/solver/solve: source .*No such file"):
        recipe_bundle.pack(found, tmp_path)
