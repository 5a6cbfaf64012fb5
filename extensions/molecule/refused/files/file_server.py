# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`file_server.py DIRECTORY [FLAG]`: mount there an empty file system of a server's, as sshfs would.

It is served until it is unmounted.  With FLAG, a file, the server is away: nobody answers while the file is there.

FUSE is in every kernel, where a client of NFS may be missing; the messages are those of linux/fuse.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pathlib
import stat
import struct
import sys
import time

LOOKUP, FORGET, GETATTR, STATFS, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 17, 26, 36, 42
SILENT = (FORGET, INTERRUPT, BATCH_FORGET)
DEVICE = (10, 229)


def answer(code: int, body: bytes) -> tuple[int, bytes]:
    """An error, or what the kernel wants to know of the one directory there is."""
    if code == INIT:
        major, minor = struct.unpack_from("<II", body)
        return 0, struct.pack("<IIIIHHI", major, min(minor, 22), 0, 0, 0, 0, 4096)
    if code == GETATTR:
        now = int(time.time())
        times = struct.pack("<QQQIII", now, now, now, 0, 0, 0)
        root = struct.pack("<QQQ", 1, 4096, 8) + times
        return 0, struct.pack("<QII", 1, 0, 0) + root + struct.pack(
            "<IIIIIII", stat.S_IFDIR | 0o755, 2, 0, 0, 0, 4096, 0
        )
    if code == STATFS:
        return 0, struct.pack("<QQQQQIIII", 1 << 30, 1 << 30, 1 << 30, 1 << 20, 1 << 20, 4096, 255, 4096, 0) + bytes(24)
    if code == LOOKUP:
        return -errno.ENOENT, b""
    return -errno.ENOSYS, b""


def serve(device: int) -> None:
    """Until the kernel says that it was unmounted."""
    while True:
        try:
            message = os.read(device, 1 << 20)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            raise
        _length, code, unique = struct.unpack_from("<IIQ", message)
        if code not in SILENT:
            status, body = answer(code, message[40:])
            os.write(device, struct.pack("<IiQ", 16 + len(body), status, unique) + body)


def main() -> None:
    """Mount, go into the background, serve."""
    directory = sys.argv[1]
    if not pathlib.Path("/dev/fuse").exists():
        os.mknod("/dev/fuse", stat.S_IFCHR | 0o600, os.makedev(*DEVICE))
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40755,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"fileserver:/export", os.fsencode(directory), b"fuse.sshfs", 0, options):
        sys.exit(os.strerror(ctypes.get_errno()))
    own, ready = os.pipe()
    if os.fork():
        # not before it has a session of its own: whoever called us ends the one that we are in
        os.close(ready)
        os.read(own, 1)
        return
    os.setsid()
    os.close(ready)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    while len(sys.argv) > 2 and pathlib.Path(sys.argv[2]).exists():
        time.sleep(1)
    if len(sys.argv) == 2:
        serve(device)


if __name__ == "__main__":
    main()
