# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user wants in a file that they name, or on standard output."""

from __future__ import annotations

import pathlib

from ....module_utils.errors import UserFault


def write_file(name: str, text: str) -> None:
    """Write a text.

    Args:
        name: path of the file; `-`: standard output.
        text: the whole of it.

    Raises:
        UserFault: the file cannot be written.
    """
    if name == "-":
        print(text, end="")
        return
    try:
        pathlib.Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserFault(name, error.strerror or str(error)) from error
