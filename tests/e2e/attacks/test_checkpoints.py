# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is saved of a job: nobody but root reads it, nobody forges it, and no other user has it made."""

from __future__ import annotations

import json

import pytest

from ..conftest import Site
from ..test_checkpoint import KEYS, STORE, checkpoints, save, storing
from ..trouble import NODES, drop, finish
from .conftest import Attack, check_untouched, guest_of

ONE = ("-l", "nodes=1:ppn=2", *KEYS)
FORGED = "/home/alice/forged"
TRIES = (
    "ls {store}",
    "cat {job}/1/manifest.json",
    "cat {job}/1/{guest}/memory",
    "cat {job}/1/{guest}/seed.iso",
    "cp -r {job} /tmp/copied",
    "ln {job}/1/{guest}/memory /tmp/linked",
    "mv {store} /home/other",
    "rm -r {job}",
    "mkdir {job}/2",
    "mkdir {store}/9.fe",
    "ln -s {forged} {job}/2",
    "mv -T {forged} {job}/2",
    "touch {job}/parked",
    "chmod 755 {store}",
)
"""Lines of shell, each of which must fail."""


@pytest.mark.full
def test_what_is_saved_of_a_job_is_roots_alone(site: Site, attack: Attack) -> None:
    """Its own user can read no more of it than another: it has keys of root's for the start."""
    with storing(site):
        with guest_of(site, *ONE) as (job_id, node):
            save(site, job_id)
            guest = f"v{node}-1"
            site.root("fe", f"mkdir -p {FORGED}; chown alice {FORGED}")
            content = (
                f"cd {STORE} && find . -type f -exec sha256sum {{}} + | sort && find . -printf '%p %U %m\\n' | sort"
            )
            before = site.root("fe", content)
            assert f"./{job_id}/1/manifest.json" in before
            for host in ("fe", *NODES):
                for user in ("alice", "bob"):
                    for line in TRIES:
                        message = line.format(store=STORE, job=f"{STORE}/{job_id}", guest=guest, forged=FORGED)
                        attack(f"{user} on {host}: {message}")
                        done = site.on(host, "/bin/sh", "-c", message, user=user)
                        assert done.returncode != 0, (host, user, message, done.stdout)
            assert site.root("fe", content) == before
            site.root("fe", f"rm -rf {FORGED}")
            ended = finish(site, job_id)
        check_untouched(ended)


@pytest.mark.full
def test_job_of_another_is_neither_saved_nor_suspended(site: Site, attack: Attack) -> None:
    with storing(site), guest_of(site, *ONE) as (job_id, node):
        for verb in ("checkpoint", "suspend"):
            attack(f"bob: vmgr job {verb}")
            assert site.on("fe", "vmgr", "job", verb, job_id, user="bob").returncode != 0
        for number in ("60", "61"):
            attack(f"bob: qsig -s {number}")
            assert site.on("fe", "qsig", "-s", number, job_id, user="bob").returncode != 0
        bell = f"/run/vtorque/jobs/{job_id}.1/bell"
        for letter in "cp":
            attack(f"bob rings {letter}")
            done = site.on(node, "/bin/sh", "-c", f"printf {letter} >{bell}", user="bob")
            assert "ermission denied" in done.stderr
        step = {"version": 1, "do": "hold", "job_id": job_id, "start": 1, "node": node, "generation": 1, "seconds": 9.0}
        for user in ("alice", "bob"):
            attack(f"{user} has guests stand still by root's program")
            done = site.on(node, "/opt/vtorque/bin/vtorque-node", user=user, stdin=json.dumps(step) + "\n")
            assert '"ok":false' in done.stdout, done.stderr
        assert site.facts(job_id)["job_state"] == "R"
        ended = finish(site, job_id)
        assert checkpoints(site, job_id) == []
    check_untouched(ended)


@pytest.mark.full
@pytest.mark.parametrize("how", ["edited", "of another job", "in a directory that is open to all"])
def test_job_whose_checkpoint_was_forged_is_held_and_does_not_begin_anew(site: Site, attack: Attack, how: str) -> None:
    with storing(site):
        site.root("fe", "rm -f /home/alice/begun")
        script = "echo begun >>~/begun; echo up; while :; do sleep 1; done\n"
        with guest_of(site, *ONE, script=script) as (job_id, _node):
            assert site.on("fe", "vmgr", "job", "suspend", job_id, user="alice").returncode == 0
            site.wait_state(job_id, "H")
            manifest, attempt = f"{STORE}/{job_id}/1/manifest.json", f"a manifest {how}"
            attack(attempt)
            if how == "edited":
                site.root("fe", f"sed -i 's/tiny@/tiny-bios@/g' {manifest}; chmod 400 {manifest}")
            elif how == "of another job":
                site.root("fe", f"sed -i 's/{job_id}/999.fe/g' {manifest}; chmod 400 {manifest}")
            else:
                site.root("fe", f"chmod 777 {STORE}")
            site.on("fe", "qrls", job_id, user="alice")
            reason = "with mode 0700" if "open" in how else "not what was committed"
            site.wait_for("the reason", lambda: reason in site.facts(job_id).get("comment", ""))
            site.wait_state(job_id, "H")
            site.root("fe", f"chmod 700 {STORE}")
            assert site.root("fe", "cat /home/alice/begun") == "begun\n"
            drop(site, job_id)
