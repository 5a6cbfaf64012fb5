# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's playbooks, as a hook runs them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import sys
import time
import typing as t

from .. import file_server, guestspec, records, templates
from ..errors import NodeFault, VTorqueError, broken_disk, error_from_dict
from ..frozen import frozen
from ..guestspec import NodePart
from . import bounded
from .hook_call import RESERVE_S
from .parameters import Policy
from .player import Player

INVENTORY = "job.pbs_nodefile.yml"
NODE_PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vtorque_node"
RECORD_PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vtorque_record"
PLAY_PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.play"
USER_SCRIPT_PROGRAM = "ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.user_script"
LOG_TAIL = 1 << 16
REMOVAL_S = 12.0
REMOVAL_LEAST_S = 4.0
"""What a verdict leaves for the removal; what is not done then, the epilogue does."""
VERDICT_S = 15.0
WRITING_S = 1.0
"""What a hook still writes after the last program that it ran."""
SLACK_S = 3.0
"""The nodes end their work at the deadline by themselves, and what they say must still be written down."""


@frozen
class Places:
    """Where a hook finds and leaves things.

    Attributes:
        run_dir: what is true while the job runs.
        state_dir: guests and records.
        config: the site's configuration.
        ansible: the call of ansible-playbook; its arguments follow.
        node: the call of `vtorque-node`.
        record: the call of `vtorque-record`.
        user_script: the call of the program that runs a script of the user's, as the user.
    """

    run_dir: pathlib.Path = records.RUN_DIR
    state_dir: pathlib.Path = records.STATE_DIR
    config: pathlib.Path = pathlib.Path("/etc/vtorque/vtorque.yml")
    ansible: tuple[str, ...] = tuple(bounded.program(PLAY_PROGRAM))
    node: tuple[str, ...] = tuple(bounded.program(NODE_PROGRAM))
    record: tuple[str, ...] = tuple(bounded.program(RECORD_PROGRAM))
    user_script: tuple[str, ...] = tuple(bounded.program(USER_SCRIPT_PROGRAM))


@frozen
class Start:
    """One start of a job on its mother superior."""

    job_id: str
    number: int
    places: Places

    @property
    def directory(self) -> pathlib.Path:
        """The run directory."""
        return records.run_directory(self.job_id, self.number, self.places.run_dir)

    @property
    def record_directory(self) -> pathlib.Path:
        """What outlives the job."""
        return self.places.state_dir / "records" / records.job_key(self.job_id, self.number)

    @property
    def guests_directory(self) -> pathlib.Path:
        """The guests of this node."""
        return self.places.state_dir / "guests" / records.job_key(self.job_id, self.number)

    def open_log(self, reader_uid: int | None) -> t.IO[bytes]:
        """The job's log, to be added to; its owner may read it.

        Raises:
            NodeFault: the disk is full or broken.
            VTorqueError: it cannot be opened.
        """
        path = self.record_directory / "vtorque.log"
        with _disk_judged(path):
            records.make_record_directory(path.parent, reader_uid)
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            if reader_uid is not None:
                records.let_read(fd, reader_uid)
        return os.fdopen(fd, "ab", buffering=0)

    def open_any_log(self, reader_uid: int | None) -> t.IO[bytes]:
        """The job's log, or none: a full disk must not keep anybody from cleaning up."""
        try:
            return self.open_log(reader_uid)
        except VTorqueError:
            return pathlib.Path(os.devnull).open("ab", buffering=0)


@contextlib.contextmanager
def _disk_judged(path: pathlib.Path) -> t.Iterator[None]:
    """Tell a local disk that is full or broken, which is this node's fault, from whatever else the system refuses."""
    try:
        yield
    except (OSError, VTorqueError) as error:
        if disk := broken_disk(error):
            hint = "free some space, or see to the disk"
            raise NodeFault(f"{path} cannot be written", str(disk.strerror), hint, cause="disk") from error
        raise VTorqueError(f"{path} cannot be written", str(error)) from error


def begin_log(start: Start, log: t.IO[bytes], text: str) -> None:
    """Write the first line of a start: Ansible could not tell of a disk that is full, for its words go there too.

    Args:
        start: whose log it is.
        log: open to be added to.
        text: without the time.

    Raises:
        NodeFault: the disk is full or broken.
    """
    with _disk_judged(start.record_directory / "vtorque.log"):
        log.write(records.log_line(text))


def note(log: t.IO[bytes], text: str) -> None:
    """Add a line to the job's log; that it cannot be written stops nothing."""
    with contextlib.suppress(OSError):
        log.write(records.log_line(text))


def prepare(start: Start, nodefile: pathlib.Path | None, policy: Policy, player: Player) -> None:
    """Write what Ansible needs for this start: its settings and the inventory.

    Args:
        nodefile: the job's node file, if there is one.
        policy: says how nodes are asked.
        player: gets the settings.

    Raises:
        VTorqueError: they were not written.
    """
    source = {"plugin": "mikelangelo.vtorque.pbs_nodefile", "job_id": start.job_id}
    if nodefile is not None:
        source["nodefile"] = str(nodefile)
    if start.places.config != Places.config:
        source["config"] = str(start.places.config)
    records.write(start.directory / INVENTORY, json.dumps(source))  # JSON is YAML
    prefix = str(pathlib.Path(sys.prefix).parent)
    run_dir = str(start.places.run_dir)
    at_once = {} if policy.parallel else {"forks": 1}
    settings: dict[str, t.Any] = {
        "prefix": prefix,
        "run_dir": run_dir,
        "ssh_timeout": int(policy.ssh_timeout),
        **at_once,
    }
    own = pathlib.Path(policy.template_dir)
    player.settle(templates.render("ansible.cfg.j2", site_dir=own, **settings))


def play(
    start: Start,
    name: str,
    *,
    until: float,
    log: t.IO[bytes],
    shell: records.ProcessId | None = None,
    player: Player | None = None,
    detail: bool = False,
    pool: pathlib.Path | None = None,
) -> VTorqueError | None:
    """Run one of the job's playbooks.

    Args:
        name: `prologue` or `epilogue`.
        until: when it is ended, in seconds of the monotonic clock.
        log: where its output goes.
        shell: the process that becomes the job's shell.
        player: who plays, and has perhaps loaded already; None: a new one.
        detail: let Ansible tell the results of its tasks too.
        pool: which it reads, and which may be what held it up.

    Returns:
        None when all went well, else what failed.
    """
    begin = os.fstat(log.fileno()).st_size
    told = {"VTORQUE_DEADLINE": f"{until:.3f}"}
    if shell is not None:
        told["VTORQUE_SHELL"] = str(shell)
    player = player or Player(start.places.ansible, start.places.run_dir)
    arguments = ("-i", str(start.directory / INVENTORY), f"mikelangelo.vtorque.{name}", *(("-vv",) if detail else ()))
    try:
        code = player.play(arguments, told, timeout_s=until + SLACK_S - time.monotonic(), log=log)
    except OSError as error:
        return VTorqueError(f"the {name} of job {start.job_id} was not played", str(error))
    if code == 0:
        return None
    try:
        return error_from_dict(records.read_json(start.directory / "error.json"))
    except FileNotFoundError:
        pass
    # no node has said what is wrong: nobody is to blame
    if code is None:
        late = f"the {name} of job {start.job_id} was not done in time"
        silent = None if pool is None else file_server.silent_pool(pool, late)
        return silent or VTorqueError(late, "it was ended at its deadline")
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
    why = _inventory_fault(start.record_directory / "vtorque.log", begin) or f"ansible-playbook {ended}"
    return VTorqueError(f"the {name} of job {start.job_id} failed", why)


def _inventory_fault(log: pathlib.Path, begin: int) -> str:
    """What the inventory found wrong, which only Ansible's own words tell."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(begin, stream.seek(0, os.SEEK_END) - LOG_TAIL))
            text = stream.read(LOG_TAIL).decode(errors="replace")
    except OSError:
        return ""
    found = re.search(rf"{re.escape(INVENTORY)}'?:\s+(\S.*)", text)
    return "".join(c if c.isprintable() else " " for c in found[1])[:500] if found else ""


def verdict_time_s(until: float) -> float:
    """Seconds for the batch system's commands in a prologue whose work was to be done by `until`.

    A playbook that was ended by force is gone `SLACK_S` + `bounded.ENDING_S` after that, 7 of the reserve's 20 s.  The
    removal then needs `REMOVAL_LEAST_S` + `bounded.ENDING_S` + `WRITING_S`, 9 s: 4 s are left, which is eight calls
    (job; nodes; offline: nodes, order, nodes; hold: order, job; comment) of half a second; they take 15 ms each.
    A pool that hangs takes `file_server.POOL_S` of these.
    """
    killed = until + RESERVE_S
    return min(VERDICT_S, killed - REMOVAL_LEAST_S - bounded.ENDING_S - WRITING_S - time.monotonic())


def removal_time_s(until: float) -> float:
    """Seconds for `remove_here` in a hook whose work was to be done by `until`: what is left of its reserve.

    A playbook that was ended by force has used some of it, and so has the verdict; and Torque takes a killed prologue
    for a success.
    """
    killed = until + RESERVE_S
    return min(REMOVAL_S, killed - bounded.ENDING_S - WRITING_S - time.monotonic())


def remove_here(start: Start, node: str, *, timeout_s: float, log: t.IO[bytes]) -> VTorqueError | None:
    """Remove what is on this node of this start, without Ansible.

    Args:
        timeout_s: seconds; when none are left nothing is tried.

    Returns:
        None when nothing is left, else what failed.
    """
    part = NodePart.removal(start.job_id, start.number, node, max(0.0, timeout_s - 1))
    said = json.dumps(guestspec.to_dict(part)).encode()
    what = f"not everything of job {start.job_id} was removed from {node}"
    try:
        code, out = bounded.run(start.places.node, timeout_s=timeout_s, log=log, said=said, capture=True)
    except OSError as error:
        return VTorqueError(what, f"vtorque-node was not run: {error}")
    note(log, f"vtorque-node: {out.decode(errors='replace').strip()}")
    if code != 0:
        return VTorqueError(what, "no answer in time" if code is None else f"vtorque-node ended with status {code}")
    try:
        answer = json.loads(out)
        if not answer["ok"]:
            return error_from_dict(answer["error"])
        return VTorqueError(what, f"left: {', '.join(map(str, answer['left']))}"[:1000]) if answer["left"] else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return VTorqueError(what, "vtorque-node gave no answer")
