# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pack this collection as it is installed or checked out: what a host of the site needs of it, and nothing else.

Runs on the controller.  Writes one line of JSON: `digest`, which is the same for the same files, and `archive`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import pathlib
import tarfile
import time
import typing as t

PARTS = ("LICENSE", "README.md", "MANIFEST.json", "FILES.json", "galaxy.yml", "requirements.txt", "requirements.lock",
         "requirements-libvirt.txt", "requirements-libvirt.lock", "meta", "plugins", "playbooks", "roles",
         "templates", "docs")  # fmt: skip
"""What of a checkout or an installed collection is packed; the rest is for who builds and tests it."""
WRITTEN = 1_577_836_800
"""The time that every file bears: the same files are the same archive."""


KEPT_S = 86_400
"""For how long an archive may still be wanted by a play that runs."""


def files_of(root: pathlib.Path) -> t.Iterator[pathlib.Path]:
    """The files of the collection, always in the same order."""
    for part in PARTS:
        place = root / part
        if place.is_dir():
            for directory, names, files in os.walk(place):
                names[:] = sorted(name for name in names if name != "__pycache__")
                yield from (pathlib.Path(directory, name) for name in sorted(files) if not name.endswith(".pyc"))
        elif place.is_file():
            yield place


def pack(root: pathlib.Path) -> tuple[str, bytes]:
    """The digest of the collection's files, and a tar archive of them."""
    total = hashlib.sha256()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        for path in files_of(root):
            content = path.read_bytes()
            entry = tarfile.TarInfo(str(path.relative_to(root)))
            entry.size, entry.mtime = len(content), WRITTEN
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            total.update(f"{entry.name}\0{entry.mode:o}\0{hashlib.sha256(content).hexdigest()}\n".encode())
            archive.addfile(entry, io.BytesIO(content))
    return total.hexdigest(), packed.getvalue()


def main() -> None:
    """Pack, and say where the archive is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path, help="the collection's directory")
    arguments = parser.parse_args()
    digest, packed = pack(arguments.root.resolve())
    # Ansible's own temporary directory is another one for each host, and is not taken away after a look-up
    place = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "vtorque")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    archive = place / f"vtorque-{digest}.tar.gz"
    if not archive.exists():
        # hosts are served side by side, each by a process of its own, which takes away the same ones
        for former in place.glob("vtorque-*"):
            with contextlib.suppress(FileNotFoundError):
                if former.stat().st_mtime < time.time() - KEPT_S:
                    former.unlink()
        new = archive.with_suffix(f".{os.getpid()}")
        new.write_bytes(packed)
        new.replace(archive)
    print(json.dumps({"digest": digest, "archive": str(archive)}))


if __name__ == "__main__":
    main()
