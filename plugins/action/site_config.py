# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a site's configuration where Ansible runs, and put it in place only when it is good."""

from __future__ import annotations

import dataclasses
import hashlib
import typing as t

from ..module_utils.errors import SiteFault, VTorqueError
from ..module_utils.job.config.parameters import Policy
from ..module_utils.job.config.policy_file import PATH, PolicyErrors, parse
from ..module_utils.job.config.policy_writer import policy_text
from ..module_utils.job.config.role_variables import misspelt
from ..module_utils.job.request.value_types import KeyFault
from ..module_utils.time_budget import least_alarm_s
from ..plugin_utils.job_actions.controller_action import ControllerAction

SPEC: t.Final[dict[str, t.Any]] = {
    "settings": {"type": "dict", "required": True},
    "path": {"type": "path", "default": str(PATH)},
    "prefix": {"type": "str", "default": ""},
    "variables": {"type": "list", "elements": "str", "default": []},
    "role_variables": {"type": "dict", "default": {}},
    "write": {"type": "bool", "default": True},
    "former": {"type": "str"},
}
MARK: t.Final = "# made by mikelangelo.vtorque.site_config, sha256 of what stands above: "
"""The beginning of the last line; a file that somebody edited does not bear the right one any more."""


class ActionModule(ControllerAction):
    """`site_config`: settings -> vtorque.yml, by `ansible.builtin.copy`, which knows check mode and diff."""

    def act(self, task_vars: dict[str, t.Any]) -> dict[str, t.Any]:
        """Check, write, and return what every parameter is then; see the base."""
        result: dict[str, t.Any] = {}
        args = self.check_arguments(SPEC)
        if args["former"] is not None:
            # YAML takes no tagged text of Ansible's, and str() of ansible-core 2.18's is still one
            result["former"] = former("".join([*args["former"]]), args["path"])
        unread = [str(fault) for fault in misspelt(args["variables"], args["role_variables"])]
        try:
            text, policy = checked_text(args["settings"], args["path"])
        except VTorqueError as error:
            faults = [_describe_fault(fault, args["prefix"]) for fault in getattr(error, "faults", ())]
            if faults:
                return {**result, **self.refused(f"{error.what} was not written", faults + unread)}
            return {**result, "failed": True, "msg": str(error), "faults": faults}
        if unread:
            return {**result, **self.refused(f"{args['path']} was not written", unread)}
        if args["write"]:
            copy = {"content": marked(text), "dest": args["path"], "owner": "root", "group": "root", "mode": "0644"}
            result.update(self.copy_file(copy, task_vars))
            result.pop("invocation", None)  # the whole text once more
        result["policy"] = policy
        result["prologalarm"] = alarm_of(policy)
        return result


def checked_text(settings: t.Mapping[str, object], path: str) -> tuple[str, dict[str, t.Any]]:
    """The text of a configuration that is good.

    Args:
        settings: by the names of parameters; None: not said.
        path: what the file is called in messages.

    Returns:
        The text, and every parameter's value.

    Raises:
        PolicyErrors: something in it is wrong; all of it is named.
    """
    text = policy_text({name: value for name, value in settings.items() if value is not None})
    return text, as_facts(parse(text, path).policy)


def marked(text: str) -> str:
    """A configuration with the mark of its content.

    Args:
        text: whole lines.
    """
    return f"{text}\n{MARK}{hashlib.sha256(text.encode()).hexdigest()}\n"


def former(text: str, path: str) -> dict[str, t.Any]:
    """What a configuration says that is there already, as far as it can be read.

    Args:
        text: of it; anything at all does no harm.
        path: what it is called in messages.

    Returns:
        `policy`, every parameter; `said`, those that are not at their defaults; `fault`, what is wrong with it, or "";
        `readable`, whether it has the form of a configuration; `by_hand`, whether a person wrote or edited it.
    """
    policy, fault, readable = Policy(), "", True
    try:
        policy = parse(text, path).policy
    except PolicyErrors as error:
        policy, fault = error.usable, error.why
    except SiteFault as error:
        fault, readable = error.why, False
    facts, defaults = as_facts(policy), as_facts(Policy())
    given = {name: value for name, value in facts.items() if value != defaults[name]}
    above = text.rpartition(f"\n{MARK}")[0]
    return {"policy": facts, "said": given, "fault": fault, "readable": readable, "by_hand": text != marked(above)}


def as_facts(policy: Policy) -> dict[str, t.Any]:
    """Every parameter as Ansible has it."""
    values = dataclasses.asdict(policy)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def alarm_of(policy: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the `$prologalarm` that a configuration needs: `seconds`, and the `parameter` that decides.

    Args:
        policy: every parameter, as `as_facts` has it.
    """
    prologue_s, epilogue_s = policy["prologue_timeout"], policy["vm_epilogue_timeout"]
    seconds = least_alarm_s(prologue_s, epilogue_s)
    decides = "prologue_timeout" if seconds == least_alarm_s(prologue_s, 0) else "vm_epilogue_timeout"
    return {"seconds": seconds, "parameter": decides}


def _describe_fault(fault: KeyFault, prefix: str) -> str:
    """A fault as whoever wrote the variables knows them; the line is of a file that is not there."""
    name = prefix + fault.key
    where = "" if fault.origin.startswith("line ") else f" ({fault.origin})"
    return f"{name}={fault.value}: {fault.message}{where}" if fault.value else f"{name}: {fault.message}{where}"
