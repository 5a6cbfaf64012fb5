# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's material, recorded on 22.05.8 (tests/fixtures/slurm)."""

from __future__ import annotations

import base64
import pathlib
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import Role
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import comment
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import PREFIX, Request

from . import slurm_stand_in
from .material import FIXTURES, FakeServer

RECORDED = {
    Role.BEGIN_FIRST: ("prologue", "prolog-cn1.txt"),
    Role.BEGIN_OTHER: ("prologue.other", "prolog-cn2.txt"),
    Role.END_FIRST: ("epilogue", "epilog-cn1.txt"),
    Role.END_OTHER: ("epilogue", "epilog-cn2.txt"),
}
STATE = """\
case $(cat {place}/state) in
    silent) exec sleep 60 ;;
    gone) echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
esac
"""
RECORDED_NOW = """\
if [ -e {place}/held ]; then
    # the same of another job
    sed 's/"job_id": 1,/"job_id": 4,/' {fixtures}/slurm/squeue-held.json >{place}/now
else
    cp {fixtures}/slurm/squeue-running.json {place}/now
fi
"""
ANSWER = 'exec /usr/bin/python3 -I {stand_in} {place}/now "${0##*/}" "$@"\n'.replace(
    "{stand_in}", str(pathlib.Path(slurm_stand_in.__file__))
)
SQUEUE = STATE + 'echo "squeue $*" >>{place}/asked\n' + RECORDED_NOW + ANSWER
SINFO = STATE + "exec /usr/bin/python3 -I {place}/nodes.py {fixtures}/slurm/sinfo-nodes.json {place}\n"
NODES = """\
import json, pathlib, sys
answer, place = json.load(open(sys.argv[1])), pathlib.Path(sys.argv[2])
node = answer["nodes"][0]
node["reason"] = (place / "note").read_text()
node["state_flags"] = ["DRAIN"] if (place / "offline").exists() else []
json.dump(answer, sys.stdout)
"""
SCONTROL = (
    """\
case $1 in
    -a) echo "scontrol: unrecognized option '--json'" >&2; exit 1 ;;
    listpids)
        [ ! -e {place}/hidden ] || { echo "scontrol: error: slurm_conf: cannot be read" >&2; exit 1; }
        [ -e {place}/steps ] || { echo "No job steps exist on this node." >&2; exit 1; }
        cat {place}/steps
        exit
        ;;
esac
"""
    + STATE
    + f"""\
case $1 in
    -d)
        echo "scontrol $*" >>{{place}}/asked
{RECORDED_NOW}
        {ANSWER}
        ;;
esac
"""
    + """\
echo "scontrol $*" >>{place}/orders
case $(cat {place}/state):$* in
    deaf:*) ;;
    *:"update nodename="*" state=drain reason="*) : >{place}/offline; printf %s "${4#reason=}" >{place}/note ;;
    *:"update nodename="*" state=resume") rm -f {place}/offline ;; # as 24.11 does it: the reason stays
    *:"requeuehold "*) : >{place}/held ;;
esac
"""
)
LISTPIDS = """\
PID      JOBID    STEPID   LOCALID GLOBALID
119      4        batch    0       0
120      4        batch    -       -
-1       4        extern   0       0
"""


class SlurmMaterial(FakeServer):
    """See `Material`."""

    system = "slurm"
    job_id, display_id = "4.lab", "4"
    user = "alice"
    exit_status = 0
    nodes = ("cn1", "cn2")
    node = "cn1"
    vm_line = "#VM"
    node_file = ""

    environment: t.ClassVar[dict[bytes, bytes]] = dict(
        line.split(b"=", 1) for line in (FIXTURES / "slurm/environment.txt").read_bytes().splitlines()
    )

    def __init__(self, place: pathlib.Path) -> None:
        order = STATE + 'echo "scancel $*" >>{place}/orders\n'
        programs = {"squeue": SQUEUE, "sinfo": SINFO, "scontrol": SCONTROL, "scancel": order, "slurmd": ""}
        super().__init__(place, {"nodes.py": NODES}, programs)
        self.policy = Policy(
            batch_system="slurm", pbs_qsub_on_nodes=str(place / "bin/qsub"), pbs_qsub_on_fe=str(place / "bin/qsub")
        )

    def write_note(self, note: str) -> None:
        """See `Material.write_note`: Slurm has a reason for a node that is out of use."""
        super().write_note(note)
        (self.place / "offline").touch()

    def call(self, role: Role, *, job_id: str = "", user: str = "") -> tuple[list[str], dict[str, str]]:
        name, file = RECORDED[role]
        lines = (FIXTURES / "slurm" / file).read_text().splitlines()
        environment = dict(line.split("=", 1) for line in lines)
        environment["SLURM_JOB_ID"] = job_id or environment["SLURM_JOB_ID"]
        environment["SLURM_JOB_USER"] = user or environment["SLURM_JOB_USER"]
        return [name, "yes"], environment

    def request_in(self, arguments: t.Sequence[str]) -> Request | None:
        for word in arguments:
            if data := comment.unpack(word.removeprefix("--comment=")):
                return Request.decode(PREFIX + base64.urlsafe_b64encode(data).decode().rstrip("="))
        return None

    def offer_script(self, content: bytes) -> list[str]:
        path = self.place / "slurm_script"
        path.write_bytes(b"#!/opt/vtorque/bin/vtorque-shell\n" + content)
        return [str(path), "one"]

    def leave_traces(self) -> None:
        (self.place / "steps").write_text(LISTPIDS)

    def hide_traces(self) -> None:
        (self.place / "hidden").touch()
