# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whoever calls one of our programs, and with whatever environment: the same Python runs the same code.

Every launcher there is, so that a new one is not forgotten; that of the hooks, which takes the batch system's
arguments, is in test_hook_launcher.py.
"""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

NAMES = sorted(path.name.removesuffix(".sh.j2") for path in (templates.COLLECTION_DIR / "launchers").glob("*.sh.j2"))
KEPT = {"PATH", "LC_ALL", "COLUMNS", "SSH_CONNECTION", "VTORQUE_ENVIRONMENT_FD"}
"""How wide a terminal is, who is at the other end of ssh, and where the caller's environment stands as data."""
SHELLS_OWN = {"PWD", "SHLVL", "_", "OLDPWD"}
PYTHON = '#!/bin/sh\nprintf "%s\\n" "$0" "$1" "$2" "$3"\nenv\n'


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_the_callers_changes_what_runs(name: str, tmp_path: pathlib.Path) -> None:
    """Neither their libraries, nor their Python, nor their shell's start files, nor the directory they are in."""
    evil = tmp_path / "evil"
    evil.mkdir()
    for program in ("env", "python", "python3", "base64"):
        (evil / program).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (evil / program).chmod(0o755)
    (evil / "start").write_text(f"touch {tmp_path}/ran\n")
    python = tmp_path / "prefix/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    launcher = tmp_path / name
    launcher.write_text(templates.render(f"launchers/{name}.sh.j2", site_dir=None, prefix=str(tmp_path / "prefix")))
    launcher.chmod(0o755)
    callers = {
        "PATH": f"{evil}:.", "LD_LIBRARY_PATH": str(evil), "LD_PRELOAD": "", "LD_AUDIT": "", "ENV": f"{evil}/start",
        "BASH_ENV": f"{evil}/start", "PYTHONPATH": str(evil), "PYTHONHOME": str(evil), "PYTHONSTARTUP": f"{evil}/start",
        "ANSIBLE_CONFIG": str(evil), "ANSIBLE_COLLECTIONS_PATH": str(evil), "HOME": str(evil), "TMPDIR": str(evil),
        "IFS": "/", "COLUMNS": "80", "SSH_CONNECTION": "10.77.0.11 1 10.77.0.12 22",
    }  # fmt: skip
    done = subprocess.run(
        [launcher], env=callers, cwd=evil, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    program, isolated, as_module, module, *variables = done.stdout.splitlines()
    assert (program, isolated, as_module) == (str(python), "-I", "-m")
    assert module.startswith("ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.")
    assert {line.partition("=")[0] for line in variables} <= KEPT | SHELLS_OWN
    (path,) = (line.removeprefix("PATH=") for line in variables if line.startswith("PATH="))
    assert set(path.split(os.pathsep)) <= {"/usr/sbin", "/usr/bin", "/sbin", "/bin"}
    assert not (tmp_path / "ran").exists()
