# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random inputs: how many, and of which kinds.

`make unit` tries the same few each time.  With VTORQUE_CASES=N all tests of a run together try N at least, others in
each run, in rounds: what hypothesis remembers of a test's inputs grows with them, and a round is forgotten.
"""

from __future__ import annotations

import copy
import json
import os
import typing as t

import hypothesis
import hypothesis.strategies as st
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError

CASES = int(os.environ.get("VTORQUE_CASES", "0"))
FEW = 100
IN_A_ROUND = 1000
tried = hypothesis.settings(
    deadline=None, database=None, derandomize=not CASES, max_examples=IN_A_ROUND if CASES else FEW,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate, hypothesis.Phase.shrink],
)  # fmt: skip
"""For each test of this directory."""

HOSTILE = [
    "", " ", "\0", "\n", "\r\n", "\x1b[2J", "\u202e", "\ud800", "\ufffe", "\u0131", "\u0663", "'", '"', "`id`", "$(id)",
    "{{ 7 * 7 }}", "{% raw %}", "%s%n", "../../etc/shadow", "//", "-o", "--", "a: b", "- a", "&a [*a]",
    "!!python/name:os", "]]>", "<!DOCTYPE d [", "&amp;", "&#0;", "<a/>", "vtorque:", ";", ",", "+", "0x10", "1e999",
    "1_0", "-1", "9" * 5000, "NaN", "null", "true", "#", "|", "\\", "\\n", "A" * 300,
]  # fmt: skip
"""What means something to a shell, YAML, XML, Jinja2, a path, a terminal or a number, somewhere."""
ODD = st.sampled_from(HOSTILE)
TEXTS = st.one_of(
    ODD, st.text(st.characters(exclude_categories=[]), max_size=30), st.lists(ODD, max_size=3).map("".join)
)
NUMBERS = st.one_of(
    st.integers(-3, 70_000), st.sampled_from([2**31, 2**32, 2**63, 2**64, -(2**63), 10**30]), st.floats()
)  # fmt: skip
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
JSON = st.one_of(
    LEAVES, st.lists(LEAVES, max_size=3), st.dictionaries(st.text(max_size=6), LEAVES, max_size=3),
    st.lists(st.dictionaries(st.sampled_from(["name", "rank", "version"]), LEAVES, max_size=2), max_size=2),
)  # fmt: skip


def check_message(error: Exception, *, secret: str = "") -> None:
    """An error says something, and nothing in it is harmful on a terminal or a secret."""
    lines = str(error).splitlines()
    assert any(lines)
    assert all(line.isprintable() for line in lines), lines
    assert not secret or secret not in str(error)


def without_crash(read: t.Callable[[], t.Any]) -> t.Any:
    """What was read; None: it was refused by an error of ours, in one line that can be shown."""
    try:
        return read()
    except VTorqueError as error:
        check_message(error)
        return None


def paths_of(data: t.Any, here: tuple[t.Any, ...] = ()) -> list[tuple[t.Any, ...]]:
    """Where something stands in data of JSON."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [here, *(path for key, value in inner for path in paths_of(value, (*here, key)))]


def _with(data: t.Any, changes: t.Iterable[tuple[tuple[t.Any, ...], str, t.Any]]) -> t.Any:
    data = copy.deepcopy(data)
    for path, how, value in changes:
        place = data
        try:
            for key in path[:-1]:
                place = place[key]
            if not path and how == "also":
                data[str(value)[:20]] = value
            elif not path:
                data = value
            elif how == "leave out":
                del place[path[-1]]
            elif how == "twice" and isinstance(place, list):
                place.append(place[path[-1]])
            elif how == "also":
                place[path[-1]][str(value)[:20]] = value
            else:
                place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    return data


def spoiled(good: t.Any) -> st.SearchStrategy[t.Any]:
    """Data of JSON with a few things in it that are otherwise, missing, too much or twice."""
    good = json.loads(json.dumps(good))
    places = st.sampled_from(paths_of(good))
    change = st.tuples(places, st.sampled_from(["put", "put", "leave out", "twice", "also"]), JSON)
    return st.one_of(st.lists(change, max_size=3).map(lambda changes: _with(good, changes)), JSON)


def as_bytes(data: t.Any) -> bytes:
    """As it comes over a connection, with what UTF-8 cannot hold still in it."""
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")


def damaged(good: bytes) -> st.SearchStrategy[bytes]:
    """Bytes of which some are gone and some are others."""
    piece = st.one_of(st.binary(max_size=12), ODD.map(lambda text: text.encode("utf-8", "surrogatepass")))
    return st.one_of(
        st.binary(max_size=200),
        st.tuples(st.integers(0, len(good)), st.integers(0, 40), piece).map(
            lambda change: good[: change[0]] + change[2] + good[change[0] + change[1] :]
        ),
    )
