# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenPBS's material, recorded on 23.06.06 (tests/fixtures/openpbs)."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import Role
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request

from .material import FIXTURES
from .pbs_material import PbsMaterial

RECORDED = {
    Role.BEGIN_FIRST: ("prologue", "0.p0.p1.EXECJOB_PROLOGUE.1795612909434.json"),
    Role.BEGIN_OTHER: ("prologue.other", "0.p0.p2.EXECJOB_PROLOGUE.1795612909540.json"),
    Role.END_FIRST: ("epilogue", "0.p0.p1.EXECJOB_EPILOGUE.1795612909840.json"),
    Role.END_OTHER: ("epilogue.other", "0.p0.p2.EXECJOB_EPILOGUE.1795612909635.json"),
}
FACTS = {
    "job": "id", "user": "euser", "run_count": "run_count", "exit_status": "Exit_status", "session": "session_id",
    "hosts": "exec_host2",
}  # fmt: skip
"""What the hook tells of an event's job, by the names that OpenPBS has for it."""
STATE = """\
case $(cat {place}/state) in
    silent) exec sleep 60 ;;
    gone) echo "Connection refused" >&2; echo "qstat: cannot connect to server p0 (errno=111)" >&2; exit 111 ;;
esac
"""
ASKED = 'echo "qstat $*" >>{place}/asked\n'
QSTAT = (
    STATE
    + """\
case $*: in
    *' 0.p0:' | *' 0:') exec /usr/bin/python3 -I {place}/answer.py {fixtures}/openpbs/qstat-f.json {place} ;;
    *) echo "qstat: Unknown Job Id 99.p0" >&2; exit 153 ;;
esac
"""
)
PBSNODES = (
    STATE
    + """\
case $(cat {place}/state):$1 in
    *:-a) exec /usr/bin/python3 -I {place}/answer.py {fixtures}/openpbs/pbsnodes-a.json {place} ;;
    deaf:*) echo "$*" >>{place}/orders ;;
    *:-o) echo "$*" >>{place}/orders; : >{place}/offline; printf %s "$3" >{place}/note ;;
    *:-r) echo "$*" >>{place}/orders; rm -f {place}/offline; : >{place}/note ;;
esac
"""
)
ANSWER = """\
import json, pathlib, sys
answer, place = json.load(open(sys.argv[1])), pathlib.Path(sys.argv[2])
for job in answer.get("Jobs", {}).values():  # as it was while it ran
    job.update(job_state="R", substate=42, Hold_Types=(place / "holds").read_text().strip())
    job.pop("Exit_status")
for node in answer.get("nodes", {}).values():
    node["jobs"] = ["0.p0"]  # in this form: release-23.06.06/pbsnodes-a-jobs.json
node = answer.get("nodes", {}).get("p1", {})
if (place / "offline").exists():
    node["state"] = "offline"
if note := (place / "note").read_text():
    node["comment"] = note
json.dump(answer, sys.stdout)
"""


class OpenPbsMaterial(PbsMaterial):
    """See `Material`."""

    system = "openpbs"
    job_id = display_id = "0.p0"
    user = "alice"
    nodes = ("p1", "p2")
    node = "p1"
    node_file = "p1\np1\np2\np2\n"
    exit_status = 37
    vm_line = "#PBS -vm"

    environment: t.ClassVar[dict[bytes, bytes]] = dict(
        line.split(b"=", 1)
        for line in (FIXTURES / "openpbs/job-env-2nodes.txt").read_bytes().splitlines()
        if line[:1].isupper() and b"=" in line
    )

    def __init__(self, place: pathlib.Path) -> None:
        super().__init__(place, {"answer.py": ANSWER}, {"qstat": ASKED + QSTAT, "pbsnodes": PBSNODES})

    def call(self, role: Role, *, job_id: str = "", user: str = "") -> tuple[list[str], dict[str, str]]:
        name, file = RECORDED[role]
        record = json.loads((FIXTURES / "openpbs/hooks" / file).read_text())
        # as templates/batch/openpbs/vtorque_hook.py.j2 hands them on
        call = {ours: "" if record["job"][name] == "None" else record["job"][name] for ours, name in FACTS.items()}
        call |= {"node": record["host"], "parent": record["ppid"]}
        call |= {"job": job_id or call["job"], "user": user or call["user"]}
        return [name, "yes"], {"VTORQUE_CALL": json.dumps(call)}

    def request_in(self, arguments: t.Sequence[str]) -> Request | None:
        mark = "vtorque="
        return next((Request.decode(word.removeprefix(mark)) for word in arguments if word.startswith(mark)), None)

    def offer_script(self, content: bytes) -> list[str]:
        path = self.jobs / "4[1].p0.SC"
        path.write_bytes(content)
        # recorded: a member of an array has backslashes before its brackets (shell.txt)
        self.offer_line(os.fsencode(path).replace(b"[", b"\\[").replace(b"]", b"\\]") + b"\n")
        return []
