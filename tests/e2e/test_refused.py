# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that cannot be: told at once by vsub, and by root to whoever went past vsub.

Seen to fail: with a reader of requests that takes the first of two.
"""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest

from .conftest import WAYS, Site, cases
from .trouble import HIDE_KVM, NODES, SHOW_KVM, changed, check_refused, drop, encoded, forge, image, request

START_WAYS = cases(WAYS, "fast")

REFUSED = {
    "-vm vcpu=4": ["vcpu", "did you mean vcpus?"],
    "-vm vcpus=many": ["vcpus", "many"],
    "-vm img=tinny": ["img", "tinny", "tiny"],
    "-vm vcpu=4,ram=lots,img=tinny": ["vcpu", "lots", "tinny"],
    "-vm iocm_min_cores=1": ["iocm_min_cores=1", "goes with iocm=true"],
    "-vm iocm=true,iocm_max_cores=13": ["iocm_max_cores=13", "at most 12 on this site"],
    "-vm disk=/home/alice/d.img": ["disk=/home/alice/d.img", "cannot be opened to read and write"],
    "-vm fs_type=nfs": ["fs_type=nfs", "sharedfs, local or ramdisk"],
    "-vm vcpu_pinning=all": ["vcpu_pinning=all", "the path of a mapping file"],
    "-vm vcpu_pinning=/home/alice/none": ["vcpu_pinning=/home/alice/none", "cannot be read"],
    "-vm nodes=two": ["nodes=two", "number"],
}
"""What is typed of any batch system, and what is said of it."""
OF_TORQUE = {
    "-l nodes=1:ppn=400": ["ppn=400", "more than any node"],
    "-T orig": ["-T"],
    "-l procs=2": ["procs=2", "whichever nodes", "-l nodes=1:ppn=2"],
    "-l ncpus=2": ["ncpus=2", "only without -l nodes", "-l nodes=1:ppn=2"],
    "-d /home/alice/a,b": ["-d /home/alice/a,b", "would start the job in /home/alice/a,", "cd"],
}
"""What is typed of options of qsub, and what is said of it."""


@pytest.mark.both("slurm")
@pytest.mark.parametrize("typed", cases(REFUSED, "-vm vcpu=4,ram=lots,img=tinny"))
def test_refused_at_submission(site: Site, typed: str) -> None:
    """Before the batch system is called; nothing is queued."""
    check_refused_at_submission(site, typed, REFUSED[typed])


@pytest.mark.parametrize("typed", cases(OF_TORQUE, "-T orig"))
def test_refused_option_at_submission(site: Site, typed: str) -> None:
    """Before qsub is called; nothing is queued."""
    check_refused_at_submission(site, typed, OF_TORQUE[typed])


def check_refused_at_submission(site: Site, typed: str, expected: t.Iterable[str]) -> None:
    before = site.jobs()
    done = site.vsub(*typed.split(), stdin="true\n")
    assert done.returncode == 2
    assert done.stdout == ""
    for word in expected:
        assert word in done.stderr
    assert "nothing was submitted" in done.stderr
    assert set(site.jobs()) <= set(before)  # the server forgets those that ended long ago


SCRIPTS = {
    "carriage returns": (b"#!/bin/sh\r\ntrue\r\n", "line 1 ends with a carriage return: dos2unix"),
    "mark": (b"\xef\xbb\xbf#!/bin/sh\ntrue\n", "byte order mark (line 1, byte 1): dos2unix"),
    "letters": ("#!/bin/sh\n# für\ntrue\n".encode(), "line 2, byte 4 is 0xc3, no ASCII"),
}
"""Scripts that Torque's qsub does not take, and what vsub adds to its word."""


@pytest.mark.parametrize("name", cases(SCRIPTS, "mark"))
def test_script_that_qsub_does_not_take(site: Site, name: str) -> None:
    content, arguments = SCRIPTS[name]
    site.write("/home/alice/job.sh", content)
    done = site.on("fe", "vsub", "job.sh", user="alice")
    assert (done.returncode, done.stdout) == (1, "")
    qsubs, ours = done.stderr.splitlines()
    assert qsubs.startswith("qsub:  ")
    assert ours.startswith("vsub: job.sh")
    assert arguments in ours


FORGED = (
    ("vtorque:!!!", "request"),
    ("vtorque:AAAA", "request"),
    (encoded({"v": 99}), "version"),
    (encoded([1, 2]), "request"),
    (request() + ";" + request(), "2 requests"),
    ("GRES:none", "request"),
    # as long as one argument of a command may be
    ("vtorque:" + 130_000 * "A", "4096"),
    (request(img="no-such-image"), "img=no-such-image"),
    (request(vcpus="3"), "ppn=1", "4 that its guests need"),
    (request(vcpu="3"), "vcpu", "did you mean vcpus?"),
)
"""Requests, and what is said of them."""


def test_forged_requests_are_refused_by_root(site: Site) -> None:
    """What is public is not believed: garbage, a future version, two requests, none, what vsub would refuse."""
    jobs = [(forge(site, x), arguments) for x, *arguments in FORGED]
    for job_id, arguments in jobs:
        check_refused(site.end(job_id), *arguments)


def test_memory_that_the_scheduler_was_not_asked_for_is_refused_by_root(site: Site) -> None:
    """It would be another job's as well."""
    job_id = forge(site, request(), "-l", "nodes=1:ppn=2,mem=100mb")
    check_refused(site.end(job_id), "mem=100mb", "its guests need", "for the host")


def test_jobtype_runs_nothing(site: Site) -> None:
    """`-T` lets a user choose which hooks run: ours refuse it, and where they did not run the job's shell does."""
    hooks = " ".join(f"/var/spool/torque/mom_priv/prologue.{name}" for name in ("orig", "precancel"))
    for node in NODES:
        site.root(node, f"for hook in {hooks}; do printf '#!/bin/sh\\nexit 0\\n' >$hook; chmod 500 $hook; done")
    try:
        jobs = {name: forge(site, request(), "-T", name) for name in ("orig", "precancel", "other")}
        ended = {name: site.end(job_id) for name, job_id in jobs.items()}
    finally:
        for node in NODES:
            site.root(node, f"rm {hooks}")
    check_refused(ended["other"], "-T")
    check_refused(ended["orig"], "nothing was run")
    check_refused(ended["precancel"], "nothing was run")


@pytest.mark.full
def test_emulation_that_the_site_does_not_allow(site: Site) -> None:
    """The node's own policy has the last word, whatever the front end's says."""
    with changed(site, allow_emulation=False, hypervisor_default="kvm"):
        check_refused(site.end(forge(site, request(hypervisor="qemu"))), "does not allow software emulation")


@pytest.mark.full
def test_virtualisation_that_nobody_promised(site: Site) -> None:
    """Where a site's jobs are emulated, who asks for KVM hears that there is none; no node goes offline for it."""
    site.root("cn1", HIDE_KVM)
    try:
        ended = site.job("-l", "nodes=cn1:ppn=2", "-vm", "hypervisor=kvm", stdin="echo RAN\n")
    finally:
        site.root("cn1", SHOW_KVM)
    check_refused(ended, "hypervisor=kvm", "no usable virtualisation", "hypervisor=qemu")
    assert site.nodes()["cn1"].note == ""


@pytest.mark.full
def test_too_few_cores_are_raised(site: Site) -> None:
    """And too little memory; one line each says so and why; the job gets what its guest needs."""
    done = site.vsub("-h", "-l", "nodes=1:ppn=1,mem=100mb", "-vm", "vcpus=2,ram=192M", stdin="true\n")
    job_id = done.stdout.strip()
    assert (done.returncode, done.stderr.splitlines()) == (0, [
        "vsub: ppn raised from 1 to 3 (2 vcpus + 1 core for the host)",
        "vsub: mem raised from 100mb to 704mb (192M of ram + 512M for the host)",
    ])  # fmt: skip
    printed = site.on("fe", "qstat", "-x", "-f", job_id).stdout
    assert "<nodes>1:ppn=3</nodes>" in printed
    assert "<mem>704mb</mem>" in printed
    drop(site, job_id)


def test_hostile_names_stay_data(site: Site) -> None:
    """A job name and an account full of shell, YAML and Jinja2 change nothing and make nothing."""
    name = "$(touch${IFS}vtq);{{7*7}}"
    ended = site.job("-N", name, "-A", "a: [$(touch /tmp/vtq2)] {% x %} 'q\"", stdin='printf %s "$PBS_JOBNAME"\n')
    assert (ended.exit_status, ended.out) == (0, name)
    for node in NODES:
        assert site.root(node, "ls /tmp/vtq2 /tmp/vtq /var/spool/torque/mom_priv/vtq 2>/dev/null || true") == ""


CONTROLS = "a\n- [$(touch /tmp/vtq3)]\r\x1b]0;b\x07"


@pytest.mark.full
def test_control_characters_in_names_are_refused_or_stay_data(site: Site) -> None:
    """A line of its own, or an order to a terminal: qsub takes none in a job's name, and in an account it does nothing.

    What is shown of the job to others holds none.
    """
    for call in (site.vsub, site.qsub):
        done = call("-N", CONTROLS, stdin="echo RAN\n")
        assert (done.returncode == 0, done.stdout) == (False, "")
    ended = site.job("-A", CONTROLS, stdin="hostname\n")
    assert (ended.exit_status, ended.err) == (0, "")
    assert ended.out.startswith(f"v{ended.node}-")
    for arguments in (("job", "show"), ("job", "log"), ("job", "console")):
        printed = site.on(ended.node, "vmgr", *arguments, ended.job_id)
        assert printed.returncode == 0, printed.stderr
        assert not [char for char in printed.stdout + printed.stderr if not (char.isprintable() or char in "\n\t")]
    for node in ("fe", *NODES):
        assert site.on(node, "test", "-e", "/tmp/vtq3").returncode != 0


def spoil_owner(place: pathlib.Path) -> None:
    """Who could change an image could change what everybody's guests run."""
    os.chown(place / "disk.qcow2", 1001, 1001)


def spoil_link(place: pathlib.Path) -> None:
    """A link out of the pool."""
    (place / "disk.qcow2").unlink()
    (place / "disk.qcow2").symlink_to("/etc/passwd")


@pytest.mark.full
@pytest.mark.parametrize(("spoil", "arguments"), [(spoil_owner, ["root"]), (spoil_link, ["link"])])
def test_unsafe_image_is_refused_at_submission_and_by_root(
    site: Site, spoil: t.Callable[[pathlib.Path], None], arguments: list[str]
) -> None:
    """vsub says so at once; root does not rely on it."""
    with image("unsafe") as place:
        spoil(place)
        done = site.vsub("-vm", "img=unsafe", stdin="echo RAN\n")
        assert done.returncode != 0
        assert done.stdout == ""
        for word in ["unsafe", *arguments]:
            assert word in done.stderr
        check_refused(site.end(forge(site, request(img="unsafe"))), "unsafe", *arguments)


def test_job_shell_started_by_hand(site: Site) -> None:
    """Outside a job there is no record, and nothing runs."""
    done = site.on("cn1", "/opt/vtorque/bin/vtorque-shell", user="alice", stdin="/home/alice/where.sh\n")
    assert done.returncode not in (0, 255)
    assert done.stderr.startswith("vtorque: ")
    assert "Traceback" not in done.stderr
