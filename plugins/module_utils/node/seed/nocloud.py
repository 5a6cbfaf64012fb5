# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NoCloud data from what a playbook says, and how two seeds differ, without their secrets."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ...errors import VTorqueError
from ...rendering.templates import json_as_yaml
from ...unquoted import QUOTE_MAC, number_for_mac
from .user_data import check_header

HEADER = "#cloud-config\n"
USER_DATA, META_DATA, NETWORK_CONFIG = "user-data", "meta-data", "network-config"
_TELLTALE = re.compile(r"pass|secret|token|private|credential|cookie|key|content|pwd|auth", re.IGNORECASE)
_DENSE = re.compile(r"[^\s\"',:]{24,}")
"""Words that nobody types: keys, digests, base64."""
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that YAML forbids or takes for the end of a line; by its number it may stand in quotes (YAML 1.1, 5.1)."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML forbids in its text: PyYAML, with which cloud-init reads, refuses the whole of it."""
_HALF = re.compile("[\ud800-\udfff]")
_YAML_HEADERS = ("#cloud-config", "#cloud-config-archive")
_NOTHING = re.compile(r"\s*(---|\.\.\.|\{\s*\}|null|Null|NULL|~)?\s*(#.*)?")
"""A line of YAML that holds nothing."""
MAX_DEPTH = 100
"""PyYAML's reader goes down with a text, and ends where that is deeper than Python's stack."""
_MACS = ("macaddress", "mac_address", "hwaddress")
_TEXTS = {
    META_DATA: ("instance-id", "local-hostname", "hostname"),
    NETWORK_CONFIG: (
        "address",
        "addresses",
        "gateway",
        "gateway4",
        "gateway6",
        "to",
        "via",
        "name",
        "set-name",
        "search",
        "dns_nameservers",
        "dns_search",
    ),
    USER_DATA: (
        "hostname",
        "fqdn",
        "name",
        "password",
        "passwd",
        "hashed_passwd",
        "plain_text_passwd",
        "path",
        "content",
    ),
}
"""Keys whose values are texts to cloud-init: a number or a flag there is what YAML made of a text without quotes."""
_COMMANDS = ("bootcmd", "runcmd")
_MODES = ("permissions",)
_MAC_IN_TEXT = re.compile(
    r"(?:macaddress|mac_address|hwaddress)[\"']?\s*:\s+([0-9][0-9:_]*)\s*(?=[,}#]|$)", re.MULTILINE
)


def files_of(
    user_data: str | dict[str, t.Any] | None,
    meta_data: str | dict[str, t.Any] | None,
    network_config: str | dict[str, t.Any] | None,
) -> dict[str, str]:
    """The files of a seed.

    What is empty says nothing.  NoCloud takes no seed without user-data and meta-data (DataSourceNoCloud.py, `required`
    in 18.5 to 26.2), so these are there then, without anything in them but an `instance-id`; an empty network-config
    is left out, because what is there and empty counts as one.

    Args:
        user_data: text as it is, or a mapping, which becomes cloud-config.
        meta_data: text as it is, or a mapping; one without an `instance-id` gets one that follows from everything else,
            because cloud-init sets nothing up for an id that it has seen.
        network_config: text as it is, or a mapping.

    Raises:
        VTorqueError: something is neither text nor a mapping, or cloud-init would not read it, or not as it is meant.
    """
    files = {USER_DATA: _text(USER_DATA, {} if is_empty(USER_DATA, user_data) else user_data, HEADER)}
    if not is_empty(NETWORK_CONFIG, network_config):
        files[NETWORK_CONFIG] = _text(NETWORK_CONFIG, network_config)
    if is_empty(META_DATA, meta_data):
        meta_data = {}
    if isinstance(meta_data, dict) and meta_data.get("instance-id") in (None, ""):
        _check(META_DATA, meta_data)
        given = {key: value for key, value in meta_data.items() if key != "instance-id"}
        seen = json.dumps([files, given], sort_keys=True)
        meta_data = {"instance-id": f"seed-{hashlib.sha256(seen.encode()).hexdigest()[:16]}", **given}
    files[META_DATA] = _text(META_DATA, meta_data)
    return files


def is_empty(name: str, value: object) -> bool:
    """Return whether a value says nothing.

    Args:
        name: of the file.
        value: text, a mapping or None.
    """
    if isinstance(value, str):
        # in user data a comment may be a header
        return not value.strip() if name == USER_DATA else all(map(_NOTHING.fullmatch, value.splitlines()))
    return value is None or value == {}


def _text(name: str, value: object, header: str = "") -> str:
    if isinstance(value, str):
        _check_text(name, value)
        return value
    if isinstance(value, dict):
        _check(name, value)
        # JSON is YAML, needs no library where the module runs, and comes out the same each time
        text = json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
        return f"{header}{json_as_yaml(text, _ESCAPED)}\n"
    raise VTorqueError(f"{name}", f"text or a mapping is expected, not {type(value).__name__}")


def _check_text(name: str, text: str) -> None:
    """Refuse a text of which cloud-init would not read anything."""
    if name == USER_DATA:
        check_header(text)
    first = text.partition("\n")[0].rstrip().lower()
    in_yaml = name != USER_DATA or first in _YAML_HEADERS
    if bad := (_FORBIDDEN if in_yaml else _HALF).search(text):
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        _refuse_character(f"{name}, line {line}, column {column}", bad[0])
    for mac in _MAC_IN_TEXT.finditer(text) if name == NETWORK_CONFIG else ():
        line = text.count("\n", 0, mac.start()) + 1
        if re.fullmatch("[1-9][0-9_]*(:[0-5]?[0-9])+|[0-9_]+", mac[1]):
            raise VTorqueError(f"{name}, line {line}", f"{mac[1]} is a number to YAML, no MAC address", QUOTE_MAC)


def _refuse_character(where: str, character: str) -> t.NoReturn:
    what = "is half of a character" if _HALF.match(character) else "may not stand in YAML"
    raise VTorqueError(
        where, f"U+{ord(character):04X} {what}: cloud-init would read nothing of it", "remove it, or write it as base64"
    )


def _check(name: str, value: object, where: str = "", key: str = "", depth: int = 0) -> None:
    """Refuse what does not come back as it is when cloud-init reads it.

    Args:
        name: of the file.
        value: of it, or of a part.
        where: the part.
        key: the one in whose value it is.
        depth: of lists and mappings around it.
    """
    place = f"{name}, {where}" if where else name
    if depth > MAX_DEPTH:
        raise VTorqueError(place[:200], f"more than {MAX_DEPTH} lists and mappings in one another")
    if isinstance(value, dict):
        for inner, entry in value.items():
            if not isinstance(inner, str):
                raise VTorqueError(place, f"the key {inner!r} is no text to YAML", "write it in quotes")
            shown_key = inner[:40].encode("ascii", "backslashreplace").decode("ascii")
            _check_characters(f"{place}, the key {shown_key!r}", inner)
            _check(name, entry, f"{where}.{shown_key}" if where else shown_key, inner, depth + 1)
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            _check(name, entry, f"{where}[{number}]", key, depth + 1)
    elif isinstance(value, str):
        _check_characters(place, value)
        if key in _MACS and (why := number_for_mac(value)):
            raise VTorqueError(place, f"{value} {why}", QUOTE_MAC)
    elif value is not None:
        _check_number(name, value, place, key)


def _check_characters(place: str, text: str) -> None:
    if half := _HALF.search(text):
        _refuse_character(f"{place}, character {half.start() + 1}", half[0])


def _check_number(name: str, value: object, place: str, key: str) -> None:
    """Refuse a number or a flag where cloud-init takes a text: `1:30` is 90 to YAML 1.1, `0644` 420, `no` false."""
    if not isinstance(value, (bool, int, float)):
        raise VTorqueError(place, f"{type(value).__name__} is no type of YAML that cloud-init reads", "write a text")
    if key in _MACS:
        why = number_for_mac(value) or "is a number"
        raise VTorqueError(place, f"{value} {why}", QUOTE_MAC)
    if key in _TEXTS[name]:
        raise VTorqueError(place, f"a text is due, not {_kind(value)}, which YAML makes of some", "write it in quotes")
    if name == USER_DATA and key in _COMMANDS and not _is_integer(value):
        why = f"a word of a command is due, not {_kind(value)}, which YAML makes of some"
        raise VTorqueError(place, why, "write it in quotes")
    if name == USER_DATA and key in _MODES and (why := wrong_mode(value)):
        raise VTorqueError(place, why, "write it in quotes, with a leading zero: '0644'")


def _is_integer(value: object) -> bool:
    """Return whether it is an integer; Python counts true and false as such."""
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: object) -> str:
    """What a value is, for people; the value itself may be a secret."""
    return "true or false" if isinstance(value, bool) else "a number"


def wrong_mode(value: object) -> str:
    """Why a number is no mode of a file, for people, or "".

    YAML 1.1 reads `0644` as 420, which is that mode, and `644` as the number, which is mode 1204.

    Args:
        value: what stands where a mode is due; a text is left to who reads it.
    """
    if isinstance(value, str) or value is None:
        return ""
    if _is_integer(value) and 0 <= t.cast("int", value) <= 0o777 and value not in (400, 440, 444):
        return ""
    return f"{value} is a number to YAML{f', and mode {value:04o}' if _is_integer(value) else ', and no mode'}"


def masked_seed(files: t.Mapping[str, str] | None, salt: str) -> str:
    """A seed as a diff shows it; "" for none.

    Args:
        salt: the same for both sides of one diff and new for each, so that nobody can try passwords on the digests.
    """
    return "".join(f"--- {name}\n{masked(text, salt)}" for name, text in sorted((files or {}).items()))


def masked(text: str, salt: str) -> str:
    """The text without what may be a secret; a digest stands where it was, so that a change is still seen.

    Rather too much is hidden than too little: what stands behind a telling word, whatever is further in below
    such a line, PEM blocks, and every dense word.
    """
    hidden_below: int | None = None
    in_pem = expected = False
    lines: list[str] = []
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip(" -"))
        below = hidden_below is not None and (depth > hidden_below or expected)
        found = _TELLTALE.search(line)
        in_pem = in_pem or "-----BEGIN" in line
        if not line.strip():
            lines.append("")  # a block may hold empty lines
            continue
        if in_pem or below:
            lines.append(" " * depth + _digest(line, salt))
        elif found:
            colon = line.find(":", found.start())
            shown_part = line[: colon + 1] if colon >= 0 else ""
            lines.append(f"{shown_part} {_digest(line[len(shown_part) :], salt)}".rstrip())
            hidden_below = depth
        else:
            lines.append(_DENSE.sub(lambda match: _digest(match[0], salt), line))
            hidden_below = None
        expected = bool(found) and line.rstrip().endswith((":", "\\"))  # the value stands in the next line
        in_pem = in_pem and "-----END" not in line
    return "".join(f"{line}\n" for line in lines)


def _digest(text: str, salt: str) -> str:
    text = text.strip()
    return f"<hidden {hashlib.sha256(f'{salt}{text}'.encode()).hexdigest()[:8]}>" if text else ""
