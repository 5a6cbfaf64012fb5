# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a job with guests on two nodes may end; each test ends with a look at all nodes that finds nothing left.

cn1 leads and cn2 is the sister, if a test does not say otherwise.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import typing as t

import pytest

from lab.leftovers import MAY_STAY

from .conftest import Site
from .terminal import Terminal
from .trouble import (
    GATE,
    HOOK,
    NODES,
    PAIR,
    PLAYBOOK,
    PRESETUP,
    SISTER,
    SUPERIOR,
    WAITS,
    WELL,
    check_held,
    check_message,
    check_nobody_blamed,
    check_offline,
    check_well,
    delete_booting,
    drop,
    end_by_term,
    end_killed,
    finish,
    guest_on,
    kill,
    left_on,
    libvirt_away,
    never_ready,
    open_gate,
    restart_libvirt,
    restart_mom,
    sweep,
    wait_in_guest,
)

OF_OTHERS = re.compile(
    # a log of libvirt's for each name of a guest, what it found out of its qemu, and what the batch system has of each
    r"/var/(log|cache)(/libvirt(/.*)?)?|/var/spool/torque/(mom|server)_logs/.*|/var/spool/torque/server_priv/accounting(/.*)?"
    # an image that is built on the machine meanwhile, whose files nodes see
    r"|/var/tmp/guest_image\..*"
    # what libuuid notes of the clock once on each machine: Ansible asks it for a node's number when it is loaded
    r"|/var/lib/libuuid(/clock\.txt)?"
    r"|/var/(log|lib)/slurm(/.*)?|/home/alice/(STDIN\.[oe][0-9]+|slurm-[0-9]+\.(out|err))"
)
SLEEPS = "echo up; sleep 600\n"


def booting(site: Site, job_id: str) -> None:
    """Wait until a guest of the job boots on each node."""
    assert site.runs(job_id) == SUPERIOR
    site.wait_for("a guest on each node", lambda: all(guest_on(site, node) for node in NODES))


def running(site: Site, job_id: str) -> None:
    """Wait until the job's script runs in its guest."""
    assert wait_in_guest(site, job_id) == SUPERIOR
    assert all(guest_on(site, node) for node in NODES)


def again(site: Site, job_id: str) -> None:
    """Wait until the second start of a job has its guests, and none of the first one are there."""
    site.wait_for("the second start", lambda: ready(site, job_id, 2))
    assert not [thing for thing in site.left_on_nodes() if f"guests/{site.batch.full_id(job_id)}.1" in thing]


def ready(site: Site, job_id: str, start: int) -> bool:
    """Are the guests of a start ready?"""
    return (
        site.on(SUPERIOR, "test", "-e", f"/run/vtorque/jobs/{site.batch.full_id(job_id)}.{start}/ready.json").returncode
        == 0
    )


def log_of(site: Site, node: str, job_id: str, start: int = 1) -> str:
    """What a node has noted of a start."""
    return site.stored(node, job_id, start, "vtorque.log")


def cleaned_itself(site: Site, job_id: str, start: int = 1) -> bool:
    """Did the sister's own hook begin the removal, and was it its worker that did it?"""
    log = log_of(site, SISTER, job_id, start)
    heard = f"epilogue.parallel of job {site.batch.full_id(job_id)}, start {start}"
    return heard in log and "took away: domain" in log


@contextlib.contextmanager
def lost(site: Site, node: str) -> t.Iterator[None]:
    """A node without power: its connections fall silent.  In the end it boots, and runs what it runs before its MOM."""
    assert site.run("lose", node).returncode == 0
    try:
        site.wait_for(f"the server to miss {node}", lambda: "down" in site.nodes()[node].states)
        yield
    finally:
        back = site.run("back", node)
        assert back.returncode == 0, back.stderr
        done = sweep(site, node, "--boot")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@contextlib.contextmanager
def unplugged(site: Site, node: str) -> t.Iterator[None]:
    """A node that nothing reaches and that reaches nobody, though it lives."""
    assert site.run("unplug", node).returncode == 0
    try:
        yield
    finally:
        assert site.run("plug", node).returncode == 0


@contextlib.contextmanager
def gate_of_sister(site: Site) -> t.Iterator[None]:
    """The site's own prologue.parallel of the sister waits until somebody opens the gate."""
    hook = "/etc/vtorque/site-hooks/prologue.parallel"
    done = site.on(SISTER, "/bin/sh", "-c", f"cat >{hook} && chmod 755 {hook} && mkfifo {GATE}", stdin=PRESETUP)
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        site.root(SISTER, f"rm -f {GATE} {hook}")


def written(site: Site, node: str) -> set[str]:
    """Every path of a node that is there since its first boot; the homes with the front end."""
    upper = pathlib.Path(site.environment.get("VTORQUE_LAB", "/run/vtorque-lab")) / "nodes" / node / "upper"
    home = "/home" if node == "fe" else ""
    return {f"/{path.relative_to(upper)}" for path in upper.rglob("*")} | set(
        site.root(node, f"find /run /tmp /var/tmp /dev/shm {home} -xdev").splitlines()
    )


@pytest.mark.both("slurm")
@pytest.mark.parametrize("status", [pytest.param(0, marks=pytest.mark.full, id="well"), pytest.param(3, id="failed")])
def test_script_ends_by_itself(site: Site, status: int) -> None:
    """Guests on each node, as many as it has room for; nothing is there any more when the server says it is complete.

    That holds for whatever a node has written anywhere, and for the user's home.
    """
    before = {node: written(site, node) for node in ("fe", *NODES)}
    guests = 2 if site.batch.name == "torque" else 1  # there a node has the machine's processors, and not more
    script = f"sort -u ${site.batch.hosts} | grep -c .; echo complaint >&2; exit {status}\n"
    ended = site.job(*site.batch.pair, "-vm", f"vms_per_node={guests}", stdin=script)
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out, ended.err) == (status, f"{2 * guests}\n", "complaint\n")
    new = {path for node in before for path in written(site, node) - before[node]}
    assert sorted(path for path in new if not MAY_STAY.fullmatch(path) and not OF_OTHERS.fullmatch(path)) == []


@pytest.mark.full
def test_job_deleted_in_the_prologue_of_its_sister(site: Site) -> None:
    """The mother superior's own prologue never comes; nothing was made."""
    with gate_of_sister(site):
        job_id = site.submit(*PAIR, stdin="echo RAN\n")
        site.runs(job_id)
        site.wait_for("the sister's prologue", lambda: site.root(SISTER, "pgrep -f '[p]rologue.parallel' || true"))
        drop(site, job_id)
        open_gate(site, SISTER)
        ended = site.end(job_id)
    assert "RAN" not in ended.out
    assert site.left_on_nodes() == []


@pytest.mark.both
@pytest.mark.full
def test_job_deleted_while_its_guests_boot(site: Site) -> None:
    """qdel returns when the prologue has ended, here by the end of a guest; nothing is tried again, or stays."""
    with never_ready(site, node_fault_retries=3) as request:
        job_id = site.submit(*site.batch.pair, "-vm", request, stdin="echo RAN\n")
        booting(site, job_id)
        delete_booting(site, job_id, SISTER)
    assert "RAN" not in site.end(job_id).out


@pytest.mark.both
def test_job_deleted_while_it_runs(site: Site) -> None:
    """The sister cleans itself; both nodes are clean when the job is complete."""
    job_id = site.submit(*site.batch.pair, stdin=SLEEPS)
    running(site, job_id)
    ended = end_by_term(site, job_id)
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out) == (site.batch.cancelled, "up\n")
    assert cleaned_itself(site, job_id)


@pytest.mark.both
@pytest.mark.full
def test_job_queued_again_while_it_runs(site: Site) -> None:
    """The second start has guests of its own, and of the first one nothing stays."""
    job_id = site.submit(*site.batch.pair, stdin=WAITS)
    running(site, job_id)
    site.queue_again(job_id)
    again(site, job_id)
    assert cleaned_itself(site, job_id, start=1)
    ended = finish(site, job_id)
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")


@pytest.mark.full
def test_walltime_is_over(site: Site) -> None:
    """Torque ends the job, the sister first; how far its script came by then is the machine's affair."""
    job_id = site.submit(*PAIR, "-l", "walltime=5", stdin=SLEEPS)
    ended = site.end(job_id)
    assert site.left_on_nodes() == []
    assert ended.exit_status == -11
    assert ended.out in ("", "up\n")
    assert "walltime" in ended.err
    assert cleaned_itself(site, job_id)


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("act", ["ended", pytest.param("paused", marks=pytest.mark.full)])
def test_guest_of_the_sister_is_lost_to_its_job(site: Site, act: str) -> None:
    """The mother superior is told by the sister, and the job's shell ends the job with the reason."""
    job_id = site.submit(*site.batch.pair, stdin=SLEEPS)
    running(site, job_id)
    guest = guest_on(site, SISTER)
    if act == "paused":
        site.root(SISTER, f"virsh suspend {guest}")
    else:
        kill(site, SISTER, "pgrep -f '^[^ ]*qemu-system'")
    ended = site.end(job_id)
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out) == (69, "up\n")
    check_message(ended.err, f"guest {guest} on {SISTER} was lost")
    assert f'"guest": "{guest}"' in site.stored(SUPERIOR, job_id)


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("victim", [PLAYBOOK, HOOK], ids=["playbook", "hook"])
def test_program_of_the_mother_superior_killed_while_guests_boot(site: Site, victim: str) -> None:
    """Nobody listens to the sister any more: she undoes what she began."""
    with never_ready(site) as request:
        job_id = site.submit(*site.batch.pair, "-vm", request, stdin="echo RAN\n")
        booting(site, job_id)
        kill(site, SUPERIOR, victim)
        site.wait_for("the sister to undo it", lambda: not guest_on(site, SISTER))
        end_killed(site, job_id, victim)
    check_nobody_blamed(site)
    # what Ansible keeps while it plays is nobody's when it was killed
    assert sweep(site, SUPERIOR).returncode == 0
    assert site.left_on_nodes() == []


@pytest.mark.full
def test_sister_falls_silent_while_guests_boot(site: Site) -> None:
    """It is seen before the deadline; the job is held, as its bound is, and no node is blamed.

    She lives on, and nobody tells her: she undoes what she began when her connection breaks, or at the deadline, which
    is far away.
    """
    with never_ready(site, timeout=240) as request:
        job_id = site.submit(*site.batch.pair, "-vm", request, stdin="echo RAN\n")
        booting(site, job_id)
        with unplugged(site, SISTER):
            facts = check_held(site, job_id, f"{SISTER} was not reached: the connection broke off")
            assert guest_on(site, SISTER)
            assert not guest_on(site, SUPERIOR)
        site.wait_for("the sister to undo it", lambda: not site.left_on_nodes())
    assert facts["start_count"] == "1"
    drop(site, job_id)
    assert all(not node.note for node in site.nodes().values())


@pytest.mark.full
@pytest.mark.parametrize("node", [SISTER, SUPERIOR], ids=["sister", "mother superior"])
def test_node_lost_while_guests_boot(site: Site, node: str) -> None:
    """The other one undoes by itself what it began, the lost one when it boots; the job waits, and nobody is blamed.

    The owner holds the job meanwhile: without that, Torque gives it to its nodes again when they are back.
    """
    with never_ready(site, timeout=45) as request:
        job_id = site.submit(*site.batch.pair, "-vm", request, stdin="echo RAN\n")
        booting(site, job_id)
        assert site.on("fe", "qhold", job_id, user="alice").returncode == 0
        with lost(site, node):
            alive = SISTER if node == SUPERIOR else SUPERIOR
            site.wait_for(f"{alive} to undo it", lambda: not guest_on(site, alive))
        facts = site.wait_state(job_id, "HC")
        site.wait_for("both nodes to be clean", lambda: not site.left_on_nodes(), seen=site.left_on_nodes)
    assert (facts["job_state"], facts["start_count"]) == ("H", "1")
    drop(site, job_id)
    assert all(not one.note for one in site.nodes().values())


@pytest.mark.full
@pytest.mark.both
def test_sister_lost_while_the_job_runs(site: Site) -> None:
    """The job goes on in rank 0; the epilogue cleans what it reaches, and the lost node's own boot the rest."""
    job_id = site.submit(*site.batch.goes_on, *site.batch.pair, stdin=WAITS)
    running(site, job_id)
    with lost(site, SISTER):
        ended = finish(site, job_id)
        assert (ended.exit_status, ended.out) == (0, "up\non\n")
        assert left_on(site, SUPERIOR) == []


@pytest.mark.full
def test_mother_superior_lost_while_the_job_runs(site: Site) -> None:
    """When she is back the server starts the job again, and that start clears the first one away on the sister.

    (Slurm waits for BatchStartTimeout, six minutes here; a node that it takes for lost: slurm/test_lost_node.py.)
    """
    job_id = site.submit(*site.batch.pair, stdin=WAITS)
    running(site, job_id)
    with lost(site, SUPERIOR):
        assert guest_on(site, SISTER)
    again(site, job_id)
    assert finish(site, job_id).exit_status == 0
    assert site.left_on_nodes() == []


@pytest.mark.full
def test_mother_superior_lost_for_good(site: Site) -> None:
    """The sister keeps her guest for a job that runs, as far as is known, and is clean soon after `qdel -p`."""
    job_id = site.submit(*site.batch.pair, stdin=WAITS)
    running(site, job_id)
    files = f"ls -d /var/spool/torque/mom_priv/jobs/{job_id}.*"
    with lost(site, SUPERIOR):
        assert sweep(site, SISTER).returncode == 0
        assert guest_on(site, SISTER)
        assert site.on(SISTER, "/bin/sh", "-c", files).returncode == 0
        assert site.on("fe", "qdel", "-p", job_id).returncode == 0
        site.wait_for("her MOM to drop the job", lambda: site.on(SISTER, "/bin/sh", "-c", files).returncode != 0)
        site.wait_for("the second look", lambda: sweep(site, SISTER).returncode == 0)
        assert left_on(site, SISTER) == []
    assert site.left_on_nodes() == []


@pytest.mark.both
@pytest.mark.full
def test_libvirt_of_the_sister_restarts_under_the_job(site: Site) -> None:
    """Her guest lives on without it, and is taken away with it."""
    job_id = site.submit(*site.batch.pair, stdin=WAITS)
    running(site, job_id)
    restart_libvirt(site, SISTER)
    ended = finish(site, job_id)
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("node", NODES, ids=["mother superior", "sister"])
def test_libvirt_restarts_while_guests_boot(site: Site, node: str) -> None:
    """Its guest lives on, and the start goes on when it is back."""
    job_id = site.submit(*site.batch.pair, stdin="hostname\n")
    booting(site, job_id)
    # a domain that runs may still be on the way to whom it was started for
    speaks = f"test -s /var/lib/vtorque/guests/{site.batch.full_id(job_id)}.1/vcn*/console.log"
    site.wait_for("the guest's first line", lambda: site.on(node, "/bin/sh", "-c", speaks).returncode == 0)
    restart_libvirt(site, node)
    ended = finish(site, job_id)
    assert (ended.exit_status, ended.err) == (0, "")
    assert site.facts(job_id)["start_count"] == "1"
    assert site.left_on_nodes() == []
    check_nobody_blamed(site)


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("node", NODES, ids=["mother superior", "sister"])
def test_libvirt_is_lost_while_guests_boot(site: Site, node: str) -> None:
    """The job is held, as its bound is; that node bears our note until it has libvirt and a sweep finds it well."""
    with never_ready(site) as request:
        job_id = site.submit(*site.batch.pair, "-vm", request, stdin="echo RAN\n")
        booting(site, job_id)
        with libvirt_away(site, node):
            facts = check_held(site, job_id, f"{node}: libvirt")
    assert facts["start_count"] == "1"
    assert "RAN" not in site.read(facts["Output_Path"].partition(":")[2])
    nodes = site.nodes()
    check_offline(nodes[node], "libvirt", job_id)
    assert [one for name, one in nodes.items() if name in NODES and name != node] == [WELL]
    site.wait_for("the sweep to find nothing", lambda: sweep(site, node).returncode == 0)
    check_well(site, node)
    check_nobody_blamed(site)
    assert site.left_on_nodes() == []
    drop(site, job_id)


@pytest.mark.full
def test_moms_that_restart_and_let_jobs_go_on(site: Site) -> None:
    """`pbs_mom -p` on both: the job ends as if nothing had been, but for a status that only its parent could tell."""
    job_id = site.submit(*PAIR, stdin=WAITS.replace("exit 0", "exit 6"))
    running(site, job_id)
    for node in NODES:
        restart_mom(site, node, "-p")
    ended = finish(site, job_id)
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")
    assert site.facts(job_id)["start_count"] == "1"
    assert cleaned_itself(site, job_id)


@pytest.mark.full
def test_mom_of_the_mother_superior_restarts_under_the_job(site: Site) -> None:
    """It kills what an earlier one ran; the server starts the job again, which clears the first start away."""
    job_id = site.submit(*site.batch.pair, stdin=WAITS)
    running(site, job_id)
    restart_mom(site, SUPERIOR)
    again(site, job_id)
    assert finish(site, job_id).exit_status == 0
    assert site.left_on_nodes() == []


@pytest.mark.full
def test_mom_of_the_sister_restarts_under_the_job(site: Site) -> None:
    """She no longer knows the job, which goes on; her guest lives until the epilogue asks her."""
    job_id = site.submit(*site.batch.pair, stdin=WAITS)
    running(site, job_id)
    restart_mom(site, SISTER)
    assert site.root(SISTER, "ls /var/spool/torque/mom_priv/jobs") == ""
    assert guest_on(site, SISTER)
    ended = finish(site, job_id)
    assert site.left_on_nodes() == []
    assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")
    assert site.facts(job_id)["start_count"] == "1"


@pytest.mark.full
@pytest.mark.parametrize(
    ("first", "second", "found_out"),
    [(SUPERIOR, SISTER, "Unknown job id on server"), (SISTER, SUPERIOR, "Job is being killed from pbs_server.")],
)
def test_job_purged_from_the_server(site: Site, first: str, second: str, found_out: str) -> None:
    """`qdel -p`: the nodes are clean when the MOMs have found out, in whichever order they do.

    A sister whose MOM finds out first runs no epilogue, and the server answers for nobody who asks for her clean-up.
    """
    job_id = site.submit(*site.batch.pair, stdin=SLEEPS)
    running(site, job_id)
    site.on(second, "sh", "-c", "kill -STOP $(cat /var/spool/torque/mom_priv/mom.lock)")
    try:
        assert site.on("fe", "qdel", "-p", job_id).returncode == 0
        report = f"grep -F '{job_id};{found_out}' /var/spool/torque/mom_logs/*"
        site.wait_for("the first MOM to find out", lambda: site.on(first, "sh", "-c", report).returncode == 0)
    finally:
        site.on(second, "sh", "-c", "kill -CONT $(cat /var/spool/torque/mom_priv/mom.lock)")
    site.wait_for("both nodes to be clean", lambda: not site.left_on_nodes())


def array_of_two(site: Site) -> tuple[str, list[str]]:
    """An array with a member on each node, whose scripts run in their guests; the ids of parent and members."""
    parent = site.submit(*site.batch.array, stdin=WAITS)
    members = site.members(parent)
    assert {wait_in_guest(site, member) for member in members} == {*NODES}
    return parent, members


@pytest.mark.full
def test_job_purged_while_its_guests_boot(site: Site) -> None:
    """The server has forgotten it when its prologue has its verdict; both nodes are clean all the same."""
    with never_ready(site, timeout=45) as request:
        job_id = site.submit(*site.batch.pair, "-vm", request, stdin="echo RAN\n")
        booting(site, job_id)
        assert site.on("fe", "qdel", "-p", job_id).returncode == 0
        site.wait_for("both nodes to be clean", lambda: not site.left_on_nodes(), seen=site.left_on_nodes)
    check_nobody_blamed(site)


@pytest.mark.both
@pytest.mark.full
def test_array_deleted_while_its_members_run(site: Site) -> None:
    """By the name of its parent: each member ends as a job of its own would."""
    parent, members = array_of_two(site)
    cancelled = site.on("fe", *site.batch.cancel_slowly, parent, user="alice")
    assert cancelled.returncode == 0, cancelled.stderr
    ended = [site.end(member) for member in members]
    assert site.left_on_nodes() == []
    assert [(one.exit_status, one.out) for one in ended] == [(site.batch.cancelled, "up\n")] * 2


@pytest.mark.both
@pytest.mark.full
def test_member_of_an_array_deleted_beside_another(site: Site) -> None:
    """The other one notices nothing."""
    _parent, (deleted, stays) = array_of_two(site)
    first = end_by_term(site, deleted)
    assert left_on(site, first.node) == []
    assert (first.exit_status, first.out) == (site.batch.cancelled, "up\n")
    second = finish(site, stays)
    assert site.left_on_nodes() == []
    assert (second.exit_status, second.out, second.err) == (0, "up\non\n", "")


@contextlib.contextmanager
def session(site: Site) -> t.Iterator[Terminal]:
    """An interactive job of both nodes, with a prompt in its guest; what is done inside ends it, terminal and all."""
    terminal = Terminal(site, *site.batch.session, *site.batch.pair)
    terminal.expect(site.batch.ready)
    terminal.type('echo "name=$(hostname)"')
    terminal.expect("name=vcn1")
    yield terminal
    terminal.close()


@pytest.mark.both
@pytest.mark.full
def test_interactive_job_deleted(site: Site) -> None:
    """TERM ends the session, and its terminal is given back."""
    with session(site) as terminal:
        drop(site, terminal.job_id, patient=True)
    facts = site.wait_state(terminal.job_id, "CQH")
    assert site.left_on_nodes() == []
    assert (facts["job_state"], facts["start_count"]) == ("C", "1")
    assert site.batch.session_tells or facts["exit_status"] == "271"
    assert site.batch.session_over.format(terminal.job_id) in terminal.seen


@pytest.mark.full
def test_terminal_of_an_interactive_job_is_gone(site: Site) -> None:
    """Nobody deletes the job: the session ends by the HUP of its terminal."""
    with session(site) as terminal:
        kill(site, "fe", "pgrep -u alice -f '[q]sub'")
    facts = site.wait_state(terminal.job_id, "CQH")
    assert site.left_on_nodes() == []
    assert (facts["job_state"], facts["start_count"], facts["exit_status"]) == ("C", "1", "257")


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("node", NODES, ids=["mother superior", "sister"])
def test_guest_of_an_interactive_job_is_lost(site: Site, node: str) -> None:
    """The terminal says which one it was, and why."""
    with session(site) as terminal:
        guest = guest_on(site, node)
        site.root(node, f"virsh destroy {guest}")
    facts = site.wait_state(terminal.job_id, "CQH")
    assert site.left_on_nodes() == []
    assert (facts["job_state"], facts["exit_status"]) == ("C", "69")
    output = terminal.seen.partition("vtorque: ")[2]
    assert guest in output
    assert "destroyed" in output
