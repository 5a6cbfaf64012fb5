# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque-cache: the copies of images on this node, fetched, verified, listed and removed."""

from __future__ import annotations

import argparse
import os
import sys
import syslog
import time
import typing as t

from ...module_utils.errors import UserFault
from ...module_utils.node.cache import copy_queue, copy_worker
from ...module_utils.node.cache.copy_queue import Want
from ...module_utils.node.cache.locations import cache_of, limit_bytes
from ...module_utils.node.pool import images
from ...module_utils.node.state.settings import NodeSettings
from ...module_utils.node.warm import wants
from ...module_utils.state import event_log
from ...module_utils.system.clock import Deadline
from ...module_utils.system.process import cgroup, process_limits
from ...module_utils.text import format_bytes
from ..bridge.node_settings import read_settings
from .output import messages
from .output.json_output import add_json, print_json
from .output.progress import waiting
from .output.tables import table

PROGRAM = "vtorque-cache"
BROKEN = 1
LAST = 19
"""Niceness: jobs come first."""
LONGEST_S = 7 * 86_400.0

EPILOG = """\
Jobs with fs_type=local stand on a copy of their image on the node.  A copy is fetched when a job or an administrator
wants it, by this program in a unit of its own, one at a time, and goes on where it was when it is killed.  It is
believed when its sha256 is that of the image's record.  Copies that were not used for longest go when room is needed
(cache_max); one that a guest stands on never does.

exit status:
  0  done
  1  something failed, or a copy was broken (it is fetched again)
  2  the command line is wrong, there is no such image, or its content is not what its record says
  3  it cannot be done now: no room, the pool is away, the copy is in use

examples:
  vtorque-cache list                 what is here, what is on its way, what failed
  vtorque-cache get debian12         have the newest debian12 here before a job wants it
  vtorque-cache verify               take the digest of every copy again
"""


def main() -> int:
    """The program; returns its exit status."""
    os.umask(0o022)  # qemu reads what is made here
    syslog.openlog(PROGRAM, 0, syslog.LOG_DAEMON)
    return messages.run(PROGRAM, lambda: run(sys.argv[1:]))


def run(argv: t.Sequence[str], read: t.Callable[[], NodeSettings] = read_settings) -> int:
    """Do what is asked.

    Args:
        argv: the arguments.
        read: gives this node's settings.

    Returns:
        The exit status.

    Raises:
        VTorqueError: it cannot be done.
    """
    call = _parser().parse_args(argv)
    if os.geteuid() != 0:
        raise UserFault(call.verb, "looks at and changes what is root's", "call it as root")
    settings = read()
    event_log.configure(settings.log, program=PROGRAM, component="cache", job="")
    return t.cast("int", call.do(call, settings))


def _fill(_call: argparse.Namespace, settings: NodeSettings) -> int:
    cgroup.leave_all()
    process_limits.lower_priority(LAST)
    copy_worker.work_off(settings, _log)
    wants.work_off(settings, _log)
    return 0


def _list(call: argparse.Namespace, settings: NodeSettings) -> int:
    rows = listing(settings)
    if call.json:
        print_json(
            call,
            {"images": rows, "held_bytes": sum(row["bytes"] for row in rows), "limit_bytes": limit_bytes(settings)},
        )
        return 0
    table_rows = [
        {
            **row,
            "bytes": format_bytes(row["bytes"]),
            "used": _when(row["used"]),
            "verified": _when(row["verified"]),
            "guests": " ".join(row["guests"]),
        }
        for row in rows
    ]
    table(table_rows)
    held = format_bytes(sum(row["bytes"] for row in rows))
    print(f"{held} of {format_bytes(limit_bytes(settings))} (cache_max) under {settings.images_dir}")
    return 0


def listing(settings: NodeSettings) -> list[dict[str, t.Any]]:
    """What is here, what is on its way, and what failed.

    Args:
        settings: NodeSettings of this node.
    """
    cache, now = cache_of(settings), copy_queue.progress(settings)
    guests = cache.in_use()
    rows = [
        {
            "image": one.image,
            "state": one.trouble or "verified",
            "bytes": one.held_bytes,
            "used": one.used_at,
            "verified": one.verified_at,
            "guests": guests.get(one.image, ()),
        }
        for one in cache.copies()
    ]
    nothing: dict[str, t.Any] = {"bytes": 0, "used": 0.0, "verified": 0.0, "guests": ()}
    for what in copy_queue.wanted(settings):
        state = str(now).partition(": ")[2] if now is not None and now.want == what else "is waited for"
        rows.append({"image": what.image, "state": f"{what.fs_type}: {state}", **nothing})
    for what, error in copy_queue.failures(settings):
        rows.append({"image": what.image, "state": f"{what.fs_type}: failed: {error}", **nothing})
    return rows


def _get(call: argparse.Namespace, settings: NodeSettings) -> int:
    for name in call.names:
        what = Want("local", images.find(name, settings.pool).name)
        copy_queue.want(settings, what)
        with waiting() as say:
            copy_queue.wait(settings, what, Deadline.after(LONGEST_S), say)
        print(f"{what.image} is on {settings.node_name}")
    return 0


def _verify(call: argparse.Namespace, settings: NodeSettings) -> int:
    here = [one.image for one in cache_of(settings).copies()]
    if strange := sorted(set(call.names) - set(here)):
        raise UserFault(" ".join(strange), "no such copy is here", f"there is {', '.join(here) or 'none'}")
    broken = copy_worker.work_off(settings, _log, verify=call.names or here)
    return BROKEN if broken else 0


def _remove(call: argparse.Namespace, settings: NodeSettings) -> int:
    for name in call.names:
        if cache_of(settings).copy(name) is None:
            raise UserFault(name, "no such copy is here", "vtorque-cache list")
        cache_of(settings).remove(name)
        print(f"{name} is gone from {settings.node_name}")
    return 0


def _log(text: str, level: str = event_log.INFO, component: str = "") -> None:
    event_log.report(text, level, component)
    print(text, flush=True)


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if at else "-"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="The copies of the pool's images on this node.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="fill | list | get | verify | remove")
    verbs.add_parser("fill", help="fetch, verify and make what is wanted; what the unit does").set_defaults(do=_fill)
    listing_of = verbs.add_parser("list", help="what is here, what is on its way, what failed")
    add_json(listing_of)
    listing_of.set_defaults(do=_list)
    for name, do, count, summary in (
        ("get", _get, "+", "have images here, and wait for them"),
        ("verify", _verify, "*", "take the digests of copies again (all): a broken one is fetched anew"),
        ("remove", _remove, "+", "take copies away that no guest stands on"),
    ):
        verb = verbs.add_parser(name, help=summary)
        verb.add_argument("names", metavar="NAME", nargs=count, help="an image; with its revision where it is a copy")
        verb.set_defaults(do=do)
    return parser


if __name__ == "__main__":
    sys.exit(main())
