# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's side of the channel, and what a guest makes of the map of its job; a terminal stands for the channel."""

from __future__ import annotations

import base64
import os
import pathlib
import shutil
import subprocess
import tty
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.ssh_keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.join import script_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import VERSION, JobHost, JobMap

RUN = """set -e
mount -t tmpfs tmpfs "$1/dev"
mknod -m 666 "$1/dev/null" c 1 3
: >"$1/dev/vport1p1"
mount --bind "$2" "$1/dev/vport1p1"
exec chroot "$1" /bin/sh /agent
"""
APPLETS = (
    "sh", "dd", "timeout", "tail", "base64", "tr", "rm", "sleep", "mkdir", "chown", "cat", "printf", "stat", "seq",
)  # fmt: skip
KEY = make_key("job")
HOSTS = (
    JobHost("vn1-1", "192.0.2.1", 2, " ".join(make_key("a").public.split()[:2])),
    JobHost("vn2-1", "192.0.2.2", 1, " ".join(make_key("b").public.split()[:2])),
    JobHost("n3.cluster", "192.0.2.3", 2, " ".join(make_key("c").public.split()[:2]), bare=True),
)
Guest = t.Callable[[str], tuple[int, str]]


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A system of nothing but busybox."""
    for name in ("bin", "dev", "etc/vtorque", "etc/ssh", "run", "tmp", "sys/class/virtio-ports/vport1p1"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tmp_path / "bin/busybox")
    for name in APPLETS:
        (tmp_path / "bin" / name).symlink_to("busybox")
    shutil.copy(templates.COLLECTION_DIR / "guest/agent.sh", tmp_path / "agent")
    (tmp_path / "etc/vtorque/guest.env").write_text("VTORQUE_TOKEN=f00d VTORQUE_UID=5000 VTORQUE_GID=6000\n")
    (tmp_path / "sys/class/virtio-ports/vport1p1/name").write_text("org.vtorque.0\n")
    return tmp_path


@pytest.fixture
def guest(root: pathlib.Path) -> t.Iterator[Guest]:
    """Give it an order, and hear how it ended and what it wrote."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    process = subprocess.Popen(["unshare", "-m", "/bin/sh", "-c", RUN, "sh", root, os.ttyname(theirs)])
    with os.fdopen(ours, "r+b", buffering=0) as channel:
        assert channel.readline() == b"vtorque-agent f00d\n"

        def order(script: str) -> tuple[int, str]:
            channel.write(b"hello again\n")
            assert channel.readline() == b"vtorque-agent f00d again\n"
            data = script.encode()
            channel.write(b"60 %d\n" % len(data))
            for first in range(0, len(data), 1024):  # a terminal takes 4 KiB at a time
                channel.write(data[first : first + 1024])
            status, _blank, text = channel.readline().decode().rstrip("\n").partition(" ")
            return int(status), base64.b64decode(text).decode()

        yield order
        process.kill()
        process.wait()
    os.close(theirs)


def test_an_order_is_run_and_its_end_told(guest: Guest) -> None:
    assert guest("echo out; echo err >&2; exit 7") == (7, "out\nerr\n")
    assert guest("cat; exit 0") == (0, "")  # nothing to read: the channel is not the order's


def test_much_output_is_told_by_its_end(guest: Guest) -> None:
    status, text = guest("seq 1 20000")
    assert status == 0
    assert text.endswith("19999\n20000\n")
    assert len(text) == 8192


def test_guest_learns_the_map_of_its_job(guest: Guest, root: pathlib.Path) -> None:
    """Names, node file, host keys, and the job's key, which is the user's alone."""
    report = JobMap(VERSION, "join", "72[1].head", 1, "n1", 60.0, HOSTS, KEY)
    settings = NodeSettings("n1", 1, domain="example.org", template_dir=None)
    assert guest(script_of(report, settings)) == (0, "")
    assert (root / "etc/hosts").read_text().splitlines()[2:] == [
        "192.0.2.1 vn1-1.example.org vn1-1",
        "192.0.2.2 vn2-1.example.org vn2-1",
        "192.0.2.3 n3.cluster n3",
    ]
    assert (root / "var/spool/torque/aux/72[1].head").read_text() == "vn1-1\nvn1-1\nvn2-1\nn3.cluster\nn3.cluster\n"
    known = (root / "etc/ssh/ssh_known_hosts").read_text().splitlines()
    names = ("vn1-1.example.org,vn1-1", "vn2-1.example.org,vn2-1", "n3.cluster,n3")
    assert known == [f"{some},{host.address} {host.host_key}" for some, host in zip(names, HOSTS, strict=True)]
    key = root / "etc/vtorque/job_key"
    assert key.read_text() == KEY.private
    facts = key.stat()
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (5000, 6000, 0o600)
    arguments = [line.strip() for line in (root / "etc/ssh/ssh_config.d/00-vtorque.conf").read_text().splitlines()]
    assert arguments[0] == "Host " + " ".join(
        ["vn1-1.example.org vn1-1 192.0.2.1", "vn2-1.example.org vn2-1 192.0.2.2", "n3.cluster n3 192.0.2.3"]
    )
    assert {"StrictHostKeyChecking yes", "IdentityFile /etc/vtorque/job_key"} <= set(arguments)


def test_done_again_it_is_the_same(guest: Guest, root: pathlib.Path) -> None:
    report = JobMap(VERSION, "join", "7.head", 1, "n1", 60.0, HOSTS[:1], KEY)
    script = script_of(report, NodeSettings("n1", 1, template_dir=None))
    assert guest(script) == guest(script) == (0, "")
    assert (root / "etc/hosts").read_text().count("vn1-1") == 1
