# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Sphinx reads these pages: `make docs` for all of them, `make generated` for the manual pages in `man/`."""

import re
import typing as t

project = "vTorque"
html_title = "vTorque"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["vtorque.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_use_index = False

extensions = ["myst_parser", "sphinx_antsibull_ext"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
highlight_language = "yaml+jinja"
# what antsibull-docs writes refers to labels of Ansible's own pages, which are not known without the network;
# links from page to page are another kind, and are checked
suppress_warnings = ["ref.ref"]

# no date, which would make the same text another page every day
today = " "
man_pages = [
    ("vsub.1", "vsub", "submit a batch job into a virtual machine", [], 1),
    ("vmgr.1", "vmgr", "inspect images, jobs, nodes and settings of vTorque", [], 1),
    ("vtorque.yml.5", "vtorque.yml", "the site's configuration of vTorque", [], 5),
    ("vtorque-cache.8", "vtorque-cache", "the copies of images on a node", [], 8),
    ("vtorque-sweep.8", "vtorque-sweep", "remove leftovers of jobs from a node", [], 8),
]
"""In `man/`, which is then the whole source."""

CONTENTS = re.compile(r"^\.\. contents::\n(?: +:.*\n)*", re.MULTILINE)
"""A table of contents of antsibull-docs: Furo has its own beside each page, and paints an error for it."""


def leave_contents_to_theme(_app: t.Any, page: str, source: list[str]) -> None:
    """Take the table of contents out of a page of `reference/`, an event of Sphinx: `source` holds its one text."""
    if page.startswith("reference/"):
        source[0] = CONTENTS.sub("", source[0])


def setup(app: t.Any) -> None:
    """Connect what is done to pages, as Sphinx asks for it."""
    app.connect("source-read", leave_contents_to_theme)
