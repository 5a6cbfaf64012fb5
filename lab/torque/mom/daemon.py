# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MOM of one compute node: it serves the server, other MOMs and momctl, and leads jobs or helps to."""

from __future__ import annotations

import functools
import os
import pathlib
import selectors
import signal
import socket
import sys
import time

from ..shared import wire
from ..shared.job import Job
from ..shared.log import Log
from ..shared.loop import Loop
from . import cgroups, recovery, sister
from .jobfiles import JobFiles
from .superior import Superior

DEFAULT_ALARM = 300
RECONNECT = 0.25


class Mom:
    """The daemon of one node.

    Args:
        poll: seconds between two reports to the server, with which a MOM finds out that a job was purged.
        recovers: jobs of an earlier MOM go on (`pbs_mom -p`).
        has_cgroups: as one that was built with --enable-cgroups.
    """

    def __init__(
        self, loop: Loop, home: pathlib.Path, sockets: str, host: str, poll: float, recovers: bool,
        has_cgroups: bool = False,
    ) -> None:  # fmt: skip
        self.loop = loop
        self.sockets = sockets
        self.host = host
        self.files = JobFiles(home)
        self.files.make_home()
        self.log = Log(home / "mom_logs", "pbs_mom")
        self.alarm = float(DEFAULT_ALARM)
        self.presetup = ""
        self.fault = ""
        self.superiors: dict[str, Superior] = {}
        self.helped: dict[str, Job] = {}
        self.obituaries: dict[str, wire.Message] = {}
        self.has_cgroups = has_cgroups
        self._built_with_cgroups = has_cgroups
        self._poll = poll
        self._recovers = recovers
        self._server: wire.Link | None = None
        self._trying = False

    def start(self) -> None:
        """Read the configuration, clear what an earlier MOM left, and serve."""
        self.read_config()
        if self._recovers:
            recovery.go_on(self)
        recovery.clear(self)
        # as Torque's own: who wants to send it a signal finds its number there
        (self.files.mom_priv / "mom.lock").write_text(f"{os.getpid()}\n", encoding="ascii")
        listener = wire.listen(wire.mom_socket(self.sockets, self.host), 0o600)
        self.loop.watch(listener.fileno(), selectors.EVENT_READ, functools.partial(self._accept, listener))
        self._find_server()
        self.loop.after(self._poll, self._report)

    def read_config(self) -> None:
        """mom_priv/config: `$prologalarm` and `$presetup_prologue` count here, the rest is named in the log.

        `$lab_cgroups false`, which Torque does not have, makes it a MOM that was built without them.
        """
        self.alarm, self.presetup, self.has_cgroups = float(DEFAULT_ALARM), "", self._built_with_cgroups
        config = self.files.mom_priv / "config"
        for line in config.read_text().splitlines() if config.exists() else ():
            fields = line.split()
            if fields[:1] == ["$prologalarm"] and len(fields) == 2:
                self.alarm = float(fields[1])
            elif fields[:1] == ["$presetup_prologue"] and len(fields) == 2:
                self.presetup = fields[1]
            elif fields == ["$lab_cgroups", "false"]:
                self.has_cgroups = False
            elif fields and not line.startswith("#"):
                self.log.write("Svr", "config", f"not used here: {line}")

    def make_cgroups(self, job: Job) -> None:
        """The cgroups of a job that has come to this node, where this MOM makes any."""
        if self.has_cgroups:
            slots = [slot for host, some in job.hosts if host == self.host for slot in some]
            cgroups.make(job.id, None if job.exclusive else slots)

    def remove_cgroups_but(self, going_on: set[str]) -> None:
        """Those that an earlier MOM made."""
        if self._built_with_cgroups:
            for job_id in cgroups.present() - going_on:
                cgroups.remove(job_id)

    def remove_cgroups(self, job: Job) -> None:
        """They go with the job, and whatever is left in them."""
        if self._built_with_cgroups:
            cgroups.remove(job.id)

    def _find_server(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(wire.server_socket(self.sockets, self.host))
        except OSError:
            connection.close()
            self.loop.after(RECONNECT, self._find_server)
            return
        self._server = wire.Link(self.loop, connection, self._from_server, self._server_lost)
        jobs = [*self.superiors, *self.obituaries]
        self.tell({"op": "mom", "jobs": jobs, **self._helps, "fault": self.fault, "status": self.status()})
        for obituary in self.obituaries.values():
            self.tell(obituary)

    def _server_lost(self, _link: wire.Link) -> None:
        self._server = None
        self.loop.after(RECONNECT, self._find_server)

    def tell(self, message: wire.Message) -> None:
        """Tell the server, if it is there."""
        if self._server is not None:
            self._server.send(message)

    @property
    def _helps(self) -> wire.Message:
        return {"helped": list(self.helped)}

    def _report(self) -> None:
        self.tell({"op": "status", "status": self.status(), "jobs": list(self.superiors), **self._helps})
        self.loop.after(self._poll, self._report)

    def set_fault(self, text: str) -> None:
        """A hook failed in the main process: the node is down until `momctl -q clearmsg` or a restart."""
        self.log.write("Svr", "pelog_err", text)
        self.fault = text
        self.tell({"op": "fault", "text": text})

    def status(self) -> dict[str, str]:
        """The machine, as pbsnodes shows it."""
        system = os.uname()
        memory = dict(line.split(":", 1) for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
        kilobytes = {key: int(value.split()[0]) for key, value in memory.items()}
        total = kilobytes["MemTotal"] + kilobytes["SwapTotal"]
        return {
            "opsys": "linux",
            "uname": f"Linux {self.host} {system.release} {system.version.replace(',', ' ')} {system.machine}",
            "nsessions": "0",
            "nusers": "0",
            "idletime": str(int(time.monotonic())),
            "totmem": f"{total}kb",
            "availmem": f"{kilobytes['MemAvailable'] + kilobytes['SwapFree']}kb",
            "physmem": f"{kilobytes['MemTotal']}kb",
            "ncpus": str(os.cpu_count()),
            "loadave": f"{os.getloadavg()[0]:.2f}",
            "gres": "",
            "netload": "0",
            "state": "free",
            "varattr": " ",
            "cpuclock": "Fixed",
            "macaddr": _mac_address(),
            "version": "6.1.3",
            "jobs": " ".join(self.superiors),
        }

    def _from_server(self, _link: wire.Link, message: wire.Message) -> None:
        operation = message["op"]
        if operation == "run":
            job = Job.from_json(message["job"])
            self.superiors[job.id] = Superior(self, job, self.over)
            self.superiors[job.id].start()
        elif operation == "obit-seen":
            self.obituaries.pop(message["job"], None)
        elif operation == "unknown":
            for job_id in message["jobs"]:
                if job_id in self.superiors:
                    self.log.write("Job", job_id, "Unknown job id on server")
                    self.superiors[job_id].vanish()
                elif job_id in self.helped:
                    # the server's SIGKILL for a stray job, which has no process here (mom_req_signal_job, mom_deljob)
                    self.log.write("Job", job_id, "Job is being killed from pbs_server.")
                    self.files.remove(self.helped.pop(job_id), with_streams=True)
        elif message["job"] in self.superiors:
            self._order(self.superiors[message["job"]], message)
        else:
            self.tell({"op": "signalled", "job": message["job"], "code": 0, "state": ""})

    def _order(self, superior: Superior, message: wire.Message) -> None:
        if message["op"] == "delete":
            superior.delete(message["delay"])
        elif message["op"] == "rerun":
            superior.rerun()
        elif message["op"] == "signal":
            superior.signal(message["signal"])

    def over(self, superior: Superior, obituary: wire.Message) -> None:
        """A job that this node led has ended: the server is told until it has heard it."""
        del self.superiors[superior.job.id]
        self.obituaries[superior.job.id] = obituary
        self.log.write("Job", superior.job.id, f"job was terminated, status {obituary['status']}")
        self.tell(obituary)

    def _accept(self, listener: socket.socket, _events: int) -> None:
        connection, _address = listener.accept()
        if wire.peer_uid(connection) != 0:
            connection.close()
            return
        wire.Link(self.loop, connection, self._from_peer, lambda _link: None)

    def _from_peer(self, link: wire.Link, message: wire.Message) -> None:
        operation = message["op"]
        if operation == "momctl":
            link.send(self._control(message))
        elif operation == "join":
            job = Job.from_json(message["job"])
            status = self._try_join(job)
            if status == 0:
                self.helped[job.id] = job
            else:
                self.remove_cgroups(job)
            link.send({"op": "joined", "status": status})
        elif operation == "end":
            job_left = self.helped.pop(message["job"], None)
            link.send({"op": "begun"})
            if job_left is not None:
                job_left.used = message["used"]
                sister.end(self, job_left)
            link.send({"op": "ended"})
        elif operation == "abort":
            forgotten = self.helped.pop(message["job"], None)
            if forgotten is not None:
                self.remove_cgroups(forgotten)
                self.files.remove(forgotten, with_streams=True)

    def _try_join(self, job: Job) -> int:
        try:
            return sister.join(self, job)
        except (KeyError, OSError) as error:
            self.log.write("Job", job.id, f"cannot join: {error}")
            return -1

    def _control(self, message: wire.Message) -> wire.Message:
        if message["what"] == "clearmsg":
            self.set_fault("")
            return {"text": f"{self.host}:  clearmsg = 'messages cleared'"}
        lines = [
            f"Host: {self.host}/{self.host}   Version: 6.1.3   PID: {os.getpid()}",
            f"Prolog/Epilog Alarm Time:      {self.alarm:g} seconds",
            f"HomeDirectory:          {self.files.mom_priv}",
            f"MOM Message:            {self.fault} (use 'momctl -q clearmsg' to clear)" if self.fault else "",
            *(f"job[{job_id}]  state={'RUNNING'}  sidlist={one.session}" for job_id, one in self.superiors.items()),
        ]
        return {"text": "\n".join(line for line in lines if line)}


def _mac_address() -> str:
    """Of the first interface that is not the loopback."""
    for interface in sorted(pathlib.Path("/sys/class/net").iterdir()):
        address = interface / "address"
        if interface.name != "lo" and address.exists():
            return address.read_text().strip()
    return "00:00:00:00:00:00"


def serve(home: pathlib.Path, sockets: str, host: str, poll: float, recovers: bool, has_cgroups: bool = False) -> int:
    """Run the MOM until SIGTERM."""
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for number in (signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, a real MOM and thus its hooks do not
    loop = Loop()
    mom = Mom(loop, home, sockets, host, poll, recovers, has_cgroups)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _signal, _frame: loop.stop())
    signal.signal(signal.SIGHUP, lambda _signal, _frame: mom.read_config())
    loop.drain(read)
    mom.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    loop.run()
    return 0
