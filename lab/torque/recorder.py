# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorder: a hook that writes down what it saw as the recorder on the real Torque did, and how that is read."""

from __future__ import annotations

import pathlib
import re
import typing as t

HOOKS = (
    "prologue",
    "prologue.user",
    "prologue.parallel",
    "prologue.user.parallel",
    "epilogue",
    "epilogue.user",
    "epilogue.parallel",
    "epilogue.user.parallel",
    "epilogue.precancel",
)
RECORDED = pathlib.Path(__file__).parents[2] / "tests/fixtures/torque"
LOG = 7
"""The descriptor by which the recorder writes."""

RECORDER = r"""#!/bin/bash
exec 7>>{log}/$1.{host}.{hook}
echo "-- fds" >&7
ls -l /proc/$$/fd >&7
echo "-- end" >&7
printf '%s START %s {host} {hook}\n' "$EPOCHREALTIME" "$1" >>{log}/events
{{
echo "cwd: $PWD   id: $(id)   umask: $(umask)"
n=0; for a in "$0" "$@"; do echo "argv[$n]=<$a>"; n=$((n+1)); done
read -ra parent </proc/$PPID/stat
echo "pid $$ ppid $PPID"
echo "started ${{parent[21]}}"
echo "-- environ"
while IFS= read -rd '' line; do echo "$line"; done </proc/$$/environ
echo "-- nodefile"
[ -z "$PBS_NODEFILE" ] || while read -r line; do echo "$line"; done <$PBS_NODEFILE
echo "-- files"
cd {home} && stat -c '%n %U %a' mom_priv/jobs/* aux/* spool/* 2>/dev/null; cd - >/dev/null
echo "-- sig"
( : "while bash starts a program it blocks more signals for a moment: not before it waits"
  until read -ra shell </proc/$$/stat && [ "${{shell[2]}}" = S ]; do :; done
  grep -E 'Sig(Blk|Ign)' /proc/$$/status )
}} >&7 2>&7
status=0
[ ! -e {log}/do.{host}.{hook} ] || . {log}/do.{host}.{hook}
printf '%s END %s {host} {hook} rc=%s\n' "$EPOCHREALTIME" "$1" "$status" >>{log}/events
exit $status
"""


class Seen(t.NamedTuple):
    """What one hook saw; the same reading serves our records and the real ones."""

    arguments: tuple[str, ...]
    identity: str
    umask: str
    cwd: str
    streams: dict[str, str]
    others: set[int]
    environment: dict[str, str]
    nodes: tuple[str, ...]
    files: dict[str, tuple[str, str]]
    blocked: str
    ignored: str
    parent: int
    parent_started: int
    text: str


def settable(mask: str) -> str:
    """A mask of /proc/PID/status without signals 32 and 33.

    The C library keeps them to itself; GNU make leaves them ignored, and no program can set them back.
    """
    return f"{int(mask, 16) & ~0x180000000:016x}" if mask else ""


def read_record(text: str) -> Seen:
    """Parse the last record in a file."""

    def section(name: str) -> list[str]:
        found = re.search(rf"^-- {name}\n(.*?)(?=^-- |\Z)", text, re.M | re.S)
        return found.group(1).splitlines() if found else []

    def word(pattern: str) -> str:
        found = re.search(pattern, text, re.M)
        return found.group(1) if found else ""

    if section("fds"):
        open_files = dict(re.findall(r" (\d+) -> (.*)$", "\n".join(section("fds")), re.M))
        streams = {number: open_files.get(number, "") for number in ("0", "1", "2")}
        others = {int(number) for number in open_files} - {0, 1, 2, LOG}
    else:
        streams = dict(re.findall(r"^fd(\d) -> ?(.*)$", text, re.M))
        others = {int(number) for number in re.findall(r"(?<= )(\d+)(?=->)", word(r"^otherfds:(.*)$"))}
    files = [line.split() for line in section("files")]
    return Seen(
        arguments=tuple(re.findall(r"^argv\[\d+\]=<(.*)>$", text, re.M)),
        identity=word(r"id: (uid=.*?)\s+umask"),
        umask=word(r"umask: (\d+)"),
        cwd=word(r"cwd: (\S+)"),
        streams=streams,
        others=others,
        environment=dict(line.split("=", 1) for line in section("environ") if "=" in line),
        nodes=tuple(line for line in section("nodefile") if re.fullmatch(r"[\w.-]+", line)),
        files={name: (owner, mode) for name, owner, mode in files},
        blocked=word(r"SigBlk:\s+(\S+)"),
        ignored=settable(word(r"SigIgn:\s+(\S+)")),
        parent=int(word(r"ppid (\d+)") or 0),
        parent_started=int(word(r"^started (\d+)") or 0),
        text=text,
    )
