# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a job: in its own log as its owner wants them, in the file of the site, and with the site's program."""

from __future__ import annotations

import json
import typing as t

import pytest

from .conftest import Site
from .trouble import PAIR, SISTER, SUPERIOR, guest_on, wait_in_guest

CONFIG = "/etc/vtorque/vtorque.yml"
PLACE = "/run/site-log"
PROGRAM = f"""\
#!/bin/sh
cat >{PLACE}/got/$$.new && id -u >>{PLACE}/got/$$.new && mv {PLACE}/got/$$.new {PLACE}/got/$$.line
exec sleep 600
"""
LINES = (
    f"log_file: {PLACE}/vtorque.log", "log_format: json", "log_levels: [readiness debug]",
    f"log_program: {PLACE}/program", "log_program_level: warning",
)  # fmt: skip


@pytest.fixture
def logged(site: Site) -> t.Iterator[Site]:
    """A site with a file for all lines, and a program that hangs."""
    for node in (SUPERIOR, SISTER):
        added = "".join(f"sed -i '1 i {line}' {CONFIG}; " for line in LINES)
        site.root(node, f"mkdir -p {PLACE}/got; chmod 777 {PLACE}/got; {added}")
        done = site.on(node, "/bin/sh", "-c", f"cat >{PLACE}/program; chmod 755 {PLACE}/program", stdin=PROGRAM)
        assert done.returncode == 0, done.stderr
    yield site
    for node in (SUPERIOR, SISTER):
        site.root(node, f"sed -i '1,{len(LINES)} d' {CONFIG}; pkill -f '[s]leep 600' -u 65534; rm -rf {PLACE}")


def lines_of(site: Site, node: str) -> list[dict[str, t.Any]]:
    return [json.loads(line) for line in site.root(node, f"cat {PLACE}/vtorque.log").splitlines()]


@pytest.mark.full
def test_lines_of_a_job_reach_its_owner_the_file_of_the_site_and_its_program(logged: Site) -> None:
    """On all of its nodes; a program that hangs keeps nothing from its end."""
    site = logged
    done = site.on(
        "fe", "env", "TRACE=true", "vsub", *PAIR, "-vm", "vcpus=1,ram=192M", user="alice", stdin="echo up; sleep 600\n"
    )
    job_id = done.stdout.strip()
    assert wait_in_guest(site, job_id) == SUPERIOR
    guest = guest_on(site, SISTER)
    site.root(SISTER, f"virsh destroy {guest}")
    site.wait_for("the site's program", lambda: site.root(SISTER, f"cat {PLACE}/got/*.line 2>/dev/null || true"))
    site.end(job_id)
    line, uid = site.root(SISTER, f"cat {PLACE}/got/*.line").splitlines()[:2]
    assert f"guest {guest} is lost" in json.loads(line)["message"]
    assert uid == "65534"
    for node, programs in ((SUPERIOR, {"hook", "worker", "builder"}), (SISTER, {"worker", "builder"})):
        lines = [one for one in lines_of(site, node) if one["job"] == site.full_id(job_id)]
        assert programs <= {one["program"] for one in lines}
        assert {one["host"] for one in lines} == {node}
        assert ("debug", "readiness") in {(one["level"], one["component"]) for one in lines}
        assert not any(
            one["level"] == "trace" or (one["level"], one["component"]) == ("debug", "builder") for one in lines
        )
        log = site.stored(node, job_id, name="vtorque.log")
        assert f" {node} builder[" in log
        assert " trace readiness: guest " in log
        assert " debug builder: the disk of " in log
    chosen = site.on(SUPERIOR, "vmgr", "job", "log", job_id, "--json", "--level", "debug", user="alice")
    assert {one["level"] for one in json.loads(chosen.stdout)} >= {"debug", "info"}
    assert all("level" in one and one["level"] != "trace" for one in json.loads(chosen.stdout))
