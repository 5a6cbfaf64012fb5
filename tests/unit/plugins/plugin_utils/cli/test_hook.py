# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hooks' program, run as the launcher runs it; Ansible, vtorque-node and qstat are played by small scripts."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import re
import signal
import stat
import subprocess
import sys
import syslog
import tempfile
import textwrap
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import records
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    ImageFault,
    ImpostorFault,
    NodeFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.guestspec import NodePart, from_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.records import ProcessId
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import hook
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.hook import REQUEUE

IMPORT = str(pathlib.Path(records.__file__).parents[5])
JOB_ID = "12[1].th"
KEY = "12-1.th.3"
USER = "nobody"
"""A user whom every machine has."""
SCRIPT = "/var/spool/torque/mom_priv/jobs/12-1.th.SC"

QSTAT = """<?xml version="1.0"?>
<Data><Job><Job_Id>12[1].th</Job_Id><Job_Name>arr-1</Job_Name><Job_Owner>nobody@th</Job_Owner>\
<job_state>R</job_state><queue>batch</queue><server>th</server><exec_host>t1/0</exec_host><Hold_Types>HOLDS</Hold_Types>\
<Resource_List><nodes>1</nodes><nodect>1</nodect><other>OTHER</other><walltime>01:00:00</walltime></Resource_List>\
<session_id>0</session_id><substate>41</substate><euser>nobody</euser><egroup>nogroup</egroup>\
<interactive>INTERACTIVE</interactive>\
<submit_args>-t 1-2</submit_args><start_count>START</start_count><init_work_dir>/home/alice</init_work_dir>\
<x>vtorque:abc</x></Job></Data>
"""
"""Recorded on TORQUE 6.1.3, shortened, with another owner and start."""

PLAYER = """#!/bin/sh
# plays ansible-playbook: `-i <run dir>/job.pbs_nodefile.yml mikelangelo.vtorque.<name>`
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
GONE = '{"version": 1, "ok": true, "guests": [], "removed": [], "left": []}'


class Site:
    """A node with everything that the hooks' program meets."""

    def __init__(self, place: pathlib.Path):
        self.place = place
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

    def policy(self, text: str) -> None:
        path = self.place / "etc" / "vtorque.yml"
        path.write_text(f"torque_home: {self.torque_home}\npbs_qsub_on_nodes: {self.place}/bin/qsub\n{text}")

    def job(self, *, start: int = 3, other: str = "vtorque", interactive: bool = False) -> None:
        """What the server says of the job."""
        words = {"START": str(start), "OTHER": other, "INTERACTIVE": str(interactive)}
        text = QSTAT
        for word, value in words.items():
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

    def told(self) -> list[str]:
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

    def play(self, prologue: str, epilogue: str | None = None) -> None:
        epilogue = epilogue or CLEAN.format(place=self.place)
        self.program("ansible", PLAYER.format(place=self.place, prologue=prologue, epilogue=epilogue))

    def fail(self, error: VTorqueError) -> None:
        self.play(FAIL.format(error=json.dumps({**error.to_dict(), "host": "t1"})))

    def hook(self, role: str, *torque: str, marker: str = "yes") -> subprocess.CompletedProcess[str]:
        """One call, from a process that stands for the launcher, itself started by one that stands for the MOM."""
        program = textwrap.dedent(f"""
            import pathlib, sys
            sys.path.insert(0, {IMPORT!r})
            from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import hook
            from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.playbook import Places
            place = pathlib.Path({str(self.place)!r})
            sys.exit(hook.main(sys.argv[1:], Places(
                run_dir=place / "run", state_dir=place / "state", config=place / "etc/vtorque.yml",
                ansible=(str(place / "bin/ansible"),), node=(str(place / "bin/node"),))))
        """)
        words = [role, marker, str(os.getpid()), "t1", *torque]
        return subprocess.run(
            ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", program, *words],
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
        return records.read_json(self.run_dir / "jobs" / key / "refusal.json")

    def verdict(self, key: str = KEY) -> dict[str, t.Any]:
        return records.read_json(self.run_dir / "jobs" / key / "verdict.json")

    def record(self, key: str = KEY) -> dict[str, t.Any]:
        return records.read_json(self.state_dir / "records" / key / "record.json")

    def played(self) -> list[str]:
        path = self.place / "played"
        return [line for line in path.read_text().splitlines() if "mikelangelo" in line] if path.exists() else []

    def make_guest(self) -> None:
        (self.state_dir / "guests" / KEY / "vt1-1").mkdir(parents=True)

    def asked(self) -> list[NodePart]:
        path = self.place / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [from_dict(NodePart, json.loads(line)) for line in lines if line]


@pytest.fixture
def site() -> t.Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="vtorque-hook-") as place:
        yield Site(pathlib.Path(place))


def readable_by(path: pathlib.Path) -> str:
    done = subprocess.run(["getfacl", "-cpn", path], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_prologue_plays_the_playbook_for_this_start(site: Site) -> None:
    done = site.prologue()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert site.played() == [f"-i {site.directory}/job.pbs_nodefile.yml mikelangelo.vtorque.prologue"]
    lines = (site.place / "played").read_text().splitlines()
    assert f"shell={ProcessId.of(os.getpid())}" in lines
    assert f"config={site.place}/run/ansible.cfg" in lines
    assert json.loads((site.directory / "job.pbs_nodefile.yml").read_text()) == {
        "plugin": "mikelangelo.vtorque.pbs_nodefile", "job_id": JOB_ID, "config": str(site.place / "etc/vtorque.yml"),
        "nodefile": str(site.torque_home / "aux" / JOB_ID),
    }  # fmt: skip
    assert records.read_json(site.directory / "phase.prologue.json")["seconds"] >= 0
    assert not (site.directory / "refusal.json").exists()


def test_ansible_meets_nothing_of_torques(site: Site) -> None:
    """A clean environment, three descriptors, no blocked and no ignored signal."""
    assert site.prologue().returncode == 0
    names = set((site.place / "environment").read_text().split()) - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert names == {"PATH", "LC_ALL", "HOME", "ANSIBLE_CONFIG", "VTORQUE_DEADLINE", "VTORQUE_HOOK", "VTORQUE_SHELL"}
    assert (site.place / "descriptors").read_text().split() == ["0", "1", "2", "3"]  # 3: of ls itself
    signals = dict(line.split(":\t") for line in (site.place / "signals").read_text().splitlines())
    assert int(signals["SigBlk"], 16) == 0
    # the C library keeps two numbers to itself, which nobody can set back
    assert [n for n in signal.valid_signals() if int(signals["SigIgn"], 16) >> (n - 1) & 1] == []


def test_modes(site: Site) -> None:
    """Whatever the umask: the owner passes through, reads what is his, and nothing else."""
    site.play(READY)
    assert site.prologue().returncode == 0
    for path in (site.run_dir, site.run_dir / "jobs", site.directory, site.state_dir / "records" / KEY):
        assert stat.S_IMODE(path.stat().st_mode) == 0o711
    uid = pwd.getpwnam(USER).pw_uid
    log = site.state_dir / "records" / KEY / "vtorque.log"
    assert f"user:{uid}:r--" in readable_by(log)
    assert "other::---" in readable_by(log)
    assert stat.S_IMODE((site.directory / "job.pbs_nodefile.yml").stat().st_mode) == 0o400


@pytest.mark.parametrize("error", [UserFault("img=x", "no such image"), ImageFault("img=x", "boots nowhere")])
def test_fault_of_the_job_leaves_a_refusal_for_its_shell(site: Site, error: VTorqueError) -> None:
    site.fail(error)
    done = site.prologue()
    assert (done.returncode, done.stderr) == (0, "")
    refusal = site.refusal()
    assert (refusal["fault"], refusal["what"], refusal["why"]) == (error.fault, error.what, error.why)
    assert (refusal["job_id"], refusal["start"], refusal["lines"]) == (JOB_ID, 3, [])
    assert site.link.readlink() == site.directory
    assert f"user:{pwd.getpwnam(USER).pw_uid}:r--" in readable_by(site.directory / "refusal.json")
    (part,) = site.asked()
    assert (part.do, part.job_id, part.start, part.node, part.guests) == ("absent", JOB_ID, 3, "t1", ())
    assert site.told() == []
    assert site.verdict()["action"] == "refuse"
    assert not (site.state_dir / "log").exists()


BRIDGE = NodeFault("t1: bridge br0", "is missing on this node", "make it", cause="bridge")
HELD = "the job is held: qrls 12[1].th releases it for 3 more tries"
NOTE = "vtorque: bridge: bridge br0: is missing on this node (job 12[1].th)"


@pytest.mark.parametrize(
    ("error", "start", "offline", "end"),
    [
        (BRIDGE, 1, True, "the job is tried again"),
        (BRIDGE, 3, True, HELD),
        (NodeFault("t1", "has trouble"), 1, False, "the job is tried again"),
        (SiteFault("the pool", "cannot be read"), 2, False, "the job is tried again"),
        (SiteFault("the pool", "cannot be read"), 3, False, HELD),
        (VTorqueError("guest", "was silent"), 2, False, "the job is tried again"),
        (VTorqueError("guest", "panic"), 6, False, HELD),
        (ImpostorFault("guest", "another key"), 1, False, HELD.partition(" for ")[0]),
    ],
)  # fmt: skip
def test_other_faults_requeue_the_job_or_hold_it(
    site: Site, error: VTorqueError, start: int, offline: bool, end: str
) -> None:
    site.job(start=start)
    site.fail(error)
    done = site.prologue()
    tried = (start - 1) % 3 + 1
    assert done.returncode == REQUEUE
    lines = done.stderr.splitlines()
    assert lines[0] == f"vtorque: this job did not run: {error.what}: {error.why} (try {tried} of 3)"
    assert lines[-1] == f"  {end}"
    assert site.get_node("t1") == (("offline", NOTE) if offline else ("free", ""))
    assert (f"  t1 is set offline: {NOTE}" in lines) is offline
    assert site.held() == ("held" in end)
    comment = [line for line in site.told() if line.startswith("qalter")]
    assert bool(comment) == site.held()
    assert all(line.startswith("qalter -W comment=vtorque: held: ") for line in comment)
    key = f"12-1.th.{start}"
    assert site.refusal(key)["what"] == error.what  # whatever becomes of the status, nothing runs
    assert site.verdict(key) == {
        "fault": error.fault, "action": "hold" if site.held() else "requeue", "try": tried, "of": 3,
        "node": "t1" if offline else "", "note": NOTE if offline else "",
    }  # fmt: skip
    assert [part.do for part in site.asked()] == ["absent"]
    alarm = site.state_dir / "log/hooks.log"
    assert alarm.exists() == (offline or site.held())
    assert not alarm.exists() or end in alarm.read_text()


def test_interactive_job_is_refused_and_its_node_goes_offline(site: Site) -> None:
    site.job(start=1, interactive=True)
    site.fail(BRIDGE)
    done = site.prologue()
    assert (done.returncode, done.stderr) == (0, "")
    assert site.get_node("t1") == ("offline", NOTE)
    lines = site.refusal("12-1.th.1")["lines"]
    assert lines[0] == f"t1 is set offline: {NOTE}"
    assert lines[1].startswith("this is not a fault of the job: tell the administrator that it failed on ")
    assert not site.held()


def test_brake_holds_the_job_and_is_said_loudly(site: Site) -> None:
    site.job(start=1)
    for name in ("t2", "t3"):
        site.set_node(name, "offline", "vtorque: disk: full (job 1.th)")
    site.fail(BRIDGE)
    done = site.prologue()
    assert done.returncode == REQUEUE
    assert site.held()
    assert site.get_node("t1") == ("free", "")
    assert "2 of 3 nodes carry a note of vTorque already" in done.stderr
    assert "ALARM" in (site.state_dir / "log/hooks.log").read_text()


def test_administrators_note_is_left_alone_and_the_job_is_held(site: Site) -> None:
    site.job(start=1)
    site.set_node("t1", "free", "fan is loud")
    site.fail(BRIDGE)
    assert site.prologue().returncode == REQUEUE
    assert site.get_node("t1") == ("free", "fan is loud")
    assert site.held()


@pytest.mark.parametrize(
    ("deaf", "start", "words"),
    [("qhold", 3, "the job cannot be held: qhold"), ("qhold pbsnodes", 1, "does not tell of its nodes")],
)
def test_job_that_cannot_be_held_is_refused(site: Site, deaf: str, start: int, words: str) -> None:
    """A status other than 0 would run it in circles."""
    site.job(start=start)
    for tool in deaf.split():
        site.deafen(tool)
    site.fail(BRIDGE)
    done = site.prologue()
    assert (done.returncode, done.stderr) == (0, "")
    assert words in " ".join(site.refusal(f"12-1.th.{start}")["lines"])
    assert site.verdict(f"12-1.th.{start}")["action"] == "refuse"
    assert "ALARM" in (site.state_dir / "log/hooks.log").read_text()


@pytest.mark.parametrize(
    ("later", "status"),
    [("sed s/HOLDS/n/ {place}/job", 75), ("exit 111", 75), ("exit 153", 0), ("sed 's/t>3</t>4</' {place}/job", 0)],
)
def test_start_that_is_over_for_the_server_is_only_refused(site: Site, later: str, status: int) -> None:
    """What runs elsewhere by now is not to be held, and the number of this start bounds nothing any more."""
    site.policy("node_fault_retries: 2\n")
    tail = later.format(place=site.place)
    site.fail(SiteFault("the pool", "cannot be read"))
    first = (
        f"[ ! -e {site.place}/asked-before ] && : >{site.place}/asked-before && exec sed s/HOLDS/n/ {site.place}/job"
    )
    site.qstat(f"{first}\n{tail}\n")
    assert site.prologue().returncode == status
    assert site.told() == []
    assert site.refusal()["fault"] == "site"


@pytest.mark.parametrize("tool", ["pbsnodes", "qhold", "node"])
def test_hook_that_is_killed_amid_its_verdict_leaves_a_refusal(site: Site, tool: str) -> None:
    """Torque takes it for a success, and the launcher has no 75 from it."""
    site.fail(BRIDGE)
    site.program(tool, "#!/bin/sh\nkill -9 $PPID\n")
    done = site.prologue()
    assert done.returncode == 128 + signal.SIGKILL
    assert site.refusal()["what"] == BRIDGE.what
    assert not (site.directory / "ready.json").exists()
    assert site.link.readlink() == site.directory


@pytest.mark.parametrize("interactive", [False, True])
def test_loop_that_is_not_ours_is_held_on_entry(site: Site, interactive: bool) -> None:
    site.job(start=20, interactive=interactive)
    done = site.prologue()
    assert site.played() == []
    assert site.held() is not interactive
    assert done.returncode == (0 if interactive else REQUEUE)
    assert ("it was started 20 times" in done.stderr) is not interactive
    assert site.refusal("12-1.th.20")["fault"] == "loop"


@pytest.mark.parametrize(("grave", "level"), [(True, "LOG_CRIT"), (False, "LOG_WARNING")])
def test_alarm_reaches_the_system_log(monkeypatch: pytest.MonkeyPatch, grave: bool, level: str) -> None:
    said: list[tuple[int, str]] = []
    monkeypatch.setattr(syslog, "syslog", lambda priority, text: said.append((priority, text)))
    hook.raise_alarm("t1 is set offline \x1b[2J", grave=grave)
    assert said == [(getattr(syslog, level), "t1 is set offline ?[2J")]


def test_system_log_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "syslog", lambda _priority, _text: signal.pause())
    former = signal.getsignal(signal.SIGALRM)
    hook.raise_alarm("t1", grave=True)
    assert signal.getsignal(signal.SIGALRM) is former
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_full_run_directory_stops_no_verdict(site: Site) -> None:
    """Without a refusal the shell finds no record at all, and runs nothing either."""
    site.job(start=1)
    site.play("exit 4")
    (site.run_dir / "shells").parent.mkdir()
    (site.run_dir / "shells").write_text("in the way")
    assert site.prologue().returncode == REQUEUE


def test_playbook_that_is_killed_blames_nobody(site: Site) -> None:
    site.job(start=1)
    site.play("kill -9 $$")
    done = site.prologue()
    assert done.returncode == REQUEUE
    assert "ansible-playbook was killed by signal 9 (try 1 of 3)" in done.stderr
    assert site.verdict("12-1.th.1")["fault"] == "unclear"
    assert site.told() == []


def test_failure_after_the_ready_record_takes_it_back(site: Site) -> None:
    site.play(READY.replace("exit 0", "exit 4"))
    assert site.prologue().returncode == REQUEUE
    assert not (site.directory / "ready.json").exists()
    assert "status 4" in site.refusal()["why"]


def test_success_without_a_ready_record_is_a_failure(site: Site) -> None:
    site.play("exit 0")
    assert site.prologue().returncode == REQUEUE
    assert "no ready record" in site.refusal()["why"]


def test_former_word_of_the_same_start_does_not_count(site: Site) -> None:
    """A server that was restored counts its jobs from a number that was given before."""
    site.fail(UserFault("old"))
    assert site.prologue().returncode == 0
    records.write(site.directory / "lost.json", "{}")
    site.play(READY)
    assert site.prologue().returncode == 0
    assert not (site.directory / "refusal.json").exists()
    assert not (site.directory / "lost.json").exists()
    assert (site.directory / "ready.json").exists()


def test_what_the_inventory_found_wrong_is_told(site: Site) -> None:
    site.play(
        'echo "[WARNING]: Failed to parse: $run_dir/job.pbs_nodefile.yml: the node file names other nodes"; exit 4'
    )
    assert site.prologue().returncode == REQUEUE
    assert site.refusal()["why"] == "the node file names other nodes"


def test_late_playbook_is_ended_with_all_that_it_started(site: Site) -> None:
    site.policy("prologue_timeout: 1\ntimeout: 1\n")
    site.play(f": >\"$run_dir/plan.json\"; trap '' TERM; sleep 1234 & echo $! $$ >{site.place}/pids; sleep 1234")
    assert site.prologue().returncode == REQUEUE
    assert "not done in time" in site.refusal()["what"]
    assert len(site.asked()) == 1
    for pid in (site.place / "pids").read_text().split():
        assert not pathlib.Path(f"/proc/{pid}").exists() or state(pid) == "Z"


def test_late_playbook_is_ended_with_what_left_its_session(site: Site) -> None:
    """Each of Ansible's workers is a session of its own, and so is the ssh that it started."""
    site.policy("prologue_timeout: 1\ntimeout: 1\n")
    stray = f"trap '' TERM; echo $$ >{site.place}/pid; exec sleep 1234"
    site.play(f'setsid sh -c "{stray.replace("$", chr(92) + "$")}" & sleep 1234')
    assert site.prologue().returncode == REQUEUE
    pid = (site.place / "pid").read_text().strip()
    left = pathlib.Path(f"/proc/{pid}").exists() and state(pid) != "Z"
    if left:
        os.kill(int(pid), signal.SIGKILL)
    assert not left


def test_the_shells_word_is_there_before_anything_is_taken_back(site: Site) -> None:
    """Torque takes a prologue that it had to kill for a success."""
    site.program("node", NODE.format(place=site.place, answer=GONE) + f"ls {site.directory} >{site.place}/seen\n")
    site.fail(UserFault("img=x", "no such image"))
    assert site.prologue().returncode == 0
    assert "refusal.json" in (site.place / "seen").read_text().split()


def test_a_prologue_that_the_system_fails_still_leaves_a_word(site: Site) -> None:
    (site.place / "bin/ansible").unlink()
    assert site.prologue().returncode == REQUEUE
    assert "No such file" in site.refusal()["why"]


def state(pid: str) -> str:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_alarm_that_leaves_no_time_is_a_fault_of_the_site(site: Site) -> None:
    (site.torque_home / "mom_priv/config").write_text("$logevent 255\n$prologalarm 30\n")
    assert site.prologue().returncode == REQUEUE
    assert (site.refusal()["fault"], site.played()) == ("site", [])
    assert "$prologalarm 30" in site.refusal()["what"]


def unreachable(site: Site) -> None:
    site.qstat("echo 'qstat: cannot connect to server th (errno=111)' >&2; exit 111")


@pytest.mark.parametrize("how", ["server", "policy", "unknown job"])
def test_without_server_or_policy_the_shell_is_told(site: Site, how: str) -> None:
    """The start is not known then; the shell finds the word by its own process."""
    site.policy("prologue_timeout: 1\ntimeout: 1\n" if how == "server" else "brigde: br0\n" if how == "policy" else "")
    if how == "server":
        unreachable(site)
    elif how == "unknown job":
        site.qstat("exit 153")
    assert site.prologue().returncode == 0
    assert site.refusal("12-1.th.0")["fault"] == "site"
    assert "tell the administrator" in site.refusal("12-1.th.0")["lines"][0]
    assert site.verdict("12-1.th.0") == {"fault": "site", "action": "refuse", "try": 0, "of": 0, "node": "", "note": ""}
    assert site.link.readlink().name == "12-1.th.0"
    assert site.epilogue().returncode == 0
    nothing_left(site)


def test_server_that_is_busy_is_asked_again(site: Site) -> None:
    site.qstat(f"[ -e {site.place}/asked-before ] || {{ : >{site.place}/asked-before; exit 111; }}\n"
               f"sed s/HOLDS/n/ {site.place}/job\n")  # fmt: skip
    assert site.prologue().returncode == 0
    assert len(site.played()) == 1


def test_words_say_that_the_server_was_asked_in_vain(site: Site) -> None:
    site.policy("prologue_timeout: 1\ntimeout: 1\n")
    unreachable(site)
    assert site.prologue().returncode == 0
    assert re.search(r"cannot be reached(; asked [2-9] times in 2 s)?$", site.refusal("12-1.th.0")["why"])


def test_when_nothing_can_be_left_one_line_says_so(site: Site) -> None:
    site.job(interactive=True)
    site.run_dir.write_text("in the way")
    done = site.prologue()
    assert done.returncode == 1
    assert done.stderr.startswith("vtorque: this job's hook failed: ")
    assert len(done.stderr.splitlines()) == 1
    assert "12[1].th" in (site.state_dir / "log/hooks.log").read_text()


def test_job_that_only_the_server_can_tell(site: Site) -> None:
    """The resource list was cut by Torque: marked at the server means ours."""
    assert site.prologue(marker="unknown").returncode == 0
    assert len(site.played()) == 1


@pytest.mark.parametrize("other", ["", "vtorque2", "my-vtorque"])
def test_bare_job_with_a_long_list_leaves_no_trace(site: Site, other: str) -> None:
    site.job(other=other)
    assert site.prologue(marker="unknown").returncode == 0
    assert not site.run_dir.exists()
    assert not site.state_dir.exists()


def test_unmarked_job_is_not_held_up_by_a_server_that_is_gone(site: Site) -> None:
    unreachable(site)
    done = site.prologue(marker="unknown")
    assert (done.returncode, done.stderr) == (0, "")
    assert not site.run_dir.exists()


def nothing_left(site: Site) -> None:
    assert list((site.run_dir / "jobs").iterdir()) == []
    assert list((site.run_dir / "shells").iterdir()) == [] if (site.run_dir / "shells").exists() else True
    assert not (site.state_dir / "guests" / KEY).exists()


def test_epilogue_takes_everything_back_and_closes_the_record(site: Site) -> None:
    assert site.prologue().returncode == 0
    records.point_shell(ProcessId.of(os.getpid()), site.directory, site.run_dir)
    site.make_guest()
    done = site.epilogue("37")
    assert (done.returncode, done.stderr) == (0, "")
    assert site.played()[-1].endswith("mikelangelo.vtorque.epilogue")
    nothing_left(site)
    record = site.record()
    assert (record["exit_status"], record["job_id"], record["start"], record["user"]) == (37, JOB_ID, 3, USER)
    assert set(record["phases"]) == {"prologue", "epilogue"}
    assert record["ended"] <= time.time()
    assert f"user:{pwd.getpwnam(USER).pw_uid}:r--" in readable_by(site.state_dir / "records" / KEY / "record.json")


def test_epilogue_keeps_what_the_playbooks_recorded(site: Site) -> None:
    assert site.prologue().returncode == 0
    known = {"version": 1, "guests": [{"name": "vt1-1"}], "phases": {"plan": {"began": 1, "seconds": 2}}, "ended": 5.0}
    records.write(site.state_dir / "records" / KEY / "record.json", json.dumps(known))
    assert site.epilogue("-11").returncode == 0
    record = site.record()
    assert record["guests"] == [{"name": "vt1-1"}]
    assert set(record["phases"]) == {"plan", "prologue", "epilogue"}
    assert (record["exit_status"], record["ended"]) == (-11, 5.0)


@pytest.mark.parametrize("name", ["verdict", "lost"])
def test_epilogue_keeps_what_else_was_left_for_the_record(site: Site, name: str) -> None:
    assert site.prologue().returncode == 0
    records.write(site.directory / f"{name}.json", json.dumps({"x": 1}))
    assert site.epilogue().returncode == 0
    assert site.record()[name] == {"x": 1}


def test_epilogue_without_a_prologue_does_nothing(site: Site) -> None:
    done = site.epilogue()
    assert (done.returncode, done.stderr) == (0, "")
    assert not site.run_dir.exists()
    assert not site.state_dir.exists()
    assert site.played() == []


def test_epilogue_of_a_refused_job_leaves_the_reason_in_the_record(site: Site) -> None:
    site.play("printf '%s' '{}' >\"$run_dir/error.json\"; chmod 400 \"$run_dir/error.json\"; exit 2".replace(
        "{}", json.dumps(UserFault("img=x", "no such image").to_dict())))  # fmt: skip
    assert site.prologue().returncode == 0
    assert site.epilogue("1").returncode == 0
    nothing_left(site)
    assert site.record()["refusal"]["what"] == "img=x"
    assert len(site.played()) == 1  # nothing was made: no playbook for its removal
    assert site.asked() == []


@pytest.mark.parametrize("fault", ["exit 4", "sleep 1000", "kill -9 $$"])
def test_epilogue_cleans_by_itself_when_the_playbook_fails(site: Site, fault: str) -> None:
    assert site.prologue().returncode == 0
    (site.torque_home / "mom_priv/config").write_text("$prologalarm 30\n")
    site.make_guest()
    site.play(READY, fault)
    assert site.epilogue().returncode == 0
    assert [part.start for part in site.asked()] == [3]
    nothing_left(site)


def test_epilogue_of_a_half_made_start(site: Site) -> None:
    """Guests and no run directory: a node that was rebooted, a prologue that was killed."""
    site.make_guest()
    (site.run_dir / "jobs").mkdir(parents=True)
    assert site.epilogue("-4").returncode == 0
    assert [part.start for part in site.asked()] == [3]
    nothing_left(site)


def test_epilogue_finds_every_start_of_this_job_and_of_no_other(site: Site) -> None:
    assert site.prologue().returncode == 0
    for key in ("12-1.th.2", "12-11.th.3", "12.th.3", "112-1.th.1"):
        (site.run_dir / "jobs" / key).mkdir()
    assert site.epilogue().returncode == 0
    assert sorted(path.name for path in (site.run_dir / "jobs").iterdir()) == ["112-1.th.1", "12-11.th.3", "12.th.3"]


def test_epilogue_says_what_is_left_and_keeps_no_keys(site: Site) -> None:
    site.node(
        '{"version": 1, "ok": false, "error": {"fault": "node", "what": "vt1-1", "why": "still runs", "hint": ""}}'
    )
    assert site.prologue().returncode == 0
    site.make_guest()
    site.play(READY, "exit 4")
    done = site.epilogue()
    assert done.returncode == 1
    assert "vt1-1: still runs" in done.stderr
    assert list((site.run_dir / "jobs").iterdir()) == []


def test_epilogue_without_a_policy_still_cleans(site: Site) -> None:
    assert site.prologue().returncode == 0
    site.policy("nonsense: 1\n")
    assert site.epilogue().returncode == 0
    nothing_left(site)


@pytest.mark.parametrize("trace", ["state/guests", "run/locks"])
def test_sister_begins_to_remove_what_is_on_it_and_is_not_waited_for(site: Site, trace: str) -> None:
    (site.place / trace / KEY).mkdir(parents=True)
    gate = site.place / "gate"
    os.mkfifo(gate)
    site.program("node", NODE.format(place=site.place, answer=GONE).replace("cat >>", f"read word <{gate}; cat >>"))
    done = site.epilogue(role="epilogue.parallel")
    assert done.returncode == 0
    assert site.asked() == []
    gate.write_text("go\n")  # opens when the program waits for it
    log = site.state_dir / "records" / KEY / "vtorque.log"
    until = time.monotonic() + 60
    while '"left": []' not in log.read_text():
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
    (part,) = site.asked()
    assert (part.do, part.start, part.node) == ("absent", 3, os.uname().nodename)
    assert not (site.place / "told").exists()


def test_sister_without_guests_does_nothing(site: Site) -> None:
    assert site.epilogue(role="epilogue.parallel").returncode == 0
    assert site.asked() == []
    assert not site.state_dir.exists()


@pytest.mark.parametrize("job_id", ["../../etc", "12.th/..", "", "12[1].th\n", "x" * 300])
def test_job_id_that_is_none(site: Site, job_id: str) -> None:
    done = site.hook("epilogue", job_id, USER, "g", "n", "0", "", "", "", "", "0", "")
    assert done.returncode == 1
    assert "job id" in done.stderr
    assert not site.run_dir.exists()
