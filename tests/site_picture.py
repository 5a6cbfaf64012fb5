# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw the pictures of docs/admin/site-report.md anew: the page of a made-up week, in Chromium.

usage: PYTHONPATH=build/import build/venv/bin/python tests/site_picture.py
"""

from __future__ import annotations

import pathlib
import tempfile

from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.site_report import facts, page
from ansible_collections.mikelangelo.vtorque.tests import made_up_week
from ansible_collections.mikelangelo.vtorque.tests.browser import browser

PICTURES = {
    "site-report": (1000, False, 0, 1180),
    "site-report-jobs": (1000, False, 1255, 960),
    "site-report-phone": (400, True, 0, 1100),
}
"""Width, darkness, top and height of each."""
STATIC = pathlib.Path(__file__).resolve().parents[1] / "docs/_static"


def main() -> None:
    """Draw them."""
    with tempfile.TemporaryDirectory() as place, browser() as opened:
        path = pathlib.Path(place) / "index.html"
        path.write_text(page.render_page(facts.collect(made_up_week.sources()), None), encoding="utf-8")
        for name, (width, dark, top, height) in PICTURES.items():
            picture = STATIC / f"{name}.png"
            opened.open(path, width=width, dark=dark, picture=picture, top=top, height=height)


if __name__ == "__main__":
    main()
