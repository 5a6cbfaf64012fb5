# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs in OSv, or rather in a guest that speaks as much of its API as a job needs (lab/guests/osv_stand_in.c)."""

from __future__ import annotations

import re

import pytest

from .conftest import Site
from .trouble import drop, end_by_term

PROGRAM = "/usr/lib/osv-program.so"
OSV = ("-vm", "img=tiny-osv")


def test_output_environment_and_status_of_the_one_program_reach_the_job(site: Site) -> None:
    """The variables with any character, the node file, the host's name, `-F`, and the status that main returned."""
    odd = 'it\'s "q" `x` \u00fc\tand; {{ 7*7 }} \\ % & + $HOME'
    names = ("DISTRO", "PBS_JOBID", "PBS_NP", "PBS_NUM_NODES", "ODD", "LD_LIBRARY_PATH")
    script = site.write(
        "/home/alice/osv.sh",
        "#!/bin/sh\n#PBS -vm img=tiny-osv,vcpus=2\n\n# nobody makes anything of this: $(reboot)\n"
        f"{PROGRAM} \\\n  'say=a  \"b\" \\ c' {' '.join(f'variable={name}' for name in names)} \\\n"
        "  file=PBS_NODEFILE host=\n",
    )
    told = ["env", f"ODD={odd}", "LD_LIBRARY_PATH=/nope"]
    done = site.on("fe", *told, "vsub", "-v", "ODD,LD_LIBRARY_PATH", "-F", "say=more return=37", script, user="alice")
    assert done.returncode == 0, done.stderr
    ended = site.end(done.stdout.strip())
    assert (ended.exit_status, ended.err) == (37, "")
    lines = ended.out.splitlines()
    assert lines[:7] == ['a  "b" \\ c', "OSV", ended.job_id, "2", "1", odd, "(none)"]
    assert lines[7] == lines[8]
    assert re.fullmatch(r"vcn[12]-[0-9]+(\..*)?", lines[9])
    assert lines[9].partition(".")[0] == lines[8]
    assert lines[10:] == ["more"]
    assert "LD_LIBRARY_PATH" in site.kept(ended.node, ended.job_id, name="vtorque.log")


@pytest.mark.both
@pytest.mark.full
def test_long_output_is_whole_and_in_order(site: Site) -> None:
    """More than any buffer on its way holds; the last line has no end of its own."""
    ended = site.job(*OSV, stdin=f"{PROGRAM} lines=20000\n")
    assert (ended.exit_status, ended.out) == (0, "".join(f"{n}\n" for n in range(1, 20001)))


@pytest.mark.both
@pytest.mark.full
def test_program_that_cannot_be_run_is_said(site: Site) -> None:
    ended = site.job(*OSV, stdin="/usr/lib/nothing.so\n")
    assert (ended.exit_status, ended.out) == (1, "")
    assert "nothing was run: /usr/lib/nothing.so: " in ended.err


@pytest.mark.both
@pytest.mark.full
def test_exit_of_the_program_ends_the_guest_and_is_no_success(site: Site) -> None:
    """What exit() does in OSv: nobody is left to tell the status, and the job says so."""
    ended = site.job(*OSV, stdin=f"{PROGRAM} say=before exit=0\n")
    assert ended.exit_status == 69
    assert ended.out.startswith("before\n"), "the guest's own last words follow"
    assert "was lost" in ended.err


@pytest.mark.both
@pytest.mark.full
def test_cancel_ends_it(site: Site) -> None:
    job_id = site.submit(*OSV, stdin=f"{PROGRAM} say=up wait=600\n")
    node = site.runs(job_id)
    site.wait_for(
        "the program", lambda: "up" in site.on(node, "sh", "-c", "cat /var/lib/vtorque/guests/*/*/console.log").stdout
    )
    ended = end_by_term(site, job_id)
    assert (ended.exit_status, ended.out) == (site.batch.cancelled, "up\n")


@pytest.mark.both
@pytest.mark.full
def test_another_user_does_not_hear_the_console(site: Site) -> None:
    """The way to it is the job's user's alone."""
    job_id = site.submit(*OSV, stdin=f"{PROGRAM} wait=600\n")
    node = site.runs(job_id)
    console = f"/run/vtorque/jobs/{site.full_id(job_id)}.1/console"
    ready = f"/run/vtorque/jobs/{site.full_id(job_id)}.1/ready.json"
    site.wait_for("the ready record", lambda: site.on(node, "test", "-e", ready).returncode == 0)
    socket = site.root(node, f"readlink {console}").strip()
    assert [site.on(node, "test", "-w", socket, user=user).returncode for user in ("alice", "bob")] == [0, 1]
    drop(site, job_id)
    site.end(job_id)


@pytest.mark.full
def test_what_osv_cannot_have_is_refused_at_submission(site: Site) -> None:
    """Everything at once, with its reasons."""
    prologue = site.write("/home/alice/before.sh", "#!/bin/sh\n")
    refused = {
        ("-vm", "vms_per_node=2"): "vms_per_node=2",
        ("-l", "nodes=2"): "one process in one guest",
        ("-vm", f"vm_prologue={prologue}"): "OSv has no shell",
        ("-S", "/bin/bash"): "OSv has no shell",
        ("-d", "/home/alice"): "a program in OSv starts in /",
    }
    options = [word for pair in refused for word in pair]
    done = site.vsub(*OSV, *options, stdin="cd /tmp; echo x | wc\n")
    assert done.returncode != 0
    assert done.stdout == ""
    for words in (*refused.values(), "is for a shell, and OSv has none"):
        assert words in done.stderr
    interactive = site.vsub(*OSV, "-I")
    assert interactive.returncode != 0
    assert "OSv has no shell and no terminal" in interactive.stderr
