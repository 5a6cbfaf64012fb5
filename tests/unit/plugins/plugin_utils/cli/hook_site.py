# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node on which the hooks' program runs: Ansible, vtorque-node and the batch system are played by small scripts."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import records
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import from_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import NodePart

IMPORT = str(pathlib.Path(records.__file__).parents[6])
JOB_ID = "12[1].th"
KEY = "12-1.th.3"
USER = "nobody"
"""A user whom every machine has."""
SCRIPT = "/var/spool/torque/mom_priv/jobs/12-1.th.SC"

QSTAT = """<?xml version="1.0"?>
<Data><Job><Job_Id>12[1].th</Job_Id><Job_Name>arr-1</Job_Name><Job_Owner>nobody@th</Job_Owner>\
<job_state>R</job_state><queue>batch</queue><server>th</server><exec_host>t1/0</exec_host><Hold_Types>HOLDS</Hold_Types>\
<Resource_List><nodes>1</nodes><nodect>1</nodect><other>OTHER</other><walltime>01:00:00</walltime></Resource_List>\
<session_id>0</session_id><substate>41</substate><euser>EUSER</euser><egroup>nogroup</egroup>\
<interactive>INTERACTIVE</interactive>\
<submit_args>-t 1-2</submit_args><start_count>START</start_count><init_work_dir>/home/alice</init_work_dir>\
<x>REQUEST</x></Job></Data>
"""
"""Recorded on TORQUE 6.1.3, shortened, with another owner and start."""

PLAYER = """#!/bin/sh
# plays ansible-playbook: `-i <run dir>/job.pbs_nodefile.yml mikelangelo.vtorque.<name>`
printf '%s\\n' "${{1:-early}}" >>{place}/ways
[ "$1" != --plain ] || shift
if [ $# -eq 0 ]; then # begun early: what to play comes on standard input
    said=$(cat)
    [ -n "$said" ] || exit 0
    field() {{ printf '%s' "$said" | sed -n "s/.*\\"$1\\": \\"\\([^\\"]*\\)\\".*/\\1/p"; }}
    VTORQUE_DEADLINE=$(field VTORQUE_DEADLINE) VTORQUE_SHELL=$(field VTORQUE_SHELL)
    export VTORQUE_DEADLINE VTORQUE_SHELL
    set -- $(printf '%s' "$said" | sed 's/.*"arguments": \\[//; s/\\].*//; s/[",]//g')
fi
printf '%s\\n' "$*" "deadline=$VTORQUE_DEADLINE" "shell=$VTORQUE_SHELL" "config=$ANSIBLE_CONFIG" >>{place}/played
env | cut -d= -f1 | sort | tr '\\n' ' ' >{place}/environment
run_dir=${{2%/*}}
ls /proc/self/fd | tr '\\n' ' ' >{place}/descriptors
grep Sig /proc/self/status >{place}/signals
case $3 in
    *.prologue) {prologue} ;;
    *.epilogue) {epilogue} ;;
esac
"""

READY = """printf '{"x": 1}' >"$run_dir/ready.json"; chmod 400 "$run_dir/ready.json"; : >"$run_dir/plan.json"; exit 0"""
FAIL = (
    """: >"$run_dir/plan.json"; printf '%s' '{error}' >"$run_dir/error.json"; chmod 400 "$run_dir/error.json"; exit 2"""
)
CLEAN = 'rm -f "$run_dir/plan.json"; rm -rf {place}/state/guests; exit 0'

NODE = """#!/bin/sh
# plays vtorque-node
printf '%s\\n' "${{1:-}}" >>{place}/calls
cat >>{place}/asked; echo >>{place}/asked
rm -rf {place}/state/guests
echo '{answer}'
"""
BATCH = """#!/bin/sh
# plays qstat, pbsnodes, qhold and qalter: a server that does as it is told, and writes down what that was
tool=${{0##*/}}
printf '%s\\n' "$tool $*" >>{place}/told
[ ! -e {place}/deaf/$tool ] || exit 111
case $tool:$1 in
    qhold:*) echo u >{place}/holds ;;
    pbsnodes:-o) printf 'offline\\n%s\\n' "$3" >{place}/nodes/$4 ;;
    pbsnodes:-x)
        echo '<Data>'
        for node in {place}/nodes/*; do
            {{ read -r state; read -r note; }} <$node
            echo "<Node><name>${{node##*/}}</name><state>$state</state><np>4</np><note>$note</note></Node>"
        done
        echo '</Data>'
        ;;
    qstat:*) sed "s/HOLDS/$(cat {place}/holds)/" {place}/job ;;
esac
"""
USER_SCRIPT = """#!/usr/bin/python3 -I
# plays the program that runs a script of the user's in the guest
import json, os, sys, time
out, err, word = map(int, sys.argv[1:])
order = json.load(sys.stdin)
seen = {{"order": order, "uid": os.getuid(), "gid": os.getgid(), "environment": dict(os.environ),
         "link": os.path.lexists({link!r})}}
os.write(out, json.dumps(seen).encode() + b"\\n")
os.write(err, b"a complaint\\n")
answer = {answer}
os.write(word, answer if isinstance(answer, bytes) else json.dumps(answer).encode())
"""
GONE = '{"version": 1, "ok": true, "guests": [], "removed": [], "left": []}'


class Site:
    """A node with everything that the hooks' program meets."""

    def __init__(self, place: pathlib.Path):
        self.place = place
        self.collection: pathlib.Path | None = None
        """What the program takes for the root of what is installed; None: its own."""
        place.chmod(0o711)  # for what runs as the user
        self.run_dir, self.state_dir = place / "run", place / "state"
        self.torque_home = place / "torque"
        (self.torque_home / "mom_priv").mkdir(parents=True)
        (self.torque_home / "aux").mkdir()
        (self.torque_home / "aux" / JOB_ID).write_text("t1\n")
        (place / "bin").mkdir()
        (place / "etc").mkdir(mode=0o755)
        (place / "nodes").mkdir()
        (place / "deaf").mkdir()
        self.policy("")
        for tool in ("qstat", "pbsnodes", "qhold", "qalter"):
            self.program(tool, BATCH.format(place=place))
        (place / "holds").write_text("n\n")
        for name in ("t1", "t2", "t3"):
            self.set_node(name)
        self.job()
        self.node()
        self.play(READY, CLEAN.format(place=place))

    @property
    def config(self) -> pathlib.Path:
        """The site's configuration."""
        return self.place / "etc" / "vtorque.yml"

    def count_opened(self) -> int:
        """How often hooks have opened the site's configuration since this was asked last."""
        path = self.place / "opened"
        count = len(path.read_text().splitlines()) if path.exists() else 0
        path.unlink(missing_ok=True)
        return count

    def policy(self, text: str) -> None:
        self.config.write_text(f"torque_home: {self.torque_home}\npbs_qsub_on_nodes: {self.place}/bin/qsub\n{text}")

    def job(
        self, *, start: int = 3, other: str = "vtorque", interactive: bool = False, request: str = "vtorque:abc",
        euser: str = USER,
    ) -> None:  # fmt: skip
        """What the server says of the job."""
        arguments = {
            "START": str(start), "OTHER": other, "INTERACTIVE": str(interactive), "REQUEST": request, "EUSER": euser
        }  # fmt: skip
        text = QSTAT
        for word, value in arguments.items():
            text = text.replace(word, value)
        (self.place / "job").write_text(text)

    def set_node(self, name: str, state: str = "free", note: str = "") -> None:
        """What the server says of a node."""
        (self.place / "nodes" / name).write_text(f"{state}\n{note}\n")

    def get_node(self, name: str) -> tuple[str, str]:
        """State and note of a node at the server."""
        state, note = (self.place / "nodes" / name).read_text().splitlines()
        return state, note

    def held(self) -> bool:
        """Does the server hold the job?"""
        return (self.place / "holds").read_text() == "u\n"

    def reported(self) -> list[str]:
        """The commands of the batch system that changed something, in order."""
        path = self.place / "told"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith(("qstat", "pbsnodes -x"))]

    def deafen(self, tool: str) -> None:
        """One command of the batch system no longer reaches its server."""
        (self.place / "deaf" / tool).touch()

    def program(self, name: str, text: str) -> None:
        path = self.place / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def qstat(self, text: str) -> None:
        self.program("qstat", f"#!/bin/sh\n{text}")

    def node(self, answer: str = GONE) -> None:
        self.program("node", NODE.format(place=self.place, answer=answer))

    def user_script(self, answer: str) -> None:
        """What the child that has become the user answers, as an expression; it prints what it was told."""
        self.program("user_script", USER_SCRIPT.format(answer=answer, link=str(self.link)))

    def play(self, prologue: str, epilogue: str | None = None) -> None:
        epilogue = epilogue or CLEAN.format(place=self.place)
        self.program("ansible", PLAYER.format(place=self.place, prologue=prologue, epilogue=epilogue))

    def fail(self, error: VTorqueError) -> None:
        self.play(FAIL.format(error=json.dumps({**error.to_dict(), "host": "t1"})))

    def hook(self, role: str, *torque: str, marker: str = "yes", change: str = "") -> subprocess.CompletedProcess[str]:
        """One call, from a process that stands for the launcher, itself started by one that stands for the MOM.

        Args:
            change: lines that the configuration gets when the hook has looked whether it may begin early.
        """
        program = textwrap.dedent(f"""
            import os, pathlib, sys
            sys.path.insert(0, {IMPORT!r})
            def hear(event, args):
                if event == "open" and str(args[0]) == {str(self.config)!r} and args[2] & os.O_ACCMODE == os.O_RDONLY:
                    with open({str(self.place / "opened")!r}, "a") as stream:
                        stream.write("once\\n")
            sys.addaudithook(hear)
            from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.hooks import main as hook_work
            from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import hook
            from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.playbook import Places
            from ansible_collections.mikelangelo.vtorque.plugins.module_utils import installed
            if {str(self.collection or "")!r}:
                installed.version.__defaults__ = (pathlib.Path({str(self.collection)!r}),)
            place = pathlib.Path({str(self.place)!r})
            program = hook.begin_node(
                sys.argv[1:], [str(place / "bin/node")], place / "run/fast_start", place / "etc/vtorque.yml")
            with (place / "etc/vtorque.yml").open("a") as config:
                config.write({change!r}) if {change!r} else None
            sys.exit(hook_work.main(sys.argv[1:], Places(
                run_dir=place / "run", state_dir=place / "state", config=place / "etc/vtorque.yml",
                ansible=(str(place / "bin/ansible"),), node=(str(place / "bin/node"),),
                record=(str(place / "bin/record"),), user_script=(str(place / "bin/user_script"),)), program))
        """)
        arguments = [role, marker, str(os.getpid()), "t1", *torque]
        return subprocess.run(
            ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", program, *arguments],
            capture_output=True, text=True, timeout=300, umask=0o077, check=False,
        )  # fmt: skip

    def prologue(self, **how: t.Any) -> subprocess.CompletedProcess[str]:
        return self.hook("prologue", JOB_ID, USER, "g", "name", "other=vtorque", "batch", "", SCRIPT, **how)

    def epilogue(self, status: str = "0", role: str = "epilogue") -> subprocess.CompletedProcess[str]:
        return self.hook(role, JOB_ID, USER, "g", "name", "77", "other=vtorque", "", "batch", "", status, SCRIPT)

    @property
    def directory(self) -> pathlib.Path:
        return self.run_dir / "jobs" / KEY

    @property
    def link(self) -> pathlib.Path:
        return self.run_dir / "shells" / str(ProcessId.of(os.getpid()))

    def refusal(self, key: str = KEY) -> dict[str, t.Any]:
        return files.read_json(self.run_dir / "jobs" / key / "refusal.json")

    def verdict(self, key: str = KEY) -> dict[str, t.Any]:
        return files.read_json(self.run_dir / "jobs" / key / "verdict.json")

    def record(self, key: str = KEY) -> dict[str, t.Any]:
        return files.read_json(self.state_dir / "records" / key / "record.json")

    def played(self) -> list[str]:
        path = self.place / "played"
        return [line for line in path.read_text().splitlines() if "mikelangelo" in line] if path.exists() else []

    def ways(self) -> list[str]:
        """The first argument of each process that was begun to play; `early`: it had none, and was told later."""
        path = self.place / "ways"
        return path.read_text().splitlines() if path.exists() else []

    def calls(self) -> list[str]:
        """The first argument of each `vtorque-node`."""
        path = self.place / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def make_guest(self) -> None:
        (self.state_dir / "guests" / KEY / "vt1-1").mkdir(parents=True)

    def asked(self) -> list[NodePart]:
        path = self.place / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [from_dict(NodePart, json.loads(line)) for line in lines if line]


def readable_by(path: pathlib.Path) -> str:
    done = subprocess.run(["getfacl", "-cpn", path], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def nothing_left(site: Site) -> None:
    assert list((site.run_dir / "jobs").iterdir()) == []
    assert list((site.run_dir / "shells").iterdir()) == [] if (site.run_dir / "shells").exists() else True
    assert not (site.state_dir / "guests" / KEY).exists()
