# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the nodes of a VM job ask the controller: about this job alone, however many there are."""

from __future__ import annotations

import contextlib
import typing as t

import pytest

from ..trouble import NODES
from .conftest import SlurmSite
from .test_bare_jobs import requests

COMMANDS = ("squeue", "scontrol", "sinfo")
COUNTING = """#!/bin/sh
echo "${0##*/} $*" >>/run/lab/asked
exec /run/lab/asking/${0##*/} "$@"
"""


@contextlib.contextmanager
def counted(site: SlurmSite) -> t.Iterator[None]:
    """Each node notes what it asks of Slurm."""
    each = " ".join(COMMANDS)
    for node in NODES:
        site.root(node, "mkdir -p /run/lab/asking && rm -f /run/lab/asked")
        assert site.on(node, "sh", "-c", "cat >/run/lab/counting", stdin=COUNTING).returncode == 0
        site.root(node, "chmod 755 /run/lab/counting")
        mount = "cp /usr/bin/$name /run/lab/asking/ && mount --bind /run/lab/counting /usr/bin/$name"
        site.root(node, f"for name in {each}; do {mount} || exit; done")
    try:
        yield
    finally:
        for node in NODES:
            site.root(node, f"for name in {each}; do umount /usr/bin/$name; done; cd /run/lab && rm -r asking counting")


ONE = ["squeue", "squeue", "scontrol"]
"""A question about one job: which one is meant, what squeue tells of it, and what it was given on each node."""


@pytest.mark.full
def test_nodes_of_a_job_ask_for_this_job_alone_and_each_other_node_once_a_start(site: SlurmSite) -> None:
    """The first node also asks every two seconds of a boot whether the job is wanted; an end asks on no other node."""
    with counted(site):
        site.root("fe", "sdiag -r")
        number = site.submit_vm("#!/bin/sh\necho ran\n", "-N2", "-n4")
        site.wait_for("the end of both Epilogs", lambda: requests(site).get("MESSAGE_EPILOG_COMPLETE", 0) == 2)
        asked = {node: site.root(node, "cat /run/lab/asked").splitlines() for node in NODES}
    assert site.read(f"/home/alice/slurm-{number}.out") == "ran\n"
    for node, lines in asked.items():
        # its processors, and who else has some of them; what slurmd has here
        of_node = ("sinfo --json", f"squeue -h -a -t all -w {node} ", "scontrol listpids")
        assert [line for line in lines if number not in line.split() and not line.startswith(of_node)] == []
    assert [line.split()[0] for line in asked["cn2"] if number in line.split()] == ONE
