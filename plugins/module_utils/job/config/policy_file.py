# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vtorque.yml: who may have written it, what stands in it, and everything that is wrong with it."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pathlib
import stat
import typing as t

from ...effects import leaves_nothing
from ...errors import SiteFault
from ...frozen import frozen
from ...state.layout import RUN_DIR
from ..request.value_types import BadValue, KeyFault, encode_value, format_value, nearest
from . import consistency
from .parameters import PARAMETERS, RETIRED, Parameter, Policy
from .policy_parser import Entry, NotEntries, read_compiled, read_entries

PATH = pathlib.Path("/etc/vtorque/vtorque.yml")
MAX_FILE = 1 << 20
KEPT = RUN_DIR / "policy.json"
AN_ADMINISTRATOR = "an administrator must see to it: vmgr config check"


class WrongPolicy(SiteFault):
    """The site's configuration is wrong, and an administrator must see to it.

    Attributes:
        usable: what could be read in spite of that, and the defaults for the rest.
    """

    def __init__(self, file: pathlib.Path | str, problem: str, usable: Policy | None = None) -> None:
        super().__init__(f"the site's configuration {file}", problem, AN_ADMINISTRATOR)
        self.usable = usable or Policy()


class PolicyErrors(WrongPolicy):
    """Everything that is wrong with the site's configuration, told at once.

    Attributes:
        faults: one for each thing that is wrong; their origin is the line.
    """

    def __init__(self, file: pathlib.Path | str, faults: t.Sequence[KeyFault], usable: Policy | None = None) -> None:
        super().__init__(file, "; ".join(map(str, faults)), usable)
        self.faults = tuple(faults)


@frozen
class PolicyFile:
    """A configuration that was read, and is good.

    Attributes:
        policy: every parameter.
        lines: of the parameters, former ones too, that the file names: the line where each stands.
    """

    policy: Policy
    lines: t.Mapping[str, int]

    @property
    def retired(self) -> dict[str, int]:
        """Former parameters that the file names, without effect, and the line of each."""
        return {name: line for name, line in self.lines.items() if name in RETIRED}


@leaves_nothing
def load(path: pathlib.Path = PATH, *, owner_uid: int = 0) -> Policy:
    """Read the site's configuration and check all of it.

    Args:
        path: the file; it must belong to `owner_uid`, and neither it nor its directory may be writable by others.
        owner_uid: whose word is the site's: root's.

    Returns:
        Every parameter, checked.

    Raises:
        SiteFault: the file is missing, or not only root can have written it.
        PolicyErrors: something in it is wrong; all of it is named.
    """
    return read(path, owner_uid=owner_uid).policy


@leaves_nothing
def load_usable(read_policy: t.Callable[[], Policy]) -> tuple[Policy, SiteFault | None]:
    """The site's configuration as far as it can be read, for who must go on when it is broken.

    Args:
        read_policy: `load`, for the file that is meant.

    Returns:
        What was read, with the defaults for the rest, and what is wrong; None: nothing is.
    """
    try:
        return read_policy(), None
    except WrongPolicy as error:
        return error.usable, error
    except SiteFault as error:
        return Policy(), error


def load_once(read_policy: t.Callable[[], Policy]) -> t.Callable[[], Policy]:
    """Return what loads the site's configuration when it is asked first, and then says the same each time.

    A program that read it twice could find two configurations, when an administrator writes it meanwhile.

    Args:
        read_policy: `load`, for the file that is meant.
    """
    found: list[tuple[Policy, SiteFault | None]] = []

    def loaded() -> Policy:
        if not found:
            try:
                found.append((read_policy(), None))
            except SiteFault as error:
                found.append((Policy(), error))
        policy, fault = found[0]
        if fault is not None:
            raise fault
        return policy

    return loaded


def read(path: pathlib.Path = PATH, *, owner_uid: int | None = 0) -> PolicyFile:
    """Like `load`, with the lines.

    Args:
        path: the file.
        owner_uid: whose word is the site's; None: a draft, which anybody may have written.

    Raises:
        SiteFault: see `load`.
        PolicyErrors: see `load`.
    """
    text, mode = _content(path, owner_uid)
    if path != PATH:
        return parse(text, path)
    mode = 0o444 if mode & stat.S_IROTH else 0o400
    return parse(text, path, read_text=functools.partial(read_compiled, place=KEPT, mode=mode))


def parse(
    text: str, file: pathlib.Path | str, *, read_text: t.Callable[[str], list[Entry]] = read_entries
) -> PolicyFile:
    """Read a configuration out of a text.

    Args:
        text: YAML.
        file: what it is called in messages.
        read_text: `read_entries`, or what keeps what YAML made of it.

    Raises:
        WrongPolicy: it is not YAML.
        PolicyErrors: something in it is wrong; all of it is named.
    """
    try:
        entries = read_text(text)
    except NotEntries as error:
        raise WrongPolicy(file, str(error), _read_lines(text)) from None
    return _checked(file, entries)


def _read_lines(text: str) -> Policy:
    """Return what lines of a text say that is not YAML, each by itself: above all which batch system the site has."""
    values: dict[str, t.Any] = {}
    tried: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name = line.partition(":")[0]
        if name not in PARAMETERS or name in tried:
            continue
        with contextlib.suppress(NotEntries):
            for entry in read_entries(line):
                _take(entry, tried, values)
        tried[name] = number
    return Policy(**values)


def _content(path: pathlib.Path, owner_uid: int | None) -> tuple[str, int]:
    """Return the text of the configuration, and the mode of its file."""
    what = f"the site's configuration {path}"
    try:
        # what is no file must not hold us up
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise SiteFault(what, "is not a regular file")
            if owner_uid is not None:
                for name in (path, path.parent, *([path.resolve().parent] if path.is_symlink() else ())):
                    _believe(what, name, facts if name is path else name.stat(), owner_uid)
            content = stream.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            raise SiteFault(what, f"is longer than {MAX_FILE >> 20} MiB: this is no configuration of vTorque")
        return content.decode(), facts.st_mode
    except FileNotFoundError:
        if path.is_symlink():
            raise SiteFault(what, f"is a link to {path.readlink()}, which is not there") from None
        raise SiteFault(what, "the file is missing", "the install role writes it") from None
    except UnicodeDecodeError as error:
        raise SiteFault(what, f"is not text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None
    except OSError as error:
        problems = {errno.EISDIR: "is not a regular file", errno.ELOOP: "is a link that leads to itself"}
        raise SiteFault(what, problems.get(error.errno or 0, error.strerror or str(error))) from error


def _believe(what: str, name: pathlib.Path, facts: os.stat_result, owner_uid: int) -> None:
    # with an ACL the group bits are its mask, so that a right granted there shows here too
    if facts.st_uid != owner_uid:
        why, hint = f"{name} belongs to uid {facts.st_uid}", f"chown {'root' if owner_uid == 0 else owner_uid} {name}"
    elif facts.st_mode & 0o022:
        who = " and ".join(w for w, bit in (("its group", 0o020), ("everybody", 0o002)) if facts.st_mode & bit)
        why, hint = f"{name} can be written by {who}", f"chmod go-w {name}"
    else:
        return
    raise SiteFault(what, f"{why}: it is not believed, as others than root could have written it", hint)


def _checked(file: pathlib.Path | str, entries: t.Sequence[Entry]) -> PolicyFile:
    values: dict[str, t.Any] = {}
    lines: dict[str, int] = {}
    faults: list[KeyFault] = []
    for entry in entries:
        fault = _take(entry, lines, values)
        faults.extend([fault] if fault else [])
        lines.setdefault(entry.name, entry.line)
    policy = Policy(**values)
    for name, message in consistency.find_contradictions(policy):
        origin = f"line {lines[name]}" if name in lines else "default"
        faults.append(KeyFault(name, format_value(encode_value(getattr(policy, name))), message, origin))
    if faults:
        raise PolicyErrors(file, faults, policy)
    return PolicyFile(policy, lines)


def _take(entry: Entry, lines: t.Mapping[str, int], values: dict[str, t.Any]) -> KeyFault | None:
    """Put the value of an entry into `values`, or say what is wrong with it."""

    def fault(message: str) -> KeyFault:
        return KeyFault(format_value(entry.name), format_value(entry.text), message, f"line {entry.line}")

    if entry.name in lines:
        return fault(f"is given twice, in line {lines[entry.name]} too")
    if entry.name in RETIRED:
        return None
    if entry.name not in PARAMETERS:
        return fault(entry.wrong if entry.name == "?" else f"no such parameter{meant(entry.name)}")
    parameter = PARAMETERS[entry.name]
    if entry.raw is None and not entry.wrong and parameter.default is None:
        return None
    message = entry.wrong or objection(parameter, entry.raw)
    if message and "quotes" not in message and not entry.wrong and _is_text(parameter, entry):
        message += "; YAML takes it for something else than a text: put it in quotes"
    message = message or _misread(entry)
    if not message:
        values[parameter.name] = parameter.kind.read(entry.raw)
    return fault(message) if message else None


def _is_text(parameter: Parameter, entry: Entry) -> bool:
    """Return whether the text of an entry is valid, and what YAML made of it is not."""
    if isinstance(entry.raw, (str, list)) or not entry.text:
        return False
    return _is_valid(parameter, entry.text) and not _is_valid(parameter, entry.raw)


def _is_valid(parameter: Parameter, value: object) -> bool:
    try:
        parameter.kind.read(value)
    except BadValue:
        return False
    return True


def _misread(entry: Entry) -> str:
    """Why a number is hardly the one that was meant, or "": YAML 1.1 makes 8 of `010`, and 90 of `1:30`."""
    if isinstance(entry.raw, bool) or not isinstance(entry.raw, (int, float)):
        return ""
    digits = entry.text.replace("_", "").lstrip("+-")
    if ":" in digits:
        return f"YAML makes {entry.raw} of digits with colons; write the number that is meant"
    if digits.isdecimal() and int(digits) != abs(entry.raw):
        return f"YAML reads a number that begins with 0 as octal, here {entry.raw}; write it without the 0"
    return ""


def objection(parameter: Parameter, raw: object) -> str:
    """Why a parameter cannot have a value, whatever the others have, or "".

    Args:
        parameter: which.
        raw: what YAML made of the value.
    """
    try:
        parameter.kind.read(raw)
    except BadValue as error:
        if isinstance(raw, list) and parameter.kind.form != "list":
            return f"a list is given, and one value is due: {error}"
        if isinstance(raw, (str, int, float)) and parameter.kind.form == "list":
            return f"one value is given, and a list is due ([{format_value(raw)}]): {error}"
        return f"allowed: {error}"
    return ""


def meant(name: str) -> str:
    """The sentence that names the parameter which was probably meant, or ""."""
    for parameter in PARAMETERS.values():
        if name.lower() == parameter.name or name.upper() in parameter.old:
            return f"; it is called {parameter.name}"
    return nearest(name, PARAMETERS)
