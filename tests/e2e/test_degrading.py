# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is degrading: what becomes of the jobs that are there (`on_degrading`)."""

from __future__ import annotations

import pytest

from .conftest import Site
from .test_checkpoint import KEYS, SETTINGS, check_lines, checkpoints, storing
from .test_saved import RING
from .trouble import changed, sweep, wait_in_guest

CHECK = "/run/check-node"


@pytest.mark.full
def test_checkpoint_is_ordered_once_when_a_node_of_the_job_is_degrading(site: Site) -> None:
    with storing(site):
        site.root("fe", "rm -f /home/alice/go")
        job_id = site.submit("-l", "nodes=1:ppn=2", *KEYS, stdin=RING)
        node = wait_in_guest(site, job_id)
        with changed(site, (node,), health_sources=[f"program nhc {CHECK}"], on_degrading="checkpoint", **SETTINGS):
            site.root(node, f"printf '#!/bin/sh\\necho EVENT: a fan is slow\\n' >{CHECK}; chmod 755 {CHECK}")
            done = sweep(site, node)
            assert f"{job_id}.1: a checkpoint is ordered" in done.stdout, done.stderr
            site.wait_for("the checkpoint", lambda: "1" in checkpoints(site, job_id))
            assert "a checkpoint is ordered" not in sweep(site, node).stdout
            site.root(node, f"printf '#!/bin/sh\\n' >{CHECK}")
            site.wait_for("the end of the note", lambda: sweep(site, node).returncode == 0)
            site.root(node, f"rm {CHECK}")
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
    assert ended.exit_status == 0, ended.err
    check_lines(ended.out)
