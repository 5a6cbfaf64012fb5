# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a node: a template of an image's guest by libvirt's own save, and guests of it, one after the other.

  warm_guest.py make PLACE IMAGE          boot the image's copy, and save it when it reports that it may be
  warm_guest.py start PLACE GUEST TEXT    restore it, give it the first order of GUEST, and run a script in it
  warm_guest.py cold PLACE GUEST TEXT     boot the image, and run a script in it
  warm_guest.py end PLACE                 let nothing run

GUEST is a number, and for tests of a step left out, what its name ends with (`3-without-mac`).

What it prints is JSON.  The guests are the image's alone: no part of the product's warm start has a hand in it.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import typing as t
import uuid

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.agent import Channel, order_all
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import seed as seeds
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import Group, KeyPair, Owner

NAME = "warm-guest"
TEMPLATE_TOKEN = "template0123456789"
CROWDED = "5"
"""The guest whose user has a group that the image has, too."""
TEMPLATE_MAC = "52:54:00:00:00:02"
BOOT_S, START_S = 900.0, 300.0
AUTHORIZED = f"ssh-ed25519 {'A' * 68} warm"
USER_DATA = """\
#cloud-config
hostname: vtorque-warm
manage_etc_hosts: false
users: [root]
disable_root: true
ssh_deletekeys: false
ssh_genkeytypes: []
no_ssh_fingerprints: true
bootcmd:
- [systemd-run, --no-block, --unit=vtorque-warm, --property=After=cloud-init-local.service, /usr/lib/vtorque-image/warm]
write_files:
"""
ENTRY = '- {{path: "{}", owner: "root:root", permissions: "{}", encoding: b64, content: "{}"}}\n'
ONE_LINE = re.compile(
    r'- \{path: "([^"]*)", owner: "root:root", permissions: "([0-7]{4})", encoding: b64, content: "([^"]*)"\}'
)
DOMAIN = """\
<domain type='qemu'>
  <name>{name}</name><uuid>6d3f0dbd-2e8b-4c3b-9a55-0f2e5c1f7a01</uuid>
  <memory unit='MiB'>768</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{image}/vmlinuz</kernel><initrd>{image}/initrd</initrd><cmdline>{cmdline}</cmdline></os>
  <features><acpi/><apic/></features>
  <clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff><on_reboot>destroy</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'{driver}/><source file='{place}/disk.qcow2'/>
      <backingStore type='file'><format type='qcow2'/><source file='{image}/disk.qcow2'/><backingStore/></backingStore>
      <target dev='vda' bus='virtio'/></disk>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{place}/seed.iso'/>
      <target dev='vdb' bus='virtio'/><readonly/></disk>
    <controller type='usb' model='none'/>
    <interface type='bridge'><mac address='{mac}'/><source bridge='br0'/><model type='virtio'/></interface>
    <serial type='file'><source path='{place}/console.log' append='on'/><target port='0'/></serial>
    <channel type='unix'><source mode='bind' path='{place}/channel'/>
      <target type='virtio' name='org.vtorque.0'/></channel>
    <memballoon model='none'/>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
</domain>
"""


def virsh(*arguments: str, check: bool = True) -> str:
    """Call it; what it prints."""
    done = subprocess.run(["virsh", "-q", "-c", "qemu:///system", *arguments], capture_output=True, text=True)
    if check and done.returncode:
        raise SystemExit(f"virsh {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Guest:
    """The one guest of a place.

    Args:
        place: its directory.
        image: of the image.
        driver: more attributes of its disk's driver.
    """

    def __init__(self, place: pathlib.Path, image: pathlib.Path, driver: str = "") -> None:
        self.place, self.image, self.driver = place, image, driver

    def make_disk(self) -> None:
        """A new overlay."""
        backing = ("-b", self.image / "disk.qcow2", "-F", "qcow2")
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, self.place / "disk.qcow2"], check=True)

    def xml(self, mac: str) -> pathlib.Path:
        """The file of its domain."""
        cmdline = json.loads((self.image / "record.json").read_text())["boot"]["cmdline"]
        file = self.place / "domain.xml"
        file.write_text(
            DOMAIN.format(name=NAME, place=self.place, image=self.image, cmdline=cmdline, mac=mac, driver=self.driver)
        )
        return file

    def cpu_s(self) -> float:
        """What its emulator has used of the processors: other work on the machine changes it little."""
        number = pathlib.Path(f"/run/libvirt/qemu/{NAME}.pid").read_text().strip()
        fields = pathlib.Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Let nothing of it run."""
        virsh("destroy", NAME, check=False)

    def await_line(self, pattern: str, seconds: float) -> re.Match[str]:
        """The first line of its console that fits; a failure of the guest ends the wait."""
        limit = time.monotonic() + seconds
        console = self.place / "console.log"
        while time.monotonic() < limit:
            text = console.read_text(errors="replace") if console.exists() else ""
            if found := re.search(rf"^{pattern}\r?$", text, re.MULTILINE):
                return found
            if failed := re.search(r"^vtorque-failed .*$", text, re.MULTILINE):
                raise SystemExit(failed[0])
            time.sleep(0.01)
        raise SystemExit(f"no {pattern} in time: {console.read_text(errors='replace')[-2000:]}")

    def run(self, token: str, script: str) -> str:
        """What a script of its root's prints, over the ordinary agent."""
        done = order_all([(Channel(NAME, self.place / "channel", token), script)], Deadline.after(START_S))[NAME]
        assert done.status == 0, done.output
        return done.output


class Order:
    """The first order of a guest, and the seed that it would have in a cold start.

    Args:
        guest: its number, and the end of its name.
        key: its host key.
        authorized: with which its user would enter.
    """

    def __init__(self, guest: str, key: KeyPair, authorized: str) -> None:
        self.mac = f"52:54:00:0a:01:{int(guest.partition('-')[0]):02x}"
        # Debian has a group of that id, which makes way: a walk through all files
        more = (Group(gid=6, name="biology"),) if guest == CROWDED else ()
        owner = Owner(
            user="warmy", uid=4321, gid=4322, group="warm users", home="/home/warmy", shell="/bin/bash",
            groups=(Group(gid=4323, name="physics"), *more),
        )  # fmt: skip
        self.seed = seeds.Seed(
            name=f"vcn1-{guest}", instance_id=str(uuid.uuid4()), mac=self.mac, distro="debian", job_id="1.fe",
            token=secrets.token_hex(8), node_address="10.77.0.11", torque_home="/var/spool/torque", owner=owner,
            host_key=key, authorized_key=authorized, ntp_servers=("10.77.0.1",),
        )  # fmt: skip
        self.files = seeds.render(self.seed, None)
        self.machine_id, self.boot_id = uuid.uuid4().hex, str(uuid.uuid4())
        self.address = ""

    def payload(self) -> bytes:
        """As the node sends it, now."""
        lines = [
            "version 1", f"entropy {base64.b64encode(secrets.token_bytes(64)).decode()}", f"clock {time.time():.6f}",
            f"machine_id {self.machine_id}", f"boot_id {self.boot_id}", f"hostname {self.seed.name}", f"mac {self.mac}",
            f"instance_id {self.seed.instance_id}",
        ]  # fmt: skip
        lines += [f"address {self.address}"] if self.address else []
        entries = [ONE_LINE.fullmatch(line) for line in self.files["user-data"].splitlines()]
        lines += [f"file {entry[2]} {entry[1]} {entry[3]}" for entry in entries if entry]
        return "".join(f"{line}\n" for line in (*lines, "end")).encode()


def key_pair(place: pathlib.Path) -> KeyPair:
    """A new host key."""
    file = place / f"key-{secrets.token_hex(4)}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "guest", "-f", file], check=True)
    pair = KeyPair(private=file.read_text(), public=pathlib.Path(f"{file}.pub").read_text().strip())
    file.unlink()
    return pair


class Talk:
    """The node's end of a template's channel."""

    def __init__(self, place: pathlib.Path) -> None:
        self._peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._peer.settimeout(START_S)
        self._peer.connect(str(place / "channel"))
        self._stream = self._peer.makefile("rb")
        self.greet()

    def greet(self) -> None:
        """Await who listens there."""
        word = secrets.token_hex(8)
        self._peer.sendall(f"hello {word}\n".encode())
        while self._stream.readline() != f"vtorque-agent {TEMPLATE_TOKEN} {word}\n".encode():
            pass

    def order(self, payload: bytes) -> tuple[int, str]:
        """Give a first order; how it ended."""
        self._peer.sendall(b"warm 10 %d\n" % len(payload) + payload)
        status, _blank, text = self._stream.readline().decode().rstrip("\n").partition(" ")
        return int(status), base64.b64decode(text).decode()

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
        self._peer.close()


def make(guest: Guest) -> dict[str, t.Any]:
    """The template; how long it took."""
    for left in ("console.log", "mem", "template.qcow2"):
        (guest.place / left).unlink(missing_ok=True)
    guest.make_disk()
    env = f"VTORQUE_TOKEN='{TEMPLATE_TOKEN}'\nVTORQUE_WARM=1\n".encode()
    text = USER_DATA + ENTRY.format("/etc/vtorque/warm.env", "0600", base64.b64encode(env).decode())
    for entry in filter(
        None, map(ONE_LINE.fullmatch, Order("0", key_pair(guest.place), AUTHORIZED).files["user-data"].splitlines())
    ):
        if entry[1].startswith("/usr/lib/vtorque/"):
            text += ENTRY.format(entry[1], entry[2], entry[3])
    files = {
        "user-data": text,
        "meta-data": "instance-id: warm-template\nlocal-hostname: vtorque-warm\n",
        "network-config": "version: 2\nethernets: {}\n",
    }
    seeds.write_iso(files, guest.place / "seed.iso", 0o444)
    began = time.monotonic()
    virsh("create", str(guest.xml(TEMPLATE_MAC)))
    guest.await_line(f"vtorque-warm {TEMPLATE_TOKEN}", BOOT_S)
    booted = time.monotonic()
    Talk(guest.place).close()
    time.sleep(0.5)
    virsh("save", NAME, str(guest.place / "mem"))
    shutil.move(guest.place / "disk.qcow2", guest.place / "template.qcow2")
    return {
        "warm_s": booted - began,
        "save_s": time.monotonic() - booted,
        "bytes": (guest.place / "mem").stat().st_size,
    }


def restore(guest: Guest) -> None:
    """Let a guest go on where the template was saved."""
    guest.end()
    shutil.copy(guest.place / "template.qcow2", guest.place / "disk.qcow2")
    (guest.place / "console.log").unlink(missing_ok=True)
    virsh("restore", str(guest.place / "mem"))


def start(guest: Guest, order: Order, script: str) -> dict[str, t.Any]:
    """A guest of the template."""
    shutil.copy(guest.place / "mem", guest.place / "mem.kept")
    began = time.monotonic()
    restore(guest)
    restored = time.monotonic()
    talk = Talk(guest.place)
    heard = time.monotonic()
    status, why = talk.order(order.payload())
    obeyed = time.monotonic()
    talk.close()
    shutil.move(guest.place / "mem.kept", guest.place / "mem")
    if status:
        return {"status": status, "why": why}
    found = guest.await_line(f"vtorque-ready {order.seed.token} ([0-9.]+)", START_S)
    ready, cpu_s = time.monotonic(), guest.cpu_s()
    asked = time.time()
    out = guest.run(order.seed.token, script)
    return {
        "status": 0, "address": found[1], "asked": asked, "answered": time.time(), "out": out,
        "hostname": order.seed.name, "mac": order.mac, "machine_id": order.machine_id, "boot_id": order.boot_id,
        "instance_id": order.seed.instance_id, "host_key": order.seed.host_key.public.rpartition(" ")[0],
        "restored_s": restored - began, "heard_s": heard - began, "obeyed_s": obeyed - began, "ready_s": ready - began,
        "cpu_s": cpu_s, "scanned": key_of(found[1]),
    }  # fmt: skip


def key_of(address: str) -> str:
    """The host key that a guest's sshd has."""
    done = subprocess.run(["ssh-keyscan", "-T", "60", "-t", "ed25519", address], capture_output=True, text=True)
    return done.stdout.strip().partition(" ")[2]


def cold(guest: Guest, order: Order, script: str) -> dict[str, t.Any]:
    """The same guest, booted."""
    guest.end()
    guest.make_disk()
    (guest.place / "console.log").unlink(missing_ok=True)
    seeds.write_iso(order.files, guest.place / "seed.iso", 0o444)
    began = time.monotonic()
    virsh("create", str(guest.xml(order.mac)))
    found = guest.await_line(f"vtorque-ready {order.seed.token} ([0-9.]+)", BOOT_S)
    ready, cpu_s = time.monotonic(), guest.cpu_s()
    out = guest.run(order.seed.token, script) if script else ""
    return {"status": 0, "address": found[1], "ready_s": ready - began, "cpu_s": cpu_s, "out": out}


def main(verb: str, place: pathlib.Path, *rest: str) -> dict[str, t.Any]:
    """Do one thing; no guest stays."""
    if verb == "make":
        place.mkdir(parents=True, exist_ok=True)
        (place / "image").unlink(missing_ok=True)
        (place / "image").symlink_to(rest[0])
    guest = Guest(place, (place / "image").resolve())
    if verb == "make":
        guest.end()
        return make(guest)
    guest.end()
    if verb == "end":
        return {}
    order = Order(rest[0], key_pair(place), AUTHORIZED)
    order.address = rest[2] if len(rest) > 2 else ""
    try:
        return (start if verb == "start" else cold)(guest, order, rest[1])
    finally:
        guest.end()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], pathlib.Path(sys.argv[2]), *sys.argv[3:])))
