# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the whole batch system as one file that needs only `/usr/bin/python3`, and the commands as links to it."""

from __future__ import annotations

import importlib.util
import io
import os
import pathlib
import zipfile

from .shared.wire import SOCKETS

COMMANDS = ("qsub", "qstat", "qdel", "qsig", "qhold", "qrls", "qrerun", "qalter", "qmgr", "pbsnodes", "momctl")
ARCHIVE = "/usr/local/lib/lab-torque.pyz"
LOOKS = ("qstat", "pbsnodes")
"""Commands that are a file of their own, which starts sooner than the archive."""
INSTALLED = "lab/torque/shared/installed.py"
"""Of the archive: where its commands find their server."""
SHEBANG = b"#!/usr/bin/python3 -SEI\n"
ENTRY = "import sys\nfrom lab.torque.__main__ import main\nsys.exit(main(sys.argv))\n"


def build(sockets: str = SOCKETS, host: str = "", server: str = "fe", home: str = "/var/spool/torque") -> bytes:
    """The archive.

    Args:
        host: the host for which it speaks; "" for the name of the host it runs on.
    """
    here = pathlib.Path(__file__).parent
    sources = {f"lab/torque/{path.relative_to(here)}": path.read_text() for path in sorted(here.rglob("*.py"))}
    sources["lab/__init__.py"] = ""
    sources[INSTALLED] = f"SOCKETS, HOST, SERVER, HOME = {sockets!r}, {host!r}, {server!r}, {home!r}\n"
    sources["__main__.py"] = ENTRY
    buffer = io.BytesIO()
    buffer.write(SHEBANG)
    with zipfile.ZipFile(buffer, "a") as archive:
        for name, text in sources.items():
            archive.writestr(zipfile.ZipInfo(name), text)
            archive.writestr(zipfile.ZipInfo(name + "c"), _compiled(name, text))
    return buffer.getvalue()


def build_look(archive: str, sockets: str, host: str, server: str) -> bytes:
    """The program that is `qstat` and `pbsnodes`; for the arguments see `build`."""
    source = (pathlib.Path(__file__).parent / "commands/look_client.py").read_bytes()
    return SHEBANG + source + f"\n\nsys.exit(main(sys.argv, {(archive, sockets, host, server)!r}))\n".encode()


def _compiled(name: str, text: str) -> bytes:
    """A .pyc that is never checked against its source, so that commands start without compiling."""
    import marshal

    code = compile(text, name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + b"\0" * 8 + marshal.dumps(code)


def install(
    root: str,
    bin_dir: str = "/usr/bin",
    sockets: str = SOCKETS,
    host: str = "",
    server: str = "fe",
    home: str = "/var/spool/torque",
    archive: str = ARCHIVE,
) -> pathlib.Path:
    """Write archive and commands below `root`; done again it replaces them.

    Returns:
        The archive's path below root.
    """
    target = pathlib.Path(root + archive)
    target.parent.mkdir(parents=True, exist_ok=True)
    looking = archive.removesuffix(".pyz") + "-look.py"
    _put(target, build(sockets, host, server, home))
    _put(pathlib.Path(root + looking), build_look(archive, sockets, host, server))
    directory = pathlib.Path(root + bin_dir)
    directory.mkdir(parents=True, exist_ok=True)
    for command in COMMANDS:
        link = directory / command
        if os.path.lexists(link):
            link.unlink()
        link.symlink_to(looking if command in LOOKS else archive)
    return target


def _put(target: pathlib.Path, content: bytes) -> None:
    new = target.with_suffix(".new")
    new.write_bytes(content)
    new.chmod(0o755)
    new.replace(target)


def install_commands(bin_dir: str, root: str = "") -> pathlib.Path:
    """`install` with every default."""
    return install(root, bin_dir)
