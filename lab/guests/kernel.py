# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The distribution's kernel for virtual machines, out of its package, without installing it."""

from __future__ import annotations

import dataclasses
import hashlib
import lzma
import pathlib
import re
import subprocess
import typing as t

from ..system.state import LabError


@dataclasses.dataclass(frozen=True)
class Package:
    """A package that apt can fetch.

    Attributes:
        name: with its version, as apt-get takes it.
        file: name of its file.
        sha256: of its file.
    """

    name: str
    file: str
    sha256: str


def run(*arguments: str, cwd: pathlib.Path | None = None, stdin: bytes = b"") -> bytes:
    """What a tool writes on its standard output; LabError with its last words when it fails."""
    try:
        done = subprocess.run(arguments, cwd=cwd, input=stdin, capture_output=True, timeout=600)
    except FileNotFoundError:
        raise LabError(f"{arguments[0]} is not installed (lab/prepare.sh)") from None
    if done.returncode:
        raise LabError(f"{' '.join(arguments[:3])} ...: {done.stderr.decode(errors='replace').strip()[-500:]}")
    return done.stdout


def newest(meta: str) -> Package:
    """The kernel that a package like linux-image-cloud means today; apt's lists are renewed if they do not know it."""
    architecture = run("/usr/bin/dpkg", "--print-architecture").decode().strip()
    try:
        return _look_up(f"{meta}-{architecture}")
    except LabError:
        run("/usr/bin/apt-get", "-qq", "update")
        return _look_up(f"{meta}-{architecture}")


def _look_up(meta: str) -> Package:
    depends = run("/usr/bin/apt-cache", "depends", meta).decode()
    names = re.findall(r"^  Depends: (linux-image-\S+)$", depends, re.MULTILINE)
    if not names:
        raise LabError(f"apt knows no kernel behind {meta}")
    return named(names[0])


def named(name: str) -> Package:
    """A package by its own name, as apt's lists have it."""
    line = run("/usr/bin/apt-get", "download", "--print-uris", name).decode()
    found = re.search(r"' (\S+\.deb) \d+ SHA256:([0-9a-f]{64})", line)
    if not found:
        raise LabError(f"apt does not say where {name} is: {line[:200]}")
    return Package(name, found[1], found[2])


def fetch(package: Package, cache: pathlib.Path) -> pathlib.Path:
    """The package's file, downloaded unless the cache has it."""
    cache.mkdir(parents=True, exist_ok=True)
    file = cache / package.file
    if not (file.exists() and _sha256(file) == package.sha256):
        # apt's own user may not write there; root downloads
        run("/usr/bin/apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package.name, cwd=cache)
        if not (file.exists() and _sha256(file) == package.sha256):
            raise LabError(f"{file} is not the file that apt's lists promise")
    return file


def _sha256(file: pathlib.Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def unpack(file: pathlib.Path, tree: pathlib.Path) -> pathlib.Path:
    """Unpack the package into `tree`; where its kernel is."""
    run("/usr/bin/dpkg-deb", "-x", str(file), str(tree))
    if not (tree / "lib").exists():
        # depmod and modprobe look below /lib alone, and Debian 13's package has its modules below /usr
        (tree / "lib").symlink_to("usr/lib")
    (kernel,) = (tree / "boot").glob("vmlinuz-*")
    return kernel


def modules(tree: pathlib.Path, names: t.Sequence[str]) -> dict[str, bytes]:
    """Content of the modules that give these features, by file name, in the order in which they are loaded."""
    (version,) = (path.name for path in (tree / "lib/modules").iterdir())
    run("/usr/sbin/depmod", "-b", str(tree), version)
    lines = run(
        "/usr/sbin/modprobe", "-d", str(tree), "-S", version, "-C", "/dev/null", "-a", "--show-depends", *names
    ).decode()
    # what is built in needs no loading; what several need is listed several times
    files = dict.fromkeys(
        pathlib.Path(line.split()[1]) for line in lines.splitlines() if line.startswith("insmod ")
    )  # fmt: skip
    return {_plain_name(file): _plain(file) for file in files}


def _plain_name(file: pathlib.Path) -> str:
    return file.name.removesuffix(".xz")


def _plain(file: pathlib.Path) -> bytes:
    return lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
