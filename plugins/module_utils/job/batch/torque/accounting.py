# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Torque's server wrote down of jobs that it has forgotten, where its files are on this host.

A job that is complete is forgotten after `keep_completed`.  Its lines remain: `<date>;S;<job>;<text>` for each start
that reached the MOM, in `<home>/server_priv/accounting/<day>`, a directory that the server demands to be root's to
write (TORQUE 6: accounting.c, req_runjob.c, pbsd_init.c).  The text begins with `user=<euser> group=`; a user's own
words, which may hold blanks and line ends, stand on both sides of the one ` exec_host=`.  So what is doubtful may be
somebody's forgery against another's job: it is waited for, and only lines that are not there are given up.
"""

from __future__ import annotations

import datetime
import itertools
import mmap
import os
import pathlib
import re
import stat
import typing as t

from ....errors import SiteFault
from ....wire.messages import JOB_ID, USER_NAME
from ..api import PastJob, UnknownJob
from ..host_match import same_host
from .answers import parse_exec_host

if t.TYPE_CHECKING:
    from ...config.parameters import Policy

PLACE = "server_priv/accounting"
RUN_DAYS = 40
"""A start is looked for so many days before its record may have ended: jobs run for days."""
MOST_STARTS = 1000
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def past_job(job_id: str, start: int, policy: Policy, *, days: int, today: datetime.date | None = None) -> PastJob:
    """What is written down of a start of a job.

    start_count counts starts that did not reach the MOM, too, and they have no line: after such a one the lines tell
    of a later start than the one that is meant, which at worst is not proved.

    Args:
        job_id: as the server names it.
        start: Torque's start_count then; 0: it was not known, and the last one is meant.
        policy: says where the server's files are.
        days: how long ago it may have ended.
        today: the day up to which is looked; None: today.

    Returns:
        The start.

    Raises:
        UnknownJob: this host is not the server's, or its files do not tell of this start.
        SiteFault: they are not there just now, cannot be read, can be written by others, or tell nothing clear.
    """
    if not re.fullmatch(JOB_ID, job_id):
        raise SiteFault(f"job id {job_id[:80]!r}", "not of the form of a job id")
    what = f"start {start} of job {job_id}"
    torque_home = pathlib.Path(policy.torque_home)
    lines = (text for path in _files(torque_home, days + RUN_DAYS, today) for text in _starts(path, job_id))
    texts = list(itertools.islice(lines, MOST_STARTS + 1))
    if len(texts) < max(start, 1):
        raise UnknownJob(what, f"the batch server does not know it, and {torque_home / PLACE} does not tell of it")
    if len(texts) > MOST_STARTS:
        raise SiteFault(what, f"{torque_home / PLACE} tells of more than {MOST_STARTS} starts")
    parsed = [_read(what, text) for text in texts]
    if len({user for user, _nodes in parsed}) != 1:
        raise SiteFault(what, f"{torque_home / PLACE} tells of several users")
    user, nodes = parsed[start - 1]  # 0: the last
    return PastJob(job_id, user, nodes, len(parsed))


def _files(home: pathlib.Path, days: int, today: datetime.date | None) -> t.Sequence[pathlib.Path]:
    """The files of these days, which the directory names: how many days are asked for costs nothing."""
    place = home / PLACE
    last = datetime.date.today() if today is None else today
    first = datetime.date.fromordinal(max(_EPOCH, last.toordinal() - days + 1))
    try:
        names = sorted(path.name for path in place.iterdir() if re.fullmatch(r"[0-9]{8}", path.name))
    except (FileNotFoundError, NotADirectoryError) as error:
        if _is_servers(home):
            raise SiteFault(f"{place}", "is not there: is what the batch server keeps mounted on this host?") from error
        return ()
    except OSError as error:
        raise SiteFault(f"{place}", f"cannot be read: {error}") from error
    return [place / name for name in names if f"{first:%Y%m%d}" <= name <= f"{last:%Y%m%d}"]


def _is_servers(home: pathlib.Path) -> bool:
    """Return whether the server's files should be on this host.

    A place to mount them, or a link to them, stays without them.
    """
    if os.path.lexists(home / PLACE.partition("/")[0]):
        return True
    try:
        named = (home / "server_name").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    # of several servers, one is active: host[:port],host[:port]
    here = os.uname().nodename
    return any(same_host(name.partition(":")[0].strip(), here) for name in named.split(","))


def _starts(path: pathlib.Path, job_id: str) -> t.Iterator[str]:
    """The text of each start of the job, in order."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise SiteFault(f"{path}", f"cannot be read: {error}") from error
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != 0 or facts.st_mode & 0o022:
            raise SiteFault(f"{path}", "not a file that only root can write: not believed")
        if not facts.st_size:
            return
        day = f"{path.name[4:6]}/{path.name[6:]}/{path.name[:4]}"
        head = rf"{day} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}};S;{re.escape(job_id)};"
        wanted = re.compile(head.encode("ascii") + rb"([^\n]*)\n")
        with mmap.mmap(fd, facts.st_size, access=mmap.ACCESS_READ) as content:
            # a day of a large site is some MiB: the plain search finds in them what the pattern then reads
            at, needle = 0, f";S;{job_id};".encode("ascii")
            while (at := content.find(needle, at)) >= 0:
                begin = content.rfind(b"\n", 0, at) + 1
                at += len(needle)
                if found := wanted.match(content, begin):
                    at = found.end()
                    yield found[1].decode("utf-8", "replace")
    finally:
        os.close(fd)


def _read(what: str, text: str) -> tuple[str, tuple[str, ...]]:
    user = re.match(rf"user=({USER_NAME}) group=", text)
    hosts = re.findall(r" exec_host=(\S*)", text)
    if user is None or len(hosts) != 1:
        raise SiteFault(what, "the batch server does not know it, and wrote its user or nodes down not once in a line")
    return user[1], tuple(dict.fromkeys(parse_exec_host(hosts[0])))
