# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user may say to qsub, made to harm: hooks of his choice, variables for root's programs, many faults at once.

Seen to fail: with a plan that does not ask for the job's type; with a reader of requests that takes any shell; with
additions that may be written at any path.
"""

from __future__ import annotations

import hashlib
import json
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.keys import FILES, KEYS

from ..conftest import Site
from ..trouble import NODES, check_nobody_blamed, check_refused, drop, encoded, forge, request
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
    arguments = [word for name, value in VARIABLES.items() for word in ("-v", f"{name}={value}")]
    ended = site.job(*arguments, stdin="/bin/hostname; ls\n")
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
        logs = [site.stored(node, member, name="vtorque.log") for node in NODES]
        assert facts["start_count"] == "1", f"{member}: {''.join(logs)}"
        assert "RAN" not in site.read(facts["Output_Path"].partition(":")[2])
        held += [member] if facts["job_state"] == "H" else []
    if held:  # by the brake that array members meet
        drop(site, *held)
    assert all(node.usable for node in site.nodes().values()), NODES


CANARY = "/tmp/vtq-canary"
PAYLOADS = (
    f"$(touch {CANARY})",
    "]]><x/>",
    "a: [&x",
    "{{7*7}}",
    "../../etc/passwd",
    f"-oProxyCommand=touch {CANARY}",
    "%s%n",
    f"a\nb: `touch {CANARY}`",
)
"""For a shell, XML, YAML, Jinja2, a path, ssh's words, a format and what reads lines."""
BESIDE_KEYS = ("-S", "digest", "file of a digest", "key", "log", "version")
FIELDS = (*KEYS, *BESIDE_KEYS)
"""Whatever in a request is a text of the user's."""
PATHS = ("img", "vcpu_pinning", "disk", *FILES, "-S")
"""Those of them that may be a path, so that a reader lets more pass."""
WHOLE = "0" * 64
DECODE = """
import json, sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.value_types import encode_value
told = []
for x in json.load(sys.stdin):
    try:
        request = Request.decode(x)
    except UserFault as error:
        told.append(str(error))
    else:
        told.append({"k": {k: encode_value(v) for k, v in request.values.items()}, "s": request.shell,
                     "d": dict(request.digests)})
print(json.dumps(told))
"""
"""Root's own reader on a node: the words of a refusal, or what it has read."""


def wire_of(field: str, payload: str) -> dict[str, t.Any]:
    """A request that is as it should be but for one field."""
    wire: dict[str, t.Any] = {"v": 1, "k": {}, "s": ""}
    if field in KEYS:
        wire["k"] = {field: payload}
        if field in FILES or (field in ("img", "vcpu_pinning") and payload.startswith("/")):
            wire["d"] = {field: WHOLE}
        return wire
    others: dict[str, dict[str, t.Any]] = {
        "-S": {"s": payload},
        "digest": {"k": {"metadata": "/home/alice/more.yml"}, "d": {"metadata": payload}},
        "file of a digest": {"d": {payload: WHOLE}},
        "key": {"k": {payload: "1"}},
        "log": {"l": {payload: True}},
        "version": {"v": payload},
    }
    return wire | others[field]


def check_no_canary(site: Site) -> None:
    """No host has run anything of what was tried."""
    for host in ("fe", *NODES):
        assert site.on(host, "test", "-e", CANARY).returncode != 0, host


def test_every_field_with_every_payload_is_refused_or_exact_data_to_roots_reader(site: Site, attack: Attack) -> None:
    """As it stands, and as the end of a path, which some fields take; a refusal shows it without control characters."""
    tried = [(field, text) for field in FIELDS for one in PAYLOADS for text in (one, f"/home/alice/{one}")]
    for field, text in tried:
        attack(f"{field}={text!r} to root's reader")
    wires = [wire_of(field, text) for field, text in tried]
    done = site.on("cn1", "/opt/vtorque/venv/bin/python", "-I", "-c", DECODE, stdin=json.dumps([*map(encoded, wires)]))
    assert done.returncode == 0, done.stderr
    taken = set()
    for (field, text), wire, report in zip(tried, wires, json.loads(done.stdout), strict=True):
        if isinstance(report, str):
            assert report.isprintable(), (field, text)
            continue
        taken.add(field)
        assert report == {"k": wire["k"], "s": wire["s"], "d": wire.get("d", {})}
        assert text.startswith("/"), (field, text)
        assert text.isprintable(), (field, text)
    assert taken == {*PATHS}
    check_no_canary(site)


@pytest.mark.both
@pytest.mark.full
def test_hostile_texts_in_requests_run_nothing_anywhere(site: Site, attack: Attack) -> None:
    """From the batch server to the end of the job: each field with two of them in turn; paths also with a shell's."""
    jobs = {}
    for number, field in enumerate(FIELDS):
        bare, behind = (PAYLOADS[(number + more) % len(PAYLOADS)] for more in (0, 3))
        texts = [bare, f"/home/alice/{behind}", *([f"/home/alice/{PAYLOADS[0]}"] if field in PATHS else [])]
        for text in dict.fromkeys(texts):
            attack(f"{field}={text!r} in a job's request")
            jobs[field, text] = forge(site, encoded(wire_of(field, text)), *site.batch.enough)
    for (field, text), job_id in jobs.items():
        ended = site.end(job_id)
        assert "49" not in ended.err, (field, text)
        path = text.startswith("/") and text.isprintable()
        if field == "vm_epilogue" and path and site.batch.users_scripts:
            # it is looked for when the job's script is over
            assert ended.out.startswith(f"RAN\nv{ended.node}-"), (field, text)
        elif field == "-S" and path:
            # in the guest there is no such shell; where scripts name their interpreter, nobody looks for one
            runs = bool(site.batch.interpreter)
            assert (ended.exit_status in (0, -999), ended.out.startswith("RAN\n")) == (runs, runs), (field, text)
        else:
            check_refused(ended)
    check_no_canary(site)
    check_nobody_blamed(site)


WRITES = "write_files: [{{path: {path}, content: 'alice ALL=(ALL) NOPASSWD: ALL', permissions: '{mode}'}}]\n"
ROOTS = {
    "/etc/sudoers.d/x": "0440",
    "/etc/vtorque/x": "0644",
    "/home/alice/../../etc/x": "0644",
    "/tmp/x": "4755",
}
"""Files that a user may not write in his guest, and modes that he may not give."""
LINK, MADE = "/home/alice/way", "/tmp/made"


def with_additions(site: Site, text: str) -> str:
    """A job past vsub whose additions have this text, and their right digest; its id."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = site.write(f"/home/alice/more-{digest[:8]}.yml", text)
    return forge(
        site, encoded({"v": 1, "k": {"metadata": path}, "s": "", "d": {"metadata": digest}}), *site.batch.enough
    )


@pytest.mark.both
@pytest.mark.full
def test_files_that_the_user_adds_are_refused_or_his(site: Site, attack: Attack) -> None:
    """Not below /etc by name, nor through a link in his home; where he may write himself they are his."""
    refused = {}
    for path, mode in ROOTS.items():
        attack(f"metadata= that writes {path} with mode {mode}")
        refused[path] = with_additions(site, WRITES.format(path=path, mode=mode))
    for directory in ("etc", "etc/vtorque"):
        attack(f"metadata= that writes in /{directory} through a link in the home")
    try:
        for path, job_id in refused.items():
            check_refused(site.end(job_id), "more-", "permissions" if path == "/tmp/x" else path)
        assert site.on("fe", "ln", "-s", "/etc", LINK, user="alice").returncode == 0
        for path in (f"{LINK}/sudoers.d/x", f"{LINK}/vtorque/x"):
            check_refused(
                site.end(with_additions(site, WRITES.format(path=path, mode="0644"))), path, "ermission denied"
            )
        # the same way to where he may write
        assert site.on("fe", "ln", "-sfn", MADE.rpartition("/")[0], LINK, user="alice").returncode == 0
        text = WRITES.format(path=f"{LINK}/{MADE.rpartition('/')[2]}", mode="0700")
        ended = site.end(with_additions(site, f"{text}runcmd: ['id -u >~/who; stat -c \"%u %a\" {MADE} >>~/who']\n"))
        assert ended.out.startswith("RAN\n"), ended.err
        assert site.read("/home/alice/who") == "1001\n1001 700\n"
    finally:
        site.root("fe", f"rm -f {LINK} /home/alice/who /home/alice/more-*.yml")
    for host in ("fe", *NODES):
        gone = f"ls -d /etc/sudoers.d/x /etc/vtorque/x /etc/x {MADE} /tmp/x 2>/dev/null || true"
        assert site.root(host, gone) == ""
    check_nobody_blamed(site)
