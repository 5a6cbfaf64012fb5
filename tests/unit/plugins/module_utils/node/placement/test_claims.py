# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cores that guests of a node have: as long as they live, and no longer."""

from __future__ import annotations

import fcntl
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement import claims
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.placement.pins import Pins
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings

PINS = Pins(((1,), (2, 3)), (0,))
OWN, OTHER = "7.head.1", "8.head.1"


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    here = NodeSettings(node_name="cn1", node_number=1, state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    for start, guest in ((OWN, "vcn1-1"), (OTHER, "vcn1-2")):
        directory = here.guests_dir / start / guest
        directory.mkdir(parents=True)
        claims.claim(directory, PINS)
    return here


def test_claims_of_guests_that_run_count_for_others_alone(settings: NodeSettings) -> None:
    assert claims.read_claims(settings, OWN, {"vcn1-1", "vcn1-2"}) == dict.fromkeys((0, 1, 2, 3), OTHER)
    assert claims.read_claims(settings, OTHER, {"vcn1-2"}) == {}


def test_claim_of_a_start_that_somebody_works_on_counts_before_its_domain_is_there(settings: NodeSettings) -> None:
    path = start_lock.start_lock(settings, OTHER)
    path.parent.mkdir(parents=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert set(claims.read_claims(settings, OWN, ())) == {0, 1, 2, 3}
    assert claims.read_claims(settings, OWN, ()) == {}


def test_claim_falls_with_what_else_there_is_of_a_guest(settings: NodeSettings) -> None:
    (settings.guests_dir / OTHER / "vcn1-2" / claims.FILE).unlink()
    assert claims.read_claims(settings, OWN, {"vcn1-2"}) == {}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"vcpus": 3, "others": "1"}', '{"vcpus": ["x"], "others": "1"}'])
def test_claim_that_cannot_be_read_is_none(settings: NodeSettings, content: str) -> None:
    file = settings.guests_dir / OTHER / "vcn1-2" / claims.FILE
    file.chmod(0o600)
    file.write_text(content)
    assert claims.read_claims(settings, OWN, {"vcn1-2"}) == {}
