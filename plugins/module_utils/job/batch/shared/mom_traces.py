# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that a MOM of Torque or OpenPBS has on its node: of jobs, whatever the server says, and of its settings."""

from __future__ import annotations

import pathlib
import re
import typing as t

from ....errors import SiteFault

SUFFIXES = (".JB", ".SC", ".TK")
_NUMBER = re.compile(r"([0-9]+)(?:\[([0-9]+)\]|-([0-9]+))?\.")


def by_files(directory: pathlib.Path) -> t.Callable[[str], bool]:
    """`has_files` for the sweep of this node.

    The number alone is compared, and an array member's index (`72-1.head.SC` and `72[1].head.SC` are of `72[1].head`):
    a server's name may be spelled long, short or not at all, and too careful is on the safe side.

    Args:
        directory: where the MOM has its jobs.

    Returns:
        Takes a job id; raises SiteFault when the directory cannot be read.
    """

    def has_files(job_id: str) -> bool:
        return _number(job_id) in {_number(name) for name in _names(directory)}

    return has_files


def others(directory: pathlib.Path, job_id: str) -> tuple[str, ...]:
    """Names of files of other jobs than this one.

    Args:
        directory: where the MOM has its jobs.
        job_id: the job; compared as `by_files` does.

    Raises:
        SiteFault: the directory cannot be read.
    """
    return tuple(name for name in _names(directory) if _number(name) != _number(job_id))


def _names(directory: pathlib.Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir() if path.name.endswith(SUFFIXES))
    except OSError as error:
        raise SiteFault(
            f"{directory}",
            f"what the MOM has here is not known: {error.strerror}",
            "see torque_home in vtorque.yml",
        ) from error


def _number(name: str) -> tuple[str, str] | None:
    found = _NUMBER.match(name)
    return (found[1], found[2] or found[3] or "") if found else None


def read_alarm_s(file: pathlib.Path, line: str, default_s: int) -> int:
    """Return the seconds of the last line that sets them, else those of a MOM that nobody has set.

    Args:
        file: of the MOM's, with how long a hook may run; one that cannot be read sets nothing.
        line: a regular expression for the beginning of such a line, with the number as its one group.
        default_s: the batch system's own.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return default_s
    found = re.findall(line, text, re.MULTILINE)
    return int(found[-1]) if found else default_s
