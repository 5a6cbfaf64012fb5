# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The trial of an image that is to be added: what people see of it, and whether the image is taken."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import types
import typing as t

from .....module_utils.errors import ImageFault
from .....module_utils.guest_kinds import kind_of
from .....module_utils.node.state.settings import NodeSettings
from .....module_utils.node.trial import boot
from .....module_utils.node.trial.report import report_of
from .....module_utils.system.clock import Deadline
from .....module_utils.text import printable
from .....module_utils.wire.health_report import BAD
from ...output.json_output import print_json
from ...output.progress import waiting
from ...output.tables import table

if t.TYPE_CHECKING:
    from .....module_utils.node.pool.images import Image
    from .....module_utils.node.trial.report import Report

BOOT_S = 300
LONGEST_S = 3600
_SHOWN_WORDS = 240
_ENDS = (signal.SIGTERM, signal.SIGHUP)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the trial.

    Args:
        parser: of a verb that brings a disk into the pool.
    """
    parser.add_argument("--no-boot", action="store_true", help="add it without booting it first")
    add_timeout(parser)
    parser.add_argument("--force", action="store_true", help="add it although no job could run in it")


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """The option that bounds a boot.

    Args:
        parser: of a verb that boots an image.
    """
    parser.add_argument(
        "--boot-timeout", type=_seconds, default=BOOT_S, metavar="SECONDS", help="for its boot (%(default)s)"
    )


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!a}: from 1 to {LONGEST_S} seconds")
    return int(text)


class Trial:
    """Boots an image that is about to appear in the pool.

    Args:
        call: the arguments.
        settings: of this host.
        before: what must be done before anything can be shown.
    """

    def __init__(self, call: argparse.Namespace, settings: NodeSettings, before: t.Callable[[], None]) -> None:
        self.call = call
        self.settings = settings
        self.before = before
        self.report: Report | None = None
        self.not_tried = "it was not asked for"

    def __call__(self, image: Image) -> None:
        """Boot it.

        Args:
            image: that is whole, and that nobody else can write.

        Raises:
            ImageFault: no job could run in it.
        """
        if self.call.no_boot:
            return
        if not kind_of(image.distro).linux:
            self.not_tried = f"a guest of {image.distro} has no cloud-init that could report; a job tells"
            return
        self.before()
        try:
            with waiting(wanted=not self.call.json) as say, ended_in_order():
                seen = boot.boot(
                    image,
                    self.settings.libvirt_uri,
                    Deadline.after(self.call.boot_timeout),
                    allow_emulation=self.settings.allow_emulation,
                    tell=say,
                )
        except boot.NotTried as error:
            self.not_tried = f"{error.why} ({error.hint})" if error.hint else error.why
            return
        self.report = report_of(seen)
        if self.report.good or self.call.force:
            return
        self.print_report()
        if self.call.json:
            print_json(self.call, {"added": False, "trial": self.to_dict()})
        bad = [finding for finding in self.report.findings if finding.state == BAD]
        problem = "; ".join(f"{finding.check}: {finding.found}" for finding in bad)
        raise ImageFault(
            f"image {self.call.name} was not added", f"no job could run in it: {problem}", "--force adds it nonetheless"
        )

    def print_report(self) -> None:
        """What the trial found, for people."""
        if self.call.json:
            return
        if self.report is None:
            if not self.call.no_boot:
                print(f"not booted: {printable(self.not_tried)}", file=sys.stderr)
            return
        rows = [
            {"check": one.check, "state": one.state, "found": _cut(one.found), "what to do": _cut(one.remedy)}
            for one in self.report.findings
        ]
        table(rows)
        if self.report.emulated:
            print(f"by emulation ({self.report.emulated}): it boots faster on a node that has KVM")

    def to_dict(self) -> dict[str, t.Any]:
        """What the trial found, for programs."""
        if self.report is None:
            return {"booted": False, "why": self.not_tried}
        return {"booted": True, **self.report.to_dict()}


def _cut(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _SHOWN_WORDS else f"...{text[-_SHOWN_WORDS:]}"


@contextlib.contextmanager
def ended_in_order() -> t.Iterator[None]:
    """Whoever is told to end takes what it has begun away first: SIGTERM and SIGHUP raise."""

    def end(number: int, _frame: types.FrameType | None) -> t.NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
