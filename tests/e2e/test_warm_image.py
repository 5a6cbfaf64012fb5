# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests of one saved Debian guest share nothing that must be unique, and are what a cold boot makes of their seed.

Each row of uniqueness is also proved the other way round: with its step left out of the order, the same proof fails.
"""

from __future__ import annotations

import base64
import gzip
import json
import pathlib
import typing as t

import pytest

from .conftest import CHECKOUT, Site
from .test_warm import LOOK, PAIR, check_own, make, starts, warm
from .trouble import SUPERIOR, edit_disk, image, replace

pytestmark = pytest.mark.full

PROGRAM = pathlib.Path(__file__).with_name("warm_guest.py")
ROLE = CHECKOUT / "roles/guest_image/files"
IMAGE = "warmable"
PLACE = "/var/tmp/warm-guest"
STEPS = ("entropy", "clock", "machine_id", "boot_id", "hostname", "mac", "instance_id")
CLOCK_S = 0.2
SHARE = 0.2
LEAVES_OUT = '''

import dataclasses  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402

START_WAYS = ("fast",)  # it sets for itself how they start

_whole = apply


def apply(order, guest):
    """Leave out the step that the guest's host name names, and note what is proved later."""
    global STEPS
    left_out = order.hostname.partition("-without-")[2].replace("-", "_")
    if left_out == "mac":  # the step puts the card into use, too
        order = dataclasses.replace(order, mac="52:54:00:00:00:02")
    else:
        STEPS = tuple(step for step in STEPS if step[0] != left_out)
    timers = guest.run("systemctl", "list-units", "--type=timer", "--state=active", "--no-legend", "--plain").stdout
    _whole(order, guest)
    first = pathlib.Path("/proc/sys/kernel/random/uuid").read_text().split() + [os.urandom(16).hex()]
    guest.write("run/first", json.dumps({"random": first, "timers": timers.decode()}).encode(), 0o644)
'''
"""Put into the image's program (`guest.py`): with a host name that names none, all steps are done."""
REPORT = r"""
echo "time $(date +%s.%N)"
echo "machine_id $(cat /etc/machine-id)"
echo "boot_id $(cat /proc/sys/kernel/random/boot_id)"
echo "hostname $(hostname)"
echo "mac $(cat /sys/class/net/eth0/address)"
echo "instance_id $(cat /run/cloud-init/.instance-id)"
echo "layout $(sed -n '/stack/p; /ld-linux/p' /proc/self/maps | cut -d' ' -f1 | tr '\n' ' ')"
echo "first $(cat /run/first 2>/dev/null)"
"""
ARMED = "for _ in $(seq 100); do systemctl --quiet is-active timers.target && break; sleep 2; done; sleep 5"
"""What a warm guest arms when it is ready."""
ACCOUNT = r"""
{
id warmy
getent passwd warmy root nobody
cat /etc/group /etc/hosts /etc/hostname /etc/resolv.conf /etc/security/limits.d/vtorque.conf
su -s /bin/sh -c 'ulimit -S -a; ulimit -H -a; umask; pwd' warmy
sed 's/ [^ ]*size=[^ ]*//' /proc/self/mounts | grep -v vtorque-boot-id | grep -v boot_id | sort
stat -c '%a %U %G %n' /etc/ssh/ssh_host_* /etc/ssh/authorized_keys/* /etc/ssh/sshd_config.d/* /etc/vtorque/* \
    /usr/lib/vtorque/* /home/* /home/warmy /run/vtorque/* /var/spool/torque/* /etc/machine-id /etc/hostname
cat /etc/ssh/authorized_keys/warmy /etc/systemd/timesyncd.conf.d/vtorque.conf
sshd -T 2>/dev/null
grep -v TOKEN /etc/vtorque/guest.env
ip -o route
systemctl is-active ssh.service vtorque-ready.service network-online.target systemd-user-sessions.service
systemctl list-units --type=timer --state=active --no-legend --plain | cut -d' ' -f1
ls -A /etc/vtorque /var/lib/cloud/instance /root
} 2>&1 | gzip -9 | base64 -w 0
"""
"""What there is of the job's user, and of what the seed asks for; without what is this boot's alone."""


class Node:
    """The node on which the guests run, one after the other."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._starts: dict[str, dict[str, t.Any]] = {}

    def call(self, verb: str, *arguments: str) -> dict[str, t.Any]:
        """Run the program on the node."""
        environment = ("env", f"PYTHONPATH={CHECKOUT}/build/import", f"{CHECKOUT}/build/venv/bin/python", "-")
        done = self._site.on(SUPERIOR, *environment, verb, PLACE, *arguments, stdin=PROGRAM.read_text())
        assert done.returncode == 0, done.stderr
        return t.cast("dict[str, t.Any]", json.loads(done.stdout))

    def start(self, guest: str) -> dict[str, t.Any]:
        """A guest that starts warm, and what it reports of itself; once for each name."""
        if guest not in self._starts:
            report = self.call("start", guest, REPORT)
            assert report["status"] == 0, report
            rows = dict(line.partition(" ")[::2] for line in report["out"].splitlines())
            self._starts[guest] = {**report, "seen": rows, "first": json.loads(rows["first"])}
        return self._starts[guest]

    def scan(self) -> str:
        """How often the template's memory and disk hold a private key."""
        pattern = "PRIVATE KEY-----\\x0a[A-Za-z0-9+/]{40}"
        return self._site.root(
            SUPERIOR, f"cd {PLACE} && cat mem template.qcow2 | LC_ALL=C grep -zaPc '{pattern}' || [ $? -eq 1 ]"
        ).strip()


@pytest.fixture(scope="module")
def node(site: Site, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Node]:
    """A node that has a template of an image as the role builds it."""
    place = tmp_path_factory.mktemp("warm")
    (place / "warm").write_text("#!/usr/bin/python3 -I\n" + (ROLE / "warm.py").read_text())
    library = "/usr/lib/vtorque-image"
    # what install_warm.sh does, to a disk that nobody mounts
    (place / "drop-in").write_text("[Unit]\nConditionPathExists=!/etc/vtorque/warm.env\n")
    orders = [f"mkdir {library}", f"mkdir {library}/vtorque_warm", f"rm {library}/warm",
              f"write {place}/warm {library}/warm", f"sif {library}/warm mode 0100755"]  # fmt: skip
    for module in (ROLE / "vtorque_warm").glob("*.py"):
        text = module.read_text() + (LEAVES_OUT if module.name == "guest.py" else "")
        (place / module.name).write_text(text)
        target = f"{library}/vtorque_warm/{module.name}"
        orders += [f"rm {target}", f"write {place}/{module.name} {target}"]
    for unit in ("ssh.service", "sshd.service"):
        directory = f"/etc/systemd/system/{unit}.d"
        orders += [f"mkdir {directory}", f"write {place}/drop-in {directory}/vtorque-warm.conf"]
    node = Node(site)
    with image(IMAGE, of="debian12") as copy:
        edit_disk(copy, orders)
        record = json.loads((copy / "record.json").read_text()) | {"warm": "1"}
        replace(copy / "record.json", json.dumps(record).encode())
        try:
            node.call("make", f"/opt/vm-images/{copy.name}")
            yield node
        finally:
            node.call("end")
            site.root(SUPERIOR, f"rm -rf {PLACE}")


def unique(one: dict[str, t.Any], other: dict[str, t.Any]) -> dict[str, bool]:
    """Each row of uniqueness, by its step: is a guest what it was ordered to be, and nothing of another?"""
    seen, its = one["seen"], other["seen"]
    rows = {
        key: seen[key] == one[key] and seen[key] != its[key]
        for key in ("machine_id", "boot_id", "hostname", "mac", "instance_id")
    }
    rows["entropy"] = not set(one["first"]["random"]) & set(other["first"]["random"])
    rows["clock"] = one["asked"] - CLOCK_S <= float(seen["time"]) <= one["answered"] + CLOCK_S
    return rows


def _text_of(report: dict[str, t.Any]) -> list[str]:
    # a server may take one client of two programs for two
    return gzip.decompress(base64.b64decode(report["out"])).decode().replace(report["address"], "ADDRESS").splitlines()


def test_warm_guests_of_one_template_share_nothing(node: Node) -> None:
    one, other = node.start("1"), node.start("2")
    assert unique(one, other) == dict.fromkeys(STEPS, True)
    assert unique(other, one) == dict.fromkeys(STEPS, True)
    assert one["address"] != other["address"]
    assert one["seen"]["layout"] != other["seen"]["layout"]


@pytest.mark.parametrize("step", STEPS)
def test_warm_guest_without_a_step_is_found_by_its_row_alone(node: Node, step: str) -> None:
    end = f"-without-{step.replace('_', '-')}"
    # the kernel's generator goes on where it was saved, in each guest alike
    other = node.start(f"4{end}") if step == "entropy" else node.start("1")
    assert unique(node.start(f"3{end}"), other) == {row: row != step for row in STEPS}


def test_warm_guest_has_the_host_key_of_its_order_and_the_template_none(node: Node) -> None:
    for guest in ("1", "2"):
        report = node.start(guest)
        assert report["scanned"] == report["host_key"]
    assert node.scan() == "0"


def test_template_that_was_saved_had_no_timer_armed(node: Node) -> None:
    assert node.start("1")["first"]["timers"] == ""


def test_warm_guest_gets_the_address_of_before(node: Node) -> None:
    before = node.start("1")["address"]
    assert node.call("start", "1", "true", before)["address"] == before


def test_warm_guest_is_its_users_as_after_a_cold_boot(node: Node) -> None:
    restored, booted = (node.call(verb, "5", f"{ARMED}\n{ACCOUNT}") for verb in ("start", "cold"))
    assert _text_of(restored) == _text_of(booted)


def test_warm_guest_is_ready_after_a_fifth_of_what_a_boot_takes(node: Node) -> None:
    """By processor time of the emulator, which other work on the machine changes little."""
    booted = node.call("cold", "6", "true")
    assert node.start("1")["cpu_s"] <= SHARE * booted["cpu_s"]


def test_job_of_the_product_runs_in_guests_of_a_template(site: Site, node: Node) -> None:
    with warm(site):
        make(site, IMAGE)
        ended = site.job(*PAIR[:2], "-vm", f"vms_per_node=2,img={IMAGE}", stdin=LOOK)
        assert ended.exit_status == 0, ended.err
        assert starts(site, ended.job_id) == ["yes", "yes"]
    check_own(ended.out)
