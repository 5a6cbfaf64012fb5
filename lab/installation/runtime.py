# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection as a site would have it: built into a tarball and installed by ansible-galaxy, never read in place."""

from __future__ import annotations

import fcntl
import fnmatch
import hashlib
import pathlib
import subprocess
import tempfile
import typing as t

import yaml

from ..system.state import LabError

STAMP = ".vtorque-sources"


def install(checkout: pathlib.Path, runtime: pathlib.Path) -> str:
    """Build the collection and install it into the environment, unless that was done with these very sources.

    Args:
        checkout: the collection's sources.
        runtime: a venv that holds what requirements.lock names.

    Returns:
        What was done, for a person.

    Raises:
        LabError: there is no such venv, or ansible-galaxy failed; says its last words.
    """
    libraries = sorted(runtime.glob("lib/python3*/site-packages"))
    if not libraries:
        raise LabError(f"no Python environment in {runtime} (lab/prepare.sh)")
    with (runtime / "vtorque.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # parts of `make test` run side by side
        return _install(checkout, runtime, libraries[0])


def _install(checkout: pathlib.Path, runtime: pathlib.Path, libraries: pathlib.Path) -> str:
    installed = libraries / "ansible_collections/mikelangelo/vtorque"
    stamp = libraries / STAMP
    digest = _digest(checkout)
    if installed.is_dir() and stamp.exists() and stamp.read_text(encoding="ascii") == digest:
        return f"the collection in {runtime} is current"
    stamp.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as place:
        _galaxy(runtime, "build", str(checkout), "--output-path", place)
        (tarball,) = pathlib.Path(place).glob("*.tar.gz")
        # --offline and --no-deps: there are no dependencies, and nothing is to be asked of a server
        _galaxy(runtime, "install", str(tarball), "-p", str(libraries), "--force", "--offline", "--no-deps")
    # ansible-galaxy does not compile what it installs, and a node sees it read-only: each program would do it again
    _run(runtime, "-m", "compileall", "-q", str(installed))
    stamp.write_text(digest, encoding="ascii")
    return f"{tarball.name} is installed in {runtime}"


def stamp(runtime: pathlib.Path) -> str:
    """The digest of the sources that are installed in an environment.

    Raises:
        LabError: none are.
    """
    for place in runtime.glob(f"lib/python3*/site-packages/{STAMP}"):
        return place.read_text(encoding="ascii")
    raise LabError(f"the collection is not installed in {runtime} (python -m lab runtime)")


def _galaxy(runtime: pathlib.Path, *arguments: str) -> None:
    _run(runtime, "-m", "ansible", "galaxy", "collection", *arguments)


def _run(runtime: pathlib.Path, *arguments: str) -> None:
    command = [str(runtime / "bin/python"), *arguments]
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        # the site-packages of a venv are on no search path of ansible-galaxy's: its warning says nothing new
        "ANSIBLE_GALAXY_COLLECTIONS_PATH_WARNING": "false",
    }
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment, timeout=600
    )
    if done.returncode:
        raise LabError(f"python {' '.join(arguments)} failed:\n{(done.stderr or done.stdout)[-2000:]}")


def _digest(checkout: pathlib.Path) -> str:
    """One value for all that goes into the tarball: names, modes and contents."""
    ignored = yaml.safe_load((checkout / "galaxy.yml").read_text(encoding="utf-8")).get("build_ignore", [])
    total = hashlib.sha256()
    for path in _sources(checkout, checkout, tuple(ignored)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(checkout)}\0{path.stat().st_mode & 0o111:o}\0{content}\n".encode())
    return total.hexdigest()


def _sources(checkout: pathlib.Path, directory: pathlib.Path, ignored: tuple[str, ...]) -> t.Iterator[pathlib.Path]:
    for path in sorted(directory.iterdir()):
        names = (path.name, str(path.relative_to(checkout)))
        if path.name == "__pycache__" or any(fnmatch.fnmatch(name, word) for word in ignored for name in names):
            continue
        if path.is_dir():
            yield from _sources(checkout, path, ignored)
        elif path.is_file():
            yield path
