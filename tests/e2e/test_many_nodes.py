# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several guests on several nodes: what the job sees of them.  Every test also ends with nothing left (conftest.py)."""

from __future__ import annotations

import contextlib
import re
import typing as t

import pytest

from .conftest import BOOTED, Site, cases
from .trouble import changed, check_held, drop, feed

START_WAYS = cases(BOOTED, "fast")

GUESTS = "vcpus=3,ram=192M,vms_per_node=2"
LOOK = """#!/bin/sh
hostname
echo "np $PBS_NP nodes $PBS_NUM_NODES ppn $PBS_NUM_PPN file $PBS_NODEFILE"
sed 's/^/slot /' "$PBS_NODEFILE"
guests=$(sort -u "$PBS_NODEFILE")
for from in $guests; do
    ssh "$from" /bin/sh -s "$PBS_NODEFILE" $guests <<'END'
file=$1; shift
for to; do echo "way $(hostname) $(ssh "$to" 'hostname; id -un' </dev/null | xargs)"; done
echo file $(md5sum <"$file"); echo who $(id)
echo size $(nproc) $(sed -n "s/^MemTotal: *//p" /proc/meminfo)
END
done
echo file $(md5sum <"$PBS_NODEFILE"); echo who $(id)
ssh nobody-else true
echo "status $?"
"""


def test_guests_of_two_nodes_are_one_job(site: Site) -> None:
    """One line a virtual processor, counts of the guests, the same node file everywhere, and ssh from each to each."""
    site.write("/home/alice/look.sh", LOOK)
    ended = site.job("-l", "nodes=2", "-vm", GUESTS, "/home/alice/look.sh")
    lines = ended.out.splitlines()
    slots = [line.split()[1] for line in lines if line.startswith("slot ")]
    assert slots[0] == lines[0]
    assert re.fullmatch(r"vcn[12]-1", lines[0])
    guests = ["vcn1-1", "vcn1-2", "vcn2-1", "vcn2-2"]
    assert sorted(slots) == [name for name in guests for _processor in range(3)]
    assert slots == [name for name in slots[::3] for _processor in range(3)]
    assert slots[0][:4] == slots[3][:4]
    assert lines[1] == f"np 12 nodes 4 ppn 3 file /var/spool/torque/aux//{ended.job_id}"
    ways = {tuple(line.split()[1:]) for line in lines if line.startswith("way ")}
    assert ways == {(one, other, "alice") for one in guests for other in guests}
    for word in ("file", "who"):
        output = [line for line in lines if line.startswith(f"{word} ")]
        assert len(output) == len(guests) + 1
        assert len(set(output)) == 1
    assert "groups=1001(alice),2000(HPC Users)" in output[0]
    sizes = [line.split()[1:] for line in lines if line.startswith("size ")]
    assert len(sizes) == len(guests)
    # of its memory a kernel keeps a part for itself
    assert all(vcpus == "3" and 96 << 10 < int(kib) <= 192 << 10 for vcpus, kib, _unit in sizes), sizes
    assert lines[-1] == "status 255"
    assert "Host key verification failed" in ended.err or "not known" in ended.err
    assert ended.exit_status == 0


@pytest.mark.full
def test_guests_of_one_node_are_at_once_and_in_order(site: Site) -> None:
    """As many lines as guests with a virtual processor each, in the order of the ranks."""
    script = 'echo "$PBS_NP $PBS_NUM_NODES $PBS_NUM_PPN"; cat "$PBS_NODEFILE"\n'
    ended = site.job("-vm", "vcpus=1,ram=192M,vms_per_node=3", stdin=script)
    counts, *names = ended.out.splitlines()
    assert counts == "3 3 1"
    assert [name[-2:] for name in names] == ["-1", "-2", "-3"]


@pytest.mark.full
def test_member_of_an_array_over_two_nodes(site: Site) -> None:
    """Ids of members hold brackets, which no name of a file or a guest of theirs may."""
    job_id = site.submit("-t", "1", "-l", "nodes=cn1:ppn=2+cn2:ppn=2", "-vm", "vcpus=1,ram=192M",
                         stdin='echo "$PBS_JOBID"; cat "$PBS_NODEFILE"\n')  # fmt: skip
    member = job_id.replace("[]", "[1]")
    ended = site.end(member)
    assert ended.out.splitlines() == [member, "vcn1-1", "vcn2-1"]


PLACE = "/etc/vtorque/guest-hooks"
"""Of the site's scripts in guests."""


@contextlib.contextmanager
def scripts(site: Site, **texts: str) -> t.Iterator[None]:
    """The site's scripts in guests, on both nodes; `_` in a name is a dot."""
    nodes = ("cn1", "cn2")
    try:
        for node in nodes:
            for name, text in texts.items():
                feed(site, node, f"mkdir -p {PLACE}; cat >{PLACE}/{name.replace('_', '.')}", text)
        yield
    finally:
        for node in nodes:
            site.root(node, f"rm -r {PLACE}")


@pytest.mark.full
@pytest.mark.both
def test_the_sites_scripts_run_in_guests_as_root(site: Site) -> None:
    """Rank 0 has its own, the others theirs, each told of its job; an epilogue that fails keeps nobody, and is told."""
    before = """#!/bin/sh
exec >/tmp/of-site
echo "$1 $VTORQUE_RANK $NUMBER $VTORQUE_USER $VTORQUE_UID $(id -u) $(umask)" $(sort -u "$HOSTS")
""".replace("NUMBER", site.batch.number).replace("HOSTS", site.batch.hosts)
    texts = {
        "prologue": before.replace("$1", "first"),
        "prologue_parallel": before.replace("$1", "other"),
        "epilogue_parallel": "#!/bin/sh\necho sorry\nexit 5\n",
    }
    with scripts(site, **texts):
        look = f'for host in $(cat "${site.batch.hosts}"); do ssh "$host" cat /tmp/of-site </dev/null; done\n'
        ended = site.job(*site.batch.pair, "-vm", "vcpus=1,ram=192M", stdin=look)
        same = f"{ended.job_id} alice 1001 0 0022 vcn1-1 vcn2-1"
        assert ended.out.splitlines() == [f"first 0 {same}", f"other 1 {same}"]
        output = site.root("cn2", f"cat /var/lib/vtorque/records/{site.full_id(ended.job_id)}.1/vtorque.log")
        assert "the site's epilogue in guest vcn2-1: ended with status 5: sorry" in output
        _check_failing(site, "cn1", "prologue")


@pytest.mark.full
def test_the_sites_scripts_have_run_when_the_users_prologue_begins(site: Site) -> None:
    """In every guest, also in those that he goes to from there."""
    look = 'for host in $(cat "$PBS_NODEFILE"); do ssh "$host" cat /tmp/of-site </dev/null; done\n'
    site.write("/home/alice/pro.sh", f"#!/bin/sh\n{look}")
    texts = {name: f"#!/bin/sh\necho {name} >/tmp/of-site\n" for name in ("prologue", "prologue_parallel")}
    with scripts(site, **texts):
        ended = site.job("-l", "nodes=cn1+cn2", "-vm", "vcpus=1,ram=192M,vm_prologue=pro.sh", stdin="echo job\n")
    assert (ended.exit_status, ended.err) == (0, "")
    assert ended.out.splitlines() == ["prologue", "prologue_parallel", "job"]


@pytest.mark.both
@pytest.mark.full
def test_a_script_of_the_sites_that_fails_in_a_sisters_guest(site: Site) -> None:
    """As on the mother superior."""
    with scripts(site, prologue="#!/bin/sh\n"):
        _check_failing(site, "cn2", "prologue.parallel")


def _check_failing(site: Site, node: str, name: str) -> None:
    """One that fails is the site's own fault: tried again, then held, and no node is blamed."""
    site.root(node, f"printf '#!/bin/sh\\necho no licence server; exit 3\\n' >{PLACE}/{name}")
    with changed(site, node_fault_retries=1):
        job_id = site.submit(*site.batch.pair, "-vm", "vcpus=1,ram=192M", stdin="echo RAN\n")
        facts = check_held(
            site, job_id, f"the site's prologue in guest v{node}-1: ended with status 3: no licence server",
            f"see {PLACE}",
        )  # fmt: skip
        assert "RAN" not in site.read(facts["Output_Path"].partition(":")[2])
        drop(site, job_id)
    assert all(node.usable and not node.note for node in site.nodes().values())
