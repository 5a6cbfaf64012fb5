# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of OpenPBS the doctor checks: the server's copy of our hook on a node, and what only the site may set."""

from __future__ import annotations

import fnmatch
import pathlib
import re
import typing as t

from ....errors import SiteFault
from ....rendering import templates
from ....wire.health_report import BAD, OK, WARN, Finding
from ..host_match import same_host
from .adapter import OpenPbs
from .hook_calls import HOOK

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ..api import BatchSystem

EVENTS = (
    "execjob_begin",
    "execjob_prologue",
    "execjob_launch",
    "execjob_preterm",
    "execjob_abort",
    "execjob_epilogue",
    "execjob_end",
    "execjob_postsuspend",
    "execjob_preresume",
)
"""Those that our hook must have (docs/admin/openpbs.md)."""
PLACE = "/etc/vtorque/openpbs/vtorque_hook.py"
"""Where the roles place it on front ends."""
CREATE = f"qmgr -c 'create hook {HOOK} event = \"{','.join(EVENTS)}\"'"
IMPORT = f"qmgr -c 'import hook {HOOK} application/x-python default FILE', with the hook of a front end: {PLACE}"
RESOURCE = f"qmgr -c 'create resource {HOOK} type=string, flag=m'"
NAMED = 5


def node_checks(policy: Policy, node: str, *, owner_uid: int, thorough: bool) -> dict[str, t.Callable[[], Finding]]:
    """The checks of a node that only OpenPBS has, by their names; see `DoctorAdapter.node_checks`.

    Rights are not looked at: the hook needs none (`check_server` names what is better with them).
    """
    place = pathlib.Path(policy.torque_home) / "mom_priv" / "hooks"
    return {"hooks": lambda: check_hooks(place, owner_uid, expected_hook(policy.prefix_nodes))}


def expected_hook(prefix: str) -> str:
    """The site's hook of the version that is installed here.

    Args:
        prefix: where it is installed.
    """
    return templates.render("batch/openpbs/vtorque_hook.py.j2", site_dir=None, prefix=prefix)


def check_hooks(place: pathlib.Path, owner_uid: int, expected: str = "") -> Finding:
    """Check that the server's copy of our hook is here, is called at each event, and is of this version.

    Args:
        place: where the MOM has copies of hooks.
        owner_uid: whose they must be.
        expected: how it must read, blanks apart; "": not compared.
    """
    try:
        owner = (place / f"{HOOK}.PY").stat().st_uid
        program = (place / f"{HOOK}.PY").read_text(encoding="utf-8", errors="replace")
        settings = (place / f"{HOOK}.HK").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        problem = f"the server has no hook {HOOK}, or this node has no copy of it: {error.strerror} ({error.filename})"
        return Finding("hooks", BAD, BAD, problem, IMPORT)
    if owner != owner_uid:
        return Finding("hooks", BAD, BAD, f"{place}/{HOOK}.PY belongs to user {owner}", "chown it, and look why")
    if re.search(r"^enabled=false$", settings, re.MULTILINE):
        return Finding("hooks", BAD, BAD, f"the hook {HOOK} is not enabled", f"qmgr -c 'set hook {HOOK} enabled=true'")
    found = re.search(r'^event="?([^"\n]*)"?$', settings, re.MULTILINE)
    missing = [event for event in EVENTS if event not in (found[1].split(",") if found else ())]
    if missing:
        remedy = f"qmgr -c 'set hook {HOOK} event = \"{','.join(EVENTS)}\"'"
        return Finding("hooks", BAD, BAD, f"the hook {HOOK} is not called at {', '.join(missing)}", remedy)
    if expected and program.split() != expected.split():
        return Finding("hooks", WARN, "other", f"the hook {HOOK} is not of the version that is installed here", IMPORT)
    return Finding("hooks")


def check_server(batch: BatchSystem, nodes: t.Sequence[str], preface: str = "") -> Finding:
    """Check that the batch server is set as vTorque needs it; see `DoctorAdapter.check_server`."""
    try:
        settings = batch.server()
        resource = batch.resource() if isinstance(batch, OpenPbs) else ""
    except SiteFault as error:
        return Finding("server", WARN, "?", f"it does not tell how it is set: {error}", RESOURCE)
    if not re.search(r"\btype = string$", resource, re.MULTILINE) or not re.search(
        r"\bflag = [a-zA-Z]*m", resource, re.MULTILINE
    ):
        problem = f"the resource {HOOK} is not of type string with flag m: no request reaches the hook"
        return Finding("server", BAD, BAD, problem, RESOURCE)
    lacking = [node for node in nodes if not _lets_root((*settings.operators, *settings.managers), node)]
    if lacking:
        more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
        problem = f"root is no operator on {', '.join(lacking[:NAMED])}{more}: "
        remedy = f"qmgr -c 'set server operators += root@{lacking[0]}', and so on"
        if not settings.query_other_jobs:  # 23.06.06: qstat answers without any job then, and with status 0
            return Finding(
                "server", BAD, BAD, problem + "as query_other_jobs is False, it sees no job of others there", remedy
            )
        problem += (
            "a job that is held there does not say why in its comment, "
            "and a note of vTorque stays until an administrator takes it back (pbsnodes -r)"
        )
        return Finding("server", WARN, OK, problem, remedy)
    if preface:
        problem = f"its commands write text before their answers, which is not read: {preface}"
        return Finding("server", WARN, OK, problem, "let their wrapper write that to standard error")
    return Finding("server")


def _lets_root(who: t.Iterable[str], host: str) -> bool:
    """Return whether root of a host is among them; `*` stands for any part of a host's name."""
    for one in who:
        user, _at, place = one.strip().partition("@")
        if user in ("root", "*") and (same_host(place, host) or fnmatch.fnmatchcase(host.lower(), place.lower())):
            return True
    return False
