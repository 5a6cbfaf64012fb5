# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program of the guest that runs others in the job's guests by ssh: here with an ssh that runs everything here."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

FAKE_SSH = """#!/bin/sh
# as sshd does: the words become one line of the user's login shell, in an environment of its own
while [ "${1#-}" != "$1" ]; do [ "$1" = -o ] && shift; shift; done
echo "$1" >>"$CALLS"
shift
exec env -i HOME="$FAR_HOME" PATH="$PATH" USER=alice CALLS="$CALLS" /bin/sh -c "$*"
"""
Result = subprocess.CompletedProcess[str]
SHELLS: dict[str, tuple[str, ...]] = {"dash": ("/bin/dash",), "busybox": ("/bin/busybox", "sh")}
"""By their names, the shells of images under which such a program is tested."""
INCLUDED = '{% include "guest/command.sh" %}'


def check_includes_alone(program: str) -> None:
    """Check that nothing of a program is Jinja's but the include of what programs share."""
    text, included = ((templates.COLLECTION_DIR / path).read_text() for path in (program, "guest/command.sh"))
    assert templates.render(program, site_dir=None) == text.replace(INCLUDED, included.removesuffix("\n"))


@dataclasses.dataclass(frozen=True)
class LaunchedProgram:
    """Where the program is tested.

    Attributes:
        command: that starts it.
        environment: of the job.
        place: directory of the test; `bin` in it comes first in the job's PATH.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    place: pathlib.Path

    @classmethod
    def under(cls, shell: str, place: pathlib.Path, program: str, **variables: str) -> t.Self:
        """Return one that runs under a shell, in a new home directory, with `FAKE_SSH` for its ssh.

        Args:
            shell: of `SHELLS`; with busybox nothing of the system but its applets is in the PATH.
            place: directory of the test.
            program: its path; a relative one is below `place`.
            **variables: of the job, besides PATH, HOME and those of `FAKE_SSH`.
        """
        programs = place / "bin"
        programs.mkdir()
        path = f"{programs}:/usr/bin:/bin"
        if shell == "busybox":
            path = str(programs)
            listed = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True)
            for applet in listed.stdout.split():
                (programs / applet).symlink_to("/bin/busybox")
        (place / "home").mkdir()
        home = str(place / "home")
        environment = {"PATH": path, "HOME": home, "FAR_HOME": home, "CALLS": str(place / "calls"), **variables}
        found = cls((*SHELLS[shell], str(place / program)), environment, place)
        found.add_program("ssh", FAKE_SSH)
        return found

    def run(self, *arguments: str, stdin: str = "", **variables: str) -> Result:
        """Return how the program ended."""
        return subprocess.run(
            [*self.command, *arguments],
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            input=stdin,
            cwd=self.place,
            check=False,
        )

    def called(self) -> list[str]:
        """Return the hosts that ssh was called for, sorted."""
        calls = self.place / "calls"
        return sorted(calls.read_text().split()) if calls.exists() else []

    def add_program(self, name: str, text: str) -> None:
        """Put a program where the job finds it."""
        path = self.place / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
