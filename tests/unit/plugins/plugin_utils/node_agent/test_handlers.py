# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of requests: a kind is one entry, and whatever its handler raises is answered."""

from __future__ import annotations

import io
import json
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import signals
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.node_agent import handlers, serve


def ask(kind: handlers.Kind, kinds: t.Literal["KINDS", "SECOND"], patch: pytest.MonkeyPatch) -> dict[str, t.Any]:
    patch.setitem(getattr(handlers, kinds), "count", kind)
    line = io.BytesIO(json.dumps({"do": "count", "of": 7}).encode() + b"\n")
    return serve.respond(line, handlers.Call({}, Policy), getattr(handlers, kinds))


def test_kind_more_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = handlers.Kind(lambda data: data["of"], lambda of, _call: {"ok": True, "counted": of})
    assert ask(kind, "KINDS", monkeypatch) == {"ok": True, "counted": 7}


@pytest.mark.parametrize("kinds", ["KINDS", "SECOND"])
@pytest.mark.parametrize(
    ("problem", "fault", "what"),
    [
        (SiteFault("the pool", "is away"), "site", "the pool"),
        (OSError(5, "broken"), "unclear", "this node could not do it"),
        (signals.Terminated("SIGTERM"), "unclear", "the request was cancelled"),
        (ZeroDivisionError("x"), "unclear", "a fault in vTorque itself: ZeroDivisionError"),
    ],
)
def test_error_of_a_handler_is_answered_on_either_line(
    monkeypatch: pytest.MonkeyPatch, kinds: t.Literal["KINDS", "SECOND"], problem: BaseException, fault: str, what: str
) -> None:
    def fail(*_words: object) -> t.NoReturn:
        raise problem

    answer = ask(handlers.Kind(dict, fail), kinds, monkeypatch)
    assert (answer["ok"], answer["error"]["fault"], answer["error"]["what"]) == (False, fault, what)
