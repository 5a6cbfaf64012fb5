# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all hosts start from: made once, then only read."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys

from ..system.places import CHECKOUT
from ..system.state import LabError

CACHE = CHECKOUT / "build/hosts"
PROGRAM = pathlib.Path(__file__).with_name("make.sh")
REQUIREMENTS = CHECKOUT / "requirements.lock"
MAKE_TIMEOUT_S = 1200

PLAIN = (
    "systemd-sysv", "dbus", "python3", "python3-apt", "openssh-server", "openssh-client", "iproute2", "procps", "kmod",
    "dnsmasq-base",
)  # fmt: skip
"""What a node of a cluster has before anything of ours: Ansible asks for Python, the site for sshd and DHCP."""
LIBVIRT = ("libvirt-daemon-system", "libvirt-clients", "qemu-system-x86", "qemu-utils")
OFFERED = (
    "python3-venv", "python3-pip", "python3-libvirt", "nftables", "acl", "bash-completion", "environment-modules",
    "man-db", "uidmap", *(() if platform.freedesktop_os_release()["VERSION_ID"] == "12" else ("virtiofsd",)),
)  # fmt: skip
SLURM = ("munge", "slurmctld", "slurmd", "slurm-client")
"""A site's own batch system, which a host may install as well."""


@dataclasses.dataclass(frozen=True)
class Base:
    """Where the parts are; what a host may install is seen in it as /srv/offered."""

    directory: pathlib.Path

    @property
    def offered(self) -> pathlib.Path:
        """Packages of the distribution and of Python."""
        return self.directory / "offered"

    def layers(self, *, libvirt: bool) -> tuple[pathlib.Path, ...]:
        """The directories of which a host's root is made, the topmost first."""
        plain = self.directory / "plain"
        return (self.directory / "libvirt", plain) if libvirt else (plain,)


def get() -> Base:
    """The base that belongs to these sources; made if it is not there, which takes a minute or two.

    Raises:
        LabError: it could not be made; says the last words.
    """
    base = Base(CACHE / f"base-{_digest()}")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not base.directory.is_dir():
            _make(base)
    return base


def _make(base: Base) -> None:
    # what an interrupted or earlier maker left; a base that hosts use now is read by them, and they lose nothing they
    # have open: `up` ends them before it asks for a new one
    for old in CACHE.glob("base-*"):
        shutil.rmtree(old)
    making = base.directory.with_suffix(".new")
    environment = {
        **os.environ,
        "PLAIN": " ".join(PLAIN),
        "LIBVIRT": " ".join(LIBVIRT),
        "OFFERED": " ".join((*OFFERED, *SLURM)),
        "PIP": str(pathlib.Path(sys.prefix) / "bin/pip"),
        "REQUIREMENTS": str(REQUIREMENTS),
    }
    done = subprocess.run(
        [PROGRAM, making], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=MAKE_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        raise LabError(f"the root of hosts could not be made:\n{(done.stdout + done.stderr)[-2000:]}")
    making.rename(base.directory)


def _digest() -> str:
    texts = [path.read_text(encoding="utf-8") for path in (PROGRAM, REQUIREMENTS)]
    arguments = [*texts, *PLAIN, "", *LIBVIRT, "", *OFFERED, *SLURM]
    return hashlib.sha256("\0".join(arguments).encode()).hexdigest()[:12]
