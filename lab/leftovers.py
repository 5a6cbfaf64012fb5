# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is left of jobs on a node: run on that node, writes a JSON list of lines on standard output."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

DIRECTORIES = {
    "guest directory": "/var/lib/vtorque/guests",
    "slot": "/var/lib/vtorque/slots",
    "run record": "/run/vtorque/jobs",
    "shell link": "/run/vtorque/shells",
    "ssh access": "/run/vtorque/bare",
    "authorized keys": "/run/vtorque/authorized_keys",
    "batch job": "/var/spool/torque/mom_priv/jobs",
    "node file": "/var/spool/torque/aux",
}
VIRSH = "/usr/bin/virsh"


def domains() -> t.Iterator[str]:
    """Every domain that this node's libvirt knows; a libvirt that does not answer is something left, too."""
    if not pathlib.Path("/run/libvirt/libvirt-sock").exists():
        return
    words = [VIRSH, "-c", "qemu:///system", "list", "--all", "--name"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    if done.returncode:
        yield f"unknown: libvirt did not answer: {done.stderr.strip()}"
    yield from (f"domain {name}" for name in done.stdout.split())


def files() -> t.Iterator[str]:
    """What lies in the directories of jobs."""
    for kind, place in DIRECTORIES.items():
        directory = pathlib.Path(place)
        if directory.is_dir():
            yield from (f"{kind} {path}" for path in sorted(directory.iterdir()))


def processes() -> t.Iterator[str]:
    """Every qemu and every virtiofsd of this node, and every ssh of a job's shell."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        program = words[0].rpartition(b"/")[2]
        ours = program == b"ssh" and any(word.startswith(b"/run/vtorque/jobs/") for word in words)
        if ours or program.startswith(b"qemu-system") or words[0].startswith(b"vtorque-virtiofsd:"):
            yield f"process {path.parent.name} {words[0].decode(errors='replace')}"


def taps() -> t.Iterator[str]:
    """Every tap device of this node."""
    for path in sorted(pathlib.Path("/sys/class/net").glob("*/tun_flags")):
        yield f"tap {path.parent.name}"


if __name__ == "__main__":
    json.dump([*domains(), *files(), *processes(), *taps()], sys.stdout)
