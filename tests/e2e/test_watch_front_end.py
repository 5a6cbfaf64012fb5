# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr job watch` on the front end while the job runs on a node: how it stands, as that node's sweep has sent it."""

from __future__ import annotations

import pytest

from .conftest import Site
from .terminal import Terminal
from .trouble import NODES, changed

WAITS = "echo up\nuntil [ -e ~/go ]; do sleep 1; done\n"
PLACE = "/var/lib/vtorque/running"


@pytest.mark.full
def test_front_end_shows_phase_guests_and_work_of_a_job_that_runs_on_a_node(site: Site) -> None:
    """From when it begins, to its owner and root alone; and nothing of that is left when its record has come."""
    with changed(site, NODES, sample_s=1, metrics="record"):
        job_id = site.submit(stdin=WAITS)
        terminal = Terminal(site, "vmgr", "job", "watch", job_id, size=(24, 160))
        node = site.runs(job_id)
        key = f"{site.full_id(job_id)}.1"
        site.wait_for("the job to begin", lambda: "up" in site.output_so_far(job_id))
        site.root(node, "vtorque-sweep")
        assert site.root("fe", f"ls {PLACE}/{key}")
        terminal.expect("phase")
        assert site.on("fe", "test", "-e", f"/var/lib/vtorque/records/{key}").returncode == 1, "it is on its node"
        samples = f"/var/lib/vtorque/records/{key}/samples.jsonl"
        site.wait_for("samples", lambda: int(site.root(node, f"cat {samples} 2>/dev/null | wc -l")) > 3)
        # the sweep sends it again: a minute after it was sent first, which a test need not wait for
        site.root(node, f"touch -d '2 minutes ago' /run/vtorque/jobs/{key}/sent /run/vtorque/jobs/{key}/ready.json")
        site.root(node, "vtorque-sweep")
        assert site.root("fe", f"cat {PLACE}/{key}/samples.jsonl").count('"at"') > 2
        terminal.expect("work")
        assert any(bar in terminal.seen for bar in "▁▂▃▄▅▆▇█"), terminal.seen
        # a node that is silent delays nothing
        assert site.run("unplug", node).returncode == 0
        try:
            done = site.on("fe", "timeout", "5", "vmgr", "job", "watch", job_id, user="alice")
        finally:
            assert site.run("plug", node).returncode == 0
        assert done.returncode == 124, "it was still watching"
        line = done.stdout.splitlines()[0]
        assert "running" in line, done.stdout
        assert f"{node}  1" in line, done.stdout
        # what the server tells of the job is everybody's; how it stands is not
        stranger = site.on("fe", "timeout", "5", "vmgr", "job", "watch", job_id, user="bob")
        assert stranger.stdout.splitlines()[0].endswith(f"{node}  -"), stranger.stdout
        assert site.on("fe", "cat", f"{PLACE}/{key}/record.json", user="bob").returncode != 0
        site.write("/home/alice/go", "")
        ended = site.end(job_id)
        assert ended.exit_status == 0, ended.err
        terminal.expect("finished, exit status 0")
        assert terminal.process.wait(600) == 0
        assert site.root("fe", f"ls {PLACE}").split() == []
    site.on("fe", "rm", "-f", "/home/alice/go", user="alice")
