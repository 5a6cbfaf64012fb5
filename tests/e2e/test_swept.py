# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an epilogue could not take away is taken by the sweep, and what lives is left alone."""

from __future__ import annotations

import pytest

from .conftest import Site
from .trouble import WAITS, guest_on, revive, sweep, wait_in_guest

PYTHON = "/opt/vtorque/venv/bin/python"
SUSPECTS = "/run/vtorque/suspects.json"


@pytest.mark.full
@pytest.mark.both
def test_what_epilogues_left_is_swept_after_two_looks(site: Site) -> None:
    """On one node libvirt was dead, on the other our program could not be started; a living job lies between."""
    jobs = {node: site.submit(*site.batch.at(node), stdin=WAITS) for node in ("cn1", "cn2")}
    for job_id in jobs.values():
        wait_in_guest(site, job_id)
    site.root("cn1", "kill -9 $(cat /run/libvirtd.pid)")
    site.root("cn2", f"mount --bind /bin/false {PYTHON}")
    try:
        for job_id in jobs.values():
            assert site.on("fe", *site.batch.signal, "URG", job_id, user="alice").returncode == 0
        ended = [site.end(job_id) for job_id in jobs.values()]
    finally:
        site.root("cn1", revive("libvirt"))
        site.root("cn2", f"umount {PYTHON}")
    assert [one.exit_status for one in ended] == [0, 0]
    assert all(any(thing.startswith(f"{node}: domain ") for thing in site.left()) for node in jobs)
    living = site.submit(*site.batch.on_first, stdin=WAITS)
    wait_in_guest(site, living)
    for node, job_id in jobs.items():
        # an epilogue that saw it may have had a look of its own, and the job between may take a minute to start
        site.root(node, f"rm -f {SUSPECTS}")
        done = sweep(site, node)
        assert (done.returncode, done.stderr) == (1, "")
        assert f"{site.batch.full_id(job_id)}.1: found over" in done.stdout
    site.wait_for("the second look", lambda: all([sweep(site, node).returncode == 0 for node in jobs]))
    assert guest_on(site, "cn1") != ""
    assert guest_on(site, "cn2") == ""
    assert site.on("fe", *site.batch.signal, "URG", living, user="alice").returncode == 0
    assert site.end(living).exit_status == 0
