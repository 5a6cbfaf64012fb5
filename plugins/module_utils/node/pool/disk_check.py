# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the disk file of an image is, before anything believes it: by its header first, then by qemu-img, on a leash."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import resource
import stat
import subprocess
import typing as t

from ...errors import ImageFault, NodeFault, VTorqueError
from ...system.clock import Deadline
from ...system.process.environment import TOOL_ENVIRONMENT
from ...system.process.process_limits import leash
from .disk_format import DiskHeader, read_header
from .images import NOT_THERE, Image, unreadable

QEMU_IMG = pathlib.Path("/usr/bin/qemu-img")
MEMORY_BYTES = 2 << 30
"""Of addresses; qemu-img takes 0.4 GiB of them, and counts references of a 1 TiB file in 32 MiB."""
CPU_S = 600
WORDS_BYTES = 16 << 20
"""What it may write, also into the head of an overlay: of millions of errors in a disk the first are enough."""
INFO_S = 30.0
_BOUNDS = (
    (resource.RLIMIT_AS, MEMORY_BYTES),
    (resource.RLIMIT_CPU, CPU_S),
    (resource.RLIMIT_FSIZE, WORDS_BYTES),
    (resource.RLIMIT_CORE, 0),
)
OUT_OF_REACH = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EREMOTEIO, errno.EHOSTDOWN})
"""Errors of a disk or a file server that fails, where others are of the path or of the reader's rights."""


def open_disk(path: pathlib.Path) -> t.BinaryIO:
    """Open a disk file to read it; what is no regular file is not waited for.

    Raises:
        ImageFault: it is no regular file.
        OSError: it cannot be opened.
    """
    stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise ImageFault(f"{path}", "is not a regular file")
    return stream


def inspect_header(stream: t.BinaryIO, what: str, *, format: str = "", max_bytes: int = 0) -> DiskHeader:
    """Look at the header of a disk file.

    Args:
        stream: see `open_disk`.
        what: the file, for messages.
        format: the format that it must have; "": its own, and then a raw one must have a table of partitions.
        max_bytes: greatest size that a guest may see; 0: any.

    Raises:
        ImageFault: see `read_header`; or it is of another format or greater.
        OSError: it cannot be read.
    """
    header = read_header(stream, os.fstat(stream.fileno()).st_size, what)
    if format and format != header.format:
        hint = "its name or who added it says raw" if format == "raw" else "it is raw, or garbage"
        raise ImageFault(what, f"is {header.format}, not {format}", hint)
    if not format and header.format == "raw" and not header.partitioned:
        raise ImageFault(
            what,
            "is no qcow2, and no disk with a table of partitions: garbage, or a bare file system",
            "if it is a disk nonetheless, say so: raw",
        )
    if max_bytes and header.virtual_bytes > max_bytes:
        raise ImageFault(
            what,
            f"is a disk of {header.virtual_bytes >> 20} MiB; the site allows {max_bytes >> 20} MiB",
            "image_max in vtorque.yml",
        )
    return header


def prove(path: pathlib.Path, header: DiskHeader, deadline: Deadline, *, qemu_img: pathlib.Path = QEMU_IMG) -> None:
    """Let qemu-img walk through a qcow2 whose header is good, and see that nothing is missing.

    Args:
        path: the file, which nobody else writes.
        header: what its header says.
        deadline: of the whole.
        qemu_img: the program.

    Raises:
        ImageFault: it is damaged, cut off, or too hard to read.
    """
    if header.format == "raw":
        return
    argv: list[str | pathlib.Path] = [qemu_img, "info", "-U", "--output=json", "-f", "qcow2", path]
    facts = _parse_facts(run_qemu_img(argv, deadline, ImageFault), path)
    _whole(f"{path}", facts)
    if facts.get("virtual-size") != header.virtual_bytes:
        raise ImageFault(f"{path}", f"holds {facts.get('virtual-size')} bytes, its header says {header.virtual_bytes}")
    # leaks are room that is lost, nothing that is wrong with what a guest reads: status 3
    argv = [qemu_img, "check", "-U", "-q", "-f", "qcow2", path]
    run_qemu_img(argv, deadline, ImageFault, good=(0, 3), longest_s=float("inf"))


def inspect(image: Image) -> DiskHeader:
    """What a disk's own header says, read in the format that the pool gives it, never in a format it claims.

    Raises:
        ImageFault: the disk is not there, or leans on a file outside the pool's hands (a backing or data file).
        VTorqueError: it cannot be read; see `images.unreadable`.
    """
    what = f"image {image.name}"
    try:
        with open_disk(image.path) as stream:
            header = inspect_header(stream, what, format=image.format)
    except OSError as error:
        if image.kept_in == "pool" and error.errno in NOT_THERE:
            raise ImageFault(what, f"{image.path}: {error.strerror or error}") from error
        raise unreadable(image, image.path, error) from error
    if image.virtual_bytes and header.virtual_bytes != image.virtual_bytes:
        raise ImageFault(what, f"holds {header.virtual_bytes} bytes, its record says {image.virtual_bytes}")
    return header


def blame(image: Image, deadline: Deadline, *, qemu_img: pathlib.Path = QEMU_IMG) -> None:
    """Check that qemu-img can read a disk at all.  Asked when it could not do what was wanted of it.

    Raises:
        ImageFault: it cannot, or sees more in it than its header says.
        VTorqueError: the pool or the disk fails under it; see `images.unreadable`.
    """
    # -U: a guest may be running on it; the image is never written, so what is read is true
    argv: list[str | pathlib.Path] = [qemu_img, "info", "-U", "--output=json", "-f", image.format, image.path]
    try:
        checked = run_qemu_img(argv, deadline, ImageFault)
    except ImageFault as error:
        # its status is the same for what is damaged and for what does not answer: its words are the system's
        for number in OUT_OF_REACH:
            if os.strerror(number) in error.why:
                raise unreadable(image, image.path, OSError(number, error.why)) from None
        raise
    _whole(f"image {image.name}", _parse_facts(checked, image.path))


def _parse_facts(text: str, path: pathlib.Path) -> dict[str, t.Any]:
    try:
        return t.cast("dict[str, t.Any]", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ImageFault(f"{path}", f"what qemu-img says of it is no JSON: {error}") from error


def _whole(what: str, facts: t.Mapping[str, t.Any]) -> None:
    """The header was read by us; that qemu-img sees no more in it than we do costs nothing."""
    specific = facts.get("format-specific", {}).get("data", {})
    for key, found in (
        ("backing file", facts.get("backing-filename")),
        ("external data file", specific.get("data-file")),
    ):
        if found:
            raise ImageFault(what, f"has a {key} ({str(found)[:200]})", "an image must be whole: qemu-img convert")


def run_qemu_img(
    argv: t.Sequence[str | pathlib.Path],
    deadline: Deadline,
    fault: type[VTorqueError],
    *,
    good: t.Collection[int] = (0,),
    longest_s: float = INFO_S,
) -> str:
    """Call qemu-img, with bounds on its memory and processor time.

    Args:
        argv: the program and its arguments.
        deadline: of the call.
        fault: whose an error of the program's is.
        good: exit statuses that are no errors.
        longest_s: seconds that it may take at most.

    Returns:
        What it printed.

    Raises:
        VTorqueError: `fault`, or there was no answer in time.
        NodeFault: the program cannot be run.
    """
    what = f"{pathlib.Path(argv[0]).name} {argv[1]}"
    timeout_s = deadline.left_s(longest_s)
    with _unseen("stdout") as out, _unseen("stderr") as errors:
        try:
            process = subprocess.Popen(
                list(map(str, argv)),
                env=TOOL_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
            )
        except FileNotFoundError as error:
            raise NodeFault(f"{argv[0]} is missing", str(error), "install qemu-utils", cause="programs") from error
        except OSError as error:
            raise NodeFault(what, str(error), cause="programs") from error
        with process:
            try:
                leash(process.pid, _BOUNDS)
                process.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise VTorqueError(what, f"gave no answer within {timeout_s:.0f} s") from error
            except BaseException:
                process.kill()
                raise
        if process.returncode not in good:
            reason = " ".join(_read_output(errors, 4096).split())[:500] or f"status {process.returncode}"
            if process.returncode < 0:
                reason = f"was ended by signal {-process.returncode}: it took more than an image needs; {reason}"
            raise fault(what, reason)
        return _read_output(out, WORDS_BYTES)


def _unseen(name: str) -> t.BinaryIO:
    """A file without a name: unlike a pipe it has a bound, beyond which the writer ends."""
    return os.fdopen(os.memfd_create(name), "w+b", buffering=0)


def _read_output(stream: t.BinaryIO, count: int) -> str:
    stream.seek(0)
    return stream.read(count).decode("utf-8", "replace")
