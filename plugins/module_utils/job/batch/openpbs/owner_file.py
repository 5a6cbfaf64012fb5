# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""As whom a job runs, as the MOM of this node has it: OpenPBS's server shows that to managers alone.

    owner.4-1.p0.1    {"job": "4[1].p0", "start": "1", "user": "alice", "group": "alice"}

`euser` and `egroup` have the flag ATR_DFLAG_MGRD (23.06.06: master_job_attr_def.xml), and root of a node need be no
more than an operator.  The site's hook writes the file at `execjob_begin`, on each node of a job and before any guest,
into a directory of root's alone, and removes it at `execjob_end` or `execjob_abort`; the sweep removes what is left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
import typing as t

from ....errors import SiteFault, VTorqueError
from ....state import layout
from ....system import files
from ....wire.messages import GROUP_NAME, USER_NAME
from ..api import BatchJob

PLACE = layout.RUN_DIR / "openpbs"
PREFIX = "owner."
LIMIT = 1 << 12
YOUNG_S = 60.0
"""So long a note stays in any case: the server may not yet say that its start has begun."""


def add_owner(job: BatchJob) -> BatchJob:
    """Return the job with its user and group, where the server does not show them and a MOM here runs this start.

    Args:
        job: as the server describes it.

    Raises:
        SiteFault: what is noted here is not root's, is of another start, or of another form.
    """
    if job.euser:
        return job
    path = PLACE / f"{PREFIX}{layout.job_key(job.job_id, job.start_count)}"
    try:
        facts = files.read_json(path, limit=LIMIT)
    except FileNotFoundError:
        return job
    except (OSError, VTorqueError) as error:
        raise SiteFault(f"job {job.job_id}: its user", str(error)) from error
    user, group = str(facts.get("user", "")), str(facts.get("group", ""))
    if (facts.get("job"), facts.get("start")) != (job.job_id, str(job.start_count)) or not (
        re.fullmatch(USER_NAME, user) and re.fullmatch(GROUP_NAME, group)
    ):
        raise SiteFault(f"job {job.job_id}: its user", f"{path} is not as the site's hook writes it")
    return dataclasses.replace(job, euser=user, egroup=group)


def remove_gone(is_over: t.Callable[[str, int], bool]) -> None:
    """Remove the notes of starts that are over.

    Args:
        is_over: whether a start of a job is over, from its id and number; raises SiteFault if that is not known.

    Raises:
        OSError: they cannot be read or removed.
    """
    for path in PLACE.glob(f"{PREFIX}*"):
        named = layout.start_of(path.name.removeprefix(PREFIX))
        with contextlib.suppress(FileNotFoundError, SiteFault):
            if named is not None and time.time() - path.stat().st_mtime > YOUNG_S and is_over(*named):
                path.unlink()
