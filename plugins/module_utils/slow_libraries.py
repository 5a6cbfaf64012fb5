# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Libraries that several packages use and that take milliseconds to load: loaded by whoever uses one first."""

from __future__ import annotations

import typing as t


def load_inotify() -> t.Any:
    """Return `inotify_simple`, which loads ctypes."""
    import inotify_simple  # 2.5 ms that only those pay who wait for a change of a file

    return inotify_simple


def load_jinja() -> t.Any:
    """Return `jinja2`."""
    import jinja2  # 16 ms that a hook pays only when it renders

    return jinja2


def load_yaml() -> t.Any:
    """Return `yaml`."""
    import yaml  # 10 ms that only those pay who read what is not compiled

    return yaml
