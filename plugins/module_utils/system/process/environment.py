# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environments in which programs are started: nothing of a job's, a user's or a daemon's is in them.

All speak C.UTF-8: messages that are read by programs are not translated, and names need not be ASCII.  This module
imports nothing, because the hooks' program (`cli/hook.py`) reads it before anything else is loaded.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

TOOL_ENVIRONMENT: Mapping[str, str] = {"PATH": _ROOT_PATH, "LC_ALL": "C.UTF-8"}
"""Programs of the system or the site that root calls.  Without HOME, so that they read no settings of root's own."""

ROOT_ENVIRONMENT: Mapping[str, str] = {**TOOL_ENVIRONMENT, "HOME": "/root"}
"""The product's own programs, and Ansible, which looks for a home."""

USER_TOOL_ENVIRONMENT: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
"""Programs of the system that run as a job's user: they have no business with those of administrators."""

LOGIN_ENVIRONMENT: Mapping[str, str] = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
"""Commands that a user would call after a login: a site puts its own into /usr/local, and the user's files may set
LC_ALL as they wish."""
