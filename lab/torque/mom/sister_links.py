# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The other MOMs of a job, as its mother superior speaks with them: they join, begin to end, and have ended."""

from __future__ import annotations

import functools
import socket
import typing as t

from ..shared import wire
from ..shared.job import Job


class SisterLinks:
    """A connection to each sister that is there, and what she has answered.

    Args:
        mom: the mother superior's MOM.
        on_news: called after each answer, and when a connection has ended.
    """

    def __init__(self, mom: t.Any, job: Job, on_news: t.Callable[[], None]) -> None:
        self._mom = mom
        self._job = job
        self._on_news = on_news
        self._links: dict[str, wire.Link] = {}
        self._joined: dict[str, int] = {}
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    @property
    def have_answered(self) -> bool:
        """Return whether each has joined, refused, or is not there."""
        return len(self._joined) >= len(self._job.names) - 1

    @property
    def have_refused(self) -> bool:
        """Return whether one has not joined."""
        return any(self._joined.values())

    @property
    def have_begun(self) -> bool:
        """Return whether each that is there has begun to end the job."""
        return self._begun >= set(self._links)

    @property
    def have_ended(self) -> bool:
        """Return whether each that is there has ended the job."""
        return self._ended >= set(self._links)

    def ask_to_join(self) -> None:
        """Hand the job to each sister; one that is not there has refused."""
        for host in self._job.names[1:]:
            if self._reach(host):
                self._links[host].send({"op": "join", "job": self._job.to_json()})
            else:
                self._joined[host] = -1

    def end(self) -> None:
        """Have each that has not begun to end the job do so, with what it has used."""
        for host in self._job.names[1:]:
            # a new connection to a MOM that was started again, its own or ours; Torque makes one for each word
            if host not in self._links and host not in self._begun:
                self._reach(host)
        for host, link in self._links.items():
            if host not in self._begun:
                link.send({"op": "end", "job": self._job.id, "used": self._job.used})

    def abort(self) -> None:
        """Have each forget the job, without its epilogues."""
        for link in self._links.values():
            link.send({"op": "abort", "job": self._job.id})

    def ignore_losses(self) -> None:
        """Let nobody hear any more that a connection has ended."""
        for link in self._links.values():
            link.on_close = lambda _link: None

    def close(self) -> None:
        """End the connections."""
        for link in self._links.values():
            link.close()

    def _reach(self, host: str) -> bool:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(wire.mom_socket(self._mom.sockets, host))
        except OSError:
            connection.close()
            return False
        self._links[host] = wire.Link(
            self._mom.loop, connection, functools.partial(self._answered, host), functools.partial(self._lost, host)
        )
        return True

    def _answered(self, host: str, _link: wire.Link, message: wire.Message) -> None:
        if message["op"] == "joined":
            self._joined[host] = message["status"]
        elif message["op"] in ("begun", "ended"):
            self._begun.add(host)
            if message["op"] == "ended":
                self._ended.add(host)
        self._on_news()

    def _lost(self, host: str, _link: wire.Link) -> None:
        del self._links[host]
        self._joined.setdefault(host, -1)
        self._on_news()
