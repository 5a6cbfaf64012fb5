# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""qdel, qrerun and `qdel -p` in every phase of a job; nothing is left on any node when it is over.

In the phase in question a script stands at a gate in the user's home until the test opens it.  The sister's prologue,
the boot and the running script have theirs in test_endings.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

import pytest

from . import trouble
from .conftest import Site

GATES = "/home/alice/gates"
SCRIPT = """#!/bin/sh
export PATH=/usr/bin:/bin
gate={gate}
# root of a guest makes no files in a home
touch $gate.here 2>/dev/null || su alice -s /bin/sh -c "touch $gate.here"
while [ -e $gate.here ] && [ ! -e $gate.open ]; do sleep 0.2; done
"""
GUEST_HOOKS, NODE_HOOKS = "/etc/vtorque/guest-hooks", "/etc/vtorque/site-hooks"


@dataclasses.dataclass(frozen=True)
class Phase:
    """Where a job stands at a gate.

    Attributes:
        hook: the site's script on the node, or "" for one of the user's own.
        key: of the request, that names the user's script.
        after: the job's script is over by then.
    """

    hook: str = ""
    key: str = ""
    after: bool = False


PHASES = {
    "the site's prologue in the guest": Phase(f"{GUEST_HOOKS}/prologue"),
    "the user's prologue in the guest": Phase(key="vm_prologue"),
    "the user's epilogue in the guest": Phase(key="vm_epilogue", after=True),
    "the site's epilogue in the guest": Phase(f"{GUEST_HOOKS}/epilogue", after=True),
    # of Torque alone, which has one program for each; Slurm calls as many as a site likes
    "the prologue on the node": Phase(f"{NODE_HOOKS}/prologue"),
    "the epilogue on the node": Phase(f"{NODE_HOOKS}/epilogue", after=True),
}


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A job that stands at its gate.

    Attributes:
        gate: path without its ending: `.here` when somebody waits, `.open` when he may go.
    """

    job_id: str
    gate: str


@contextlib.contextmanager
def at_gates(site: Site, phases: t.Mapping[str, Phase], pair: bool = False) -> t.Iterator[list[Waiting]]:
    """A job on each node, or one on both that cn1 leads, at its gate; in the end no gate and no script is there."""
    site.root("fe", f"mkdir -p {GATES} && chown alice {GATES}")
    with contextlib.ExitStack() as stack:
        stack.callback(site.root, "fe", f"rm -rf {GATES}")
        waiting = []
        for node, phase in phases.items():
            gate = f"{GATES}/{node}"
            script = SCRIPT.format(gate=gate)
            request: tuple[str, ...] = ()
            if phase.hook:
                message = f"mkdir -p {phase.hook.rpartition('/')[0]} && cat >{phase.hook} && chmod 755 {phase.hook}"
                done = site.on(node, "/bin/sh", "-c", message, stdin=script)
                assert done.returncode == 0, done.stderr
                stack.callback(site.root, node, f"rm -f {phase.hook}; rmdir {GUEST_HOOKS} 2>/dev/null || true")
            else:
                request = ("-vm", f"{phase.key}={site.write(f'{GATES}/script-{node}', script)}")
            hosts = site.batch.pair if pair else site.batch.at(node)
            over = "echo up\n" if phase.after else trouble.WAITS
            waiting.append(Waiting(site.submit(*hosts, *request, stdin=over), gate))
        for one in waiting:
            here = f"{one.gate}.here"
            site.wait_for(f"somebody at {here}", lambda here=here: site.on("fe", "test", "-e", here).returncode == 0)
        yield waiting


def open_gates(site: Site, waiting: t.Iterable[Waiting]) -> None:
    """Let all go on that wait."""
    site.root("fe", "touch " + " ".join(f"{one.gate}.open" for one in waiting))


def check_over(site: Site, waiting: t.Iterable[Waiting]) -> None:
    """Every job has ended at its first start, and there is nothing of them when the last one is complete."""
    facts = [site.wait_state(one.job_id, "CQH") for one in waiting]
    assert site.left_on_nodes() == []
    assert {(one["job_state"], one["start_count"]) for one in facts} == {("C", "1")}


def of_sites(site: Site, name: str) -> str:
    """A phase, or that of the site's own script where users have none of theirs."""
    return name if site.batch.users_scripts else name.replace("the user's", "the site's")


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize(
    "names",
    [
        ("the site's prologue in the guest", "the user's prologue in the guest"),
        ("the user's epilogue in the guest", "the site's epilogue in the guest"),
    ],
    ids=["prologues", "epilogues"],
)
def test_jobs_deleted_while_a_script_runs_in_their_guests(site: Site, names: tuple[str, str]) -> None:
    """The job's script is ended as it begins, or never begins; an epilogue runs to its end."""
    phases = {node: PHASES[of_sites(site, name)] for node, name in zip(trouble.NODES, names, strict=True)}
    with at_gates(site, phases) as waiting:
        with trouble.deleting(site, *(one.job_id for one in waiting), patient=True):
            open_gates(site, waiting)
        check_over(site, waiting)
        for one, phase in zip(waiting, phases.values(), strict=True):
            ended = site.end(one.job_id)
            early = (site.batch.cancelled_early, "")
            assert (ended.exit_status, ended.out) == ((0, "up\n") if phase.after else early), phase


@pytest.mark.full
def test_job_deleted_in_the_epilogue_and_after_its_end(site: Site) -> None:
    """When the site's own epilogue has its turn, the last one, nothing of the job is there but what is the MOM's."""
    with at_gates(site, {trouble.SUPERIOR: PHASES["the epilogue on the node"]}, pair=True) as waiting:
        (one,) = waiting
        left = [thing for thing in site.left_on_nodes() if not at_work(thing)]
        assert left == []
        with trouble.deleting(site, one.job_id):
            open_gates(site, waiting)
        check_over(site, waiting)
        assert site.end(one.job_id).out == "up\n"
        late = site.on("fe", "qdel", one.job_id, user="alice")
        assert late.returncode != 0
        assert "invalid state" in late.stderr
        assert site.left_on_nodes() == []


def at_work(thing: str) -> bool:
    """Is this of a MOM that runs the epilogue, or of that epilogue?"""
    kind = thing.partition(": ")[2].partition(" ")[0]
    return kind in ("batch", "node") or "/epilogue" in thing or ".hook epilogue" in thing or "site-hooks" in thing


@pytest.mark.both
@pytest.mark.full
def test_libvirt_restarts_in_the_prologue(site: Site) -> None:
    """On both nodes, while the site's prologue runs in a guest: the guests live on without it, and go with it."""
    with at_gates(site, {trouble.SUPERIOR: PHASES["the site's prologue in the guest"]}, pair=True) as waiting:
        (one,) = waiting
        for node in trouble.NODES:
            trouble.restart_libvirt(site, node)
        open_gates(site, waiting)
        assert trouble.wait_in_guest(site, one.job_id) == trouble.SUPERIOR
        ended = trouble.finish(site, one.job_id)
        assert site.left_on_nodes() == []
        assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")


@pytest.mark.full
def test_job_queued_again_and_job_purged_in_their_prologues(site: Site) -> None:
    """Torque signals no prologue: the first one's job runs; the second one's ends when its MOM finds out."""
    names = ("the site's prologue in the guest", "the user's prologue in the guest")
    with at_gates(site, {node: PHASES[name] for node, name in zip(trouble.NODES, names, strict=True)}) as waiting:
        stays, purged = waiting
        assert site.on("fe", "qrerun", stays.job_id).returncode != 0
        assert site.on("fe", "qdel", "-p", purged.job_id).returncode == 0
        open_gates(site, waiting)
        assert trouble.wait_in_guest(site, stays.job_id) == trouble.SUPERIOR
        ended = trouble.finish(site, stays.job_id)
        assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")
        site.wait_for("the purged job's node to be clean", lambda: not site.left_on_nodes(), seen=site.left_on_nodes)


@pytest.mark.full
def test_job_deleted_in_the_prologue_on_its_node(site: Site) -> None:
    """The site's own prologue goes to its end, and nothing of the job runs."""
    with at_gates(site, {trouble.SUPERIOR: PHASES["the prologue on the node"]}, pair=True) as waiting:
        with trouble.deleting(site, waiting[0].job_id, patient=True):
            open_gates(site, waiting)
        check_over(site, waiting)
        assert site.end(waiting[0].job_id).out == ""


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    ["the user's epilogue in the guest", "the site's epilogue in the guest", "the epilogue on the node"],
)
@pytest.mark.parametrize("act", ["queued again", "purged"])
def test_job_queued_again_or_purged_in_an_epilogue(site: Site, name: str, act: str) -> None:
    """A job that is over is not queued again; one that the server has forgotten has its epilogue all the same."""
    with at_gates(site, {trouble.SUPERIOR: PHASES[name]}, pair=True) as waiting:
        (one,) = waiting
        if act == "queued again":
            assert site.on("fe", "qrerun", one.job_id).returncode != 0
        else:
            assert site.on("fe", "qdel", "-p", one.job_id).returncode == 0
        open_gates(site, waiting)
        if act == "queued again":
            check_over(site, waiting)
            assert site.end(one.job_id).out == "up\n"
        site.wait_for("both nodes to be clean", lambda: not site.left_on_nodes(), seen=site.left_on_nodes)


@pytest.mark.full
@pytest.mark.parametrize("node", trouble.NODES, ids=["mother superior", "sister"])
def test_guest_is_lost_before_the_script(site: Site, node: str) -> None:
    """No fault of the user's, whose prologue runs, nor of a node: the job is held, with the guest that ended."""
    phases = {trouble.SUPERIOR: PHASES["the user's prologue in the guest"]}
    with trouble.changed(site, node_fault_retries=1), at_gates(site, phases, pair=True) as waiting:
        (one,) = waiting
        guest = trouble.guest_on(site, node)
        site.root(node, f"virsh destroy {guest}")
        facts = trouble.check_held(site, one.job_id, guest)
        assert site.left_on_nodes() == []
        assert facts["start_count"] == "1"
        trouble.check_nobody_blamed(site)
        trouble.drop(site, one.job_id)
