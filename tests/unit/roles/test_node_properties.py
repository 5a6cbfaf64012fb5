# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a front end gives nodes their property; molecule's scenario `site` does it with the lab's batch system."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

PROGRAM = COLLECTION_DIR.parent / "roles/frontend/files/node_properties.py"
PBSNODES = """#!/bin/sh
echo "<Data>"
for node in cn1 cn2.site; do
  echo "<Node><name>$node</name><state>free</state>"
  [ ! -s {place}/$node ] || echo "<properties>$(paste -sd , {place}/$node)</properties>"
  echo "<note>a < b</note></Node>"
done
"""
QMGR = """#!/bin/sh
[ ! -e {place}/forbidden ] || {{ echo "qmgr obj=cn1 svr=default: Unauthorized Request" >&2; exit 159; }}
echo "$2" >>{place}/orders
set -- $2
case $5 in +=) echo $6 >>{place}/$3 ;; -=) sed -i /^$6$/d {place}/$3 ;; esac
"""


class Server:
    """Torque's commands, as far as they are called, with the properties of each node in a file."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        for name, text in (("pbsnodes", PBSNODES), ("qmgr", QMGR)):
            (place / name).write_text(text.format(place=place))
            (place / name).chmod(0o755)

    def play(self, *arguments: str) -> dict[str, list[str]]:
        command = [sys.executable, "-I", PROGRAM, self.place, self.place / "note", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return dict(json.loads(done.stdout))

    def present(self, *arguments: str, **wanted: str | None) -> dict[str, list[str]]:
        return self.play("--wanted", json.dumps(wanted), *arguments)

    def has(self, node: str, *properties: str) -> None:
        (self.place / node).write_text("".join(f"{word}\n" for word in properties))

    def properties(self, node: str) -> list[str]:
        return (self.place / node).read_text().split() if (self.place / node).exists() else []

    @property
    def note(self) -> str:
        return (self.place / "note").read_text() if (self.place / "note").exists() else ""


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Server:
    return Server(tmp_path)


def test_node_property_is_set_once_and_removed(server: Server) -> None:
    given = server.present(cn1="vm", cn2="vm")
    assert given == {
        "done": ['qmgr -c "set node cn1 properties += vm"', 'qmgr -c "set node cn2.site properties += vm"'],
        "words": [],
    }  # fmt: skip
    assert server.note == "cn1 vm\ncn2 vm\n"
    assert server.present(cn1="vm", cn2="vm") == {"done": [], "words": []}
    assert len(server.play("--absent")["done"]) == 2
    assert server.properties("cn1") == server.properties("cn2.site") == []
    assert server.note == ""


def test_node_property_of_the_site_stays(server: Server) -> None:
    server.has("cn1", "big", "vm")
    assert server.present(cn1="vm") == {"done": [], "words": []}
    assert server.play("--absent") == {"done": [], "words": []}
    assert server.properties("cn1") == ["big", "vm"]


@pytest.mark.parametrize("other", ["kvm", None])
def test_another_or_none_takes_the_place_of_the_first(server: Server, other: str | None) -> None:
    server.present(cn1="vm", cn2="vm")
    server.present(cn1=other)
    assert server.properties("cn1") == ([other] if other else [])
    assert server.properties("cn2.site") == ["vm"]


def test_site_without_it_asks_no_server(server: Server) -> None:
    (server.place / "pbsnodes").unlink()
    assert server.present(cn1=None) == server.play("--absent") == {"done": [], "words": []}


def test_check_mode_says_it_and_changes_nothing(server: Server) -> None:
    assert server.present("--check", cn1="vm")["done"] == ['qmgr -c "set node cn1 properties += vm"']
    assert (server.properties("cn1"), server.note) == ([], "")
    server.present(cn1="vm")
    assert server.play("--absent", "--check")["done"] == ['qmgr -c "set node cn1 properties -= vm"']
    assert (server.properties("cn1"), server.note) == (["vm"], "cn1 vm\n")


def test_who_is_no_manager_is_told_the_command(server: Server) -> None:
    (server.place / "forbidden").touch()
    output = server.present(cn1="vm")
    assert output["done"] == []
    assert output["words"] == [
        'qmgr -c "set node cn1 properties += vm": qmgr obj=cn1 svr=default: Unauthorized Request.'
        " A manager of the batch server must do it"
    ]
    assert server.note == ""


def test_while_other_front_ends_go_on_it_stays(server: Server) -> None:
    server.present(cn1="vm")
    assert server.play("--absent", "--staying", '["fe2"]') == {
        "done": [],
        "words": [
            "cn1 keeps the property vm, since fe2 may submit to it:"
            ' qmgr -c "set node cn1 properties -= vm"',
        ],
    }  # fmt: skip
    assert (server.properties("cn1"), server.note) == (["vm"], "")


def test_node_that_goes_by_itself_loses_it_and_others_keep_theirs(server: Server) -> None:
    server.has("cn2.site", "big")
    server.present(cn1="vm", cn2="vm")
    looked = server.play("--gone", '["cn2"]', "--check")
    assert (server.properties("cn2.site"), server.note) == (["big", "vm"], "cn1 vm\ncn2 vm\n")
    done = server.play("--gone", '["cn2"]')
    assert looked == done == {"done": ['qmgr -c "set node cn2.site properties -= vm"'], "words": []}
    assert (server.properties("cn1"), server.properties("cn2.site"), server.note) == (["vm"], ["big"], "cn1 vm\n")
    server.has("cn2.site", "big", "vm")
    assert server.play("--gone", '["cn2"]') == {"done": [], "words": []}, "the site's own"


def test_node_unknown_to_the_server_is_reported(server: Server) -> None:
    assert server.present(cn9="vm")["words"] == ["the batch server has no node cn9, which should have the property vm"]
    server.present(cn1="vm")
    (server.place / "pbsnodes").unlink()
    assert "did not tell which properties nodes have" in server.present(cn1="other")["words"][0]
    assert server.play("--absent")["words"][1].startswith(
        "cn1 keeps the property vm, until somebody takes it off: qmgr"
    )
