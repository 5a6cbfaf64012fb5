# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""As a user: write a program.

write_file PATH TEXT     says `true`
"""

from __future__ import annotations

import json
import pathlib
import sys


def main() -> None:
    """Write."""
    path, text = map(json.loads, sys.argv[1:])
    pathlib.Path(path).write_text(text, encoding="utf-8")
    pathlib.Path(path).chmod(0o755)
    print("true", flush=True)


if __name__ == "__main__":
    main()
