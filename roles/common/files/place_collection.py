# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the collection into an environment's site-packages: whole and compiled, or not at all.

Runs on the host, with the environment's own Python.  The digest lies in the tree, and appears with it.
"""

from __future__ import annotations

import argparse
import compileall
import os
import pathlib
import shutil
import sys
import sysconfig
import tarfile

NAME = "vtorque"
DIGEST = ".digest"


def main() -> None:
    """Unpack beside the former tree, compile, and swap."""
    parser = argparse.ArgumentParser()
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("digest")
    parser.add_argument("--jobs", type=pathlib.Path, help="the MOM's job files: while one is there, nothing is swapped")
    arguments = parser.parse_args()
    collections = pathlib.Path(sysconfig.get_path("purelib"), "ansible_collections", "mikelangelo")
    collections.mkdir(parents=True, exist_ok=True)
    # what an interrupted run left
    for left in collections.glob(f".{NAME}.*"):
        shutil.rmtree(left)
    new, former = collections / f".{NAME}.new", collections / f".{NAME}.former"
    with tarfile.open(arguments.archive) as archive:
        # Debian 12's Python has no filters yet, and the newest wants to be told
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        archive.extractall(new)  # noqa: S202 - packed by pack_collection.py
    if not compileall.compile_dir(new / "plugins", quiet=1, ddir=str(collections / NAME / "plugins")):
        sys.exit(f"the collection does not compile with {sys.executable}")
    (new / DIGEST).write_text(arguments.digest, encoding="ascii")
    if arguments.jobs is not None:
        running = sorted(path.name for path in arguments.jobs.glob("*.[JST][BCK]"))
        if running:
            shutil.rmtree(new)
            sys.exit(f"a job came to this node meanwhile ({running[0]}): nothing was swapped, play it again later")
    os.sync()
    if (collections / NAME).is_symlink():
        (collections / NAME).unlink()
    elif (collections / NAME).exists():
        (collections / NAME).rename(former)
    new.rename(collections / NAME)
    shutil.rmtree(former, ignore_errors=True)


if __name__ == "__main__":
    main()
