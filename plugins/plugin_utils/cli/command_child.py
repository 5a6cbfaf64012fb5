# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch system's command as a child of `vsub`: over a copy of the script, or to explain a refusal."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import subprocess
import sys
import tempfile
import typing as t


def run(command: t.Sequence[str], environment: t.Mapping[bytes, bytes]) -> int:
    """Run it to its end; return its exit status, as a shell's for a signal.

    Raises:
        OSError: it cannot be run.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    status = subprocess.run(command, env=environment, check=False).returncode
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def write_copy(program: str, name: str, content: bytes) -> t.Iterator[pathlib.Path]:
    """Keep a copy of a script, of the same base name, after which the job is named; a signal takes it away, too.

    Args:
        program: by whose name people know the copy's directory.
        name: path of the script.
        content: of the copy.
    """

    def end(number: int, _frame: object) -> t.NoReturn:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    with tempfile.TemporaryDirectory(prefix=f"{program}.") as directory:
        copy = pathlib.Path(directory) / pathlib.Path(name).name
        copy.write_bytes(content)
        yield copy
