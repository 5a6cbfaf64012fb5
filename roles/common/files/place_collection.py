# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpack the collection in an environment's site-packages, compiled, beside the place that it will have.

Runs on the host, with the environment's own Python; `swap.py` does the rest.  The digest lies in the tree, and appears
with it.
"""

from __future__ import annotations

import argparse
import compileall
import pathlib
import shutil
import sys
import sysconfig
import tarfile

NAME = "vtorque"
DIGEST = ".digest"


def main() -> None:
    """Unpack beside the former tree, compile, and say where it and its place are."""
    parser = argparse.ArgumentParser()
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("digest")
    arguments = parser.parse_args()
    collections = pathlib.Path(sysconfig.get_path("purelib"), "ansible_collections", "mikelangelo")
    collections.mkdir(parents=True, exist_ok=True)
    # what an interrupted run left
    for left in collections.glob(f".{NAME}.*"):
        shutil.rmtree(left)
    new = collections / f".{NAME}.new"
    with tarfile.open(arguments.archive) as archive:
        # Debian 12's Python has no filters yet, and the newest wants to be told
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        archive.extractall(new)  # noqa: S202 - packed by pack_collection.py
    if not compileall.compile_dir(new / "plugins", quiet=1, ddir=str(collections / NAME / "plugins")):
        sys.exit(f"the collection does not compile with {sys.executable}")
    (new / DIGEST).write_text(arguments.digest, encoding="ascii")
    sys.stdout.write(f"{new}\n{collections / NAME}\n")


if __name__ == "__main__":
    main()
