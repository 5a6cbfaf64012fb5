# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's request in the job's comment (`sbatch --comment`), where Slurm's Prolog finds it (SLURM_JOB_COMMENT).

`vtorque:` and base64url, without padding, of what zlib makes of the request's JSON; or, of a job of plain sbatch, which
templates/batch/slurm/vtorque_job_submit.lua.j2 has marked, `vtorque:=` and `key=value` with commas.  The owner of a
job can write any comment: what is here only bounds what is read, and what it says is the request's to check.
"""

from __future__ import annotations

import base64
import json
import re
import zlib

from ....errors import UserFault
from ...request.request import MAX_PART, PREFIX, VERSION

MAX_COMMENT = 1024
"""Characters that Slurm takes (22.05 to 26.05: MAX_COMMENT_BYTES in job_mgr.c), the prefix included."""
MAX_REQUEST = (MAX_PART - len(PREFIX)) // 4 * 3
"""Bytes of JSON that a request may have (`Request.encode`); a comment could hold 780 KB of one letter."""


PLAIN_KEY = re.compile("[a-z_]{1,32}")
PLAIN_VALUE = re.compile("[A-Za-z0-9._@+-]{1,256}")


def wants_guests(comment: str) -> bool:
    """Return whether the job's comment says that it wants a virtual machine."""
    return comment.startswith(PREFIX)


def pack(request: bytes) -> str:
    """A request as a comment.

    Args:
        request: its JSON.

    Returns:
        At most 1,024 characters of ASCII without blanks, quotes, commas or `=`.

    Raises:
        UserFault: it does not fit.
    """
    packed = zlib.compress(request, 9)
    comment = PREFIX + base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")
    if len(comment) > MAX_COMMENT:
        why = f"{len(comment)} characters, compressed, of at most {MAX_COMMENT} that Slurm takes as a comment"
    elif len(request) > MAX_REQUEST:
        why = f"{len(request)} bytes of at most {MAX_REQUEST}"
    else:
        return comment
    raise UserFault("the request is too long to travel in the job", why, "use shorter paths")


def unpack(comment: str) -> bytes | None:
    """The request in a comment.

    Args:
        comment: of the job, not trusted.

    Returns:
        What `pack` was given; None: the comment is not ours.

    Raises:
        UserFault: it is ours by its prefix, and too long, garbage, cut off, or holds more than `MAX_REQUEST`.
    """
    if not wants_guests(comment):
        return None
    if len(comment) > MAX_COMMENT:
        raise _unreadable(f"it has {len(comment)} characters, at most {MAX_COMMENT} are read")
    code = comment[len(PREFIX) :]
    if code.startswith("="):
        return _of_plain(code[1:])
    if not re.fullmatch(r"[A-Za-z0-9_-]+", code):
        raise _unreadable("garbage: characters that base64url does not have")
    unpacking = zlib.decompressobj()
    try:
        packed = base64.b64decode(code + "=" * (-len(code) % 4), altchars=b"-_", validate=True)
        request = unpacking.decompress(packed, MAX_REQUEST + 1)
    except (ValueError, zlib.error):
        raise _unreadable("garbage: not what vsub writes") from None
    if len(request) > MAX_REQUEST:
        raise _unreadable(f"it holds more than {MAX_REQUEST} bytes")
    if not unpacking.eof:
        raise _unreadable("it is cut off")
    if unpacking.unused_data:
        raise _unreadable("garbage: something stands behind it")
    return request


def _of_plain(text: str) -> bytes:
    """The request in its plain form, as JSON; whether keys and values are right is for its reader to say."""
    values: dict[str, str] = {}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if not equals or not PLAIN_KEY.fullmatch(key) or not PLAIN_VALUE.fullmatch(value):
            raise _unreadable("garbage: not what the controller's module writes")
        if values.setdefault(key, value) != value:
            raise _unreadable(f"it says {key} twice")
    return json.dumps({"v": VERSION, "k": values, "s": ""}, separators=(",", ":")).encode()


def _unreadable(why: str) -> UserFault:
    return UserFault("the job's VM request cannot be read", why, "submit the job with vsub")
