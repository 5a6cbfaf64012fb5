# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a site: what stands in it, and what no name of a job can put into it."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import itertools
import re
import typing as t
import unicodedata

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.site_report import drawing, facts, page
from ansible_collections.mikelangelo.vtorque.tests import made_up_week

MOST_BYTES = 2 << 20
LOADING = frozenset(
    {"script", "img", "iframe", "object", "embed", "link", "base", "form", "a", "use", "image", "video"}
)


class Reader(html.parser.HTMLParser):
    """Elements, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.style = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["style"]:
            self.style += data
        else:
            self.texts.append(data)


def drawn(count: int = 60, names: t.Sequence[str] = (), **changes: t.Any) -> str:
    """Return the page of a made-up week."""
    return page.render_page(facts.collect(made_up_week.sources(count, names, **changes)), None)


def test_page_has_every_section_and_its_facts() -> None:
    text = " ".join(Reader(drawn()).texts)
    for message in ("Running jobs", "Nodes", "What became of jobs", "Start times by image", "Recent jobs"):
        assert message in text
    assert "new kernel on Monday" in text
    assert "cn[05-06,09-16]" in text
    assert re.search(r"half within \d+\.\d+s", text)
    assert re.search(r"start \d+\.\d+s", text)
    assert "6000" in text
    assert "7000" not in text


@pytest.mark.parametrize("names", [(), made_up_week.HOSTILE], ids=["usual", "hostile"])
def test_page_loads_nothing_and_its_policy_allows_its_own_style_alone(names: t.Sequence[str]) -> None:
    read = Reader(drawn(names=names))
    assert not LOADING & {name for name, _attributes in read.elements}
    for _name, attributes in read.elements:
        assert not {"style", "href", "src", "xlink:href", "srcset"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert read.open == []
    (policy,) = (one["content"] for _name, one in read.elements if one.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(read.style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not re.search(r"url\(|@import", read.style)


def test_page_of_hostile_names_has_the_elements_of_one_with_plain_names() -> None:
    names = [name for name in made_up_week.HOSTILE if name]  # a node without a note has no line for one
    hostile, usual = Reader(drawn(names=names)), Reader(drawn(names=[f"name{one}" for one in range(len(names))]))
    assert [name for name, _one in hostile.elements] == [name for name, _one in usual.elements]
    assert "{{ 7 * 7 }}{% raw %}" in hostile.texts
    assert "<script>document.title='owned'</script>" in hostile.texts


@pytest.mark.parametrize("name", made_up_week.HOSTILE)
def test_page_holds_no_character_that_turns_text_or_drives_a_terminal(name: str) -> None:
    text = drawn(names=(name,))
    bad = {character for character in text if unicodedata.category(character)[0] == "C"} - {"\n"}
    assert bad == set()
    assert not {"\u2028", "\u2029"} & set(text)
    text.encode()


@pytest.mark.parametrize("name", ["W" * 400, "\ufdfd" * 400, "W " * 300])
def test_page_cuts_a_name_that_is_too_long(name: str) -> None:
    longest = max(map(len, Reader(drawn(names=(name,))).texts))
    assert longest <= 310  # a note of a node
    assert "…" in drawn(names=(name,))


def test_page_isolates_the_direction_of_every_name() -> None:
    """Letters that are written from right to left move nothing beside them."""
    name = "\u05d0\u05d1\u05d2"
    text = drawn(names=(name,))
    assert text.count(name) == len(re.findall(rf"<bdi[^>]*>{name}</bdi>", text)) > 4


def test_page_without_public_names_has_none() -> None:
    text = drawn(names=("canary",), names_public=False, nodes=())
    assert "canary" not in text


def test_page_of_a_new_site_says_none() -> None:
    text = " ".join(Reader(drawn(0, jobs=(), nodes=())).texts)
    assert text.count("none") == 3
    assert "no job ran in these days" in text


def test_page_of_a_silent_server_reports_what_is_not_known() -> None:
    text = " ".join(Reader(drawn(jobs=(), nodes=(), fault="qstat: <b>no answer")).texts)
    assert "qstat: <b>no answer" in text
    assert text.count("not known") == 2


@pytest.mark.parametrize("count", [0, 1, 10_000])
def test_page_of_many_jobs_is_small(count: int) -> None:
    assert len(drawn(count, nodes=made_up_week.nodes(2000)).encode()) < MOST_BYTES


def test_page_of_hostile_names_everywhere_is_small() -> None:
    names = ["<&'\"" * 100] * 9_000
    assert len(drawn(10_000, names=names).encode()) < MOST_BYTES


def test_page_lists_names_of_nodes_that_cannot_be_folded() -> None:
    assert page.fold(["a[1", "b]2,"]) == "a[1, b]2,"


@pytest.mark.parametrize(
    ("joules", "text"), [(0.0, "0 J"), (420.0, "420 J"), (5400.0, "5.4 kJ"), (1.25e6, "1.25 MJ"), (2e9, "2 GJ")]
)
def test_energy_has_three_digits(joules: float, text: str) -> None:
    assert page.format_joules(joules) == text


def test_page_reports_energy_where_a_record_has_it() -> None:
    energy = {"cn1": {"joules": 5400.0, "how": "estimated"}}
    record = made_up_week.read(made_up_week.records(1)[0] | {"energy": energy})
    assert "5.4 kJ, estimated" in drawn(records=[record])
    assert "estimated" not in drawn(records=[made_up_week.read(made_up_week.records(1)[0] | {"energy": {}})])


def test_page_of_the_made_up_week_has_waits_and_energy_of_both_sorts() -> None:
    """Of which the pictures of the documentation are drawn."""
    text = drawn(900)
    assert "% of their time they waited" in text
    assert re.search(r"\d [kM]J, estimated<", text)
    assert re.search(r"\d [kM]J<", text)


@pytest.mark.parametrize("run_s", [0.001, 1.0, 20.0, 1e6])
def test_timeline_fills_its_width_and_shortens_a_long_run(run_s: float) -> None:
    pieces = [facts.Piece("prepare", 1.0), facts.Piece("disk", 0.001), facts.Piece("ready", 9.0)]
    pieces += [facts.Piece("run", run_s), facts.Piece("end", 1.0)]
    bars = drawing.draw_timeline(pieces)
    assert bars[0].x == 0
    assert bars[-1].x + bars[-1].width == drawing.WIDTH
    assert min(bar.width for bar in bars) >= drawing.LEAST
    assert all(one.x + one.width <= other.x for one, other in itertools.pairwise(bars))
    cut = len([bar for bar in bars if bar.kind == "run"]) == 2
    assert cut is (run_s > 11.001 * drawing.LONG_SHARE)


@pytest.mark.parametrize("seconds", [(0.0, 0.0), (5.0,), (0.01, 90_000.0), (12.0, 12.5, 13.0)])
def test_distribution_stays_on_its_scale(seconds: tuple[float, ...]) -> None:
    image = facts.ImageStarts("a", seconds)
    low, high = drawing.span_of([image])
    assert low < high
    columns = drawing.draw_distribution(image, low, high)
    assert max(column.height for column in columns) == 100
    assert all(0 <= column.x < column.x + column.width <= drawing.WIDTH for column in columns)
    ticks = drawing.ticks_of(low, high)
    assert 1 <= len(ticks) <= 8
    assert all(0 <= x <= drawing.WIDTH for x, _label in ticks)
