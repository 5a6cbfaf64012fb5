# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another user of a node, while a job is there: nothing of it is his to read, to change or to take over.

Seen to fail: with the job's key as one more word of the ssh that begins the user's login early.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import json
import re
import typing as t

import pytest

from ..conftest import Site
from ..trouble import NODES, WAITS, finish, wait_in_guest
from .conftest import Attack, check_untouched, guest_of

PYTHON = "/opt/vtorque/venv/bin/python"
STOP = "/home/bob/stop"
WATCH = f"""
import json, os, time
# the words and the environment of every process, over and over
own, seen = os.getpid(), {{"cmdline": set(), "environ": set()}}
refused = 0
while not os.path.exists("{STOP}"):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name, texts in seen.items():
            try:
                with open(f"/proc/{{pid}}/{{name}}", "rb") as file:
                    texts.add(file.read())
            except PermissionError:
                refused += 1
            except OSError:  # it has ended
                pass
    time.sleep(0.002)
told = {{name: [text.decode("latin-1") for text in texts] for name, texts in seen.items()}}
print(json.dumps({{"refused": refused, **told}}))
"""
SEEDS = "cat /var/lib/vtorque/guests/*/*/seed.iso | tr -d '\\000' | grep -a -o 'content: \"[^\"]*\"'"
SEEN = ("cli.hook", "cli.vtorque_node", "cli.vtorque_shell", "guest=vcn1-", "vtorque-virtiofsd:", "/usr/bin/ssh")
"""Programs of a job's start, each of which a watcher must have met."""
KEPT = (
    "/var/lib/vtorque/records",
    "/var/lib/vtorque/log",
    "/var/log",
    "/var/spool/torque",
    "/tmp",
    "/home",
    "/run/vtorque/ansible",
)
"""Where nothing of a key may ever lie."""


class Watch(t.NamedTuple):
    """What a watcher has seen, each text once."""

    refused: int
    cmdline: set[str]
    environ: set[str]


@contextlib.contextmanager
def watching(site: Site, user: str | None) -> t.Iterator[dict[str, Watch]]:
    """Somebody reads on all hosts what he can of all processes; what that was is there when it has ended."""
    site.root("fe", f"rm -f {STOP}")
    seen: dict[str, Watch] = {}
    hosts = ("fe", *NODES)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = {host: pool.submit(site.on, host, PYTHON, "-I", "-S", "-", user=user, stdin=WATCH) for host in hosts}
        try:
            yield seen
        finally:
            site.root("fe", f"touch {STOP}")
        for host, one in running.items():
            done = one.result()
            assert done.returncode == 0, done.stderr
            report = json.loads(done.stdout)
            seen[host] = Watch(report["refused"], set(report["cmdline"]), set(report["environ"]))
    site.root("fe", f"rm -f {STOP}")


def secrets_of(site: Site, job_id: str) -> dict[str, str]:
    """Parts of all that is secret of a running job, by what each is of."""
    texts = {"the job's key": site.root("cn1", f"cat /run/vtorque/jobs/{site.full_id(job_id)}.1/job_key")}
    for node in NODES:
        for number, entry in enumerate(site.root(node, SEEDS).splitlines()):
            texts[f"file {number} of the seed of {node}"] = base64.b64decode(entry.split('"')[1]).decode()
    parts = {}
    for name, text in texts.items():
        if "PRIVATE KEY" in text:
            for number, line in enumerate(text.splitlines()[1:-1]):
                parts[f"{name}, line {number}"] = line[:48]
            parts[f"{name}, in base64"] = base64.b64encode(text.encode()).decode()[100:148]
        for found in re.findall(r"VTORQUE_TOKEN='?([0-9a-f]{16,})", text):
            parts[f"{name}, token"] = found
    return parts


@pytest.mark.both
def test_secrets_are_in_nobodys_words_and_in_no_log(site: Site, attack: Attack) -> None:
    """From the submission to the end of a job of two nodes, whose owner has all of it logged."""
    logged = ("env", "DEBUG=true", "SHOW_LOG=true")
    with watching(site, "bob") as by_bob, watching(site, None) as by_root:
        job_id = site.submit(*site.batch.pair, stdin=WAITS, through=logged)
        wait_in_guest(site, job_id)
        secrets = secrets_of(site, job_id)
        assert finish(site, job_id).exit_status == 0
        for node in NODES:
            site.wait_for("the end of its guests", lambda node=node: not site.root(node, "ls /var/lib/vtorque/guests"))
    kinds = {name.rpartition(", ")[2] for name in secrets}
    assert {"line 0", "in base64", "token"} <= kinds, secrets.keys()
    for word in SEEN:
        assert any(word in arguments for arguments in by_bob["cn1"].cmdline), f"no process with {word} was seen"
    for name, secret in secrets.items():
        attack(f"to read {name} among the words of processes")
        for watch in (*by_bob.values(), *by_root.values()):
            assert not [arguments for arguments in watch.cmdline | watch.environ if secret in arguments], name
    assert all(watch.refused > 0 for host, watch in by_bob.items() if host != "fe")
    assert all(watch.refused == 0 for watch in by_root.values())
    # a token is good for one line of a console, and that is there by now
    keys = "\n".join(secret for name, secret in secrets.items() if not name.endswith("token"))
    for host in ("fe", *NODES):
        found = site.on(host, "grep", "-rlaF", "-f", "-", "--exclude-dir=.ssh", *KEPT, stdin=keys)
        assert found.stdout == ""


TRY = """
import json, os, socket, sys
# what can be opened, changed or joined of these paths
job = json.load(sys.stdin)
can = []
for path in job["paths"]:
    for way, flags in (("read", os.O_RDONLY), ("write", os.O_WRONLY)):
        try:
            os.close(os.open(path, flags | os.O_NONBLOCK))
            can.append([way, path])
        except OSError:
            pass
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(path)
        can.append(["join", path])
    except OSError:
        pass
    changes = (os.symlink, "/etc/passwd", path + "/x"), (os.rename, path, path + ".x"), (os.chmod, path, 0o777)
    for change, *words in changes:
        try:
            change(*words)
            can.append(["change", path])
        except OSError:
            pass
for pid in job["pids"]:
    place = f"/proc/{pid}"
    for act, words in ((os.kill, (pid, 15)), (os.open, (place + "/mem", os.O_RDWR)), (os.listdir, (place + "/fd",))):
        try:
            act(*words)
            can.append(["process", pid])
        except OSError:
            pass
print(json.dumps(can))
"""
PLACES = "find /run/vtorque /var/lib/vtorque /var/lib/libvirt/qemu /etc/vtorque -print"
PUBLIC = re.compile(
    r"/(vmlinuz|initrd|known_hosts)|/etc/vtorque(/.*)?|/run/vtorque/policy\.json|/var/lib/vtorque/records"
)
"""What everybody may read: what the image is made of, public keys, the site's configuration, also parsed."""
PROCESSES = "pgrep -f 'cli.vtorque_|^[^ ]*qemu-system|vtorque-virtiofsd:|lab-torque|[l]ibvirtd'"


def tries_of_bob(site: Site, node: str, job_id: str, address: str) -> dict[str, t.Sequence[str]]:
    """Commands of another user's, by what he would have by them."""
    ssh = (
        "ssh",
        "-F",
        "none",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
    )
    key, shell = f"/run/vtorque/jobs/{site.full_id(job_id)}.1/job_key", "/opt/vtorque/bin/vtorque-shell"
    environment = site.batch.environment(job_id)
    return {
        "a login as the job's user": (*ssh, f"alice@{address}", "echo IN"),
        "a login as root of the guest": (*ssh, f"root@{address}", "echo IN"),
        "a login as himself": (*ssh, f"bob@{address}", "echo IN"),
        "a login with the job's key": (*ssh, "-i", key, f"alice@{address}", "echo IN"),
        "the hypervisor": ("virsh", "-c", "qemu:///system", "list", "--name"),
        "the job's record": ("vmgr", "job", "show", job_id),
        "its log": ("vmgr", "job", "log", job_id),
        "its console": ("vmgr", "job", "console", job_id),
        "its end": (*site.batch.cancel, job_id),
        "a signal to it": (*site.batch.signal, "KILL", job_id),
        "its words": [word.format(job_id) for word in site.batch.alter],
        "its shell": (*environment, shell),
        "its shell's terminal": (*environment, "PBS_ENVIRONMENT=PBS_INTERACTIVE", shell, "-c", "echo IN"),
        "root's sweep": ("vtorque-sweep", "--all"),
    }  # fmt: skip


@pytest.mark.both
@pytest.mark.full
def test_another_user_of_the_node_has_nothing_of_a_job(site: Site, attack: Attack) -> None:
    """No file, no socket, no process, no login, no command; and the job ends as if he had not been there."""
    with guest_of(site, *site.batch.on_first) as (job_id, node):
        record = json.loads(site.stored(node, job_id))
        paths = site.root(node, PLACES).splitlines()
        pids = [int(pid) for pid in site.root(node, PROCESSES).split()]
        assert any(path.endswith("/job_key") for path in paths)
        assert len(pids) >= 5
        done = site.on(node, PYTHON, "-I", "-c", TRY, user="bob", stdin=json.dumps({"paths": paths, "pids": pids}))
        assert done.returncode == 0, done.stderr
        for path in paths:
            attack(f"to open, change or join {path}")
        can = [(way, thing) for way, thing in json.loads(done.stdout)]
        assert [(way, thing) for way, thing in can if way != "read" or not PUBLIC.search(thing)] == []
        for what, command in tries_of_bob(site, node, job_id, record["guests"][0]["address"]).items():
            attack(what)
            tried = site.on(node, *command, user="bob", stdin="/home/bob/in.sh\n")
            assert tried.returncode != 0, what
            assert "IN" not in tried.stdout, what
            assert "Traceback" not in tried.stderr, what
        check_untouched(finish(site, job_id))


@pytest.mark.both
@pytest.mark.full
def test_the_owner_by_hand_runs_nothing_of_his_job_again(site: Site, attack: Attack) -> None:
    """The job's shell, outside of the job, with the id of a living one, of one that is over, and of nobody."""
    over = site.job(*site.batch.on_first, stdin="true\n").job_id
    with guest_of(site, *site.batch.on_first) as (job_id, node):
        for which in (job_id, over, site.batch.unknown, f"../jobs/{job_id}", ""):
            for arguments in ((), ("-c", "echo IN")):
                attack(f"the job's shell by hand as {which!r} {arguments}")
                called = (*site.batch.environment(which), "/opt/vtorque/bin/vtorque-shell", *arguments)
                tried = site.on(node, *called, user="alice", stdin="/home/alice/in.sh\n")
                assert tried.returncode not in (0, 255)
                assert tried.stdout == ""
                assert tried.stderr.startswith("vtorque: ")
                assert "Traceback" not in tried.stderr
        check_untouched(finish(site, job_id))
