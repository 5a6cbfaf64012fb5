# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that are lost while their job runs, and one that only libvirt loses for a while."""

from __future__ import annotations

import pytest

from .conftest import Site
from .trouble import (
    SISTER,
    WAITS,
    check_message,
    guest_on,
    kill,
    left_on,
    restart_libvirt,
    wait_in_guest,
)

HOOKS = "/etc/vtorque/guest-hooks"
PANICS = """#!/bin/sh
setsid sh -c 'until [ -e /tmp/now ]; do sleep 1; done; echo c >/proc/sysrq-trigger' </dev/null >/dev/null 2>&1 &
"""


@pytest.mark.both
def test_guest_that_ends_or_stops_under_its_job(site: Site) -> None:
    """The job ends at once with 69, and says which guest it was and what libvirt told of it."""
    jobs = [site.submit(stdin="echo up; sleep 600\n") for _ in range(2)]
    acts = {job_id: act for job_id, act in zip(jobs, ("destroy", "suspend"), strict=True)}
    for job_id, act in acts.items():
        node = wait_in_guest(site, job_id)
        guest = guest_on(site, node)
        site.root(node, f"virsh {act} {guest}")
        ended = site.end(job_id)
        assert left_on(site, node) == []
        assert (ended.exit_status, ended.out) == (69, "up\n")
        check_message(ended.err, guest, "destroyed" if act == "destroy" else "paused")
        assert '"lost"' in site.stored(node, job_id)


@pytest.mark.both
@pytest.mark.full
def test_guest_of_a_sister_whose_kernel_panics_under_its_job(site: Site) -> None:
    """Also where nothing in the guest tells the host of it, as in the tiny one: it restarts, and that is its end."""
    write = f"mkdir -p {HOOKS} && cat >{HOOKS}/prologue.parallel"
    done = site.on(SISTER, "/bin/sh", "-c", write, stdin=PANICS)
    assert done.returncode == 0, done.stderr
    try:
        job_id = site.submit(
            *site.batch.pair,
            stdin='echo up; ssh "$(tail -n 1 "$' + site.batch.hosts + '")" "touch /tmp/now" </dev/null; sleep 600\n',
        )
        wait_in_guest(site, job_id)
        ended = site.end(job_id)
    finally:
        site.root(SISTER, f"rm -r {HOOKS}")
    guest = f"v{SISTER}-1"
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out) == (69, "up\n")
    check_message(ended.err, f"guest {guest} on {SISTER} was lost")
    assert "Kernel panic" in site.stored(SISTER, job_id, name=f"{guest}.console.log")


@pytest.mark.both
@pytest.mark.full
def test_mount_that_dies_under_its_job(site: Site) -> None:
    """The guest lives, and whatever looks at the mount hangs: the job ends at once, and says which mount it was."""
    job_id = site.submit(stdin="echo up; sleep 600\n")
    node = wait_in_guest(site, job_id)
    guest = guest_on(site, node)
    kill(site, node, "pgrep -f '^vtorque-virtiofsd:'")
    ended = site.end(job_id)
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out) == (69, "up\n")
    check_message(ended.err, guest, "its mount /home/alice is dead")
    assert '"lost"' in site.stored(node, job_id)


@pytest.mark.both
@pytest.mark.full
def test_libvirt_that_dies_under_a_job(site: Site) -> None:
    """The guest lives on without it, and its job ends well when it is back by then."""
    job_id = site.submit(*site.batch.on_first, stdin=WAITS)
    node = wait_in_guest(site, job_id)
    restart_libvirt(site, node)
    assert site.facts(job_id)["job_state"] == "R"
    assert site.on("fe", *site.batch.signal, "URG", job_id, user="alice").returncode == 0
    ended = site.end(job_id)
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")
