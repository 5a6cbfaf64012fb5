# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of hooks and of Ansible's process, taken from the code, and made to fail where a file on the node says so.

A step is what `step_rules.py` takes for one, in the modules of `WALKED`.  As installed on a node for a while, each asks
`ARMED` whether it is to fail; one step is several when several programs come to it.
"""

from __future__ import annotations

import ast
import json
import pathlib
import typing as t

from tests.bench.inside import stand_in

from . import strike

WALKED = (
    "module_utils.job.hooks.prologue", "module_utils.job.hooks.epilogue", "module_utils.job.hooks.playbook",
    "module_utils.job.hooks.start", "module_utils.job.records.writer",
    "module_utils.state.layout", "module_utils.state.records", "module_utils.state.shell_link",
    "module_utils.state.shell_message",
    "module_utils.system.acl", "module_utils.system.clock", "module_utils.system.files",
    "module_utils.system.process.process_id",
    "plugin_utils.hooks.main", "plugin_utils.faststart.head_start", "plugin_utils.faststart.early_removal",
    "plugin_utils.faststart.node_socket",
    "plugin_utils.faststart.early_login", "plugin_utils.job_actions.start_files",
    "plugin_utils.job_actions.shell_access", "plugin_utils.job_actions.node_connection",
    "action.job_plan", "action.job_guests", "action.job_record",
)  # fmt: skip
STAND_INS = {f"module_utils.node.{name}": name for name in stand_in.WORDS}
TEMPLATE = "domain.xml.j2"
ARMED, REACHED, STRUCK = (f"/run/lab/strike.{name}" for name in ("json", "reached", "struck"))
PLUGINS = "ansible_collections.mikelangelo.vtorque.plugins"
SPARED = frozenset({
    # these do what their own calls do, which are steps
    *(f"{PLUGINS}.module_utils.job.hooks.{name}" for name in ("prologue.run", "epilogue.run", "epilogue.run_sister")),
    f"{PLUGINS}.plugin_utils.job_actions.start_files.save_answer",
    f"{PLUGINS}.plugin_utils.faststart.early_login.begin",
    f"{PLUGINS}.plugin_utils.faststart.node_socket.EarlyNode.request",
    f"{PLUGINS}.plugin_utils.job_actions.action_base.JobAction.run",
    # what changes how the same thing ends, and not whether
    "pathlib.Path.chmod", "posix.fchmod", "posix.waitpid", "subprocess.Popen.kill",
    "subprocess.Popen.wait",
})  # fmt: skip
"""What is no step here besides, by the module and name under which it is defined: each fault costs a job."""
RULES = pathlib.Path(__file__).with_name("step_rules.py").read_text(encoding="utf-8")
STRIKE = f'''
def strike_(place, callee):
    """What is called there, which fails when that was asked for."""
    import errno, json, os, signal, sys, time, types
    words = sys.orig_argv[3:5]
    program = words[0].rpartition(".")[2] if words else ""
    if program == "hook":
        who = f"hook {{words[1]}}"
    elif program == "run_playbook":
        who = "play prologue" if "VTORQUE_SHELL" in os.environ else "play epilogue"
    else:
        return callee
    rules = sys.modules.get("vtorque_step_rules")
    if rules is None:
        rules = types.ModuleType("vtorque_step_rules")
        exec({RULES!r}, rules.__dict__)
        sys.modules["vtorque_step_rules"] = rules
    if rules.name_of(callee) in {sorted(SPARED)!r}:
        return callee
    point = f"{{who}}: {{place}}"
    faults = []

    def act(when):
        if when == "before":
            try:
                with open({ARMED!r}) as stream:
                    faults[:] = [one for one in json.load(stream) if one["point"] == point]
            except FileNotFoundError:
                pass
        if os.path.exists({REACHED!r}):
            with open({REACHED!r}, "a") as stream:
                stream.write(when + " " + point + "\\n")
        for fault in faults:
            if fault["when"] != when or (fault["kind"] == "hangs" and os.path.exists({STRUCK!r})):
                continue
            with open({STRUCK!r}, "a") as stream:
                stream.write(point + "\\n")
            if fault["kind"] == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault["kind"] == "hangs":
                time.sleep(3600)
            if fault["kind"] == "disk":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a fault on purpose")
            raise RuntimeError("a fault on purpose")

    return rules.with_faults(callee, __name__, act)
'''
"""What stands in each of these modules, below its imports from the future.

A step hangs once: Torque starts a job again whose prologue it had to kill, and we hold that at the 20th start alone.
"""


@t.final
class Point(t.NamedTuple):
    """A step of a program on a node that fails.

    Attributes:
        of: `runs`, a job whose guests become ready; or `fails`, one that something else keeps from it.
        who: the program.
    """

    of: str
    node: str
    who: str
    place: str
    when: str
    kind: str

    @property
    def word(self) -> str:
        """As the step knows itself."""
        return f"{self.who}: {self.place}"

    def __str__(self) -> str:
        return f"{self.node} {self.who} {self.kind} {self.when} {self.place} ({self.of})"


def covers(sources: t.Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Texts to put over the modules of `WALKED`, by their names, and the places of all calls in them."""
    texts: dict[str, str] = {}
    there: list[str] = []
    for name in WALKED:
        ((tree, places),) = strike.wrapped({name.rpartition(".")[2]: sources[name]}).values()
        future = max(number for number, node in enumerate(tree.body) if isinstance(node, ast.ImportFrom)
                     and node.module == "__future__")  # fmt: skip
        tree.body[future + 1 : future + 1] = ast.parse(STRIKE).body
        texts[name] = ast.unparse(tree)
        there += places
    return texts, there


def points(of: str, reached: t.Mapping[str, t.Iterable[str]], kinds: t.Iterable[str]) -> list[Point]:
    """Every fault at what was reached, by node.

    Args:
        of: kind of job that reached it.
        reached: lines of `REACHED`; a call that raises has no `after`, nor has what comes back twice or never.
        kinds: of faults.
    """
    there = {
        node: sorted({(*word.split(": ", 1), when) for when, word in (line.split(" ", 1) for line in lines)})
        for node, lines in reached.items()
    }
    return [
        Point(of, node, who, place, when, kind)
        for kind in kinds
        for node, steps in sorted(there.items())
        for who, place, when in steps
        if kind in ("killed", "raises") or when == "before"
    ]


def armed(*faults: Point) -> str:
    """What tells a node's steps that they fail."""
    return json.dumps([{"point": one.word, "when": one.when, "kind": one.kind} for one in faults])
