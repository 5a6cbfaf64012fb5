# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong requests and broken nodes: one clear message where the right person reads it, and nothing left."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import shutil
import typing as t

import pytest

from .conftest import CHECKOUT, Ended, Site

POOL = CHECKOUT / "build/pool"
NODES = ("cn1", "cn2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-vm", "vcpu=4"], ["vcpu", "did you mean vcpus?"]),
        (["-vm", "vcpus=many"], ["vcpus", "many"]),
        (["-vm", "img=tinny"], ["img", "tinny", "tiny"]),
        (["-l", "nodes=1:ppn=400"], ["ppn=400", "more than any node"]),
        (["-vm", "vcpu=4,ram=lots,img=tinny"], ["vcpu", "lots", "tinny"]),
        (["-vm", "iocm=true"], ["iocm", "not available on this site yet"]),
        (["-vm", "disk=/home/alice/d.img"], ["disk", "not available on this site yet"]),
        (["-vm", "fs_type=ramdisk"], ["fs_type", "not available on this site yet"]),
        (["-vm", "vcpu_pinning=true"], ["vcpu_pinning", "not available on this site yet"]),
        (["-vm", "nodes=1"], ["nodes", "not available on this site yet"]),
        (["-T", "orig"], ["-T"]),
        (["-I", "-x", "/bin/true"], ["-x", "not available on this site yet"]),
        (["-t", "1-2"], ["-t", "not available on this site yet"]),
        (["-l", "nodes=2"], ["nodes", "not available on this site yet"]),
    ],
)
def test_refused_at_submission(site: Site, arguments: list[str], words: list[str]) -> None:
    """Told before qsub is called; nothing is queued."""
    queued = site.on("fe", "qstat").stdout
    done = site.vsub(*arguments, stdin="true\n")
    assert done.returncode == 2
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr
    assert "nothing was submitted" in done.stderr
    assert site.on("fe", "qstat").stdout == queued


def wished(**keys: str) -> dict[str, object]:
    """A request of today's form (request.py)."""
    return {"v": 1, "k": keys, "s": ""}


def encoded(data: object) -> str:
    """A request as somebody would forge it."""
    return "vtorque:" + base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


def forged(site: Site, x: str, *arguments: str) -> Ended:
    """A VM job made by hand, past vsub."""
    done = site.qsub("-S", "/opt/vtorque/bin/vtorque-shell", "-l", "other=vtorque", "-W", f"x={x}", *arguments,
                     stdin="echo RAN; hostname\n")  # fmt: skip
    assert done.returncode == 0, done.stderr
    return site.end(done.stdout.strip())


def check_refused(ended: Ended, *words: str) -> None:
    """The job ran nothing, failed, and its error file says why in a few lines."""
    assert ended.exit_status not in (0, -999)
    assert "RAN" not in ended.out
    assert ended.err.startswith("vtorque: ")
    for word in words:
        assert word in ended.err
    assert len(ended.err.splitlines()) <= 8
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ("vtorque:!!!", ["request"]),
        ("vtorque:AAAA", ["request"]),
        (encoded({"v": 99}), ["version"]),
        (encoded([1, 2]), ["request"]),
        (encoded(wished()) + ";" + encoded(wished()), ["2 requests"]),
        ("GRES:none", ["request"]),
    ],
)
def test_forged_request_is_refused_by_root(site: Site, x: str, words: list[str]) -> None:
    """What is public is not believed: garbage, a future version, two requests, none."""
    check_refused(forged(site, x), *words)


def test_jobtype_is_refused_by_root(site: Site) -> None:
    """`-T` would let the user choose which hooks run."""
    check_refused(forged(site, encoded(wished()), "-T", "other"), "-T")


def test_hostile_names_stay_data(site: Site) -> None:
    """A job name and an account full of shell, YAML and Jinja2 change nothing and make nothing."""
    name = "$(touch${IFS}vtq);{{7*7}}"
    ended = site.job("-N", name, "-A", "a: [$(touch /tmp/vtq2)] {% x %} 'q\"", stdin='printf %s "$PBS_JOBNAME"\n')
    assert (ended.exit_status, ended.out) == (0, name)
    for node in NODES:
        assert site.root(node, "ls /tmp/vtq2 /tmp/vtq /var/spool/torque/mom_priv/vtq 2>/dev/null || true") == ""


@contextlib.contextmanager
def in_pool(name: str) -> t.Iterator[pathlib.Path]:
    """A copy of the tiny image under another name in the pool."""
    place = POOL / name
    shutil.copytree(POOL / "tiny@1", place, symlinks=True)
    record = place / "record.json"
    record.chmod(0o644)
    record.write_text(json.dumps({**json.loads(record.read_text()), "name": name.partition("@")[0]}))
    record.chmod(0o444)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def spoil_owner(place: pathlib.Path) -> None:
    """Who could change an image could change what everybody's guests run."""
    os.chown(place / "disk.qcow2", 1001, 1001)


def spoil_link(place: pathlib.Path) -> None:
    """A link out of the pool."""
    (place / "disk.qcow2").unlink()
    (place / "disk.qcow2").symlink_to("/etc/passwd")


@pytest.mark.parametrize(("spoil", "words"), [(spoil_owner, ["root"]), (spoil_link, ["link"])])
def test_unsafe_image_is_refused_at_submission_and_by_root(
    site: Site, spoil: t.Callable[[pathlib.Path], None], words: list[str]
) -> None:
    """vsub says so at once; root does not rely on it."""
    with in_pool("unsafe@1") as place:
        spoil(place)
        done = site.vsub("-vm", "img=unsafe", stdin="echo RAN\n")
        assert done.returncode != 0
        assert done.stdout == ""
        for word in ["unsafe", *words]:
            assert word in done.stderr
        check_refused(forged(site, encoded(wished(img="unsafe"))), "unsafe", *words)


@contextlib.contextmanager
def changed_site(site: Site, expression: str) -> t.Iterator[None]:
    """The site's configuration of all compute nodes, changed by a sed expression for a while."""
    file = "/etc/vtorque/vtorque.yml"
    for node in NODES:
        site.root(node, f"cp -p {file} {file}.kept && sed -i -E '{expression}' {file} && ! cmp -s {file} {file}.kept")
    try:
        yield
    finally:
        for node in NODES:
            site.root(node, f"mv {file}.kept {file}")


def test_no_bridge(site: Site) -> None:
    """The bridge of the configuration is not there."""
    with changed_site(site, "1s|^|bridge: br99\\n|"):
        check_refused(site.job(stdin="echo RAN\n"), "br99", "bridge")


def test_no_usable_virtualisation(site: Site) -> None:
    """A node without KVM, and a site that does not allow emulation."""
    with changed_site(site, "s/^allow_emulation:.*/allow_emulation: false/"):
        check_refused(site.job(stdin="echo RAN\n"), "emulation")


def test_no_libvirt(site: Site) -> None:
    """libvirt does not answer on the node."""
    with changed_site(site, "1s|^|libvirt_uri: qemu+unix:///system?socket=/run/none\\n|"):
        check_refused(site.job(stdin="echo RAN\n"), "libvirt")


def test_policy_that_is_broken(site: Site) -> None:
    """A node's configuration with a wrong key."""
    with changed_site(site, "1s|^|brigde: br0\\n|"):
        check_refused(site.job(stdin="echo RAN\n"), "brigde")


def test_job_shell_started_by_hand(site: Site) -> None:
    """Outside a job there is no record, and nothing runs."""
    done = site.on("cn1", "/opt/vtorque/bin/vtorque-shell", user="alice", stdin="/home/alice/where.sh\n")
    assert done.returncode not in (0, 255)
    assert done.stderr.startswith("vtorque: ")
    assert "Traceback" not in done.stderr
