# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In the guest, as root: what makes a booted image the template of guests, and a restored one a guest of its own.

The node's seed of a template starts it (`/etc/vtorque/warm.env` holds the template's token).  It takes away what no two
guests may share, reports on the serial console that the guest may be saved, and waits at the channel to its node.  Each
guest that is restored goes on from there:

  the node  hello WORD
  we        vtorque-agent TOKEN WORD
  the node  warm SECONDS BYTES, then that many bytes: the first order
  we        STATUS OUTPUT            0: it was carried out whole; 1 and why not, in base64

The order is refused whole, or carried out from its first line to its last; after a step that failed the guest is of no
use, and its node removes it.  Then the guest does what a cold boot does last: network, identity, `ready`.

Python's standard library alone, from release 3.9 on.  Everything is imported before the guest is saved.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import ipaddress
import os
import pathlib
import re
import select
import shlex
import socket
import struct
import subprocess
import sys
import time
import typing as t

VERSION = "1"
CHANNEL = "org.vtorque.0"
CONSOLES = ("ttyS0", "ttyAMA0", "hvc0")
WARM_ENV = "etc/vtorque/warm.env"
"""Only in a template: its units of sshd do not start while it is there (`install_warm.sh`)."""
GUEST_ENV = "etc/vtorque/guest.env"
MAX_LINE = 256
MAX_PAYLOAD = 4 << 20
MAX_FILES = 256
MAX_SECONDS = 600
MIN_ENTROPY = 32
LINE_S = 5.0
"""For the rest of a line, once it has begun."""
SETTLED_S = 5.0
"""From `ready` on, before anything else is started that the job does not wait for."""
REFUSED = 1

RNDADDENTROPY, RNDRESEEDCRNG = 0x40085203, 0x5207
"""ioctls of /dev/random: linux/random.h, on all architectures whose ioctls are as those of x86 and arm."""
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFHWADDR = 0x8913, 0x8914, 0x8924
IFF_UP, ARPHRD_ETHER, MS_BIND = 1, 1, 4096

LISTENERS = ("ssh.socket", "sshd.socket")
SSHD = ("ssh.service", "sshd.service")
NETWORKS = ("systemd-networkd.socket", "systemd-networkd.service")
"""They would take an address away that is not of their own making."""
WAITERS = ("systemd-networkd-wait-online.service", "NetworkManager-wait-online.service")
CLOCKS = ("systemd-timesyncd.service", "chronyd.service", "chrony.service")
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
systemd-run --version
"""
"""What a start runs: done once, so that its files are in the page cache.  None of them leaves anything."""


class OrderError(Exception):
    """The first order is not of its form: nothing was changed."""


class StepError(Exception):
    """A step could not be done: the guest is of no use."""


@dataclasses.dataclass(frozen=True)
class File:
    """A file of the seed, root's."""

    path: str
    mode: int
    content: bytes


@dataclasses.dataclass(frozen=True)
class Order:
    """The first order.

    Attributes:
        entropy: random bytes of the node's.
        clock_ns: the node's time, since the epoch, when it sent the order.
        arrived: when the order's first line was here, in seconds of the monotonic clock.
        address: what this network card had last, or "": the DHCP server is asked for it first.
        name_servers, search_domains: the site's own, before what the DHCP server gives.
    """

    entropy: bytes
    clock_ns: int
    machine_id: str
    boot_id: str
    hostname: str
    mac: str
    instance_id: str
    address: str
    name_servers: t.Tuple[str, ...]
    search_domains: t.Tuple[str, ...]
    files: t.Tuple[File, ...]
    arrived: float

    def clock_now_ns(self) -> int:
        """Return the node's time now, as far as it can be known here."""
        return self.clock_ns + int((time.monotonic() - self.arrived) * 1_000_000_000)


_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
FORMS: t.Dict[str, str] = {
    "version": VERSION,
    "entropy": "[A-Za-z0-9+/]{43,1368}={0,2}",
    "clock": "[0-9]{1,11}[.][0-9]{6}",
    "machine_id": "(?!0{32})[0-9a-f]{32}",
    "boot_id": _UUID,
    "hostname": f"(?=.{{1,64}}$){_LABEL}(?:[.]{_LABEL})*",
    # of one card, not of a group
    "mac": "[0-9a-f][02468ace](?::[0-9a-f]{2}){5}",
    "instance_id": "[A-Za-z0-9][A-Za-z0-9_-]{0,127}",
}
"""The lines of an order and their values, in this order; then those of `MORE`, then files, then `end`."""
MORE = {"address": 1, "name_server": 16, "search_domain": 32}
"""Lines that may be there, in this order, so many at most."""
_FILE = re.compile(r"(0[0-7]{3}) (/[^\x00-\x1f\x7f]{1,1023}) ([A-Za-z0-9+/]*={0,2})")
NOT_FILES = ("/proc", "/sys", "/dev")


def parse_order(payload: bytes, arrived: float) -> Order:
    """Read a first order.

    Args:
        payload: as it came.
        arrived: when it began to come (`Order.arrived`).

    Raises:
        OrderError: it is not whole, or not of its form; says where.
    """
    if len(payload) > MAX_PAYLOAD:
        raise OrderError(f"more than {MAX_PAYLOAD} bytes")
    try:
        lines = payload.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise OrderError("is no UTF-8") from None
    if lines[-2:] != ["end", ""]:
        raise OrderError("has no end")
    values: t.Dict[str, str] = {}
    number = 0
    for key, form in FORMS.items():
        found, blank, value = lines[number].partition(" ")
        if found != key or not blank or not re.fullmatch(form, value):
            raise OrderError(f"line {number + 1}: {key} is due, in its form")
        values[key] = value
        number += 1
    more: t.Dict[str, t.List[str]] = {}
    for key, most in MORE.items():
        values_of = more.setdefault(key, [])
        while lines[number].startswith(f"{key} ") and len(values_of) < most:
            values_of.append(_more(key, lines[number][len(key) + 1 :], number))
            number += 1
    files = tuple(_file(line, place) for place, line in enumerate(lines[number:-2], number + 1))
    if len(files) > MAX_FILES or len({file.path for file in files}) < len(files):
        raise OrderError(f"a file comes twice, or there are more than {MAX_FILES}")
    entropy = _bytes(values["entropy"], "entropy")
    if len(entropy) < MIN_ENTROPY:
        raise OrderError(f"entropy: fewer than {MIN_ENTROPY} bytes")
    seconds, _point, micro = values["clock"].partition(".")
    return Order(
        entropy, int(seconds) * 1_000_000_000 + int(micro) * 1000, values["machine_id"], values["boot_id"],
        values["hostname"], values["mac"], values["instance_id"], "".join(more["address"]),
        tuple(more["name_server"]), tuple(more["search_domain"]), files, arrived,
    )  # fmt: skip


def _bytes(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise OrderError(f"{what}: no base64") from None


def _more(key: str, text: str, number: int) -> str:
    try:
        if key == "address":
            return str(ipaddress.IPv4Address(text))
        if key == "name_server":
            return str(ipaddress.ip_address(text))
    except ValueError:
        raise OrderError(f"line {number + 1}: {key}: no address") from None
    if not re.fullmatch(FORMS["hostname"], text):
        raise OrderError(f"line {number + 1}: {key}: no name")
    return text


def _file(line: str, number: int) -> File:
    key, _blank, rest = line.partition(" ")
    found = _FILE.fullmatch(rest)
    if key != "file" or found is None:
        raise OrderError(f"line {number}: a file is due, in its form")
    path = found[2]
    if os.path.normpath(path) != path or path.startswith("//") or path in NOT_FILES:
        raise OrderError(f"line {number}: the path of a file is due")
    if path.startswith(tuple(f"{place}/" for place in NOT_FILES)):
        raise OrderError(f"line {number}: no file of a file system")
    return File(path, int(found[1], 8), _bytes(found[3], f"line {number}"))


class Guest:
    """This guest; tests have another root, and calls that they watch.

    Args:
        root: where its files are.
    """

    def __init__(self, root: pathlib.Path = pathlib.Path("/")) -> None:
        self.root = root

    # what tests replace

    def ioctl(self, descriptor: int, request: int, argument: bytes) -> bytes:
        """Call ioctl(2)."""
        return fcntl.ioctl(descriptor, request, argument)

    def set_clock(self, nanoseconds: int) -> None:
        """Set the clock of the kernel."""
        time.clock_settime_ns(time.CLOCK_REALTIME, nanoseconds)

    def set_hostname(self, name: str) -> None:
        """Set the kernel's host name."""
        socket.sethostname(name)

    def bind(self, source: pathlib.Path, target: pathlib.Path) -> None:
        """Mount a file over another.

        Raises:
            OSError: the kernel refuses.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(os.fsencode(source), os.fsencode(target), None, MS_BIND, None) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def run(self, *arguments: str, text: str = "", timeout_s: float = 120.0) -> subprocess.CompletedProcess[bytes]:
        """Run a program to its end; it may fail."""
        return subprocess.run(
            arguments,
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program."""
        quiet = subprocess.DEVNULL
        return subprocess.Popen(arguments, stdin=quiet, stdout=quiet, stderr=quiet)

    # files

    def path(self, name: str) -> pathlib.Path:
        """Return where a file of the guest is, by its path from the root."""
        return self.root / name.lstrip("/")

    def write(self, name: str, content: bytes, mode: int) -> None:
        """Write a file, whole or not at all, with its mode from the first byte on."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.parent / f".{path.name}.vtorque-new"
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content)
        os.replace(new, path)

    def rewrite(self, name: str, content: bytes) -> None:
        """Write a file with the mode that the image has given it; a new one is only to be read."""
        path = self.path(name)
        self.write(name, content, path.stat().st_mode & 0o777 if path.exists() else 0o444)

    def environment(self, name: str) -> t.Dict[str, str]:
        """The variables of a file that the shell reads, each word of one assignment."""
        text = self.path(name).read_text(encoding="utf-8")
        words = (word.partition("=") for word in shlex.split(text, comments=True))
        return {key: value for key, equals, value in words if equals}

    def card(self) -> str:
        """The name of the one network card.

        Raises:
            StepError: there is none, or more than one.
        """
        places = self.path("sys/class/net")
        found = [
            place.name
            for place in sorted(places.iterdir())
            if (place / "device").exists() and (place / "type").read_text().strip() == str(ARPHRD_ETHER)
        ]
        if len(found) != 1:
            raise StepError(f"one network card is expected, and there are {len(found)}")
        return found[0]

    # the steps

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


class Channel:
    """The way to the node: a character device that ends whenever nobody listens there.

    Args:
        descriptor: of it, open for both.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._heard = b""
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def send(self, text: str) -> bool:
        """Write a line; with nobody there it waits, or is refused: then False."""
        try:
            os.write(self._descriptor, f"{text}\n".encode())
        except OSError:
            return False
        return True

    def line(self) -> str | None:
        """The next line; None: the node does not listen any more.

        Raises:
            OrderError: it is too long, or its rest does not come in time.
        """
        limit: float | None = None
        while b"\n" not in self._heard:
            if len(self._heard) > MAX_LINE:
                self._heard = b""
                raise OrderError(f"a line of more than {MAX_LINE} bytes")
            if self._heard and limit is None:
                limit = time.monotonic() + LINE_S
            if not self._hear(limit):
                self._heard = b""
                return None
        line, _newline, self._heard = self._heard.partition(b"\n")
        return line.decode("ascii", "replace")

    def exactly(self, count: int, seconds: float) -> bytes:
        """So many bytes.

        Raises:
            OrderError: they do not come in time, or the node hangs up.
        """
        limit = time.monotonic() + seconds
        while len(self._heard) < count:
            if not self._hear(limit):
                self._heard = b""
                raise OrderError("the node hung up before its order had come whole")
        content, self._heard = self._heard[:count], self._heard[count:]
        return content

    def _hear(self, limit: float | None) -> bool:
        """Read what there is; False: nobody is there.

        Raises:
            OrderError: nothing comes in time.
        """
        left_ms = None if limit is None else max(0.0, (limit - time.monotonic()) * 1000)
        events = self._poll.poll(left_ms)
        if not events:
            self._heard = b""
            raise OrderError("what the node sent is not whole")
        if not events[0][1] & select.POLLIN:
            return False
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            return False
        self._heard += data
        return bool(data)


def serve(channel: Channel, token: str, guest: Guest) -> Order:
    """Answer the node until a first order was carried out.

    Raises:
        StepError: a step failed; the node has been answered.
    """
    while True:
        if not channel.send(f"vtorque-agent {token}"):
            time.sleep(0.2)
            continue
        listening = True
        while listening:
            try:
                order, listening = _obey(channel, token, guest)
            except OrderError as error:
                channel.send(_answer(f"order: {error}"))
                continue
            except StepError as error:
                channel.send(_answer(str(error)))
                raise
            if order is not None:
                return order


def _obey(channel: Channel, token: str, guest: Guest) -> t.Tuple[Order | None, bool]:
    line = channel.line()
    arrived = time.monotonic()
    if line is None:
        return None, False
    kind, _blank, rest = line.partition(" ")
    if kind == "hello" and re.fullmatch("[A-Za-z0-9]{1,64}", rest):
        return None, channel.send(f"vtorque-agent {token} {rest}")
    found = re.fullmatch("warm ([1-9][0-9]{0,2}) ([1-9][0-9]{0,6})", line)
    if not found or int(found[1]) > MAX_SECONDS or int(found[2]) > MAX_PAYLOAD:
        raise OrderError("no line that a template knows")
    order = parse_order(channel.exactly(int(found[2]), int(found[1])), arrived)
    apply(order, guest)
    channel.send("0 ")
    return order, True


def _answer(text: str) -> str:
    return f"{REFUSED} {base64.b64encode(text.encode()[:4096]).decode()}"


# the network: DHCP (RFC 2131, 2132, 3442), without a program to start

DISCOVER, OFFER, REQUEST, ACK, NAK = 1, 2, 3, 5, 6
COOKIE = b"\x63\x82\x53\x63"
WANTED = bytes((1, 3, 6, 15, 26, 51, 54, 119, 121))
"""Mask, routers, name servers, domain, MTU, lease, server, search list, classless routes."""
FOREVER = 0xFFFFFFFF
TRIES_S = (0.3, 0.5, 1.0, 2.0, 4.0, 4.0, 8.0, 8.0, 16.0, 16.0)
ASKED_S = (0.3, 0.7)
"""How long each question waits for its answer; of the address of before, and of any."""


@dataclasses.dataclass(frozen=True)
class Lease:
    """What a DHCP server gives.

    Attributes:
        routes: each a network, and the router to it; "0.0.0.0": none.
        seconds: how long; `FOREVER` for no end.
    """

    address: str
    prefix: int
    server: bytes
    seconds: int
    routes: t.Tuple[t.Tuple[str, str], ...] = ()
    name_servers: t.Tuple[str, ...] = ()
    search: t.Tuple[str, ...] = ()
    mtu: int = 0


def dhcp_question(kind: int, mac: str, number: bytes, hostname: str, **about: bytes) -> bytes:
    """Return a packet of IPv4 from a client without an address, to everybody.

    Args:
        kind: DISCOVER or REQUEST.
        mac: of the card, which is the client's identity too.
        number: of this exchange, four bytes.
        hostname: the server may want to know it.
        about: `address` that is wished for, `server` whose offer is taken, `current` address of who renews.
    """
    card = bytes.fromhex(mac.replace(":", ""))
    options = [(53, bytes([kind])), (61, b"\x01" + card), (12, hostname.partition(".")[0].encode()), (55, WANTED)]
    options += [(code, about[name]) for code, name in ((50, "address"), (54, "server")) if about.get(name)]
    current = about.get("current") or bytes(4)
    # answered to everybody: nobody else could hear it before there is an address
    message = struct.pack("!4B4sHH4s12x16s192x4s", 1, 1, 6, 0, number, 0, 0x8000, current, card, COOKIE)
    message += b"".join(bytes([code, len(value)]) + value for code, value in options) + b"\xff"
    message = message.ljust(300, b"\0")
    datagram = struct.pack("!4H", 68, 67, 8 + len(message), 0) + message
    source, everybody = current, b"\xff" * 4
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 16, 20 + len(datagram), 0, 0, 64, 17, 0, source, everybody)
    return head[:10] + struct.pack("!H", _checksum(head)) + head[12:] + datagram


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def dhcp_answer(packet: bytes, mac: str, number: bytes) -> t.Tuple[int, Lease | None] | None:
    """Read a packet of IPv4.

    Returns:
        Its kind and what it gives; None when it is no answer to this client's question.
    """
    if len(packet) < 20 or packet[0] >> 4 != 4 or packet[9] != 17:
        return None
    datagram = packet[(packet[0] & 15) * 4 :]
    message = datagram[8:]
    if len(message) < 240 or datagram[2:4] != b"\x00\x44" or message[236:240] != COOKIE:
        return None
    if message[0] != 2 or message[4:8] != number or message[28:34] != bytes.fromhex(mac.replace(":", "")):
        return None
    options: t.Dict[int, bytes] = {}
    place = 240
    while place + 1 < len(message) and message[place] != 255:
        code, length = message[place], message[place + 1]
        if code == 0:
            place += 1
            continue
        options[code] = options.get(code, b"") + message[place + 2 : place + 2 + length]
        place += 2 + length
    kind = options.get(53, b"\0")[0] if options.get(53) else 0
    try:
        return kind, _lease(message[16:20], options) if kind in (OFFER, ACK) else None
    except (ValueError, struct.error, IndexError, UnicodeDecodeError):
        return None


def _lease(address: bytes, options: t.Mapping[int, bytes]) -> Lease:
    def addresses(data: bytes) -> t.Tuple[str, ...]:
        return tuple(str(ipaddress.IPv4Address(data[at : at + 4])) for at in range(0, len(data) - 3, 4))

    mask = ipaddress.IPv4Network(f"0.0.0.0/{ipaddress.IPv4Address(options.get(1, bytes(4)))}")
    own = ipaddress.IPv4Address(address)
    if int(own) == 0 or own.is_multicast or own.is_loopback or mask.prefixlen == 0:
        raise ValueError(f"{own} is no address of a host")
    routes = (
        _classless(options[121])
        if 121 in options
        else tuple(("0.0.0.0/0", to) for to in addresses(options.get(3, b""))[:1])
    )
    domain = options.get(15, b"").rstrip(b"\0").decode("ascii")
    search = _names(options[119]) if 119 in options else (domain,) if domain else ()
    (seconds,) = struct.unpack("!I", options.get(51, b"\xff" * 4))
    return Lease(
        str(own), mask.prefixlen, options.get(54, b"")[:4], seconds, routes, addresses(options.get(6, b"")),
        tuple(name for name in search if re.fullmatch("[A-Za-z0-9._-]{1,253}", name)),
        struct.unpack("!H", options[26])[0] if 26 in options else 0,
    )  # fmt: skip


def _classless(data: bytes) -> t.Tuple[t.Tuple[str, str], ...]:
    routes = []
    while data:
        width = data[0]
        size = (width + 7) // 8
        if width > 32 or len(data) < 5 + size:
            raise ValueError("routes that are cut off")
        network = ipaddress.IPv4Network((data[1 : 1 + size].ljust(4, b"\0"), width), strict=False)
        routes.append((str(network), str(ipaddress.IPv4Address(data[1 + size : 5 + size]))))
        data = data[5 + size :]
    return tuple(routes)


def _names(data: bytes) -> t.Tuple[str, ...]:
    """Names as DNS writes them (RFC 1035, 4.1.4); a reference only leads back."""
    names = []
    place = 0
    while place < len(data):
        labels: t.List[str] = []
        at, end = place, 0
        while data[at]:
            if data[at] & 0xC0:
                target = (data[at] & 0x3F) << 8 | data[at + 1]
                end, at = end or at + 2, target if target < at else len(data)
                continue
            labels.append(data[at + 1 : at + 1 + data[at]].decode("ascii"))
            at += 1 + data[at]
        names.append(".".join(labels))
        place = end or at + 1
    return tuple(names)


class Dhcp:
    """The client of the one card.

    Args:
        way: takes packets of IPv4, and gives those that come; a test's own, or a socket of the card.
    """

    def __init__(self, way: socket.socket, mac: str, hostname: str) -> None:
        self._way, self._mac, self._hostname = way, mac, hostname

    def ask(self, address: str = "") -> Lease | None:
        """Ask for a lease: for the address of before first, which one answer settles.

        The server decides either way, so that no two guests have one address.

        Returns:
            It; None when no server answered.
        """
        if address and (lease := self._request(ASKED_S, address=ipaddress.IPv4Address(address).packed)):
            return lease
        for seconds in TRIES_S:
            offer = self._talk(DISCOVER, (seconds,), OFFER)
            if offer is None:
                continue
            about = {"address": ipaddress.IPv4Address(offer.address).packed, "server": offer.server}
            if lease := self._request((0.5, 1.0), **about):
                return lease
        return None

    def renew(self, lease: Lease) -> Lease | None:
        """Ask for the same again, while it is valid."""
        return self._request((1.0, 2.0, 4.0), current=ipaddress.IPv4Address(lease.address).packed)

    def _request(self, tries_s: t.Sequence[float], **about: bytes) -> Lease | None:
        return self._talk(REQUEST, tries_s, ACK, **about)

    def _talk(self, kind: int, tries_s: t.Sequence[float], due: int, **about: bytes) -> Lease | None:
        number = os.urandom(4)
        for seconds in tries_s:
            limit = time.monotonic() + seconds
            with contextlib.suppress(OSError):
                self._way.send(dhcp_question(kind, self._mac, number, self._hostname, **about))
            while (left := limit - time.monotonic()) > 0:
                ready, _writable, _broken = select.select([self._way], [], [], left)
                if not ready:
                    break
                answer = dhcp_answer(self._way.recv(4096), self._mac, number)
                if answer is None:
                    continue
                if answer[0] == NAK:
                    return None
                if answer[0] == due and answer[1] is not None:
                    return answer[1]
        return None


def way_of(card: str) -> socket.socket:
    """Return a socket of all packets of IPv4 of a card, which sends to everybody."""
    way = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    way.bind((card, 0x0800))
    return _Everybody(way, card)  # type: ignore[return-value]


class _Everybody:
    """A packet socket: it needs to be told each time where a packet goes."""

    def __init__(self, way: socket.socket, card: str) -> None:
        self._way, self._card = way, card

    def fileno(self) -> int:
        return self._way.fileno()

    def send(self, packet: bytes) -> int:
        return self._way.sendto(packet, (self._card, 0x0800, 0, 0, b"\xff" * 6))

    def recv(self, size: int) -> bytes:
        return self._way.recv(size)


def orders_for_ip(card: str, lease: Lease) -> str:
    """Return what `ip -batch` does with a lease; the kernel itself ends one that nobody renews."""
    life = "forever" if lease.seconds == FOREVER else str(lease.seconds)
    lines = [f"link set dev {card} mtu {lease.mtu}"] if lease.mtu >= 576 else []
    lines.append(
        f"address replace {lease.address}/{lease.prefix} broadcast + dev {card} valid_lft {life} preferred_lft {life}"
    )
    own = ipaddress.IPv4Interface(f"{lease.address}/{lease.prefix}").network
    for network, router in lease.routes:
        if router == "0.0.0.0":  # noqa: S104 - no address to listen at: the network is on the link
            lines.append(f"route replace {network} dev {card} scope link")
        else:
            # a router that this network does not hold is reached all the same
            beyond = "" if ipaddress.IPv4Address(router) in own else " onlink"
            lines.append(f"route replace {network} via {router} dev {card}{beyond}")
    return "".join(f"{line}\n" for line in lines)


# before the save, and after it


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
        os.sync()

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

    def _rehearse(self) -> None:
        for line in REHEARSED.splitlines():
            # what an image does not have, no start runs
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._guest.run(*shlex.split(line or "true"), timeout_s=10.0)
        for place in ("usr/lib/vtorque", "usr/lib/vtorque/bin"):
            for path in self._places(place):
                if path.is_file():
                    path.read_bytes()


class Start:
    """A guest that was restored, and has its identity: what a cold boot does last.

    Args:
        guest: this guest.
        order: what it was told.
    """

    def __init__(self, guest: Guest, order: Order) -> None:
        self._guest, self._order = guest, order
        self._card = guest.card()
        self._way = way_of(self._card)
        self._client = Dhcp(self._way, order.mac, order.hostname)

    def begin(self) -> Lease | None:
        """Become the job's: sshd comes up while the DHCP server is asked; `ready` does the rest, the identity first.

        Returns:
            The lease; None: none came, and `ready` reports it.
        """
        guest = self._guest
        guest.begin("systemctl", "--no-block", "start", self._sshd())
        lease = self._client.ask(self._order.address)
        if lease is not None:
            self._use(lease)
            self._know_names(lease)
        guest.begin(
            "systemd-run", "--no-block", "--unit=vtorque-ready", "--description=vTorque guest contextualisation",
            "/bin/sh", "/usr/lib/vtorque/ready",
        ).wait()  # fmt: skip
        return lease

    def go_on(self, lease: Lease | None) -> None:
        """Arm what a cold boot has armed, and keep the lease."""
        guest = self._guest
        limit = time.monotonic() + MAX_SECONDS
        while not self._is_ready() and time.monotonic() < limit:
            time.sleep(1.0)
        time.sleep(SETTLED_S)
        # it marks what it writes with the ids that it has read at its start
        guest.run("systemctl", "--no-block", "try-restart", "systemd-journald.service")
        guest.run("systemctl", "--no-block", "start", "timers.target")
        started = [unit for unit in (*CLOCKS, "cron.service", "crond.service") if self._is_enabled(unit)]
        if started:
            guest.run("systemctl", "--no-block", "start", *started)
        while lease is not None and lease.seconds != FOREVER:
            lease = self._hold(lease) or self._client.ask()
            if lease is not None:
                self._use(lease)

    def _hold(self, lease: Lease) -> Lease | None:
        """The lease that comes after this one; by the clock that people read, as a guest may stand still for hours."""
        began = time.time()
        for share in (0.5, 0.75, 0.875, 0.95):
            while time.time() < began + lease.seconds * share:
                time.sleep(min(30.0, max(1.0, lease.seconds / 100)))
            if renewed := self._client.renew(lease):
                return renewed
        return None

    def _use(self, lease: Lease) -> None:
        self._guest.run("ip", "-batch", "-", text=orders_for_ip(self._card, lease))

    def _know_names(self, lease: Lease) -> None:
        servers = tuple(dict.fromkeys((*self._order.name_servers, *lease.name_servers)))
        search = tuple(dict.fromkeys((*self._order.search_domains, *lease.search)))
        if not servers:
            return
        path = self._guest.path("etc/resolv.conf")
        if path.is_symlink() and "systemd" in str(path.readlink()):
            self._guest.run("resolvectl", "dns", self._card, *servers)
            if search:
                self._guest.run("resolvectl", "domain", self._card, *search)
            return
        lines = [f"search {' '.join(search)}"] if search else []
        lines += [f"nameserver {address}" for address in servers]
        self._guest.write("etc/resolv.conf", "".join(f"{line}\n" for line in lines).encode(), 0o644)

    def _sshd(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return self._guest.environment(GUEST_ENV)["VTORQUE_SSHD"]
        return SSHD[0]

    def _is_ready(self) -> bool:
        """Has `ready` become the ordinary agent, which it does when it has reported?"""
        for file in self._guest.path("proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if file.read_bytes().split(b"\0")[1:2] == [b"/usr/lib/vtorque/agent"]:
                    return True
        return False

    def _is_enabled(self, unit: str) -> bool:
        return self._guest.run("systemctl", "--quiet", "is-enabled", unit).returncode == 0


def report(guest: Guest, line: str) -> None:
    """Write a whole line on the serial console."""
    for name in CONSOLES:
        try:
            descriptor = os.open(guest.path(f"dev/{name}"), os.O_WRONLY | os.O_NOCTTY)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENXIO, errno.EIO, errno.ENODEV):
                continue
            raise
        with os.fdopen(descriptor, "wb", buffering=0) as console:
            console.write(f"\r\n{line}\r\n".encode())
        return


def open_port(guest: Guest) -> int:
    """Open the channel to the node.

    Raises:
        StepError: there is none.
    """
    places = guest.path("sys/class/virtio-ports")
    for place in sorted(places.iterdir()) if places.is_dir() else ():
        with contextlib.suppress(OSError):
            if (place / "name").read_text().strip() == CHANNEL:
                return os.open(guest.path(f"dev/{place.name}"), os.O_RDWR | os.O_CLOEXEC)
    raise StepError("no channel to the node: is virtio_console in this image's kernel?")


def main(guest: Guest) -> int:
    """Make a template of this guest; after the restore, a guest.

    Returns:
        The exit status: 1 when no guest came of it.
    """
    token = guest.environment(WARM_ENV)["VTORQUE_TOKEN"]
    try:
        Template(guest).settle()
        descriptor = open_port(guest)
    except (OSError, StepError, subprocess.SubprocessError) as error:
        report(guest, f"vtorque-failed {token} {' '.join(str(error).split())}")
        return 1
    report(guest, f"vtorque-warm {token}")
    try:
        order = serve(Channel(descriptor), token, guest)
    except StepError:
        return 1
    os.close(descriptor)
    try:
        start = Start(guest, order)
        lease = start.begin()
    except (OSError, StepError, subprocess.SubprocessError) as error:
        report(guest, f"vtorque-failed {start_token(guest)} warm start: {' '.join(str(error).split())}")
        return 1
    start.go_on(lease)
    return 0


def start_token(guest: Guest) -> str:
    """Return the token of the start, with which its node takes our lines for this guest's."""
    with contextlib.suppress(OSError, ValueError):
        return guest.environment(GUEST_ENV)["VTORQUE_TOKEN"]
    return "-"


if __name__ == "__main__":
    os.environ.update(PATH="/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL="C.UTF-8")
    os.umask(0o022)
    sys.exit(main(Guest()))
