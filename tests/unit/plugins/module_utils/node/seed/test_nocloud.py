# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NoCloud data out of what a playbook says, and what a diff shows of it."""

from __future__ import annotations

import datetime
import json
import re
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import nocloud
from hypothesis import given, settings
from hypothesis import strategies as st

SECRET = "9Zx-not-for-anybody"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r\n9Zx-not-for-anybody\n-----END OPENSSH PRIVATE KEY-----"


def test_texts_stay_as_they_are() -> None:
    files = nocloud.files_of("#!/bin/sh\ntrue\n", "instance-id: mine\n", "version: 2\n")
    assert files == {
        "user-data": "#!/bin/sh\ntrue\n",
        "meta-data": "instance-id: mine\n",
        "network-config": "version: 2\n",
    }


def test_mapping_becomes_cloud_config() -> None:
    text = nocloud.files_of({"packages": ["htop"]}, {"instance-id": "i"}, None)["user-data"]
    header, _newline, body = text.partition("\n")
    assert header == "#cloud-config"
    assert json.loads(body) == {"packages": ["htop"]}


def test_order_of_keys_says_nothing() -> None:
    assert nocloud.files_of({"a": 1, "b": 2}, {}, None) == nocloud.files_of({"b": 2, "a": 1}, {}, None)


def test_instance_id_follows_from_everything_else() -> None:
    def made(user: t.Any, meta: t.Any, network: t.Any) -> str:
        return str(json.loads(nocloud.files_of(user, meta, network)["meta-data"])["instance-id"])

    ids = {
        made({"a": 1}, {}, None),
        made({"a": 2}, {}, None),
        made({"a": 1}, {"local-hostname": "guest"}, None),
        made({"a": 1}, {}, {"version": 2}),
    }
    assert len(ids) == 4
    assert made({"a": 1}, {}, None) in ids
    assert made({"a": 1}, {"instance-id": "mine"}, None) == "mine"


@pytest.mark.parametrize("wrong", [1, ["a"], True])
def test_something_else_is_refused(wrong: t.Any) -> None:
    with pytest.raises(VTorqueError, match="a mapping is expected"):
        nocloud.files_of(wrong, {}, None)


LOADERS = [yaml.SafeLoader, yaml.CSafeLoader]
EVERY_CHARACTER = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
TREE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _accepted(value: dict[str, t.Any]) -> dict[str, str] | None:
    try:
        return nocloud.files_of(value, {}, None)
    except VTorqueError:
        return None


@pytest.mark.parametrize("loader", LOADERS)
def test_every_character_comes_back_as_it_is(loader: t.Any) -> None:
    """In a text and in a key, between others."""
    texts = ["".join(EVERY_CHARACTER[start : start + 128]) for start in range(0, len(EVERY_CHARACTER), 128)]
    report = {"texts": texts, "keys": dict.fromkeys(texts)}
    assert yaml.load(nocloud.files_of(report, {}, None)["user-data"], Loader=loader) == report


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), TREE, max_size=4))
def test_accepted_value_is_read_back_as_it_is(value: dict[str, t.Any]) -> None:
    files = _accepted(value)
    for loader in LOADERS if files else ():
        read = yaml.load(files["user-data"], Loader=loader)
        assert json.dumps(read, sort_keys=True) == json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("code", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda bad: {"users": [{"gecos": f"ab{bad}"}]}, r"user-data, users\[0\]\.gecos, character 3: U\+D"),
        (lambda bad: {"a": {f"k{bad}": 1}}, r"user-data, a, the key .*, character 2: U\+D"),
        (lambda bad: f"#cloud-config\na: 1\nb: '{bad}'\n", r"user-data, line 3, column 5: U\+D"),
        (lambda bad: f"#!/bin/sh\necho {bad}\n", r"user-data, line 2, column 6: U\+D"),
    ],
)
def test_half_of_a_character_is_refused_with_its_place(code: int, make: t.Any, where: str) -> None:
    with pytest.raises(VTorqueError, match=where):
        nocloud.files_of(make(chr(code)), {}, None)


@pytest.mark.parametrize("code", [0, 7, 0x7F, 0x80, 0x9F, 0xFFFE, 0xFFFF])
def test_text_with_a_character_that_yaml_forbids_is_refused_with_its_place(code: int) -> None:
    for name, texts in {
        "user-data": (f"#cloud-config\na: '{chr(code)}'\n", {}, None),
        "meta-data": ({}, f"instance-id: i\na: '{chr(code)}'\n", None),
        "network-config": ({}, {}, f"version: 2\na: '{chr(code)}'\n"),
    }.items():
        with pytest.raises(VTorqueError, match=rf"{name}, line 2, column 5: U\+{code:04X} may not stand in YAML"):
            nocloud.files_of(*texts)  # type: ignore[arg-type]


def test_script_may_hold_any_character() -> None:
    assert nocloud.files_of("#!/bin/sh\necho \x07\n", {}, None)["user-data"].endswith("\x07\n")


@pytest.mark.parametrize("value", [{"a": {1: "b"}}, {"a": {True: "b"}}, {"a": datetime.date(2026, 1, 2)}, {"a": b"x"}])
def test_value_that_changes_when_read_back_is_refused(value: t.Any) -> None:
    with pytest.raises(VTorqueError, match="user-data, a"):
        nocloud.files_of(value, {}, None)


def test_depth_that_the_reader_cannot_follow_is_refused() -> None:
    value: t.Any = "x"
    for _level in range(nocloud.MAX_DEPTH - 1):
        value = [value]
    assert yaml.safe_load(nocloud.files_of({"a": value}, {}, None)["user-data"]) == {"a": value}
    with pytest.raises(VTorqueError, match="lists and mappings in one another"):
        nocloud.files_of({"a": [[value]]}, {}, None)


@pytest.mark.parametrize("empty", ["", " \n", None, {}])
def test_user_data_and_meta_data_that_are_empty_say_nothing_and_are_there(empty: t.Any) -> None:
    """Without one of the two NoCloud takes no seed."""
    files = nocloud.files_of(empty, empty, None)
    assert files == nocloud.files_of({}, {}, None)
    assert files["user-data"] == "#cloud-config\n{}\n"
    assert yaml.safe_load(files["meta-data"])["instance-id"].startswith("seed-")


@pytest.mark.parametrize("empty", ["", " \n", "---\n", "{}\n", "null", "# nothing\n", None, {}])
def test_network_config_that_is_empty_is_left_out(empty: t.Any) -> None:
    assert nocloud.files_of({"a": 1}, {}, empty) == nocloud.files_of({"a": 1}, {}, None)


@pytest.mark.parametrize("empty", ["{}\n", "# nothing\n", "---\nnull\n"])
def test_meta_data_of_yaml_that_holds_nothing_gets_an_instance_id(empty: str) -> None:
    assert nocloud.files_of({"a": 1}, empty, None) == nocloud.files_of({"a": 1}, {}, None)


@pytest.mark.parametrize("empty", ["", None])
def test_instance_id_that_is_empty_is_made(empty: t.Any) -> None:
    meta = {"local-hostname": "guest"}
    assert nocloud.files_of({}, {"instance-id": empty, **meta}, None) == nocloud.files_of({}, meta, None)


NETWORK = {"version": 2, "ethernets": {"lan": {"match": {"macaddress": "52:54:00:00:01:03"}}}}


@pytest.mark.parametrize("mac", [41135040063, "41135040063", 525400000103])
def test_mac_address_that_yaml_made_a_number_of_is_refused(mac: t.Any) -> None:
    network = {"ethernets": {"lan": {"match": {"macaddress": mac}}}}
    with pytest.raises(VTorqueError, match=r"network-config, ethernets\.lan\.match\.macaddress: .* number.*in quotes"):
        nocloud.files_of({}, {}, network)
    nocloud.files_of({}, {}, NETWORK)


@pytest.mark.parametrize("mac", ["52:54:00:00:01:03", "41135040063"])
@pytest.mark.parametrize(
    "form", ["  match:\n    macaddress: %s # lan\n", "match: {macaddress: %s}\n", '"mac_address": %s']
)
def test_text_in_which_yaml_reads_a_mac_address_as_a_number_is_refused(form: str, mac: str) -> None:
    with pytest.raises(VTorqueError, match=rf"network-config, line [23]: {mac} is a number to YAML.*in quotes"):
        nocloud.files_of({}, {}, "version: 2\n" + form % mac)
    for good in (f"'{mac}'", "52:54:00:00:01:0a", "00:16:3e:00:00:01"):
        nocloud.files_of({}, {}, "version: 2\n" + form % good)


@pytest.mark.parametrize(
    ("files", "where"),
    [
        (({}, {"local-hostname": 90}, None), "meta-data, local-hostname"),
        (({}, {"instance-id": 12.1}, None), "meta-data, instance-id"),
        (({"hostname": False}, {}, None), "user-data, hostname"),
        (({"users": [{"name": "a", "hashed_passwd": 1234}]}, {}, None), r"user-data, users\[0\]\.hashed_passwd"),
        (({"runcmd": [["echo", False]]}, {}, None), r"user-data, runcmd\[0\]\[1\]"),
        (({"write_files": [{"path": "/a", "content": 90}]}, {}, None), r"user-data, write_files\[0\]\.content"),
        (
            ({"write_files": [{"path": "/a", "permissions": 644}]}, {}, None),
            r"user-data, .*permissions: 644 .*mode 1204",
        ),
        (({}, {}, {"ethernets": {"a": {"addresses": [7200]}}}), r"network-config, ethernets\.a\.addresses\[0\]"),
    ],
)
def test_number_where_cloud_init_takes_a_text_is_refused(files: t.Any, where: str) -> None:
    with pytest.raises(VTorqueError, match=f"{where}.*in quotes") as caught:
        nocloud.files_of(*files)
    assert "1234" not in str(caught.value)


def test_numbers_that_mean_the_same_are_taken() -> None:
    report = {"runcmd": [["sleep", 10]], "write_files": [{"path": "/a", "permissions": 0o644}], "ssh_pwauth": False}
    assert yaml.safe_load(nocloud.files_of(report, {}, {"version": 2, "mtu": 9000})["user-data"]) == report


HIDDEN = {
    "a value": f"password: {SECRET}",
    "JSON": json.dumps({"users": [{"name": "a", "hashed_passwd": SECRET}]}, indent=1),
    "a flow mapping": f"chpasswd: {{users: [{{name: a, password: {SECRET}}}]}}",
    "a block": f"write_files:\n  - path: /a\n    content: |\n      {SECRET}\n\n      {SECRET}\n    owner: root",
    "a list below a key": f"ssh_keys:\n  - {SECRET}\n",
    "a PEM block further in": "ssh_keys:\n  ed25519_private: |\n    " + PEM.replace("\n", "\n    "),
    "a PEM block as far out": PEM,
    "a command line": f"runcmd:\n  - login --token {SECRET}",
    "a value in the next line": f"{{password:\n{SECRET}}}",
    "capitals": f"PASSWORD={SECRET}",
    "a dense word": f"- 'AAAA{SECRET}BBBBCCCCDDDD'",
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN.keys())
def test_secrets_are_hidden(text: str) -> None:
    assert SECRET not in nocloud.masked(text, "salt")


def test_value_that_is_no_secret_is_printed() -> None:
    text = "#cloud-config\npackages:\n  - htop\nusers:\n  - name: alice\n"
    assert nocloud.masked(text, "salt") == text


def test_text_after_a_hidden_block_is_printed() -> None:
    assert "owner: root" in nocloud.masked(HIDDEN["a block"], "salt")


def test_change_of_a_secret_is_seen_and_cannot_be_tried() -> None:
    one, other = nocloud.masked("password: one", "salt"), nocloud.masked("password: other", "salt")
    assert one != other
    assert one != nocloud.masked("password: one", "pepper")


LINE = st.text(alphabet=st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), min_size=8, max_size=40)


@given(LINE)
def test_password_never_shows_whatever_it_is(secret: str) -> None:
    for text in (f"password: {json.dumps(secret)}", f"token: |\n  {secret}", f"private:\n- {secret}"):
        printed = re.sub(r"<hidden [0-9a-f]{8}>", "", nocloud.masked(text, "salt"))
        assert "".join(printed.split()) in ("password:", "token:", "private:")


def test_diff_names_the_files() -> None:
    assert nocloud.masked_seed({"user-data": "a: 1\n", "meta-data": "b: 2\n"}, "salt") == (
        "--- meta-data\nb: 2\n--- user-data\na: 1\n"
    )
    assert nocloud.masked_seed(None, "salt") == ""
