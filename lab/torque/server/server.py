# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server: jobs, nodes, and everybody who asks for them."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import json
import pathlib
import pwd
import selectors
import socket
import time
import typing as t

from ..shared import attributes, wire
from ..shared.job import COMPLETE, QUEUED, RUNNING, SUSPENDED, Job, parse_array
from ..shared.log import Log
from ..shared.loop import Loop
from .nodes import Node, Nodes

RETRY_PACE = 0.25
"""Seconds between two starts of a job whose start failed: 16 starts in 4 s were measured."""

ABORT, START_FAILURES = -2, (-3, -14)


class Settings(t.NamedTuple):
    """How the server was started."""

    home: pathlib.Path
    sockets: str
    host: str
    nodes: tuple[Node, ...]
    managers: tuple[str, ...]
    operators: tuple[str, ...]
    keep_completed: float


class Asker(t.NamedTuple):
    """Who asks."""

    uid: int
    user: str
    host: str

    @property
    def name(self) -> str:
        """`alice@fe`."""
        return f"{self.user}@{self.host}"


class Server:
    """Keeps the state, starts what can start, and does what MOMs report; requests.py answers commands."""

    def __init__(self, settings: Settings, loop: Loop) -> None:
        self.settings = settings
        self.loop = loop
        self.host = settings.host
        self.jobs: dict[str, Job] = {}
        self.nodes = Nodes(settings.nodes)
        self.managers = [f"root@{settings.host}", *settings.managers]
        self.operators = [f"root@{settings.host}", *settings.operators]
        self.keep_completed = settings.keep_completed
        self.next_number = 0
        self.next_rank = 1
        self.moms: dict[str, wire.Link] = {}
        self.waiting: dict[str, list[t.Callable[[int], None]]] = {}
        self.followers: dict[str, wire.Link] = {}
        self.awaited: list[tuple[t.Callable[[], bool], wire.Link]] = []
        self.log = Log(settings.home / "server_logs", "PBS_Server")
        self._state = settings.home / "server_priv" / "state.json"
        self._changed = False
        self._pending = False

    def start(self, answer: t.Callable[[Server, wire.Link, wire.Message, Asker], None]) -> None:
        """Load what was, and listen for every host."""
        self._state.parent.mkdir(parents=True, exist_ok=True)
        self._load()
        pathlib.Path(self.settings.sockets).mkdir(parents=True, exist_ok=True)
        rendezvous = pathlib.Path(wire.interactive_directory(self.settings.sockets))
        rendezvous.mkdir(exist_ok=True)
        rendezvous.chmod(0o1777)
        for host in dict.fromkeys([self.host, *self.nodes.by_name]):
            listener = wire.listen(wire.server_socket(self.settings.sockets, host), 0o666)
            accept = functools.partial(self._accept, listener, host, answer)
            self.loop.watch(listener.fileno(), selectors.EVENT_READ, accept)
        self.loop.after_each = self.save
        self.changed()
        self.log.write("Server", self.host, "Server Ready")

    def _accept(self, listener: socket.socket, host: str, answer: t.Any, _events: int) -> None:
        connection, _address = listener.accept()
        uid = wire.peer_uid(connection)
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = str(uid)
        asker = Asker(uid, user, host)

        def received(link: wire.Link, message: wire.Message) -> None:
            if message["op"] == "mom" and asker.uid == 0 and host in self.nodes.by_name:
                link.on_message = functools.partial(self._from_mom, host)
                link.on_close = functools.partial(self._mom_lost, host)
                self._mom_found(host, link, message)
            else:
                answer(self, link, message, asker)

        wire.Link(self.loop, connection, received, self._asker_gone)

    def _asker_gone(self, link: wire.Link) -> None:
        self.followers = {job: follower for job, follower in self.followers.items() if follower is not link}

    def changed(self) -> None:
        """Something happened that may let a job start, and that must reach the disk."""
        self._changed = True
        if not self._pending:
            self._pending = True
            self.loop.after(0, self._schedule)

    def _load(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            state = json.loads(self._state.read_text())
            self.next_number, self.next_rank = state["next_number"], state["next_rank"]
            for data in state["jobs"]:
                job = Job.from_json(data)
                self.jobs[job.id] = job
                if job.state == RUNNING:
                    self.nodes.take(job)
                elif job.state == COMPLETE:
                    self.loop.after(self.keep_completed, functools.partial(self.forget, job))
            for name, stored in state["nodes"].items():
                if name in self.nodes.by_name:
                    node = self.nodes.by_name[name]
                    node.offline, node.note, node.properties = stored[0], stored[1], tuple(stored[2])

    def save(self) -> None:
        """Bring what changed to the disk; done before anything is answered that must not be forgotten."""
        if not self._changed:
            return
        self._changed = False
        state = {
            "next_number": self.next_number,
            "next_rank": self.next_rank,
            "jobs": [job.to_json() for job in self.jobs.values()],
            "nodes": {node.name: [node.offline, node.note, node.properties] for node in self.nodes.by_name.values()},
        }
        new = self._state.with_suffix(".new")
        new.touch(0o600)
        new.write_text(json.dumps(state))
        new.replace(self._state)

    def is_manager(self, asker: Asker) -> bool:
        """Return whether this user may do everything."""
        return any(fnmatch.fnmatchcase(asker.name, pattern) for pattern in self.managers)

    def is_operator(self, asker: Asker) -> bool:
        """Return whether this user is an operator or a manager."""
        return self.is_manager(asker) or any(fnmatch.fnmatchcase(asker.name, pattern) for pattern in self.operators)

    def is_owner(self, asker: Asker, job: Job) -> bool:
        """The same user, on whichever host of the cluster."""
        return asker.user == job.user

    def members(self, parent: Job) -> list[Job]:
        """The jobs of an array."""
        return [job for job in self.jobs.values() if job.seq == parent.seq and job.index is not None]

    def _schedule(self) -> None:
        self._pending = False
        now = time.time()
        for job in sorted(self.jobs.values(), key=lambda job: (-job.priority, job.rank)):
            if job.state != QUEUED or job.array:
                continue
            if now - job.started < RETRY_PACE:
                self.loop.after(RETRY_PACE, self.changed)
            elif self._array_has_room(job):
                hosts = self.nodes.place(job.resources["nodes"], job.exclusive)
                if hosts:
                    self._run(job, hosts, now)
        for job in list(self.jobs.values()):
            if job.array and job.state != COMPLETE:
                self._array_state(job)
        reached = [link for condition, link in self.awaited if condition()]
        self.awaited = [(condition, link) for condition, link in self.awaited if link not in reached and link.open]
        for link in reached:
            link.send({"code": 0})

    def _array_has_room(self, job: Job) -> bool:
        if job.index is None:
            return True
        parent = self.jobs.get(f"{job.seq}[].{self.host}")
        limit = parse_array(parent.array)[1] if parent else None
        return limit is None or sum(other.state == RUNNING for other in self.members(job)) < limit

    def _array_state(self, parent: Job) -> None:
        states = {job.state for job in self.members(parent)}
        if states <= {COMPLETE}:
            parent.exit_status = 0
            self.complete(parent)
        else:
            parent.state = RUNNING if RUNNING in states else attributes.state_name(parent)

    def _run(self, job: Job, hosts: t.Any, now: float) -> None:
        job.hosts, job.state, job.substate, job.started = hosts, RUNNING, 41, now
        job.start_count += 1
        job.session_id = 0
        job.mtime = int(now)
        job.comment = time.strftime("Job started on %a %b %d at %H:%M", time.localtime(now))
        self.nodes.take(job)
        self.log.write("Job", job.id, f"Job Run at request of Scheduler@{self.host}, {job.exec_host}")
        self._account("S", job)
        self.moms[job.hosts[0][0]].send({"op": "run", "job": job.to_json()})
        self._changed = True

    def complete(self, job: Job) -> None:
        """A job has ended for good; it stays to be seen for a while."""
        job.state, job.substate, job.comp_time = COMPLETE, 59, int(time.time())
        job.mtime = job.comp_time
        job.run_seconds = time.time() - job.started if job.start_count else 0.0
        self._off_nodes(job)
        self.loop.after(self.keep_completed, functools.partial(self.forget, job))
        follower = self.followers.pop(job.id, None)
        if follower is not None:
            follower.send({"event": "completed"})
        self.log.write("Job", job.id, f"Exit_status={job.exit_status}")
        if job.start_count:
            self._account("E", job)

    def _account(self, kind: str, job: Job) -> None:
        self.log.account(self.settings.home / "server_priv" / "accounting", kind, job.id, attributes.account(kind, job))

    def forget(self, job: Job) -> None:
        """Let nothing remain of a job."""
        if self.jobs.get(job.id) is job:
            del self.jobs[job.id]
            self._off_nodes(job)

    def _off_nodes(self, job: Job) -> None:
        self.nodes.free(job)
        for reply in self.waiting.pop(job.id, []):
            reply(0)
        self.changed()

    def requeue(self, job: Job) -> None:
        """Let a job wait again, or hold it when it was held meanwhile."""
        job.state, job.session_id = attributes.state_name(job), 0
        job.substate = 20 if job.holds else 10
        job.mtime = int(time.time())
        self._off_nodes(job)
        job.hosts = []

    def _mom_found(self, host: str, link: wire.Link, message: wire.Message) -> None:
        node = self.nodes.by_name[host]
        if host in self.moms:
            self.moms[host].close()
        self.moms[host] = link
        node.connected = True
        self._node_fault(node, message["fault"])
        self._node_status(node, message["status"])
        there = set(message["jobs"])
        self._tell_strays(host, link, message)
        for job in list(self.jobs.values()):
            if job.hosts and job.hosts[0][0] == host and job.state in (RUNNING, SUSPENDED) and job.id not in there:
                self.log.write("Job", job.id, "the MOM knows nothing of this job")
                if job.deleting:
                    job.exit_status = 271
                    self.complete(job)
                else:
                    self.requeue(job)
        self.changed()

    def _tell_strays(self, host: str, link: wire.Link, message: wire.Message) -> None:
        """Jobs that a MOM has and that are not the server's; those that she helps with must be on her node, too."""
        strays = [job for job in message["jobs"] if job not in self.jobs]
        strays += [job for job in message["helped"] if job not in self.jobs or host not in self.jobs[job].names]
        link.send({"op": "unknown", "jobs": strays})

    def _mom_lost(self, host: str, link: wire.Link) -> None:
        if self.moms.get(host) is link:
            del self.moms[host]
            self.nodes.by_name[host].connected = False
            self.log.write("Node", host, "the connection to the MOM is lost: node down")
            self.changed()

    def _from_mom(self, host: str, link: wire.Link, message: wire.Message) -> None:
        operation = message["op"]
        node = self.nodes.by_name[host]
        if operation == "fault":
            self._node_fault(node, message["text"])
            self.changed()
        elif operation == "status":
            self._node_status(node, message["status"])
            self._tell_strays(host, link, message)
        elif operation == "obit":
            self._obit(message)
            self.save()
            link.send({"op": "obit-seen", "job": message["job"]})
        elif message["job"] in self.jobs:
            self._job_news(self.jobs[message["job"]], message)

    def _node_fault(self, node: Node, text: str) -> None:
        if text:
            node.note = text
        elif node.note == node.fault:
            node.note = ""
        node.fault = text

    def _node_status(self, node: Node, status: dict[str, str]) -> None:
        jobs = status.pop("jobs", "")
        node.status = {**status, "rectime": str(int(time.time())), "jobs": jobs}

    def _job_news(self, job: Job, message: wire.Message) -> None:
        if message["op"] == "started":
            job.session_id, job.substate = message["session"], 42
            job.mtime = int(time.time())
        elif message["op"] == "signalled":
            for reply in self.waiting.pop(job.id, []):
                reply(message["code"])
            if message["state"] and job.state in (RUNNING, SUSPENDED):
                job.state = message["state"]
                job.substate = 45 if job.state == SUSPENDED else 42
                # others may have the slots meanwhile; who is there now is not looked at (req_signal.c)
                (self.nodes.free if job.state == SUSPENDED else self.nodes.take)(job)
        self.changed()

    def _obit(self, message: wire.Message) -> None:
        job = self.jobs.get(message["job"])
        if job is None or job.start_count != message["start"] or job.state not in (RUNNING, SUSPENDED):
            return
        job.exit_status = message["status"]
        job.used = message["used"]
        if job.deleting:
            self.complete(job)
        elif message["rerun"] or job.exit_status in START_FAILURES:
            if job.exit_status in START_FAILURES:
                self.log.write("Job", job.id, "Job is being retried due to a failed prologue. See the syslog")
            self.requeue(job)
        else:
            if job.exit_status == ABORT:
                self.log.mail(self.settings.home / "mail", job.user, f"Job {job.id} Aborted by PBS Server")
            self.complete(job)
