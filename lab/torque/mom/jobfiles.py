# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a job on a node: who owns them, what is in them, and how output comes home."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pwd
import typing as t

from ..shared import attributes, show
from ..shared.job import Job
from . import hooks

OUT, ERR = "OU", "ER"


class Account(t.NamedTuple):
    """The job's owner on this node."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @property
    def as_user(self) -> hooks.Identity:
        """The user."""
        return hooks.Identity(self.uid, self.gid, self.groups)

    @property
    def as_root(self) -> hooks.Identity:
        """root with the user's groups, as `prologue` and the epilogues run."""
        return hooks.Identity(0, 0, (0, *self.groups))


def account_of(job: Job) -> Account:
    """The job's owner; the group is the job's.

    Raises:
        KeyError: no such user or group on this node.
    """
    import grp

    entry = pwd.getpwnam(job.user)
    gid = grp.getgrnam(job.group).gr_gid
    return Account(
        entry.pw_name,
        entry.pw_uid,
        gid,
        tuple(os.getgrouplist(entry.pw_name, gid)),
        entry.pw_dir,
        job.shell.partition(",")[0].partition("@")[0] or entry.pw_shell or "/bin/sh",
    )


class JobFiles:
    """Paths and contents below the MOM's home."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self.mom_priv = home / "mom_priv"
        self.jobs = self.mom_priv / "jobs"
        self.spool = home / "spool"
        self.stored = home / "mom_priv/kept"
        """Jobs as their MOM knows them, for one that is started again: Torque's own are in its .JB files."""

    def make_home(self) -> None:
        """The directories and pbs_environment, with the recorded modes; what is there stays."""
        for directory, mode in (
            (self.home, 0o755),
            (self.mom_priv, 0o751),
            (self.jobs, 0o751),
            (self.stored, 0o700),
            (self.home / "aux", 0o755),
            (self.spool, 0o1777),
            (self.home / "undelivered", 0o1777),
        ):
            if not directory.is_dir():
                directory.mkdir(parents=True)
                directory.chmod(mode)
        if not (self.home / "pbs_environment").exists():
            (self.home / "pbs_environment").write_text("PATH=/bin:/usr/bin\nLANG=C.UTF-8\n")

    def base_environment(self) -> dict[str, str]:
        """pbs_environment."""
        lines = (self.home / "pbs_environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def of(self, job: Job, kind: str) -> pathlib.Path:
        """The .SC, .JB or .TK file."""
        return self.jobs / f"{job.hashname}.{kind}"

    def _kept(self, job: Job) -> pathlib.Path:
        return self.stored / f"{job.hashname}.json"

    def stream(self, job: Job, kind: str) -> pathlib.Path:
        """The .OU or .ER file; joined streams are one file."""
        joined = {"oe": OUT, "eo": ERR}.get(job.join, kind)
        return self.spool / f"{job.hashname}.{joined}"

    def write_common(self, job: Job) -> None:
        """The .JB file, on every node of the job."""
        printed = attributes.job_attributes(job, is_owner=True, is_manager=True)
        text = f'<?xml version="1.0"?>\n{show.job_xml(job.id, printed)}\n'
        _write(self.of(job, "JB"), text.encode(errors="surrogateescape"), 0o644, 0, 0)
        _write(self._kept(job), json.dumps(job.to_json()).encode(), 0o600, 0, 0)

    def write_superior(self, job: Job, account: Account) -> None:
        """Node file and .SC, on the mother superior."""
        names = [host for host, slots in job.hosts for _slot in slots]
        if job.variables.get("BEOWULF_JOB_MAP"):
            names = job.variables["BEOWULF_JOB_MAP"].split(":")
        text = "".join(f"{name}\n" for name in names)
        _write(self.home / "aux" / job.id, text.encode(errors="surrogateescape"), 0o644, 0, 0)
        if job.interactive is None:
            script = job.script.encode(errors="surrogateescape")
            _write(self.of(job, "SC"), script, 0o700, account.uid, account.gid)

    def write_task(self, job: Job, session: int) -> None:
        """The .TK file: which session the job is, and when it began (boot ticks)."""
        began = hooks.process_fields(session)[19:20] or ["0"]
        _write(self.of(job, "TK"), f"{session} {began[0]}\n".encode(), 0o600, 0, 0)

    def open_stream(self, job: Job, kind: str, account: Account) -> int:
        """A descriptor of .OU or .ER, made as the user's 0600 file when it is not there."""
        path, flags = self.stream(job, kind), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except (
            FileExistsError
        ):  # not by O_CREAT: where fs.protected_regular is 2, root has no such way to a user's file
            descriptor = os.open(path, flags)
        os.fchown(descriptor, account.uid, account.gid)
        os.fchmod(descriptor, 0o600)
        return descriptor

    def remove(self, job: Job, with_streams: bool) -> None:
        """Take the job's files away; `with_streams` takes the spooled output too."""
        paths = [*(self.of(job, kind) for kind in ("SC", "JB", "TK")), self.home / "aux" / job.id, self._kept(job)]
        if with_streams:
            paths += [self.spool / f"{job.hashname}.{kind}" for kind in (OUT, ERR)]
        for path in paths:
            path.unlink(missing_ok=True)

    def deliver(self, job: Job, account: Account) -> bool:
        """Copy the output to where the user wants it, as the user (forks; returns whether all arrived)."""
        pid = os.fork()
        if pid == 0:
            try:
                os.umask(0o077 if job.umask is None else job.umask)
                account.as_user.become()
                os._exit(0 if all([self._copy(job, account, kind) for kind in (OUT, ERR)]) else 1)
            except OSError:
                os._exit(1)
        _pid, status = os.waitpid(pid, 0)
        return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0

    def _copy(self, job: Job, account: Account, kind: str) -> bool:
        source = self.spool / f"{job.hashname}.{kind}"
        if not source.exists():
            return True
        target = self._target(job, account, kind)
        with contextlib.suppress(OSError):
            target.write_bytes(source.read_bytes())
            return True
        (self.home / "undelivered" / source.name).write_bytes(source.read_bytes())
        return False

    def _target(self, job: Job, account: Account, kind: str) -> pathlib.Path:
        letter, wanted = ("o", job.output_path) if kind == OUT else ("e", job.error_path)
        suffix = "" if job.index is None else f"-{job.index}"
        if letter in job.keep:
            name = job.name.removesuffix(suffix)
            return pathlib.Path(account.home) / f"{name}.{letter}{job.seq}{suffix}"
        path = wanted.split(":", 1)[-1].replace("$PBS_JOBID", job.id)
        target = pathlib.Path(path)
        return target / f"{job.hashname}.{kind}" if target.is_dir() else target


def _write(path: pathlib.Path, data: bytes, mode: int, uid: int, gid: int) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        os.fchown(descriptor, uid, gid)
        file.write(data)
