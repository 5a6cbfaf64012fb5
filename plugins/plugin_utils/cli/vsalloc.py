# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vsalloc: salloc, for a session or a command in a virtual machine of the job."""

from __future__ import annotations

import base64
import os
import pathlib
import pwd
import sys
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

PROGRAM = "vsalloc"
NOTHING_SUBMITTED = "nothing was submitted"
HELP = """\
usage: vsalloc [options of salloc] [-vm key=value[,key=value...]]... [command [arguments]]

Asks for nodes as salloc does; a shell, or the command, runs in a virtual machine made for it.

  vsalloc                                          a shell in the site's default machine
  vsalloc -vm img=debian12,vcpus=6 -t 1:00:00      in this one, for an hour
  vsalloc -N2 -vm img=debian12 mpirun ./ring       a command, with a machine on each of two nodes

A shell needs a terminal.  Keys of -vm: see vsub(1).

Exit status: that of the shell or the command; 2 when the request is refused, 3 when the site's configuration or batch
system is at fault, 1 when something else failed.
"""


def main() -> int:
    """The program; returns its exit status."""
    return messages.run(PROGRAM, lambda: allocate(sys.argv[1:], environment.kept_aside()))


def allocate(argv: t.Sequence[str], caller: dict[bytes, bytes], policy_path: pathlib.Path = PATH) -> int:
    """Do what the user asked for.

    Args:
        argv: the arguments.
        caller: the environment for salloc.
        policy_path: the site's configuration.

    Returns:
        Our exit status, where nothing was submitted; else this process becomes salloc.
    """
    try:
        line = _line(argv, caller, load(policy_path))
        return _become(line, caller) if line else 0
    except VTorqueError as error:
        print(messages.text(PROGRAM, error, NOTHING_SUBMITTED), file=sys.stderr)
        return next(status for kind, status in messages.STATUS if isinstance(error, kind))


def _line(argv: t.Sequence[str], caller: dict[bytes, bytes], policy: Policy) -> list[str]:
    """Return the call of salloc; empty: help was wanted, and is given."""
    front = open_slurm_front()
    if policy.batch_system != "slurm":
        raise UserFault(PROGRAM, f"the batch system of this site is {policy.batch_system}", "use vsub -I")
    host = os.uname().nodename
    salloc = pathlib.Path(submit_command(policy, front_end=host_matches(policy.regex_fe, host))).parent / "salloc"
    call = front.read(argv, front.OF_SALLOC)
    if front.ASKED.intersection(call.given):
        if "help" in call.given:
            print(HELP, end="")
            return []
        return [str(salloc), *call.options]
    if policy.disable_mikelangelo_hpc_stack:
        raise UserFault("-vm", "VM jobs are switched off on this site", "use salloc")
    if host_matches(policy.disabled_hosts_list, host):
        raise UserFault(f"host {host}", "VM jobs are not submitted from here, by the site's word", "use another host")
    terminal = os.isatty(0) and os.isatty(1)
    if not call.operands and not terminal:
        raise UserFault("a shell", "needs a terminal", "give a command, or submit a script with vsbatch")
    if "no-shell" in call.given:
        raise UserFault("--no-shell", "a machine is there for the shell or the command in it", "leave it out")
    options = front.given(call, front.Script(b"", PROGRAM), {})
    request, faults = front.request_of(call, front.Script(b"", PROGRAM), options)
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
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in caller.items()}
    wire = request.with_log(log_wishes(variables)).encode().partition(":")[2]
    option = front.comment_of(base64.urlsafe_b64decode(wire + "=" * (-len(wire) % 4)))
    wants = policy.vm_node_property
    feature = () if wants is None or "constraint" in options else (f"--constraint={wants}",)
    step = front.interactive_step(f"{policy.prefix_nodes}/bin/vtorque-shell", call.operands, terminal=terminal)
    return [str(salloc), *sizes, *feature, *call.options, option, str(salloc.parent / "srun"), *step]


def _become(line: list[str], caller: dict[bytes, bytes]) -> t.NoReturn:
    sys.stdout.flush()
    try:
        os.execve(line[0], line, caller)  # noqa: S606 - the words are for salloc as they are
    except OSError as error:
        raise SiteFault(line[0], f"cannot be run: {error.strerror}", "see pbs_qsub_on_fe") from error


if __name__ == "__main__":
    sys.exit(main())
