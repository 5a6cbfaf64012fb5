# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the cluster's files a job finds in its guest, and as whom."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from .conftest import Site
from .trouble import NODES, changed, check_held, drop, home_server, mounted, wait_in_guest

LOOK = """#!/bin/sh
cat "$HOME/mine" && echo made >"$HOME/made" && mkdir "$HOME/made.d" && chgrp 2000 "$HOME/made.d"
ls -A /home
grep " $HOME " /proc/mounts | cut -d' ' -f3,4
id -G; id -Gn
"$HOME/busybox" id -u; ls -ln "$HOME/busybox" | cut -c1-10
"""
IN_PLACES = """
cat /workspace/there /scratch/there /opt-hpc/there
readlink /scratch
echo new >/workspace/alice/new
echo new 2>/dev/null >/workspace/there || echo not mine
"""
READ_ONLY = "(echo new >%s/alice/new) 2>&1 | grep -o 'Read-only file system'\n"
"""In a directory that is alice's own."""


@contextlib.contextmanager
def files(site: Site, script: str) -> t.Iterator[None]:
    """Files on the shared homes, made by root, and gone afterwards."""
    stored = "mine made made.d busybox .profile .bashrc"
    try:
        site.root("fe", script)
        yield
    finally:
        site.root("fe", f"cd /home/alice && rm -rf {stored}")


def check_home(site: Site, kind: str, then: str = "") -> list[str]:
    """A job finds its user's home, nobody else's, as himself and without any more power.

    Args:
        then: more for the job's script.

    Returns:
        What that printed.
    """
    make = "echo here >mine && chown alice: mine && cp /usr/bin/busybox . && chmod 4755 busybox"
    with files(site, f"cd /home/alice && {make}"):
        ended = site.job(site.write("/home/alice/look.sh", LOOK + then))
        lines = ended.out.splitlines()
        assert (ended.exit_status, ended.err, lines[:2]) == (0, "", ["here", "alice"])
        file_system, options = lines[2].split()
        assert file_system == kind
        assert {"nosuid", "nodev"} <= set(options.split(","))
        assert lines[3] == "1001 2000"
        assert lines[4] == "alice HPC Users"
        assert lines[5:7] == ["1001", "-rwsr-xr-x"]
        made = site.root("fe", "cd /home/alice && stat -c '%U,%G' made made.d")
        assert made.splitlines() == ["alice,alice", "alice,HPC Users"]
    return lines[7:]


@pytest.mark.both
def test_home_by_virtiofs(site: Site) -> None:
    """From where the node has the home, by a virtiofsd that is the user's own process."""
    with changed(site, home_via="virtiofs"):
        check_home(site, "virtiofs")


@pytest.mark.both
@pytest.mark.full
def test_the_process_that_shares_a_home_is_the_users_and_ends_with_the_guest(site: Site) -> None:
    """Its ids are his, on the node; when the job is over there is none of it (conftest.py looks)."""
    with changed(site, home_via="virtiofs"):
        job_id = site.submit(stdin="echo up; sleep 600\n")
        node = wait_in_guest(site, job_id)
    found = site.root(
        node, "for p in /proc/[0-9]*; do grep -qs ^vtorque-virtiofsd: $p/cmdline && cat $p/status; done; :"
    )
    ids = [line.split()[1:] for line in found.splitlines() if line.startswith(("Uid:", "Gid:"))]
    groups = [line.split()[1:] for line in found.splitlines() if line.startswith("Groups:")]
    assert ids
    assert all(one == ["1001"] * 4 for one in ids)
    assert all(one == ["1001", "2000"] for one in groups)
    drop(site, job_id)
    site.end(job_id)


@pytest.mark.both
def test_home_by_nfs(site: Site) -> None:
    """From the front end, mounted in the guest by its own root; workspace and programs with it, and one of the list."""
    export = "10.77.0.1:/home"
    exports = {"vm_nfs_home": export, "vm_nfs_ws": f"{export}/.ws", "vm_nfs_opt": f"{export}/.opt"}
    make = (
        "cd /home && mkdir -p .ws/alice .opt/alice && chown alice: .[wo]*/alice && echo workspace >.ws/there && "
        "echo opt >.opt/there && chmod 755 .ws .opt"
    )
    site.root("fe", make)
    try:
        mounts = [f"{export}/.opt /extra nfs ro"]
        with home_server(site), changed(site, home_via="nfs", mounts=mounts, **exports):
            look = "cat /extra/there; grep -E ' /(workspace|opt-hpc|extra) ' /proc/mounts | cut -d' ' -f3\n"
            found = check_home(site, "nfs4", IN_PLACES + READ_ONLY % "/extra" + look)
            assert found == [
                "workspace", "workspace", "opt", "/workspace", "not mine", "Read-only file system", "opt",
                *3 * ["nfs4"],
            ]  # fmt: skip
            assert site.root("fe", "stat -c %U /home/.ws/alice/new") == "alice\n"
    finally:
        site.root("fe", "rm -rf /home/.ws /home/.opt")


@pytest.mark.both
@pytest.mark.full
def test_home_server_that_does_not_answer_is_the_sites_fault(site: Site) -> None:
    """Nobody listens there: the job is held, says what was not mounted, and no node is blamed."""
    with changed(site, home_via="nfs", vm_nfs_home="10.77.0.1:/home", nfs_timeout=1, node_fault_retries=1):
        job_id = site.submit(stdin="echo RAN\n")
        check_held(site, job_id, "mount: 10.77.0.1:/home/alice on /home/alice")
        drop(site, job_id)
    assert all(node.usable and not node.note for node in site.nodes().values())


@pytest.mark.both
@pytest.mark.full
def test_workspace_scratch_and_opt(site: Site) -> None:
    """The site's list of mounts; /scratch is the workspace; what is not his the user cannot change."""
    places = ["/srv/ws /workspace virtiofs", "/srv/opt /opt-hpc virtiofs ro"]
    make = ("mkdir -p /srv/ws/alice /srv/opt/alice && chown alice: /srv/*/alice && "
            "echo workspace >/srv/ws/there && echo opt >/srv/opt/there && "
            "ln -s /srv/ws /workspace")  # fmt: skip
    for node in ("cn1", "cn2"):
        site.root(node, make)
    try:
        with changed(site, ("fe", *NODES), mounts=places):
            script = f"#!/bin/sh{IN_PLACES}{READ_ONLY % '/opt-hpc'}pwd\n"
            # a relative name would be one in that directory, which the front end has not
            output = ("-o", "/home/alice/places.out", "-e", "/home/alice/places.err")
            path = site.write("/home/alice/places.sh", script)
            ended = site.job(site.batch.directory, "/workspace/alice", *output, path)
        assert ended.out.splitlines() == [
            "workspace", "workspace", "opt", "/workspace", "not mine", "Read-only file system", "/workspace/alice",
        ]  # fmt: skip
        assert site.root(ended.node, "stat -c %U /srv/ws/alice/new") == "alice\n"
    finally:
        for node in ("cn1", "cn2"):
            site.root(node, "rm -rf /srv/ws /srv/opt /workspace")


@pytest.mark.both
@pytest.mark.full
def test_directory_of_the_node_by_9p(site: Site) -> None:
    """qemu reads it for everybody: what all may read is there, and nothing can be changed."""
    script = """#!/bin/sh
cat /data/there
echo new 2>/dev/null >/data/alice/new || echo 'not to be changed'
cat /data/secret 2>/dev/null || echo 'not for all'
grep ' /data ' /proc/mounts | cut -d' ' -f3,4
"""
    make = ("mkdir -p /srv/data/alice && chown alice: /srv/data/alice && chmod 777 /srv/data/alice && "
            "echo data >/srv/data/there && echo secret >/srv/data/secret && chmod 600 /srv/data/secret")  # fmt: skip
    site.root("cn1", make)
    try:
        with changed(site, mounts=["/srv/data /data 9p"]):
            path = site.write("/home/alice/data.sh", script)
            ended = site.job(*site.batch.on_first, "-vm", "img=tiny-9p", path)
        *output, mount = ended.out.splitlines()
        assert output == ["data", "not to be changed", "not for all"]
        file_system, options = mount.split()
        assert file_system == "9p"
        assert {"ro", "nosuid", "nodev"} <= set(options.split(","))
    finally:
        site.root("cn1", "rm -rf /srv/data")


@pytest.mark.both
@pytest.mark.full
def test_home_that_is_full_is_the_users_own_affair_and_told_to_him(site: Site) -> None:
    """The job starts all the same, and its error file has the system's words; nothing is tried again or blamed."""
    # dropbear, the tiny guest's sshd, looks for keys there
    keys = "mkdir -m 700 /home/alice/.ssh && chown alice: /home/alice/.ssh"
    fill = f"{keys}; dd if=/dev/zero of=/home/alice/filled bs=4k 2>/dev/null; :"
    script = 'echo began; echo more >"$HOME/more" || exit 4; echo RAN\n'
    with (
        changed(site, home_via="virtiofs"),
        mounted(site, "cn1", "/home/alice", options="size=64k,mode=755,uid=1001,gid=1001", then=fill),
    ):
        job_id = site.submit(*site.batch.on_first, "-o", "/tmp/full.o", "-e", "/tmp/full.e", stdin=script)
        facts = site.wait_state(job_id, "C")
        out, err = (site.root("cn1", f"cat /tmp/full.{one} && rm /tmp/full.{one}") for one in "oe")
    assert (facts["exit_status"], facts["start_count"], out) == ("4", "1", "began\n")
    assert "No space left on device" in err
    assert all(node.usable and not node.note for node in site.nodes().values())
