# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one file that is the whole batch system."""

from __future__ import annotations

import pathlib
import subprocess
import zipfile

from lab.torque import install

LOAD = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    print(importlib.import_module(name).__file__.removeprefix(sys.argv[1]))
"""


def test_archive_has_every_module_and_its_compiled_code(tmp_path: pathlib.Path) -> None:
    """A command that compiled what it loads would start too late for what is measured."""
    archive = tmp_path / "whole.pyz"
    archive.write_bytes(install.build("/sockets", "n1"))
    with zipfile.ZipFile(archive) as stream:
        names = set(stream.namelist())
    sources = {name for name in names if name.endswith(".py")}
    here = pathlib.Path(install.__file__).parent
    assert {f"lab/torque/{path.relative_to(here)}" for path in here.rglob("*.py")} <= sources
    assert names == sources | {f"{name}c" for name in sources}
    modules = sorted(name.removesuffix(".py").replace("/", ".") for name in sources if name.count("/") == 3)
    assert len(modules) > 20
    line = ["/usr/bin/python3", "-SEI", "-c", LOAD, str(archive), *modules]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert (done.stdout.splitlines(), done.stderr) == ([f"/{name.replace('.', '/')}.pyc" for name in modules], "")


def test_archive_has_the_values_of_its_host(tmp_path: pathlib.Path) -> None:
    archive = tmp_path / "whole.pyz"
    archive.write_bytes(install.build("/sockets", "n1", "front", "/home/of/it"))
    with zipfile.ZipFile(archive) as stream:
        text = stream.read(install.INSTALLED).decode()
    assert text == "SOCKETS, HOST, SERVER, HOME = '/sockets', 'n1', 'front', '/home/of/it'\n"
