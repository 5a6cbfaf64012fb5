# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr node evacuate`: a guest goes to a spare node while its job runs, and the job does not notice.

Homes come by NFS: a guest that mounts one by virtiofs cannot move.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import shlex
import typing as t

import pytest

from .conftest import Site
from .mac_ports import at_two_places, learned, one_port_each
from .terminal import Terminal
from .trouble import NODES, changed, home_server, revive, wait_in_guest

SOURCE, SPARE = NODES
NOTE = "vtorque: spare"
MAC = "52:54:00:00:01:01"
"""Of the first guest of cn1."""
HOME = {"home_via": "nfs", "vm_nfs_home": "10.77.0.1:/home"}
GUESTS, PAUSED = "/var/lib/vtorque/guests", "/run/vtorque/paused"
LINES = """
echo up
i=0
until [ -e ~/go ]; do i=$((i + 1)); echo line $i; sleep 0.1; done
hostname
"""
"""Writes lines that have numbers over the job's connection, until it may end."""


@contextlib.contextmanager
def spare_node(site: Site) -> t.Iterator[None]:
    """The second node is the site's spare one, so that the first gets all jobs."""
    with home_server(site), changed(site, spare_nodes=[SPARE], **HOME):
        site.root("fe", f"rm -f /home/alice/go; {site.batch.offline_with_note.format(note=NOTE, node=SPARE)}")
        try:
            yield
        finally:
            site.root("fe", site.batch.clear.format(SPARE))


def domains(site: Site, node: str) -> list[str]:
    return site.root(node, "virsh list --name").split()


def evacuate(site: Site, *options: str) -> tuple[int, list[dict[str, t.Any]]]:
    done = site.on("fe", "vmgr", "node", "evacuate", SOURCE, "--json", *options)
    assert done.returncode in (0, 5), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.both
def test_guest_moves_to_a_spare_node_while_its_job_runs(site: Site) -> None:
    with spare_node(site), one_port_each(site) as ports:
        job_id = site.submit(stdin=LINES)
        assert wait_in_guest(site, job_id) == SOURCE
        (guest,) = domains(site, SOURCE)
        status, (row,) = evacuate(site, "--dry-run")
        assert (status, row["target"], domains(site, SPARE)) == (0, SPARE, [])
        status, (row,) = evacuate(site)
        assert (status, row["guest"], row["target"], row["why"]) == (0, guest, SPARE, "")
        assert (domains(site, SOURCE), domains(site, SPARE)) == ([], [guest])
        assert site.nodes()[SPARE].note == f"{NOTE} for {site.full_id(job_id)}"
        assert site.root(SOURCE, "ls /var/lib/vtorque/guests/*/; ip -br link | grep vtq; :").split() == []
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
        assert (ended.exit_status, ended.out.splitlines()[-1]) == (0, guest), ended.err
        lines = [line for line in ended.out.splitlines() if line.startswith("line ")]
        assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
        (moved,) = json.loads(site.stored(SOURCE, job_id))["moves"]
        assert (moved["guest"], moved["source"], moved["target"]) == (guest, SOURCE, SPARE)
        assert 0 <= moved["paused_s"] < 5
        site.wait_for("the spare node to be free", lambda: site.nodes()[SPARE].note == NOTE, seen=site.nodes)
        assert domains(site, SPARE) == []
        front = f"/var/lib/vtorque/records/{site.full_id(job_id)}.1/record.json"
        site.wait_for("the record to reach the front end", lambda: '"moves"' in site.read(front))
    assert ports[moved["mac"]][-1] == SPARE


FORGED = f"""
import socket
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as port:
    port.bind(("br0", 0))
    port.send(bytes.fromhex("ffffffffffff" + "{MAC}".replace(":", "") + "88b5") + bytes(46))
"""
"""Sends one frame from the address of a guest."""


def test_address_of_a_guest_that_is_at_two_places_is_noticed(site: Site) -> None:
    """Without this, no test that passes would prove that a guest was nowhere else."""
    with learned(site) as ports:
        for node in (SOURCE, SPARE, SOURCE, SPARE):  # behind which port it was before, is not known
            site.on(node, "python3", "-c", FORGED)
    assert ports[MAC][-3:] == [SPARE, SOURCE, SPARE]
    assert at_two_places(ports) == [MAC]


@pytest.mark.full
@pytest.mark.both
def test_session_at_a_terminal_goes_on_on_the_spare_node(site: Site) -> None:
    with spare_node(site):
        terminal = Terminal(site, *site.batch.session)
        terminal.expect(site.batch.ready)
        terminal.type("kept=before; echo here-$kept")
        terminal.expect("here-before")
        status, _rows = evacuate(site)
        assert status == 0
        terminal.type("echo there-$kept; exit 9")
        terminal.expect("there-before")
        assert terminal.end_session() == 9


@pytest.mark.full
@pytest.mark.both
def test_guest_that_has_moved_is_suspended_and_its_loss_ends_the_job(site: Site) -> None:
    with spare_node(site):
        job_id = site.submit(stdin=LINES)
        wait_in_guest(site, job_id)
        assert evacuate(site)[0] == 0
        site.root("fe", shlex.join((*site.batch.suspend, job_id)))
        state = "virsh domstate $(virsh list --all --name | head -1)"
        site.wait_for("the guest to stand still", lambda: "paused" in site.root(SPARE, state))
        site.root("fe", shlex.join((*site.batch.resume, job_id)))
        site.wait_for("the guest to go on", lambda: "running" in site.root(SPARE, state))
        site.root(SPARE, f"virsh destroy {domains(site, SPARE)[0]}")
        ended = site.end(job_id)
        assert ended.exit_status != 0
        assert "it was destroyed" in ended.err


@pytest.mark.full
@pytest.mark.both
def test_guest_that_is_suspended_while_its_move_is_prepared_stays_as_it_is(site: Site) -> None:
    """libvirt takes one to the spare node that stands still, where nothing would have it go on."""
    order = f"until [ -e {GUESTS}/*/*/move/target ]; do sleep 0.02; done; key=$(ls {GUESTS}); touch {PAUSED}/$key"
    with spare_node(site):
        job_id = site.submit(stdin=LINES)
        wait_in_guest(site, job_id)
        site.root(SOURCE, f"mkdir -p {PAUSED}")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            ordered = pool.submit(site.root, SOURCE, order)
            status, (row,) = evacuate(site)
            ordered.result()
        assert status == 5
        assert "stands still meanwhile" in row["why"]
        assert domains(site, SPARE) == []
        (name,) = domains(site, SOURCE)
        assert site.root(SOURCE, f"virsh domstate {name}").strip() == "paused"
        site.root(SOURCE, f"rm {PAUSED}/*")
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
    assert (ended.exit_status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[1:-1] == [f"line {number}" for number in range(1, len(lines) - 1)]


@pytest.mark.full
@pytest.mark.both
@pytest.mark.parametrize("victim", ["vtorque-node here", "vtorque-node there", "libvirtd there", "qemu there"])
def test_move_that_is_broken_off_leaves_one_guest_and_its_job(site: Site, victim: str) -> None:
    """Whoever is killed, in the middle of the memory: the guest runs at one of both nodes, and the job ends well."""
    kill = {
        "vtorque-node here": (SOURCE, "pkill -9 -n -f [v]torque_node"),
        "vtorque-node there": (SPARE, "pkill -9 -n -f [v]torque_node"),
        "libvirtd there": (SPARE, "kill -9 $(cat /run/libvirtd.pid)"),
        "qemu there": (SPARE, "pkill -9 -f [q]emu-system"),
    }
    with spare_node(site), one_port_each(site):
        job_id = site.submit(stdin=LINES)
        wait_in_guest(site, job_id)
        (guest,) = domains(site, SOURCE)
        site.root("fe", f"vmgr node evacuate {SOURCE} >/tmp/evacuated 2>&1 & :")
        begun = f"for i in $(seq 3000); do virsh list --all --name | grep -q {guest} && break; sleep 0.02; done"
        node, command = kill[victim]
        site.root(SPARE, begun)
        site.root(node, f"{command}; :")
        if victim == "libvirtd there":
            site.root(SPARE, revive("libvirt"))
        site.root("fe", "for i in $(seq 600); do pgrep -f '[v]mgr node evacuate' >/dev/null || break; sleep 0.2; done")

        def copies() -> list[str]:
            look = "virsh list --name"
            return [name for one in NODES for name in site.root(one, look).split()]

        site.wait_for("one guest to run", lambda: copies() == [guest], seen=copies)
        site.root(SOURCE, "/opt/vtorque/bin/vtorque-sweep >/dev/null; :")
        assert site.root(SOURCE, "ls -d /var/lib/vtorque/guests/*/*/move 2>/dev/null; :") == ""
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
        assert (ended.exit_status, ended.out.splitlines()[-1]) == (0, guest), ended.err


BUILDER = """
for pid in $(pgrep -f '[v]torque_node'); do
    parent=$(ps -o ppid= -p $pid | tr -d ' ')
    grep -q vtorque_node /proc/$parent/cmdline && [ -z "$(pgrep -P $pid)" ] && echo $pid
done; :
"""
"""Prints which process of a spare node awaits a guest: the last of those that began one another."""


@pytest.mark.full
@pytest.mark.both
def test_guest_outlives_who_awaited_it_on_the_spare_node(site: Site) -> None:
    """It stops when the guest is on its way, and is killed when that is there, and nowhere else."""
    with spare_node(site), one_port_each(site):
        job_id = site.submit(stdin=LINES)
        wait_in_guest(site, job_id)
        (guest,) = domains(site, SOURCE)
        site.root("fe", f"vmgr node evacuate {SOURCE} >/tmp/evacuated 2>&1 & :")
        site.root(SPARE, f"until virsh list --all --name | grep -q {guest}; do sleep 0.02; done")
        (builder,) = site.root(SPARE, BUILDER).split()
        site.root(SPARE, f"kill -STOP {builder}")
        site.wait_for("the guest to leave", lambda: domains(site, SOURCE) == [], seen=lambda: domains(site, SPARE))
        site.root(SPARE, f"kill -KILL {builder}")
        site.root("fe", "for i in $(seq 600); do pgrep -f '[v]mgr node evacuate' >/dev/null || break; sleep 0.2; done")
        assert "went to" in site.read("/tmp/evacuated")
        assert domains(site, SPARE) == [guest]
        site.root("fe", "touch /home/alice/go")
        ended = site.end(job_id)
        assert (ended.exit_status, ended.out.splitlines()[-1]) == (0, guest), ended.err
