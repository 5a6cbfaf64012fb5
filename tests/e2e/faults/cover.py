# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: modules of the installed collection with other text, as this node alone sees them.

    sources   names of modules and templates on standard input; says their texts
    put       texts of modules, by name, and files, by path (latin-1), which must not be there yet
    away      all of it; done again it does nothing

Everything is JSON.  What is installed stays as it is: the texts lie over it (mount --bind).
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import py_compile
import shutil
import subprocess
import sys
import typing as t

COLLECTION = "ansible_collections.mikelangelo.vtorque"
PLACE = pathlib.Path("/run/lab/covers")
LIST = PLACE / "put.json"


def files_of(name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """A module's source, and what Python has compiled of it; not every module was."""
    spec = importlib.util.find_spec(f"{COLLECTION}.plugins.{name}")
    if spec is None or spec.origin is None or spec.cached is None:
        raise SystemExit(f"{name} is not installed")
    return pathlib.Path(spec.origin), pathlib.Path(spec.cached)


def sources(wanted: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    """Texts as they are installed."""
    package = importlib.util.find_spec(f"{COLLECTION}.plugins.module_utils")
    if package is None or not package.submodule_search_locations:
        raise SystemExit(f"{COLLECTION} is not installed")
    templates = pathlib.Path(package.submodule_search_locations[0]).parents[1] / "templates"
    return {
        "modules": {name: files_of(name)[0].read_text(encoding="utf-8") for name in wanted["modules"]},
        "templates": {name: (templates / name).read_text(encoding="utf-8") for name in wanted["templates"]},
    }


def put(wanted: dict[str, dict[str, str]]) -> None:
    """Cover modules and place files; what is there already is noted before, so that all of it can go."""
    PLACE.mkdir(mode=0o755)
    covers: dict[str, str] = {}
    for name, text in wanted["modules"].items():
        origin, cached = files_of(name)
        source, compiled = PLACE / f"{name}.py", PLACE / f"{name}.pyc"
        source.write_text(text, encoding="utf-8")
        py_compile.compile(str(source), cfile=str(compiled), dfile=str(origin), doraise=True)
        covers[str(source)] = str(origin)
        if cached.exists():
            covers[str(compiled)] = str(cached)
    LIST.write_text(json.dumps({"covered": list(covers.values()), "files": list(wanted["files"])}), encoding="utf-8")
    for path, text in wanted["files"].items():
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        with pathlib.Path(path).open("x", encoding="latin-1", newline="") as stream:
            stream.write(text)
    for cover, target in covers.items():
        subprocess.run(["/usr/bin/mount", "--bind", cover, target], check=True)


def away() -> None:
    """Show the node what is installed."""
    if not LIST.exists():
        shutil.rmtree(PLACE, ignore_errors=True)
        return
    was = json.loads(LIST.read_text(encoding="utf-8"))
    # not all of them may have come to be
    mounts = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    there = {line.split()[4] for line in mounts.splitlines()}
    for target in was["covered"]:
        if target in there:
            # a program that runs may still have it open
            subprocess.run(["/usr/bin/umount", "-l", target], check=True)
    for path in was["files"]:
        pathlib.Path(path).unlink(missing_ok=True)
    shutil.rmtree(PLACE)


def main() -> None:
    """One of the three."""
    os.umask(0o022)
    report: t.Any = True
    if sys.argv[1] == "away":
        away()
    elif sys.argv[1] == "sources":
        report = sources(json.load(sys.stdin))
    else:
        put(json.load(sys.stdin))
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
