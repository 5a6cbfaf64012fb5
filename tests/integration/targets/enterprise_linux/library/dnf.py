#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In the place of dnf, which is not here: notes what it was asked for, in the file that DNF_ASKED names."""

from __future__ import annotations

import json
import os
import pathlib

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Note it, and say that all of it would come."""
    module = AnsibleModule(
        argument_spec={"name": {"type": "list", "elements": "str"}, "state": {"type": "str"}}, supports_check_mode=True
    )
    pathlib.Path(os.environ["DNF_ASKED"]).write_text(json.dumps(module.params), encoding="utf-8")
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
