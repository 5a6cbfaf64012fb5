# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access for one user more, by the file system's ACL."""

from __future__ import annotations

import os
import stat
import struct


def let_read(fd: int, uid: int) -> None:
    """Let one more user read a file: what `setfacl -m u:UID:r` does, without starting a program.

    Args:
        fd: the file; the rights of its group are taken away.
        uid: who may read it.

    Raises:
        OSError: the file system knows no ACLs, or refuses this one.
    """
    _grant(fd, uid, 4)


def let_use(fd: int, uid: int) -> None:
    """Let one more user read and write, as `let_read`.

    Args:
        fd: of what is no file with a content, which they could fill the disk with.
        uid: who may.

    Raises:
        OSError: the file system knows no ACLs, or refuses this one.
    """
    _grant(fd, uid, 6)


def _grant(fd: int, uid: int, rights: int, *, others: int = 0) -> None:
    """The form is the kernel's (linux/posix_acl_xattr.h): a version, then tag, permissions and id of each entry."""
    nobody, owner = 0xFFFFFFFF, stat.S_IMODE(os.fstat(fd).st_mode) >> 6
    entries = (
        (0x01, owner, nobody),
        (0x02, rights, uid),
        (0x04, 0, nobody),
        (0x10, rights, nobody),
        (0x20, others, nobody),
    )
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    # by this name, for the descriptor of a socket can only be had as a path (O_PATH)
    try:
        os.setxattr(f"/proc/self/fd/{fd}", "system.posix_acl_access", acl)
    except OSError as error:  # whoever judges the disk by the file would look for one of that name
        raise OSError(error.errno, error.strerror) from None
