# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recipe put into a system, by the program of the role `guest_image`; the system is this machine's own."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import recipe, recipe_bundle
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

PROGRAM = COLLECTION_DIR.parent / "roles/guest_image/files/apply_recipe.sh"
# what is mounted goes with the namespace
SYSTEM = """
mount --bind /usr "$1/usr" && mount -o remount,bind,ro "$1/usr" &&
touch "$1/dev/null" && mount --bind /dev/null "$1/dev/null" &&
exec bash "$2" "$1" "$3"
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="chroot is root's")


class Applied(t.NamedTuple):
    """What came of it."""

    status: int
    root: pathlib.Path
    failed: str


def apply(tmp_path: pathlib.Path, text: str) -> Applied:
    root, place = tmp_path / "root", tmp_path / "place"
    place.mkdir()
    for name in ("usr", "proc", "dev", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    # of the system's own: it leads out of the directory where the system is
    (root / "etc/shared").symlink_to("/opt-vm")
    recipe_bundle.pack(recipe.parse(text, tmp_path / "recipe.yml"), place)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SYSTEM, "sh", root, PROGRAM, place], check=False, timeout=60
    )
    report = place / "recipe.failed"
    return Applied(done.returncode, root, report.read_text() if report.exists() else "")


def test_files_come_first_and_commands_see_them(tmp_path: pathlib.Path) -> None:
    done = apply(
        tmp_path,
        "files: [{path: /opt-vm/a/b, content: text, mode: 0600}]\n"
        "commands: ['cat /opt-vm/a/b > /tmp/1', 'id -u > /tmp/2; env > /tmp/3; pwd > /tmp/4', 'cat > /tmp/5']\n",
    )
    assert (done.status, done.failed) == (0, "")
    output = [(done.root / f"tmp/{number}").read_text() for number in range(1, 6)]
    assert (output[0], output[1], output[3], output[4]) == ("text", "0\n", "/\n", "")
    assert "HOME=/root" in output[2]
    assert "PYTHONPATH" not in output[2]
    facts = (done.root / "opt-vm/a/b").stat()
    assert (facts.st_mode & 0o7777, facts.st_uid, (done.root / "opt-vm/a").stat().st_mode & 0o7777) == (0o600, 0, 0o755)


def test_link_of_the_system_leads_to_where_it_leads_there(tmp_path: pathlib.Path) -> None:
    assert not pathlib.Path("/opt-vm/within").exists()
    done = apply(tmp_path, "files: [{path: /opt-vm/x, content: a}, {path: /etc/shared/within, content: inside}]\n")
    assert (done.status, done.failed) == (0, "")
    assert (done.root / "opt-vm/within").read_text() == "inside"
    assert not pathlib.Path("/opt-vm/within").exists()


def test_command_that_failed_is_named_with_its_last_lines(tmp_path: pathlib.Path) -> None:
    done = apply(tmp_path, "commands: ['true', 'seq 100; echo why >&2; exit 7', 'touch /tmp/after']\n")
    lines = done.failed.splitlines()
    assert done.status == 1
    assert lines[0] == "command 2 of 3 of the recipe ended with status 7: seq 100; echo why >&2; exit 7"
    assert lines[1:3] == ["its last lines:", "82"]
    assert lines[-1] == "why"
    assert not (done.root / "tmp/after").exists()


@pytest.mark.parametrize("command", ["false; true", "false | true", "no-such-program"])
def test_failure_within_a_command_counts(tmp_path: pathlib.Path, command: str) -> None:
    done = apply(tmp_path, f"commands: ['{command}']\n")
    assert done.status == 1
    assert done.failed.startswith("command 1 of 1 of the recipe ended with status ")


def test_command_of_a_recipe_leaves_no_process_or_change(tmp_path: pathlib.Path) -> None:
    name = socket.gethostname()
    done = apply(tmp_path, "commands: ['hostname elsewhere; sleep 1000 & kill -0 $!', 'hostname >/tmp/name']\n")
    assert (done.status, done.failed) == (0, "")
    assert (done.root / "tmp/name").read_text() == f"{name}\n"
    assert socket.gethostname() == name
    roots = set()
    for entry in pathlib.Path("/proc").glob("[0-9]*/root"):
        with contextlib.suppress(OSError):  # it has ended
            roots.add(os.readlink(entry))
    assert "/" in roots
    assert str(done.root) not in roots
