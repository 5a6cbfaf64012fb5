# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who leads a start, noted on its other nodes: a batch server that was told to forget the job cannot tell any more.

superior.json   in the record's directory of a sister: the mother superior, as the server spelt her when it began
"""

from __future__ import annotations

import json
import pathlib

from ...errors import UserFault, VTorqueError
from ...state import layout
from ...system import files
from .api import BatchJob
from .hook_call import HookCall
from .host_match import same_host


def save_superior(host: str, directory: pathlib.Path, *, reader_uid: int) -> None:
    """Note who leads a start, by the server's word.

    Args:
        host: name of the mother superior.
        directory: of the start's record on this node.
        reader_uid: the job's owner, who may list that directory.

    Raises:
        VTorqueError: it was not written.
    """
    files.make_record_directory(directory, reader_uid)
    files.write(directory / layout.SUPERIOR, json.dumps({"host": host}))


def read_name(directory: pathlib.Path) -> str:
    """Who led a start that began here.

    Args:
        directory: of the start's record on this node.

    Returns:
        Host name; "" when nobody noted it.

    Raises:
        VTorqueError: what is there is not root's, or of another form.
    """
    try:
        host = files.read_json(directory / layout.SUPERIOR).get("host")
    except FileNotFoundError:
        return ""
    if not isinstance(host, str) or not host:
        raise VTorqueError(str(directory / layout.SUPERIOR), "is not of the form of this version")
    return host


def script_elsewhere(call: HookCall, job: BatchJob | None) -> UserFault | None:
    """Return the fault of a job whose script the batch system runs on another node than the first of the call.

    Args:
        call: of the first node.
        job: the server's word; None: there is none.
    """
    if job is None or not job.nodes or not call.nodes or same_host(job.nodes[0], call.nodes[0]):
        return None
    what = f"the script of job {call.job_id} is to run on {job.nodes[0]}"
    why = f"the machine for it is on {call.nodes[0]}, the first of the job's nodes"
    return UserFault(what, why, "submit it without an option that chooses the script's node")
