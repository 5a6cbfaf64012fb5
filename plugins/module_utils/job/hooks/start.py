# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One start of a job as the hooks see it: its paths, its log, and the programs that it runs."""

from __future__ import annotations

import contextlib
import os
import pathlib
import typing as t

from ...errors import VTorqueError, broken_disk, disk_fault
from ...frozen import frozen
from ...state import layout
from ...state.job_log import open_job_log
from ...system.process import supervised

if t.TYPE_CHECKING:
    from ..batch.api import BatchJob
    from ..config.parameters import Policy

NODE_PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vtorque_node"
RECORD_PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vtorque_record"
PLAYBOOK_PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.run_playbook"
USER_SCRIPT_PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.user_script"


@frozen
class Places:
    """Where a hook finds and leaves things.

    Attributes:
        run_dir: what is true while the job runs.
        state_dir: guests and records.
        config: the site's configuration.
        ansible: the call of ansible-playbook; its arguments follow.
        node: the call of `vtorque-node`.
        record: the call of `vtorque-record`.
        user_script: the call of the program that runs a script of the user's, as the user.
    """

    run_dir: pathlib.Path = layout.RUN_DIR
    state_dir: pathlib.Path = layout.STATE_DIR
    config: pathlib.Path = pathlib.Path("/etc/vtorque/vtorque.yml")
    ansible: tuple[str, ...] = tuple(supervised.program(PLAYBOOK_PROGRAM))
    node: tuple[str, ...] = tuple(supervised.program(NODE_PROGRAM))
    record: tuple[str, ...] = tuple(supervised.program(RECORD_PROGRAM))
    user_script: tuple[str, ...] = tuple(supervised.program(USER_SCRIPT_PROGRAM))


@frozen
class Start:
    """One start of a job on its mother superior."""

    job_id: str
    number: int
    places: Places

    @property
    def directory(self) -> pathlib.Path:
        """The run directory."""
        return layout.run_directory(self.job_id, self.number, self.places.run_dir)

    @property
    def record_directory(self) -> pathlib.Path:
        """What outlives the job."""
        return self.places.state_dir / "records" / layout.job_key(self.job_id, self.number)

    @property
    def guests_directory(self) -> pathlib.Path:
        """The guests of this node."""
        return self.places.state_dir / "guests" / layout.job_key(self.job_id, self.number)

    def open_log(self, reader_uid: int | None) -> t.IO[bytes]:
        """Open the job's log for appending; its owner may read it.

        Raises:
            NodeFault: the disk is full or broken.
            VTorqueError: it cannot be opened.
        """
        path = self.record_directory / layout.LOG
        with blame_disk(path):
            fd = open_job_log(path.parent, reader_uid)
        return os.fdopen(fd, "ab", buffering=0)

    def open_any_log(self, reader_uid: int | None) -> t.IO[bytes]:
        """Open the job's log, or none: a full disk must not keep anybody from cleaning up."""
        try:
            return self.open_log(reader_uid)
        except VTorqueError:
            return pathlib.Path(os.devnull).open("ab", buffering=0)


@contextlib.contextmanager
def blame_disk(path: pathlib.Path) -> t.Iterator[None]:
    """Raise a full or broken local disk as this node's fault, and all else that the system refuses as nobody's.

    Args:
        path: of the file that is written, for messages.

    Raises:
        NodeFault: the disk is full or broken.
        VTorqueError: the system refused it for another reason.
    """
    try:
        yield
    except (OSError, VTorqueError) as error:
        if disk := broken_disk(error):
            raise disk_fault(f"{path} cannot be written", str(disk.strerror)) from error
        raise VTorqueError(f"{path} cannot be written", str(error)) from error


class GoAhead(t.Protocol):
    """May begin what the playbook will ask of this node (`plugin_utils/faststart/head_start.py`)."""

    def decide(self, *, wanted: bool) -> None:
        """Hear whether the site's configuration wants anything to begin early; else end what has begun."""

    def go(
        self, job: BatchJob, policy: Policy, *, directory: pathlib.Path, nodefile: pathlib.Path | None, until: float
    ) -> None:
        """Plan the start and ask for this node's guests, beside us."""

    def hand_over(self) -> None:
        """See to it that all that was begun is written down, before the playbook is played."""
