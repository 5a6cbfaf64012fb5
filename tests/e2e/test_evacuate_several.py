# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr node evacuate` of a node that has several guests of a job, which speak with each other all the time.

Each goes to a spare node of its own.  The lab of this module has four compute nodes.
"""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest

from .conftest import JOB_TIMEOUT_S, Site, site_of
from .mac_ports import one_port_each
from .test_checkpoint import check_lines
from .test_evacuate import HOME, NOTE, domains, evacuate
from .test_mpi import DEBIAN, programs, ring
from .trouble import MOM_CONFIG, REREAD, changed, home_server, wait_in_guest

START_WAYS = ("fast",)  # a lab of other nodes

__all__ = ["programs", "ring"]

SOURCE, REFUSES, *TAKE = NODES = ("cn1", "cn2", "cn3", "cn4")
JOB = ("-l", f"nodes={SOURCE}:ppn=2", "-vm", "vms_per_node=2,vcpus=1,ram=192M")
PATIENCE = {"prologue_timeout": 1500, "timeout": 1400, "ssh_timeout": 300, "nfs_timeout": 60}
"""Two guests boot at once, on a machine that others may use; no time is measured here."""
LINES = """
echo up
other=$(uniq $PBS_NODEFILE | tail -n 1)
ssh $other 'i=0; until [ -e ~/go ]; do i=$((i + 1)); echo line $i; sleep 0.2; done; hostname'
echo ended $?
"""
"""All lines but the first and the last come over a connection between the two guests."""


@pytest.fixture(scope="module")
def site() -> t.Iterator[Site]:
    """A lab of four compute nodes beside that of all tests."""
    here = site_of("torque", "-four")
    with contextlib.ExitStack() as stack:
        stack.callback(here.run, "down")
        here.up("--batch", "torque", "--nodes", ",".join(("fe", *NODES)))
        yield here


@contextlib.contextmanager
def spare_nodes(site: Site) -> t.Iterator[None]:
    """All nodes but the first are the site's spare ones; one of them does not know it, and takes no guest."""
    spares = (REFUSES, *TAKE)
    with home_server(site), changed(site, (SOURCE, *TAKE), spare_nodes=list(spares), **HOME, **PATIENCE):
        site.root(SOURCE, f"echo '$prologalarm 1600' >>{MOM_CONFIG}; {REREAD}")
        site.root("fe", "rm -f /home/alice/go; " + "; ".join(f"pbsnodes -o -N '{NOTE}' {node}" for node in spares))
        try:
            yield
        finally:
            site.root("fe", "; ".join(site.batch.clear.format(node) for node in spares))


@pytest.mark.full
def test_guests_of_a_job_go_to_spare_nodes_of_their_own_past_one_that_refuses_and_speak_on(site: Site) -> None:
    with spare_nodes(site), one_port_each(site) as ports:
        job_id = site.submit(*JOB, stdin=LINES)
        assert wait_in_guest(site, job_id) == SOURCE
        guests = sorted(domains(site, SOURCE))
        assert len(guests) == 2
        site.wait_for("the first line of the other guest", lambda: "line" in site.output_so_far(job_id))
        status, rows = evacuate(site)
        assert (status, [row["why"] for row in rows]) == (0, ["", ""])
        assert {row["guest"]: row["target"] for row in rows} == dict(zip(guests, TAKE, strict=True))
        assert (domains(site, SOURCE), domains(site, REFUSES)) == ([], [])
        assert [domains(site, node) for node in TAKE] == [[guest] for guest in guests]
        assert site.nodes()[REFUSES].note == NOTE
        before = site.output_so_far(job_id)
        site.wait_for("more lines", lambda: len(site.output_so_far(job_id)) > len(before))
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
        assert (ended.exit_status, ended.out.splitlines()[-2:]) == (0, [guests[1], "ended 0"]), ended.err
        check_lines(ended.out)
        moves = json.loads(site.stored(SOURCE, job_id))["moves"]
        assert [(one["guest"], one["target"]) for one in moves] == list(zip(guests, TAKE, strict=True))
        free = [NOTE] * 3
        site.wait_for("free spares", lambda: [site.nodes()[one].note for one in (REFUSES, *TAKE)] == free)
    assert [ports[one["mac"]][-1] for one in moves] == TAKE


@pytest.mark.full
def test_ring_of_mpi_goes_on_while_its_guests_move(site: Site, ring: str) -> None:
    """Each message is checked by who gets it."""
    script = f'HOSTS=$PBS_NODEFILE\necho up\n{ring}\nmpirun --hostfile "$HOSTS" /tmp/ring ~/go\necho ended $?\n'
    keys = f"vms_per_node=2,{DEBIAN},vcpus=1"
    with spare_nodes(site), one_port_each(site) as ports:
        job_id = site.submit("-l", f"nodes={SOURCE}:ppn=2", "-vm", keys, stdin=script)

        def wait_for_rounds(number: int) -> None:
            wanted = site.output_so_far(job_id).count("\nline ") + number
            patience_s = PATIENCE["prologue_timeout"] + JOB_TIMEOUT_S
            rounds = f"round {wanted} of the ring"
            site.wait_for(rounds, lambda: site.output_so_far(job_id).count("\nline ") >= wanted, timeout_s=patience_s)

        wait_for_rounds(2)
        status, rows = evacuate(site)
        assert (status, [(row["target"], row["why"]) for row in rows]) == (0, [(node, "") for node in TAKE])
        assert domains(site, SOURCE) == []
        wait_for_rounds(20)
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
        assert (ended.exit_status, ended.out.splitlines()[-1]) == (0, "ended 0"), (ended.out, ended.err)
        check_lines(ended.out)
        assert "ring broken" not in ended.out
        moves = json.loads(site.stored(SOURCE, job_id))["moves"]
    assert [ports[one["mac"]][-1] for one in moves] == TAKE


@pytest.mark.full
def test_guest_for_which_no_spare_node_is_left_stays_while_the_other_one_has_gone(site: Site) -> None:
    with spare_nodes(site), one_port_each(site):
        site.root("fe", f"pbsnodes -o -N 'fan is broken' {TAKE[1]}")
        job_id = site.submit(*JOB, stdin=LINES)
        wait_in_guest(site, job_id)
        guests = sorted(domains(site, SOURCE))
        status, rows = evacuate(site)
        assert (status, [row["target"] for row in rows]) == (5, [TAKE[0], ""])
        assert "fan is broken" in rows[1]["why"]
        assert (domains(site, SOURCE), domains(site, TAKE[0])) == (guests[1:], guests[:1])
        site.root("fe", f"pbsnodes -o -N '{NOTE}' {TAKE[1]}")
        status, rows = evacuate(site)
        assert (status, [(row["guest"], row["target"]) for row in rows]) == (0, [(guests[1], TAKE[1])])
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
        assert (ended.exit_status, ended.out.splitlines()[-1]) == (0, "ended 0"), ended.err
        check_lines(ended.out)
