# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image is of the release that it is to be, whatever release the machine is that builds it."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest
import yaml

ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles/guest_image"
OWN = subprocess.run(
    ["/bin/sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME"], check=True, capture_output=True, text=True
).stdout.strip()
OTHER = "trixie" if OWN == "bookworm" else "bookworm"
KEYS = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"

MMDEBSTRAP = """#!/bin/sh
while case $1 in -*) ;; *) false ;; esac; do shift; done
suite=$1 root=$2; shift 2
mkdir -p "$root/usr/lib" "$root/etc" && echo VERSION_CODENAME={made} >"$root/usr/lib/os-release"
: >"$root/etc/passwd"; : >"$root/etc/shadow"
printf '%s\\n' "$suite" "$@" >{place}/called
"""
APT_GET = """#!/bin/sh
[ "$1" = indextargets ] || exit 1
case $3 in
    *CODENAME*) printf '%s\\n' '{own} http://mirror.test/debian' '{own}-security http://mirror.test/security' ;;
    *) printf '%s\\n' 'stable http://mirror.test/debian' ;;
esac
"""
PROFILE = "PATH={place}/bin:$PATH\nbootstrap_options() {{ :; }}\nsettle() {{ echo settled; exit 7; }}\n"
"""Ends the build where the system has been checked."""


def build(place: pathlib.Path, suite: str, made: str, mirrors: str = "") -> subprocess.CompletedProcess[str]:
    """Build an image of a release by a mmdebstrap that makes a system of another."""
    (place / "bin").mkdir()
    shutil.copy(ROLE / "files/build_image.sh", place)
    (place / "profile_trial.sh").write_text(PROFILE.format(place=place))
    for name, text in (("mmdebstrap", MMDEBSTRAP), ("apt-get", APT_GET)):
        (place / "bin" / name).write_text(text.format(place=place, made=made, own=OWN))
        (place / "bin" / name).chmod(0o755)
    environment = {"PROFILE": "trial", "SUITE": suite, "PACKAGES": "base-files", "SIZE": "1M", "MIRRORS": mirrors}
    return subprocess.run(
        ["/bin/bash", place / "build_image.sh", place], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ("tmp", "var/tmp", "root", "var/lib/cloud", "var/log", "var/lib/systemd", "etc/ssh"):
        (tmp_path / "root" / name).mkdir(parents=True)
    return tmp_path


def test_packages_of_another_release_make_no_image(place: pathlib.Path) -> None:
    """mmdebstrap 1.5.7 ends well with them."""
    done = build(place, "bookworm", made="trixie")
    assert done.returncode == 1
    assert "the packages are of trixie, and the image was to be bookworm" in done.stderr
    assert "settled" not in done.stdout


@pytest.mark.parametrize("suite", ["bookworm", "stable", "sid"])
def test_packages_of_the_release_make_one(place: pathlib.Path, suite: str) -> None:
    """A name that moves says of no release that it is the wrong one."""
    done = build(place, suite, made="bookworm")
    assert (done.returncode, done.stdout) == (7, "settled\n"), done.stderr


def test_other_release_comes_from_the_mirrors_of_this_machine(place: pathlib.Path) -> None:
    assert build(place, OTHER, made=OTHER).returncode == 7
    suite, *sources = (place / "called").read_text().splitlines()
    assert suite == OTHER
    assert sources == [
        f"{KEYS} http://mirror.test/debian {OTHER} main",
        f"{KEYS} http://mirror.test/debian {OTHER}-updates main",
        f"{KEYS} http://mirror.test/security {OTHER}-security main",
    ]


def test_own_release_comes_from_this_machines_sources_as_they_are(place: pathlib.Path) -> None:
    assert build(place, OWN, made=OWN).returncode == 7
    assert all(source.startswith("/etc/apt/") for source in (place / "called").read_text().splitlines()[1:])


def test_mirrors_of_the_site_are_taken_as_they_are(place: pathlib.Path) -> None:
    assert build(place, OTHER, made=OTHER, mirrors="http://a.test/debian\nhttp://b.test/debian").returncode == 7
    assert (place / "called").read_text().splitlines()[1:] == ["http://a.test/debian", "http://b.test/debian"]


def test_fast_guests_have_their_tmp_on_the_disk_and_no_stage_of_cloud_init_after_the_first() -> None:
    """systemd 257 mounts half of the memory there; the stages are those of cloud-init before and since 24.3."""
    masked = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))["guest_image_masked_units"]
    stages = {"cloud-init.service", "cloud-init-network.service", "cloud-config.service", "cloud-final.service"}
    assert stages | {"cloud-init-main.service", "tmp.mount"} <= set(masked)
    assert "cloud-init-local.service" not in masked
