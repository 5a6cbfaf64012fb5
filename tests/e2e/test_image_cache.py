# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs whose guests stand on copies of their image on the node: real copies, real guests, real libvirt."""

from __future__ import annotations

import json
import re
import typing as t

import pytest

from .conftest import Site
from .trouble import wait_in_guest

COPIES = "/var/lib/vtorque/images/copies"


def copies(site: Site, node: str) -> dict[str, dict[str, t.Any]]:
    """What a node says of its copies."""
    rows = json.loads(site.root(node, "vtorque-cache list --json"))["images"]
    return {row["image"]: row for row in rows}


def local(site: Site, node: str, message: str = "hostname") -> str:
    """A job on this node whose guest stands on a copy."""
    return site.submit(*site.batch.at(node), "-vm", "fs_type=local", stdin=f"{message}\n")


@pytest.mark.both
def test_an_image_is_pushed_and_libvirt_leaves_the_copy_alone(site: Site) -> None:
    """`vmgr image push debian12`, of the tiny image; owner and mode are what they were while qemu runs on the copy."""
    pushed = site.on("fe", "vmgr", "image", "push", "tiny", "--node", "cn1")
    assert (pushed.returncode, pushed.stderr) == (0, "")
    assert re.fullmatch(r"cn1: tiny@[0-9]+ is here\n", pushed.stdout)
    job_id = local(site, "cn1", "echo up; sleep 600")
    wait_in_guest(site, job_id)
    (name,) = copies(site, "cn1")
    seen = site.root("cn1", f"stat -c '%U %a %n' {COPIES}/{name}/* /var/lib/vtorque/guests/*/*/disk.qcow2")
    assert {tuple(line.split()[:2]) for line in seen.splitlines() if "guests" not in line} == {("root", "444")}, seen
    assert [line for line in seen.splitlines() if "guests" in line and not line.startswith("root ")], seen
    assert copies(site, "cn1")[name]["guests"] == ["vcn1-1"]
    refused = site.on("cn1", "vtorque-cache", "remove", name)
    assert (refused.returncode, "in use by vcn1-1" in refused.stderr) == (3, True)
    assert site.on("fe", *site.batch.cancel, job_id, user="alice").returncode == 0
    site.end(job_id)
    assert copies(site, "cn1")[name]["state"] == "verified"


@pytest.mark.full
def test_a_killed_fetch_goes_on_and_a_job_waits_for_it(site: Site) -> None:
    """A slow pool: the fetch is killed in the middle; the job that waits has it go on, and runs in one start."""
    site.root("cn2", "sed -i '$ a cache_rate: 4' /etc/vtorque/vtorque.yml")
    job_id = local(site, "cn2")
    pid = site.wait_for("a fetch", lambda: site.on("cn2", "pgrep", "-f", "[v]torque_cache fill").stdout.split())[0]
    grown = f"stat -c %s '{COPIES}'/.part*/vmlinuz 2>/dev/null | awk '{{ s += $1 }} END {{ print s + 0 }}'"
    site.wait_for("some of it", lambda: int(site.root("cn2", grown)) > 0)
    site.root("cn2", f"kill -9 {pid}; sed -i '$ d' /etc/vtorque/vtorque.yml")
    ended = site.end(job_id)
    assert (ended.exit_status, ended.out.strip()) == (0, "vcn2-1")
    (name,) = copies(site, "cn2")
    assert name.startswith("tiny@")
    assert f" image {name}" in site.stored("cn2", job_id, name="vtorque.log")


@pytest.mark.both
@pytest.mark.full
def test_a_copy_that_was_touched_is_found_and_replaced(site: Site) -> None:
    """At the next use, by itself."""
    pushed = site.on("fe", "vmgr", "image", "push", "tiny", "--node", "cn2")
    assert (pushed.returncode, pushed.stderr) == (0, "")
    (name,) = copies(site, "cn2")
    file = f"{COPIES}/{name}/disk.qcow2"
    before = site.root("cn2", f"sha256sum {file}")
    site.root("cn2", f"printf broken | dd of={file} bs=1 seek=4096 conv=notrunc status=none")
    assert "was changed" in copies(site, "cn2")[name]["state"]
    assert site.end(local(site, "cn2")).exit_status == 0
    assert site.root("cn2", f"sha256sum {file}") == before
