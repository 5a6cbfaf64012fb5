# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hooks' own work, called by the launcher (`templates/launchers/hook.sh.j2`), which chains the site's hooks.

How this ends is never Torque's business: the launcher decides the hook's status.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
import types
import typing as t

from ...module_utils import records
from ...module_utils.errors import VTorqueError
from ...module_utils.job import epilogue, prologue
from ...module_utils.job.hook_call import HookCall, hook_began, parse_call
from ...module_utils.job.playbook import Places

LOG = "hooks.log"


def main(argv: t.Sequence[str] | None = None, places: Places | None = None) -> int:
    """Do what the hook's role asks.

    Returns:
        0, or 1 when something failed, which is then said in one line on standard error (the job's .ER) and in the log.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    places = places or Places()
    _settle()
    try:
        call = parse_call(words)
        _dispatch(call, places)
    except (VTorqueError, OSError, subprocess.SubprocessError) as error:
        os.write(2, f"vtorque: this job's hook failed: {error}\n".encode(errors="replace"))
        _keep(places, " ".join(map(repr, words[:6])), "".join(traceback.format_exception(error)))
        return 1
    return 0


def _dispatch(call: HookCall, places: Places) -> None:
    if call.role == "prologue":
        prologue.run(call, places, began=hook_began())
    elif call.role == "epilogue":
        epilogue.run(call, places, began=hook_began())
    else:
        epilogue.run_sister(call, places)


def _settle() -> None:
    """Undo what a hook inherits: blocked and ignored signals, the MOM's descriptors, the umask (torque.md)."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # Python itself ignores PIPE and XFSZ, and gives them back to its children
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def _keep(places: Places, call: str, text: str) -> None:
    """Add to the log of what belongs to no job; when even that fails, standard error had it."""
    try:
        path = places.state_dir / "log" / LOG
        records.make_directory(path.parent)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "a", encoding="utf-8") as stream:
            stream.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {call}\n{text}\n")
    except (OSError, VTorqueError):
        return


def _unexpected(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """A fault of ours: the user reads one line, the administrator the rest."""
    os.write(2, f"vtorque: a fault in vTorque itself: {kind.__name__}: tell the administrator\n".encode())
    _keep(Places(), " ".join(map(repr, sys.argv[1:6])), "".join(traceback.format_exception(kind, error, trace)))


if __name__ == "__main__":
    sys.excepthook = _unexpected
    sys.exit(main())
