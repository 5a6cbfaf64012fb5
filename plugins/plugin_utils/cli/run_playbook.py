# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-playbook, for a hook in a hurry: the same program, begun by its module, and its exit is left out.

    run_playbook ARGUMENT...            ansible-playbook ARGUMENT...
    run_playbook                        loads, then reads from standard input {"arguments", "environment", "log"}
    run_playbook --plain ARGUMENT...    becomes ansible-playbook itself

`python -m ansible playbook` reads the metadata of its package to find what is imported here by name, Ansible reads all
connection plugins there are before it needs one, and Python takes so large an interpreter apart piece by piece: that is
half of the 0.9 s of processor time that an empty play costs.  What all this leans on is Ansible's own business
(`faststart/ansible_internals.py`); where playing needs what has changed, this program becomes ansible-playbook itself
as well, and where that only saves time, it does without and says so.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import typing as t

from ...module_utils.job.hooks.playbook_call import HOOK, PLAIN
from ...module_utils.system.process import signals
from ..faststart import ansible_internals, node_socket
from ..faststart.ansible_internals import AnsibleChanged

PLAYBOOK = (sys.executable, *(("-I",) if sys.flags.isolated else ()), "-m", "ansible", "playbook")
"""Ansible's own call of ansible-playbook, with the interpreter of this one."""


def main() -> int:
    """Run the playbook.

    Returns:
        Its exit status.
    """
    _die_with(os.environ.pop(HOOK, ""))
    if sys.argv[1:2] == [PLAIN]:
        become_playbook(sys.argv[2:])
    gc.disable()  # one short run: nothing that it would find is worth the search
    try:
        run, slower = _load(whole=not sys.argv[1:])
    except AnsibleChanged as error:
        arguments = sys.argv[1:] or _read_request()
        os.write(2, f"vtorque: plain ansible-playbook plays, since this ansible-core is another: {error}\n".encode())
        _remove_temporary_files()
        become_playbook(arguments)
    node_socket.keep_from_programs(os.environ)
    arguments = sys.argv[1:] or _read_request()
    for reason in slower:
        os.write(2, f"vtorque: Ansible begins later, since this ansible-core is another: {reason}\n".encode())
    return run(arguments)


def _die_with(hook: str) -> None:
    """A hook that is killed takes its playbook with it, which would make guests for a start that is over."""
    if not hook:
        return
    if not signals.die_with(int(hook)):
        os._exit(1)


def _load(*, whole: bool) -> tuple[t.Callable[[t.Sequence[str]], int], list[AnsibleChanged]]:
    """Make every reach into Ansible that playing needs, and those that only save time.

    Args:
        whole: load all that a play of ours needs, for there is time.

    Returns:
        The function that runs a playbook, and why it will take longer than it could.

    Raises:
        AnsibleChanged: nothing can be played in this process.
    """
    ansible_internals.forget_collection()
    run = ansible_internals.playbook_program()
    slower = []
    for save_time in (ansible_internals.list_no_plugins, *((ansible_internals.load_modules,) if whole else ())):
        try:
            save_time()
        except AnsibleChanged as error:
            slower.append(error)
    return run, slower


def _read_request() -> list[str]:
    """Return the arguments that standard input names; end where it is empty: there is nothing to run."""
    text = sys.stdin.buffer.read()
    if not text:
        leave(0)
    order = json.loads(text)
    os.environ.update(order["environment"])
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return list(order["arguments"])


def become_playbook(arguments: t.Sequence[str]) -> t.NoReturn:
    """Become ansible-playbook: it inherits the way to the early node, and still ends with the hook."""
    os.execv(PLAYBOOK[0], [*PLAYBOOK, *arguments])  # noqa: S606 - no shell is wanted


def _remove_temporary_files() -> None:
    """Remove Ansible's temporary files, where it is loaded: else they stay when it ends at once, or becomes another."""
    if "ansible.constants" in sys.modules:  # which makes the directory
        with contextlib.suppress(AnsibleChanged):
            ansible_internals.remove_temporary_files()


def leave(status: int) -> t.NoReturn:
    """End at once; what Ansible would still have done is to remove its own directory of temporary files."""
    _remove_temporary_files()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main())
