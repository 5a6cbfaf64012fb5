# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's word on what guests mount, one line each: `source target kind options`."""

from __future__ import annotations

import re

from ..frozen import frozen

KINDS = ("nfs", "virtiofs", "9p")
EXPORT = r"([A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):/[^\s\x00-\x1f\x7f]{0,500}"
PATH = r"/[^\s\x00-\x1f\x7f]{1,500}"
OPTIONS = r"[A-Za-z0-9_]{1,32}(=[A-Za-z0-9_.:/+-]{1,100})?(,[A-Za-z0-9_]{1,32}(=[A-Za-z0-9_.:/+-]{1,100})?)*"
OF_THE_SYSTEM = frozenset(
    f"/{name}"
    for name in (
        "",
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "proc",
        "root",
        "run",
        "sbin",
        "sys",
        "usr",
        "var",
        "var/lib",
        "var/run",
        "usr/bin",
        "usr/lib",
        "usr/sbin",
    )
)
"""Where nothing is ever mounted over."""
BELOW_THE_SYSTEM = ("/bin/", "/boot/", "/dev/", "/etc/", "/lib/", "/proc/", "/run/", "/sbin/", "/sys/", "/usr/lib/")
FORBIDDEN = frozenset({"suid", "dev", "remount", "bind", "rbind", "move"})
"""Options that would take back what every mount has, or make another kind of it."""
FORM = f"a line `source target kind options`; kind: {', '.join(KINDS)}; source: server:/path or a directory of the node"


@frozen
class Mount:
    """One mount of every guest.

    Attributes:
        kind: one of `KINDS`.
        source: an export (`server:/path`), or a directory of the node.
        target: a directory in the guest.
        options: as mount takes them, or "".
    """

    kind: str
    source: str
    target: str
    options: str = ""


def read_line(line: str) -> Mount:
    """The mount that a line of the site's configuration describes.

    Args:
        line: `source target kind [options]`.

    Returns:
        The mount.

    Raises:
        ValueError: it is of no usable form; the text says what is wrong.
    """
    fields = line.split()
    if len(fields) not in (3, 4):
        raise ValueError(FORM)
    source, target, kind, options = (*fields, "")[:4]
    if kind not in KINDS or not re.fullmatch(EXPORT if kind == "nfs" else PATH, source):
        raise ValueError(FORM)
    if not re.fullmatch(PATH, target) or of_the_system(target):
        raise ValueError(f"{target[:80]}: not a place of the guest that may be mounted over")
    if options and not re.fullmatch(OPTIONS, options):
        raise ValueError("options are words or name=value, joined by commas")
    if refused := FORBIDDEN & set(options.split(",")):
        raise ValueError(f"option {min(refused)}: every mount in a guest is nosuid,nodev")
    return Mount(kind, source, target.rstrip("/"), options)


def of_the_system(path: str) -> bool:
    """Return whether this is a place in a guest that its system needs, or one that is not named plainly."""
    plain = path.rstrip("/") or "/"
    odd = "//" in path or {".", ".."} & set(path.split("/"))
    return bool(odd) or plain == "/" or plain in OF_THE_SYSTEM or f"{plain}/".startswith(BELOW_THE_SYSTEM)


def inside(path: str, directory: str) -> bool:
    """Return whether a path is this directory, or below it."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")
