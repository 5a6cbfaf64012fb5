# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user may add to their guests: what is read, and what is refused, by line and all at once."""

from __future__ import annotations

import base64
import json
import shlex
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission import metadata, packages
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request import strict_yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import form
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import (
    AddedFile,
    Additions,
    Command,
    Package,
)
from hypothesis import given, settings
from hypothesis import strategies as st

HOME = "/home/alice"
POLICY = Policy(metadata_packages=("make", "gfortran", "libopenblas0"), vm_nfs_ws="fs:/ws", home_via="virtiofs")
GOOD = """\
#cloud-config
packages: [make, gfortran]
write_files:
  - path: /home/alice/.solver/settings
    permissions: '0600'
    content: |
      threads = 4
      name = "it's"
  - path: /scratch/input.bin
    encoding: b64
    content: AAEC
runcmd:
  - echo "$HOME" >/tmp/seen
  - [mkdir, -p, /tmp/a b]
"""


def read(text: str | bytes, policy: Policy = POLICY) -> Additions:
    return metadata.read(text if isinstance(text, bytes) else text.encode(), "/home/alice/more.yml", policy, HOME)


def faults(text: str | bytes, policy: Policy = POLICY) -> list[tuple[int, str]]:
    with pytest.raises(metadata.AdditionsErrors) as caught:
        read(text, policy)
    assert str(caught.value).isprintable()
    return [(fault.line, fault.message) for fault in caught.value.faults]


def test_allowed_metadata_is_read_in_its_order() -> None:
    found = read(GOOD)
    assert found.packages == (Package("make"), Package("gfortran"))
    assert len(found.files) == 2
    settings_ = found.files[0]
    assert (settings_.path, settings_.mode) == ("/home/alice/.solver/settings", "600")
    assert base64.b64decode(settings_.content) == b'threads = 4\nname = "it\'s"\n'
    assert found.files[1] == AddedFile("/scratch/input.bin", "644", "AAEC")
    assert found.commands == (Command('echo "$HOME" >/tmp/seen'), Command("mkdir -p '/tmp/a b'"))
    assert metadata.describe(found) == "2 packages, 2 files, 2 commands"
    wire = json.loads(json.dumps(form.to_dict(found)))
    assert form.from_dict(Additions, wire) == found


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("packages: [curl]", 1, "curl is not on the site's list: make, gfortran, libopenblas0"),
        ("packages:\n- make\n- gfortan", 3, "did you mean gfortran?"),
        ("packages: [make, make]", 1, "make is given twice"),
        ("packages: ['--allow-downgrades']", 1, "not the name of a package"),
        ("packages: ['make=4.3']", 1, "without a version"),
        ("packages: ['/tmp/evil.deb']", 1, "not the name of a package"),
        ("packages: [[make, '4.3']]", 1, "packages[0]: a text is due"),
        ("packages: [1.0]", 1, "no text to YAML (float): put it in quotes"),
        ("packages: []", 1, "a list is due, with something in it"),
        ("packages: make", 1, "a list is due"),
        ("package: [make]", 1, "package: no such key; did you mean packages?"),
        ("\nusers: [{name: bob}]", 2, "users: the guest's one user is the job's"),
        ("ssh_authorized_keys: [k]", 1, "who enters a guest, and by which key"),
        ("mounts: [[/dev/vdb, /mnt]]", 1, "what a guest mounts is the site's list"),
        ("bootcmd: [id]", 1, "bootcmd: needs root, which users are not in a guest; what runs as"),
        ("apt: {}", 1, "packages come from the image's own sources"),
        ("package_upgrade: true", 1, "packages come from the image's own sources"),
        ("power_state: {mode: reboot}", 1, "power_state: needs root"),
        ("<<: {packages: [make]}", 1, "a key is one word"),
        ("write_files: [{path: /etc/passwd}]", 1, "as you, below /home/alice, /workspace, /scratch, /tmp"),
        ("write_files: [{path: /home/alice/../bob/x}]", 1, "an absolute path of a file is due, without '..'"),
        ("write_files: [{path: /home/alicex/y}]", 1, "files are written as you"),
        ("write_files: [{path: /home/alice}]", 1, "files are written as you"),
        ("write_files: [{path: /home/alice/}]", 1, "an absolute path of a file is due"),
        ("write_files: [{path: x}]", 1, "an absolute path of a file is due"),
        ("write_files: [{content: x}]", 1, "an absolute path of a file is due"),
        ('write_files: [{path: "/tmp/a\\nb"}]', 1, "an absolute path of a file is due"),
        ("write_files: [{path: /tmp/x, permissions: '4755'}]", 1, "no setuid, no setgid"),
        ("write_files: [{path: /tmp/x, permissions: 0644}]", 1, "no text to YAML (int): put it in quotes"),
        ("write_files: [{path: /tmp/x, owner: 'root:root'}]", 1, "write_files[0].owner: the files are yours"),
        ("write_files: [{path: /tmp/x, defer: true}]", 1, "files are written when your home is there"),
        ("write_files: [{path: /tmp/x, contents: y}]", 1, "did you mean content?"),
        ("write_files: [{path: /tmp/x, encoding: gzip, content: x}]", 1, "allowed: text/plain, b64, base64"),
        ("write_files: [{path: /tmp/x, encoding: b64, content: '*'}]", 1, "content is not in the encoding"),
        ("write_files: [{path: /tmp/x}, {path: /tmp/x}]", 1, "/tmp/x is given twice"),
        ("write_files: [/tmp/x]", 1, "a mapping is due, with path, content, permissions, encoding"),
        ("runcmd: [~]", 1, "is no text to YAML (null)"),
        ("runcmd: ['']", 1, "runcmd[0]: an empty command"),
        ("runcmd: [[]]", 1, "runcmd[0]: an empty command"),
        ("runcmd: [[sleep, 1]]", 1, "1 is no text to YAML (int): put it in quotes"),
        ('runcmd: ["a\\0b"]', 1, "holds NUL or half of a character"),
        ('runcmd: ["a\\uD800"]', 1, ""),
        (f"runcmd: [{'a, ' * 101}]", 1, "101 entries, at most 100 are read"),
        ("", 0, "holds nothing; allowed: packages, write_files, runcmd"),
        ("{}", 0, "holds nothing"),
        ("just words", 1, "a mapping is due"),
        ("- a", 1, "a mapping is due"),
        ("a: &x [1]\nb: *x", 1, "references (& and *) are not read"),
        ("runcmd: [id]\nruncmd: [id]", 2, "runcmd is given twice, in line 1 too"),
        ("? [a]\n: b", 1, "a key is one word"),
        ("1: b", 1, "a key is one word"),
        ("packages: !!python/object/apply:os.system ['id']", 1, "a tag"),
        ("runcmd: [!x id]", 1, "a tag"),
        ("runcmd: " + "[" * 20, 1, "more than 8 lists and mappings in one another"),
        ("runcmd: " + "[" * 5000, 1, "more than 8 lists and mappings in one another"),
        ("runcmd: [id\n", 2, "not YAML"),
        ("a: b\n---\nc: d\n", 2, "not YAML"),
        (b"runcmd: [id]\n\x00", 2, "not YAML"),
        (b"\nruncmd: ['\xff']", 2, "not text in UTF-8: byte 0xff"),
        (b"#" * (metadata.MAX_BYTES + 1), 0, "longer than 64 KiB"),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_named_with_its_line(text: str | bytes, line: int, expected: str) -> None:
    ((found, message),) = faults(text)
    assert found == line
    assert expected in message


def test_all_faults_are_told_at_once_by_line() -> None:
    found = faults("runcmd: [~]\nusers: []\npackages: [curl, wget]\nwrite_files: [{path: /etc/x}]\n")
    assert [line for line, _message in found] == [1, 2, 3, 3, 4]


def test_site_without_a_list_says_so() -> None:
    assert faults("packages: [make]", Policy()) == [
        (1, "packages[0]: make is not allowed: this site lets users name no packages")
    ]


def test_another_nodes_list_counts_on_that_node() -> None:
    packages.check_packages(read(GOOD), POLICY)
    with pytest.raises(SiteFault, match="gfortran: not on the site's list: make"):
        packages.check_packages(read(GOOD), Policy(metadata_packages=("make",)))


def test_billion_laughs_cost_nothing() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert faults("\n".join(lines))[0][1].startswith("references")


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200) | st.text("{}[]&*!|>-:,#'\"%@` \n?<~ab1", max_size=60).map(str.encode))
def test_metadata_of_any_content_is_read_or_refused(content: bytes) -> None:
    try:
        found, refused = read(content), None
    except metadata.AdditionsErrors as error:
        found, refused = Additions(), error
    assert found.any or (refused is not None and refused.faults and str(refused).isprintable())


_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
_WORDS = _TEXTS.filter(lambda text: bool(text.strip()))
_NAMES = st.from_regex(r"[A-Za-z0-9._ '-]{1,20}", fullmatch=True).filter(lambda name: name not in (".", ".."))
_FILES = st.fixed_dictionaries(
    {"path": _NAMES.map(lambda name: f"/tmp/{name}"), "content": _TEXTS},
    optional={"permissions": st.from_regex("0[0-7]{3}", fullmatch=True)},
)
_WHOLE = st.fixed_dictionaries(
    {"runcmd": st.lists(_WORDS | st.lists(_WORDS, min_size=1, max_size=3), min_size=1, max_size=3)},
    optional={
        "packages": st.lists(st.sampled_from(POLICY.metadata_packages), min_size=1, unique=True),
        "write_files": st.lists(_FILES, min_size=1, max_size=3, unique_by=lambda file: file["path"]),
    },
)


@settings(deadline=None)
@given(_WHOLE)
def test_metadata_survives_writing_and_reading(document: dict[str, t.Any]) -> None:
    found = read(yaml.safe_dump(document, allow_unicode=False))
    assert [package.name for package in found.packages] == document.get("packages", [])
    wanted = [(f["path"], f.get("permissions", "0644")[-3:], f["content"]) for f in document.get("write_files", [])]
    assert [(f.path, f.mode, base64.b64decode(f.content).decode()) for f in found.files] == wanted
    lines = [shlex.join(one) if isinstance(one, list) else one for one in document["runcmd"]]
    assert [command.line for command in found.commands] == lines


def test_text_says_what_yaml_would_take_it_for() -> None:
    root = strict_yaml.read(b"[yes, 'yes', 2026-01-01]")
    assert isinstance(root, strict_yaml.Items)
    assert [item.taken_for for item in root.items if isinstance(item, strict_yaml.Text)] == ["bool", "", "timestamp"]
