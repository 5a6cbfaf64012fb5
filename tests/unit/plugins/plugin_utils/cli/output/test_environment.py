# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launchers put the caller's environment aside byte for byte, and start their program in a clean one."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import environment

ROOT = str(pathlib.Path(environment.__file__).parents[7])
CALLERS = {
    b"LD_LIBRARY_PATH": b"/nowhere", b"LD_PRELOAD": b"", b"PYTHONHOME": b"/nowhere", b"PATH": b"/bin:/usr/bin",
    b"BASH_FUNC_f%%": b"() { echo\n}", b"A": b"\xff=\n", b"LC_ALL": b"C", b"EMPTY": b"", b"LONG": b"x" * 120_000,
}  # fmt: skip
PROGRAM = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import environment
found = {k.decode("latin-1"): v.decode("latin-1") for k, v in environment.caller_environment().items()}
print(json.dumps([found, sorted(os.environ), sys.argv[2:], sorted(os.listdir("/proc/self/fd"))]))
"""


def launcher(name: str, here: pathlib.Path) -> pathlib.Path:
    """A rendered launcher, whose python starts our program in place of the real one."""
    prefix = here / "a prefix"
    (prefix / "venv/bin").mkdir(parents=True)
    (here / "program").write_text(PROGRAM)
    python = prefix / "venv/bin/python"
    python.write_text(f'#!/bin/sh\nshift 3\nexec {sys.executable} -I "{here}/program" {ROOT} "$@"\n')
    path = here / name
    path.write_text(templates.render(f"launchers/{name}.sh.j2", site_dir=None, prefix=str(prefix)))
    for file in (python, path):
        file.chmod(0o755)
    return path


def test_vsub_keeps_the_environment_aside(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [str(launcher("vsub", tmp_path)), "-F", "a  *", ""], env=CALLERS, capture_output=True, check=True
    )
    stored, own, arguments, descriptors = json.loads(done.stdout)
    assert {name.encode("latin-1"): value.encode("latin-1") for name, value in stored.items()} == CALLERS
    assert set(own) <= {"PATH", "LC_ALL", "PWD", environment.DESCRIPTOR}
    assert arguments == ["-F", "a  *", ""]
    assert descriptors == ["0", "1", "2", "3"]  # 3: the listing itself
    assert done.stderr == b""


def test_without_a_launcher_the_environment_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.DESCRIPTOR, raising=False)
    assert environment.caller_environment() == dict(os.environb)


@pytest.mark.parametrize("name", ["vsub", "vmgr"])
def test_launcher_is_clean_shell(name: str) -> None:
    text = templates.render(f"launchers/{name}.sh.j2", site_dir=None, prefix="/opt/vtorque")
    done = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
