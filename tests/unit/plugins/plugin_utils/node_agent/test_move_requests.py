# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A spare node that has refused a guest keeps no program that waits for it."""

from __future__ import annotations

import os
import pathlib
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.moves import FILES, Stream
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import move_requests


def stream(timeout_s: float) -> Stream:
    return Stream(1, "stream", "7.head", 1, "n2", "vn1-1", FILES, timeout_s)


@pytest.mark.parametrize("awaited", [False, True], ids=["not awaited yet", "without a place yet"])
@pytest.mark.parametrize(
    ("reads", "timeout_s", "why"), [(False, 600.0, "waits no longer"), (True, 0.3, "not awaited|has no place")]
)
def test_wait_for_a_guest_ends_with_who_asks(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, awaited: bool, reads: bool, timeout_s: float, why: str
) -> None:
    """Found by a lab whose last look waited five minutes for it."""

    def check_source(*_words: object) -> None:
        if not awaited:
            raise VTorqueError("guest vn1-1", "is not awaited")

    settings = types.SimpleNamespace(run_dir=tmp_path, node_name="n2", start_dir=lambda *_words: tmp_path / "start")
    monkeypatch.setattr(move_requests, "read_settings", lambda _load: settings)
    monkeypatch.setattr(move_requests, "is_awaited", lambda *_words: awaited)
    monkeypatch.setattr(move_requests, "check_source", check_source)
    reading, writing = os.pipe()
    monkeypatch.setattr(move_requests, "ANSWERS", writing)
    if not reads:
        os.close(reading)
    try:
        with pytest.raises(VTorqueError, match=why):
            move_requests.answer_stream(stream(timeout_s), t.cast(t.Any, None), {})
    finally:
        os.close(writing)
        if reads:
            os.close(reading)
