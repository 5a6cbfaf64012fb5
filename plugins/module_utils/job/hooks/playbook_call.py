# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a hook calls `cli/run_playbook.py`, for both of them.

It imports nothing: that program is to begin with Ansible soon.
"""

from __future__ import annotations

PLAIN = "--plain"
"""The first argument: become ansible-playbook itself, whatever would be faster."""
HOOK = "VTORQUE_HOOK"
"""In the environment the process of the hook, with which the playbook ends."""
