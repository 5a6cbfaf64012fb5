# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA in guests (`vrdma`), by the kind that needs no hardware: their own kernel over their network card (rxe).

The guest has the distribution's generic kernel and its programs of rdma-core; that kernel needs longer to boot than the
one of other tests, so that all but refusals belong to `FULL=1`.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from .conftest import CHECKOUT, LAB, Site, cases
from .trouble import changed, check_refused, left_on, replace
from .trouble import image as copied_image

IMAGE = "tiny-rdma"
PINGPONG = """
shows() { ibv_devinfo -d rxe0 | sed -n 's/^[ \\t]*\\(state\\|link_layer\\):[ \\t]*//p'; }
ibv_devices | grep -c rxe0
shows
stat -c '%a %n' /dev/infiniband/rdma_cm /dev/infiniband/uverbs0
ulimit -l
peer=$(sort -u "$PBS_NODEFILE" | grep -vxF "$(hostname)")
ssh "$peer" 'ulimit -l'
here=$(hostname)
gid='for n in 0 1 2 3; do case $(cat /sys/class/infiniband/rxe0/ports/1/gids/$n) in *ffff:*) echo $n ;; esac; done'
index=$(eval "$gid")
# the other side may still be about to listen
ssh "$peer" "index=\\$($gid); for try in 1 2 3 4 5 6 7 8 9 10; do
    ibv_rc_pingpong -d rxe0 -g \\$index -n 50 -s 4096 $here && exit; sleep 1; done; exit 1" >peer.out 2>&1 &
timeout 300 ibv_rc_pingpong -d rxe0 -g "$index" -n 50 -s 4096 || echo "no answer: $(cat peer.out)"
wait $! && echo "the peer agrees"
"""


@pytest.fixture(scope="module")
def image() -> str:
    """A guest with verbs, in the pool."""
    line = [LAB[0], "-m", "lab.guests", IMAGE, "--pool", str(CHECKOUT / "build/pool")]
    subprocess.run(line, cwd=CHECKOUT, check=True, timeout=600)
    return IMAGE


@pytest.mark.full
def test_guests_of_two_nodes_reach_each_other_by_verbs(site: Site, image: str) -> None:
    """As the user, whose guests stay confined to their own addresses; and the job's memory may be locked."""
    dry = site.vsub("--dry-run", "-vm", f"img={image},vrdma=true", stdin="true\n").stdout
    assert "command line (rxe)" in dry
    ended = site.job("-l", "nodes=2", "-vm", f"img={image},vrdma=true", stdin=PINGPONG)
    assert (ended.exit_status, ended.err) == (0, ""), ended
    devices, state, layer, *more = ended.out.splitlines()
    assert (devices, state, layer) == ("1", "PORT_ACTIVE (4)", "Ethernet")
    assert more[:4] == ["666 /dev/infiniband/rdma_cm", "666 /dev/infiniband/uverbs0", "unlimited", "unlimited"]
    assert "50 iters in " in ended.out
    assert ended.out.splitlines()[-1] == "the peer agrees"
    record = json.loads(site.root(ended.node, f"/opt/vtorque/bin/vmgr job show {ended.job_id} --json"))
    assert [guest["devices"] for guest in record["guests"]] == ["vrdma:rxe"] * 2


@pytest.mark.full
def test_guest_without_a_request_has_no_device(site: Site, image: str) -> None:
    ended = site.job("-vm", f"img={image}", stdin="ls /sys/class/infiniband /dev/infiniband 2>&1 | wc -l\n")
    assert (ended.exit_status, ended.out.split()) == (0, ["2"])


@pytest.mark.full
def test_job_whose_kernel_has_no_verbs_is_refused_with_the_reason(site: Site) -> None:
    """Of an image whose record does not say it: only the guest can find out."""
    with copied_image("no-verbs"):
        ended = site.job("-vm", "img=no-verbs,vrdma=true", stdin="echo RAN\n")
        check_refused(ended, "vrdma: the image lacks the program rdma (package iproute2)")


def test_request_that_the_site_or_the_image_cannot_meet_is_refused_at_submission(site: Site) -> None:
    refused = site.vsub("-vm", "hypervisor=skvm", stdin="true\n")
    assert refused.returncode != 0
    assert "write kvm, with iocm=true for I/O cores and vrdma=true" in refused.stderr
    with copied_image("recorded") as place:
        record = json.loads((place / "record.json").read_text())
        replace(place / "record.json", json.dumps({**record, "rdma": "no"}).encode())
        refused = site.vsub("-vm", "img=recorded,vrdma=true", stdin="true\n")
        assert "guests of the image recorded@1 have no verbs, as its record says" in refused.stderr
    with changed(site, ("fe",), vrdma_enabled=False):
        refused = site.vsub("-vm", "vrdma=true", stdin="true\n")
        assert "this site has switched it off (vrdma_enabled)" in refused.stderr


@pytest.mark.parametrize("lacks", cases(("the plan", "the node"), "the plan"))
def test_node_that_cannot_give_the_device_refuses_the_job_before_anything_is_made(site: Site, lacks: str) -> None:
    """Both the mother superior, for all nodes of the job, and each node for itself."""
    elsewhere = {"vrdma_nodes": "gn.*"}
    nodes, more = (("cn1",), elsewhere) if lacks == "the plan" else (("cn2",), elsewhere)
    with changed(site, nodes, **more):
        ended = site.job("-l", "nodes=cn1+cn2", "-vm", "vrdma=true", stdin="echo RAN\n")
        report = "no guest of cn1, cn2 can have one" if lacks == "the plan" else "guests of cn2 have no rxe"
        check_refused(ended, report)
        assert left_on(site, "cn1", "cn2") == []
