# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Torque's error numbers; a command's exit status is the number's lowest byte (15001, unknown job: 153)."""

from __future__ import annotations

UNKNOWN_JOB = 15001
UNDEFINED_ATTRIBUTE = 15002
READ_ONLY = 15003
INVALID = 15004
UNAUTHORIZED = 15007
UNKNOWN_SIGNAL = 15015
BAD_VALUE = 15016
RUNNING = 15017
BAD_STATE = 15018
UNKNOWN_QUEUE = 15020
BAD_USER = 15025
BAD_GROUP = 15047
UNKNOWN_RESOURCE = 15037
OVER_LIMIT = 15038
NO_MOM = 15059
UNKNOWN_NODE = 15064

TEXTS = {
    UNKNOWN_JOB: "Unknown Job Id Error",
    UNDEFINED_ATTRIBUTE: "Undefined attribute ",
    READ_ONLY: "Cannot set attribute, read only or insufficient permission ",
    INVALID: "Invalid request",
    UNAUTHORIZED: "Unauthorized Request ",
    UNKNOWN_SIGNAL: "Unknown/illegal signal name",
    BAD_VALUE: "Illegal attribute or resource value for",
    RUNNING: "Cannot modify attribute while job running ",
    BAD_STATE: "Request invalid for state of job",
    UNKNOWN_QUEUE: "Unknown queue",
    BAD_USER: "Bad UID for job execution",
    BAD_GROUP: "Bad GID for job execution",
    UNKNOWN_RESOURCE: "Unknown resource type ",
    OVER_LIMIT: "Job exceeds queue resource limits",
    NO_MOM: "Server could not connect to MOM",
    UNKNOWN_NODE: "Unknown node ",
}


class RequestError(Exception):
    """The server refuses a request.

    Args:
        code: Torque's number.
        detail: what was wrong, shown after the text.
    """

    def __init__(self, code: int, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    @property
    def text(self) -> str:
        """The message as the commands print it."""
        return TEXTS[self.code] + (f" {self.detail}" if self.detail else "")
