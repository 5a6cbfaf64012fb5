# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module run as Ansible runs it, in this process."""

from __future__ import annotations

import contextlib
import json
import typing as t

import pytest
from ansible.module_utils import basic

try:
    from ansible.module_utils.testing import patch_module_args
except ImportError:  # ansible-core 2.18

    @contextlib.contextmanager
    def patch_module_args(args: dict[str, t.Any]) -> t.Iterator[None]:
        """What 2.19 offers for it."""
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": args}).encode())
            yield


def run(module: t.Any, capfd: pytest.CaptureFixture[str], **args: t.Any) -> dict[str, t.Any]:
    """Run a module, and return its result."""
    with patch_module_args(args), pytest.raises(SystemExit):
        module.main()
    result: dict[str, t.Any] = json.loads(capfd.readouterr().out)
    return result
