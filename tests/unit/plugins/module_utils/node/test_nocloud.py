# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NoCloud data out of what a playbook says, and what a diff shows of it."""

from __future__ import annotations

import json
import re
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import nocloud
from hypothesis import given
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


def test_a_mapping_becomes_cloud_config() -> None:
    text = nocloud.files_of({"packages": ["htop"]}, {"instance-id": "i"}, None)["user-data"]
    header, _newline, body = text.partition("\n")
    assert header == "#cloud-config"
    assert json.loads(body) == {"packages": ["htop"]}


def test_the_order_of_keys_says_nothing() -> None:
    assert nocloud.files_of({"a": 1, "b": 2}, {}, None) == nocloud.files_of({"b": 2, "a": 1}, {}, None)


def test_the_instance_id_follows_from_everything_else() -> None:
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


@pytest.mark.parametrize("wrong", [1, None, ["a"], True])
def test_something_else_is_refused(wrong: t.Any) -> None:
    with pytest.raises(VTorqueError, match="a mapping is expected"):
        nocloud.files_of(wrong, {}, None)


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


def test_what_is_no_secret_is_shown() -> None:
    text = "#cloud-config\npackages:\n  - htop\nusers:\n  - name: alice\n"
    assert nocloud.masked(text, "salt") == text


def test_what_follows_a_hidden_block_is_shown_again() -> None:
    assert "owner: root" in nocloud.masked(HIDDEN["a block"], "salt")


def test_a_change_of_a_secret_is_seen_and_cannot_be_tried() -> None:
    one, other = nocloud.masked("password: one", "salt"), nocloud.masked("password: other", "salt")
    assert one != other
    assert one != nocloud.masked("password: one", "pepper")


LINE = st.text(alphabet=st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), min_size=8, max_size=40)


@given(LINE)
def test_a_password_never_shows_whatever_it_is(secret: str) -> None:
    for text in (f"password: {json.dumps(secret)}", f"token: |\n  {secret}", f"private:\n- {secret}"):
        shown = re.sub(r"<hidden [0-9a-f]{8}>", "", nocloud.masked(text, "salt"))
        assert "".join(shown.split()) in ("password:", "token:", "private:")


def test_a_diff_names_the_files() -> None:
    assert nocloud.shown({"user-data": "a: 1\n", "meta-data": "b: 2\n"}, "salt") == (
        "--- meta-data\nb: 2\n--- user-data\na: 1\n"
    )
    assert nocloud.shown(None, "salt") == ""
