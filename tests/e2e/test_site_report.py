# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of the site, looked at in a real Chromium: on a desk and on a phone, light and dark."""

from __future__ import annotations

import pathlib
import re

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.site_report import facts, page
from ansible_collections.mikelangelo.vtorque.tests import made_up_week
from ansible_collections.mikelangelo.vtorque.tests.browser import Browser, Seen, browser

from .conftest import CHECKOUT, Site

PICTURES = CHECKOUT / "build/test"
"""Where the pictures stay, for people."""
WIDTHS = {"desk": 1300, "phone": 400}
LEAST_FONT, LINE = 12, 22
"""Pixels of the smallest letters, and of a line of text."""
LIGHT, DARK = "rgb(246, 247, 249)", "rgb(18, 22, 28)"


def open_page(opened: Browser, path: pathlib.Path, name: str) -> list[Seen]:
    """Open a page in each way, and check what must be true of each: nothing is wider, loaded, run or complained of."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    found = []
    for place, width in WIDTHS.items():
        for dark, colour in ((False, LIGHT), (True, DARK)):
            picture = PICTURES / f"site-report-{name}-{place}{'-dark' if dark else ''}.png"
            seen = opened.open(path, width=width, dark=dark, picture=picture, height=4000)
            assert seen.facts["width"] == width
            assert (seen.facts["scroll"], seen.facts["wide"]) == (width, []), picture
            assert seen.facts["background"] == colour
            assert seen.facts["title"] == "vTorque on fe"
            assert (seen.facts["scripts"], seen.requests, seen.complaints) == (0, (), ())
            assert seen.facts["smallest"] >= LEAST_FONT, "what no one reads on a phone"
            assert 0 < seen.facts["tallest"] <= LINE, "names have one line, whatever they are"
            assert picture.stat().st_size > 20_000
            found.append(seen)
    return found


@pytest.mark.both
def test_page_of_a_site_reports_the_job_that_ran_and_its_nodes(site: Site, tmp_path: pathlib.Path) -> None:
    """Root's page on the front end, with the record that the job's first node handed over."""
    ended = site.job(site.batch.named, "drawn", stdin="echo done\n")
    site.wait_for("the record on the front end", lambda: site.stored("fe", ended.job_id))
    done = site.on("fe", "vmgr", "site", "report", "--html", "/run/vtorque-page")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    path = tmp_path / "index.html"
    path.write_text(site.root("fe", "cat /run/vtorque-page/index.html; rm -r /run/vtorque-page"))
    with browser() as opened:
        text = open_page(opened, path, "lab")[0].facts["text"]
    number = re.match(r"[0-9]+", ended.job_id)
    assert number
    assert re.search(rf"^{number[0]}\salice\sdrawn\sexit status 0$", text, re.MULTILINE), text
    assert re.search(r"start [0-9.]+s\srun ", text)
    assert f"on {ended.node}" in text
    assert re.search(r"^[0-9]+ starts?$|tiny@[0-9]+ [0-9]+ starts?", text, re.MULTILINE)


def test_page_of_a_user_has_their_own_jobs_alone(site: Site) -> None:
    ended = site.job(site.batch.named, "mine", stdin="true\n")
    site.wait_for("the record on the front end", lambda: site.stored("fe", ended.job_id))
    queries = ("vmgr", "site", "report", "--query", "listed[].name")
    assert '"mine"' in site.on("fe", *queries, user="alice").stdout
    assert '"mine"' not in site.on("fe", *queries, user="bob").stdout


@pytest.mark.parametrize(
    ("name", "names"), [pytest.param("week", (), marks=pytest.mark.full), ("hostile", made_up_week.HOSTILE)]
)
def test_page_of_a_week_is_readable_and_runs_nothing(name: str, names: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(page.render_page(facts.collect(made_up_week.sources(900, names)), None))
    with browser() as opened:
        found = open_page(opened, path, name)
    assert all("What became of jobs" in seen.facts["text"] for seen in found)
    for seen in found:
        assert not {"script", "img", "a", "iframe", "form"} & set(seen.facts["elements"])
    if names:
        assert "<script>document.title='owned'</script>" in found[0].facts["text"]


def test_browser_would_see_what_a_page_does(tmp_path: pathlib.Path) -> None:
    """The test itself: a page that is too wide, loads something, and whose policy forbids it."""
    path = tmp_path / "index.html"
    policy = '<meta http-equiv="Content-Security-Policy" content="script-src \'none\'">'
    body = "<p style='width:900px'>wide</p><img src='http://127.0.0.1:9/x'><script>1</script>"
    body += "<p class='head'><bdi style='display:inline-block'><svg width='9' height='200'></svg></bdi></p>"
    body += "<svg viewBox='0 0 200 20' width='100'><text y='9' style='font-size:14px'>small</text></svg>"
    path.write_text(f"{policy}<title>t</title>{body}")
    with browser() as opened:
        seen = opened.open(path, width=400, dark=False, picture=tmp_path / "picture.png")
    assert seen.facts["scroll"] > 400
    assert seen.facts["smallest"] == 7
    assert seen.facts["tallest"] > 100
    assert seen.facts["scripts"] == 1
    assert seen.requests == ("http://127.0.0.1:9/x",)
    assert any("Content Security Policy" in text for text in seen.complaints)
