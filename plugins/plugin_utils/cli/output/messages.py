# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the commands for people end: one table from an error to `prog: message` and an exit status."""

from __future__ import annotations

import os
import sys
import typing as t

from ....module_utils.errors import ImageFault, NodeFault, SiteFault, UserFault, VTorqueError

INTERRUPTED = 130
CLOSED_PIPE = 141

STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (UserFault, 2),
    (ImageFault, 2),
    (NodeFault, 3),
    (SiteFault, 3),
    (VTorqueError, 1),
    (OSError, 1),
)
"""The first line that fits counts.  2 is what the user can mend, 3 is an administrator's case."""

HERE = ("", "command line")
WIDEST = 28


def run(program: str, command: t.Callable[[], int]) -> int:
    """Run a command for people, and tell its failure as such commands do.

    Args:
        program: the name it is called by.
        command: does the work and returns the exit status.

    Returns:
        The exit status.  A reader that closed the pipe (`vmgr image list | head -1`) is told nothing.
    """
    try:
        status = command()
        sys.stdout.flush()
    except BrokenPipeError:
        # what is still in the buffer would fail once more when the interpreter ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except (VTorqueError, OSError) as error:
        print(text(program, error), file=sys.stderr)
        return next(status for kind, status in STATUS if isinstance(error, kind))
    return status


def text(program: str, error: BaseException, remark: str = "") -> str:
    """What is said about an error: one line, or for an error with several faults a line for each.

    Args:
        program: the name it is called by.
        error: one of ours, or of the operating system.
        remark: what the user should know besides ("nothing was submitted").
    """
    after = f" ({remark})" if remark else ""
    faults = getattr(error, "faults", ())
    if not faults:
        return f"{program}: {error}{after}"
    labels = [_label(fault.key, fault.value) for fault in faults]
    width = min(WIDEST, max(16, *(len(label) + 1 for label in labels)))
    lines = [f"{program}: {getattr(error, 'what', error)}{after}:"]
    for label, fault in zip(labels, faults, strict=True):
        where = "" if fault.origin in HERE else f" ({fault.origin})"
        lines.append(f"  {label:<{width}} {fault.message}{where}")
    return "\n".join(lines)


def _label(key: str, value: str) -> str:
    """What the user typed: `-T orig`, `vcpus=many`, or the key alone."""
    if not value:
        return key
    return f"{key} {value}" if len(key) == 2 and key.startswith("-") else f"{key}={value}"
