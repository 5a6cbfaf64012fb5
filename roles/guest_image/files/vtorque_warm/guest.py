# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a first order: a restored system becomes a guest of its own."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import typing as t

from .order import File, Order
from .system import ARPHRD_ETHER, StepError, System

WARM_ENV = "etc/vtorque/warm.env"
"""Only in a template: its units of sshd do not start while it is there (`install_warm.sh`)."""

RNDADDENTROPY, RNDRESEEDCRNG = 0x40085203, 0x5207
"""ioctls of /dev/random: linux/random.h, on all architectures whose ioctls are as those of x86 and arm."""
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFHWADDR = 0x8913, 0x8914, 0x8924
IFF_UP = 1


class Guest(System):
    """This guest, as its first order makes it."""

    def reseed(self, entropy: bytes) -> None:
        """Give the kernel's generator what no other guest has, and make it use that at once."""
        with self.path("dev/random").open("rb+", buffering=0) as device:
            # its own ioctl takes no more than 1024 bytes
            self.ioctl(device.fileno(), RNDADDENTROPY, struct.pack("ii", len(entropy) * 8, len(entropy)) + entropy)
            self.ioctl(device.fileno(), RNDRESEEDCRNG, b"")

    def set_machine_id(self, machine_id: str) -> None:
        """Write it where systemd and D-Bus look, and let `journalctl` find what is of this boot."""
        content = f"{machine_id}\n".encode()
        self.rewrite("etc/machine-id", content)
        bus = self.path("var/lib/dbus/machine-id")
        if bus.exists() and not bus.is_symlink():
            self.rewrite("var/lib/dbus/machine-id", content)
        for journal in ("run/log/journal", "var/log/journal"):
            places = self.path(journal)
            for place in sorted(places.iterdir()) if places.is_dir() else ():
                if re.fullmatch("[0-9a-f]{32}", place.name):
                    place.rename(places / machine_id)

    def set_boot_id(self, boot_id: str) -> None:
        """Mount it over the kernel's, which cannot be set."""
        self.write("run/vtorque-boot-id", f"{boot_id}\n".encode(), 0o444)
        self.bind(self.path("run/vtorque-boot-id"), self.path("proc/sys/kernel/random/boot_id"))

    def name(self, hostname: str) -> None:
        """Set the host name, now and for whoever reads its file."""
        self.set_hostname(hostname)
        self.write("etc/hostname", f"{hostname}\n".encode(), 0o644)

    def set_mac(self, mac: str) -> None:
        """Give the card its address: down, which forgets all neighbours and addresses, and up."""
        card = self.card().encode()
        number = bytes.fromhex(mac.replace(":", ""))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            self._set_up(way, card, up=False)
            self.ioctl(way.fileno(), SIOCSIFHWADDR, struct.pack("16sH6s8x", card, ARPHRD_ETHER, number))
            self._set_up(way, card, up=True)

    def take_down(self) -> None:
        """Put the card out of use."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            self._set_up(way, self.card().encode(), up=False)

    def _set_up(self, way: socket.socket, card: bytes, *, up: bool) -> None:
        answer = self.ioctl(way.fileno(), SIOCGIFFLAGS, struct.pack("16sh14x", card, 0))
        (flags,) = struct.unpack_from("h", answer, 16)
        flags = flags | IFF_UP if up else flags & ~IFF_UP
        self.ioctl(way.fileno(), SIOCSIFFLAGS, struct.pack("16sh14x", card, flags))

    def set_instance(self, instance_id: str) -> None:
        """Let cloud-init, where it is asked, know its instance by this start's id."""
        state = self.path("var/lib/cloud")
        current = state / "instance"
        if not current.is_symlink():
            return
        place = state / "instances" / instance_id
        former = state / "instances" / current.readlink().name
        if former.is_dir() and not place.exists():
            former.rename(place)
        current.unlink()
        current.symlink_to(f"/var/lib/cloud/instances/{instance_id}")
        content = f"{instance_id}\n".encode()
        self.write("var/lib/cloud/data/instance-id", content, 0o644)
        self.write("run/cloud-init/.instance-id", content, 0o644)

    def put_files(self, files: t.Sequence[File]) -> None:
        """Write what the seed of a cold start writes; from now on this is no template."""
        for file in files:
            self.write(file.path, file.content, file.mode)
        with contextlib.suppress(FileNotFoundError):
            self.path(WARM_ENV).unlink()


STEPS: t.Tuple[t.Tuple[str, t.Callable[[Guest, Order], None]], ...] = (
    ("entropy", lambda guest, order: guest.reseed(order.entropy)),
    ("clock", lambda guest, order: guest.set_clock(order.clock_now_ns())),
    ("machine_id", lambda guest, order: guest.set_machine_id(order.machine_id)),
    ("boot_id", lambda guest, order: guest.set_boot_id(order.boot_id)),
    ("hostname", lambda guest, order: guest.name(order.hostname)),
    ("mac", lambda guest, order: guest.set_mac(order.mac)),
    ("instance_id", lambda guest, order: guest.set_instance(order.instance_id)),
    ("file", lambda guest, order: guest.put_files(order.files)),
)
"""By the keys of the order: entropy before anything else may draw from the kernel's generator."""


def apply(order: Order, guest: Guest) -> None:
    """Carry an order out.

    Raises:
        StepError: names the step, and says why it failed.
    """
    for name, step in STEPS:
        try:
            step(guest, order)
        except (OSError, ValueError, OverflowError, StepError) as error:
            raise StepError(f"{name}: {error}") from error
