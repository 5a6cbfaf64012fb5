# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to domains, as libvirt numbers it, in words."""

from __future__ import annotations

from ...frozen import frozen

_EVENTS = ("defined", "undefined", "started", "suspended", "resumed", "stopped", "shutdown", "suspended", "crashed")
_PAUSE_REASONS = {
    1: "migration",
    2: "an I/O error (no room left on the disk?)",
    3: "a watchdog",
    5: "a snapshot",
    6: "a failed API call",
}
_STOP_REASONS = {
    0: "it shut down",
    1: "it was destroyed",
    2: "it crashed",
    3: "it was migrated",
    4: "it was saved",
    5: "qemu failed: it crashed or was killed",
}
_SHUTDOWN_REASONS = {0: "it shut down", 1: "it shut down or restarted of its own accord", 2: "qemu was told to end"}
_REASONS = {"suspended": _PAUSE_REASONS, "stopped": _STOP_REASONS, "shutdown": _SHUTDOWN_REASONS}


@frozen
class DomainEvent:
    """Something happened to a domain.

    Attributes:
        name: of the domain; "" when it is the connection that was lost.
        kind: `started`, `suspended`, `resumed`, `stopped`, `shutdown`, `crashed`, `defined`, `undefined` or `lost`.
        reason: why, for people.
    """

    name: str
    kind: str
    reason: str = ""


def describe_change(name: str, event: int, detail: int) -> DomainEvent:
    """Return a change of a domain's life as libvirt's callback has it.

    Args:
        name: of the domain.
        event: `virDomainEventType`.
        detail: of that type.
    """
    kind = _EVENTS[event] if 0 <= event < len(_EVENTS) else "unknown"
    return DomainEvent(name, kind, _REASONS.get(kind, {}).get(detail, ""))
