# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the disk file of an image is, before anything believes it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

from ..errors import ImageFault, NodeFault, VTorqueError
from ..records import Deadline
from .images import Image

QEMU_IMG = pathlib.Path("/usr/bin/qemu-img")


def inspect(image: Image, deadline: Deadline, *, qemu_img: pathlib.Path = QEMU_IMG) -> dict[str, t.Any]:
    """What qemu-img says of the disk, read in the format that the pool gives it, never in a format it claims.

    Raises:
        ImageFault: the disk cannot be read, or leans on a file outside the pool's hands (a backing or data file).
    """
    # -U: a guest may be running on it; the image is never written, so what is read is true
    told = run_qemu_img([qemu_img, "info", "-U", "--output=json", "-f", image.format, image.path], deadline, ImageFault)
    facts = t.cast("dict[str, t.Any]", json.loads(told))
    specific = facts.get("format-specific", {}).get("data", {})
    for key, found in (
        ("backing file", facts.get("backing-filename")),
        ("external data file", specific.get("data-file")),
    ):
        if found:
            raise ImageFault(
                f"image {image.name}", f"has a {key} ({str(found)[:200]})", "an image must be whole: qemu-img convert"
            )
    if image.virtual_bytes and facts["virtual-size"] != image.virtual_bytes:
        raise ImageFault(
            f"image {image.name}", f"holds {facts['virtual-size']} bytes, its record says {image.virtual_bytes}"
        )
    return facts


def run_qemu_img(argv: t.Sequence[str | pathlib.Path], deadline: Deadline, fault: type[VTorqueError]) -> str:
    """Call qemu-img.

    Args:
        argv: the program and its arguments.
        deadline: of the call.
        fault: whose an error of the program's is.

    Returns:
        What it printed.

    Raises:
        VTorqueError: `fault`, or there was no answer in time.
        NodeFault: the program cannot be run.
    """
    what = f"{pathlib.Path(argv[0]).name} {argv[1]}"
    try:
        done = subprocess.run(
            list(map(str, argv)), capture_output=True, text=True, stdin=subprocess.DEVNULL, errors="replace",
            check=False, timeout=deadline.left_s(30.0), env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except FileNotFoundError as error:
        raise NodeFault(f"{argv[0]} is missing", str(error), "install qemu-utils", cause="programs") from error
    except subprocess.TimeoutExpired as error:
        raise VTorqueError(what, f"gave no answer within {error.timeout:.0f} s") from error
    except OSError as error:
        raise NodeFault(what, str(error), cause="programs") from error
    if done.returncode != 0:
        raise fault(what, " ".join(done.stderr.split())[:500] or f"status {done.returncode}")
    return done.stdout
