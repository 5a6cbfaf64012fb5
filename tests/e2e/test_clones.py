# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of an image that has an identity of its own, as of a machine that somebody made an image of.

systemd-networkd has been seen to fail: without `templates/guest/client_id.sh` both guests got one address, and the job
was held, as somebody answered with another host key.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import tempfile

import pytest

from .conftest import Site
from .trouble import edit_disk, image, replace

START_WAYS = ("fast",)  # it sets for itself how they start

MACHINE_ID = "0123456789abcdef0123456789abcdef"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
SOURCE = "ds=nocloud"
NAMES = "net.ifnames=0"
UNIT = "/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
LOOK = f"""
for guest in $(sort -u "$PBS_NODEFILE"); do
    ssh "$guest" 'hostname; cat /etc/machine-id; hostname -I; cut -d" " -f1,2 {HOST_KEY}.pub'
    ssh "$guest" 'ls -d /run/systemd/netif/leases/* /run/dhclient.*.pid 2>/dev/null | cut -d/ -f3'
done </dev/null
"""


def give_identity(place: pathlib.Path, renderer: str, source: str, names: str) -> str:
    """Put a machine-id and a host key into the disk of an image, and who sees to its network; the public key.

    Args:
        renderer: of cloud-init's, for its network.
        source: what its kernel is told of the seed; with `ds=nocloud` cloud-init applies it before the network.
        names: what its kernel is told of the names of cards; with `net.ifnames=0` they keep the kernel's.
    """
    record = place / "record.json"
    with tempfile.TemporaryDirectory() as directory:
        key, machine_id, cloud = (pathlib.Path(directory) / name for name in ("key", "machine-id", "cloud"))
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "image", "-f", str(key)], check=True)
        machine_id.write_text(f"{MACHINE_ID}\n", encoding="ascii")
        cloud.write_text(f"system_info: {{network: {{renderers: [{renderer}]}}}}\n", encoding="ascii")
        orders = [
            "rm /etc/machine-id",
            f"write {machine_id} /etc/machine-id",
            f"write {key} {HOST_KEY}",
            f"write {key}.pub {HOST_KEY}.pub",
            f"write {cloud} /etc/cloud/cloud.cfg.d/99_renderer.cfg",
            f"symlink {UNIT} /lib/systemd/system/systemd-networkd.service",
            *([] if source else ["rm /etc/systemd/system/cloud-init.service"]),  # its second stage is masked
        ]
        edit_disk(place, orders)
        public = " ".join(key.with_suffix(".pub").read_text(encoding="ascii").split()[:2])
    report = json.loads(record.read_text())
    report["boot"]["cmdline"] = report["boot"]["cmdline"].replace(SOURCE, source).replace(NAMES, names)
    replace(record, json.dumps(report).encode())
    return public


@pytest.mark.full
@pytest.mark.parametrize(
    ("renderer", "source", "names", "daemon"),
    [
        ("eni", SOURCE, NAMES, r"dhclient\.eth0\.pid"),
        ("networkd", SOURCE, NAMES, "systemd"),
        ("networkd", "", NAMES, "systemd"),
        ("eni", SOURCE, "", r"dhclient\.en.*\.pid"),
        ("networkd", SOURCE, "", "systemd"),
    ],
)
def test_guests_of_an_image_with_an_identity_of_its_own(
    site: Site, renderer: str, source: str, names: str, daemon: str
) -> None:
    """They have the same machine-id, and an address and a host key each; ssh goes to the one that is asked for.

    Whatever name the card has: udev's is left as it is.
    """
    with image("cloned", of="debian12") as place:
        public = give_identity(place, renderer, source, names)
        ended = site.job("-vm", "img=cloned,ram=512M,vcpus=1,vms_per_node=2", stdin=LOOK)
    assert (ended.exit_status, ended.err) == (0, "")
    (one, id_one, address_one, key_one, by_one), (two, id_two, address_two, key_two, by_two) = zip(
        *[iter(ended.out.splitlines())] * 5, strict=True
    )
    assert (one[-2:], two[-2:]) == ("-1", "-2")
    assert (id_one, id_two) == (MACHINE_ID, MACHINE_ID)
    assert re.fullmatch(daemon, by_one)
    assert by_one == by_two
    (address_one,), (address_two,) = address_one.split(), address_two.split()
    assert address_one != address_two
    assert len({public, key_one, key_two}) == 3
