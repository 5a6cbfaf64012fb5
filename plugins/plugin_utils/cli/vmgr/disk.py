# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr disk`: disks of the caller's own, which a job takes along by `vsub -vm disk=`."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import typing as t

from ....module_utils.errors import UserFault, VTorqueError
from ....module_utils.node.storage import user_disk
from ....module_utils.text import format_allowed_mib, format_mib, parse_mib, printable
from ..output.json_output import add_json, print_json

HELP = "disks of your own, for vsub -vm disk="
QEMU_IMG = "/usr/bin/qemu-img"
LEAST_MIB, GREATEST_MIB = user_disk.LEAST_BYTES >> 20, 1 << 28
CREATE_EPILOG = """\
A new disk is empty and takes no room before something is written; its first job makes a file system on it.

examples:
  vmgr disk create data.qcow2 20G
  vmgr disk create /workspace/alice/data.raw 100G --format raw
"""
SHOW_EPILOG = """\
It is looked at as jobs look at it: you must be able to read and write it, and it stands on no other file.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Verbs and options of `vmgr disk`."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="create | show")
    raw = argparse.RawDescriptionHelpFormatter
    create = verbs.add_parser("create", help="make an empty one", epilog=CREATE_EPILOG, formatter_class=raw)
    create.add_argument("path", metavar="FILE", help="where; nothing may be there")
    create.add_argument("size", metavar="SIZE", help="as a guest sees it: a number with M, G or T")
    create.add_argument("--format", choices=("qcow2", "raw"), default="qcow2", help="of the file (%(default)s)")
    show = verbs.add_parser("show", help="what one is", epilog=SHOW_EPILOG, formatter_class=raw)
    show.add_argument("path", metavar="FILE", help="of the disk")
    for verb in (create, show):
        add_json(verb)


def run(call: argparse.Namespace, _load: t.Callable[[], object]) -> int:
    """Do what was asked for.

    Args:
        call: the arguments.
        _load: gives the site's policy, which says nothing of users' disks.

    Returns:
        The exit status.
    """
    path = os.path.abspath(call.path)  # noqa: PTH100 - as vsub takes it
    if call.verb == "create":
        create(path, call.size, call.format)
    header = user_disk.inspect_disk(path)
    facts = {"path": path, "format": header.format, "size_mib": header.virtual_bytes >> 20}
    if call.json:
        print_json(call, facts)
    else:
        print(f"{printable(path)}  {header.format}  {format_mib(header.virtual_bytes >> 20)}")
    return 0


def create(path: str, size: str, kind: str) -> None:
    """Make an empty disk, whole or not at all.

    Args:
        path: where.
        size: as it was typed.
        kind: `qcow2` or `raw`.

    Raises:
        UserFault: the size is none, or there is something already.
        VTorqueError: it cannot be made.
    """
    what = f"disk {printable(path)}"
    mib = parse_mib(size)
    if mib is None or not LEAST_MIB <= mib <= GREATEST_MIB:
        raise UserFault(f"size {printable(size[:40])}", f"allowed: {format_allowed_mib(LEAST_MIB, GREATEST_MIB)}")
    try:
        # of the caller alone; and never in place of another file
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise UserFault(what, "is there already", "take another name, or remove it") from None
    except OSError as error:
        raise UserFault(what, f"cannot be made: {error.strerror}") from error
    try:
        done = subprocess.run(
            [QEMU_IMG, "create", "-q", "-f", kind, path, f"{mib}M"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        why = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        why = str(error)
    except BaseException:
        _remove(path)
        raise
    if why:
        _remove(path)
        raise VTorqueError(what, f"cannot be made: {printable(why[-300:])}")


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
