# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask `ip` for the addresses of an interface and its neighbours, and `bridge` for VLANs; have them change something.

A call takes 2 ms of processor time.  What must be heard at once is heard from the kernel itself: `rtnetlink.py`.
"""

from __future__ import annotations

import json
import re
import subprocess
import typing as t

from ...errors import NodeFault, VTorqueError
from ...system.clock import Deadline
from ...time_budget import ADDRESSES_ANSWER_S
from ..system.tool import run_tool

_NONE_THERE = "RTNETLINK answers: No such file or directory"


def read_addresses(interface: str, deadline: Deadline) -> tuple[str, ...]:
    """Return the addresses of an interface, as `ip` writes them.

    Args:
        interface: its name.
        deadline: of whoever asks.

    Raises:
        NodeFault: `ip` cannot be run.
        VTorqueError: there is no such interface, or no answer.
    """
    rows = _read_rows(("address", "show", "dev", interface), deadline)
    return tuple(one["local"] for row in rows for one in row.get("addr_info", ()) if "local" in one)


def read_neighbours(interface: str, deadline: Deadline) -> tuple[tuple[str, str], ...]:
    """Return pairs of MAC address and address from the neighbour table; who has no MAC address (yet) is left out.

    Arguments and errors are those of `read_addresses`.
    """
    rows = _read_rows(("neigh", "show", "dev", interface), deadline)
    return tuple((row["lladdr"], row["dst"]) for row in rows if "lladdr" in row and "dst" in row)


def forget_neighbour(address: str, interface: str, deadline: Deadline) -> bool:
    """Have the kernel forget a neighbour.

    Args:
        address: as `read_neighbours` returned it.
        interface: its name.
        deadline: of whoever asks.

    Returns:
        False: there was none any more.

    Raises:
        NodeFault: `ip` cannot be run.
        VTorqueError: the kernel does not forget it.
    """
    arguments = ("neigh", "del", address, "dev", interface)
    done = _run(arguments, deadline)
    if done.returncode and done.stderr.strip() != _NONE_THERE:
        raise _failure(arguments, done.stderr)
    return done.returncode == 0


def read_tagged(deadline: Deadline) -> dict[str, tuple[range, ...]]:
    """Return the VLANs of each port of bridges, and of bridges themselves, whose frames have their tag there.

    Args:
        deadline: of whoever asks.

    Raises:
        NodeFault: `bridge` cannot be run.
        VTorqueError: no answer.
    """
    found: dict[str, tuple[range, ...]] = {}
    for row in _read_rows(("vlan", "show"), deadline, "bridge"):
        entries = [one for one in row.get("vlans", ()) if "Egress Untagged" not in one.get("flags", ())]
        spans = tuple(range(one["vlan"], one.get("vlanEnd", one["vlan"]) + 1) for one in entries)
        found[str(row.get("ifname"))] = spans
    return found


def run_batch(program: str, lines: t.Sequence[str], deadline: Deadline) -> None:
    """Run lines by one call of a program of iproute2, which stops at the first that the kernel refuses.

    Args:
        program: `ip` or `bridge`.
        lines: as after its name.
        deadline: of whoever asks.

    Raises:
        NodeFault: it cannot be run.
        VTorqueError: the kernel refuses a line.
    """
    try:
        text = "".join(f"{line}\n" for line in lines)
        done = run_tool([program, "-batch", "-"], deadline.left_s(ADDRESSES_ANSWER_S), text)
    except subprocess.TimeoutExpired as error:
        raise VTorqueError(f"{program} {lines[0]}", f"gave no answer within {error.timeout:.1f} s") from error
    except OSError as error:
        raise NodeFault(program, error.strerror or str(error), "install iproute2", cause="programs") from error
    if done.returncode:
        why, _newline, rest = done.stderr.strip().partition("\n")
        failed = re.search(r":([0-9]+)$", rest.strip())
        line = lines[min(len(lines), int(failed[1])) - 1] if failed else lines[0]
        raise VTorqueError(f"{program} {line}", why or "failed without a message")


def _read_rows(arguments: t.Sequence[str], deadline: Deadline, program: str = "ip") -> list[dict[str, t.Any]]:
    done = _run(("-json", *arguments), deadline, program)
    if done.returncode:
        raise _failure(arguments, done.stderr, program)
    try:
        return [row for row in json.loads(done.stdout or "[]") if isinstance(row, dict)]
    except (ValueError, TypeError) as error:
        raise _failure(arguments, f"its answer is no list of JSON: {error}", program) from error


def _run(arguments: t.Sequence[str], deadline: Deadline, program: str = "ip") -> subprocess.CompletedProcess[str]:
    try:
        return run_tool([program, *arguments], deadline.left_s(ADDRESSES_ANSWER_S))
    except subprocess.TimeoutExpired as error:
        raise _failure(arguments, f"gave no answer within {error.timeout:.1f} s", program) from error
    except OSError as error:
        raise NodeFault(program, error.strerror or str(error), "install iproute2", cause="programs") from error


def _failure(arguments: t.Sequence[str], why: str, program: str = "ip") -> VTorqueError:
    return VTorqueError(f"{program} {' '.join(arguments)}", " ".join(why.split())[:200] or "failed without a message")
