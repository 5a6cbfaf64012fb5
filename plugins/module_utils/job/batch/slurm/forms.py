# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forms that one fact has in the answers of Slurm 22.05 to 26.05, read by the form alone.

A site pins the data parser of `--json` (DataParserParameters of slurm.conf), so that a version number tells nothing
about the form of a value.  Which versions were run, and which were read: docs/admin/slurm-versions.md.

| fact | 22.05 | 23.02 (data_parser/v0.0.39) | 23.11 (v0.0.40) and newer |
|---|---|---|---|
| number | a number or null | `{set, infinite, number}` | the same; with `+complex` a number, null or "Infinity" |
| state of a job | text | text | the state, then its flags, as a list |
| exit_code | of wait(2) | the same as `{set, infinite, number}` | `{status, return_code, signal: {id}}` |
| shared | text | list of one or no text | the same; 26.05 has none |
| state of a node | `state` and `state_flags` | one list | one list |
| active_features | text with commas | list | list |
| job_resources | `allocated_nodes` | the same | the same; since 24.05 (v0.0.41) `nodes.allocation` |
"""

from __future__ import annotations

import json
import re
import typing as t

from ....errors import SiteFault
from . import host_list

Form = dict[str, t.Any]

READS = "vTorque reads the answers of Slurm 22.05 to 26.05 (docs/admin/slurm-versions.md)"
FLAGS = (
    "COMPLETING",
    "STAGE_OUT",
    "CONFIGURING",
    "EXPEDITING",
    "RESIZING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "STOPPED",
    "REVOKED",
    "RESV_DEL_HOLD",
    "SIGNALING",
)
"""Of a job's state, the one that `squeue` without --json would write first (job_state_string, 22.05 to 26.05)."""
INFINITE = ("Infinity", float("inf"))
EXIT = re.compile(r"([0-9]{1,3}):([0-9]{1,3})")
"""`squeue -O exit_code` since 23.02: status and signal."""
ALLOCATED = "ALLOCATED"


def entries(data: bytes, key: str, tool: str) -> list[t.Any]:
    """Return the list with jobs or nodes of an answer.

    Args:
        data: what the command wrote.
        key: of the list.
        tool: the command, for messages.

    Raises:
        SiteFault: the answer is no JSON, reports errors, or has no such list.
    """
    try:
        # what is no UTF-8 in a name or comment stands there as its owner wrote it
        answer = json.loads(data.decode(errors="replace"))
        found, errors = answer[key], answer.get("errors")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SiteFault(f"{tool} --json", f"its answer cannot be read: {error}", READS) from error
    if errors:
        raise SiteFault(f"{tool} --json", f"it reports {json.dumps(errors)[:200]}")
    if not isinstance(found, list):
        raise SiteFault(f"{tool} --json", f"{key} is no list", READS)
    return found


class Facts:
    """The facts of one job or node.

    Args:
        form: an object of an answer.
        what: whose it is, for messages.
    """

    def __init__(self, form: Form, what: str) -> None:
        self._form = form
        self._what = what

    def text(self, key: str) -> str:
        """Return a text; "": it is not set."""
        value = self._form.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.fault(key)
        return value

    def texts(self, key: str) -> list[str]:
        """Return a list of texts, which older versions write with commas between them."""
        value = self._form.get(key)
        if value is None or isinstance(value, str):
            return [one for one in (value or "").split(",") if one]
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.fault(key)
        return value

    def number(self, key: str) -> int:
        """Return a number; 0: it is not set, or infinite."""
        return self.optional_number(key) or 0

    def optional_number(self, key: str) -> int | None:
        """Return a number; None: it is not set, or infinite."""
        return self._read_number(key, self._form.get(key))

    def _read_number(self, key: str, value: object) -> int | None:
        if isinstance(value, dict):
            if value.get("infinite") is True or value.get("set") is False:
                return None
            value = value.get("number", value)
        if value is None or value in INFINITE:
            return None
        # JSON's true is a number of Python's
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.fault(key)
        return value

    def state(self, key: str) -> str:
        """Return the state of a job by one word."""
        value = self._form.get(key)
        if not isinstance(value, list):
            return self.text(key)
        words = self.texts(key)
        if not words:
            raise self.fault(key)
        return next((flag for flag in FLAGS if flag in words), words[0])

    def wait_status(self, key: str) -> int:
        """Return what wait(2) reports of the end of a job; 0: it has none."""
        value = self._form.get(key)
        if isinstance(value, dict) and "return_code" in value:
            signal = value.get("signal")
            number = self._read_number(key, signal.get("id") if isinstance(signal, dict) else None)
            status = self._read_number(key, value["return_code"])
        elif isinstance(value, str):
            return exit_code(value, self._what)
        else:
            return self.number(key)
        return number if number else (status or 0) << 8

    def is_shared(self, word: str) -> bool:
        """Return whether the word of how a job shares its nodes is this one; 26.05 writes none."""
        return word in self.texts("shared")

    def fault(self, key: str) -> SiteFault:
        """Return the error that a value cannot be read."""
        value = self._form.get(key)
        return SiteFault(self._what, f"{key} is {str(value)[:80]!r}, which cannot be read", READS)


def exit_code(text: str, what: str) -> int:
    """Return what wait(2) reports of `squeue -O exit_code`; since 23.02 it is `status:signal`, or empty without an end.

    Args:
        text: of the column.
        what: whose it is, for messages.

    Raises:
        SiteFault: it is of another form.
    """
    if parts := EXIT.fullmatch(text):
        return int(parts[2]) or int(parts[1]) << 8
    if text and not re.fullmatch(r"[0-9]{1,11}", text):
        raise SiteFault(what, f"exit_code is {text[:40]!r}, which cannot be read", READS)
    return int(text or 0)


def allocated(form: Form, what: str) -> dict[str, tuple[int, int]]:
    """Return by host the cores and the MiB that a job was given; {}: nothing.

    Raises:
        SiteFault: it is of another form.
    """
    given = form.get("job_resources")
    if not given or not form.get("nodes"):
        return {}
    try:
        if isinstance(given["nodes"], dict):
            hosts = host_list.expand(given["nodes"]["list"])
            parts = {
                node["name"]: (_cores_of_lists(node["sockets"]), int(node["memory"]["allocated"]))
                for node in given["nodes"]["allocation"]
            }
        else:
            hosts = host_list.expand(given["nodes"])
            parts = {
                node["nodename"]: (_cores_of_words(node["sockets"]), int(node["memory_allocated"]))
                for node in given["allocated_nodes"]
            }
        return {host: parts[host] for host in hosts}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SiteFault(what, f"job_resources is {str(given)[:80]!r}, which cannot be read", READS) from error


def _cores_of_lists(sockets: list[Form]) -> int:
    return sum(ALLOCATED in core["status"] for socket in sockets for core in socket["cores"])


def _cores_of_words(sockets: dict[str, Form]) -> int:
    """Count cores that are `allocated` or `allocated_and_in_use`."""
    words = [state for socket in sockets.values() for state in socket["cores"].values()]
    return sum(word.upper().startswith(ALLOCATED) for word in words)
