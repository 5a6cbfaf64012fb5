# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's program for security updates, in a root directory of its own, with stand-ins for package managers."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

from .busybox_root import BusyboxRoot

APPLETS = ("sh", "grep", "sed", "timeout", "head", "tail", "rm", "cat", "sleep", "touch")
APT = """#!/bin/sh
echo "apt-get $*" >>/asked
case " $* " in
    *" update "*) step=update ;;
    *" -s "*) step=choice; cat /newer ;;
    *" --download-only "*) step=fetch ;;
    *) step=install ;;
esac
[ ! -e /clock-$step ] || cat /clock-$step >/proc/uptime
[ ! -e /hangs-$step ] || sleep 60
[ ! -e /fails-$step ] || { echo "Reading lists"; echo "E: no route to the mirror" >&2; exit 100; }
"""
CACHE = "#!/bin/sh\ncat /policy\n"
DPKG = '#!/bin/sh\necho "dpkg $*" >>/asked\n'
DNF = """#!/bin/sh
echo "dnf $*" >>/asked
[ ! -e /fails-dnf ] || { echo "Error: Cannot download repomd.xml"; exit 1; }
case " $* " in *" -C "*) cp /later /rpms ;; esac
"""
RPM = "#!/bin/sh\ncat /rpms\n"
SECURITY = " 500 http://mirror/security stable-security/main amd64\n     release v=12,o=Debian,a=stable-security,n=x\n"
OTHERS = " 500 http://mirror/debian stable/main amd64\n     release v=12,o=Debian,a=stable,n=bookworm,l=Debian\n"


class Guest(BusyboxRoot):
    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root, ("etc/apt/sources.list.d", "proc", "run"), (*APPLETS, "cp"))
        (root / "proc/uptime").write_text("50.07 9.11\n")
        shutil.copy(templates.COLLECTION_DIR / "guest/updates.sh", root / "updates")

    def debian(self, *newer: str, sources: str = SECURITY + OTHERS) -> None:
        for name, text in (("apt-get", APT), ("apt-cache", CACHE), ("dpkg", DPKG)):
            self.program(name, text)
        (self.root / "etc/apt/sources.list").write_text("deb http://mirror/debian stable main\n")
        (self.root / "policy").write_text(f"Package files:\n{sources}")
        output = "".join(f"Inst {name} [1] (2 Debian-Security:12/stable-security [amd64])\n" for name in newer)
        (self.root / "newer").write_text(
            f"Reading...\nInst needed (2 Debian:12/stable [all])\n{output}Conf needed (2)\n"
        )

    def redhat(self, before: str, later: str) -> None:
        self.program("dnf", DNF)
        self.program("rpm", RPM)
        (self.root / "rpms").write_text(before)
        (self.root / "later").write_text(later)

    def update(self, seconds: int = 80) -> tuple[str, int, str]:
        """Outcome, packages, words."""
        done = subprocess.run(
            ["/usr/sbin/chroot", self.root, "/bin/sh", "/updates", str(seconds)],
            capture_output=True, text=True, timeout=300, check=True, umask=0o077,
        )  # fmt: skip
        found = re.fullmatch(
            r"vtorque-updates (done|timed out|failed) ([0-9]+) [0-9]+ (.*)", done.stdout.split("\n")[-2]
        )
        assert found, done.stdout
        assert done.stderr == ""
        assert list((self.root / "run").iterdir()) == []
        return found[1], int(found[2]), found[3]

    @property
    def asked(self) -> list[str]:
        """What package managers were asked, without the options that do not matter here."""
        return [re.sub(r" (-q|-y|--no-install-recommends|-o \S+)(?= )", "", line) for line in super().asked]


@pytest.fixture
def guest(tmp_path: pathlib.Path) -> Guest:
    return Guest(tmp_path)


def test_newer_packages_are_fetched_first_and_installed_in_batches(guest: Guest) -> None:
    """Not what only comes along, and no kernel: none is booted any more."""
    names = [f"lib{number}" for number in range(10)]
    guest.debian(*names, "linux-image-amd64")
    assert guest.update() == ("done", 10, "")
    assert guest.asked == [
        "apt-get update",
        "apt-get -s --with-new-pkgs upgrade",
        f"apt-get --download-only install --only-upgrade {' '.join(names)}",
        f"apt-get install --only-upgrade {' '.join(names[:8])}",
        f"apt-get install --only-upgrade {' '.join(names[8:])}",
    ]


def test_updates_without_newer_packages_succeed(guest: Guest) -> None:
    guest.debian()
    assert guest.update() == ("done", 0, "")
    assert len(guest.asked) == 2


def test_image_without_sources_or_without_those_of_security_updates_says_so(guest: Guest) -> None:
    guest.debian("libc6", sources=OTHERS)
    assert guest.update() == ("failed", 0, "none of this image's package sources is one of security updates")
    (guest.root / "etc/apt/sources.list").write_text("# deb http://mirror/debian stable main\n")
    assert guest.update() == ("failed", 0, "this image has no package sources")


def test_image_without_a_package_manager_says_so(guest: Guest) -> None:
    assert guest.update() == ("failed", 0, "this image has no package manager that is known")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("update", "the lists of packages"),
        ("choice", "the choice of packages"),
        ("fetch", "the packages"),
        ("install", "the installation"),
    ],
)
def test_failed_update_is_reported_with_the_output_of_apt_and_repaired(guest: Guest, step: str, message: str) -> None:
    guest.debian("libc6")
    (guest.root / f"fails-{step}").touch()
    assert guest.update() == ("failed", 0, f"{message}: E: no route to the mirror")
    assert guest.asked[-1] == "dpkg --configure -a --force-confold"


def test_update_that_takes_too_long_is_killed_and_repaired(guest: Guest) -> None:
    guest.debian("libc6")
    (guest.root / "clock-choice").write_text("99.0 1.0\n")  # what comes next has one second
    (guest.root / "hangs-fetch").touch()
    assert guest.update() == ("timed out", 0, "the packages took too long")
    assert guest.asked[-1] == "dpkg --configure -a --force-confold"


def test_update_that_would_be_interrupted_is_not_begun(guest: Guest) -> None:
    """Of 80 seconds 50 are to begin something in: the rest is for what is at work then, and to mend."""
    guest.debian(*(f"lib{number}" for number in range(11)))
    (guest.root / "clock-install").write_text("101.0 1.0\n")
    assert guest.update() == ("timed out", 8, "3 more were not begun")
    assert len(guest.asked) == 4


def test_slow_mirror_leaves_nothing_half_done(guest: Guest) -> None:
    guest.debian("libc6")
    (guest.root / "clock-update").write_text("100.0 1.0\n")
    assert guest.update() == ("timed out", 0, "the choice of packages: there was no time left")
    assert guest.asked == ["apt-get update"]


def test_of_the_red_hat_family_the_same(guest: Guest) -> None:
    guest.redhat("bash-5.1-1\nglibc-2.34-1\n", "bash-5.1-1\nglibc-2.34-2\nopenssl-3-2\n")
    assert guest.update() == ("done", 2, "")
    fetch, install = guest.asked
    assert fetch.endswith("--exclude=kernel* upgrade --security --downloadonly")
    assert install.startswith("dnf -C ")
    assert install.endswith("--exclude=kernel* upgrade --security")


def test_of_the_red_hat_family_what_fails_is_told(guest: Guest) -> None:
    guest.redhat("bash-5.1-1\n", "bash-5.1-1\n")
    (guest.root / "fails-dnf").touch()
    assert guest.update() == ("failed", 0, "the packages: Error: Cannot download repomd.xml")
    assert len(guest.asked) == 1
