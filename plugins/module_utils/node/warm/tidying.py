# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makers of templates left that were killed, and templates that are old or too many."""

from __future__ import annotations

from ..domain.connection import Domains
from ..state import start_lock
from ..state.directories import entries
from ..state.settings import NodeSettings
from . import template
from .clone_xml import NAME

LOCK = "warm"
"""Of who makes templates, and the name of the channel to their guest: there is one at a time."""


def end_lost(domains: Domains) -> tuple[str, ...]:
    """End guests of templates whose maker was killed; the caller makes none, and holds the lock.

    Returns:
        What was ended, as words.
    """
    names = [facts.name for facts in domains.list(ours=False) if facts.name.startswith(f"{NAME}-")]
    return tuple(f"domain {name}" for name in names if domains.destroy(name))


def tidy(settings: NodeSettings) -> tuple[str, ...]:
    """Take away what makers left that were killed, and templates that are old or too many; returns what, as words.

    Raises:
        NodeFault: libvirt does not answer.
    """
    if not settings.warm_dir.is_dir():
        return ()
    lock = start_lock.Lock(settings.run_dir / "locks" / LOCK)
    try:
        if not lock.take_now():
            return ()
        half = any(place.name.startswith(template.MAKING) for place in entries(settings.warm_dir))
        ended: tuple[str, ...] = ()
        if half:  # only then there may be a guest of it
            with Domains(settings.libvirt_uri) as domains:
                ended = end_lost(domains)
            (settings.agents_dir / LOCK).unlink(missing_ok=True)
        return (*ended, *template.tidy(settings))
    finally:
        lock.close()
