# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: guests boot nothing, count as ready at once, and do whatever they are told.

In place of its firmware a guest has a ROM that stops the processor, by a domain template of the site's: even a firmware
that finds nothing to boot takes ten times as long, emulated, as all that vTorque does on a node.  Two functions of the
installed collection are replaced, as this node alone sees it, until its lab ends: what waits for the guests
(`readiness.wait_ready`) and what gives them orders (`agent.order_all`).  All else is as it is installed.

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
    "guest.readiness": '''

def wait_ready(guests, *_more, **_other):
    """A guest has the address that the last three bytes of its MAC name."""
    return {one.name: "10." + ".".join(str(int(byte, 16)) for byte in one.mac.split(":")[3:]) for one in guests}
''',
    "guest.agent": '''

def order_all(orders, _deadline):
    """Every guest has done as it was told, and wrote nothing."""
    return {channel.name: OrderResult(0, "") for channel, _script in orders}
''',
}
"""What stands at the end of a module, where it is the last word."""
ROM = pathlib.Path("/etc/vtorque/halt.rom")
TEMPLATES = pathlib.Path("/etc/vtorque/templates")
HALT = b"\xfa\xf4\xeb\xfd"
"""cli, hlt, jmp to the hlt: where an x86 processor begins, 16 bytes below the end of its ROM."""
TYPE = "hvm</type>\n"


def replaced(text: str, name: str) -> str:
    """The text of a module with the stand-in behind it.

    Raises:
        ValueError: the module has no such function: nothing would be replaced.
    """
    arguments = WORDS[name]
    function = arguments.split("(")[0].strip()
    if f"\n{function}(" not in text:
        raise ValueError(f"{name} has no {function}")
    return text + arguments


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


def with_rom(template: str) -> str:
    """A template of a domain whose firmware is the ROM.

    Raises:
        ValueError: it is of another form.
    """
    if template.count(TYPE) != 1:
        raise ValueError("the domain's template names its machine otherwise")
    return template.replace(TYPE, f"{TYPE}    <loader readonly='yes' type='rom'>{ROM}</loader>\n")


def put_rom() -> None:
    """Have the node's guests begin, and end, with the ROM."""
    ROM.write_bytes((b"\0" * 0xFFF0 + HALT).ljust(0x10000, b"\0"))
    package = importlib.util.find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise SystemExit(f"{PACKAGE} is not installed")
    templates = pathlib.Path(package.submodule_search_locations[0]).parents[2] / "templates"
    TEMPLATES.mkdir(exist_ok=True)
    (TEMPLATES / "domain.xml.j2").write_text(
        with_rom((templates / "domain.xml.j2").read_text(encoding="utf-8")), encoding="utf-8"
    )


def main() -> None:
    """Put all of it there."""
    os.umask(0o022)
    PLACE.mkdir()
    put_rom()
    for name in WORDS:
        put(name)
    print("true", flush=True)


if __name__ == "__main__":
    main()
