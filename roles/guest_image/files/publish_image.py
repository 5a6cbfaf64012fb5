# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Publish a disk, and what boots it, as the next revision of an image in the pool.

A revision is a directory `<pool>/<name>@<n>` with its record.  It appears whole, by one rename, and never changes:
a guest's overlay that stands on it would be corrupted.  Prints one line of JSON: {"image": "<name>@<n>"}.
"""

from __future__ import annotations

import argparse
import datetime
import errno
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import typing as t

QEMU_IMG = "/usr/bin/qemu-img"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("pool", "name", "disk", "distro"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--arch", default=os.uname().machine)
    parser.add_argument("--description", default="")
    parser.add_argument("--inputs", default="", help="digest of what the image was made of")
    parser.add_argument("--boot", choices=("bios", "uefi"), default="bios", help="without --kernel")
    for name in ("kernel", "initrd", "cmdline"):
        parser.add_argument(f"--{name}", default="")
    return parser.parse_args()


def _virtual_bytes(disk: pathlib.Path) -> int:
    command = [QEMU_IMG, "info", "--output=json", "-f", "qcow2", str(disk)]
    facts = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    if "backing-filename" in facts:
        raise SystemExit(f"{disk}: leans on {facts['backing-filename']}; an image must be whole (qemu-img convert)")
    return int(facts["virtual-size"])


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _record(arguments: argparse.Namespace, disk: pathlib.Path) -> dict[str, t.Any]:
    boot = {"mode": arguments.boot}
    if arguments.kernel:
        boot = {"mode": "kernel", "kernel": "vmlinuz", "cmdline": arguments.cmdline}
        if arguments.initrd:
            boot["initrd"] = "initrd"
    return {
        "version": 1,
        "name": arguments.name,
        "distro": arguments.distro,
        "arch": arguments.arch,
        "format": "qcow2",
        "disk": disk.name,
        "disk_sha256": _digest(disk),
        "disk_bytes": disk.stat().st_size,
        "virtual_bytes": _virtual_bytes(disk),
        "boot": boot,
        "description": arguments.description,
        "inputs": arguments.inputs,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _next_revision(pool: pathlib.Path, name: str) -> int:
    numbers = (re.fullmatch(re.escape(name) + r"@([1-9][0-9]*)", path.name) for path in pool.iterdir())
    return max((int(number[1]) for number in numbers if number), default=0) + 1


def _put(content: bytes, path: pathlib.Path) -> None:
    path.write_bytes(content)
    path.chmod(0o444)


def publish(arguments: argparse.Namespace) -> str:
    """Make the revision; its name."""
    pool = pathlib.Path(arguments.pool)
    pool.mkdir(mode=0o755, parents=True, exist_ok=True)
    # on the pool's own file system, under a name that no image can have
    stage = pathlib.Path(tempfile.mkdtemp(prefix=f".{arguments.name}.", dir=pool))
    try:
        parts = {"disk.qcow2": arguments.disk, "vmlinuz": arguments.kernel, "initrd": arguments.initrd}
        for name, source in parts.items():
            if source:
                shutil.copyfile(source, stage / name)
                (stage / name).chmod(0o444)
        record = _record(arguments, stage / "disk.qcow2")
        stage.chmod(0o755)
        while True:
            revision = _next_revision(pool, arguments.name)
            text = json.dumps({**record, "revision": revision}, indent=1, ensure_ascii=False) + "\n"
            (stage / "record.json").unlink(missing_ok=True)
            _put(text.encode(), stage / "record.json")
            os.sync()
            try:
                stage.rename(pool / f"{arguments.name}@{revision}")
            except OSError as error:
                # somebody else published in the meantime: the next number is free
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                continue
            return f"{arguments.name}@{revision}"
    finally:
        shutil.rmtree(stage, ignore_errors=True)


if __name__ == "__main__":
    print(json.dumps({"image": publish(_arguments())}))
