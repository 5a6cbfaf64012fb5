# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of supported versions, as Markdown: what has run, out of the runs that support.yml lists."""

from __future__ import annotations

import functools
import pathlib
import re
import typing as t

import yaml

SOURCE = pathlib.Path(__file__).with_name("support.yml")
KINDS = {
    "operating system": "system",
    "batch system": "batch",
    "libvirt": "libvirt",
    "QEMU": "qemu",
    "nftables": "nftables",
    "ansible-core": "ansible-core",
    "Python": "python",
}
"""By their names in the table: the values of a run."""


@functools.cache
def table() -> dict[str, t.Any]:
    """Return the content of support.yml: `runs`, and for each kind what is known of it `besides` them."""
    data: dict[str, t.Any] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    unknown = sorted(set(data["besides"]) - set(KINDS))
    if unknown:
        raise SystemExit(f"{SOURCE.name}: no kind of a run: {', '.join(unknown)}")
    return data


def versions() -> str:
    """Return the table of README.md: the releases of each kind that have run, and what is known of others."""
    rows = [
        f"| {kind} | {', '.join(releases(value))} | {table()['besides'].get(kind, '')} |\n"
        for kind, value in KINDS.items()
    ]
    return "| what | ran | besides |\n|---|---|---|\n" + "".join(rows)


def runs() -> str:
    """Return the table of docs/admin/requirements.md: each run, with its command, date and versions."""
    head = "| command | date | system | batch system | libvirt, QEMU | nftables | Python, ansible-core |\n"
    rows = "".join(
        f"| `{run['command']}` | {run['date']} | {run['system']} | {', '.join(run['batch'])} | {run['libvirt']}, "
        f"{run['qemu']} | {run['nftables']} | {run['python']}, {run['ansible-core']} |\n"
        for run in table()["runs"]
    )
    return head + "|---|---|---|---|---|---|---|\n" + rows


def releases(value: str) -> list[str]:
    """Return the releases of one value of all runs, each once, the oldest first: "9.0" for 9.0.0."""
    found = {_release(one) for run in table()["runs"] for one in _texts(run[value])}
    return sorted(found, key=lambda one: [int(number) for number in re.findall(r"[0-9]+", one)])


def _texts(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


def _release(text: str) -> str:
    """Return a version without its last number, where a release has two; Debian's releases have one."""
    if text.startswith("Debian "):
        return text.partition(".")[0]
    return re.sub(r"^((?:Slurm )?[0-9]+\.[0-9]+)\..*$", r"\1", text)
