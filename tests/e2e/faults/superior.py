# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of hooks and of Ansible's process, taken from the code, and made to fail where a file on the node says so.

A step is what `strike.py` takes for one, in the modules of `WALKED`.  As installed on a node for a while, each asks
`ARMED` whether it is to fail; one step is several when several programs come to it.
"""

from __future__ import annotations

import ast
import json
import typing as t

from tests.bench.inside import stand_in

from . import strike

WALKED = (
    "module_utils.job.hooks.prologue", "module_utils.job.hooks.epilogue", "module_utils.job.hooks.playbook",
    "module_utils.job.hooks.start", "module_utils.job.records.writer",
    "module_utils.state.layout", "module_utils.state.records", "module_utils.state.shell_link",
    "module_utils.state.shell_message",
    "module_utils.system.acl", "module_utils.system.clock", "module_utils.system.files",
    "module_utils.system.log_line", "module_utils.system.process_id",
    "plugin_utils.hooks.main", "plugin_utils.faststart.head_start", "plugin_utils.play.start_files",
    "plugin_utils.play.shell_access", "plugin_utils.faststart.early_login", "plugin_utils.play.node_connection",
    "action.job_plan", "action.job_guests", "action.job_record",
)  # fmt: skip
STAND_INS = {f"module_utils.node.{name}": name for name in stand_in.WORDS}
TEMPLATE = "domain.xml.j2"
ARMED, REACHED, STRUCK = (f"/run/lab/strike.{name}" for name in ("json", "reached", "struck"))
LOOKS = frozenset({
    # functions of these modules, whose own calls are steps
    "self._absent", "self._present", "self._ready", "self._ask", "self._join", "self._call",
    "self._begin", "self._let_go", "self.hand_over", "self.hang_up", "self.open_log", "self.say", "self.__exit__",
    "early_login.begin", "epilogue.run", "epilogue.run_sister", "prologue.run", "keep_use", "keep_consoles",
    "keep_updates",
    "self.of", "writer.read_former", "writer.write",
    # what changes how the same thing ends, and not whether
    "os.fchmod", "part.chmod", "path.parent.chmod",
    "Deadline.after", "EarlyNode", "Enforced", "HeadStart", "JobPlan.from_json", "NodeCall",
    "NodeFault", "NodePart.removal", "Outcome", "Places", "Player", "ProcessHandle", "ProcessId.of", "RefusalRecord",
    "SiteFault", "Start", "VTorqueError", "_KEY.fullmatch", "_Planner.begin", "_wait", "advice", "all", "all_guests",
    "any",
    "array_brake.array_of", "array_brake.refused_before", "bare_file", "batch.job", "batch.nodes", "bool",
    "broken_disk", "c.isprintable", "cls", "contextlib.ExitStack",
    "contextlib.suppress",
    "child.send", "child.wait", "dataclasses.asdict", "dataclasses.replace", "decide",
    "delivery.front_end", "dict", "early_ssh.wanted", "early_login.site_speaks_first", "node_socket.digest",
    "node_socket.find", "ending.hear_again", "ending.settle", "error.to_dict", "error_from_dict",
    "fileserver_probe.silent_pool", "find_loop", "float", "found.sort", "fresh.close", "from_dict", "gather", "getattr",
    "guests_file", "messages.NodePart.removal", "form.from_dict", "form.to_dict", "hook_began",
    "invocation.deadline", "invocation.read_alarm_s", "hosts_of", "installed.version", "int", "is_marked", "isinstance",
    "job_id.replace", "job_id.replace('[', '-').replace",
    "job_key(job_id, 0).removesuffix", "json.dumps", "json.loads", "job_snapshot.kept", "keys[facts.rank].split",
    "kind_of",
    "known.setdefault", "len", "link.with_name", "list", "local_command", "map", "map_of", "max",
    "may_be_braked", "message", "min", "multiprocessing.parent_process", "names_node", "new.to_json", "next",
    "node.close", "one.known", "open_batch", "open_batch(policy).job", "os._exit", "os.close", "os.dup", "os.dup2",
    "os.fdopen", "os.fstat", "os.getpid", "os.getppid", "os.memfd_create", "os.path.lexists",
    "os.pipe2", "os.pread", "os.umask", "os.uname", "os.waitpid", "outcome", "parse_call", "path.with_name",
    "pathlib.Path", "peer.close", "pickle.load", "place.file", "plan.to_json", "plan_start", "planner.end",
    "playbook.removal_time_s", "playbook.verdict_time_s",
    "player.ready_to_begin", "prctl.death_signal", "prctl.set_death_signal", "printable", "process.stdin.close",
    "range", "re.escape", "re.fullmatch", "re.search", "read_answer", "read_bare", "read_error", "read_guests",
    "read_phases", "read_plan", "read_updates", "ready_record", "process_id.ProcessId", "process_id.ProcessId.of",
    "records.ReadyBare", "records.ReadyGuest", "records.ReadyRecord", "records.ReadyRecord.from_dict",
    "process_id.boot_id", "layout.job_key", "log_line.log_line", "files.read_json", "layout.run_directory",
    "clock.since_epoch", "layout.starts_of", "require_distinct", "reversed", "root_arguments", "round", "said.write",
    "selector.get_map", "selector.register", "selector.select", "selector.unregister",
    "selectors.PollSelector", "self._begin_again", "self._complained", "self._open.recv", "self._process.kill",
    "layout.StepFile.BARE.of", "layout.StepFile.CONSOLES.of",
    "layout.StepFile.ERROR.of", "layout.StepFile.GUESTS.of", "layout.StepFile.PHASE.name_of",
    "layout.StepFile.PHASE.of", "layout.StepFile.UPDATES.of", "layout.StepFile.USED.of", "file.removeprefix",
    "file.removeprefix(f'{self}.').removesuffix", "schema.check", "self._display.warning",
    "self._process.poll", "self._process.wait", "self.seconds.setdefault",
    "shell_link.link_of", "shell_link.links_to", "shell_of", "shlex.quote", "shown", "signal.setitimer",
    "signal.signal", "policy_file.load", "policy_file.load_usable", "socket.socket", "socket.socketpair", "sorted",
    "spec_of", "ssh_command", "stack.enter_context", "stat.S_IMODE", "stat.S_ISFIFO", "stat.S_ISREG", "str",
    "stream.flush", "struct.pack", "sum", "super", "super().run", "syslog.openlog", "t.cast", "templates.render",
    "text.rpartition(')')[2].split", "text.split", "time.monotonic", "time.sleep", "time.strftime", "time.time",
    "to_dict", "traceback.format_exception", "tuple", "user_script.asked", "vm_job_of", "written",
})  # fmt: skip
"""What leaves nothing, or nothing that outlives its process."""
STRIKE = f'''
def strike_(place, call):
    """A step, which fails when that was asked for."""
    import errno, json, os, signal, sys, time
    words = sys.orig_argv[3:5]
    program = words[0].rpartition(".")[2] if words else ""
    if program == "hook":
        who = f"hook {{words[1]}}"
    elif program == "play":
        who = "play prologue" if "VTORQUE_SHELL" in os.environ else "play epilogue"
    else:
        return call()
    point = f"{{who}}: {{place}}"
    try:
        with open({ARMED!r}) as stream:
            faults = [one for one in json.load(stream) if one["point"] == point]
    except FileNotFoundError:
        faults = []

    def act(when):
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

    act("before")
    value = call()
    act("after")
    return value
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
    """Texts to put over the modules of `WALKED`, by their names, and all places in them.

    A name of a function is a step's in all modules but its own: there its calls are.
    """
    texts, there = {}, []
    for name in WALKED:
        ((tree, places),) = strike.wrapped({name.rpartition(".")[2]: sources[name]}, LOOKS).values()
        future = max(number for number, node in enumerate(tree.body) if isinstance(node, ast.ImportFrom)
                     and node.module == "__future__")  # fmt: skip
        tree.body[future + 1 : future + 1] = ast.parse(STRIKE).body
        texts[name] = ast.unparse(tree)
        there += places
    return texts, there


def comes_once(when: str, place: str) -> bool:
    """What comes after a fork comes twice."""
    return when == "before" or place.partition(": ")[2].partition(" #")[0] not in strike.NO_AFTER


def points(of: str, reached: t.Mapping[str, t.Iterable[str]], kinds: t.Iterable[str]) -> list[Point]:
    """Every fault at what was reached, by node.

    Args:
        of: kind of job that reached it.
        reached: lines of `REACHED`; a call that raises has no `after`.
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
        if comes_once(when, place) and (kind in ("killed", "raises") or when == "before")
    ]


def armed(*faults: Point) -> str:
    """What tells a node's steps that they fail."""
    return json.dumps([{"point": one.word, "when": one.when, "kind": one.kind} for one in faults])
