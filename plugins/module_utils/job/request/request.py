# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user asks for with `-vm`: how it is read, merged, and sent along in the job.

The request travels in the job's attribute `x` as `vtorque:<base64url of compact JSON>`, where everybody can read it
and its owner can write it: what comes out of `Request.decode` has been through the same parsers as what the
user typed, and is still only a wish, until `admission.resolve` has looked at it.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import re
import typing as t

from ...effects import leaves_nothing
from ...errors import UserFault
from ...frozen import frozen
from .keys import DISK, FILES, IMAGE, KEYS, PINNING
from .value_types import (
    BadValue,
    KeyFault,
    Value,
    boolean,
    encode_value,
    format_value,
    nearest,
    path,
)

VERSION = 1
PREFIX = "vtorque:"
MARKER = "vtorque"
"""What `-l other=` holds of a VM job, beside what the user set; the hook's launcher looks for it too."""
MAX_PART = 4096
"""Characters of our whole part of `x`, the prefix included."""
MAX_ATTRIBUTE = 128 * 1024
"""Longer than qsub can hand over: one argument of a command ends at 128 KiB on Linux (torque.md)."""
LOG_WORDS = {"show": "SHOW_LOG", "debug": "DEBUG", "trace": "TRACE"}
"""What a user may wish of their job's log, and the variable by which vsub hears it.

It changes what is written, and nothing else.
"""
FROM_JOB = "the job's request"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FLAG = boolean()
_SHELL = path("a shell by its absolute path, the same for all hosts")


class RequestErrors(UserFault):
    """Everything that is wrong with a request, told at once.

    Attributes:
        faults: one for each thing that is wrong.
        good: what could be read in spite of them, so that the policy's objections can be told in the same breath.
    """

    def __init__(self, faults: t.Sequence[KeyFault], good: Request | None = None) -> None:
        super().__init__("the request cannot run on this site", "; ".join(str(fault) for fault in faults))
        self.faults = tuple(faults)
        self.good = good or Request()


@frozen
class Request:
    """What was asked for, key by key, and where each value came from.

    Attributes:
        values: typed values of the keys that were given; sizes are in MiB.
        origins: for each of them where it stood: "command line", "job.sh, line 4", "the job's request".
        shell: the user's own `-S`, or "" for the login shell of passwd.
        digests: for each of `files_of` that is asked for what its file held at submission (SHA-256); then its path is
            absolute.  Of an own image it says less (`user_image.py`).
        log: what the user wants of the job's log, by `LOG_WORDS`; what is not there the site decides.
    """

    # pylint: disable=invalid-field-call  # it knows the library's own decorator alone
    values: t.Mapping[str, Value] = dataclasses.field(default_factory=dict)
    origins: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    shell: str = ""
    digests: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    log: t.Mapping[str, bool] = dataclasses.field(default_factory=dict)

    def merged_over(self, other: Request) -> Request:
        """Return both requests in one; where both have a value this one's wins.

        Args:
            other: the weaker one: the script, where this is the command line.

        Returns:
            What is asked for in all.
        """
        return Request({**other.values, **self.values}, {**other.origins, **self.origins}, self.shell or other.shell)

    def with_shell(self, shell: str) -> Request:
        """Return the request with the user's own `-S`.

        Args:
            shell: as qsub takes it.

        Returns:
            The request, which now carries it.

        Raises:
            UserFault: it is not the absolute path of one shell (`path@host` lists are not carried into guests).
        """
        try:
            checked = parse_shell(shell)
        except BadValue as error:
            raise UserFault(
                f"-S {format_value(shell)}", "not a shell that a guest can be given", f"allowed: {error}"
            ) from None
        return dataclasses.replace(self, shell=checked)

    def with_log(self, log: t.Mapping[str, bool]) -> Request:
        """Return the request with other wishes for the job's log.

        Args:
            log: as the attribute holds them.

        Returns:
            The request, which now carries them.
        """
        return dataclasses.replace(self, log=dict(log))

    def encode(self) -> str:
        """The request as one part of the job's attribute `x`.

        Returns:
            `vtorque:<base64url of compact JSON>`.

        Raises:
            UserFault: it is longer than 4,096 characters.
        """
        part = PREFIX + base64.urlsafe_b64encode(self.to_json()).decode("ascii").rstrip("=")
        if len(part) > MAX_PART:
            raise UserFault(
                "the request is too long to travel in the job",
                f"{len(part)} characters of at most {MAX_PART}",
                "use shorter paths",
            )
        return part

    def to_json(self) -> bytes:
        """The request as compact JSON, whatever carries it."""
        keys = {key: encode_value(value) for key, value in sorted(self.values.items())}
        wire: dict[str, t.Any] = {
            "v": VERSION,
            "k": keys,
            "s": self.shell,
            **({"d": dict(self.digests)} if self.digests else {}),
        }
        wire |= {"l": dict(self.log)} if self.log else {}
        return json.dumps(wire, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    @leaves_nothing
    def decode(cls, x_attribute: str) -> Request | None:
        """The request that a job carries.

        Args:
            x_attribute: the whole attribute `x` of the job, parts joined by `;`.  Not trusted.

        Returns:
            The request, or None when no part of it is ours.

        Raises:
            UserFault: there is more than one part of ours, or it is too long, garbage, or of another version.
            RequestErrors: it holds unknown keys or values that the parsers refuse.
        """
        if len(x_attribute) > MAX_ATTRIBUTE:
            raise _unreadable(
                f"the job's attribute x has {len(x_attribute)} characters, at most {MAX_ATTRIBUTE} are read"
            )
        parts = [part for part in map(str.strip, x_attribute.split(";")) if part.startswith(PREFIX)]
        if not parts:
            return None
        if len(parts) > 1:
            raise _unreadable(f"the job's attribute x holds {len(parts)} requests, and only one can be meant")
        wire = _wire(parts[0])
        log = _log_of(wire.pop("l", {}))
        return _from_wire(wire).with_log(log)


def parse(texts: t.Sequence[tuple[str, str]]) -> Request:
    """Read what one source says, the command line or the script.

    Args:
        texts: pairs of the text of one `-vm` (`key=value,key=value`) and of where it stood.

    Returns:
        What was read; the keys are valid and typed.

    Raises:
        RequestErrors: with every fault of all the texts.
    """
    values: dict[str, Value] = {}
    origins: dict[str, str] = {}
    faults: list[KeyFault] = []
    for whole, origin in texts:
        for item in whole.split(","):
            word, equals, raw = (part.strip() for part in item.partition("="))
            fault = _item_fault(word, equals, raw, origin)
            if fault is None:
                fault = _take(word, raw, origin, values, origins)
            if fault is not None:
                faults.append(fault)
    request = Request(values, origins)
    if faults:
        raise RequestErrors(faults, request)
    return request


def parse_shell(shell: str) -> str:
    """The user's `-S`; raises BadValue with what is allowed.

    Args:
        shell: as qsub takes it.

    Returns:
        The path.

    Raises:
        BadValue: not the absolute path of one shell; the text says what is allowed.
    """
    if "@" in shell:
        raise BadValue(_SHELL.allowed)
    return str(_SHELL.read(shell))


def _item_fault(word: str, equals: str, raw: str, origin: str) -> KeyFault | None:
    if not word and not raw:
        return KeyFault("-vm", "", "an empty entry; write key=value[,key=value...]", origin)
    if word not in KEYS:
        return KeyFault(format_value(word) or '""', format_value(raw), f"no such key{nearest(word, KEYS)}", origin)
    if not equals or not raw:
        return KeyFault(word, "", f"no value; allowed: {KEYS[word].kind.allowed}", origin)
    return None


def _take(word: str, raw: str, origin: str, values: dict[str, Value], origins: dict[str, str]) -> KeyFault | None:
    """Read one value into `values`; a key that says two different things says nothing."""
    try:
        value = KEYS[word].kind.read(raw)
    except BadValue as error:
        return KeyFault(word, format_value(raw), f"allowed: {error}", origin)
    if word in values and values[word] != value:
        before = f"given twice, and {format_value(encode_value(values[word]))} before ({origins[word]})"
        return KeyFault(word, format_value(raw), before, origin)
    values[word] = value
    origins.setdefault(word, origin)
    return None


def is_path(value: object) -> bool:
    """Return whether this is a path, where a key takes other values too: `img` a name, `vcpu_pinning` true or false."""
    return isinstance(value, str) and value.startswith("/")


def files_of(values: t.Mapping[str, Value]) -> set[str]:
    """Return the keys whose file is read again when the job starts."""
    return {*values} & {*FILES} | ({PINNING} if is_path(values.get(PINNING)) else set())


def log_wishes(environment: t.Mapping[str, str]) -> dict[str, bool]:
    """What a user's environment wishes of their job's log: `SHOW_LOG=true vsub ...`, also DEBUG and TRACE.

    Args:
        environment: of the user.

    Returns:
        By `LOG_WORDS`; other values than yes and no, which other programs may give them a meaning, wish nothing.
    """
    found: dict[str, bool] = {}
    for word, variable in LOG_WORDS.items():
        with contextlib.suppress(BadValue):
            found[word] = bool(_FLAG.read({"1": "true", "0": "false"}.get(raw := environment.get(variable, ""), raw)))
    return found


def _log_of(part: object) -> dict[str, bool]:
    if not isinstance(part, dict) or set(part) - set(LOG_WORDS) or not all(isinstance(v, bool) for v in part.values()):
        raise _unreadable("what it says of the log is none of version 1")
    return part


def _unreadable(why: str) -> UserFault:
    return UserFault("the job's VM request cannot be read", why, "submit the job with vsub")


def _wire(part: str) -> dict[str, t.Any]:
    """The JSON object in our part of `x`, its version checked."""
    if len(part) > MAX_PART:
        raise _unreadable(f"it has {len(part)} characters, at most {MAX_PART} are allowed")
    code = part[len(PREFIX) :]
    try:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", code):
            raise ValueError("characters that base64url does not have")
        wire = json.loads(
            base64.b64decode(code + "=" * (-len(code) % 4), altchars=b"-_", validate=True).decode(),
            object_pairs_hook=_without_twins,
        )
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"garbage: {format_value(error)}") from None
    if not isinstance(wire, dict):
        raise _unreadable("garbage: not a JSON object")
    version = wire.get("v")
    if not isinstance(version, int) or isinstance(version, bool):
        raise _unreadable("garbage: no version")
    if version != VERSION:
        raise _unreadable(f"it is of version {format_value(version, 20)}, and this site reads version {VERSION}")
    return wire


def _without_twins(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _from_wire(wire: dict[str, t.Any]) -> Request:
    keys, shell, digests = wire.get("k"), wire.get("s"), wire.get("d", {})
    if set(wire) - {"d"} != {"v", "k", "s"} or not isinstance(digests, dict):
        raise _unreadable("its parts are not those of version 1")
    if not isinstance(keys, dict) or not isinstance(shell, str):
        raise _unreadable("its parts are not those of version 1")
    values: dict[str, Value] = {}
    origins: dict[str, str] = {}
    faults: list[KeyFault] = []
    for word, raw in keys.items():
        if isinstance(raw, str):
            fault = _item_fault(word, "=", raw, "") or _take(word, raw, FROM_JOB, values, origins)
        else:
            fault = KeyFault(format_value(word), "", f"a text was expected, not {type(raw).__name__}")
        if fault is not None:
            faults.append(fault)
    if shell:
        try:
            parse_shell(shell)
        except BadValue as error:
            faults.append(KeyFault("-S", format_value(shell), f"allowed: {error}"))
    faults += _file_faults(values, digests)
    request = Request(values, origins, *(("", {}) if faults else (shell, digests)))
    if faults:
        raise RequestErrors(faults, request)
    return request


def _file_faults(values: t.Mapping[str, Value], digests: dict[str, t.Any]) -> t.Iterator[KeyFault]:
    """Every such file has a digest and an absolute path, and every digest a file; a disk has a path alone."""
    files = files_of(values) | ({IMAGE} if is_path(values.get(IMAGE)) else set())
    for key in sorted({*digests} | files):
        path = str(values.get(key, ""))
        found = digests.get(key)
        well = key in files and path.startswith("/") and isinstance(found, str) and _DIGEST.fullmatch(found)
        if not well:
            yield KeyFault(format_value(key), format_value(path), "without an absolute path and the digest of its file")
    if not (disk := str(values.get(DISK, "/"))).startswith("/"):
        yield KeyFault(DISK, format_value(disk), "without an absolute path")
