# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user lays in the way, holds, or takes away under his own job: root follows and awaits none of it.

Seen to fail: with an epilogue that notes its end in a file in /tmp; and before Ansible was told where its files go.
"""

from __future__ import annotations

import json
import re

import pytest

from ..conftest import Site
from ..trouble import NODES, WAITS, finish, sweep, wait_in_guest
from .conftest import Attack, check_untouched, guest_of

PYTHON = "/opt/vtorque/venv/bin/python"
STOP, READY = "/home/bob/stop", "/home/bob/ready"
PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/home/alice")
WATCH = f"""
import os, pathlib, sys
import inotify_simple
# who makes what in places where anybody may make something
watch, flags = inotify_simple.INotify(), inotify_simple.flags
places = {{watch.add_watch(place, flags.CREATE | flags.MOVED_TO): place for place in {PLACES!r}}}
pathlib.Path("{READY}").touch()
while not os.path.exists("{STOP}"):
    for event in watch.read(timeout=200):
        path = f"{{places[event.wd]}}/{{event.name}}"
        try:
            owner = os.lstat(path).st_uid
        except OSError:
            owner = "gone"
        print(owner, path, flush=True)
"""
NAMES = ("vtorque", "vtorque.log", "ansible", ".ansible", "virtiofsd", "{job}", "vtorque-{job}", "{job}.1", "vcn1-1",
         "vcn1-1.log", "user-data", "meta-data", "domain.xml", "job_key", "debug.log", "hooks.log")  # fmt: skip
"""In /tmp: what the original made there, and what ours is called elsewhere."""
SEMAPHORE = re.compile(r"/dev/shm/sem\.(mp-)?\w+")
"""glibc makes them there and nowhere else (sem_open), under a random name, where nothing was."""
DOTS = ".profile .bashrc .bash_logout .ssh"
IN_HOME = (".ansible", ".cache", ".config", ".local", ".vtorque", ".VM_jobs", "STDIN.x", "vtorque")
BUSY = f"""
import os, time
# holds every pipe of his job's run directory open, reads them empty and stuffs them, from the first moment
held = {{}}
while not os.path.exists("{STOP}"):
    for name in ("words", "early.said", "early.out", "early.err", "ready.json", "job_key", "refusal.json"):
        for start in (1, 2):
            path = f"/run/vtorque/jobs/{{os.environ['JOB']}}.{{start}}/{{name}}"
            for act, *words in (os.unlink, path), (os.rename, path, "/tmp/mine"), (os.symlink, "/etc/passwd", path):
                try:
                    act(*words)
                    print("changed", path, flush=True)
                except OSError:
                    pass
            if path not in held and os.path.exists(path):
                try:
                    held[path] = os.open(path, os.O_RDWR | os.O_NONBLOCK)
                except OSError:
                    continue
                print("opened", path, flush=True)
    for fd in held.values():
        try:
            os.read(fd, 65536)
        except OSError:
            pass
        try:
            while True:
                os.write(fd, b"\\x1b]0;x\\x07" * 300)
        except OSError:
            pass
    time.sleep(0.01)
"""


def later(site: Site, node: str, user: str, program: str, out: str, **environment: str) -> None:
    """Start a program of somebody's on a node that goes on; it ends when the file STOP is there."""
    arguments = [f"{name}={value}" for name, value in environment.items()]
    script = f'cat >{out}.py; setsid env "$@" {PYTHON} {out}.py >{out} 2>&1 </dev/null &'
    done = site.on(node, "/bin/sh", "-c", script, "sh", *arguments, user=user, stdin=program)
    assert done.returncode == 0, done.stderr


@pytest.mark.both
@pytest.mark.full
def test_root_makes_nothing_where_users_may(site: Site, attack: Attack) -> None:
    """Links lie under all names of root's that were ever known; and nobody but the user makes anything there at all."""
    site.root("cn1", f"rm -f {STOP} {READY} && touch /run/lab/stamp")
    job_id = site.submit(*site.batch.held, *site.batch.on_first, stdin=WAITS)
    links = [f"/tmp/{name.format(job=site.full_id(job_id))}" for name in NAMES] + [
        f"/home/alice/{name}" for name in IN_HOME
    ]
    for number, link in enumerate(links):
        attack(f"a link of a user's as {link}")
        target = ("/etc/vtorque", "/etc/owned", "/root")[number % 3]
        assert site.on("cn1", "ln", "-s", target, link, user="alice").returncode == 0
    later(site, "cn1", "root", WATCH, "/run/lab/watch")
    try:
        site.wait_for("the watch", lambda: site.on("cn1", "test", "-e", READY).returncode == 0)
        assert site.on("fe", *site.batch.release, job_id, user="alice").returncode == 0
        wait_in_guest(site, job_id)
        assert site.root("cn1", "find /etc /root /opt/vtorque/bin /usr/local -xdev -newer /run/lab/stamp") == ""
        check_untouched(finish(site, job_id))
        site.wait_for("the end of its guest", lambda: not site.root("cn1", "ls /var/lib/vtorque/guests"))
    finally:
        site.root("cn1", f"touch {STOP}; rm -f {' '.join(links)}")
    made = [line.split(maxsplit=1) for line in site.root("cn1", "cat /run/lab/watch").splitlines()]
    assert [path for owner, path in made if owner == "1001"], "the watch has seen nothing"
    assert [(owner, path) for owner, path in made if owner != "1001" and not SEMAPHORE.fullmatch(path)] == []
    assert site.root("cn1", "find /etc /root /opt/vtorque/bin /usr/local -xdev -newer /run/lab/stamp") == ""


@pytest.mark.both
@pytest.mark.full
def test_pipes_of_the_run_directory_that_the_user_holds(site: Site, attack: Attack) -> None:
    """He may spoil his own job by it, and nothing else: it ends, no node is blamed, the log is bounded and readable."""
    site.root("cn1", f"rm -f {STOP}")
    job_id = site.submit(*site.batch.held, *site.batch.on_first, stdin=WAITS)
    later(site, "cn1", "alice", BUSY, "/home/alice/busy", JOB=site.full_id(job_id))
    try:
        assert site.on("fe", *site.batch.release, job_id, user="alice").returncode == 0
        opened = lambda: site.read("/home/alice/busy")  # noqa: E731
        site.wait_for("a pipe that he holds", lambda: "opened" in opened() or site.facts(job_id)["job_state"] == "C")
        ready = f"/run/vtorque/jobs/{site.full_id(job_id)}.1/ready.json"
        site.wait_for(
            "the job",
            lambda: site.on("cn1", "test", "-e", ready).returncode == 0 or site.facts(job_id)["job_state"] in "HC",
        )
        site.on("fe", *site.batch.cancel, job_id, user="alice")
        site.wait_state(job_id, "C")
    finally:
        site.root("cn1", f"touch {STOP}")
    report = opened().splitlines()
    for line in report:
        attack(line)
    assert any(line.endswith("/words") for line in report), report
    assert not [line for line in report if not line.startswith("opened ")]
    assert not [line for line in report if not line.endswith(("words", "early.said", "early.out", "early.err"))]
    log = site.stored("cn1", job_id, name="vtorque.log")
    assert len(log) < 100_000
    assert not [char for char in log if not (char.isprintable() or char in "\n\t")]
    assert all(node.note == "" for node in site.nodes().values())


@pytest.mark.full
def test_user_who_takes_away_all_that_is_his(site: Site, attack: Attack) -> None:
    """His home, his script, his output, from the node and from the front end, while his job runs."""
    with guest_of(site, "-l", "nodes=cn1:ppn=2") as (job_id, node):
        spool, jobs = "/var/spool/torque/spool", "/var/spool/torque/mom_priv/jobs"
        config = site.root(node, "sha256sum /etc/vtorque/vtorque.yml")
        tries = {
            "to replace his script": f"echo 'touch /tmp/owned' >{jobs}/{job_id}.SC",
            "to remove his script": f"rm -f {jobs}/{job_id}.SC",
            "to have his script be root's file": f"ln -sf /etc/vtorque/vtorque.yml {jobs}/{job_id}.SC",
            "to empty his output": f": >{spool}/{job_id}.OU",
            "to have his errors be root's file": f"ln -sf /etc/vtorque/vtorque.yml {spool}/{job_id}.ER",
            "to have his node file be another": f"ln -sf /etc/passwd /var/spool/torque/aux/{job_id}",
            "to take the record of his job": f"rm -rf /var/lib/vtorque/records/{job_id}.1",
            "to take its guest": f"rm -rf /var/lib/vtorque/guests/{job_id}.1",
            "to take its run directory": f"mv /run/vtorque/jobs/{job_id}.1 /tmp/run",
            "to take his home": "cd ~ && rm -rf -- * .[!.]*",
            "to have his home be filled with links": f"for n in {DOTS}; do ln -s /etc/shadow ~/$n; done",
            "to have no room for what comes": "chmod 500 ~",
        }  # fmt: skip
        try:
            for what, script in tries.items():
                attack(what)
                site.on(node, "/bin/sh", "-c", script, user="alice")
            stored = site.root(node, f"ls -d /var/lib/vtorque/records/{job_id}.1 /run/vtorque/jobs/{job_id}.1")
            assert len(stored.splitlines()) == 2
            ended = finish(site, job_id)
        finally:
            site.root(
                "fe", f"cd /home/alice && chmod 755 . && rm -rf {DOTS} && install -d -o alice -g alice -m 700 .ssh"
            )
        assert ended.exit_status == 0
        # a MOM that finds a link for his errors may run no epilogue: then the sweep takes all away
        site.wait_for("the sweep to find nothing", lambda: all([sweep(site, name).returncode == 0 for name in NODES]))
        assert site.root(node, "sha256sum /etc/vtorque/vtorque.yml") == config
        assert site.on(node, "test", "-e", "/tmp/owned").returncode != 0
        record = json.loads(site.stored(node, job_id))
        assert record["user"] == "alice"
    assert all(one.usable and not one.note for one in site.nodes().values())
