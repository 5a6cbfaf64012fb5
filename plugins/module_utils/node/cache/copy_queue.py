# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this node wants of the image pool: marks that outlive whoever asks, how far the work is, and what failed.

<images>/wanted/<fs_type>:<name>@<n>    a mark; the oldest is worked off first (`copy_worker.py`)
<images>/failed/<fs_type>:<name>@<n>    why it could not be, and for which content of the pool
<images>/fetching.json                  how far the work is; true while <images>/lock is held

With systemd a unit watches the directory of marks (vtorque-cache.path).  Without, whoever wants something starts the
program.  Neither lives in a job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import sys
import time
import typing as t

from ...errors import ImageFault, SiteFault, VTorqueError, error_from_dict
from ...frozen import frozen
from ...slow_libraries import load_library
from ...system import files
from ...system.clock import Deadline
from ...system.process.detached import start_detached
from ...text import format_bytes
from ...wire.messages import FS_TYPES, IMAGE_NAME
from ..pool.images import Image, unreadable
from ..state import start_lock
from ..state.settings import NodeSettings
from ..system import inotify
from .copy_store import facts_of

SYSTEMD = pathlib.Path("/run/systemd/system")
UNIT = "vtorque-cache.path"
PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vtorque_cache"
LOOK_S = 2.0
"""At most so long nobody looks whether somebody still works; what changes is heard at once."""


@dataclasses.dataclass(frozen=True, order=True)
class Want:
    """One thing that is wanted.

    Attributes:
        fs_type: `local`, `ramdisk`: a verified copy there; `sharedfs`: the pool's own file, verified.
        image: `debian12@3`.
    """

    fs_type: str
    image: str

    def __str__(self) -> str:
        return f"{self.fs_type}:{self.image}"

    @classmethod
    def of(cls, name: str) -> Want | None:
        """What a mark says; None: it is none."""
        fs_type, _colon, image = name.partition(":")
        return cls(fs_type, image) if fs_type in FS_TYPES and re.fullmatch(IMAGE_NAME, image) else None


@frozen
class Progress:
    """How far the work is.

    Attributes:
        want: what is worked on.
        done: bytes.
        total: bytes.
        bytes_s: how fast it was lately; 0: not known yet.
    """

    want: Want
    done: int
    total: int
    bytes_s: float

    def __str__(self) -> str:
        share = 100 * self.done // self.total if self.total else 0
        rate = f", {self.bytes_s / 2**20:.0f} MiB/s" if self.bytes_s else ""
        return f"image {self.want.image}: {share} % of {format_bytes(self.total)}{rate}"


class StillArriving(SiteFault):
    """An image is on its way to this node: nobody's fault, only not yet."""


def want(settings: NodeSettings, what: Want) -> None:
    """Leave a mark, and see to it that somebody works.

    Raises:
        VTorqueError: no mark can be left.
    """
    marks = marks_of(settings)
    files.make_directory(marks)
    _failed(settings, what).unlink(missing_ok=True)
    try:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(marks / str(what), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise VTorqueError(f"{marks}: no mark can be left", str(error)) from error
    ensure_worker(settings)


def ensure_worker(settings: NodeSettings) -> None:
    """Start the work where no systemd does, and nobody is at it."""
    if SYSTEMD.exists() or start_lock.is_locked_alone(lock_of(settings)):
        return
    with contextlib.suppress(OSError):
        start_detached([sys.executable, "-I", "-m", PROGRAM, "fill"])  # it leaves the job's cgroup itself


def wanted(settings: NodeSettings) -> tuple[Want, ...]:
    """What is wanted, the oldest mark first."""
    found = []
    try:
        marks = list((marks_of(settings)).iterdir())
    except FileNotFoundError:
        return ()
    for mark in marks:
        what = Want.of(mark.name)
        with contextlib.suppress(FileNotFoundError):
            if what is not None:
                found.append((mark.stat().st_mtime_ns, what))
    return tuple(what for _when, what in sorted(found))


def is_wanted(settings: NodeSettings, what: Want) -> bool:
    """Return whether its mark is still there."""
    return (marks_of(settings) / str(what)).exists()


def done(settings: NodeSettings, what: Want) -> None:
    """Note that a copy is there, so that nobody waits for it any more."""
    (marks_of(settings) / str(what)).unlink(missing_ok=True)


def fail(settings: NodeSettings, what: Want, error: VTorqueError, image: Image | None) -> None:
    """Note that a copy cannot be made; whoever waits finds the reason.

    Args:
        error: why.
        image: of the pool, where that was found.
    """
    source: dict[str, int] = {}
    with contextlib.suppress(OSError):  # it may have gone with the pool
        source = facts_of(image.path) if image is not None else {}
    note = {"error": error.to_dict(), "source": source, "when": time.time()}
    failed = _failed(settings, what)
    with contextlib.suppress(VTorqueError):  # a mark that stayed on a full disk would be tried again for ever
        files.make_directory(failed.parent)
        files.write(failed, json.dumps(note), mode=0o444)
    done(settings, what)


def failure(settings: NodeSettings, what: Want) -> VTorqueError | None:
    """Why it could not be done when it was tried last."""
    note = _note(settings, what)
    return error_from_dict(note["error"]) if note else None


def refusal(settings: NodeSettings, image: Image) -> ImageFault | None:
    """Return why just this content of the pool was found not to be what its record says.

    Then it need not be read again.

    Raises:
        SiteFault: the pool does not tell what its content is.
    """
    for fs_type in FS_TYPES:
        note = _note(settings, Want(fs_type, image.name))
        if note and note["source"] == _source(image):
            error = error_from_dict(note["error"])
            if isinstance(error, ImageFault):
                return error
    return None


def _source(image: Image) -> dict[str, int]:
    try:
        return facts_of(image.path)
    except OSError as error:
        raise unreadable(image, image.path, error) from error


def failures(settings: NodeSettings) -> tuple[tuple[Want, VTorqueError], ...]:
    """What could not be done, and was not wanted again since."""
    try:
        names = sorted(path.name for path in (settings.images_dir / "failed").iterdir())
    except FileNotFoundError:
        return ()
    found = [(what, failure(settings, what)) for name in names if (what := Want.of(name)) is not None]
    return tuple((what, error) for what, error in found if error is not None)


def report_progress(settings: NodeSettings, progress: Progress | None) -> None:
    """Say how far the work is; None: it has ended."""
    path = settings.images_dir / "fetching.json"
    if progress is None:
        path.unlink(missing_ok=True)
        return
    with contextlib.suppress(VTorqueError):  # nobody depends on it
        files.write(path, json.dumps(dataclasses.asdict(progress)), mode=0o444)


def progress(settings: NodeSettings) -> Progress | None:
    """How far the work is; None: nobody works."""
    if not start_lock.is_locked_alone(lock_of(settings)):
        return None
    try:
        progress_file = files.read_json(settings.images_dir / "fetching.json")
        return Progress(
            Want(**progress_file["want"]), progress_file["done"], progress_file["total"], progress_file["bytes_s"]
        )
    except (OSError, VTorqueError, KeyError, TypeError):
        return None


def marks_of(settings: NodeSettings) -> pathlib.Path:
    """The directory of marks."""
    return settings.images_dir / "wanted"


def lock_of(settings: NodeSettings) -> pathlib.Path:
    """Held alone by whoever works: one at a time on a node."""
    return settings.images_dir / "lock"


def wait(
    settings: NodeSettings, what: Want, until: Deadline, report: t.Callable[[str], None] = lambda _line: None
) -> None:
    """Wait until what is wanted was done.

    Args:
        what: was wanted (`want`).
        until: no longer.
        report: hears how far it is, whenever that changed.

    Raises:
        StillArriving: there was not time enough; says how far it is.
        VTorqueError: it cannot be done; says why.
    """
    inotify_simple = load_library("inotify_simple")

    flags = inotify_simple.flags
    with contextlib.closing(inotify_simple.INotify(nonblocking=True)) as heard:
        inotify.watch(heard, settings.images_dir, flags.MOVED_TO | flags.DELETE)
        inotify.watch(heard, marks_of(settings), flags.DELETE)
        while is_wanted(settings, what):
            report(_describe_want(settings, what))
            if until.passed:
                idle = progress(settings) is None
                raise StillArriving(
                    f"image {what.image} is still arriving on {settings.node_name}",
                    f"nobody fetches it: is {UNIT} active there?" if idle else _describe_want(settings, what),
                    "the job is tried again; vmgr image push brings an image to the nodes ahead of time",
                )
            ensure_worker(settings)
            heard.read(timeout=int(1000 * until.left_s(LOOK_S)) + 1)
    error = failure(settings, what)
    if error is not None:
        raise error  # pylint: disable=raising-bad-type  # it sees the None that was just ruled out


def _describe_want(settings: NodeSettings, what: Want) -> str:
    now = progress(settings)
    if now is None:
        return f"image {what.image} is asked for"
    return str(now) if now.want == what else f"image {what.image} waits for {now}"


def _failed(settings: NodeSettings, what: Want) -> pathlib.Path:
    return settings.images_dir / "failed" / str(what)


def _note(settings: NodeSettings, what: Want) -> dict[str, t.Any] | None:
    try:
        note = files.read_json(_failed(settings, what))
    except (OSError, VTorqueError):
        return None
    return note if isinstance(note.get("error"), dict) and isinstance(note.get("source"), dict) else None
