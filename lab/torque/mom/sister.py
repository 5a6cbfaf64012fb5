# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A MOM that is not the mother superior: it runs the `*.parallel` hooks.

They run in its main process, which does nothing else meanwhile.
"""

from __future__ import annotations

import os
import pathlib
import typing as t

from ..shared.job import Job
from . import hooks
from .jobfiles import Account, JobFiles, account_of


class NodeDaemon(t.Protocol):
    """What a MOM offers to those that do a part of its work."""

    host: str
    files: JobFiles
    alarm: float

    def make_cgroups(self, job: Job) -> None:
        """Make the cgroups of a job that has come to this node."""

    def remove_cgroups(self, job: Job) -> None:
        """Remove the cgroups of a job."""

    def set_fault(self, text: str) -> None:
        """Take the node down, with this message."""


def fault_text(path: pathlib.Path, status: int) -> str:
    """The node's message after a failed hook."""
    return f"ERROR: prolog/epilog failed, file: {path}, exit: {status}, nonzero p/e exit status"


def join(mom: NodeDaemon, job: Job) -> int:
    """A job arrives: prologue.parallel, then prologue.user.parallel.

    Returns:
        0, or the status of the hook that failed; the node has its fault then.
    """
    rank = job.names.index(mom.host)
    base = mom.files.base_environment()
    account = account_of(job)
    mom.make_cgroups(job)
    own = os.dup(1)
    try:
        for hook, identity, cwd in (
            ("prologue.parallel", hooks.Identity(0, 0, (0,)), str(mom.files.mom_priv)),
            ("prologue.user.parallel", account.as_user, account.home),
        ):
            script = hooks.Script(
                path=hooks.find(mom.files.mom_priv, hook, job),
                owner=0,
                arguments=hooks.start_arguments(mom.files.mom_priv, job),
                environment=hooks.environment(base, job, rank, mom.files.home, identity.uid == 0),
                identity=identity,
                cwd=cwd,
                umask=0o022,
                out=1,
                err=2,
                inherited={10: own, 11: own},
            )
            status = hooks.run(script, mom.alarm)
            if status:
                mom.set_fault(fault_text(script.path, status))
                return status
    finally:
        os.close(own)
    mom.files.write_common(job)
    return 0


def end(mom: NodeDaemon, job: Job) -> None:
    """A job leaves: epilogue.user.parallel, then epilogue.parallel, with closed streams and deaf to HUP, INT, TERM."""
    rank = job.names.index(mom.host)
    base = mom.files.base_environment()
    account = account_of(job)
    null = os.open(os.devnull, os.O_WRONLY)
    stream = null if job.interactive is not None else None
    for hook, identity, cwd in (
        ("epilogue.user.parallel", account.as_user, account.home),
        ("epilogue.parallel", account.as_root, str(mom.files.mom_priv)),
    ):
        script = hooks.Script(
            path=hooks.find(mom.files.mom_priv, hook, job),
            owner=0,
            arguments=hooks.end_arguments(mom.files.mom_priv, job, 0, 0),
            environment=hooks.environment(base, job, rank, mom.files.home, identity.uid == 0),
            identity=identity,
            cwd=cwd,
            umask=0o022,
            out=stream,
            err=stream,
            deaf=True,
        )
        status = hooks.run(script, mom.alarm)
        if status:
            mom.set_fault(fault_text(script.path, status))
    os.close(null)
    mom.remove_cgroups(job)
    mom.files.remove(job, with_streams=True)


def precancel(mom: NodeDaemon, job: Job, account: Account, session: int, by_walltime: bool) -> None:
    """epilogue.precancel on the mother superior, as the user, also in the main process."""
    base = mom.files.base_environment()
    null = os.open(os.devnull, os.O_WRONLY)
    script = hooks.Script(
        path=hooks.find(mom.files.mom_priv, "epilogue.precancel", job),
        owner=0,
        arguments=hooks.end_arguments(mom.files.mom_priv, job, session, 0),
        environment=hooks.environment(base, job, 0, mom.files.home, for_root=False),
        identity=account.as_user,
        cwd=account.home,
        umask=0o022,
        out=null,
        err=null,
        deaf=by_walltime,
    )
    status = hooks.run(script, mom.alarm)
    os.close(null)
    if status:
        mom.set_fault(fault_text(script.path, status))
