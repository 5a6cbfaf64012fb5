# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vsub: qsub, for jobs in virtual machines."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import stat
import sys
import typing as t

from ...module_utils.errors import SiteFault, UserFault, VTorqueError
from ...module_utils.guest_kinds import DISTROS
from ...module_utils.job.admission.resolve import USELESS_YET, host_matches
from ...module_utils.job.admission.resources import NodeSize
from ...module_utils.job.admission.submission import Site, Submission, asks_for_vm, prepare
from ...module_utils.job.config.parameters import Policy
from ...module_utils.job.config.policy_file import PATH, load
from ...module_utils.job.request import pbs_directives, script_text
from ...module_utils.job.request.keys import FILES, HYPERVISORS, KEYS
from ...module_utils.job.request.qsub_arguments import VM, Arguments
from ...module_utils.job.request.request import RequestErrors, log_wishes
from ...module_utils.job.request.value_types import KeyFault, nearest
from ...module_utils.text import format_mib
from ...module_utils.wire.messages import FS_TYPES
from ..bridge.submission import check_user_disk, digest_user_image, pool_offers
from .output import environment, messages

if t.TYPE_CHECKING:
    from .output.json_output import Query

PROGRAM = "vsub"
QSUB_ABOUT = "--about"
"""The one long option that qsub has besides --version; it looks for it wherever it stands, and submits nothing."""
SIZES = ("ram", "unclot_shmem")
OWN = ("--dry-run", "--json", "--query", "--help", "--version")
NOTHING_SUBMITTED = "nothing was submitted"
BATCH_TIMEOUT_S = 5.0
"""For the sizes of nodes, which are only there to refuse early: qsub will say whether the server is well."""

HELP = """\
usage: vsub [arguments of qsub] [-vm key=value[,key=value...]]... [script | -]

Submits a job as qsub does; its script runs in a virtual machine made for it.  Everything but -vm is qsub's.

  vsub job.sh                                   in the site's default machine
  vsub -vm img=debian12,vcpus=6,ram=8G job.sh   in this one
  vsub -l nodes=1:ppn=8,walltime=2:00 job.sh    with qsub's own options
  echo 'make check' | vsub                      a script on standard input
  vsub -I                                       a terminal in the machine
  vsub --dry-run -vm vcpus=6 job.sh             shows what would be submitted, and why

In a script, before its first command:

  #PBS -vm img=debian12,vcpus=6

The command line wins over the script, the script over the site's defaults.  A ppn or mem that is too small for
the machine is raised, and that is said.

keys of -vm, and what they take:
{keys}
known, and refused because they are not available yet:
{later}

in the environment:
  SHOW_LOG=true   what vTorque does for the job, until its script begins, in the job's error file
  DEBUG=true      the same in more detail, and in the job's log (vmgr job log)

  --dry-run   show the request, where each value came from, and the qsub command; submit nothing
  --json      with --dry-run: the same for programs
  --query EXPRESSION
              with --dry-run: what this JMESPath expression finds in that, as --query 'request.ram.value'
  --help      this text
  --version   vsub's version

Exit status: qsub's; 2 when the request is refused, 3 when the site's configuration or batch system is at fault,
1 when something else failed.
See also: vmgr image list, vsub(1), qsub(1)
"""


class Call(t.NamedTuple):
    """One call of vsub: what was typed, by whom, where the site's configuration is."""

    arguments: Arguments
    environment: dict[bytes, bytes]
    policy: Policy
    qsub: str
    front_end: bool
    as_json: bool = False
    query: Query | None = None


def main() -> int:
    """The program; returns its exit status."""
    return messages.run(PROGRAM, lambda: submit(sys.argv[1:], environment.kept_aside()))


def submit(argv: t.Sequence[str], caller: dict[bytes, bytes], policy_path: pathlib.Path = PATH) -> int:
    """Do what the user asked for; where a job is submitted by qsub alone this does not return.

    Args:
        argv: the arguments.
        caller: the environment for qsub.
        policy_path: the site's configuration.
    """
    arguments = Arguments.read(argv, permute=b"POSIXLY_CORRECT" not in caller)
    own = {option.name for option in arguments.options if option.name.startswith("--")}
    if "--help" in own:
        print(help_text(), end="")
        return 0
    if "--version" in own:
        from ...module_utils.installed import version  # for who asks alone

        print(f"{PROGRAM} {version()}")
        return 0
    try:
        query = _query(arguments)
        return _submit(arguments.without(*OWN), own, query, caller, policy_path)
    except VTorqueError as error:
        print(messages.text(PROGRAM, error, NOTHING_SUBMITTED), file=sys.stderr)
        return next(status for kind, status in messages.STATUS if isinstance(error, kind))


def _query(arguments: Arguments) -> Query | None:
    asked = arguments.all("--query")
    if not asked:
        return None
    if asked[-1].value is None:
        raise UserFault("--query", "the expression is missing", "it is a JMESPath expression, as request.ram.value")
    from .output.json_output import Query  # as for `tell`

    return Query(asked[-1].value)


def _submit(
    arguments: Arguments, own: set[str], query: Query | None, caller: dict[bytes, bytes], policy_path: pathlib.Path
) -> int:
    if unknown := own - {*OWN, QSUB_ABOUT}:
        word = min(unknown)
        hint = "did you mean -vm?" if word == f"--{VM}" else nearest(word, OWN).lstrip("; ")
        raise UserFault(word, "no such option", hint or "see vsub --help")
    for_programs = sorted(own & {"--json", "--query"})
    if for_programs and "--dry-run" not in own:
        raise UserFault(for_programs[0], "goes with --dry-run")
    policy = load(policy_path)
    host = os.uname().nodename
    front_end = host_matches(policy.regex_fe, host)
    qsub = policy.pbs_qsub_on_fe if front_end else policy.pbs_qsub_on_nodes
    call = Call(arguments, caller, policy, qsub, front_end, bool(for_programs), query)
    if QSUB_ABOUT in own:
        return _become_qsub(call, arguments)
    script, from_stdin = _read_script(call)
    _warn_of_text(call, script, from_stdin, submits="--dry-run" not in own)
    if policy.disable_mikelangelo_hpc_stack and not asks_for_vm(arguments, script):
        return _dry_run_bare(call) if "--dry-run" in own else _hand_over(call, arguments, script, None, from_stdin)
    if policy.disable_mikelangelo_hpc_stack:
        raise UserFault("-vm", "VM jobs are switched off on this site", "without -vm vsub is qsub")
    if host_matches(policy.disabled_hosts_list, host):
        raise UserFault(f"host {host}", "VM jobs are not submitted from here, by the site's word", "use another host")
    offers, broken = pool_offers(policy)
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in call.environment.items()}
    site = Site(offers, broken, lambda: _sizes(call), check_user_disk, lambda path: digest_user_image(path, policy))
    submission = prepare(arguments, script, policy, site, _home(), log_wishes(variables))
    for notice in submission.notices:
        print(f"{PROGRAM}: {notice}", file=sys.stderr)
    if "--dry-run" in own:
        return _show(call, submission, script)
    return _hand_over(call, submission.arguments, script, submission.script, from_stdin)


def _home() -> str:
    import pwd  # a job that qsub gets as it is needs no home

    return pwd.getpwuid(os.getuid()).pw_dir


def _read_script(call: Call) -> tuple[pbs_directives.Script, bool]:
    """The script with its directives, and whether it came on standard input.

    Raises:
        RequestErrors: there is no such file, or it cannot be read.
    """
    arguments = call.arguments
    option = arguments.last("C")
    prefix = call.environment.get(b"PBS_DPREFIX", pbs_directives.PREFIX) if option is None else os.fsencode(option)
    operand = arguments.words[arguments.operands[0]] if arguments.operands else "-"
    if operand not in ("-", ""):
        return pbs_directives.read(_file(operand), operand, prefix), False
    if arguments.all("I"):
        return pbs_directives.read(b"", "", prefix), False
    return pbs_directives.read(sys.stdin.buffer.read(), "standard input", prefix), True


def _warn_of_text(call: Call, script: pbs_directives.Script, from_stdin: bool, *, submits: bool) -> None:
    """Say what qsub does not: that no directive counts; and, where it is not called, that it refuses the script."""
    if from_stdin and (word := script_text.find_mark(script.data)):
        print(f"{PROGRAM}: {word}", file=sys.stderr)
    if not submits and (word := _fault_of(call, script, from_stdin)):
        print(f"{PROGRAM}: qsub would not take the script: {word}", file=sys.stderr)


def _fault_of(call: Call, script: pbs_directives.Script, from_stdin: bool) -> str:
    """Why qsub does not take the script, or ""; the operand of `-I -x` is a command, and none of its scripts."""
    return "" if from_stdin or call.arguments.all("I") else script_text.find_fault(script.data, script.name)


def _file(path: str) -> bytes:
    try:
        # a named pipe would wait for a writer; qsub takes regular files alone
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise RequestErrors([KeyFault(path, "", "the script is not a file")])
            return stream.read()
    except OSError as error:
        raise RequestErrors([KeyFault(path, "", f"the script cannot be read: {error.strerror}")]) from error


def _sizes(call: Call) -> tuple[NodeSize, ...]:
    """The sizes of the nodes that VM jobs may use; empty when the batch server does not say."""
    from ...module_utils.job.batch.registry import open_batch  # a job without guests asks nothing

    wanted = {call.policy.vm_node_property} - {None}
    try:
        nodes = open_batch(call.policy, front_end=call.front_end, timeout_s=BATCH_TIMEOUT_S).nodes()
    except SiteFault:
        return ()
    return tuple(NodeSize(node.name, node.slots, node.memory_mib) for node in nodes if wanted <= node.properties)


def _hand_over(
    call: Call, arguments: Arguments, script: pbs_directives.Script, neutral: bytes | None, from_stdin: bool
) -> int:
    """Become qsub; or run it, where something is to be done after it: a copy removed, a refusal explained."""
    fault = _fault_of(call, script, from_stdin)
    arguments = _with_prefix(call, arguments)
    if from_stdin:
        fd = os.memfd_create("stdin")
        with os.fdopen(fd, "wb", closefd=False) as stream:
            stream.write(script.data if neutral is None else neutral)
        os.lseek(fd, 0, os.SEEK_SET)
        os.dup2(fd, 0)
    elif neutral is not None or fault:
        status = _run_qsub(call, arguments, script.name, neutral)
        if status and fault:
            print(f"{PROGRAM}: {fault}", file=sys.stderr)
        return status
    return _become_qsub(call, arguments)


def _become_qsub(call: Call, arguments: Arguments) -> t.NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(call.qsub, [call.qsub, *arguments.words], call.environment)  # noqa: S606 - no shell is the point
    except OSError as error:
        raise _no_qsub(call, error) from error


def _with_prefix(call: Call, arguments: Arguments) -> Arguments:
    """qsub(1B) promises PBS_DPREFIX, and the qsub of Torque 6 does not look at it: so it is said by `-C`."""
    prefix = call.environment.get(b"PBS_DPREFIX")
    if prefix is None or arguments.all("C"):
        return arguments
    return arguments.with_front("-C", os.fsdecode(prefix))


def _run_qsub(call: Call, arguments: Arguments, name: str, neutral: bytes | None) -> int:
    """Run qsub to its end, over a copy of the script where it is to read another text; return its exit status."""
    from . import qsub_child  # 10 ms that only those pay who do not become qsub

    with contextlib.ExitStack() as stack:
        if neutral is not None:
            arguments = arguments.with_operand(str(stack.enter_context(qsub_child.copied(name, neutral))))
        try:
            return qsub_child.run([call.qsub, *arguments.words], call.environment)
        except OSError as error:
            raise _no_qsub(call, error) from error


def _no_qsub(call: Call, error: OSError) -> SiteFault:
    return SiteFault(call.qsub, f"cannot be run: {error.strerror}", "see PBS_QSUB_ON_FE and PBS_QSUB_ON_NODES")


def help_text() -> str:
    """What `--help` prints."""
    import textwrap  # for who asks alone

    usable = [
        f"  {name:<13} {key.meaning}\n{'':<18}{key.kind.allowed}"
        for name, key in KEYS.items()
        if name not in USELESS_YET
    ]
    later = textwrap.fill(", ".join(name for name in KEYS if name in USELESS_YET), 100)
    return HELP.format(keys="\n".join(usable), later=textwrap.indent(later, "  "))


def completion_words(vm_img_dir: str) -> dict[str, t.Any]:
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


def _show(call: Call, submission: Submission, script: pbs_directives.Script) -> int:
    resolved = submission.resolved
    arguments = _with_prefix(call, submission.arguments)
    command = [call.qsub, *arguments.words]
    rows = [(key, resolved.values[key]) for key in KEYS if resolved.values[key] is not None]
    if call.as_json:
        request = {key: {"value": value, "from": resolved.origins[key]} for key, value in rows}
        document = {"request": request, "shell": resolved.shell, "qsub": command, "notices": submission.notices}
        document["hosts"] = {"vm": submission.vm_hosts, "of": submission.hosts}
        document["adds"] = submission.added
        _tell(call, {**document, "neutral_lines": script.vm_lines})
        return 0
    table = [("request", "value", "from")]
    for key, value in rows:
        cell = format_mib(value) if key in SIZES and isinstance(value, int) else resolved.word(key)
        table.append((key, cell, resolved.origins[key]))
    if resolved.shell:
        table.append(("shell", resolved.shell, "-S"))
    widths = [max(len(row[column]) for row in table) + 2 for column in (0, 1)]
    for name, value_text, origin in table:
        print(f"{name:<{widths[0]}}{value_text:<{widths[1]}}{origin}")
    if submission.vm_hosts < submission.hosts:
        print(f"(VM nodes: the first {submission.vm_hosts} of {submission.hosts} hosts; the others stay bare)")
    if submission.added:
        print(f"(metadata adds to each guest: {submission.added})")
    print(shlex.join(command))
    if submission.script is not None:
        lines = ", ".join(map(str, script.vm_lines))
        print(f"(qsub reads a copy of {script.name} without the -{VM} of line {lines})")
    return 0


def _tell(call: Call, document: dict[str, t.Any]) -> None:
    from .output.json_output import tell  # what argparse and json take is for who asks for it

    tell(call, document)


def _dry_run_bare(call: Call) -> int:
    print(f"{PROGRAM}: VM jobs are switched off on this site; the job goes to qsub as it is", file=sys.stderr)
    command = [call.qsub, *_with_prefix(call, call.arguments).words]
    if call.as_json:
        _tell(call, {"request": {}, "qsub": command})
    else:
        print(shlex.join(command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
