# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The epilogues of a job on its mother superior: the user's own, the site's as the user, and root's."""

from __future__ import annotations

import os
import pathlib
import typing as t

from ..shared.job import Job
from . import hooks
from .jobfiles import ERR, OUT, Account, JobFiles


def run(files: JobFiles, job: Job, account: Account, session: int, status: int, alarm_s: float) -> None:
    """Run all of them, one after the other, with the job's output files on descriptors 10 and 11 of a batch job.

    Args:
        files: of this MOM.
        job: which has ended.
        account: of its user.
        session: that was the job's.
        status: with which it ended.
        alarm_s: that each may take.

    Raises:
        OSError: an output file cannot be opened.
    """
    if job.interactive is None:
        out, err = (files.open_stream(job, stream, account) for stream in (OUT, ERR))
        inherited = {10: out, 11: err}
    else:
        out = err = os.open(os.devnull, os.O_WRONLY)
        inherited = {}
    base = files.base_environment()
    for path, owner, identity, cwd in _scripts(files, job, account):
        script = hooks.Script(
            path=path,
            owner=owner,
            arguments=hooks.end_arguments(files.mom_priv, job, session, status),
            environment=hooks.environment(base, job, 0, files.home, identity.uid == 0),
            identity=identity,
            cwd=cwd,
            umask=0o022,
            out=out,
            err=err,
            inherited=inherited,
        )
        hooks.run(script, alarm_s)


def _scripts(files: JobFiles, job: Job, account: Account) -> t.Iterator[tuple[pathlib.Path, int, hooks.Identity, str]]:
    mom_priv = files.mom_priv
    if "epilogue" in job.resources:
        path = pathlib.Path(job.variables.get("PBS_O_WORKDIR", "/"), job.resources["epilogue"])
        yield path, account.uid, account.as_user, account.home
    yield hooks.find(mom_priv, "epilogue.user", job), 0, account.as_user, account.home
    yield hooks.find(mom_priv, "epilogue", job), 0, account.as_root, str(mom_priv)
