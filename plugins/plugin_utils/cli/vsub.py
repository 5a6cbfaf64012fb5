# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vsub, vsbatch and vsalloc: the batch system's own commands that take jobs, for jobs in virtual machines."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import sys
import types
import typing as t

from ...module_utils.errors import SiteFault, UserFault, VTorqueError
from ...module_utils.guest_kinds import DISTROS
from ...module_utils.job.admission.submission import Site, Submission, prepare
from ...module_utils.job.batch.registry import VARIABLE, open_batch, open_front, submit_command
from ...module_utils.job.config.batch_systems import commands_parameter
from ...module_utils.job.config.policy_file import PATH, load
from ...module_utils.job.request.demand import NodeSize
from ...module_utils.job.request.host_expressions import host_matches
from ...module_utils.job.request.keys import FILES, HYPERVISORS, KEYS
from ...module_utils.job.request.request import log_wishes
from ...module_utils.system.early_question import EarlyQuestion
from ...module_utils.wire.messages import FS_TYPES
from ..bridge.submission import check_user_disk, digest_user_image, pool_offers
from .output import environment, messages

if t.TYPE_CHECKING:
    from ...module_utils.job.batch.contract import FrontAdapter, FrontJob, SubmitCall
    from ...module_utils.job.config.parameters import Policy
    from ...module_utils.job.request.command_call import CommandCall
    from .output.json_output import Query

PROGRAM = "vsub"
SESSION = "VTORQUE_SESSION"
"""By which the launcher of the command for sessions names it, beside the batch system."""
USUAL = "torque"
"""Whose help is printed where the site's configuration does not say which batch system it is."""
NOTHING_SUBMITTED = "nothing was submitted"
BATCH_TIMEOUT_S = 5.0
"""For the sizes of nodes, which are only there to refuse early: the command will say whether the server is well."""


class Call(t.NamedTuple):
    """One call: what was typed, by whom, and what of the site matters."""

    front: FrontAdapter
    typed: SubmitCall
    environment: dict[bytes, bytes]
    policy: Policy
    front_end: bool
    as_json: bool = False
    query: Query | None = None

    @property
    def command(self) -> str:
        """The path of the batch system's command."""
        return submit_command(self.policy, front_end=self.front_end, front=self.front)

    @property
    def variables(self) -> dict[str, str]:
        """The user's environment."""
        return _texts(self.environment)


def main() -> int:
    """The program; returns its exit status."""
    launcher = os.environ.get(VARIABLE, "")
    session = SESSION in os.environ
    return messages.run(
        PROGRAM, lambda: submit(sys.argv[1:], environment.caller_environment(), launcher=launcher, session=session)
    )


def submit(
    argv: t.Sequence[str],
    caller: dict[bytes, bytes],
    policy_path: pathlib.Path = PATH,
    *,
    launcher: str = "",
    session: bool = False,
) -> int:
    """Do what the user asked for; where a job is submitted by the command alone this does not return.

    Args:
        argv: the arguments.
        caller: the environment for the command.
        policy_path: the site's configuration.
        launcher: the batch system whose launcher was called; "": the site's, whichever that is.
        session: whether it was the launcher of the command for sessions.
    """
    policy, broken = _policy(policy_path)
    front = open_front(launcher or (policy.batch_system if policy else USUAL), session=session)
    try:
        typed = front.read_call(argv, _texts(caller))
        if "--help" in typed.own or "--version" in typed.own:
            from . import vsub_help  # no job waits for it

            print((vsub_help.help_text if "--help" in typed.own else vsub_help.version_text)(front), end="")
            return 0
        for_programs = sorted(set(typed.own) & {"--json", "--query"})
        query = _query(typed)
        if for_programs and "--dry-run" not in typed.own:
            raise UserFault(for_programs[0], "goes with --dry-run")
        if policy is None:
            raise broken
        if launcher not in ("", policy.batch_system):
            why = f"the batch system of this site is {policy.batch_system}"
            raise UserFault(front.PROGRAM, why, f"use {PROGRAM}")
        front_end = host_matches(policy.regex_fe, os.uname().nodename)
        return _submit(Call(front, typed, caller, policy, front_end, bool(for_programs), query))
    except VTorqueError as error:
        print(messages.text(front.PROGRAM, error, NOTHING_SUBMITTED), file=sys.stderr)
        return next(status for kind, status in messages.STATUS if isinstance(error, kind))


def _policy(path: pathlib.Path) -> tuple[Policy | None, VTorqueError]:
    """The site's configuration, or what is wrong with it: who asks for help gets it all the same."""
    try:
        return load(path), VTorqueError("")
    except VTorqueError as error:
        return None, error


def _texts(variables: t.Mapping[bytes, bytes]) -> dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()}


def _query(typed: SubmitCall) -> Query | None:
    if "--query" not in typed.own:
        return None
    expression = typed.own["--query"]
    if expression is None:
        raise UserFault("--query", "the expression is missing", "it is a JMESPath expression, as request.ram.value")
    return _dry_run().Query(expression)


def _dry_run() -> types.ModuleType:
    from .output import dry_run  # 12 ms, with argparse, json and placement, that no job waits for that is submitted

    return dry_run


def _submit(call: Call) -> int:
    policy, command, program = call.policy, call.front.COMMAND, call.front.PROGRAM
    if call.typed.question:
        return _run(call, call.typed.argv)
    asked = call.typed.read_script(sys.stdin.buffer.read)
    dry = "--dry-run" in call.typed.own
    if asked.warning:
        print(f"{program}: {asked.warning}", file=sys.stderr)
    if dry and (refusal := asked.as_it_is().refusal):
        print(f"{program}: {command} would not take the script: {refusal}", file=sys.stderr)
    if policy.disable_mikelangelo_hpc_stack:
        if any(asked.layers):
            why = "VM jobs are switched off on this site"
            raise UserFault("-vm", why, f"without -vm {program} is {command}")
        return _dry_run_bare(call, asked) if dry else _run_command_call(call, asked.as_it_is())
    host = os.uname().nodename
    if host_matches(policy.disabled_hosts_list, host):
        raise UserFault(f"host {host}", "the site takes no VM jobs from here (disabled_hosts_list)", "use another host")
    sizes = _size_question(call, asked.queue)  # first: the server answers while the pool is read
    offers, broken = pool_offers(policy)
    site = Site(offers, broken, lambda _queue: sizes(), check_user_disk, lambda path: digest_user_image(path, policy))
    submission = prepare(asked, policy, site, _home(), log_wishes(call.variables))
    for notice in submission.notices:
        print(f"{program}: {notice}", file=sys.stderr)
    return _print_submission(call, submission, asked) if dry else _run_command_call(call, submission.command_call)


def _home() -> str:
    return pwd.getpwuid(os.getuid()).pw_dir


def _size_question(call: Call, queue: str) -> t.Callable[[], tuple[NodeSize, ...]]:
    """Return a function that returns the sizes of the nodes that VM jobs may use; none if the batch server is silent.

    With `fast_start` the server is asked at once, because it takes as long as it takes to read the request.
    """
    batch = open_batch(call.policy, front_end=call.front_end, timeout_s=BATCH_TIMEOUT_S)

    def ask() -> tuple[NodeSize, ...]:
        try:
            return batch.node_sizes(queue, call.policy.vm_node_property)
        except SiteFault:
            return ()

    return EarlyQuestion(ask) if call.policy.fast_start else ask


def _run_command_call(call: Call, command_call: CommandCall) -> int:
    """Become the command; or run it, where something is to be done after it: a copy removed, a refusal explained."""
    if command_call.text is not None and command_call.at < 0:
        fd = os.memfd_create("stdin")
        with os.fdopen(fd, "wb", closefd=False) as stream:
            stream.write(command_call.text)
        os.lseek(fd, 0, os.SEEK_SET)
        os.dup2(fd, 0)
    elif command_call.text is not None or command_call.refusal:
        status = _run(call, command_call.argv, command_call)
        if status and command_call.refusal:
            print(f"{call.front.PROGRAM}: {command_call.refusal}", file=sys.stderr)
        return status
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(call.command, [call.command, *command_call.argv], call.environment)  # noqa: S606 - no shell is the point
    except OSError as error:
        raise _no_command(call, error) from error


def _run(call: Call, argv: t.Sequence[str], copied: CommandCall | None = None) -> int:
    """Run the command to its end, over a copy of the script where it is to read another; return its exit status."""
    from . import command_child  # 10 ms that only those pay who do not become the command

    arguments = list(argv)
    with contextlib.ExitStack() as stack:
        if copied is not None and copied.text is not None:
            copy = stack.enter_context(command_child.write_copy(call.front.PROGRAM, copied.name, copied.text))
            arguments[copied.at] = str(copy)
        try:
            return command_child.run([call.command, *arguments], call.environment)
        except OSError as error:
            raise _no_command(call, error) from error


def _no_command(call: Call, error: OSError) -> SiteFault:
    parameter = commands_parameter(call.policy.batch_system, front_end=call.front_end)
    return SiteFault(call.command, f"cannot be run: {error.strerror}", f"see {parameter}")


def completion_values(vm_img_dir: str) -> dict[str, t.Any]:
    """What `templates/completion/vsub.bash.j2` is rendered with."""
    choices = {"distro": DISTROS, "fs_type": FS_TYPES, "hypervisor": HYPERVISORS}
    return {
        "keys": tuple(KEYS),
        "choices": choices,
        "files": ("disk", *FILES),
        "vm_img_dir": vm_img_dir,
        "commands": ("vsub",),
        "letters": ("-vm", *(f"-{letter}" for letter in "aAbcCdefFhIjklmMnNopqrSuvVwWxXz")),
        "long": ("--dry-run", "--json", "--query", "--help", "--version"),
    }


def _print_submission(call: Call, submission: Submission, asked: FrontJob) -> int:
    command = [call.command, *submission.command_call.argv]
    _dry_run().print_submission(submission, call.policy, call.front.COMMAND, command, asked.vm_lines, call)
    return 0


def _dry_run_bare(call: Call, asked: FrontJob) -> int:
    name = call.front.COMMAND
    print(
        f"{call.front.PROGRAM}: VM jobs are switched off on this site; the job goes to {name} as it is", file=sys.stderr
    )
    _dry_run().print_bare(name, [call.command, *asked.as_it_is().argv], call)
    return 0


if __name__ == "__main__":
    sys.exit(main())
