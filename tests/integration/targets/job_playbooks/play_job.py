# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the job's playbooks as a hook runs them, and look at what they leave.

The batch server is a script that prints what a real qstat printed, with a hostile job name and a request of ours; the
node is a script that answers as `vtorque-node` does.
"""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import socket
import subprocess
import sys
import time

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import parse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import records
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files as files_module
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_id

JOB, START = "4711.head", 1
HERE = socket.gethostname()
CANARY = "{{ lookup('pipe', 'touch /tmp/vtorque-canary') }}$(touch /tmp/vtorque-canary)"
QSTAT = """<?xml version="1.0"?>
<Data><Job><Job_Id>{job}</Job_Id><Job_Name>{canary}</Job_Name><Job_Owner>nobody@head</Job_Owner>
<job_state>R</job_state><queue>batch</queue><server>head</server><Account_Name>{canary}</Account_Name>
<exec_host>{here}/0+{here}/1</exec_host><Hold_Types>n</Hold_Types><Resource_List><nodes>1:ppn=2</nodes><mem>4gb</mem></Resource_List>
<session_id>0</session_id><substate>41</substate><Variable_List>PBS_O_HOME=/,FOO={canary}</Variable_List>
<euser>nobody</euser><egroup>nogroup</egroup><submit_args>{canary}</submit_args><start_count>{start}</start_count>
<init_work_dir>/tmp</init_work_dir><x>{request}</x></Job></Data>
"""
NODE = """#!{python}
import json, pathlib, sys
for line in iter(sys.stdin.readline, ""):
    part = json.loads(line)
    asked = part.get("guests", [])
    if part["do"] != "join":
        pathlib.Path({log!r}).open("a").write(json.dumps([part["do"], len(asked), part["node"]]) + chr(10))
    guests = [dict(rank=g["rank"], name="v" + part["node"].split(".")[0] + "-3", mac="52:54:00:00:01:03",
                   address="192.0.2.17", timings_s=dict(ready=3.2), vcpu_cores="", other_cores="", devices="", cells="",
                   pages="", io_least=0, warm="", networks="", side_channels="")
              for g in asked]
    removed = ["domain"] if part["do"] == "absent" else []
    print(json.dumps(dict(version=1, ok=True, guests=guests, removed=removed, left=[])), flush=True)
"""


class World:
    """A batch server, a node, a pool and a configuration, below one directory."""

    def __init__(self, where: pathlib.Path) -> None:
        self.where = where
        self.run_dir = where / "run" / "jobs" / f"{JOB}.{START}"
        self.asked = where / "asked"
        for name in ("bin", "prefix/bin", "pool", "torque/aux", "etc"):
            files_module.make_directory(where / name)
        (where / "torque/aux" / JOB).write_text(f"{HERE}\n{HERE}\n")
        (where / "pool/tiny.qcow2").write_text("a disk")
        (where / "pool/tiny.qcow2").chmod(0o444)
        self.program("prefix/bin/vtorque-node", NODE.format(python=sys.executable, log=str(self.asked)))
        self.answer(QSTAT)
        settings = {
            "pbs_qsub_on_nodes": str(where / "bin/qsub"), "torque_home": str(where / "torque"), "allow_emulation": True,
            "vm_img_dir": str(where / "pool"), "distro_default": "debian", "hypervisor_default": "qemu",
        }  # fmt: skip
        (where / "etc/vtorque.yml").write_text(json.dumps(settings))
        files_module.make_directory(self.run_dir)
        source = {"plugin": "mikelangelo.vtorque.pbs_nodefile", "job_id": JOB, "config": str(where / "etc/vtorque.yml")}
        (self.run_dir / "job.pbs_nodefile.yml").write_text(json.dumps(source))
        config = templates.render("ansible.cfg.j2", site_dir=None, prefix=str(where), run_dir=str(self.run_dir))
        (self.run_dir / "ansible.cfg").write_text(config)

    def program(self, name: str, text: str) -> None:
        """Put an executable file there."""
        (self.where / name).write_text(text)
        (self.where / name).chmod(0o755)

    def answer(self, form: str) -> None:
        """Let qstat print this."""
        request = parse([("img=tiny,vcpus=1,ram=256M", "-vm")]).encode()
        report = form.format(job=JOB, start=START, here=HERE, request=request, canary=CANARY)
        (self.where / "qstat.xml").write_text(report)
        self.program("bin/qstat", f"#!/bin/sh\ncat {self.where}/qstat.xml\n")

    def play(self, name: str, *more: str, status: int = 0) -> str:
        """Run a playbook in the environment that the hook gives it; return what it said."""
        me = os.getpid()
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ["PYTHONPATH"], "LC_ALL": "C.UTF-8", "HOME": str(self.where),
            "ANSIBLE_CONFIG": str(self.run_dir / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": os.environ.get("ANSIBLE_COLLECTIONS_PATH", ""),
            "VTORQUE_DEADLINE": str(time.monotonic() + 120), "VTORQUE_SHELL": str(process_id.ProcessId.of(me)),
        }  # fmt: skip
        source = ["-i", str(self.run_dir / "job.pbs_nodefile.yml")]
        places = ["-e", f"vtorque_prefix={self.where}/prefix", "-e", f"vtorque_records_dir={self.where}/records"]
        done = subprocess.run(
            ["ansible-playbook", *source, *places, f"mikelangelo.vtorque.{name}", *more],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        output = done.stdout + done.stderr
        print(output)
        assert done.returncode == status, (name, done.returncode)
        assert "canary" not in output, "what the submitter wrote came into Ansible's output"
        assert "PRIVATE KEY" not in output
        return output

    def files(self) -> set[str]:
        """What lies in the run directory of ours."""
        return {path.name for path in self.run_dir.iterdir()} - {"ansible", "ansible.cfg", "job.pbs_nodefile.yml"}


def main() -> None:
    """The story of one start, and of one that fails."""
    world = World(pathlib.Path(sys.argv[1]))
    assert "changed=3" in world.play("prologue", "--check", "--diff")
    assert world.files() == set()
    assert not world.asked.exists()

    output = world.play("prologue", "--diff")
    assert "changed=3" in output
    node = json.loads(world.asked.read_text())
    assert node == ["present", 1, HERE], node
    for name in ("plan.json", "ready.json", "job_key", "known_hosts"):
        assert name in world.files(), name
    link = world.where / "run/shells" / str(process_id.ProcessId.of(os.getpid()))
    ready = records.ReadyRecord.from_dict(files_module.read_json(link / "ready.json"))
    assert (ready.user, ready.guests[0].address) == ("nobody", "192.0.2.17")
    reads = subprocess.run(["cat", link / "job_key"], user=pwd.getpwnam("nobody").pw_uid, check=False)
    assert reads.returncode == 0, "the job's owner cannot read their key"

    assert "changed=0" in world.play("prologue"), "the second run of a prologue changed something"
    assert "changed=0" in world.play("prologue", "--check")

    world.play("epilogue", "--check")
    assert link.is_symlink()
    world.play("epilogue")
    assert world.files() == set(), world.files()
    assert not link.is_symlink()
    assert (world.where / f"records/{JOB}.{START}/record.json").exists()

    world.answer("not XML")
    world.play("prologue", status=1)  # the inventory says so
    assert files_module.read_json(world.run_dir / "error.json")["fault"] == "site"
    world.answer(QSTAT.replace("{request}", "vtorque:rubbish"))
    world.play("prologue", status=2)
    assert files_module.read_json(world.run_dir / "error.json")["fault"] == "user"
    assert not pathlib.Path("/tmp/vtorque-canary").exists()


if __name__ == "__main__":
    main()
