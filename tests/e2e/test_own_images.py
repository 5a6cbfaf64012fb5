# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of the users' own: booted where the site allows it, by nobody's rights but theirs; and files of the site's."""

from __future__ import annotations

import subprocess
import typing as t

import pytest

from .conftest import CHECKOUT, LAB, Site, cases
from .trouble import (
    NODES,
    POOL,
    WAITS,
    changed,
    check_refused,
    encoded,
    finish,
    forge,
    guest_on,
    wait_in_guest,
)

HOME = "/home/alice"
OWN = f"{HOME}/own.qcow2"
EVERYWHERE = ("fe", *NODES)
SHOWS = "stat -c '%U %a %Y %Z %s' {path} && sha256sum {path}"


@pytest.fixture(scope="module", autouse=True)
def allowed(site: Site) -> t.Iterator[None]:
    """The site allows such images, and alice has a copy of the tiny guest that boots by itself."""
    subprocess.run(
        [LAB[0], "-m", "lab.guests", "tiny-bios", "--pool", str(POOL)], cwd=CHECKOUT, check=True, timeout=600
    )
    copied = "cp $(ls -d /opt/vm-images/tiny-bios@*/disk.qcow2 | tail -n 1) own.qcow2 && chmod 600 own.qcow2"
    made = site.on("fe", "sh", "-c", f"cd {HOME} && {copied}", user="alice")
    assert made.returncode == 0, made.stderr
    with changed(site, EVERYWHERE, allow_user_images=True):
        yield
    site.root("fe", f"rm -f {HOME}/*.qcow2 {HOME}/link {HOME}/more.yml {HOME}/job.sh /home/bob/own.qcow2")


def past_vsub(site: Site, path: str, digest: str = "0" * 64, **keys: str) -> str:
    """A job that asks for an image by path, made without vsub."""
    x = encoded({"v": 1, "k": {"img": path, **keys}, "s": "", "d": {"img": digest}})
    return forge(site, x, *site.batch.alone)


def servers(site: Site, node: str) -> list[str]:
    """Process id and user of whatever serves an image on a node."""
    return site.root(node, "ps -eo pid=,user=,args= | grep '[v]torque-disk:.*/image' || true").splitlines()


@pytest.mark.full
@pytest.mark.both
def test_job_boots_from_a_copy_of_an_image_in_its_users_home(site: Site) -> None:
    """On two nodes, two guests of one of them at once where they have room; nobody else owns or changes the file."""
    before = site.on("fe", "sh", "-c", SHOWS.format(path=OWN), user="alice").stdout
    guests = site.batch.guests
    script = f"cat /etc/os-release; for host in $(sort -u ${site.batch.hosts}); do ssh $host hostname; done\n{WAITS}"
    job_id = site.submit(*site.batch.two, "-vm", f"img={OWN},vms_per_node={guests}", stdin=script)
    node = wait_in_guest(site, job_id)
    assert [line.split()[1] for line in servers(site, node)] == ["alice"] * guests
    ended = finish(site, job_id)
    assert ended.exit_status == 0, ended.err
    assert "ID=vtorque-tiny" in ended.out
    assert sorted(set(ended.out.split()) & {f"vcn{n}-{slot}" for n in (1, 2) for slot in (1, 2)}) == [
        f"vcn{node}-{slot}" for node in (1, 2) for slot in range(1, guests + 1)
    ]  # fmt: skip
    assert site.on("fe", "sh", "-c", SHOWS.format(path=OWN), user="alice").stdout == before
    assert [servers(site, name) for name in NODES] == [[], []]
    # of the start that ran: one may have failed before it and was tried again
    start = int(site.facts(job_id)["start_count"])
    assert f'"image": "{OWN}"' in site.stored(ended.node, job_id, start)


@pytest.mark.both
@pytest.mark.full
def test_image_that_is_lost_under_a_job_is_told(site: Site) -> None:
    """Its guest cannot read what it has not read yet, so the job ends with the reason."""
    site.write(f"{HOME}/job.sh", "#!/bin/sh\necho up; sleep 600\n")
    submitted = site.on("fe", "vsub", "-vm", "img=/home/alice/own.qcow2,distro=debian", "job.sh", user="alice")
    assert submitted.returncode == 0, submitted.stderr
    job_id = submitted.stdout.split()[-1]
    node = wait_in_guest(site, job_id)
    assert guest_on(site, node)
    site.root(node, "kill -9 " + servers(site, node)[0].split()[0])
    ended = site.end(job_id)
    assert ended.exit_status == 69
    assert "its image is out of reach: the qemu-nbd of it" in ended.err


BAD = {
    "backing": ("qemu-img create -q -f qcow2 -b /etc/shadow -F raw -u bad.qcow2 64M", "has a backing file"),
    "data": ("qemu-img create -q -f qcow2 -o data_file=other.qcow2 bad.qcow2 64M", "external file"),
    "vmdk": ("printf '# Disk DescriptorFile\\nversion=1\\nRW 8 FLAT \"/etc/shadow\" 0\\n' >bad.qcow2", "VMDK"),
    "encrypted": (
        "qemu-img create -q -f qcow2 --object secret,id=s,data=x -o encrypt.format=luks,encrypt.key-secret=s,"
        "encrypt.iter-time=10 bad.qcow2 64M",
        "is encrypted",
    ),
    "huge": ("qemu-img create -q -f qcow2 -o cluster_size=2M bad.qcow2 3T", "the site allows 2097152 MiB (image_max)"),
    "raw": ("truncate -s 64M bad.qcow2", "no disk with a table of partitions"),
    "cut": ("head -c 1000 own.qcow2 >bad.qcow2", "is cut off"),
    "garbage": ("head -c 1048576 /dev/urandom >bad.qcow2", "no disk with a table of partitions"),
    "empty": (": >bad.qcow2", "is empty"),
    "pipe": ("mkfifo bad.qcow2", "is not a regular file"),
    "directory": ("mkdir bad.qcow2", "Is a directory"),
    "link": ("ln -s /home/bob/own.qcow2 bad.qcow2", "Permission denied"),
    "gone": ("true", "No such file or directory"),
}
"""How a bad image is made, and what is said of it."""


@pytest.mark.both
@pytest.mark.parametrize("kind", cases(BAD, "backing", "link"))
def test_bad_image_is_refused_when_it_is_submitted(site: Site, kind: str) -> None:
    command, arguments = BAD[kind]
    site.root("fe", "cp /dev/null /home/bob/own.qcow2; chown bob: /home/bob/own.qcow2; chmod 600 /home/bob/own.qcow2")
    made = site.on("fe", "sh", "-c", f"cd {HOME} && {command}", user="alice")
    assert made.returncode == 0, made.stderr
    try:
        done = site.vsub("-vm", f"img={HOME}/bad.qcow2", stdin="true\n")
    finally:
        site.root("fe", f"rm -rf {HOME}/bad.qcow2 {HOME}/other.qcow2")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"img={HOME}/bad.qcow2" in done.stderr
    assert arguments in done.stderr


@pytest.mark.both
@pytest.mark.full
def test_bad_image_is_refused_on_the_node_whoever_submitted_it(site: Site) -> None:
    """What vsub would have said, said by the node; nothing is tried again, and no node is at fault."""
    site.root("fe", "cp /dev/null /home/bob/own.qcow2; chown bob: /home/bob/own.qcow2; chmod 600 /home/bob/own.qcow2")
    made = site.on(
        "fe", "sh", "-c",
        f"cd {HOME} && {BAD['backing'][0]} && mv bad.qcow2 backing.qcow2 && {BAD['huge'][0]} && mv bad.qcow2 huge.qcow2"
        " && ln -s /home/bob/own.qcow2 link",
        user="alice",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    jobs = {
        past_vsub(site, f"{HOME}/backing.qcow2"): ["has a backing file"],
        past_vsub(site, f"{HOME}/huge.qcow2"): ["image_max"],
        past_vsub(site, f"{HOME}/link"): ["cannot be read: Permission denied"],
        past_vsub(site, "/etc/shadow"): ["cannot be read: Permission denied"],
        past_vsub(site, f"{HOME}/gone.qcow2"): ["No such file or directory"],
        past_vsub(site, OWN): ["was changed after the job was submitted"],
        past_vsub(site, OWN, fs_type="local"): ["fs_type=local", "is read where it lies"],
    }
    for job_id, arguments in jobs.items():
        check_refused(site.end(job_id), *arguments)
        assert site.facts(job_id)["start_count"] == "1"
    assert [site.nodes()[name].note for name in NODES] == ["", ""]


@pytest.mark.both
@pytest.mark.full
def test_image_that_was_changed_meanwhile_is_not_booted(site: Site) -> None:
    """The job waits; its image becomes another."""
    copy = f"{HOME}/changing.qcow2"
    assert site.on("fe", "cp", OWN, copy, user="alice").returncode == 0
    job_id = site.submit(*site.batch.held, "-vm", f"img={copy}", stdin="echo RAN\n")
    made = f"qemu-img create -q -f qcow2 -b /etc/shadow -F raw -u {copy} 64M"
    assert site.on("fe", "sh", "-c", made, user="alice").returncode == 0
    other = site.submit(*site.batch.held, "-vm", f"img={OWN}", stdin="echo RAN\n")
    assert site.on("fe", "touch", OWN, user="alice").returncode == 0
    for held in (job_id, other):
        assert site.on("fe", *site.batch.release, held, user="alice").returncode == 0
    check_refused(site.end(job_id), "has a backing file")
    check_refused(site.end(other), "was changed after the job was submitted")


@pytest.mark.both
@pytest.mark.full
def test_what_no_node_makes_a_copy_of_is_not_kept(site: Site) -> None:
    for kind in ("local", "ramdisk"):
        done = site.vsub("-vm", f"img={OWN},fs_type={kind}", stdin="true\n")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"fs_type={kind} " in done.stderr
        assert "an own image is read where it lies: fs_type=sharedfs" in done.stderr


@pytest.mark.both
@pytest.mark.full
def test_site_that_does_not_allow_it_says_so(site: Site) -> None:
    """To vsub, to who went past it, and on each node by the node's own word."""
    with changed(site, EVERYWHERE, allow_user_images=False):
        done = site.vsub("-vm", f"img={OWN}", stdin="true\n")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"img={OWN}" in done.stderr
        assert "allow_user_images" in done.stderr
        check_refused(site.end(past_vsub(site, OWN)), f"img={OWN}", "allow_user_images")
    with changed(site, ("cn2",), allow_user_images=False):
        ended = site.job(*site.batch.pair, "-vm", f"img={OWN}", stdin="echo RAN\n")
        check_refused(ended, f"img={OWN}", "allow_user_images")


@pytest.mark.both
@pytest.mark.full
def test_who_names_no_file_gets_the_sites(site: Site) -> None:
    """A disk where he has one, and additions; a word of his own counts in their place."""
    site.write(f"{HOME}/more.yml", "runcmd: ['echo his >/tmp/said']\n")
    site.root("fe", "printf \"runcmd: ['echo site >/tmp/said']\\n\" >/home/more.yml && chmod 644 /home/more.yml")
    script = "cat /tmp/said; grep -c ' /data ' /proc/mounts\n"
    with changed(site, EVERYWHERE, metadata_default="/home/more.yml", disk_default="~/default.qcow2"):
        assert site.job("-vm", f"metadata={HOME}/more.yml", stdin=script).out.split() == ["his", "0"]
        made = site.on("fe", "vmgr", "disk", "create", f"{HOME}/default.qcow2", "64M", user="alice")
        assert made.returncode == 0, made.stderr
        printed = site.vsub("--dry-run", stdin=script).stdout
        assert f"{HOME}/default.qcow2" in printed
        assert printed.count("site default") >= 2
        assert site.job(stdin=script).out.split() == ["site", "1"]
    site.root("fe", f"rm -f /home/more.yml {HOME}/default.qcow2")
