# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One job in a Debian guest, set up by the real cloud-init."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import typing as t

import jsonschema
import pytest
import yaml

from .conftest import CHECKOUT, Ended, Site
from .trouble import NODES, changed, check_held, drop, edit_disk, feed, file_of, image

SCHEMA = "build/cloud-init/schema-cloud-config-v1.json"
"""Of the distribution's cloud-init; `make prepare-test` brings it."""
LOOK = r"""#!/bin/bash
. /etc/os-release
echo "$ID $VERSION_ID"
id -un; id -u; id -g
cloud-init --version >/dev/null 2>&1 && echo cloud-init
test -s "$PBS_NODEFILE" && echo node file
command -v sudo >/dev/null && echo has sudo
sudo -n true 2>/dev/null && echo reads sudo
for file in /dev/vda /etc/shadow /run/log/journal/*/* /run/of-*; do
    head -c 1 "$file" >/dev/null 2>&1 && echo "reads $file"
done
ls -A "$HOME" | wc -l
id -G | sed 's/^/ids /'
id -Gn | sed 's/^/names /'
sed 's/^/group /' /etc/group
ulimit -S -a; ulimit -H -a
cat /run/seen-by-root
sed 's/^/added /' /tmp/vtorque-metadata.log
dpkg-query -W -f 'package ${Package} ${db:Status-Status}\n' vtorque-trial openmpi-bin
dpkg-query -W -f 'version ${Package} ${Version}\n' vtorque-hole vtorque-dull
echo complaint >&2
exit 37
"""
SITE = r"""#!/bin/sh
# udev does this whenever somebody has written to a disk; and a socket that a service makes when the guest is ready
udevadm trigger --action=change --settle /dev/vda
# as a package does that the job's user did not ask for
groupadd -r docker || exit
for group in adm disk docker g120 shadow sudo systemd-journal; do
    echo "of $group" >"/run/of-$group" && chgrp "$group" "/run/of-$group" && chmod 640 "/run/of-$group" || exit
done
cd /run/systemd/system || exit
printf '[Socket]\nListenStream=/run/late.sock\nSocketGroup=disk\nSocketMode=0660\n' >late.socket
printf '[Service]\nExecStart=/bin/true\n' >late.service
systemctl daemon-reload && systemctl start late.socket || exit
{
    find / /dev /run /tmp -xdev '(' -gid 6 -o -gid 42 -o -gid 999 ')' | sed 's/^/left /'
    stat -c 'socket %a %G' /run/late.sock
    stat -c 'disk %a %G' /dev/vda
    stat -c 'shadow %a %G' /etc/shadow
    systemctl show -p ExecMainExitTimestampMonotonic vtorque-identity
    systemctl show -p ActiveEnterTimestampMonotonic sysinit.target
    systemctl show -p ExecMainStartTimestampMonotonic vtorque-ready
    echo "seed $(base64 -w 0 /var/lib/cloud/instance/user-data.txt)"
} >/run/seen-by-root 2>&1
mkdir -p /srv/tree/DEBIAN /srv/here /srv/plain /srv/security && cd /srv || exit
size_and_digest() { echo "$(stat -c %s "$1")" "$(sha256sum <"$1" | cut -c 1-64)"; }
offer() { # source package version
    printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: site <root@site>\nDescription: trial\n' "$2" "$3" |
        tee tree/DEBIAN/control >>"$1/Packages"
    dpkg-deb -b tree "$1/$2.deb" >/dev/null || exit
    set -- "$1" "$2" $(size_and_digest "$1/$2.deb")
    printf 'Filename: ./%s.deb\nSize: %s\nSHA256: %s\n\n' "$2" "$3" "$4" >>"$1/Packages"
}
offer here vtorque-hole 1
offer here vtorque-dull 1
dpkg -i here/*.deb >/dev/null || exit
offer plain vtorque-trial 1
offer plain vtorque-hole 3
offer plain vtorque-dull 2
offer security vtorque-hole 2
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
for source in plain security; do
    set -- $(size_and_digest $source/Packages)
    printf 'Suite: trial-%s\nDate: %s\nSHA256:\n %s %s Packages\n' $source "$(date -uR)" "$2" "$1" >$source/Release
    echo "deb [trusted=yes] file:/srv/$source ./" >>/etc/apt/sources.list
done
"""
"""Run by the guest's root, before the job; at last it has two package sources, one of security updates."""
PACKAGES = ["openmpi-bin", "vtorque-trial"]
"""The first is in the image, so that only the other is installed."""
ADDS = """\
#cloud-config
packages: [openmpi-bin, vtorque-trial]
write_files: [{path: /home/alice/.added/file, permissions: '0600', content: "it's mine\\n"}]
runcmd:
- echo "in $HOME"
- [sh, -c, 'dpkg -s vtorque-trial | grep ^Status; stat -c "%U %a" .added/file; cat .added/file']
"""
UPDATES = {"security_updates": True, "security_updates_timeout": 100, "timeout": 150}
ULIMITS = "ulimit -S -a; ulimit -H -a"
OF_THE_NODE = {
    "physics": 6, "biology": 42, "chemistry": 999,  # what Debian has for disk, shadow and systemd-journal
    "adm": 4, "sudo": 27, "disk": 121, "systemd-journal": 122,  # the image has them too
    "docker": 120,  # and not this one
}  # fmt: skip
"""alice's groups on the nodes, whose distribution numbers them in its own way."""
GIVEN = {"physics": 6, "biology": 42, "chemistry": 999, "g120": 120}
"""What of them he has in the guest: what would give power, and is not there, by its number alone."""


@contextlib.contextmanager
def strong_groups(site: Site) -> t.Iterator[None]:
    """alice is in groups that have the names and the ids of strong ones of the image; the site looks on as root."""
    names, ids = ("|".join(map(str, arguments)) for arguments in (OF_THE_NODE, OF_THE_NODE.values()))
    lines = "".join(f"{name}:x:{number}:alice\n" for name, number in OF_THE_NODE.items())
    change = f"sed -E -i '/^({names}):|^[^:]*:[^:]*:({ids}):/d' /etc/group && cat >>/etc/group"
    place = "/etc/vtorque/guest-hooks"
    for node in NODES:
        site.root(node, f"cp -p /etc/group /etc/group.away && mkdir -p {place}")
    try:
        for node in NODES:
            for script, text in ((change, lines), (f"cat >{place}/prologue", SITE)):
                feed(site, node, script, text)
        yield
    finally:
        for node in NODES:
            site.root(node, f"rm {place}/prologue; mv /etc/group.away /etc/group")


def test_job_in_a_debian_guest(site: Site) -> None:
    """The distribution's system, the user's ids, no power by any name or number, limits, streams, exact status.

    What the user adds is there, and valid by cloud-init's schema, as he wrote it and in the whole seed.  What the
    image has of packages is updated as far as security is concerned, and no further.
    """
    script = site.write("/home/alice/look.sh", LOOK)
    site.write("/home/alice/more.yml", ADDS)
    with strong_groups(site), changed(site, ("fe", *NODES), metadata_packages=PACKAGES, **UPDATES):
        ended = site.job("-vm", "img=debian12,ram=512M,metadata=more.yml", script)
    bare = site.end(site.qsub("-l", f"nodes={ended.node}", stdin=ULIMITS).stdout.strip())
    lines = ended.out.splitlines()
    assert ended.err == "complaint\n"
    _check_additions(lines)
    _check_updates(site, ended, lines)
    assert lines[:7] == ["debian 12", "alice", "1001", "1001", "cloud-init", "node file", "has sudo"]
    _check_groups(lines)
    _check_order(lines)
    assert _limits(ended.out) == _limits(bare.out)
    assert ended.exit_status == 37


HIS = "/srv/his"
SQUATTER = f"""
id -un; id -u
[ "$(id -u squatter)" != 1001 ] && stat -c '%U' {HIS}
ls -l /proc/self/fd >/dev/null && touch "$HOME/mine" && stat -c '%U %u' "$HOME/mine"
"""


@pytest.mark.full
def test_user_id_that_the_image_uses_for_somebody_else(site: Site, tmp_path: pathlib.Path) -> None:
    """He and his files make way, and the job's user is who he is on the node."""
    with image("squatted", of="debian12") as place:
        accounts, his = tmp_path / "passwd", tmp_path / "his"
        accounts.write_text(file_of(place, "/etc/passwd") + "squatter:x:1001:100::/srv:/bin/sh\n")
        accounts.chmod(0o644)
        his.touch()
        edit_disk(place, [
            "rm /etc/passwd", f"write {accounts} /etc/passwd", f"write {his} {HIS}", f"set_inode_field {HIS} uid 1001",
        ])  # fmt: skip
        ended = site.job("-vm", "img=squatted,ram=512M", stdin=SQUATTER)
    assert (ended.out.splitlines(), ended.err) == (["alice", "1001", "squatter", "alice 1001"], "")


@pytest.mark.full
def test_image_in_which_the_user_may_use_sudo_is_refused(site: Site, tmp_path: pathlib.Path) -> None:
    """The site hears why; nothing of the job is run."""
    rule = tmp_path / "rule"
    rule.write_text("alice ALL=(ALL) NOPASSWD: ALL\n")
    rule.chmod(0o440)
    with image("sudoer", of="debian12") as place, changed(site, ("fe", *NODES), node_fault_retries=1):
        edit_disk(place, [f"write {rule} /etc/sudoers.d/alice"])
        job_id = site.submit("-vm", "img=sudoer,ram=512M", stdin="echo RAN\n")
        check_held(site, job_id, "alice may use sudo in this image")
        drop(site, job_id)


def _said(lines: list[str], word: str) -> list[str]:
    """What stands behind a word at the beginning of a line."""
    return [line.partition(" ")[2] for line in lines if line.startswith(f"{word} ")]


def _check_groups(lines: list[str]) -> None:
    """Those of the node that give no power in the image; the image's own have gone from under their numbers."""
    (ids,), (names,) = _said(lines, "ids"), _said(lines, "names")
    # the lab's own group has a blank in its name, and the number 2000
    assert sorted(map(int, ids.split())) == sorted([1001, 2000, *GIVEN.values()])
    assert set(names.split()) == {"alice", "HPC", "Users", *GIVEN}
    # all but what is for a group that he is in: so the same look finds what it should
    assert _said(lines, "reads") == ["/run/of-g120"]
    groups = {name: (number, who) for name, _x, number, who in (line.split(":") for line in _said(lines, "group"))}
    for name, number in GIVEN.items():
        assert groups[name] == (str(number), "alice")
    assert (groups["docker"][1], groups["docker"][0] != "120") == ("", True)
    assert groups["adm"] == ("4", "")
    assert groups["sudo"] == ("27", "")
    for name, used in (("disk", "6"), ("shadow", "42"), ("systemd-journal", "999")):
        assert groups[name][0] not in (used, "121")
        assert "alice" not in groups[name][1]
    assert _said(lines, "left") == []
    assert (_said(lines, "socket"), _said(lines, "disk")) == (["660 disk"], ["660 disk"])
    assert _said(lines, "shadow") == ["640 shadow"]


def _check_additions(lines: list[str]) -> None:
    """In the order in which they stand; by cloud-init's schema, which the image's own has not the library to try."""
    validator = jsonschema.Draft4Validator(json.loads((CHECKOUT / SCHEMA).read_text("utf-8")))
    (seed,) = _said(lines, "seed")
    for text in (base64.b64decode(seed).decode(), ADDS):
        assert text.startswith("#cloud-config\n")
        assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []
    assert "packages" not in yaml.safe_load(base64.b64decode(seed))  # root installs them, by the channel
    assert _said(lines, "added") == [
        "in /home/alice", "Status: install ok installed", "alice 600", "it's mine",
    ]  # fmt: skip
    assert _said(lines, "package") == ["openmpi-bin installed", "vtorque-trial installed"]


def _check_updates(site: Site, ended: Ended, lines: list[str]) -> None:
    """A newer version that is no matter of security is not taken, and the record tells what was done."""
    start = site.last_start(ended.node, ended.job_id)
    (guest,) = json.loads(site.stored(ended.node, ended.job_id, start))["guests"]
    assert {key: guest["updates"].get(key) for key in ("outcome", "packages", "words")} == {
        "outcome": "done", "packages": 1, "words": None,
    }  # fmt: skip
    assert _said(lines, "version") == ["vtorque-dull 1", "vtorque-hole 2"]
    assert "done, 1 package" in site.on(ended.node, "vmgr", "job", "show", ended.job_id).stdout


def _check_order(lines: list[str]) -> None:
    """The user is made before any service starts, and the guest is declared ready after that."""
    times = {name: int(value) for name, sep, value in (line.partition("TimestampMonotonic=") for line in lines) if sep}
    assert 0 < times["ExecMainExit"] < times["ActiveEnter"] < times["ExecMainStart"]


def _limits(text: str) -> list[str]:
    """Those that are carried from a node into a guest, soft, then hard."""
    lines = [" ".join(line.split()) for line in text.splitlines() if "(-" in line or ", -" in line]
    assert len(lines) > 20
    return [line for line in lines if not line.startswith(("pipe size", "file locks", "real-time non-blocking"))]


OF_13 = r"""#!/bin/bash
. /etc/os-release
echo "$ID $VERSION_CODENAME as $(id -un)"
# systemd 257 would mount half of the guest's memory there
stat -f -c 'tmp %T' /tmp
# since 24.3 one process of cloud-init runs all stages, and would wait for those that the image has not
pgrep -f all-stages
echo "stages $?"
exit 37
"""


@pytest.mark.full
def test_guest_of_debian_13_has_its_files_on_its_disk_and_nothing_of_cloud_init_stays(
    site: Site, debian13: str
) -> None:
    ended = site.job("-vm", f"img={debian13},ram=512M,vcpus=1", stdin=OF_13)
    assert ended.out.splitlines() == ["debian trixie as alice", "tmp ext2/ext3", "stages 1"]
    assert (ended.err, ended.exit_status) == ("", 37)
