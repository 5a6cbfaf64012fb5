# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ring of messages over two nodes with two guests each outlives both of its nodes, and ends on two others.

Every message is checked by who gets it, so that a guest that was taken back alone, or to another moment than the
others, ends the ring.  The lab of this module has four compute nodes.
"""

from __future__ import annotations

import contextlib
import pathlib
import random
import typing as t

import pytest

from .conftest import JOB_TIMEOUT_S, Ended, Site, site_of
from .test_checkpoint import SETTINGS, STORE, check_lines, checkpoints
from .test_endings import lost
from .test_mpi import DEBIAN, programs, ring
from .test_shared_memory import built
from .trouble import changed, home_server, sweep

START_WAYS = ("fast",)  # a lab of other nodes

__all__ = ["programs", "ring"]

FORMER, LATER = ("cn1", "cn2"), ("cn3", "cn4")
GO = "/home/alice/go"
LINES = 25
"""After so many more at most the power goes, while a checkpoint is on its way or after it."""


@pytest.fixture(scope="module")
def site() -> t.Iterator[Site]:
    """A lab of four compute nodes beside that of all tests."""
    here = site_of("torque", "-four")
    with contextlib.ExitStack() as stack:
        stack.callback(here.run, "down")
        here.up("--batch", "torque", "--nodes", ",".join(("fe", *FORMER, *LATER)))
        yield here


def count(site: Site, job_id: str) -> int:
    """Return how many rounds the ring has printed."""
    return site.output_so_far(job_id).count("\nline ")


def wait_for_rounds(site: Site, job_id: str, wanted: int) -> None:
    """Wait until the ring has printed so many rounds; it must not end before."""

    def reached() -> bool:
        assert site.facts(job_id)["job_state"] in "QR", site.end(job_id)
        return count(site, job_id) >= wanted

    site.wait_for(f"round {wanted}", reached, timeout_s=3 * JOB_TIMEOUT_S)


def outlive(site: Site, keys: str, script: str, chance: random.Random) -> Ended:
    """Save a job three times, have both of its nodes lose their power at some moment, and let it end on others."""
    patience_s = 3 * JOB_TIMEOUT_S
    site.root("fe", f"mkdir -m 700 {STORE}; rm -f {GO}; pbsnodes -o {' '.join(LATER)}")
    with home_server(site), contextlib.ExitStack() as stack:
        stack.callback(site.root, "fe", f"rm -rf {STORE}; pbsnodes -c {' '.join((*FORMER, *LATER))}")
        stack.enter_context(changed(site, ("fe", *LATER), **SETTINGS))
        with changed(site, FORMER, **SETTINGS):
            job_id = site.submit("-l", "nodes=2:ppn=2", "-vm", f"{keys},vms_per_node=2,checkpoint=on", stdin=script)
            site.runs(job_id)
            wait_for_rounds(site, job_id, 2)
            for generation in (1, 2, 3):
                asked = site.on("fe", "vmgr", "job", "checkpoint", job_id, user="alice")
                assert asked.returncode == 0, asked.stderr
                if generation < 3:
                    site.wait_for("the checkpoint", lambda n=generation: str(n) in checkpoints(site, job_id))
                    wait_for_rounds(site, job_id, count(site, job_id) + LINES)  # all of its guests have gone on
            wait_for_rounds(site, job_id, count(site, job_id) + chance.randrange(LINES))
            assert len([name for name in checkpoints(site, job_id) if name.isdecimal()]) <= 2
            site.root("fe", f"qhold -h u {job_id}")
            with lost(site, FORMER[0]), lost(site, FORMER[1]):
                pass
            site.wait_state(job_id, "H")
        with changed(site, FORMER, **SETTINGS):  # a node that boots has the lab's own configuration
            assert all(sweep(site, node).returncode == 0 for node in FORMER)
            site.root("fe", f"pbsnodes -o {' '.join(FORMER)}; pbsnodes -c {' '.join(LATER)}; qrls -h u {job_id}")
            site.wait_for("the start", lambda: site.facts(job_id)["job_state"] in "RH", timeout_s=patience_s)
            site.wait_for("the ring to go on", lambda: "line" in site.output_so_far(job_id), timeout_s=patience_s)
            hosts = {slot.partition("/")[0] for slot in site.facts(job_id)["exec_host"].split("+")}
            assert hosts == set(LATER)
            site.root("fe", f"touch {GO}")
            return site.end(job_id)


def check(ended: Ended) -> None:
    """The ring ended well, and each round was printed once."""
    assert ended.exit_status == 0, (ended.out, ended.err)
    check_lines(ended.out)
    assert "ring broken" not in ended.out
    assert ended.out.count("\nline ") > 10
    assert ended.out.splitlines()[-1] == "ended 0"


RING = """
echo up
set -- $(uniq $PBS_NODEFILE)
rank=0
for host; do
    [ $rank = 0 ] || ssh $host "~/tcp_ring $rank ~/go $*" </dev/null &
    rank=$((rank + 1))
done
~/tcp_ring 0 ~/go "$@" && wait
echo ended $?
"""


@pytest.mark.full
def test_ring_over_tcp_outlives_the_power_of_its_nodes(
    site: Site, tmp_path: pathlib.Path, record_property: t.Callable[[str, object], None]
) -> None:
    seed = random.randrange(1 << 16)
    record_property("seed", seed)
    site.write("/home/alice/tcp_ring", built(pathlib.Path(__file__).with_name("tcp_ring.c"), tmp_path))
    site.root("fe", "chmod 755 /home/alice/tcp_ring")
    check(outlive(site, "vcpus=1,ram=192M", RING, random.Random(seed)))


@pytest.mark.full
def test_ring_of_mpi_outlives_the_power_of_its_nodes(
    site: Site, ring: str, record_property: t.Callable[[str, object], None]
) -> None:
    seed = random.randrange(1 << 16)
    record_property("seed", seed)
    script = f'HOSTS=$PBS_NODEFILE\necho up\n{ring}\nmpirun --hostfile "$HOSTS" /tmp/ring ~/go\necho ended $?\n'
    check(outlive(site, f"{DEBIAN},vcpus=1", script, random.Random(seed)))
