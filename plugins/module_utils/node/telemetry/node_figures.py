# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of this node itself, for Prometheus."""

from __future__ import annotations

import contextlib

from ...errors import VTorqueError
from ...state import delivery_queue
from ..state import slots
from ..state.settings import NodeSettings
from . import textfile


def write_node(settings: NodeSettings) -> None:
    """Write how many guests this node has, how many more it can take, how many records wait here, and its templates.

    Of templates it writes nothing where the site has no warm starts.  A guest whose memory is on the disk is none of
    them: the next job gets its place (`slots.take`).  That it cannot be written keeps nobody from anything.

    Args:
        settings: NodeSettings of this node.
    """
    if not textfile.wanted(settings):
        return
    with contextlib.suppress(OSError, VTorqueError):
        running = len(slots.running(settings, slots.read_slots(settings)))
        figures = {
            "vtorque_guests": running,
            "vtorque_slots_free": max(0, settings.max_guests - running),
            "vtorque_spool_waiting": len(delivery_queue.list_pending(settings.state_dir)),
        }
        if settings.warm_start:  # one that is being made, or is taken away, has another name (`warm/template.py`)
            figures["vtorque_warm_templates"] = len(list(settings.warm_dir.glob(f"{'[0-9a-f]' * 32}/record.json")))
        labels = (("node", settings.node_name),)
        samples = [textfile.Sample(name, labels, value) for name, value in figures.items()]
        textfile.write(textfile.NODE, textfile.format_samples(samples), settings)


def write_offline(settings: NodeSettings, *, offline: bool) -> None:
    """Write whether vTorque has set this node offline; that it cannot be written keeps nobody from anything.

    Args:
        settings: NodeSettings of this node.
        offline: it carries a note of ours.
    """
    if textfile.wanted(settings):
        with contextlib.suppress(OSError):
            sample = textfile.Sample("vtorque_node_offline", (("node", settings.node_name),), int(offline))
            textfile.write(textfile.OFFLINE, textfile.format_samples([sample]), settings)


def write_degrading(settings: NodeSettings, *, degrading: bool) -> None:
    """Write whether this node is degrading; no file where the site has no sources of that.

    Args:
        settings: NodeSettings of this node.
        degrading: as the last look at its sources found it.
    """
    if not textfile.wanted(settings):
        return
    if not settings.health_sources:
        textfile.remove(textfile.HEALTH, settings)
        return
    with contextlib.suppress(OSError):
        sample = textfile.Sample("vtorque_node_degrading", (("node", settings.node_name),), int(degrading))
        textfile.write(textfile.HEALTH, textfile.format_samples([sample]), settings)
