# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every reach into what Ansible does not promise to keep: nothing else that a hook comes to makes one.

Actions of roles alone (`job_actions/controller_action.py`) use attributes of Ansible's `ActionBase` besides, as those
of Ansible itself do.

Each function is one reach.  It raises `AnsibleChanged` where ansible-core has not what it expects, and the caller then
does without: where playing needs it (`forget_collection`, `playbook_program`), by plain ansible-playbook; what only
saves time (`load_modules`, `list_no_plugins`, `remove_temporary_files`) is left out.  All of them hold for
ansible-core 2.18 to 2.21, and the tests of this file, one a reach, name those that a new ansible-core has changed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import shutil
import sys
import typing as t

NEEDED = (
    "ansible.executor.task_executor",
    "ansible.plugins.strategy.linear",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.serialization",
    "ipaddress",
    "xml.etree.ElementTree",
)
"""What a play of ours imports on its way, and so can have been imported before."""
LOADERS = ("connection_loader", "shell_loader", "become_loader")
"""Those whose plugins `PlaybookExecutor.run` lists before it plays."""


class AnsibleChanged(Exception):
    """A private part of Ansible is not what it was."""


@contextlib.contextmanager
def _reach(what: str) -> t.Iterator[None]:
    """Whatever goes wrong in a reach has one name, with the part that is meant."""
    try:
        yield
    except AnsibleChanged:
        raise
    except Exception as error:
        raise AnsibleChanged(f"{what}: {type(error).__name__}: {error}") from error


def forget_collection() -> None:
    """Let Ansible's own loader of collections find ours, although Python has imported this program from it.

    Reaches `ansible.utils.collection_loader`: its finder makes packages of its own for all below `ansible_collections`,
    and is not asked for what is in `sys.modules` already.  To be called before Ansible is loaded.

    Raises:
        AnsibleChanged: Ansible has no such finder.
    """
    with _reach("ansible.utils.collection_loader"):
        if importlib.util.find_spec("ansible.utils.collection_loader") is None:
            raise AnsibleChanged("ansible.utils.collection_loader is not there")
        for name in [name for name in sys.modules if name.partition(".")[0] == "ansible_collections"]:
            del sys.modules[name]


def playbook_program() -> t.Callable[[t.Sequence[str]], int]:
    """Return ansible-playbook as a function of its arguments, which returns its exit status.

    Reaches `ansible.cli.playbook.PlaybookCLI.cli_executor`, which the entry point of ansible-playbook calls: it takes
    the words of the command line, the first of which is the program's name, and raises SystemExit with the status.

    Raises:
        AnsibleChanged: there is no such class or method.
    """
    with _reach("ansible.cli.playbook.PlaybookCLI.cli_executor"):
        execute = importlib.import_module("ansible.cli.playbook").PlaybookCLI.cli_executor
        if not callable(execute):
            raise AnsibleChanged("ansible.cli.playbook.PlaybookCLI.cli_executor is no method")

    def run(arguments: t.Sequence[str]) -> int:
        try:
            execute(["ansible-playbook", *arguments])
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        return 0

    return run


def load_modules() -> None:
    """Import what a play of ours will import, while there is nothing to play yet.  It only saves time.

    Reaches the modules of Ansible in `NEEDED`: the executor of tasks, and the strategy `linear`.

    Raises:
        AnsibleChanged: one of them is not there.
    """
    for name in NEEDED:
        with _reach(name):
            importlib.import_module(name)


def list_no_plugins() -> None:
    """Leave out what `PlaybookExecutor.run` loads only to have every plugin's settings at hand: a play gets its own.

    It only saves time: a playbook plays the same without it, later.

    Reaches `ansible.plugins.loader`: each of `LOADERS` has a method `all`, which `PlaybookExecutor.run` calls with
    `class_only=True` alone.  Whoever calls it in another way gets what they asked for.

    Raises:
        AnsibleChanged: there is no such loader or method.
    """
    with _reach("ansible.plugins.loader"):
        loader = importlib.import_module("ansible.plugins.loader")
        found = {name: getattr(loader, name).all for name in LOADERS}
    for name, plugins in found.items():

        def find(*args: t.Any, find_all: t.Any = plugins, **kwargs: t.Any) -> t.Any:
            return () if kwargs == {"class_only": True} and not args else find_all(*args, **kwargs)

        getattr(loader, name).all = find


def remove_temporary_files() -> None:
    """Remove Ansible's own directory of temporary files, which it would do at its exit.

    Reaches `ansible.constants.DEFAULT_LOCAL_TMP`: the directory that Ansible makes for this process when it loads.

    Raises:
        AnsibleChanged: there is no such constant.
    """
    with _reach("ansible.constants.DEFAULT_LOCAL_TMP"):
        shutil.rmtree(str(setting("DEFAULT_LOCAL_TMP")), ignore_errors=True)


def setting(name: str) -> t.Any:
    """Return a setting of Ansible's own configuration.

    Reaches `ansible.constants`, which makes its names when it is loaded.

    Args:
        name: as ansible-config lists it.

    Raises:
        AnsibleChanged: it has none of that name.
    """
    with _reach(f"ansible.constants.{name}"):
        return getattr(importlib.import_module("ansible.constants"), name)
