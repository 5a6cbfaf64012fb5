# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: guests that boot nothing count as ready at once, and do whatever they are told.

Two functions of the installed collection are replaced, as this node alone sees it, until its lab ends: what waits for
the guests (`readiness.wait_ready`) and what gives them orders (`agent.order_all`).  All else is as it is installed.

Says `true` when it is done.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import py_compile
import subprocess

PACKAGE = "ansible_collections.mikelangelo.vtorque.plugins.module_utils.node"
PLACE = pathlib.Path("/run/lab/stand-in")
WORDS = {
    "readiness": '''

def wait_ready(guests, *_more, **_other):
    """A guest has the address that the last three bytes of its MAC name."""
    return {one.name: "10." + ".".join(str(int(byte, 16)) for byte in one.mac.split(":")[3:]) for one in guests}
''',
    "agent": '''

def order_all(orders, _deadline):
    """Every guest has done as it was told, and wrote nothing."""
    return {channel.name: Done(0, "") for channel, _script in orders}
''',
}
"""What stands at the end of a module, where it is the last word."""


def replaced(text: str, name: str) -> str:
    """The text of a module with the stand-in behind it.

    Raises:
        ValueError: the module has no such function: nothing would be replaced.
    """
    words = WORDS[name]
    function = words.split("(")[0].strip()
    if f"\n{function}(" not in text:
        raise ValueError(f"{name} has no {function}")
    return text + words


def put(name: str) -> None:
    """Cover a module of the installed collection, and what Python has compiled of it."""
    spec = importlib.util.find_spec(f"{PACKAGE}.{name}")
    if spec is None or spec.origin is None or spec.cached is None:
        raise SystemExit(f"{name} is not installed")
    covered = {PLACE / f"{name}.py": spec.origin, PLACE / f"{name}.pyc": spec.cached}
    source, compiled = covered
    source.write_text(replaced(pathlib.Path(spec.origin).read_text(encoding="utf-8"), name), encoding="utf-8")
    py_compile.compile(str(source), cfile=str(compiled), dfile=spec.origin, doraise=True)
    for cover, target in covered.items():
        subprocess.run(["/usr/bin/mount", "--bind", str(cover), target], check=True)


def main() -> None:
    """Put both there."""
    os.umask(0o022)
    PLACE.mkdir()
    for name in WORDS:
        put(name)
    print("true", flush=True)


if __name__ == "__main__":
    main()
