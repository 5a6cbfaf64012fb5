# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job was doing, asked by its owner after its end."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from .conftest import Site

WORK = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done\n"


def test_owner_is_told_what_happened_and_nobody_else_is(site: Site) -> None:
    """On the job's first node: what it used, its log, its console, its picture."""
    ended = site.job(stdin=WORK)
    assert ended.out == "done\n"
    tells_all(site, ended.node, ended.job_id)
    refuses(site, ended.node, ended.job_id)


def tells_all(site: Site, host: str, job_id: str) -> None:
    """Everything that `vmgr job` has for alice."""
    number = job_id.partition(".")[0]

    def vmgr(*words: str) -> str:
        done = site.on(host, "vmgr", "job", *words, user="alice")
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert job_id in [one["job_id"] for one in json.loads(vmgr("list", "--json"))]
    assert job_id in vmgr("list")
    facts = json.loads(vmgr("show", number, "--json"))
    assert (facts["state"], facts["exit_status"], facts["user"]) == ("finished", 0, "alice")
    (guest,) = facts["guests"]
    for key in ("cpu_s", "ram_peak_bytes", "read_bytes", "received_bytes", "sent_bytes"):
        assert guest["used"][key] > 0, key
    shown = vmgr("show", number)
    assert "finished, exit status 0" in shown
    assert guest["name"] in shown
    assert f"prologue of job {job_id}" in vmgr("log", number)
    console = vmgr("console", number, "--guest", guest["name"])
    assert "vtorque-ready" in console
    assert "\x1b" not in console
    picture = ET.fromstring(vmgr("report", number, "--svg", "-"))
    assert f"{guest['name']} on {guest['node']}" in {text.text for text in picture.iter() if text.tag.endswith("text")}


def refuses(site: Site, host: str, job_id: str) -> None:
    """bob learns nothing of it."""
    for verb in ("show", "log", "console"):
        done = site.on(host, "vmgr", "job", verb, job_id, user="bob")
        assert (done.returncode, done.stdout) == (2, ""), verb
        assert "not yours to read" in done.stderr
    listed = site.on(host, "vmgr", "job", "list", "--json", user="bob")
    assert listed.returncode == 0
    assert job_id not in listed.stdout
