# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that do not come up: no node is blamed for them, and the job says what was seen of its guest."""

from __future__ import annotations

import contextlib

import pytest

from . import trouble
from .conftest import Site

NEVER_UP = {
    "panic": "Kernel panic",
    "off": "ended before it was ready",
    "restart": "ended before it was ready",
    "mute": "was not ready within 45 s",
    "garbage": "kernel",
}
"""Images that do not come up, and what is told of them."""


@pytest.mark.both
@pytest.mark.full
def test_image_that_does_not_boot_blames_no_node(site: Site) -> None:
    """Whatever the guest does instead, its job is held with what was seen of it, after the tries the site allows."""
    with contextlib.ExitStack() as stack:
        for name in NEVER_UP:
            place = stack.enter_context(trouble.image(name, fault=name))
            if name == "garbage":
                trouble.replace(place / "vmlinuz", b"garbage" * 1000)
        stack.enter_context(trouble.changed(site, timeout=45, node_fault_retries=1))
        jobs = {name: site.submit("-vm", f"img={name}", stdin="echo RAN\n") for name in NEVER_UP}
        for name, arguments in NEVER_UP.items():
            assert trouble.check_held(site, jobs[name], arguments)["start_count"] == "1"
        trouble.drop(site, *jobs.values())
    trouble.check_nobody_blamed(site)


@pytest.mark.both
@pytest.mark.full
def test_image_that_boots_on_no_node_is_refused(site: Site) -> None:
    """Where the guests of all nodes failed alike it is the image, and it is not tried again."""
    with trouble.image("nowhere", fault="panic"), trouble.changed(site, timeout=60):
        job_id = site.submit(*site.batch.two, "-vm", "img=nowhere,vcpus=1,ram=192M", stdin="echo RAN\n")
        trouble.check_refused(
            site.end(job_id), "the image boots on no node: the guests of 2 nodes failed alike", "Kernel panic"
        )
        assert site.facts(job_id)["start_count"] == "1"
    trouble.check_nobody_blamed(site)


@pytest.mark.both
@pytest.mark.full
def test_image_whose_disk_is_garbage_is_refused(site: Site) -> None:
    """Every node would read the same: the job ends at once, and its owner knows which image."""
    with trouble.image("spoilt") as place:
        disk = place / "disk.qcow2"
        trouble.replace(disk, b"?" * disk.stat().st_size)
        trouble.check_refused(site.job("-vm", "img=spoilt", stdin="echo RAN\n"), "spoilt")
    trouble.check_nobody_blamed(site)


@pytest.mark.both
def test_somebody_who_answers_in_a_guests_place(site: Site) -> None:
    """Another host key than the one that was made for the guest: held at once, whatever tries the site allows."""
    with trouble.image("impostor", fault="host-key"):
        job_id = site.submit("-vm", "img=impostor", stdin="echo RAN\n")
        facts = trouble.check_held(site, job_id, "another host key")
        assert facts["start_count"] == "1"
        assert any("another host key" in site.stored(node, job_id, name="vtorque.log") for node in ("cn1", "cn2"))
        site.wait_for("the record on the front end", lambda: site.stored("fe", job_id))
        printed = site.on("fe", "vmgr", "job", "show", job_id, user="alice").stdout
        assert "held" in printed
        assert "another host key" in printed
        trouble.drop(site, job_id)
