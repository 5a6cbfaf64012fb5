# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `-l` takes, how it is written back, and what of it a hook sees."""

from __future__ import annotations

from .errors import BAD_VALUE, UNKNOWN_RESOURCE, RequestError

TIMES = frozenset({"walltime", "cput", "pcput"})

MOM_RESOURCES = frozenset(
    [
        "nodes",
        "neednodes",
        "walltime",
        "cput",
        "pcput",
        "mem",
        "vmem",
        "pmem",
        "pvmem",
        "file",
        "other",
        "gres",
        "prologue",
        "epilogue",
        "nice",
        "ncpus",
    ]
)
"""Those that stand in argv of the hooks (torque.md, argv)."""

OTHERS = frozenset(
    [
        "nodect",
        "software",
        "feature",
        "flags",
        "host",
        "qos",
        "naccesspolicy",
        "procs",
        "arch",
        "opsys",
        "size",
        "nodeset",
        "partition",
    ]
)
"""Known to the server and a scheduler, not to a MOM."""

HOOK_LIMIT = 2048


def parse_time(text: str) -> int:
    """Seconds of `[[HH:]MM:]SS`.

    Raises:
        ValueError: it is not such a text.
    """
    parts = [int(part) for part in text.split(":")]
    if len(parts) > 3 or min(parts) < 0:
        raise ValueError(text)
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + part
    return seconds


def format_time(seconds: int) -> str:
    """`HH:MM:SS`."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def nodes_count(spec: str) -> int:
    """How many nodes a nodes specification asks for (`nodect`)."""
    counts = (part.split(":")[0] for part in spec.split("+"))
    return sum(int(count) if count.isdigit() else 1 for count in counts)


def leading_number(spec: str) -> int:
    """PBS_NUM_NODES: the number in front, 0 for `-l nodes=hostA+hostB` (torque.md, environment)."""
    digits = ""
    for character in spec:
        if not character.isdigit():
            break
        digits += character
    return int(digits or 0)


def per_node(spec: str) -> int:
    """PBS_NUM_PPN: the first `ppn=`, else 1."""
    for part in spec.split("+"):
        for word in part.split(":"):
            if word.startswith("ppn="):
                return int(word[4:])
    return 1


def complete(asked: dict[str, str], defaults: dict[str, str]) -> dict[str, str]:
    """The Resource_List of a job, in the order in which Torque writes it.

    Raises:
        RequestError: a resource is unknown, or a time is not one.
    """
    result: dict[str, str] = {}
    for name, value in asked.items():
        if (name not in MOM_RESOURCES and name not in OTHERS) or name in ("nodect", "neednodes"):
            raise RequestError(UNKNOWN_RESOURCE, name)
        if name in TIMES:
            try:
                value = format_time(parse_time(value))
            except ValueError:
                raise RequestError(BAD_VALUE, f"Resource_List.{name}") from None
        result[name] = value
    nodes = result.get("nodes", defaults["nodes"])
    counted = {"nodect": str(nodes_count(nodes)), "neednodes": nodes}
    if "nodes" in asked:
        return {**result, **counted, **{name: value for name, value in defaults.items() if name not in result}}
    return {**result, **{name: value for name, value in defaults.items() if name not in result}, **counted}


def hook_list(resources: dict[str, str]) -> str:
    """The resource list in argv of a hook: cut at 2048 bytes, entry by entry."""
    room = HOOK_LIMIT
    entries = []
    for name, value in resources.items():
        entry = f"{name}={value}"
        if name in MOM_RESOURCES and len(entry.encode()) + 2 < room:
            entries.append(entry)
            room -= len(entry.encode()) + 1
    return ",".join(entries)
