# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vsbatch: sbatch, for jobs in virtual machines."""

from __future__ import annotations

import os
import pathlib
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
import typing as t

from ...module_utils.errors import SiteFault, UserFault, VTorqueError
from ...module_utils.job.admission.resolve import host_matches, resolve
from ...module_utils.job.admission.resources import demand
from ...module_utils.job.admission.submission import Site, complete
from ...module_utils.job.batch.registry import open_slurm_front, submit_command
from ...module_utils.job.config.policy_file import PATH, load
from ...module_utils.job.request.request import RequestErrors, log_wishes
from ..bridge.submission import check_user_disk, digest_user_image, pool_offers
from .output import environment, messages

if t.TYPE_CHECKING:
    from ...module_utils.job.config.parameters import Policy

PROGRAM = "vsbatch"
NOTHING_SUBMITTED = "nothing was submitted"
HELP = """\
usage: vsbatch [options of sbatch] [-vm key=value[,key=value...]]... [script [arguments]]

Submits a job as sbatch does; its script runs in a virtual machine made for it.  Everything but -vm is sbatch's.

  vsbatch job.sh                                   in the site's default machine
  vsbatch -vm img=debian12,vcpus=6,ram=8G job.sh   in this one
  vsbatch -N2 -t 2:00:00 job.sh                    with sbatch's own options: a machine on each of two nodes

In a script, before its first command:

  #VM img=debian12,vcpus=6

The command line wins over the script, the script over the site's defaults.  A job that asks for no processors or
no memory asks for what its machines need.  Keys of -vm: see vsub(1).

Exit status: sbatch's; 2 when the request is refused, 3 when the site's configuration or batch system is at fault,
1 when something else failed.
"""


def main() -> int:
    """The program; returns its exit status."""
    return messages.run(PROGRAM, lambda: submit(sys.argv[1:], environment.kept_aside()))


def submit(argv: t.Sequence[str], caller: dict[bytes, bytes], policy_path: pathlib.Path = PATH) -> int:
    """Do what the user asked for.

    Args:
        argv: the arguments.
        caller: the environment for sbatch.
        policy_path: the site's configuration.

    Returns:
        The exit status of sbatch, or ours where nothing was submitted.
    """
    try:
        return _submit(argv, caller, load(policy_path))
    except VTorqueError as error:
        print(messages.text(PROGRAM, error, NOTHING_SUBMITTED), file=sys.stderr)
        return next(status for kind, status in messages.STATUS if isinstance(error, kind))


def _submit(argv: t.Sequence[str], caller: dict[bytes, bytes], policy: Policy) -> int:
    front = open_slurm_front()
    if policy.batch_system != "slurm":
        raise UserFault(PROGRAM, f"the batch system of this site is {policy.batch_system}", "use vsub")
    host = os.uname().nodename
    sbatch = pathlib.Path(submit_command(policy, front_end=host_matches(policy.regex_fe, host)))
    call = front.read(argv)
    if front.ASKED.intersection(call.given):
        print(HELP if "help" in call.given else "", end="")
        return 0 if "help" in call.given else _run(sbatch, call.options, caller)
    if policy.disable_mikelangelo_hpc_stack:
        raise UserFault("-vm", "VM jobs are switched off on this site", "submit with sbatch")
    if host_matches(policy.disabled_hosts_list, host):
        raise UserFault(f"host {host}", "VM jobs are not submitted from here, by the site's word", "use another host")
    script = front.read_script(*_script(call, front))
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in caller.items()}
    options = front.given(call, script, variables)
    request, faults = front.request_of(call, script, options)
    offers, broken = pool_offers(policy)
    site = Site(offers, broken, tuple, check_user_disk, lambda path: digest_user_image(path, policy))
    request, _added, wrong = complete(request, policy, site, pwd.getpwuid(os.getuid()).pw_dir)
    faults += wrong
    sizes: tuple[str, ...] = ()
    try:
        need = demand(resolve(request, policy, offers), policy)
        sizes = front.sizes(options, need.cores, need.mem_mib)
    except RequestErrors as errors:
        known = {fault.key for fault in faults}
        faults += [fault for fault in errors.faults if fault.key not in known]
    if faults:
        raise RequestErrors(faults, request)
    option = front.comment_of(request.with_log(log_wishes(variables)).to_json())
    # behind the user's own, of which the last one counts
    added = (*front.constraint(options, policy.vm_node_property), option)
    text = front.with_interpreter(script, f"{policy.prefix_nodes}/bin/vtorque-shell")
    return _hand_over(sbatch, (*sizes, *call.options, *added), script.name, text, call.operands[1:], caller)


def _script(call: t.Any, front: t.Any) -> tuple[bytes, str]:
    """The script and its name: of `--wrap`, of a file, or of standard input, as sbatch takes them."""
    if call.wrap is not None:
        if call.operands:
            raise UserFault("--wrap", "goes with no script", "leave one of the two out")
        return f"#!/bin/sh\n# This script was created by vsbatch --wrap.\n\n{call.wrap}\n".encode(), "wrap"
    if not call.operands:
        return sys.stdin.buffer.read(), front.SCRIPT_NAMES["stdin"]
    path = call.operands[0]
    try:
        # a named pipe would wait for a writer
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise front.missing(path, "it is not a file")
            return stream.read(), pathlib.Path(path).name
    except OSError as error:
        raise front.missing(path, f"it cannot be read: {error.strerror}") from error


def _hand_over(
    sbatch: pathlib.Path,
    options: t.Sequence[str],
    name: str,
    text: bytes,
    arguments: t.Sequence[str],
    caller: dict[bytes, bytes],
) -> int:
    """Run sbatch over a copy of the same base name, after which it names the job."""

    def end(number: int, _frame: object) -> t.NoReturn:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    with tempfile.TemporaryDirectory(prefix="vsbatch.") as directory:
        copy = pathlib.Path(directory) / name
        copy.write_bytes(text)
        return _run(sbatch, (*options, str(copy), *arguments), caller)


def _run(sbatch: pathlib.Path, words: t.Sequence[str], caller: dict[bytes, bytes]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        status = subprocess.run([str(sbatch), *words], env=caller, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        raise SiteFault(str(sbatch), f"cannot be run: {error.strerror}", "see pbs_qsub_on_fe") from error
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
