# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole batch system in one temporary directory of this machine, with its own users: for tests.

Daemons and commands run in a mount namespace in which /etc/passwd and /etc/group know alice and bob. Every hook is a
recorder that writes what it saw as the recorder on the real Torque did, and then does what the test wants of it.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import typing as t

from .install import install
from .recorder import HOOKS, RECORDER, Seen, read_record
from .shared import wire

USERS = {"alice": 1001, "bob": 1002}
DEADLINE = 120.0


def number(job_id: str) -> str:
    """The number of a job, with which the names of its output files end.

    Args:
        job_id: `12.fe`.

    Returns:
        `12`.
    """
    return job_id.partition(".")[0]


class Trial:
    """A server `fe` and compute nodes, from construction to `close`.

    Args:
        nodes: name -> slots.
    """

    def __init__(self, nodes: t.Mapping[str, int]) -> None:
        self.nodes = dict(nodes)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="lab-torque-"))
        self.directory.chmod(0o755)
        self.log = self.directory / "log"
        self.sockets = str(self.directory / "sockets")
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._make_users()
        self._holder = self._hold_namespace()
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise

    def _start_all(self) -> None:
        for host in ("fe", *self.nodes):
            home = self.home(host)
            root = self.directory / host
            archive, commands = str(root / "lab-torque.pyz"), str(root / "bin")
            install("", commands, self.sockets, host, "fe", str(home), archive)
        self.start("fe")
        for host in self.nodes:
            for hook in HOOKS:
                self.record(host, hook)
            self.start(host)
        self.await_nodes()

    def _make_users(self) -> None:
        self.log.mkdir()
        self.log.chmod(0o777)
        self._new_events()
        (self.directory / "sockets").mkdir()
        passwd, group = pathlib.Path("/etc/passwd").read_text(), pathlib.Path("/etc/group").read_text()
        for user, uid in USERS.items():
            home = self.user_home(user)
            home.mkdir(parents=True)
            os.chown(home, uid, uid)
            passwd = f"{user}:x:{uid}:{uid}::{home}:/bin/bash\n" + passwd
            group = f"{user}:x:{uid}:\n" + group
        (self.directory / "passwd").write_text(passwd)
        (self.directory / "group").write_text(group + "helpers:x:1500:alice\n")

    def _hold_namespace(self) -> subprocess.Popen[bytes]:
        mounts = " && ".join(f"mount --bind {self.directory}/{name} /etc/{name}" for name in ("passwd", "group"))
        arguments = ["unshare", "--mount", "sh", "-c", f"{mounts} && echo up && exec sleep infinity"]
        holder = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert holder.stdout is not None
        if holder.stdout.readline() != b"up\n":
            raise RuntimeError("no mount namespace for the trial")
        return holder

    def close(self) -> None:
        """End the daemons and take everything away."""
        for host in list(self._daemons):
            self.stop(host)
        self._holder.kill()
        self._holder.wait()
        if self._holder.stdout is not None:
            self._holder.stdout.close()
        shutil.rmtree(self.directory)

    def _inside(self) -> list[str]:
        return ["nsenter", "-t", str(self._holder.pid), "--mount", "--"]

    def home(self, host: str) -> pathlib.Path:
        """The batch system's home of a host."""
        return self.directory / host / "torque"

    def user_home(self, user: str) -> pathlib.Path:
        """The shared home of a user."""
        return self.directory / "home" / user

    def start(self, host: str, *options: str) -> None:
        """Start the daemon of a host."""
        common = [*options, "--home", str(self.home(host)), "--socket-dir", self.sockets, "--host", host]
        if host == "fe":
            common += [word for name, slots in self.nodes.items() for word in ("--node", f"{name}:{slots}")]
            common += [word for name in self.nodes for word in ("--operator", f"root@{name}")]
        else:
            common += ["--poll", "1"]
        archive = str(self.directory / host / "lab-torque.pyz")
        arguments = [*self._inside(), archive, "server" if host == "fe" else "mom", *common]
        with (self.directory / f"{host}.log").open("ab") as log:
            daemon = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd="/")
        assert daemon.stdout is not None
        if daemon.stdout.readline() != b"ready\n":
            raise RuntimeError((self.directory / f"{host}.log").read_text())
        self._daemons[host] = daemon

    def daemon(self, host: str) -> int:
        """The daemon's process id."""
        return self._daemons[host].pid

    def stop(self, host: str, with_signal: int = 15) -> None:
        """End the daemon of a host."""
        daemon = self._daemons.pop(host)
        daemon.send_signal(18)
        daemon.send_signal(with_signal)
        daemon.wait()
        if daemon.stdout is not None:
            daemon.stdout.close()

    def await_nodes(self) -> None:
        """Wait until the server has all MOMs."""
        self.ask({"op": "await-nodes"})

    def ask(self, message: wire.Message) -> wire.Message:
        """Ask the server as root on the front end, with a deadline."""
        return self.ask_raw(wire.encode(message))

    def ask_raw(self, line: bytes) -> wire.Message:
        """Ask with any bytes."""
        return self._ask(wire.server_socket(self.sockets, "fe"), line)

    @staticmethod
    def _ask(path: str, line: bytes) -> wire.Message:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE)
            connection.connect(path)
            connection.sendall(line)
            return wire.receive(connection)

    def delete_all(self) -> None:
        """Let no job go on: each is deleted, and ended when this returns."""
        jobs = self.ask({"op": "status", "job": "", "expand": False})["jobs"]
        for job_id in [name for name, printed in jobs if ["job_state", "", "C"] not in printed]:
            self.ask({"op": "delete", "job": job_id, "delay": 1, "purge": False})
            self.wait(job_id)

    def command(self, arguments: t.Sequence[str], user: str, host: str, environment: t.Mapping[str, str]) -> list[str]:
        """The command line that runs a batch command as a user of a host."""
        who = ["--reuid", user, "--regid", user, "--init-groups"] if user != "root" else ["--reuid", "0"]
        home = self.user_home(user) if user != "root" else pathlib.Path("/root")
        values = {"HOME": str(home), "LOGNAME": user, "SHELL": "/bin/bash", "PATH": "/usr/bin:/bin", **environment}
        program = str(self.directory / host / "bin" / arguments[0])
        settings = [f"{name}={value}" for name, value in values.items()]
        return [*self._inside(), "setpriv", *who, "env", "-i", "-C", str(home), *settings, program, *arguments[1:]]

    def run(
        self,
        *arguments: str,
        user: str = "alice",
        host: str = "fe",
        text: str = "",
        environment: t.Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a batch command to its end."""
        line = self.command(arguments, user, host, environment or {})
        return subprocess.run(line, input=text, capture_output=True, text=True, check=False, timeout=DEADLINE)

    def submit(self, *arguments: str, script: str = "true\n", user: str = "alice", **variables: str) -> str:
        """Submit a script on standard input; the job's id."""
        done = self.run("qsub", *arguments, user=user, text=script, environment=variables)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def wait(self, job_id: str, *states: str, starts: int = 0) -> dict[str, str]:
        """Wait for a job's end, or for states (`R42`: letter and substate) or a number of starts; its attributes."""
        wanted = states or (() if starts else ("C59",))
        self.ask({"op": "await", "job": job_id, "states": wanted, "starts": starts})
        return self.attributes(job_id)

    def finish(self, *arguments: str, script: str = "true\n", **variables: str) -> tuple[str, dict[str, str]]:
        """Submit, wait for the end: id and attributes."""
        job_id = self.submit(*arguments, script=script, **variables)
        return job_id, self.wait(job_id)

    def attributes(self, job_id: str) -> dict[str, str]:
        """`name` or `name.resource` -> value, as a manager sees the job."""
        answer = self.ask({"op": "status", "job": job_id, "expand": False})
        ((_name, printed),) = answer["jobs"]
        return {f"{name}.{resource}" if resource else name: value for name, resource, value in printed}

    def node(self, host: str) -> dict[str, str]:
        """A node's attributes."""
        ((_name, printed),) = self.ask({"op": "nodes", "nodes": [host]})["nodes"]
        return {name: value for name, _resource, value in printed}

    def output(self, name: str, user: str = "alice") -> str:
        """A file in the user's home."""
        return (self.user_home(user) / name).read_text()

    def user_file(self, name: str, text: str) -> str:
        """A program in alice's home; its path."""
        path = self.user_home("alice") / name
        path.write_text(text)
        os.chown(path, USERS["alice"], USERS["alice"])
        path.chmod(0o755)
        return str(path)

    def fifo(self, name: str) -> pathlib.Path:
        """A FIFO in alice's home: writing to it waits for its reader."""
        path = self.user_home("alice") / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        path.chmod(0o666)
        return path

    def hook_path(self, host: str, hook: str) -> pathlib.Path:
        """A hook in mom_priv."""
        return self.home(host) / "mom_priv" / hook

    def reread(self, host: str) -> None:
        """Have the MOM read its configuration again; returns when it has."""
        os.kill(int(self.hook_path(host, "mom.lock").read_text(encoding="ascii")), signal.SIGHUP)
        self.run("momctl", "-d", "0", user="root", host=host)  # served after the signal

    def record(self, host: str, hook: str, name: str = "") -> pathlib.Path:
        """Install the recorder as a hook (under another name, if given)."""
        text = RECORDER.format(log=self.log, host=host, hook=name or hook, home=self.home(host))
        return self.script(host, name or hook, text)

    def script(self, host: str, hook: str, text: str, mode: int = 0o755) -> pathlib.Path:
        """Install any text as a hook."""
        path = self.hook_path(host, hook)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            path.parent.chmod(0o751)
        self.remove(host, hook)
        path.write_text(text)
        path.chmod(mode)
        return path

    def remove(self, host: str, hook: str) -> None:
        """Take a hook away."""
        path = self.hook_path(host, hook)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)

    def do(self, host: str, hook: str, text: str) -> None:
        """Let a recorder do something (bash) after it has recorded."""
        path = self.log / f"do.{host}.{hook}"
        path.write_text(text + "\n")
        path.chmod(0o755)

    def gate(self, host: str, hook: str) -> pathlib.Path:
        """Let a recorder wait until `open_gate`."""
        path = self.log / f"gate.{host}.{hook}"
        os.mkfifo(path)
        path.chmod(0o666)
        self.do(host, hook, f"read -r word <{path}; status=${{word:-0}}")
        return path

    def open_gate(self, gate: pathlib.Path, word: str = "0") -> None:
        """Wait until the hook is at its gate, and let it go on."""
        gate.write_text(word + "\n")

    def fresh(self) -> None:
        """Forget what earlier tests recorded and wanted; clear the nodes."""
        for path in self.log.iterdir():
            path.unlink()
        self._new_events()
        for host in self.nodes:
            for hook in HOOKS:
                self.record(host, hook)
            self._ask(wire.mom_socket(self.sockets, host), wire.encode({"op": "momctl", "what": "clearmsg"}))
        self.ask({"op": "set-nodes", "nodes": list(self.nodes), "offline": False, "note": ""})

    def _new_events(self) -> None:
        (self.log / "events").touch()
        (self.log / "events").chmod(0o666)

    def seen(self, job_id: str, host: str, hook: str) -> Seen:
        """What a hook recorded."""
        return read_record((self.log / f"{job_id}.{host}.{hook}").read_text())

    def events(self, job_id: str = "") -> list[tuple[str, str, str]]:
        """START and END of all hooks in their order: what, host, hook."""
        path = self.log / "events"
        found = []
        for line in sorted(path.read_text().splitlines()) if path.exists() else ():
            _time, what, job, host, hook, *_status = line.split()
            if job_id in ("", job):
                found.append((what, host, hook))
        return found

    def ran(self, job_id: str = "") -> list[str]:
        """`host:hook` of every start, in order."""
        return [f"{host}:{hook}" for what, host, hook in self.events(job_id) if what == "START"]
