# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a lab lives and what it is made of: its directory, its names, its nodes, and whether they are alive."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import typing as t

DEFAULT = pathlib.Path("/run/vtorque-lab")
NETWORK = "10.77.0"
FRONT_END = "fe"
MARK = ".vtorque-lab"
NODE_NAME = r"(?=.{1,12}\Z)[a-z][a-z0-9]*(\.[a-z][a-z0-9]*)*"
MOST_NODES = 80
"""Compute nodes have the addresses .11 to .90; the DHCP server gives guests .100 to .250."""


class LabError(Exception):
    """The lab cannot do what was asked; the text is for the person who typed it."""


@dataclasses.dataclass(frozen=True)
class Mount:
    """A directory of the machine that a node sees under `target`."""

    source: str
    target: str
    read_only: bool


@dataclasses.dataclass(frozen=True)
class NodePlan:
    """All that a node's init must know.

    Attributes:
        number: 0 for the front end, compute nodes from 1 in the order given.
        peers: every node's name and address, this one included.
        mounts: what the node sees of the machine, besides the read-only view of its file system below.
        bare: neither batch system nor product, only the machine with its daemons.
        by_roles: the product comes by the roles, when the node is up, and the lab puts nothing of it there.
        prefix: directory that the node finds as /opt/vtorque then, and writes on for itself; "": it finds none.
        batch: name of the batch system (`batch.py`).
    """

    name: str
    address: str
    number: int
    peers: dict[str, str]
    mounts: tuple[Mount, ...]
    bare: bool
    by_roles: bool = False
    prefix: str = ""
    batch: str = "torque"

    @property
    def is_front_end(self) -> bool:
        """Return whether this node submits and serves, and runs no jobs."""
        return self.number == 0

    @classmethod
    def read(cls, path: pathlib.Path) -> NodePlan:
        """The plan as `write` left it."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**data, "mounts": tuple(Mount(**m) for m in data["mounts"])})

    def write(self, path: pathlib.Path) -> None:
        """Keep the plan where the node's init reads it."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1), encoding="utf-8")


def stat_fields(pid: int) -> list[str]:
    """Return /proc/PID/stat (proc(5)) from its third field on, the state.

    Raises:
        FileNotFoundError: there is no such process.
    """
    text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    # the command's name may hold blanks and parentheses: count from the last one
    return text.rpartition(")")[2].split()


@dataclasses.dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one of the same number.

    Attributes:
        start_ticks: field 22 of /proc/PID/stat.
    """

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """Raises ProcessLookupError when there is none, or only its remains."""
        try:
            fields = stat_fields(pid)
        except FileNotFoundError as error:
            raise ProcessLookupError(pid) from error
        if fields[0] in "ZX":
            raise ProcessLookupError(pid)
        return cls(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        """Return whether this very process runs under its number."""
        try:
            return Process.of(self.pid) == self
        except ProcessLookupError:
            return False


class State:
    """The lab's directory and every name that is derived from it, so that an interrupted lab can be found again.

    Args:
        directory: default from the environment's VTORQUE_LAB, else /run/vtorque-lab.
    """

    def __init__(self, directory: pathlib.Path | None = None) -> None:
        self.directory = pathlib.Path(directory or os.environ.get("VTORQUE_LAB") or DEFAULT).absolute()
        digest = hashlib.sha256(str(self.directory).encode()).hexdigest()[:6]
        self.prefix = "vtlab-" if self.directory == DEFAULT else f"vtlab-{digest}-"

    def name(self, node: str) -> str:
        """The name of a node's network namespace and cgroup (`sw` is the switch)."""
        return self.prefix + node

    def owns(self, name: str) -> bool:
        """Return whether this is the name of a namespace or cgroup of this lab.

        The default lab's prefix begins the names of every lab: what follows must be one node's name, without a dash.
        """
        return name.startswith(self.prefix) and re.fullmatch(NODE_NAME, name.removeprefix(self.prefix)) is not None

    def node(self, name: str) -> pathlib.Path:
        """The directory of one node: `upper` and `work` of its root, its plan and its init's log."""
        return self.directory / "nodes" / name

    def vanish(self) -> None:
        """Remove the directory if a lab made it, the mark last: a removal that is interrupted can be done again."""
        if not self.is_ours:
            return
        for path in self.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != MARK:
                path.unlink()
        (self.directory / MARK).unlink()
        self.directory.rmdir()

    @contextlib.contextmanager
    def lock(self) -> t.Iterator[None]:
        """Only one `up` or `down` at a time; the lock ends with its holder.

        Raises:
            LabError: another one is at work.
        """
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        # beside the directory, which `down` removes
        path = self.directory.with_name(f".{self.directory.name}.lock")
        with path.open("w", encoding="ascii") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise LabError(f"another `up` or `down` of the lab in {self.directory} is at work") from error
            yield

    def save(self, facts: Facts) -> None:
        """Write the facts, whole or not at all."""
        path = self.directory / "lab.json"
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(dataclasses.asdict(facts), indent=1), encoding="utf-8")
        temporary.rename(path)

    def load(self) -> Facts | None:
        """The facts of the lab, or None when there are none, or none of this version's.

        Nothing depends on them for cleaning up: names tell what belongs to the lab.
        """
        try:
            data = json.loads((self.directory / "lab.json").read_text(encoding="utf-8"))
            return Facts(**{**data, "inits": {name: Process(**init) for name, init in data["inits"].items()}})
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    @property
    def is_ours(self) -> bool:
        """Return whether a lab made the directory: only then its content may be removed."""
        return (self.directory / MARK).exists()

    def claim(self) -> None:
        """Make the directory.

        Raises:
            LabError: it is there, and holds what no lab made.
        """
        self.directory.mkdir(parents=True, mode=0o711, exist_ok=True)
        if any(self.directory.iterdir()):
            raise LabError(f"{self.directory} is not empty, and not a lab's (VTORQUE_LAB says where a lab lives)")
        (self.directory / MARK).touch()

    def running(self) -> Facts:
        """The facts of a lab whose `up` came to its end.

        Raises:
            LabError: there is none.
        """
        facts = self.load()
        if facts is None or not facts.up:
            raise LabError(f"no lab is up in {self.directory} (python -m lab up)")
        return facts


@dataclasses.dataclass
class Facts:
    """What `up` made.

    Attributes:
        addresses: of each node, the front end first.
        inits: process 1 of each node, as the machine numbers it.
        up: False while `up` is at work, or was interrupted.
        bare: neither batch system nor product was put onto the nodes.
        by_roles: where what roles install, or have installed, is kept (`installation/installed.py`); "": the lab does.
        batch: name of the batch system (`batch.py`).
    """

    addresses: dict[str, str]
    pool: str
    runtime: str
    bare: bool
    inits: dict[str, Process] = dataclasses.field(default_factory=dict)
    up: bool = False
    by_roles: str = ""
    batch: str = "torque"

    def init(self, node: str) -> Process:
        """Process 1 of a node.

        Raises:
            LabError: there is no such node, or it is lost.
        """
        if node not in self.addresses:
            raise LabError(f"no node {node!r} in this lab: {' '.join(self.addresses)}")
        if node not in self.inits or not self.inits[node].alive:
            raise LabError(f"node {node} is lost: its init does not run any more")
        return self.inits[node]


def addresses(names: t.Sequence[str]) -> dict[str, str]:
    """The nodes' addresses: the front end has .1, compute nodes .11, .12, ... in the order given.

    Raises:
        LabError: a name is not a node's name, comes twice, or the front end is missing.
    """
    wrong = [name for name in names if not re.fullmatch(NODE_NAME, name) or name == "sw"]
    if wrong:
        form = "small letters and digits with dots between, a letter first, at most 12 characters"
        raise LabError(f"{wrong[0]!r} is no name for a node: {form}")
    if FRONT_END not in names or len(set(names)) != len(names) or len(names) > MOST_NODES:
        raise LabError(f"the nodes must be {FRONT_END} and at most {MOST_NODES - 1} others, each named once")
    compute = [name for name in names if name != FRONT_END]
    return {FRONT_END: f"{NETWORK}.1", **{name: f"{NETWORK}.{10 + i}" for i, name in enumerate(compute, 1)}}
