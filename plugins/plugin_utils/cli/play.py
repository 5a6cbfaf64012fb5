# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook, for a hook in a hurry: the same program, begun by its module and ended without its farewell.

    play ARGUMENT...      ansible-playbook ARGUMENT...
    play                  loads, then reads what to play from standard input: {"arguments", "environment", "log"}

`python -m ansible playbook` reads the metadata of its package to find what is imported here by name, Ansible reads all
connection plugins there are before it needs one, and Python takes so large an interpreter apart piece by piece: that is
half of the 0.9 s of processor time that an empty play costs.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import shutil
import sys
import typing as t

from ...module_utils.system import signals
from ..play import node_socket

NEEDED = (
    "ansible.executor.task_executor",
    "ansible.plugins.strategy.linear",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.serialization",
    "ipaddress",
    "xml.etree.ElementTree",
)
"""What a play of ours imports on its way, and so can have been imported before."""
HOOK = "VTORQUE_HOOK"
"""The process of the hook, with which this one ends."""


def main() -> int:
    """Play; the exit status."""
    _die_with(os.environ.pop(HOOK, ""))
    node_socket.keep_from_programs(os.environ)
    gc.disable()  # one short run: nothing that it would find is worth the search
    # what Python imported to begin us is not what Ansible's own loader of collections makes of the same names
    for name in [name for name in sys.modules if name.partition(".")[0] == "ansible_collections"]:
        del sys.modules[name]
    from ansible.cli.playbook import PlaybookCLI

    _load_what_is_used()
    arguments = sys.argv[1:] or _hear()
    try:
        PlaybookCLI.cli_executor(["ansible-playbook", *arguments])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _die_with(hook: str) -> None:
    """A hook that is killed takes its playbook with it, which would make guests for a start that is over."""
    if not hook:
        return
    if not signals.die_with(int(hook)):
        os._exit(1)


def _hear() -> list[str]:
    """Load all that is needed, then wait to be told what to play; the end of standard input means nothing."""
    for name in NEEDED:
        importlib.import_module(name)
    text = sys.stdin.buffer.read()
    if not text:
        leave(0)
    order = json.loads(text)
    os.environ.update(order["environment"])
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return list(order["arguments"])


def _load_what_is_used() -> None:
    """Leave out what `PlaybookExecutor.run` loads only to have every plugin's settings at hand: a play gets its own."""
    from ansible.plugins import loader

    for plugins in (loader.connection_loader, loader.shell_loader, loader.become_loader):

        def find(*args: t.Any, find_all: t.Any = plugins.all, **kwargs: t.Any) -> t.Any:
            return () if kwargs == {"class_only": True} and not args else find_all(*args, **kwargs)

        setattr(plugins, "all", find)  # noqa: B010 - a method of theirs


def leave(status: int) -> t.NoReturn:
    """End at once; what Ansible would still have done is to remove its own directory of temporary files."""
    from ansible import constants

    shutil.rmtree(t.cast(t.Any, constants).DEFAULT_LOCAL_TMP, ignore_errors=True)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main())
