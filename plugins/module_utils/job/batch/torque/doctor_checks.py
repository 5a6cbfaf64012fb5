# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of Torque the doctor checks: the MOM's hooks, root's rights with the server, the server's settings."""

from __future__ import annotations

import pathlib
import typing as t

from ....errors import SiteFault
from ....rendering import templates
from ....wire.health_report import BAD, INSTALL, OK, WARN, Finding
from ..shared.hook_program import why_unsafe
from . import permissions
from .mom_files import read_directives
from .mom_hooks import HOOKS, OURS, others
from .server_settings import lets_root

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ..api import BatchSystem

SITE_HOOKS = "/etc/vtorque/site-hooks"
RIGHTS_S = 4.0
"""Seconds for each command that tries a right."""
NAMED = 5
ROOT_SHELLS = ("checkpoint_script", "restart_script")
"""Directives of programs to which root's shell gives text of the user's (`qsub -c enabled,dir=...`), unquoted.

Source: src/resmom/checkpoint.c of Torque 6.1 builds their command line and calls `popen`.
"""


def node_checks(policy: Policy, node: str, *, owner_uid: int, thorough: bool) -> dict[str, t.Callable[[], Finding]]:
    """The checks of a node that only Torque has, by their names; see `DoctorAdapter.node_checks`."""
    mom_priv = pathlib.Path(policy.torque_home) / "mom_priv"
    checks: dict[str, t.Callable[[], Finding]] = {
        "hooks": lambda: check_hooks(mom_priv, owner_uid, expected_hook(policy.prefix_nodes))
    }
    if thorough:
        checks["rights"] = lambda: check_rights(pathlib.Path(policy.pbs_qsub_on_nodes).parent, node)
    return checks


def expected_hook(prefix: str) -> str:
    """The hook of the version that is installed here.

    Args:
        prefix: where it is installed.
    """
    return templates.render("batch/torque/hook.sh.j2", site_dir=None, prefix=prefix, site_hooks=SITE_HOOKS)


def check_hooks(mom_priv: pathlib.Path, owner_uid: int = 0, expected: str = "") -> Finding:
    """Check that our hooks are in place, root's alone, of this version, and such that the MOM may run them.

    Args:
        mom_priv: where.
        owner_uid: whose they must be.
        expected: how they must read, blanks apart; "": not compared.
    """
    wrong = [f"{name} {why}" for name in HOOKS if (why := _wrong_with(mom_priv / name, owner_uid))]
    if wrong:
        return Finding("hooks", BAD, BAD, f"in {mom_priv}: {', '.join(wrong)}", INSTALL)
    if root_programs := _root_programs(mom_priv):
        problems, remedies = zip(*root_programs, strict=True)
        return Finding("hooks", WARN, OK, "; ".join(problems), "; ".join(remedies))
    foreign = [name for name in HOOKS if expected and _split_file(mom_priv / name) != expected.split()]
    if foreign:
        problem = f"{', '.join(foreign)} in {mom_priv}: not as the version that is installed here has it"
        return Finding("hooks", WARN, "other", problem, INSTALL)
    return Finding("hooks")


def _root_programs(mom_priv: pathlib.Path) -> list[tuple[str, str]]:
    """Return what any user can have run by root through the MOM, with the remedy of each."""
    found = []
    if stray := others(mom_priv):
        problem = f"{', '.join(stray[:5])} in {mom_priv}: any user can have it run by root (qsub -T)"
        found.append((problem, "keep it elsewhere"))
    directives = read_directives(mom_priv)
    if shells := [f"${name}" for name in ROOT_SHELLS if directives.get(name)]:
        problem = f"{' and '.join(shells)} in {mom_priv}/config: any user can have text of theirs run by root (qsub -c)"
        found.append((problem, f"remove it, then kill -HUP $(cat {mom_priv}/mom.lock)"))
    return found


def _split_file(path: pathlib.Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split()


def _wrong_with(path: pathlib.Path, owner_uid: int) -> str:
    if wrong := why_unsafe(path, owner_uid):
        return wrong
    try:
        return "" if OURS in path.read_bytes()[:65_536] else "is not vTorque's"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def check_rights(tools: pathlib.Path, node: str) -> Finding:
    """Check that root of this node may do with the batch server what hooks and the sweep do.

    Nothing is changed by the trial.

    Args:
        tools: the directory of the batch system's commands.
        node: this node.
    """
    wrong, silent = [], []
    for name, attempt in permissions.ATTEMPTS:
        try:
            attempt(permissions.Tools(tools, RIGHTS_S), node)
        except permissions.ServerSilent as error:  # nothing of this node's
            silent.append(f"{name}: {error}")
        except permissions.CommandFailed as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        remedy = f"on the front end: qmgr -c 's s operators += root@{node}'"
        return Finding("rights", BAD, BAD, "; ".join(wrong), remedy)
    if silent:
        return Finding("rights", WARN, "?", f"the batch server does not tell: {silent[0]}")
    return Finding("rights", cell="operator")


def check_server(batch: BatchSystem, nodes: t.Sequence[str], preface: str = "") -> Finding:
    """Check that the batch server is set as vTorque needs it; see `DoctorAdapter.check_server`."""
    try:
        server = batch.server()
    except SiteFault as error:
        return Finding("server", WARN, "?", f"it does not tell how it is set: {error}", "is qmgr on this host?")
    lacking = [node for node in nodes if not lets_root((*server.operators, *server.managers), node)]
    if lacking:
        problem = f"root is no operator on {_join_names(lacking)}: jobs there cannot be held, and nodes not set offline"
        return Finding("server", BAD, BAD, problem, f"qmgr -c 's s operators += root@{lacking[0]}', and so on")
    if not server.query_other_jobs:
        problem = "query_other_jobs is not True: nodes and users may not see jobs"
        return Finding("server", BAD, BAD, problem, "qmgr -c 's s query_other_jobs = True'")
    managers = [node for node in nodes if lets_root(server.managers, node)]
    if managers:
        problem = f"root of {_join_names(managers)} is a manager: an operator is enough, and less dangerous"
        return Finding("server", WARN, OK, problem, f"qmgr -c 's s managers -= root@{managers[0]}', and so on")
    if not server.down_on_error:
        problem = "down_on_error is False: a node whose hooks fail (never those of vTorque) stays in use"
        return Finding("server", WARN, OK, problem, "qmgr -c 's s down_on_error = True'")
    if preface:
        problem = f"its commands write text before their answers, which is not read: {preface}"
        return Finding("server", WARN, OK, problem, "let their wrapper write that to standard error")
    return Finding("server")


def _join_names(names: t.Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
