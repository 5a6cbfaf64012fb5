# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong, and whose fault it is."""

from __future__ import annotations

import errno
import os
import pathlib
import typing as t

from .effects import leaves_nothing
from .text import printable


class VTorqueError(Exception):
    """Something failed: what, why, and what to do about it.

    The class says whose fault it is (docs/adr/0011-verdict-classes.md); the base class
    itself blames nobody.  The three texts are for people and hold no secrets.

    Args:
        what: what failed, with the value that was wrong ("img=debain12").
        why: the reason ("no such image in the pool").
        hint: what to do about it ("did you mean debian12?"), or "".
    """

    fault: t.ClassVar[str] = "unclear"

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(what, why, hint)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.what}: {self.why}" if self.why else self.what
        return f"{text} ({self.hint})" if self.hint else text

    @leaves_nothing
    def to_dict(self) -> dict[str, str]:
        """The error as JSON-ready words, for an answer that crosses a connection."""
        return {"fault": self.fault, "what": self.what, "why": self.why, "hint": self.hint}


class UserFault(VTorqueError):
    """The request, the user's quota, dotfiles or guest prologue: the job ends at once, with the reason."""

    fault = "user"


class ImageFault(VTorqueError):
    """The image boots nowhere, or is not what its record says: the job ends at once, with the reason."""

    fault = "image"


CAUSES = ("libvirt", "virtualisation", "bridge", "disk", "programs", "devices")
"""What a node can have proved to be wrong with itself; each can be tested again (`node/health/causes.py`)."""
DEGRADING = "degrading"
"""What a note of ours names for a node that works, and that its `health_sources` complain of; no start proves it."""


class NodeFault(VTorqueError):
    """Proved on the node itself: no virtualisation, libvirt dead, bridge missing, local disk full.

    Args:
        what: as in `VTorqueError`.
        why: as in `VTorqueError`.
        hint: as in `VTorqueError`.
        cause: which of `CAUSES`; "": none that could be tested again, and no node goes offline for it.
        node: the node that proved it of itself, "" where that is this one.
    """

    fault = "node"

    def __init__(self, what: str, why: str = "", hint: str = "", *, cause: str = "", node: str = "") -> None:
        super().__init__(what, why, hint)
        self.cause = cause
        self.node = node

    @leaves_nothing
    def to_dict(self) -> dict[str, str]:
        """See `VTorqueError.to_dict`; with the cause."""
        return {**super().to_dict(), "cause": self.cause}


_DISK_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
_DISK_FAULTS_OF_FILES = frozenset({errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO})
"""Of a disk that has gone, where a file is named; of a connection, where none is."""


@leaves_nothing
def unjudged(error: BaseException) -> OSError | None:
    """The system's word, in an error or in what caused it, of which nobody has said whose fault it is.

    Args:
        error: what was raised.

    Returns:
        None: it is no error of the system's, or its class says whose it is.
    """
    if isinstance(error, OSError):
        return error
    cause = error.__cause__
    if isinstance(error, NodeFault):
        blames = error.cause not in ("", "disk")
    else:
        blames = isinstance(error, VTorqueError) and error.fault != VTorqueError.fault
    return cause if isinstance(cause, OSError) and not blames else None


@leaves_nothing
def files_of(error: OSError) -> tuple[pathlib.Path, ...]:
    """The files that an error of the system's names; (): it is of a file that was open, as a full disk's often is."""
    names = (error.filename, error.filename2)  # a number, where a descriptor was given
    return tuple(pathlib.Path(os.fsdecode(name)) for name in names if isinstance(name, str | bytes | os.PathLike))


@leaves_nothing
def broken_disk(error: BaseException) -> OSError | None:
    """The system's word that a disk is full or broken, in an error or in what caused it.

    Args:
        error: what was raised while something was written.

    Returns:
        None: it is something else, or somebody has said already whose fault it is (`unjudged`).
    """
    cause = unjudged(error)
    if cause is None:
        return None
    found = cause.errno in _DISK_FAULTS or (cause.errno in _DISK_FAULTS_OF_FILES and bool(files_of(cause)))
    return cause if found else None


@leaves_nothing
def disk_fault(what: str, why: str) -> NodeFault:
    """Return the fault of a node whose disk is full or broken.

    Args:
        what: cannot be written.
        why: as the system reports it.
    """
    return NodeFault(what, why, "free some space, or see to the disk", cause="disk")


class SiteFault(VTorqueError):
    """DHCP, pool, home server, batch server or policy: nothing goes offline for it."""

    fault = "site"


SYMPTOMS = ("panicked", "ended", "silent")
"""What a guest can do instead of becoming ready, while its node and its site look well."""

CANCELLED = "the request was cancelled"
"""What a node says that was told to stop: it follows from what failed elsewhere."""


class GuestFault(VTorqueError):
    """A guest never became ready.  By itself it blames nobody; that it is so on all nodes alike points at the image.

    Args:
        what: as in `VTorqueError`.
        why: as in `VTorqueError`.
        hint: as in `VTorqueError`.
        symptom: which of `SYMPTOMS`.
    """

    def __init__(self, what: str, why: str = "", hint: str = "", *, symptom: str) -> None:
        super().__init__(what, why, hint)
        self.symptom = symptom

    @leaves_nothing
    def to_dict(self) -> dict[str, str]:
        """See `VTorqueError.to_dict`; with the symptom."""
        return {**super().to_dict(), "symptom": self.symptom}


class ImpostorFault(VTorqueError):
    """Somebody answers in a guest's place, with another host key: the job is held at once, and it is said loudly."""

    fault = "impostor"


class CheckpointFault(VTorqueError):
    """A job cannot begin again from its checkpoints: it is held at once, and never begun anew in silence."""

    fault = "checkpoint"


_BY_FAULT: dict[str, type[VTorqueError]] = {
    cls.fault: cls
    for cls in (VTorqueError, UserFault, ImageFault, NodeFault, SiteFault, ImpostorFault, CheckpointFault)
}


@leaves_nothing
def error_from_dict(data: t.Mapping[str, object]) -> VTorqueError:
    """The error that another process described with `VTorqueError.to_dict`.

    The other side is not trusted: an unknown fault becomes the base class, which blames nobody,
    and every text is cut at 2,000 characters and stripped of control characters.
    """

    def text(key: str) -> str:
        return printable(str(data.get(key, ""))[:2000])

    cls = _BY_FAULT.get(str(data.get("fault")), VTorqueError)
    what = text("what") or "an error without words", text("why"), text("hint")
    if cls is NodeFault:
        return NodeFault(*what, cause=cause if (cause := text("cause")) in CAUSES else "", node=text("host"))
    if cls is VTorqueError and (symptom := text("symptom")) in SYMPTOMS:
        return GuestFault(*what, symptom=symptom)
    return cls(*what)
