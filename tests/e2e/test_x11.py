# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`-I -X`: programs in a guest on the user's own display, which is a real X server, from a real OpenSSH's sshd."""

from __future__ import annotations

import contextlib
import subprocess
import typing as t

import pytest

from .conftest import CHECKOUT, LAB, Site
from .terminal import Terminal

SCREEN = ":7"
CLIENT = r"""
import os, re, socket, struct, subprocess

display = os.environ["DISPLAY"]
name, number = b"MIT-MAGIC-COOKIE-1", int(re.fullmatch(r"localhost:(\d+)\.0", display)[1])
listed = subprocess.run(["xauth", "list", display], capture_output=True, check=True, text=True).stdout
cookie = bytes.fromhex(listed.split()[2])


def greet(cookie):  # X Window System Protocol, connection setup
    with socket.create_connection(("localhost", 6000 + number)) as server:
        server.sendall(struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(name), 16) + name + bytes(2) + cookie)
        answer = server.makefile("rb")
        head = answer.read(8)
        if head[:1] != b"\1":
            return "refused"
        setup = answer.read(4 * struct.unpack("<H", head[6:])[0])
        return setup[32 : 32 + struct.unpack("<H", setup[16:18])[0]].decode()


print("cookie in", os.environ["XAUTHORITY"])
print("stranger:", greet(bytes(16)))
print("user:", greet(cookie))
"""


@contextlib.contextmanager
def screen(site: Site) -> t.Iterator[None]:
    """An X server of alice's on the front end, which lets nobody in without a cookie."""
    site.root("fe", "mkdir -m 1777 /tmp/.X11-unix; runuser -u alice -- xauth -q add :7 . $(mcookie)")
    arguments = [*LAB, "on", "fe", "--user", "alice", "--", "/usr/bin/Xvfb", SCREEN, "-nolisten", "tcp",
             "-auth", "/home/alice/.Xauthority", "-displayfd", "1"]  # fmt: skip
    with subprocess.Popen(arguments, cwd=CHECKOUT, env=site.environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline().strip() == SCREEN.removeprefix(":")
            yield
        finally:
            site.root("fe", "pkill -x Xvfb; rm /home/alice/.Xauthority")  # it writes its number nowhere else


def known(site: Site) -> list[str]:
    """The displays of which alice's own file of cookies knows."""
    return [line.split()[0] for line in site.root("fe", "xauth -f /home/alice/.Xauthority list").splitlines()]


@pytest.mark.full
def test_programs_in_the_guest_are_on_the_users_display(site: Site) -> None:
    """The cookie of the guest's end lies in the guest alone; the user's home holds what Torque wrote, and no more."""
    program = site.write("/home/alice/client.py", CLIENT)
    with screen(site):
        request = ("-l", "nodes=cn1:ppn=2", "-vm", "img=debian12,ram=512M")
        terminal = Terminal(site, "env", f"DISPLAY={SCREEN}", "vsub", "-I", "-X", *request)
        terminal.expect("ready")
        terminal.type(f"python3 {program}; echo o''ver")
        terminal.expect("over\r\n")
        assert "cookie in /run/vtorque/x11/authority\r\n" in terminal.seen
        assert "stranger: refused\r\n" in terminal.seen
        assert "user: The X.Org Foundation\r\n" in terminal.seen
        assert known(site) == ["fe/unix:7", "cn1/unix:50"]
        terminal.type("exit 3")
        terminal.close()
        assert site.wait_state(terminal.job_id, "C")["exit_status"] == "3"
