# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the files here share: every single attempt is counted, for the line at the end of `make test-security`."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from ..conftest import Ended, Site
from ..trouble import WAITS, wait_in_guest

Attack = t.Callable[[str], None]


@pytest.fixture
def attack(record_property: t.Callable[[str, object], None]) -> Attack:
    """Says what is tried next; the words are in the report, and are counted (tests/tried.py)."""

    def tries(message: str) -> None:
        record_property("tried", message)

    return tries


@contextlib.contextmanager
def guest_of(
    site: Site, *arguments: str, script: str = WAITS, user: str = "alice"
) -> t.Iterator[tuple[str, str]]:  # fmt: skip
    """A job whose script runs in its guest: its id and its node.  It ends with an attack that has succeeded."""
    job_id = site.submit(*arguments, stdin=script, user=user)
    try:
        yield job_id, wait_in_guest(site, job_id)
    except BaseException:
        site.on("fe", *site.batch.cancel, job_id)
        raise


def check_untouched(ended: Ended) -> None:
    """The job that waited (`WAITS`) has ended as if nobody had tried anything."""
    assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")
