# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user may say to qsub, made to harm: hooks of his choice, variables for root's programs, many faults at once.

Seen to fail: with a plan that does not ask for the job's type.
"""

from __future__ import annotations

import pytest

from ..conftest import Site
from ..trouble import NODES, check_refused, drop, encoded, forge, request
from .conftest import Attack

HITS = "/home/alice/hits"
TRAP = f'#!/bin/sh\necho "$(/usr/bin/id -u) $0" >>{HITS}\n'
MODULE = f'import os\nopen("{HITS}", "a").write(f"{{os.getuid()}} NAME\\n")\n'
JOBTYPES = (
    "parallel",
    "user",
    "user.parallel",
    "../x",
    "x/../../../../../home/alice/x",
    "/home/alice/x",
    "precancel/../x",
)
PRELOAD = f"""
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void hit(void)
{{
    FILE *hits = fopen("{HITS}", "a");
    if (hits) {{ fprintf(hits, "%d preloaded\\n", (int)getuid()); fclose(hits); }}
}}
"""
PROGRAMS = (
    "ansible-playbook",
    "cat",
    "env",
    "id",
    "ls",
    "python3",
    "qstat",
    "readlink",
    "setpriv",
    "sh",
    "ssh",
    "timeout",
    "virsh",
)
MODULES = ("sitecustomize", "usercustomize", "json", "yaml", "jinja2")
VARIABLES = {
    "LD_PRELOAD": "/home/alice/trap.so",
    "LD_LIBRARY_PATH": "/home/alice",
    "LD_AUDIT": "/home/alice/trap.so",
    "BASH_ENV": "/home/alice/trap",
    "ENV": "/home/alice/trap",
    "PATH": "/home/alice/traps:/usr/bin:/bin",
    "PYTHONPATH": "/home/alice/traps",
    "PYTHONHOME": "/home/alice/traps",
    "PYTHONUSERBASE": "/home/alice/traps",
    "PYTHONSTARTUP": "/home/alice/traps/json.py",
    "PYTHONINSPECT": "1",
    "ANSIBLE_CONFIG": "/home/alice/traps/ansible.cfg",
    "ANSIBLE_LIBRARY": "/home/alice/traps",
    "ANSIBLE_ACTION_PLUGINS": "/home/alice/traps",
    "ANSIBLE_CALLBACK_PLUGINS": "/home/alice/traps",
    "ANSIBLE_FILTER_PLUGINS": "/home/alice/traps",
    "ANSIBLE_COLLECTIONS_PATH": "/home/alice/traps",
    "SSH_ASKPASS": "/home/alice/trap",
    "GCONV_PATH": "/home/alice/traps",
    "TMPDIR": "/home/alice/traps",
    "IFS": "/",
    "HOME": "/home/alice/traps",
    "LIBVIRT_DEFAULT_URI": "qemu+ssh://evil.example/system",
    "MOAB_JOBID": "$(/home/alice/trap)",
    "MOAB_TASKMAP": "; /home/alice/trap;",
    "PBS_SCHED_HINT": "{{ lookup(pipe) }};$(/home/alice/trap)",
    "PBS_O_WORKDIR": "/home/alice/$(/home/alice/trap)",
    "PBS_JOBID": "0.fe",
    "PBS_NODEFILE": "/etc/shadow",
}  # fmt: skip
"""Each makes some program of somebody's run what alice has laid there, or lies to it."""


@pytest.fixture
def traps(site: Site) -> None:
    """Programs, a library and modules of alice's that write down who ran them."""
    for path in ("/home/alice/trap", "/home/alice/x", *(f"/home/alice/traps/{name}" for name in PROGRAMS)):
        site.write(path, TRAP)
    for name in MODULES:
        site.write(
            f"/home/alice/traps/{name}.py", f'import os\nopen("{HITS}", "a").write(f"{{os.getuid()}} {name}\\n")\n'
        )
    site.write("/home/alice/traps/ansible.cfg", "[defaults]\ncallback_plugins = /home/alice/traps\n")
    made = site.on("fe", "gcc", "-shared", "-fPIC", "-x", "c", "-o", "trap.so", "-", user="alice", stdin=PRELOAD)
    assert made.returncode == 0, made.stderr


def hits(site: Site) -> set[str]:
    """Who ran what of these; none of it root."""
    found = {tuple(line.split(maxsplit=1)) for line in site.read(HITS).splitlines()}
    assert {uid for uid, _what in found} <= {"1001"}
    site.root("fe", "cd /home/alice && rm -rf hits trap trap.so traps x")
    return {what for _uid, what in found}


@pytest.mark.full
def test_jobtypes_run_nothing_of_the_users_choice(site: Site, attack: Attack, traps: None) -> None:
    """`-T` names the hooks that the MOM takes: ours of another kind, the user's own, or a path; no job runs."""
    jobs = {}
    for name in JOBTYPES:
        attack(f"qsub -T {name}")
        jobs[name] = forge(site, request(), "-T", name)
    for name in JOBTYPES:
        check_refused(site.end(jobs[name]), "-T")
    assert hits(site) == set()


@pytest.mark.full
def test_variables_of_the_job_change_nothing_that_root_runs(site: Site, attack: Attack, traps: None) -> None:
    """Root runs none of what they name; the job runs in its guest, where they are the user's own affair."""
    for name, value in VARIABLES.items():
        attack(f"qsub -v {name}={value}")
    forged = site.submit("-v", "BEOWULF_JOB_MAP=evil.example:10.0.0.1", stdin="echo RAN\n")
    words = [word for name, value in VARIABLES.items() for word in ("-v", f"{name}={value}")]
    ended = site.job(*words, stdin="/bin/hostname; ls\n")
    assert ended.out.splitlines()[0].startswith(f"v{ended.node}-")
    check_refused(site.end(forged), "node file")
    assert {"/bin/bash", "preloaded"} <= hits(site), "the traps do not work"


@pytest.mark.full
def test_arrays_whose_members_all_fail_take_no_node_away(site: Site, attack: Attack) -> None:
    """By requests that nobody can read, images that are not there, more than was asked for, a prologue that fails."""
    site.write("/home/alice/fails.sh", "#!/bin/sh\nexit 1\n")
    faults = {"no request": "vtorque:!!!", "no image": request(img="no-such"), "too much": request(vcpus="7")}
    faults["a future version"] = encoded({"v": 99})
    arrays = {what: (forge(site, x, "-t", "0-5"), 6) for what, x in faults.items()}
    asks = ("-t", "0-2", "-vm", "vm_prologue=/home/alice/fails.sh")
    arrays["a prologue that fails"] = (site.submit(*asks, stdin="echo RAN\n"), 3)
    members = {}
    for what, (array, count) in arrays.items():
        for index in range(count):
            attack(f"member {index} of an array with {what}")
            members[array.replace("[]", f"[{index}]")] = what

    def ended() -> bool:
        for name, node in site.nodes().items():
            assert not node.note, f"{name}: {node.note}"
            assert not node.states & {"offline", "down"}, name
        return all(site.facts(member)["job_state"] in "CH" for member in members)

    site.wait_for("the end of all members", ended)
    held = []
    for member in members:
        facts = site.facts(member)
        logs = [site.kept(node, member, name="vtorque.log") for node in NODES]
        assert facts["start_count"] == "1", f"{member}: {''.join(logs)}"
        assert "RAN" not in site.read(facts["Output_Path"].partition(":")[2])
        held += [member] if facts["job_state"] == "H" else []
    if held:  # by the brake that array members meet
        drop(site, *held)
    assert all(node.usable for node in site.nodes().values()), NODES
