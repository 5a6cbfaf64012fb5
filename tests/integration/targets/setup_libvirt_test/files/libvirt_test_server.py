# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A libvirt daemon of its own for tests: a hypervisor that boots nothing, and whose state other processes can read.

libvirt's test driver forgets everything with its last connection, so that this program keeps one open.  The daemon
sees nothing of the machine's own libvirt: the directories in which that keeps its state are empty for it.

usage: libvirt_test_server.py start DIRECTORY   prints the connection URI
       libvirt_test_server.py stop DIRECTORY
"""

from __future__ import annotations

import os
import pathlib
import select
import signal
import subprocess
import sys
import time

PRIVATE = ("/run/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/etc/libvirt")
DAEMON = "/usr/sbin/libvirtd"
START_S = 60


def uri(directory: pathlib.Path) -> str:
    """How the test driver of the daemon in this directory is reached."""
    return f"test+unix:///default?socket={directory}/libvirt-sock"


def start(directory: pathlib.Path) -> None:
    """Start the daemon and a process that keeps a connection open; return when both are there."""
    directory.mkdir(parents=True, exist_ok=True)
    ready, writer = os.pipe()
    if os.fork() == 0:
        os.close(ready)
        os.setsid()
        keep(directory, writer)
    os.close(writer)
    if not select.select([ready], [], [], START_S)[0] or os.read(ready, 1) != b"+":
        sys.exit(f"no libvirtd in {directory}: {(directory / 'log').read_text()}")
    print(uri(directory))


def keep(directory: pathlib.Path, writer: int) -> None:
    """Run the daemon, hold a connection to it until told to end, and end it."""
    log = os.open(directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    config = directory / "libvirtd.conf"
    config.write_text(f'unix_sock_dir = "{directory}"\nauth_unix_rw = "none"\nunix_sock_rw_perms = "0700"\n')
    hide = " && ".join(f"if [ -d {path} ]; then mount -t tmpfs tmpfs {path}; fi" for path in PRIVATE)
    command = f'{hide} && exec "$@"'
    daemon = subprocess.Popen(
        ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", command, "sh", DAEMON, "-f", config, "-p", directory / "pid"]
    )
    (directory / "keeper").write_text(str(os.getpid()))
    signal.signal(signal.SIGTERM, lambda *_args: sys.exit(0))
    try:
        connection = connect(daemon, uri(directory))
        os.write(writer, b"+")
        os.close(writer)
        daemon.wait()
        connection.close()
    finally:
        daemon.terminate()
        daemon.wait(timeout=START_S)
        os._exit(0)


def connect(daemon: subprocess.Popen[bytes], where: str):  # type: ignore[no-untyped-def] # libvirt has no types
    """Connect as soon as the daemon listens."""
    import libvirt

    end = time.monotonic() + START_S
    while True:
        try:
            return libvirt.open(where)
        except libvirt.libvirtError:
            if daemon.poll() is not None or time.monotonic() > end:
                raise
        try:
            daemon.wait(timeout=0.05)  # the daemon says nothing when it begins to listen
        except subprocess.TimeoutExpired:
            continue


def stop(directory: pathlib.Path) -> None:
    """End the keeper, which ends the daemon; nothing happens when there is none."""
    try:
        keeper = int((directory / "keeper").read_text())
        ended = os.pidfd_open(keeper)
        os.kill(keeper, signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError):
        return
    select.select([ended], [], [], START_S)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop"):
        sys.exit(__doc__)
    {"start": start, "stop": stop}[sys.argv[1]](pathlib.Path(sys.argv[2]).resolve())
