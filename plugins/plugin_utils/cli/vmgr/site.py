# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr site`: the whole site on one page."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import sys
import typing as t

from ....module_utils.errors import UserFault, VTorqueError
from ....module_utils.job.config.parameters import Policy
from ....module_utils.job.config.policy_file import load_usable
from ....module_utils.system import files
from ..output.json_output import add_json, print_json
from ..output.verbs import add_verb
from .site_report.facts import collect
from .site_report.gather import read_sources
from .site_report.page import render_page

HELP = "the site on one page"
PAGE = "index.html"
REPORT_EPILOG = """\
Writes index.html: jobs that run, jobs of the last seven days with timelines, nodes with their notes, verdicts, and
start times by image.  The page has no script and loads nothing; a reader never finds half of it.

Without --html, the page goes to report_dir of the site's configuration.  Root's page has all jobs, a user's page those
whose records they may read.

examples:
  vmgr site report --html /var/www/html/vtorque
  vmgr site report --html ~/report
  vmgr site report --query "images[].[image, seconds[-1]]"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of `vmgr site`.

    Args:
        parser: of the subject.
    """
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="report")
    report = add_verb(verbs, "report", "a page of jobs, nodes, verdicts and start times", REPORT_EPILOG)
    report.add_argument("--html", metavar="DIR", help="write DIR/index.html; DIR is created in a directory that exists")
    add_json(report, "for programs: what the page reports")


def run(call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
    """Write the page, or print its facts; see `Subject` of `main.py`.

    Raises:
        UserFault: no directory is named, or it cannot be used.
        VTorqueError: the records cannot be listed, or the page cannot be written.
    """
    policy, _broken = load_usable(load)  # a page of a site whose configuration is broken is wanted more than ever
    directory = call.html or ("" if call.json else policy.report_dir)
    if not directory and not call.json:
        raise UserFault("site report", "no directory is named", "--html DIR, or report_dir in the site's configuration")
    facts = collect(read_sources(policy))
    if facts.fault:
        print(f"vmgr: the page has records alone: {facts.fault}", file=sys.stderr)
    if directory:
        write_page(pathlib.Path(directory), render_page(facts, pathlib.Path(policy.template_dir)))
    if call.json:
        print_json(call, facts.to_dict())
    return 0


def write_page(directory: pathlib.Path, text: str) -> None:
    """Put the page into a directory, whole or not at all.

    Args:
        directory: created where its parent is there.
        text: of the page.

    Raises:
        UserFault: the directory cannot be created.
        VTorqueError: the page was not written, and the former one stays.
    """
    try:
        directory.mkdir(0o755, exist_ok=True)
        _remove_halves(directory)
    except OSError as error:
        raise UserFault(f"{directory}", error.strerror or str(error)) from error
    files.write(directory / PAGE, text, mode=0o444)


def _remove_halves(directory: pathlib.Path) -> None:
    """Remove what was killed while it wrote the page; the directory may be the site's, so nothing else is touched."""
    for path in directory.glob(f".{PAGE}.*"):
        half = files.HALF.fullmatch(path.name)
        if half and (half[1] == str(os.getpid()) or not pathlib.Path("/proc", half[1]).exists()):
            with contextlib.suppress(VTorqueError):
                path.unlink(missing_ok=True)
