# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's program that makes what the user adds, in a root directory of its own, with stand-ins for packages."""

from __future__ import annotations

import base64
import os
import pathlib
import shutil
import stat
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import user_additions
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import (
    AddedFile,
    Additions,
    Command,
    Package,
)

from .busybox_root import BusyboxRoot

UID = 4242
USERS = 90
"""Exit status of the program where the user can mend it."""
HOME = "/home/it's alice"
APPLETS = (
    "sh",
    "grep",
    "mkdir",
    "sleep",
    "timeout",
    "tail",
    "rm",
    "mv",
    "chmod",
    "base64",
    "env",
    "su",
    "id",
    "cat",
    "touch",
)
DPKG = "#!/bin/sh\nfor name; do :; done\ngrep -x \"$name\" /installed >/dev/null && echo 'ii '\n"
APT = """#!/bin/sh
echo "apt-get $*" >>/asked
for name; do [ ! -e "/fails-$name" ] || { echo "E: no route to the mirror" >&2; exit 100; }; done
case " $* " in
    *" install "*) for name; do :; done; echo "$name" >>/installed ;;
esac
exit 0
"""
CACHE = '#!/bin/sh\n[ "$2" != unknown ]\n'


def base(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Guest(BusyboxRoot):
    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root, ("etc/vtorque", "proc", "run", "tmp", "usr/lib/vtorque", HOME[1:]), APPLETS)
        root.chmod(0o755)
        (root / "tmp").chmod(0o1777)
        os.chown(root / HOME[1:], UID, UID)
        (root / "dev/null").chmod(0o666)
        (root / "proc/uptime").write_text("5.07 9.11\n")
        (root / "etc/passwd").write_text(f"root:x:0:0::/:/bin/sh\nalice:x:{UID}:{UID}::{HOME}:/bin/false\n")
        (root / "etc/group").write_text(f"root:x:0:\nalice:x:{UID}:\n")
        (root / "etc/vtorque/guest.env").write_text(
            f'VTORQUE_USER=alice\nVTORQUE_NAME=vcn1-1\nVTORQUE_SHELL=/bin/bash\nVTORQUE_HOME="{HOME}"\n'
        )
        shutil.copy(templates.COLLECTION_DIR / "guest/additions.sh", root / "usr/lib/vtorque/additions")
        (root / "usr/lib/vtorque/additions").chmod(0o755)

    def debian(self, *installed: str) -> None:
        for name, text in (("dpkg-query", DPKG), ("apt-get", APT), ("apt-cache", CACHE)):
            self.program(name, text)
        (self.root / "etc/apt/sources.list.d").mkdir(parents=True)
        (self.root / "etc/apt/sources.list.d/site.sources").write_text("Types: deb\nURIs: http://mirror/debian\n")
        (self.root / "installed").write_text("".join(f"{name}\n" for name in installed))

    def make(self, added: Additions, seconds: int = 60) -> subprocess.CompletedProcess[str]:
        text = templates.render("cloud-init/additions.j2", site_dir=None, seed={"additions": added})
        (self.root / "etc/vtorque/additions").write_text(text)
        (self.root / "etc/vtorque/additions").chmod(0o600)
        return subprocess.run(
            ["/usr/sbin/chroot", self.root, "/bin/sh", user_additions.PROGRAM, str(seconds)],
            capture_output=True, text=True, timeout=300, check=False, umask=0o077,
            env={
                "VTORQUE_PASSED_ON": "PBS_JOBID PBS_NODEFILE VTORQUE_RANK", "PBS_JOBID": "7.head",
                "PBS_NODEFILE": "/aux/7.head", "VTORQUE_RANK": "0", "SECRET": "of root",
            },
        )  # fmt: skip


@pytest.fixture
def guest(tmp_path: pathlib.Path) -> Guest:
    tmp_path.chmod(0o755)
    return Guest(tmp_path)


def run(*lines: str) -> Additions:
    return Additions(commands=tuple(map(Command, lines)))


def test_files_are_the_users_whole_and_with_their_mode(guest: Guest) -> None:
    path, content = f"{HOME}/.a b/$(id)/it's", "it's\n\n$HOME `id` \\n\n"
    done = guest.make(Additions(files=(AddedFile(path, "640", base(content)), AddedFile("/tmp/empty", "755", ""))))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    file = guest.root / path[1:]
    assert file.read_text() == content
    assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (UID, 0o640)
    assert [one.name for one in file.parent.iterdir()] == [file.name]
    assert stat.S_IMODE((guest.root / "tmp/empty").stat().st_mode) == 0o755


def test_a_file_that_is_there_is_replaced_and_no_link_is_followed_as_root(guest: Guest) -> None:
    (guest.root / "etc/shadow").write_text("root:*\n")
    (guest.root / "etc/shadow").chmod(0o600)
    (guest.root / "tmp/link").symlink_to("/etc/shadow")
    os.chown(guest.root / "tmp/link", UID, UID, follow_symlinks=False)
    (guest.root / "tmp/way").symlink_to("/etc")
    assert guest.make(Additions(files=(AddedFile("/tmp/link", "644", base("mine")),))).returncode == 0
    assert (guest.root / "tmp/link").read_text() == "mine"
    done = guest.make(Additions(files=(AddedFile("/tmp/way/shadow", "644", base("mine")),)))
    assert done.returncode == USERS
    assert done.stdout.splitlines()[-1].startswith("file /tmp/way/shadow: ")
    assert "Permission denied" in done.stdout
    assert (guest.root / "etc/shadow").read_text() == "root:*\n"


def test_directory_in_the_way_is_told(guest: Guest) -> None:
    (guest.root / "tmp/there").mkdir()
    done = guest.make(Additions(files=(AddedFile("/tmp/there", "644", ""),)))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (90, "file /tmp/there: a directory is there")


def test_commands_run_as_the_user_in_his_home_after_the_files(guest: Guest) -> None:
    lines = (
        "id -u >/tmp/seen; id -G >>/tmp/seen; umask >>/tmp/seen; pwd >>/tmp/seen",
        'echo "$USER $LOGNAME $SHELL $HOME $PATH $PBS_JOBID $PBS_NODEFILE $VTORQUE_RANK ${SECRET-none}" >>/tmp/seen',
        "cat >>/tmp/seen; cat /tmp/file >>/tmp/seen; echo to standard output; echo word >/dev/stderr",
    )
    (guest.root / "dev/stderr").symlink_to("/proc/self/fd/2")
    added = Additions(
        files=(AddedFile("/tmp/file", "600", base("of the file\n")),), commands=tuple(map(Command, lines[:2]))
    )
    done = guest.make(Additions(files=added.files, commands=(*added.commands, Command(lines[2].rpartition(";")[0]))))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (guest.root / "tmp/seen").read_text().splitlines() == [
        str(UID), str(UID), "0022", HOME,
        f"alice alice /bin/bash {HOME} /usr/local/bin:/usr/bin:/bin 7.head /aux/7.head 0 none", "of the file",
    ]  # fmt: skip
    log = guest.root / "tmp/vtorque-metadata.log"
    assert (log.read_text(), log.stat().st_uid) == ("to standard output\n", UID)


def test_first_command_that_fails_ends_it_and_its_words_are_told(guest: Guest) -> None:
    done = guest.make(run("true", "echo no licence; exit 3", "touch /tmp/never"))
    assert done.returncode == USERS
    assert [line for line in done.stdout.splitlines() if line] == ["no licence", "command 2 ended with status 3"]
    assert not (guest.root / "tmp/never").exists()


def test_command_that_would_never_end_is_ended(guest: Guest) -> None:
    """Its own clock stands still here, so that it is the status which is told."""
    done = guest.make(run("trap '' TERM; while :; do sleep 1; done"), seconds=1)
    assert done.returncode == USERS
    assert "command 1 ended with status" in done.stdout


def test_no_time_left_is_told_as_that(guest: Guest) -> None:
    (guest.root / "proc/uptime").chmod(0o666)
    done = guest.make(run("echo 70.00 0 >/proc/uptime; exit 1"), seconds=60)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (90, "command 1 was not done in time")


def test_packages_that_are_there_cost_nothing(guest: Guest) -> None:
    guest.debian("make")
    assert guest.make(Additions(packages=(Package("make"),))).returncode == 0
    assert guest.asked == []


def test_what_is_missing_is_installed_before_anything_of_the_users(guest: Guest) -> None:
    guest.debian("make")
    packages = (Package("make"), Package("cmake"))
    done = guest.make(Additions(packages=packages, commands=(Command("cat /installed >/tmp/then"),)))
    assert (done.returncode, (guest.root / "tmp/then").read_text()) == (0, "make\ncmake\n")
    assert (guest.root / "installed").read_text() == "make\ncmake\n"
    update, install = guest.asked
    assert update.endswith(" update")
    assert install.endswith(" install cmake")


@pytest.mark.parametrize(
    ("mark", "packages", "status", "message"),
    [
        ("sourceless", ["cmake"], 90, "packages: cmake: this image has no package sources"),
        ("fails-update", ["cmake"], 91, "packages: cmake: their lists cannot be fetched: E: no route to the mirror"),
        ("fails-install", ["cmake"], 91, "packages: cmake: not installed: E: no route to the mirror"),
        ("nothing", ["unknown"], 90, "packages: unknown: the image's package sources have none"),
    ],
)
def test_missing_package_ends_with_the_status_of_whose_fault_it_is(
    guest: Guest, mark: str, packages: list[str], status: int, message: str
) -> None:
    guest.debian()
    (guest.root / mark).touch()
    if mark == "sourceless":
        (guest.root / "etc/apt/sources.list.d/site.sources").write_text("# URIs: http://mirror/debian\n")
    done = guest.make(Additions(packages=tuple(map(Package, packages))))
    assert (done.returncode, done.stdout.splitlines()[-1][: len(message)]) == (status, message)


def test_image_without_a_package_manager_says_so(guest: Guest) -> None:
    done = guest.make(Additions(packages=(Package("make"),), commands=(Command("touch /tmp/never"),)))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (90, "packages: make: this image can install none")
    assert not (guest.root / "tmp/never").exists()


@pytest.mark.parametrize(
    ("output", "status"), [("No match for argument: cmake", 90), ("Curl error (6): Couldn't resolve host", 91)]
)
def test_red_hats_family_is_asked_by_rpm_and_dnf(guest: Guest, output: str, status: int) -> None:
    guest.program("rpm", '#!/bin/sh\n[ "$3" = make ]\n')
    guest.program("dnf", f'#!/bin/sh\necho "dnf $*" >>/asked\necho "{output}"\nexit 1\n')
    assert guest.make(Additions(packages=(Package("make"),))).returncode == 0
    assert guest.asked == []
    done = guest.make(Additions(packages=(Package("make"), Package("cmake"))))
    assert (done.returncode, done.stdout.splitlines()[-1].endswith(output)) == (status, True)
    assert guest.asked == ["dnf -q -y --setopt=install_weak_deps=False install cmake"]
