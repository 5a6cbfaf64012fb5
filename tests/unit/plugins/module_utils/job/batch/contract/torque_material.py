# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Torque's material, recorded on TORQUE 6.1.3 (tests/fixtures/torque)."""

from __future__ import annotations

import os
import pathlib
import re
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import Role
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request

from .material import FIXTURES
from .pbs_material import PbsMaterial

RECORDED = {
    Role.BEGIN_FIRST: ("prologue", "hook-ms-prologue.txt"),
    Role.BEGIN_OTHER: ("prologue.parallel", "hook-sister-prologue.parallel.txt"),
    Role.END_FIRST: ("epilogue", "hook-ms-epilogue.txt"),
    Role.END_OTHER: ("epilogue.parallel", "hook-sister-epilogue.parallel.txt"),
}
QSTAT = """\
echo "qstat $*" >>{place}/asked
case $*:$(cat {place}/state) in
    *:silent) exec sleep 60 ;;
    *:gone) echo "qstat: cannot connect to server th (errno=111) Connection refused" >&2; exit 111 ;;
    *' 0.trqhead:'* | *' 0:'*) sed "s/HOLDS/$(cat {place}/holds)/" {place}/job.xml ;;
    *) echo "qstat: Unknown Job Id Error" >&2; exit 153 ;;
esac
"""
# each entry of jobs has a recorded form, `0/12[1].th` (pbsnodes-x.xml); two slots of one job were not
PBSNODES = """\
case $1:$(cat {place}/state) in
    *:silent) exec sleep 60 ;;
    *:gone) exit 111 ;;
    -x:*)
        state=free
        [ ! -e {place}/offline ] || state=offline
        printf '<Data><Node><name>trqn2</name><state>%s</state><np>2</np>' "$state"
        printf '<jobs>0/0.trqhead</jobs><note>%s</note></Node></Data>' "$(cat {place}/note)"
        ;;
    *:deaf) echo "$*" >>{place}/orders ;;
    -o:*) echo "$*" >>{place}/orders; : >{place}/offline; printf %s "$3" >{place}/note ;;
    -c:*) echo "$*" >>{place}/orders; rm -f {place}/offline; : >{place}/note ;;
esac
"""
JOB = """\
<Data><Job><Job_Id>0.trqhead</Job_Id><Job_Name>hello.sh</Job_Name><Job_Owner>alice@trqhead</Job_Owner>\
<euser>alice</euser><egroup>alice</egroup><job_state>R</job_state><queue>batch</queue>\
<exec_host>trqn2/0-1+trqn1/0-1</exec_host><Hold_Types>HOLDS</Hold_Types><start_count>1</start_count>\
<x>vtorque:eyJ2IjoxfQ</x><Resource_List><other>vtorque</other><walltime>01:00:00</walltime></Resource_List></Job></Data>
"""


class TorqueMaterial(PbsMaterial):
    """See `Material`."""

    system = "torque"
    job_id = display_id = "0.trqhead"
    user = "alice"
    exit_status = 0
    nodes = ("trqn2", "trqn1")
    node = "trqn2"
    vm_line = "#PBS -vm"
    node_file = "trqn2\ntrqn2\ntrqn1\ntrqn1\n"

    environment: t.ClassVar[dict[bytes, bytes]] = {
        b"PBS_JOBID": b"0.trqhead", b"PBS_ENVIRONMENT": b"PBS_BATCH", b"PBS_O_WORKDIR": b"/home/alice",
        b"PBS_GPUFILE": b"/var/spool/torque/aux//0.trqheadgpu", b"PBS_NP": b"4", b"PBS_NODEFILE": b"/aux/0.trqhead",
    }  # fmt: skip

    def __init__(self, place: pathlib.Path) -> None:
        super().__init__(place, {"job.xml": JOB}, {"qstat": QSTAT, "pbsnodes": PBSNODES})

    def call(self, role: Role, *, job_id: str = "", user: str = "") -> tuple[list[str], dict[str, str]]:
        name, file = RECORDED[role]
        text = (FIXTURES / "torque" / file).read_text()
        arguments = re.findall(r"^argv\[[1-9][0-9]*\]=<(.*)>$", text, re.MULTILINE)
        arguments[:2] = [job_id or arguments[0], user or arguments[1]]
        parent, superior = re.findall(r" ppid ([0-9]+) ", text), re.findall(r"^PBS_MSHOST=(.*)$", text, re.MULTILINE)
        # as templates/batch/torque/hook.sh.j2 hands them on
        return [name, "yes", *parent, *superior, *arguments], {}

    def request_in(self, arguments: t.Sequence[str]) -> Request | None:
        return next((Request.decode(word[2:]) for word in arguments if word.startswith("x=")), None)

    def offer_script(self, content: bytes) -> list[str]:
        path = self.jobs / "0.trqhead.SC"
        path.write_bytes(content)
        self.offer_line(b"%s one\n" % os.fsencode(path))
        return []
