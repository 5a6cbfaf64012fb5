# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before the save: a booted image becomes the template of guests."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import subprocess
import typing as t

from .guest import Guest
from .system import StepError

LISTENERS = ("ssh.socket", "sshd.socket")
SSHD = ("ssh.service", "sshd.service")
NETWORKS = ("systemd-networkd.socket", "systemd-networkd.service")
"""They would take an address away that is not of their own making."""
WAITERS = ("systemd-networkd-wait-online.service", "NetworkManager-wait-online.service")
CLOCKS = ("systemd-timesyncd.service", "chronyd.service", "chrony.service")
GO, READY_PID = "run/vtorque-go", "run/vtorque-ready.pid"
"""Where `ready` waits for its guest to be one, and which process it is."""
WAITING = f"read -r go </{GO} && . /usr/lib/vtorque/ready"
CHECKED = b"[Service]\nExecStartPre=\n"
"""sshd reads its settings when it starts; to have it read them once more before that takes as long again."""
REHEARSED = """
sshd -t
bash -lc true
sh -c true
su -s /bin/sh -c true nobody
awk "BEGIN {}"
sed -n "" /dev/null
find /run -maxdepth 0
ip route
ping -c 1 -W 1 127.0.0.1
mount --version
mount.nfs -V
stat /
id -G
sort /dev/null
timeout 1 true
setsid true
env true
mktemp -u
dd of=/dev/null count=0
base64 /dev/null
tail -c 1 /dev/null
tr a b
getent passwd root
udevadm --version
sudo -n -l -U nobody
systemctl --version
modprobe -q virtiofs
modprobe -q nfsv4
"""
"""What a start runs: done once, so that its files are in the page cache.

None of them leaves anything but the modules that homes need: those of NFS 4 take 2 billion instructions (counted by an
emulator), and virtiofs 70 million.
"""
SPARE_BYTES, SPARE_SHARE = 16 << 20, 8
"""Free memory that is left alone, at least so much and so large a part: no file is to leave the page cache for it."""
MOST_ZEROED_BYTES = 1 << 30
"""A boot has used no more, and what it never used its node has not given it yet."""


class Template:
    """A booted image that becomes the template of guests.

    Args:
        guest: this guest.
    """

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def settle(self) -> None:
        """Take away what no two guests may share, stop what would go on by itself, and rehearse a start.

        Raises:
            StepError: guests of this image cannot start warm.
        """
        guest = self._guest
        # the other end of the boot: units that are still to be started; a unit that failed is the image's affair
        guest.run("systemctl", "is-system-running", "--wait", timeout_s=300.0)
        keys = [path.name for path in self._places("etc/ssh") if re.fullmatch("ssh_host_.*_key", path.name)]
        if keys:
            raise StepError(f"host keys are in the image, or were made: {', '.join(sorted(keys))}")
        self._release_network()
        self._forget_identity()
        self._stop_timers()
        self._listen()
        self._rehearse()
        self._await_start()
        os.sync()
        self._zero_free_memory()

    def _places(self, name: str) -> t.List[pathlib.Path]:
        place = self._guest.path(name)
        return sorted(place.iterdir()) if place.is_dir() else []

    def _release_network(self) -> None:
        """From the restore on, the network is ours: what manages it must not take our address away."""
        guest = self._guest
        if guest.run("systemctl", "--quiet", "is-active", "NetworkManager.service").returncode == 0:
            guest.run("nmcli", "device", "set", guest.card(), "managed", "no")
        guest.run("systemctl", "--quiet", "mask", "--runtime", "--now", *WAITERS)
        guest.run("systemctl", "--quiet", "stop", *NETWORKS)
        # `ready` waits for it; then it is there
        guest.run("systemctl", "start", "network-online.target", timeout_s=60.0)
        guest.run("ip", "address", "flush", "dev", guest.card())
        guest.take_down()

    def _forget_identity(self) -> None:
        """What a cold boot has made for itself, and each guest must have of its own."""
        guest = self._guest
        guest.rewrite("etc/machine-id", b"")
        for name in ("var/lib/systemd/random-seed", "var/lib/dbus/machine-id", "etc/hostname"):
            if not guest.path(name).is_symlink():
                with contextlib.suppress(FileNotFoundError):
                    guest.path(name).unlink()
        for place in ("var/lib/dhcp", "var/lib/NetworkManager"):
            for path in self._places(place):
                if path.suffix in (".leases", ".lease"):
                    path.unlink()

    def _stop_timers(self) -> None:
        guest = self._guest
        # of the target, too: started again, it starts what it wants
        guest.run("systemctl", "stop", "timers.target", "*.timer", "cron.service", "crond.service", *CLOCKS)
        left = guest.run("systemctl", "list-units", "--type=timer", "--state=active", "--no-legend", "--plain").stdout
        if left.strip():
            raise StepError(
                f"timers are still armed: {' '.join(line.split()[0] for line in left.decode().splitlines() if line)}"
            )

    def _listen(self) -> None:
        """Port 22 is open before the save; sshd itself starts when the guest has its host key."""
        guest = self._guest
        if any(guest.run("systemctl", "--quiet", "is-active", unit).returncode == 0 for unit in SSHD):
            raise StepError("sshd runs: its units lack the condition of install_warm.sh")
        # an image without such a unit starts sshd later, as a cold boot does
        for unit in LISTENERS:
            if guest.run("systemctl", "start", unit).returncode == 0:
                break

    def _await_start(self) -> None:
        """What a start begins is there, and waits: neither systemd nor a new program has a part in it then.

        Raises:
            StepError: systemd does not start it.
        """
        guest = self._guest
        for unit in SSHD:
            guest.write(f"run/systemd/system/{unit}.d/vtorque-warm.conf", CHECKED, 0o644)
        guest.run("systemctl", "daemon-reload")
        os.mkfifo(guest.path(GO), 0o600)
        done = guest.run(
            "systemd-run", "--unit=vtorque-ready", "--description=vTorque guest contextualisation",
            "--setenv=VTORQUE_ONLINE=yes", "/bin/sh", "-c", WAITING,
        )  # fmt: skip
        if done.returncode != 0:
            raise StepError(f"systemd-run: {' '.join(done.stdout.decode(errors='replace').split())}")
        # systemd would take `$$` in the line above for a dollar sign
        pid = guest.run("systemctl", "show", "--property=MainPID", "--value", "vtorque-ready.service").stdout
        guest.write(READY_PID, pid, 0o644)

    def _zero_free_memory(self) -> None:
        """Free pages hold what was there before: as zeros they take no room in the saved memory, and no time in it."""
        with contextlib.suppress(OSError):
            found = re.search(r"^MemFree: +([0-9]+) kB$", self._guest.path("proc/meminfo").read_text(), re.MULTILINE)
            free = int(found.group(1)) << 10 if found else 0
            size = min(free - max(SPARE_BYTES, free // SPARE_SHARE), MOST_ZEROED_BYTES)
            if size > 0:
                self._guest.take_memory(size)

    def _rehearse(self) -> None:
        for line in REHEARSED.splitlines():
            # what an image does not have, no start runs
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._guest.run(*shlex.split(line or "true"), timeout_s=10.0)
        for place in ("usr/lib/vtorque", "usr/lib/vtorque/bin"):
            for path in self._places(place):
                if path.is_file():
                    path.read_bytes()
