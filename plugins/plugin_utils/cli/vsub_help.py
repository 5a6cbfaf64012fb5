# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `vsub` and its siblings print about themselves; no job waits for it to load."""

from __future__ import annotations

import typing as t

from ...module_utils.installed import version
from ...module_utils.job.request.keys import KEYS

if t.TYPE_CHECKING:
    from ...module_utils.job.batch.contract import FrontAdapter

HELP = """\
{usage}
keys of -vm, and what they take:
{keys}

in the environment:
  SHOW_LOG=true   what vTorque does for the job, until its script begins, in the job's error file
  DEBUG=true      the same in more detail, and in the job's log (vmgr job log)
  TRACE=true      every step

  --dry-run   show the request, where each value came from, and the {command} command; submit nothing
  --json      with --dry-run: the same for programs
  --query EXPRESSION
              with --dry-run: what this JMESPath expression finds in that, as --query 'request.ram.value'
  --help      this text
  --version   {program}'s version

Exit status: {command}'s; 2 when the request is refused, 3 when the site's configuration or batch system is at fault,
1 when something else failed.
See also: vmgr image list, vsub(1), {command}(1)
"""


def help_text(front: FrontAdapter) -> str:
    """Return what `--help` prints.

    Args:
        front: of the site's batch system.
    """
    keys = "\n".join(f"  {name:<13} {key.meaning}\n{'':<18}{key.kind.allowed}" for name, key in KEYS.items())
    names = {"usage": front.USAGE, "program": front.PROGRAM, "command": front.COMMAND}
    return HELP.format(keys=keys, **names)


def version_text(front: FrontAdapter) -> str:
    """Return what `--version` prints.

    Args:
        front: of the site's batch system.
    """
    return f"{front.PROGRAM} {version()}\n"
