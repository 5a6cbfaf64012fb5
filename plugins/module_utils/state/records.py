# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready, refusal and job records: what root writes about a job, and how it is read back safely.

/run/vtorque/jobs/<job>.<start>/         0711 root: ready.json or refusal.json, known_hosts, job_key, plan.json
/var/lib/vtorque/records/<job>.<start>/  record.json, log and consoles; they outlive the job
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import typing as t

from ..effects import leaves_nothing
from ..frozen import frozen
from ..guest_kinds import SLG
from ..system.files import write_json
from ..system.process.process_id import ProcessId
from . import layout


@frozen
class ReadyGuest:
    """A guest as the job's shell needs it.

    Attributes:
        vcpus: its virtual processors; 0: not told, and the job's own counts stay.
        port: where its sshd listens.
        kind: of `guest_kinds.KINDS`.
        gpus: how many processors of graphics it has of its host.
        shared_mib: of the region that it shares with the others on its node, in MiB; 0: there is none.
        rdma: of which kind its RDMA device is; "": it has none.
        networks: its addresses on further networks, as `GuestFacts.networks`.
    """

    rank: int
    name: str
    node: str
    address: str
    vcpus: int = 0
    port: int = 22
    kind: str = SLG.name
    gpus: int = 0
    shared_mib: int = 0
    rdma: str = ""
    networks: str = ""


@frozen
class ReadyBare:
    """A host of a mixed job that stays bare, as the job's shell needs it.

    Attributes:
        slots: how often the job's node file names it.
    """

    name: str
    slots: int


@frozen
class ReadyRecord:
    """The guests of this start are ready, and this process may run the job in them.

    Attributes:
        shell: the process that was the prologue's parent when root decided.
        boot_id: the boot in which that was true.
        guests: by rank, 0 first.
        user_shell: the user's own `-S`, or "" for the login shell of passwd.
        directory: where the job was submitted or starts, as the batch server has it; "": it has none.
        far_end: the program in the guest that runs the job (`templates/guest/run.sh`).
        bare: the hosts of a mixed job that stay bare, in the order of the node file.
        detached: the job goes on in its guest without the connection of its shell: its guests are saved at times.
        returned: the guests are saved ones, in which the job has begun long since.
    """

    job_id: str
    start: int
    user: str
    shell: ProcessId
    boot_id: str
    guests: tuple[ReadyGuest, ...]
    user_shell: str
    far_end: str = "/usr/lib/vtorque/run"
    bare: tuple[ReadyBare, ...] = ()
    directory: str = ""
    detached: bool = False
    returned: bool = False

    @classmethod
    @leaves_nothing
    def from_dict(cls, data: dict[str, t.Any]) -> ReadyRecord:
        """The record as `write` stored it; root wrote it, so the form is taken as given."""
        rest = {**data, "shell": ProcessId(**data["shell"]), "guests": tuple(ReadyGuest(**g) for g in data["guests"])}
        return cls(**{**rest, "bare": tuple(ReadyBare(**one) for one in data.get("bare", ()))})


@frozen
class RefusalRecord:
    """Root decided that this start runs nothing, and why: the job's shell prints it and fails.

    Attributes:
        lines: what more there is to say, printed below the hint.
    """

    job_id: str
    start: int
    fault: str
    what: str
    why: str
    hint: str
    lines: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, data: dict[str, t.Any]) -> RefusalRecord:
        """The record as `write` stored it."""
        return cls(**{**data, "lines": tuple(data.get("lines", ()))})


@frozen
class LostRecord:
    """A guest of this start ended or was paused after it was ready: the job's shell says so and ends the job.

    Attributes:
        guest: its name.
        reason: what libvirt said of it, in words.
        console: the last lines of its console, in one line; "" when it was silent.
        when: seconds since the epoch.
    """

    guest: str
    node: str
    reason: str
    console: str
    when: float

    @classmethod
    def from_dict(cls, data: dict[str, t.Any]) -> LostRecord:
        """The record as `write` stored it."""
        return cls(**data)


def write_lost(directory: pathlib.Path, lost: LostRecord, *, reader_uid: int | None) -> bool:
    """Let the job's shell know of a lost guest: whole first, then heard (it watches the ready record).

    Args:
        directory: the run directory of the start, on the mother superior.
        lost: which guest.
        reader_uid: the job's owner.

    Returns:
        False: there is no such start here, or another guest was lost before this one.

    Raises:
        VTorqueError: it was not written.
    """
    if not directory.is_dir() or (directory / layout.LOST).exists():
        return False
    write_json(directory / layout.LOST, lost, reader_uid=reader_uid)
    with contextlib.suppress(FileNotFoundError):  # nobody watches it yet; who comes looks first
        os.utime(directory / layout.READY)
    return True
