# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is degrading: what becomes of the jobs that are there (`on_degrading`)."""

from __future__ import annotations

import re

import pytest

from .conftest import Result, Site
from .test_checkpoint import KEYS, SETTINGS, check_lines, checkpoints, storing
from .test_evacuate import HOME, LINES, NOTE, SPARE, domains, spare_node
from .test_saved import RING
from .trouble import changed, sweep, wait_in_guest

CHECK = "/run/check-node"


def begin_event(site: Site, node: str) -> Result[str]:
    """Let the node's program of health complain, and return its sweep."""
    site.root(node, f"printf '#!/bin/sh\\necho EVENT: a fan is slow\\n' >{CHECK}; chmod 755 {CHECK}")
    return sweep(site, node)


def end_event(site: Site, node: str) -> None:
    """Let it complain no more."""
    site.root(node, f"printf '#!/bin/sh\\n' >{CHECK}")
    site.wait_for("the end of the note", lambda: sweep(site, node).returncode == 0)
    site.root(node, f"rm {CHECK}")


@pytest.mark.full
def test_checkpoint_is_ordered_once_when_a_node_of_the_job_is_degrading(site: Site) -> None:
    with storing(site):
        site.root("fe", "rm -f /home/alice/go")
        job_id = site.submit("-l", "nodes=1:ppn=2", *KEYS, stdin=RING)
        node = wait_in_guest(site, job_id)
        with changed(site, (node,), health_sources=[f"program nhc {CHECK}"], on_degrading="checkpoint", **SETTINGS):
            done = begin_event(site, node)
            assert f"{job_id}.1: a checkpoint is ordered" in done.stdout, done.stderr
            site.wait_for("the checkpoint", lambda: "1" in checkpoints(site, job_id))
            assert "a checkpoint is ordered" not in sweep(site, node).stdout
            end_event(site, node)
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
    assert ended.exit_status == 0, ended.err
    check_lines(ended.out)


@pytest.mark.full
@pytest.mark.both
def test_guest_is_moved_off_a_node_that_is_degrading(site: Site) -> None:
    with spare_node(site):
        job_id = site.submit(stdin=LINES)
        node = wait_in_guest(site, job_id)
        (guest,) = domains(site, node)
        settings = {"health_sources": [f"program nhc {CHECK} hosts={node}"], "on_degrading": "evacuate"}
        with changed(site, (node,), spare_nodes=[SPARE], **settings, **HOME):
            done = begin_event(site, node)
            assert re.search(
                rf"{re.escape(site.full_id(job_id))}\.\d+: a move to a spare node is ordered", done.stdout
            ), done.stderr
            site.wait_for("the guest to be there", lambda: domains(site, SPARE) == [guest] and not domains(site, node))
            assert "is ordered" not in sweep(site, node).stdout
            end_event(site, node)
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
        assert (ended.exit_status, ended.out.splitlines()[-1]) == (0, guest), ended.err
        site.wait_for("the spare node to be free", lambda: site.nodes()[SPARE].note == NOTE, seen=site.nodes)
