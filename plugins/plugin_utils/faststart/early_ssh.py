# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Begin the ssh of the job's shell while root still works: the login in the guest need not wait for the shell.

It is the user's process from its first instruction of ssh on, and the same ssh with the same options that the shell
would start; it runs nothing of the job before the shell speaks.  Whatever becomes of it, the shell has its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib

from ...module_utils.effects import leaves_nothing
from ...module_utils.job.batch.api import BatchJob
from ...module_utils.job.batch.registry import open_node
from ...module_utils.job.batch.vm_job import vm_job_of
from ...module_utils.job.config.parameters import Policy
from ...module_utils.job.hooks.user_script import PROLOGUE
from ...module_utils.job.request.keys import ADDITIONS
from ...module_utils.job.shell import ssh_command
from ...module_utils.state import layout, login_fifos
from ...module_utils.state.records import ReadyRecord
from ...module_utils.system import acl, files
from ...module_utils.system.process.detached import start_detached
from ...module_utils.wire.messages import Owner


@leaves_nothing
def wanted(job: BatchJob, policy: Policy) -> bool:
    """Return whether the far end of this job may begin before its shell.

    Not for a terminal, which is the shell's to ask for; not before files and commands of the user's, in the guest or on
    this node with the home that the guest shares, which may be about to change what a login meets.

    Args:
        job: the batch server's word.
        policy: the site's.
    """
    vm_job = vm_job_of(job)
    if job.interactive or vm_job is None or {PROLOGUE, ADDITIONS} & set(vm_job.request.values):
        return False
    return not open_node(policy.batch_system).runs_users_programs_first(job, policy)


def begin(record: ReadyRecord, directory: pathlib.Path, owner: Owner) -> None:
    """Begin it, as the user; nobody waits for it.

    Args:
        record: as the job's shell will find it.
        directory: the run directory of the start; holds `job_key` and `known_hosts`.
        owner: who the job's user is.

    Raises:
        OSError, VTorqueError: it was not begun.
    """
    login_fifos.end(directory)  # of an earlier try
    token = os.urandom(16).hex()
    become = [
        ssh_command.SETPRIV,
        f"--reuid={owner.uid}",
        f"--regid={owner.gid}",
        "--clear-groups",
        "--inh-caps=-all",
        "--no-new-privs",
    ]
    with contextlib.ExitStack() as stack:
        # without a writer there is nothing to read, and no end of it, until one was there and is gone (fifo_open of
        # the kernel); and with ssh for a reader too, what it writes waits for the shell
        ways = ((login_fifos.SAID, os.O_RDONLY), (login_fifos.OUT, os.O_RDWR), (login_fifos.ERR, os.O_RDWR))
        stdin, out, err = (_fifo(directory / name, way, owner.uid, stack) for name, way in ways)
        start_detached(
            [*become, *ssh_command.ssh(record, directory, ["batch", token])],
            environment=ssh_command.environment(), stdin=stdin, stdout=out, stderr=err,
        )  # fmt: skip
    files.write(directory / layout.EARLY, json.dumps({"token": token}), reader_uid=owner.uid)


def _fifo(path: pathlib.Path, way: int, uid: int, stack: contextlib.ExitStack) -> int:
    os.mkfifo(path, 0o600)
    fd = os.open(path, way | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    acl.let_use(fd, uid)
    os.set_blocking(fd, True)
    return fd
