# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of the site's default start warm: homes by virtiofs, vCPUs on cores of their own, and the user's own disk.

What a job finds in such a guest is what it finds in one that has booted.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

import pytest

from .conftest import CHECKOUT, Site
from .test_pinned import TWO_CORES, VMGR, threads
from .test_warm import NODE, WARM
from .trouble import NODES, WAITS, changed, edit_disk, finish, image, replace, wait_in_guest

START_WAYS = ("fast",)  # it sets for itself how they start

ONE = ("-l", f"nodes={NODE}:ppn=2")
SEEN = r"""
id
pwd
umask
ulimit -S -a
ulimit -H -a
nproc
grep -v " /proc/sys/kernel/random/boot_id " /proc/mounts | sed "s/size=[^ ,]*//g; s/nr_inodes=[^ ,]*//g" | sort
ls -a "$HOME" | grep -v "STDIN" | sort
env | grep ^PBS_ | grep -v "JOBID\|COOKIE\|JOBCOOKIE\|NODEFILE\|NODENUM\|TASKNUM\|GPUFILE\|MICFILE" | sort
cat /etc/passwd /etc/group
"""
"""What there is of a job's user in a guest."""


@contextlib.contextmanager
def warm_site(site: Site, **settings: object) -> t.Iterator[None]:
    """The site has warm starts and is else as it is, but that cores are given by default; then it has no template."""
    try:
        wanted = {"warm_start": True, "vcpu_pinning_default": True, **TWO_CORES, **settings}
        with changed(site, ("fe", *NODES), **wanted):
            yield
    finally:
        site.root(NODE, f"rm -rf {WARM}")


def make(site: Site, name: str = "tiny", *options: str) -> None:
    """Make a template at once."""
    made = site.on(NODE, "vmgr", "image", "warm", "make", name, *options)
    assert made.returncode == 0, made.stderr


def starts(site: Site, job_id: str) -> list[str]:
    """How each guest of the last start of a job came up; a boot under load may have needed another try."""
    text = site.root(NODE, f"cat $(ls -d /var/lib/vtorque/records/{job_id}.*/record.json | sort -V | tail -n 1)")
    return [guest.get("warm", "") for guest in json.loads(text)["guests"]]


@pytest.mark.full
def test_default_job_starts_warm_with_its_home_and_on_its_own_cores(site: Site) -> None:
    with warm_site(site):
        make(site)
        printed = site.vsub("--dry-run", *ONE, stdin="true\n").stdout
        assert "its guests start warm" in printed
        job_id = site.submit(*ONE, stdin=f'echo "of a job" >"$HOME/warm-home"\n{WAITS}')
        wait_in_guest(site, job_id)
        vcpus, others = threads(site, NODE)
        ended = finish(site, job_id)
        assert ended.exit_status == 0, ended.err
        assert ended.out.splitlines() == ["up", "on"]
        assert starts(site, job_id) == ["yes"]
        # a guest of one vCPU in a job of two cores: it has one, and what serves it the other
        (core,) = vcpus.values()
        assert core in {"0", "1"}
        assert others == {"01".replace(core, "")}
        log = site.root(NODE, f"{VMGR} job log {job_id}")
        assert f"read from its threads: vCPU 0 on {core}; other threads on " in log
        assert "moved there" not in log  # they were there before the guest ran
        assert site.on("fe", "cat", "warm-home", user="alice").stdout == "of a job\n"


@pytest.mark.full
@pytest.mark.parametrize("pinned", [True, False])
def test_job_finds_the_same_in_a_guest_that_started_warm_as_in_one_that_booted(site: Site, pinned: bool) -> None:
    site.root(NODE, "mkdir -p /srv/shared && echo data >/srv/shared/file")
    with warm_site(site, vcpu_pinning_default=pinned, mounts=["/srv/shared /shared virtiofs ro"]):
        make(site)
        found = {}
        for warm in ("true", "false"):
            ended = site.job(*ONE, "-vm", f"warm={warm}", stdin=f"cat /shared/file\n{SEEN}")
            assert ended.exit_status == 0, ended.err
            (how,) = starts(site, ended.job_id)
            assert (how == "yes") == (warm == "true"), how
            found[warm] = ended.out.splitlines()
        assert found["true"][0] == "data"
        assert found["true"] == found["false"]


@pytest.mark.full
def test_threads_of_disks_are_on_the_cores_for_virtual_io_of_a_guest_that_started_warm(site: Site) -> None:
    with warm_site(site):
        make(site)
        job_id = site.submit(*ONE, "-vm", "iocm=true,iocm_max_cores=1", stdin=WAITS)
        wait_in_guest(site, job_id)
        assert threads(site, NODE) == ({"CPU 0/TCG": "1"}, {"0"})
        names = site.root(NODE, "cat /proc/$(pgrep -f '^[^ ]*qemu-system')/task/*/comm").splitlines()
        assert "IO iothread1" in names
        assert finish(site, job_id).exit_status == 0
        assert starts(site, job_id) == ["yes"]


@pytest.mark.full
def test_debian_mounts_a_home_that_is_plugged_in_after_its_restore(site: Site, tmp_path: pathlib.Path) -> None:
    with warm_site(site), image("warm-home", of="debian12") as place:
        make_warmable(place, tmp_path)
        make(site, "warm-home", "--ram", "512M", "--boot-timeout", "900")
        found = {}
        for warm in ("true", "false"):
            script = (
                'stat -f -c %T "$HOME"; findmnt -n -o FSTYPE,OPTIONS "$HOME"; id; ulimit -a; ls -d /sys/fs/virtiofs'
            )
            ended = site.job(*ONE, "-vm", f"img=warm-home,ram=512M,warm={warm}", stdin=f"{script}; true\n")
            assert ended.exit_status == 0, ended.err
            (how,) = starts(site, ended.job_id)
            assert (how == "yes") == (warm == "true"), how
            found[warm] = ended.out.splitlines()
        assert found["true"][1].startswith("virtiofs ")
        assert found["true"] == found["false"]


def make_warmable(copy: pathlib.Path, place: pathlib.Path) -> None:
    """Do to the disk of an image's copy what `install_warm.sh` does, and have its record say so."""
    program = "/usr/lib/vtorque-image/warm"
    (place / "warm").write_text("#!/usr/bin/python3 -I\n" + (CHECKOUT / "roles/guest_image/files/warm.py").read_text())
    (place / "drop-in").write_text("[Unit]\nConditionPathExists=!/etc/vtorque/warm.env\n")
    orders = [f"mkdir {program.rpartition('/')[0]}", f"rm {program}", f"write {place}/warm {program}"]
    orders.append(f"sif {program} mode 0100755")
    for unit in ("ssh.service", "sshd.service"):
        directory = f"/etc/systemd/system/{unit}.d"
        orders += [f"mkdir {directory}", f"write {place}/drop-in {directory}/vtorque-warm.conf"]
    edit_disk(copy, orders)
    record = json.loads((copy / "record.json").read_text()) | {"warm": "1"}
    replace(copy / "record.json", json.dumps(record).encode())


@pytest.mark.full
def test_user_s_disk_is_there_in_a_guest_that_started_warm(site: Site) -> None:
    site.write("/home/alice/put", "cat /data/former 2>/dev/null; echo of a warm guest >/data/former\n")
    made = site.on("fe", "vmgr", "disk", "create", "mine.qcow2", "64M", user="alice")
    assert made.returncode == 0, made.stderr
    with warm_site(site):
        make(site)
        for expected in ("", "of a warm guest\n"):
            ended = site.job(*ONE, "-vm", "disk=/home/alice/mine.qcow2", stdin="sh put\n")
            assert (ended.exit_status, ended.out) == (0, expected), ended.err
            assert starts(site, ended.job_id) == ["yes"]


@pytest.mark.full
def test_guests_boot_with_their_homes_when_they_are_silent_after_their_devices_were_plugged_in(site: Site) -> None:
    """What served the warm guests ended with them; those that boot are served anew."""
    with warm_site(site, vcpu_pinning_default=False), image("silent-home", fault="warm-mute") as place:
        name = place.name.partition("@")[0]
        make(site, name)
        ended = site.job(*ONE, "-vm", f"vms_per_node=2,img={name}", stdin='ls -d "$HOME"; sort -u "$PBS_NODEFILE"\n')
        assert (ended.exit_status, ended.out) == (0, "/home/alice\nvcn1-1\nvcn1-2\n"), ended.err
        assert all("was not ready within" in how for how in starts(site, ended.job_id))
    assert site.root(NODE, "pgrep -af '^vtorque-virtiofsd:' || :") == ""


@pytest.mark.full
def test_guests_boot_with_their_homes_when_the_memory_of_their_template_was_changed(site: Site) -> None:
    with warm_site(site, vcpu_pinning_default=False):
        make(site)
        site.root(NODE, f"for f in {WARM}/*/mem; do printf x | dd of=$f bs=1 seek=50000000 conv=notrunc; done")
        ended = site.job(*ONE, "-vm", "vms_per_node=2", stdin='ls -d "$HOME"\n')
        assert (ended.exit_status, ended.out) == (0, "/home/alice\n"), ended.err
        assert all("its record says" in how for how in starts(site, ended.job_id))
    assert site.root(NODE, "pgrep -af '^vtorque-virtiofsd:' || :") == ""
