# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's program that makes the job's user, run in a root directory of its own, which is all busybox."""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

SETTINGS = """VTORQUE_USER=alice VTORQUE_UID=5000 VTORQUE_GID=6 VTORQUE_GROUP='HPC Users' VTORQUE_GROUPS='{groups}'
VTORQUE_MOUNTS=
VTORQUE_HOME=/home/alice
VTORQUE_SHELL=/bin/sh VTORQUE_TORQUE_HOME=/var/spool/torque VTORQUE_JOB_SCRIPTS=/var/spool/torque/mom_priv/jobs
"""
GROUPS = "4\tHPC Users 2\n60999\tchem\n27\tdocker\n0\troot\n7\tadm\n"
RUN = """set -e
mount -t tmpfs tmpfs "$1/dev"
: >"$1/dev/vda"; chgrp 6 "$1/dev/vda"
: >"$1/dev/null"
chroot "$1" /bin/sh /identity
stat -c %g "$1/dev/vda" "$1/owned"
"""
MOUNTS = {"run": "tmpfs rw,nosuid", "var/a b": "ext4 rw", "home/bob": "nfs4 rw", "mnt/cd": "ext4 ro,nodev"}
"""File systems of a guest, as its kernel tells of them; here each is a tmpfs."""
MAKE = """set -e
for place in run 'var/a b' home/bob mnt/cd; do
    mount -t tmpfs tmpfs "$1/$place"
    cd "$1/$place"
    : >sock; chown 0:998 sock; : >mail; chown 5000:4 mail
done
mkdir -p "$1/home/alice"; : >"$1/home/alice/own"; chown 5000:998 "$1/home/alice/own"
: >"$1/dev/null"
chroot "$1" /bin/sh /identity
: >"$1/run/late"; chown 5000:998 "$1/run/late"
chroot "$1" /bin/sh /identity
cd "$1" && stat -c '%n %u:%g' run/sock run/late run/mail 'var/a b/sock' home/bob/sock mnt/cd/sock home/alice/own
"""


def prepared(root: pathlib.Path, group: str, groups: str = "") -> None:
    """A system of nothing but busybox, an image's accounts, and what the seed tells.

    Args:
        root: its root directory.
        group: the image's groups.
        groups: the user's supplementary ones, as the seed tells them.
    """
    for name in ("bin", "dev", "etc/vtorque", "proc/self", *MOUNTS):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for name in ("sh", "awk", "find", "chgrp", "chown", "chmod", "stat", "grep", "mkdir", "ln", "sed", "id", "cat"):
        (root / "bin" / name).symlink_to("busybox")
    shutil.copy(templates.COLLECTION_DIR / "guest/identity.sh", root / "identity")
    (root / "etc/vtorque/guest.env").write_text(SETTINGS.format(groups=groups))
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (root / "etc/group").write_text(group)
    (root / "proc/filesystems").write_text("nodev\ttmpfs\nnodev\tnfs4\n\text4\n")
    lines = [f"none /{place.replace(' ', chr(92) + '040')} {kind} 0 0\n" for place, kind in MOUNTS.items()]
    (root / "proc/self/mounts").write_text("".join(["/dev/vda1 / ext4 rw 0 0\ndev /dev devtmpfs rw 0 0\n", *lines]))
    (root / "owned").touch()
    os.chown(root / "owned", 0, 6)


def run(root: pathlib.Path, script: str = RUN) -> list[str]:
    """What identity and the look after it say; they must succeed."""
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", root],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_devices_of_a_group_whose_id_is_the_jobs_are_not_the_users(tmp_path: pathlib.Path) -> None:
    """The image's `disk` has the id 6, and on the node that is the job's group: /dev is a file system of its own."""
    prepared(tmp_path, "root:x:0:\ndisk:x:6:\n")
    assert run(tmp_path)[-2:] == ["60999", "60999"]
    assert "HPC Users:x:6:" in (tmp_path / "etc/group").read_text().splitlines()


def test_files_of_an_id_that_is_the_jobs_are_moved_wherever_the_guest_keeps_them(tmp_path: pathlib.Path) -> None:
    """Sockets in /run, disks of its own, and what a service makes later under the id it knew; nothing of the cluster's.

    What was not to be written stays (a snap's image): nothing that runs from there is reached by a group.
    """
    image = "root:x:0:\ndocker:x:998:\nadm:x:4:\n"
    prepared(tmp_path, image, groups="998\tchem\n4\tbio\n")
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nmailman:x:5000:4::/:/bin/sh\n")
    output = run(tmp_path, MAKE)
    ids = dict(line.rsplit(" ", 1) for line in output[-7:])
    text = (tmp_path / "etc/passwd").read_text() + (tmp_path / "etc/group").read_text()
    accounts = {line.split(":")[0]: line.split(":")[2] for line in text.splitlines()}
    mailman = accounts["mailman"]
    docker, adm = accounts["docker"], accounts["adm"]
    assert not {docker, adm, mailman} & {"998", "4", "5000"}
    assert (accounts["chem"], accounts["bio"]) == ("998", "4")
    assert ids == {
        "run/sock": f"0:{docker}", "run/late": f"{mailman}:{docker}", "run/mail": f"{mailman}:{adm}",
        "var/a b/sock": f"0:{docker}", "home/bob/sock": "0:998", "mnt/cd/sock": "0:998", "home/alice/own": "5000:6",
    }  # fmt: skip


def test_supplementary_groups_are_the_nodes(tmp_path: pathlib.Path) -> None:
    """Blanks in a name, ids that the image uses, and none that gives power here; done again it is the same."""
    prepared(tmp_path, "root:x:0:\nadm:x:4:alice\ndocker:x:998:\nchem:x:12:\n", groups=GROUPS)
    output = run(tmp_path)
    first = (tmp_path / "etc/group").read_text()
    assert "group docker gives power in this image, and is left out" in output
    assert "group root gives power in this image, and is left out" in output
    assert "group adm gives power in this image, and is left out" in output
    assert "group adm of the image has the id 60998 here, as 4 is the job's" in output
    assert sorted(first.splitlines()) == [
        "HPC Users 2:x:4:alice", "HPC Users:x:6:", "adm:x:60998:", "chem:x:60999:alice", "docker:x:998:", "root:x:0:",
    ]  # fmt: skip
    assert not [line for line in run(tmp_path) if "group" in line]
    assert sorted((tmp_path / "etc/group").read_text().splitlines()) == sorted(first.splitlines())


def test_user_of_the_nodes_journal_group_reads_no_guests_journal(tmp_path: pathlib.Path) -> None:
    """It has what root's own programs said there, as adm has the logs."""
    prepared(tmp_path, "root:x:0:\nsystemd-journal:x:999:\n", groups="101\tsystemd-journal\n12\tchem\n")
    assert "group systemd-journal gives power in this image, and is left out" in run(tmp_path)
    groups = (tmp_path / "etc/group").read_text().splitlines()
    assert {"systemd-journal:x:999:", "chem:x:12:alice"} <= set(groups)


def test_group_that_would_give_power_is_kept_by_its_number_where_the_image_has_none_of_that_name(
    tmp_path: pathlib.Path,
) -> None:
    """What root installs later takes a group of its name for its own: this user must not be in it."""
    prepared(tmp_path, "root:x:0:\ng998:x:3:\n", groups="998\tdocker\n12\tg998_\n")
    output = run(tmp_path)
    assert "group docker would give power to its members if it were made here: it is g998__" in output
    for _time in range(2):
        groups = (tmp_path / "etc/group").read_text().splitlines()
        assert {"g998__:x:998:alice", "g998_:x:12:alice", "g998:x:3:"} <= set(groups)
        assert not [line for line in groups if line.startswith("docker:")]
        run(tmp_path)


def test_directory_for_the_cookie_of_a_display_is_the_users_alone(tmp_path: pathlib.Path) -> None:
    """sshd leaves it there, as the user (xauth.sh)."""
    prepared(tmp_path, "root:x:0:\n")
    for _time in range(2):
        run(tmp_path)
        found = (tmp_path / "run/vtorque/x11").stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o700, 5000, 6)


@pytest.mark.parametrize(
    "source", ["batch/torque/guest/pbsdsh", "batch/slurm/guest/srun", "batch/slurm/guest/scontrol"]
)
def test_program_is_found_by_login_shells_and_an_images_own_stays(tmp_path: pathlib.Path, source: str) -> None:
    """Done again it is silent; what the image has in that very place is not touched, and a word says so."""
    program = templates.COLLECTION_DIR / "guest/identity.sh"
    text = program.read_text()
    function = text[text.index("offer_programs()") : text.index("\n}\n", text.index("offer_programs()")) + 3]
    here = function.replace("/usr/", f"{tmp_path}/usr/") + "offer_programs; offer_programs\n"
    name = source.rpartition("/")[2]
    ours, place = tmp_path / "usr/lib/vtorque/bin" / name, tmp_path / "usr/local/bin" / name
    ours.parent.mkdir(parents=True)
    shutil.copy(templates.COLLECTION_DIR / f"{source}.sh", ours)
    assert output_of(here) == ""
    assert place.readlink() == ours
    place.unlink()
    place.write_text("the image's")
    assert (
        output_of(here).splitlines()
        == [f"the image has its own {place}, which stays; the one for guests is {ours}"] * 2
    )
    assert place.read_text() == "the image's"


def output_of(script: str) -> str:
    """What a script writes, under the image's shell."""
    done = subprocess.run(["dash", "-eu"], input=script, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("rdma", [False, True])
def test_user_of_a_guest_with_rdma_may_lock_memory_at_once(tmp_path: pathlib.Path, rdma: bool) -> None:
    """By every login, also of programs that other guests of the job start."""
    prepared(tmp_path, "root:x:0:\n")
    (tmp_path / "etc/security/limits.d").mkdir(parents=True)
    (tmp_path / "proc/sys/fs").mkdir(parents=True)
    (tmp_path / "proc/sys/fs/nr_open").write_text("1048576\n")
    if rdma:
        (tmp_path / "etc/vtorque/rdma").write_text("rxe\n")
    run(tmp_path, RUN.replace("chgrp 6", "chgrp 0"))
    limits = (tmp_path / "etc/security/limits.d/vtorque.conf").read_text().splitlines()
    assert ":5000 hard memlock unlimited" in limits
    assert (":5000 soft memlock unlimited" in limits) == rdma
