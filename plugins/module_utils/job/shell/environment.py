# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job's environment, as it is in the guest."""

from __future__ import annotations

import resource
import typing as t

from ...frozen import frozen
from ...guest_kinds import SLG
from ...state.records import ReadyBare, ReadyGuest

if t.TYPE_CHECKING:
    from ..batch.contract import ShellAdapter

OF_THE_LOGIN = (b"HOME", b"USER", b"LOGNAME", b"SHELL")
"""A batch system computes these from passwd after the user's own; in the guest its passwd says them."""

OF_DEVICES = (b"CUDA_VISIBLE_DEVICES",)
"""Numbers of devices of the node, which are others in a guest."""

OF_REGION = (b"VTORQUE_SHM", b"VTORQUE_SHM_SIZE", b"VTORQUE_SHM_PEERS")
"""Where the region is that guests of a node share, how many bytes it has, and the names of these guests."""
NETWORKS = b"VTORQUE_NETWORKS"
"""Names of further networks of the job, each with the address of its first guest there."""
REGION = b"/dev/vtorque-shm"
"""A link of the guest's (`templates/guest/region.sh`)."""


@frozen
class JobStart:
    """How and with what the job starts in the guest.

    Attributes:
        variables: the environment, byte by byte.
        directory: where it starts; empty for the user's home.
        umask: as the batch system set it.
        limits: of resources, as `limits_here` writes them; empty: the guest's own.
        shell: the user's own `-S`; empty for their login shell.
        script: where the script lies, on the node as in the guest; empty when there is none.
        line: what the batch system writes to the standard input of the shell.
        command: `qsub -I -x`: what the shell is to run; else empty.
        x11: whether the job gets the display that the connection forwards.
        joined: whether its standard output and error are one file (`qsub -j`); two streams would lose their order.
        execute: whether the script is executed itself, with these arguments; False: a login shell gets the line.
        arguments: of a script that is executed.
        detached: whether it goes on in the guest when the connection ends.
    """

    variables: dict[bytes, bytes]
    umask: int
    limits: bytes = b""
    directory: bytes = b""
    shell: bytes = b""
    script: bytes = b""
    line: bytes = b""
    command: bytes = b""
    x11: bool = False
    joined: bool = False
    execute: bool = False
    arguments: tuple[bytes, ...] = ()
    detached: bool = False

    def settings(self) -> bytes:
        """The text that the guest's side reads (`templates/guest/run.sh`): assignments, then the variables.

        Every value is one quoted word, in which a shell changes no byte.  The last line tells that nothing is missing.
        """
        parts = {
            b"vt_directory": self.directory,
            b"vt_umask": b"%04o" % self.umask,
            b"vt_limits": self.limits,
            b"vt_shell": self.shell,
            b"vt_script": self.script,
            b"vt_line": self.line,
            b"vt_command": self.command,
            b"vt_x11": b"yes" if self.x11 else b"",
            b"vt_joined": b"yes" if self.joined else b"",
            b"vt_detached": b"yes" if self.detached else b"",
        }
        if self.execute:
            parts |= {b"vt_execute": b"yes", b"vt_arguments": b" ".join(map(quoted, self.arguments))}
        lines = [name + b"=" + quoted(value) for name, value in parts.items()]
        variables = b" ".join(quoted(name + b"=" + value) for name, value in self.variables.items())
        return b"\n".join([*lines, b"set -- " + variables, b"vt_whole=yes", b""])

    def message(self, script: bytes) -> bytes:
        """What the guest's side reads: two lengths, the settings, the script, a last word."""
        settings = self.settings()
        return b"%d %d\n" % (len(settings), len(script)) + settings + script + b"whole\n"


def limits_here(*, locked: bool = False) -> bytes:
    """The limits of this process as `name=soft:hard`, in the units of `ulimit`.

    A name is the letter of a POSIX shell's `ulimit`, or where shells do not agree on one, prlimit(1)'s word.

    Args:
        locked: whether the job may lock all memory of its guests.  Verbs lock what they register.
    """

    def limit_text(value: int, unit: int) -> str:
        return "unlimited" if value == resource.RLIM_INFINITY else str(value // unit)

    units = {
        "c": (resource.RLIMIT_CORE, 512),
        "d": (resource.RLIMIT_DATA, 1024),
        "f": (resource.RLIMIT_FSIZE, 512),
        "l": (resource.RLIMIT_MEMLOCK, 1024),
        "m": (resource.RLIMIT_RSS, 1024),
        "n": (resource.RLIMIT_NOFILE, 1),
        "s": (resource.RLIMIT_STACK, 1024),
        "t": (resource.RLIMIT_CPU, 1),
        "v": (resource.RLIMIT_AS, 1024),
        "nproc": (resource.RLIMIT_NPROC, 1),
        "nice": (resource.RLIMIT_NICE, 1),
        "rtprio": (resource.RLIMIT_RTPRIO, 1),
        "msgqueue": (resource.RLIMIT_MSGQUEUE, 1),
        "sigpending": (resource.RLIMIT_SIGPENDING, 1),
    }
    options = []
    for name, (which, unit) in units.items():
        soft, hard = resource.getrlimit(which)
        if locked and which == resource.RLIMIT_MEMLOCK:
            soft = hard = resource.RLIM_INFINITY
        options.append(f"{name}={limit_text(soft, unit)}:{limit_text(hard, unit)}")
    return " ".join(options).encode()


def quoted(value: bytes) -> bytes:
    """One word of a POSIX shell that stands for exactly these bytes."""
    return b"'" + value.replace(b"'", b"'\\''") + b"'"


def read_environ(block: bytes) -> dict[bytes, bytes]:
    """The variables of a block as /proc/PID/environ holds it; the first of a name counts, as for getenv(3)."""
    found: dict[bytes, bytes] = {}
    for entry in block.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if name and equals:
            found.setdefault(name, value)
    return found


def guest_variables(
    system: ShellAdapter, job: t.Mapping[bytes, bytes], guests: t.Sequence[ReadyGuest], bare: t.Sequence[ReadyBare] = ()
) -> dict[bytes, bytes]:
    """What the job finds in its guest.

    Args:
        system: knows which variables are the batch system's.
        job: the environment in which the batch system started the job's shell: its own variables, and what the
            user passed with `-v` and `-V`.
        guests: the job's guests, by rank; the counts describe them,
        bare: and the hosts of a mixed job that stay bare.
    """
    # env(1) in the guest would take a name that begins with a dash for an option
    passed_on = {name: value for name, value in job.items() if not name.startswith(b"-")}
    for name in (*system.NODE_PATHS, *OF_DEVICES, *OF_REGION, NETWORKS, *OF_THE_LOGIN):
        passed_on.pop(name, None)
    passed_on.setdefault(b"PATH", b"/usr/local/bin:/usr/bin:/bin")
    passed_on[b"DISTRO"] = (guests[0].kind if guests else SLG.name).upper().encode()
    if guests and all(guest.vcpus for guest in guests):
        each = [*(guest.vcpus for guest in guests), *(host.slots for host in bare)]
        names = [*(guest.name for guest in guests), *(host.name for host in bare)]
        passed_on |= system.counts(
            processors=sum(each), hosts=len(names), first=guests[0].vcpus, names=names, each=each
        )
    if guests and (gpus := guests[0].gpus):
        passed_on[OF_DEVICES[0]] = b",".join(b"%d" % number for number in range(gpus))
        passed_on |= system.gpu_variables(passed_on, gpus)
    passed_on |= _of_region(guests)
    if guests and guests[0].networks:
        passed_on[NETWORKS] = guests[0].networks.encode()
    return {**passed_on, **system.launcher_variables(passed_on)}


def _of_region(guests: t.Sequence[ReadyGuest]) -> dict[bytes, bytes]:
    """The variables of the region that the first guest shares with the others on its node."""
    if not guests or not guests[0].shared_mib:
        return {}
    peers = b" ".join(guest.name.encode() for guest in guests if guest.node == guests[0].node)
    return dict(zip(OF_REGION, (REGION, b"%d" % (guests[0].shared_mib << 20), peers), strict=True))


def changes(
    system: ShellAdapter, job: t.Mapping[bytes, bytes], guest: t.Mapping[bytes, bytes], *, x11: bool = False
) -> str:
    """What became of the job's variables on their way, for its log; what the guest's login says itself is left out.

    Args:
        system: knows which variables are the batch system's.
        job: the environment in which the batch system started the job's shell.
        guest: what `guest_variables` made of it.
        x11: whether the job has the display that the connection forwards.

    Returns:
        A line; "" when all of them are as they were.
    """
    display = [b"DISPLAY"] if x11 else []
    of_node = (*system.NODE_PATHS, *OF_DEVICES, *OF_REGION, NETWORKS)
    gone = [name for name in job if name not in guest and name not in (*OF_THE_LOGIN, *display)]
    other = [name for name in job if guest.get(name, job[name]) != job[name] and name not in OF_THE_LOGIN]
    lists = {
        "dropped, as they name what only the node has": [name for name in gone if name in of_node],
        "dropped, as env(1) would take them for options": [name for name in gone if name not in of_node],
        "replaced by the guest's own": display,
        "replaced, as they count the guests": other,
    }
    return "; ".join(f"{what}: {b' '.join(names).decode(errors='replace')}" for what, names in lists.items() if names)
