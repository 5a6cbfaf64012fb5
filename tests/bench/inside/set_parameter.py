# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""As root: give a parameter of the site another value on this host.

set_parameter NAME VALUE     says `true`
"""

from __future__ import annotations

import json
import pathlib
import sys

import yaml

FILE = pathlib.Path("/etc/vtorque/vtorque.yml")


def main() -> None:
    """Write the configuration anew; its checks are the product's, when it is read."""
    name, value = map(json.loads, sys.argv[1:])
    settings = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    FILE.write_text(yaml.safe_dump({**settings, name: value}), encoding="utf-8")
    print("true", flush=True)


if __name__ == "__main__":
    main()
