# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers that are not true, of the batch server and in the guests' network: nothing runs on bare metal for them.

Seen to fail: until hooks held the server's word against the MOM's, the guest of "a user whom there is" was made and
stood in the record, although the job's shell let nobody in.
"""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from . import trouble
from .conftest import Site

LIES = {
    "nothing": "true",
    "no XML": "echo '<Data><Job>'",
    "half": '/run/lab/qstat "$@" | head -c 900',
    "another job": "/run/lab/qstat \"$@\" | sed 's/<Job_Id>[0-9]*/<Job_Id>99999/'",
    "another owner": "/run/lab/qstat \"$@\" | sed 's/alice/bob/g'",
    "a user whom there is": '/run/lab/qstat "$@" | sed \'s/alice@/bob@/; s/<euser>alice/<euser>bob/; '
    "s/<egroup>alice/<egroup>HPC Users/'",
    "root's job": "/run/lab/qstat \"$@\" | sed 's/alice/root/g'",
    "another node": "/run/lab/qstat \"$@\" | sed 's/cn1/cn9/g'",
    "more than anybody reads": "yes '<Data>'",
}
STATE = "/var/spool/torque/server_priv/state.json"


@contextlib.contextmanager
def lying(site: Site, node: str, lie: str) -> t.Iterator[None]:
    """`qstat` of a node answers by a line of shell of ours; the real one is /run/lab/qstat."""
    real = site.root(node, "readlink -f $(command -v qstat)").strip()
    done = site.on(node, "/bin/sh", "-c", "cat >/run/lab/lie && chmod 755 /run/lab/lie", stdin=f"#!/bin/sh\n{lie}\n")
    assert done.returncode == 0, done.stderr
    site.root(node, f"cp {real} /run/lab/qstat && mount --bind /run/lab/lie {real}")
    try:
        yield
    finally:
        site.root(node, f"umount {real}; rm -f /run/lab/lie /run/lab/qstat")


@pytest.mark.full
@pytest.mark.parametrize("lie", LIES)
def test_server_that_lies_of_a_job(site: Site, lie: str) -> None:
    """The script runs nowhere, nobody else's guest is made, and no node is blamed for it."""
    with trouble.changed(site, node_fault_retries=1):
        with lying(site, trouble.SUPERIOR, LIES[lie]):
            job_id = site.submit("-l", f"nodes={trouble.SUPERIOR}:ppn=2", stdin="echo RAN\n")
            facts = site.wait_state(job_id, "CH")
            assert trouble.guest_on(site, trouble.SUPERIOR) == ""
        text = site.read(facts["Error_Path"].partition(":")[2])
        assert text.startswith("vtorque: "), text
        assert "Traceback" not in text
        assert "RAN" not in site.read(facts["Output_Path"].partition(":")[2])
        assert '"guests"' not in site.root(trouble.SUPERIOR, f"cat /var/lib/vtorque/records/{job_id}.*/record.json")
        if facts["job_state"] == "H":
            trouble.drop(site, job_id)
        else:
            assert facts["exit_status"] != "0"
        site.wait_for("the node to be clean", lambda: not site.left_on_nodes(), seen=site.left_on_nodes)
    trouble.check_nobody_blamed(site)


@pytest.mark.full
def test_server_from_an_old_backup_knows_no_job(site: Site) -> None:
    """The MOMs end what it does not know, with its guests; a job of after that is as any other."""
    site.root("fe", f"cp -p {STATE} /run/lab/backup")
    job_id = site.submit(*trouble.PAIR, stdin=trouble.WAITS)
    assert trouble.wait_in_guest(site, job_id) == trouble.SUPERIOR
    site.root("fe", "kill $(cat /run/lab/server.pid)")
    site.root("fe", f"mv /run/lab/backup {STATE} && {trouble.revive('batch')}")
    assert job_id not in site.jobs()
    site.wait_for("both nodes to be clean", lambda: not site.left_on_nodes(), seen=site.left_on_nodes)
    for node in trouble.NODES:
        assert trouble.sweep(site, node).returncode == 0
    again = site.submit(*trouble.PAIR, stdin=trouble.WAITS)
    trouble.wait_in_guest(site, again)
    ended = trouble.finish(site, again)
    assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")


@pytest.mark.full
def test_dhcp_server_that_gives_an_address_twice(site: Site) -> None:
    """Another host has the guest's address already, and answers by ssh: nobody is taken for the guest but the guest."""
    where = ("-l", f"nodes={trouble.SUPERIOR}:ppn=2")
    first = site.job(*where, stdin="echo RAN\n")
    address = json.loads(site.stored(trouble.SUPERIOR, first.job_id))["guests"][0]["address"]
    # whoever has an interface's MAC has its former address again
    site.root(trouble.SISTER, f"ip address add {address}/32 dev br0; ip neighbour flush all")
    try:
        with trouble.changed(site, node_fault_retries=1):
            job_id = site.submit(*where, stdin="echo RAN; hostname\n")
            facts = site.wait_state(job_id, "CH")
    finally:
        site.root(trouble.SISTER, f"ip address del {address}/32 dev br0")
    if facts["job_state"] == "H":  # the other one was heard first
        assert site.read(facts["Error_Path"].partition(":")[2]).startswith("vtorque: ")
        assert site.read(facts["Output_Path"].partition(":")[2]) == ""
        trouble.drop(site, job_id)
    else:
        ended = site.end(job_id)
        assert (ended.exit_status, ended.out, ended.err) == (0, "RAN\nvcn1-1\n", "")
    for node in trouble.NODES:
        site.root(node, "ip neighbour flush all")
    trouble.check_nobody_blamed(site)
