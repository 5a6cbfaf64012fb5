# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Torque's server wrote down of a job that it has forgotten: its user and nodes, start by start, or nothing."""

from __future__ import annotations

import datetime
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import PastJob, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import accounting
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.accounting import RUN_DAYS
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

TODAY = datetime.date(2026, 11, 22)
DAYS = 180


class Server:
    """Its files, in the form of TORQUE 6 (accounting.c)."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        (home / accounting.PLACE).mkdir(parents=True)

    def write(self, kind: str, job_id: str, text: str, ago: int = 0) -> pathlib.Path:
        day = TODAY - datetime.timedelta(days=ago)
        path = self.home / accounting.PLACE / f"{day:%Y%m%d}"
        with path.open("a") as file:
            file.write(f"{day:%m/%d/%Y} 12:00:01;{kind};{job_id};{text}\n")
        return path

    def start(
        self, job_id: str = "7.head", user: str = "alice", hosts: str = "cn1/0-1+cn2/0-1", own: str = "", ago: int = 0
    ) -> pathlib.Path:
        text = (
            f"user={user} group=users account={own} jobname=a queue=batch ctime=1 qtime=1 etime=1 start=1 "
            f"owner={user}@head exec_host={hosts} Resource_List.nodes=2 Resource_List.walltime=01:00:00 "
        )
        return self.write("S", job_id, text, ago)

    def past(self, job_id: str = "7.head", start: int = 1, days: int = DAYS) -> PastJob:
        return accounting.past_job(job_id, start, Policy(torque_home=str(self.home)), days=days, today=TODAY)


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Server:
    return Server(tmp_path)


def test_start_is_told_with_its_user_and_nodes(server: Server) -> None:
    server.write("Q", "7.head", "queue=batch")
    server.start("17.head", "bob", "cn9/0")
    server.start("7.head.example", "bob", "cn9/0")
    server.start(own="two words")
    server.write("E", "7.head", "user=alice group=users exec_host=cn1/0-1+cn2/0-1 end=2 Exit_status=0")
    assert server.past() == PastJob("7.head", "alice", ("cn1", "cn2"), 1)


def test_starts_are_told_apart_over_the_days(server: Server) -> None:
    server.start("72[1].head", hosts="cn2/0", ago=0)
    server.start("72[1].head", hosts="cn1/0", ago=3)
    assert server.past("72[1].head", 1).nodes == ("cn1",)
    for start in (2, 0):  # 0: it was not known, and is the last
        assert server.past("72[1].head", start) == PastJob("72[1].head", "alice", ("cn2",), 2)
    with pytest.raises(UnknownJob):
        server.past("72[1].head", 3)


def test_what_was_forgotten_long_ago_or_never_ran_is_not_known(server: Server) -> None:
    server.start(ago=DAYS + RUN_DAYS)
    server.write("Q", "8.head", "queue=batch")
    for job_id in ("7.head", "8.head", "9.head"):
        with pytest.raises(UnknownJob):
            server.past(job_id)


@pytest.mark.parametrize("days", [DAYS, 73_000, 10**7], ids=str)
def test_start_is_told_for_as_long_as_its_record_may_wait(server: Server, days: int) -> None:
    server.start(ago=DAYS + RUN_DAYS - 1)
    assert server.past(days=days).euser == "alice"


@pytest.mark.parametrize("named", [None, "head", "head,other.example:15001"])
def test_host_without_the_servers_files_knows_nothing(tmp_path: pathlib.Path, named: str | None) -> None:
    if named is not None:
        (tmp_path / "server_name").write_text(f"{named}\n")
    with pytest.raises(UnknownJob):
        accounting.past_job("7.head", 1, Policy(torque_home=str(tmp_path)), days=DAYS)


@pytest.mark.parametrize("why", ["named", "one of several", "a place to mount", "a link"])
def test_servers_host_without_its_files_waits_for_them(tmp_path: pathlib.Path, why: str) -> None:
    here = os.uname().nodename
    if why == "named":
        (tmp_path / "server_name").write_text(f"{here}\n")
    elif why == "one of several":
        (tmp_path / "server_name").write_text(f"head:15001, {here}:15001\n")
    elif why == "a place to mount":
        (tmp_path / "server_priv").mkdir()
    else:
        (tmp_path / "server_priv").symlink_to(tmp_path / "away")
    with pytest.raises(SiteFault, match="mounted") as raised:
        accounting.past_job("7.head", 1, Policy(torque_home=str(tmp_path)), days=DAYS)
    assert not isinstance(raised.value, UnknownJob)


@pytest.mark.parametrize("own", ["x exec_host=evil/0", "x exec_host=evil/0 jobname=y"])
def test_users_own_words_are_not_the_servers(server: Server, own: str) -> None:
    """An account may hold blanks: what could be meant twice is not believed."""
    server.start(own=own)
    with pytest.raises(SiteFault, match="not once") as raised:
        server.past()
    assert not isinstance(raised.value, UnknownJob), "it may be another's forgery"


def test_job_name_that_looks_like_a_line_is_none(server: Server) -> None:
    server.write("S", "8.head", "user=bob group=b jobname=;S;7.head;user=eve queue=batch exec_host=evil/0 ")
    with pytest.raises(UnknownJob):
        server.past()
    server.start()
    assert server.past().euser == "alice"


def forged(user: str, date: str = f"{TODAY:%m/%d/%Y}", hosts: str = "evil/0") -> str:
    """An account that ends its line, and begins one that looks like the server's."""
    return f"x\n{date} 12:00:01;S;7.head;user={user} group=users exec_host={hosts} \n"


def test_forged_line_of_another_user_lets_the_record_wait(server: Server) -> None:
    """Whose record it is cannot be told; it is not given up because of somebody else's words."""
    server.start()
    server.start("8.head", "eve", own=forged("eve"))
    with pytest.raises(SiteFault, match="several users") as raised:
        server.past()
    assert not isinstance(raised.value, UnknownJob)


def test_very_many_lines_let_the_record_wait(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "MOST_STARTS", 3)
    server.start()
    server.start("8.head", "eve", own=forged("alice") * 3)
    with pytest.raises(SiteFault, match="more than 3 starts") as raised:
        server.past()
    assert not isinstance(raised.value, UnknownJob)


@pytest.mark.parametrize("date", ["11/21/2026", "22/11/2026", "x11/22/2026", "11/22/2026 12:00:01;Q;1.head;x"])
def test_line_that_is_not_of_its_files_day_is_not_believed(server: Server, date: str) -> None:
    server.start()
    server.start("8.head", "eve", own=forged("eve", date))
    assert server.past() == PastJob("7.head", "alice", ("cn1", "cn2"), 1)


def test_files_that_others_can_write_are_not_believed(server: Server) -> None:
    path = server.start()
    path.chmod(0o666)
    with pytest.raises(SiteFault, match="only root can write"):
        server.past()
    path.rename(path.with_name("kept"))
    path.with_name("kept").chmod(0o644)
    path.symlink_to(path.with_name("kept"))
    with pytest.raises(SiteFault, match="cannot be read"):
        server.past()


def test_path_for_a_job_is_refused(server: Server) -> None:
    with pytest.raises(SiteFault):
        server.past("../../etc")
