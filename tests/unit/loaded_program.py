# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that lie outside of every package, as modules."""

from __future__ import annotations

import importlib.util
import pathlib
import types


def load_program(path: pathlib.Path) -> types.ModuleType:
    """Return the module of a file, which is run anew for each call.

    Args:
        path: of a Python file.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
