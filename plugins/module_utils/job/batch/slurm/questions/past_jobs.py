# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm wrote down of jobs that its controller has forgotten: in its database, or in a file on this host.

The controller forgets a job `MinJobAge` after its end.  `sacct` knows it longer, where the site has slurmdbd (its
manual of 22.05; not tried); so does the file of `JobCompType=jobcomp/filetxt`, a line for each start that has ended:

    JobId=4 UserId=alice(1001) GroupId=alice(1001) Name=sbatch ... EndTime=2026-11-26T05:33:21 NodeList=cn1 NodeCnt=1

The job's name and its directory are its user's words, and may hold blanks and line ends.  So what is doubtful there may
be somebody's forgery against another's job: it is waited for, and only lines that are not there are given up.
"""

from __future__ import annotations

import datetime
import mmap
import os
import pathlib
import re
import stat
import time
import typing as t

from .....errors import SiteFault
from .....wire.messages import USER_NAME
from ...api import PastJob, UnknownJob
from ...shared.commands_directory import commands_directory
from .. import commands, host_list, ids

if t.TYPE_CHECKING:
    from ....config.parameters import Policy

CALL_S = 10.0
RUN_DAYS = 40
"""A start is looked for so many days before its record may have ended: jobs run for days."""
FORM = "JobIDRaw,User,NodeList"
DATABASE, FILE = "accounting_storage/slurmdbd", "jobcomp/filetxt"
DEFAULT_FILE = "/var/log/slurm_jobcomp.log"
"""What Slurm takes where slurm.conf has no JobCompLoc."""
NOTHING = f"Slurm's controller has forgotten it, and no accounting tells of it here (AccountingStorageType={DATABASE}, \
or JobCompType={FILE} with its file on this host)"


class Start(t.NamedTuple):
    """A start that is written down: its user, and its nodes, the one of the script first."""

    user: str
    nodes: tuple[str, ...]


def past_job(job_id: str, start: int, policy: Policy, *, days: int) -> PastJob:
    """A start of a job that the controller has forgotten; see `HistoryAdapter`.

    Args:
        job_id: of the job.
        start: its number; 0: it was not known, and the last one is meant.
        policy: of the site.
        days: how long ago it may have ended.

    Raises:
        UnknownJob: Slurm writes nothing down, not on this host, or nothing of this job.
        SiteFault: what is written down is not there just now, or tells nothing clear.
    """
    tools, number = commands_directory(policy, front_end=True), ids.number_of(job_id)
    settings = commands.read_settings(commands.run(tools, commands.SETTINGS, "", timeout_s=CALL_S, deadline=None))
    found: list[Start] = []
    if settings.get("AccountingStorageType", "") == DATABASE:
        asked = question(number, days, datetime.date.today())
        rows = commands.run(tools, asked, job_id, timeout_s=CALL_S, deadline=None)
        found = read_rows(rows, number)
    elif settings.get("JobCompType", "") == FILE:
        of_slurm = re.search(r"\(([0-9]+)\)$", settings.get("SlurmUser", ""))
        owners = {0, *([int(of_slurm[1])] if of_slurm else [])}
        place = pathlib.Path(settings.get("JobCompLoc", "") or DEFAULT_FILE)
        found = read_file(place, number, owners, days, time.time())
    return choose(job_id, start, found)


def question(number: str, days: int, today: datetime.date) -> tuple[str, ...]:
    """Return the command that asks the database for all starts of a job.

    Args:
        number: of the job.
        days: how long ago it may have ended.
        today: the day up to which is looked.
    """
    first = datetime.date.fromordinal(max(1, today.toordinal() - days - RUN_DAYS))
    return ("sacct", "-n", "-P", "-X", "-D", "-j", number, "-o", FORM, "-S", first.isoformat())


def read_rows(data: bytes, number: str) -> list[Start]:
    """Read an answer of `sacct`, in which no field is the user's to write.

    Args:
        data: the answer.
        number: of the job; rows of other members of its array are left out.

    Raises:
        SiteFault: it is of another form.
    """
    found = []
    for line in data.decode("utf-8", "replace").splitlines():
        fields = line.split("|")
        if len(fields) != 3:
            raise SiteFault("sacct", "its answer is of another form")
        if fields[0] == number and fields[2] != "None assigned":
            found.append(_start(fields[1], fields[2]))
    return found


def read_file(path: pathlib.Path, number: str, owners: t.Collection[int], days: int, now: float) -> list[Start]:
    """Read the starts of a job in the file of jobcomp/filetxt, in the order in which they ended.

    Args:
        path: of the file.
        number: of the job.
        owners: users whose file it may be: root, and Slurm's own.
        days: how long ago the start may have ended; numbers of jobs begin anew one day.
        now: the time.

    Raises:
        SiteFault: the file can be written by others, cannot be read, or tells nothing clear.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return []  # the controller is on another host
    except OSError as error:
        raise SiteFault(f"{path}", f"cannot be read: {error}") from error
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid not in owners or facts.st_mode & 0o022:
            raise SiteFault(f"{path}", "not a file that only Slurm can write: not believed")
        if not facts.st_size:
            return []
        with mmap.mmap(fd, facts.st_size, access=mmap.ACCESS_READ) as content:
            lines = re.findall(rb"^JobId=%s UserId=[^\n]*\n" % number.encode("ascii"), content, re.MULTILINE)
    finally:
        os.close(fd)
    read = [_read(path, line.decode("utf-8", "replace")) for line in lines]
    oldest = now - (days + RUN_DAYS) * 86400
    return [start for start, ended in read if ended >= oldest]


def _read(path: pathlib.Path, line: str) -> tuple[Start, float]:
    user = re.match(rf"JobId=[0-9]+ UserId=({USER_NAME})\([0-9]+\) GroupId=", line)
    nodes = re.findall(r" NodeList=(\S*) NodeCnt=", line)
    ends = re.findall(r" EndTime=([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}) ", line)
    if user is None or len(nodes) != 1 or len(ends) != 1:
        raise SiteFault(f"{path}", "has a line of the job that does not have its user, nodes or end once")
    try:
        ended = datetime.datetime.fromisoformat(ends[0]).timestamp()
    except (ValueError, OverflowError) as error:
        raise SiteFault(f"{path}", f"has a time that is none: {ends[0]}") from error
    return _start(user[1], nodes[0]), ended


def _start(user: str, nodes: str) -> Start:
    return Start(user, () if nodes in ("", "(null)") else host_list.expand(nodes))


def choose(job_id: str, start: int, found: t.Sequence[Start]) -> PastJob:
    """Return a start of a job among those that are written down.

    Args:
        job_id: of the job.
        start: its number; 0: the last. Where fewer are written down than there were, the last one is meant, too.
        found: its starts, in their order; those without nodes never ran.

    Raises:
        UnknownJob: none is.
        SiteFault: they are of several users.
    """
    ran = [one for one in found if one.nodes]
    if not ran:
        raise UnknownJob(f"start {start} of job {job_id}", NOTHING)
    if len({one.user for one in ran}) != 1:
        raise SiteFault(f"start {start} of job {job_id}", "Slurm's accounting tells of several users")
    chosen = ran[min(start, len(ran)) - 1]
    return PastJob(job_id, chosen.user, chosen.nodes, max(start, len(ran)))
