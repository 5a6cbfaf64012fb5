# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hooks were given, arguments and environment: by a real MOM (TORQUE 6.1.3), and by slurmd (Slurm 22.05.8)."""

from __future__ import annotations

import dataclasses
import pathlib
import re

RECORDS = pathlib.Path(__file__).resolve().parents[1] / "fixtures/torque"
OF_SLURM = RECORDS.with_name("slurm")


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a hook."""

    argv: tuple[str, ...]
    environment: dict[str, str]


def read_call(name: str) -> Call:
    """A recorded call.

    Args:
        name: of the hook: `prologue`, `epilogue` (on the mother superior).

    Raises:
        ValueError: the record holds no call.
    """
    text = (RECORDS / f"hook-ms-{name}.txt").read_text(encoding="utf-8")
    argv = re.findall(r"^argv\[[0-9]+\]=<(.*)>$", text, re.MULTILINE)
    block = text.partition("-- environ\n")[2].partition("\n-- ")[0]
    environment = dict(line.split("=", 1) for line in block.splitlines())
    if not argv or not environment:
        raise ValueError(f"hook-ms-{name}.txt holds no call")
    return Call(tuple(argv), environment)


def read_slurm_call(name: str) -> Call:
    """Return a recorded call of a job without our comment.

    Args:
        name: `prolog` or `epilog`.

    Raises:
        ValueError: the record holds no call.
    """
    lines = (OF_SLURM / f"{name}-cn1.txt").read_text(encoding="utf-8").splitlines()
    environment = dict(line.split("=", 1) for line in lines)
    if "SLURM_JOB_ID" not in environment:
        raise ValueError(f"{name}-cn1.txt holds no call")
    del environment["SLURM_JOB_COMMENT"]
    return Call((f"/etc/vtorque/slurm/{name}",), environment)
