# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether cloud-init knows what a text of user data is: by its beginning, or by the headers of a MIME message.

cloud-init takes what it does not know for nothing, and says so in its log alone (`walker_callback` in
cloudinit/handlers/__init__.py, 18.5 to 26.2).
"""

from __future__ import annotations

import email
import re

from ...errors import VTorqueError

HEADERS = (
    "#cloud-config",
    "#cloud-config-archive",
    "#cloud-config-jsonp",
    "#cloud-boothook",
    "#include",
    "#include-once",
    "#part-handler",
    "#!",
    "## template: jinja",
)
"""How user data begins, in any case (INCLUSION_TYPES_MAP in cloudinit/handlers/__init__.py, 18.5 to 26.2)."""
TEMPLATE = "## template: jinja"
MIME_WITHIN = 4096
"""Bytes within which `MIME-Version:` makes it a message (`convert_string` in cloudinit/user_data.py)."""
UNTYPED = ("text/plain", "text/x-not-multipart")
"""Types of parts that are known by their beginning (TYPE_NEEDED there)."""
_HINT = "the first line is a header, as `#cloud-config` or `#!/bin/sh`"


def check_header(text: str) -> None:
    """Refuse user data that cloud-init would ignore.

    Blank lines before a header are refused too: cloud-init passes over them to find `#cloud-config`, but a script does
    not start, a template is not rendered, and a message has no headers then.

    Args:
        text: not empty.

    Raises:
        VTorqueError: cloud-init would not know what it is; says why.
    """
    if b"mime-version:" in text.encode("utf-8", "replace")[:MIME_WITHIN].lower() and _is_message(text):
        return
    if why := _objection(text):
        raise VTorqueError("user-data", f"{why}: cloud-init would ignore all of it", _HINT)


def _objection(text: str) -> str:
    first, _newline, rest = text.partition("\n")
    first = first.rstrip()
    known = next((header for header in HEADERS if first.lower().startswith(header)), "")
    if known == TEMPLATE:
        return _template_objection(first, rest)
    if known:
        return ""
    if not first:
        return "the first line is empty"
    if re.match(r"#?\s*cloud-(config|boothook)|#?\s*part-handler|!", first, re.IGNORECASE):
        return f"the first line, {first[:40]!a}, is no header, as `#` must stand right before the word"
    if first[0] in " \t":
        return "the first line begins with a blank"
    if first == "---":
        return "the first line is ---"
    # the line may hold a secret
    return f"the first line is {'a comment' if first.startswith('#') else 'no header that cloud-init knows'}"


def _template_objection(first: str, rest: str) -> str:
    """A template's second line is the header of what it makes, unless that is made by the template too."""
    if first.lower() != TEMPLATE:
        return f"the first line, {first[:60]!a}, names a template that is not {TEMPLATE}"
    if rest.lstrip().startswith("{"):
        return ""
    second = rest.lstrip().lower()
    if second.startswith(TEMPLATE) or not second.startswith(HEADERS):
        return f"below {TEMPLATE} no header follows that cloud-init knows"
    return ""


def _is_message(text: str) -> bool:
    """Return whether it is a MIME message, with every part of a type or with a header.

    Raises:
        VTorqueError: cloud-init would ignore a part.
    """
    message = email.message_from_string(text)
    if not message.is_multipart() and message.get_content_type() in UNTYPED:
        return False
    for number, part in enumerate(part for part in message.walk() if part.get_content_maintype() != "multipart"):
        if part.get_content_type() not in UNTYPED:
            continue
        content = part.get_payload(decode=True)
        body = content.decode("utf-8", "replace") if isinstance(content, bytes) else ""
        if why := _objection(body):
            raise VTorqueError(f"user-data, part {number + 1}", f"{why}: cloud-init would ignore the part", _HINT)
    return True
