# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenPBS's material, recorded on 23.06.06 (tests/fixtures/openpbs)."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import Role
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request

from .material import FIXTURES

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
QSTAT = (
    STATE
    + """\
case $*: in
    *' 0.p0:') exec /usr/bin/python3 -I {place}/answer.py {fixtures}/qstat-f.json {place} ;;
    *) echo "qstat: Unknown Job Id 99.p0" >&2; exit 153 ;;
esac
"""
)
PBSNODES = (
    STATE
    + """\
case $(cat {place}/state):$1 in
    *:-a) exec /usr/bin/python3 -I {place}/answer.py {fixtures}/pbsnodes-a.json {place} ;;
    deaf:*) echo "$*" >>{place}/orders ;;
    *:-o) echo "$*" >>{place}/orders; : >{place}/offline; printf %s "$3" >{place}/note ;;
    *:-r) echo "$*" >>{place}/orders; rm -f {place}/offline; : >{place}/note ;;
esac
"""
)
QHOLD = """\
echo "qhold $*" >>{place}/orders
[ "$(cat {place}/state)" = deaf ] || echo u >{place}/holds
"""
ORDER = 'echo "{name} $*" >>{place}/orders\n'
ANSWER = """\
import json, pathlib, sys
answer, place = json.load(open(sys.argv[1])), pathlib.Path(sys.argv[2])
for job in answer.get("Jobs", {}).values():  # as it was while it ran
    job.update(job_state="R", substate=42, Hold_Types=(place / "holds").read_text().strip())
    job.pop("Exit_status")
for node in answer.get("nodes", {}).values():
    node["jobs"] = ["0.p0/0", "0.p0/1"]
node = answer.get("nodes", {}).get("p1", {})
if (place / "offline").exists():
    node["state"] = "offline"
if note := (place / "note").read_text():
    node["comment"] = note
json.dump(answer, sys.stdout)
"""


class OpenPbsMaterial:
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
        self.place = place
        self.policy = Policy(
            batch_system="openpbs", torque_home=str(place / "spool"), pbs_qsub_on_nodes=str(place / "bin/qsub"),
            pbs_qsub_on_fe=str(place / "bin/qsub"),
        )  # fmt: skip
        for directory in ("spool/mom_priv/jobs", "spool/aux", "bin"):
            (place / directory).mkdir(parents=True)
        for name, text in {"holds": "n", "note": "", "orders": "", "answer.py": ANSWER, "state": "well"}.items():
            (place / name).write_text(text)
        scripts = {"qstat": QSTAT, "pbsnodes": PBSNODES, "qhold": QHOLD}
        for name in ("qalter", "qdel"):
            scripts[name] = ORDER.replace("{name}", name)
        for name, text in scripts.items():
            text = text.replace("{place}", str(place)).replace("{fixtures}", str(FIXTURES / "openpbs"))
            (place / "bin" / name).write_text("#!/bin/sh\n" + text)
            (place / "bin" / name).chmod(0o755)

    def call(self, role: Role, *, job_id: str = "", user: str = "") -> tuple[list[str], dict[str, str]]:
        name, file = RECORDED[role]
        record = json.loads((FIXTURES / "openpbs/hooks" / file).read_text())
        # as templates/batch/openpbs/vtorque_hook.py.j2 hands them on
        call = {ours: "" if record["job"][name] == "None" else record["job"][name] for ours, name in FACTS.items()}
        call |= {"node": record["host"], "parent": record["ppid"]}
        call |= {"job": job_id or call["job"], "user": user or call["user"]}
        return [name, "yes"], {"VTORQUE_CALL": json.dumps(call)}

    def request_in(self, words: t.Sequence[str]) -> Request | None:
        mark = "vtorque="
        return next((Request.decode(word.removeprefix(mark)) for word in words if word.startswith(mark)), None)

    def server(self, state: str) -> None:
        (self.place / "state").write_text(state)

    def write_note(self, note: str) -> None:
        (self.place / "note").write_text(note)

    def read_orders(self) -> list[str]:
        return (self.place / "orders").read_text().splitlines()

    def offer_script(self, content: bytes) -> list[str]:
        path = self.place / "spool/mom_priv/jobs/4[1].p0.SC"
        path.write_bytes(content)
        fd = os.memfd_create("stdin")
        # recorded: a member of an array has backslashes before its brackets (shell.txt)
        os.write(fd, os.fsencode(path).replace(b"[", b"\\[").replace(b"]", b"\\]") + b"\n")
        os.lseek(fd, 0, os.SEEK_SET)
        os.dup2(fd, 0)
        os.close(fd)
        return []

    def leave_traces(self) -> None:
        for suffix in ("JB", "SC"):
            (self.place / "spool/mom_priv/jobs" / f"0.p0.{suffix}").touch()

    def hide_traces(self) -> None:
        shutil.rmtree(self.place / "spool/mom_priv/jobs")
