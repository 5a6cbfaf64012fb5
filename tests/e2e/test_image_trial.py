# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images booted once before they appear in the pool: real libvirt, real cloud-init; the pool is a node's own."""

from __future__ import annotations

import json
import typing as t

import pytest

from .conftest import Result, Site
from .test_clones import HOST_KEY, NAMES, SOURCE, give_identity
from .trouble import image

NODE = "cn1"
CONFIG = "/etc/vtorque/vtorque.yml"
POOL = "/srv/trial-pool"
DEBIAN = (
    "cd /opt/vm-images/debian12@* && vmgr image add debian12 disk.qcow2 --kernel vmlinuz --initrd initrd "
    "--cmdline 'console=ttyS0 quiet net.ifnames=0 ds=nocloud' --boot-timeout 600 --json"
)
TINY = (
    "cd $(ls -d /opt/vm-images/tiny@* | tail -n 1) && exec vmgr image add debian-tiny disk.qcow2 --kernel vmlinuz "
    "--initrd initrd --cmdline console=ttyS0 --boot-timeout"
)


@pytest.fixture(scope="module", autouse=True)
def pool(site: Site) -> t.Iterator[None]:
    """A pool that the node may write."""
    site.root(NODE, f"mkdir -p {POOL} && cp -p {CONFIG} {CONFIG}.kept && echo 'vm_img_dir: {POOL}' >>{CONFIG}")
    yield
    site.root(NODE, f"mv {CONFIG}.kept {CONFIG} && rm -rf {POOL}")


def tiny(site: Site, seconds: int) -> Result[str]:
    """Add the guest that has no cloud-init."""
    return site.on(NODE, "/bin/sh", "-c", f"{TINY} {seconds}")


def nothing_is_left(site: Site) -> None:
    """No guest, no file of one, nothing half-made in the pool."""
    assert site.root(NODE, "virsh -q list --all --name | grep trial || true").strip() == ""
    assert site.root(NODE, f"ls -A /var/lib/vtorque | grep trial; ls -A {POOL} | grep -v '@' || true").strip() == ""


@pytest.mark.full
def test_debian_boots_and_tells_what_took_its_time(site: Site) -> None:
    """`vmgr image add debian12 disk.qcow2`, as the manual shows it."""
    before = site.root(NODE, "cat /opt/vm-images/debian12@*/disk.qcow2 | sha256sum")
    done = site.on(NODE, "/bin/sh", "-c", DEBIAN)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["name"] == "debian12@1"
    report = found["trial"]
    assert (report["booted"], report["good"]) == (True, True), report
    states = {one["check"]: one["state"] for one in report["findings"]}
    assert states["cloud-init"] == "ok"
    assert "identity" not in states
    assert "(kernel)" in report["startup"]
    assert "cloud-init-local.service" in {cost["what"] for cost in report["costs"]}
    assert any(cost["what"].startswith("init-local/") for cost in report["costs"])
    assert site.root(NODE, "cat /opt/vm-images/debian12@*/disk.qcow2 | sha256sum") == before
    nothing_is_left(site)


@pytest.mark.full
def test_identity_that_an_image_brings_is_told(site: Site) -> None:
    with image("cloned", of="debian12") as place:
        give_identity(place, "eni", SOURCE, NAMES)
        done = site.on(NODE, "/bin/sh", "-c", f"{DEBIAN} --distro debian".replace("debian12", "cloned"))
    assert done.returncode == 0, done.stderr
    (found,) = (one for one in json.loads(done.stdout)["trial"]["findings"] if one["check"] == "identity")
    assert found["state"] == "warn"
    assert found["found"].endswith(f"of its own: /etc/machine-id, {HOST_KEY}")


@pytest.mark.full
def test_where_the_seconds_of_a_boot_went(site: Site) -> None:
    """`vmgr image profile debian12 --svg boot.svg`, as the manual shows it."""
    done = site.on(
        NODE, "/bin/sh", "-c", "cd /tmp && vmgr image profile debian12 --svg boot.svg --boot-timeout 600 --json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["image"] == "debian12@1"
    spans = {span["what"]: span for span in found["spans"]}
    assert {span["phase"] for span in found["spans"]} >= {
        "firmware", "kernel", "initramfs", "udev", "cloud-init local", "network", "ssh",
    }  # fmt: skip
    ends = [spans[name]["begin_s"] + spans[name]["seconds"] for name in ("firmware", "kernel", "initramfs")]
    # one after the other, and systemd after all of them
    assert ends == sorted(ends)
    assert spans["cloud-init-local.service"]["begin_s"] >= ends[-1]
    assert max(span["begin_s"] for span in found["spans"]) < found["seconds"]
    picture = site.root(NODE, "cat /tmp/boot.svg && rm /tmp/boot.svg")
    assert "cloud-init-local.service" in picture
    nothing_is_left(site)


def test_what_does_not_boot_is_refused_unless_it_is_forced(site: Site) -> None:
    """An empty disk: the firmware says so at once."""
    before = site.root(NODE, f"ls {POOL}")
    site.root(NODE, "qemu-img create -q -f qcow2 /tmp/empty.qcow2 64M")
    refused = site.on(NODE, "vmgr", "image", "add", "debian13", "/tmp/empty.qcow2", "--boot-timeout", "600")
    assert refused.returncode == 2
    assert "the firmware found nothing to boot" in refused.stderr
    assert "is it a bootable disk?" in refused.stdout
    assert site.root(NODE, f"ls {POOL}") == before
    forced = site.on(NODE, "vmgr", "image", "add", "debian13", "/tmp/empty.qcow2", "--force")
    assert (forced.returncode, forced.stdout.splitlines()[-1][:11]) == (0, "debian13@1 ")
    nothing_is_left(site)


@pytest.mark.full
def test_a_guest_without_cloud_init_is_told_so(site: Site) -> None:
    """Nothing says that it would come: it is given up when its time is over."""
    refused = tiny(site, 15)
    assert refused.returncode == 2
    assert "cloud-init: told nothing: it is not there" in refused.stderr
    assert "install cloud-init" in refused.stdout
    nothing_is_left(site)


@pytest.mark.full
@pytest.mark.parametrize("signal", ["TERM", "KILL"])
def test_it_ends_with_the_command_however_that_ends(site: Site, signal: str) -> None:
    """Its guest is libvirt's to end with our connection, and the next one takes the files away."""
    site.root(
        NODE,
        f"({TINY} 600) </dev/null >/tmp/said 2>&1 & echo $! >/tmp/pid; "
        "until virsh -q list --name | grep -q vtorque-trial; do kill -0 $(cat /tmp/pid) && sleep 0.1 || exit 1; done",
    )
    gone = "! virsh -q list --name | grep -q vtorque-trial && ! kill -0 $(cat /tmp/pid) 2>/dev/null"
    assert site.on(NODE, "/bin/sh", "-c", gone).returncode != 0
    site.root(NODE, f"kill -{signal} $(cat /tmp/pid)")
    site.wait_for("its end", lambda: site.on(NODE, "/bin/sh", "-c", gone).returncode == 0)
    if signal == "KILL":
        assert tiny(site, 1).returncode == 2
    nothing_is_left(site)
