# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NoCloud data from what a playbook says, and how two seeds differ, without their secrets."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

from ..errors import VTorqueError

HEADER = "#cloud-config\n"
USER_DATA, META_DATA, NETWORK_CONFIG = "user-data", "meta-data", "network-config"
_TELLTALE = re.compile(r"pass|secret|token|private|credential|cookie|key|content|pwd|auth", re.IGNORECASE)
_DENSE = re.compile(r"[^\s\"',:]{24,}")
"""Words that nobody types: keys, digests, base64."""


def files_of(
    user_data: str | dict[str, t.Any], meta_data: str | dict[str, t.Any], network_config: str | dict[str, t.Any] | None
) -> dict[str, str]:
    """The files of a seed.

    Args:
        user_data: text as it is, or a mapping, which becomes cloud-config.
        meta_data: text as it is, or a mapping; one without an `instance-id` gets one that follows from everything else,
            because cloud-init sets nothing up for an id that it has seen.
        network_config: text as it is, a mapping, or None for no such file.

    Raises:
        VTorqueError: something is neither text nor a mapping.
    """
    files = {USER_DATA: _text(USER_DATA, user_data, HEADER)}
    if network_config is not None:
        files[NETWORK_CONFIG] = _text(NETWORK_CONFIG, network_config)
    if isinstance(meta_data, dict) and "instance-id" not in meta_data:
        seen = json.dumps([files, meta_data], sort_keys=True)
        meta_data = {"instance-id": f"seed-{hashlib.sha256(seen.encode()).hexdigest()[:16]}", **meta_data}
    files[META_DATA] = _text(META_DATA, meta_data)
    return files


def _text(name: str, value: object, header: str = "") -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        # JSON is YAML, needs no library where the module runs, and comes out the same each time
        return header + json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    raise VTorqueError(f"{name}", f"text or a mapping is expected, not {type(value).__name__}")


def shown(files: t.Mapping[str, str] | None, salt: str) -> str:
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
