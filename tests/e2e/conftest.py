# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab for the end-to-end tests: raised once, used from where its users stand."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import fcntl
import os
import pathlib
import socket
import subprocess
import threading
import time
import typing as t
import xml.etree.ElementTree as ET

import pytest

from lab.cluster import on_nodes
from lab.system.state import DEFAULT, Facts, LabError, State
from lab.torque.shared import wire

from .batch_facts import BATCHES, TORQUE

pytest.register_assert_rewrite(f"{__package__}.trouble")

if WORKER := os.environ.get("PYTEST_XDIST_WORKER", ""):
    # tests run side by side, each process of them with a lab of its own; `make down` knows the names
    os.environ["VTORQUE_LAB"] = f"{os.environ.get('VTORQUE_LAB', '/run/vtorque-lab')}-{WORKER}"

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
LAB = (str(CHECKOUT / "build/runtime/bin/python"), "-m", "lab")
BY_ROLES = bool(os.environ.get("VTORQUE_BY_ROLES"))
"""On nodes that the roles have installed (`make e2e` has a part of the tests there)?"""
JOB_TIMEOUT_S = 900
"""What ends a test that hangs; no test measures time, and software emulation on a busy machine takes its own."""

BOOTED = ("fast", "straight")
WAYS = (*BOOTED, "warm")
"""How a start of a job goes: guests boot and its start begins early or not (`fast_start`), or guests start `warm`.

A module with `START_WAYS = cases(WAYS, ...)` has each of its tests in each of these ways; elsewhere each is tried once,
in the `USUAL_WAY`.  One that must have boots says `START_WAYS = ("fast",)`, and why.
"""
USUAL_WAY = os.environ.get("VTORQUE_START_WAY") or "fast"
"""`make e2e` sets it to `warm`: a guest is ready in half of the time then, and a job ends the same way."""

Result = subprocess.CompletedProcess


def cases(given: t.Iterable[t.Any], *short: t.Any) -> list[t.Any]:
    """The cases of a test, of which `make test` plays these alone, and `FULL=1` all (docs/developer/testing.md)."""
    known = list(given)
    assert set(short) <= set(known)
    return [pytest.param(one, marks=() if one in short else pytest.mark.full, id=str(one)) for one in known]


@dataclasses.dataclass(frozen=True)
class Ended:
    """A job that is over, and what it left for its owner."""

    job_id: str
    exit_status: int
    out: str
    err: str
    node: str


@dataclasses.dataclass(frozen=True)
class Node:
    """A compute node, as `pbsnodes` shows it."""

    states: frozenset[str]
    note: str

    @property
    def usable(self) -> bool:
        """May a job start here?"""
        return self.states == {"free"}


class Site:
    """A lab, as its users and its administrator see it.

    Args:
        directory: where it keeps its state; "" for the lab of all tests.

    Attributes:
        batch: what differs with its batch system.
        look_s: between two looks at what a test waits for.
    """

    batch = TORQUE
    look_s = 0.2

    def __init__(self, directory: str = "") -> None:
        self.environment = {**os.environ, "VTORQUE_LAB": directory} if directory else dict(os.environ)

    def run(self, *arguments: str, stdin: str | bytes | None = None, timeout_s: float = JOB_TIMEOUT_S) -> Result[str]:
        """One call of the lab's own command."""
        return self._call([*LAB, *arguments], stdin, timeout_s)

    def _call(self, line: t.Sequence[str], stdin: str | bytes | None, timeout_s: float) -> Result[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(line, cwd=CHECKOUT, input=data if data is not None else b"",
                              capture_output=True, timeout=timeout_s, env=self.environment)  # fmt: skip
        return Result(
            done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )

    @property
    def directory(self) -> pathlib.Path:
        """Where the lab keeps its state."""
        return pathlib.Path(self.environment.get("VTORQUE_LAB") or DEFAULT)

    @property
    def facts_of_lab(self) -> Facts:
        """The lab as it is now."""
        return State(self.directory).running()

    def on(self, node: str, *command: str, user: str | None = None, stdin: str | bytes | None = None) -> Result[str]:
        """Run a command on a node, as root or as a user in his home.

        The line is that of `lab on`, which the lab's own tests and `terminal.py` call: to make it here saves a start of
        Python at each of thousands of calls.
        """
        try:
            line = on_nodes.command(self.facts_of_lab, node, command, user=user or "root")
        except LabError as error:
            return Result(command, 2, "", f"lab: {error}\n")
        return self._call(line, stdin, JOB_TIMEOUT_S)

    def root(self, node: str, script: str) -> str:
        """Run a line of shell as root on a node; it must succeed."""
        done = self.on(node, "/bin/sh", "-c", script)
        assert done.returncode == 0, f"{script}: {done.stderr}"
        return done.stdout

    def up(self, *arguments: str, by_roles: bool = BY_ROLES) -> None:
        """Raise the lab; it must come up."""
        kind = ("--by-roles",) if by_roles else ()
        raised = self.run("up", "--pool", str(CHECKOUT / "build/pool"), *kind, *arguments)
        assert raised.returncode == 0, raised.stdout + raised.stderr

    def vsub(
        self, *arguments: str, stdin: str | bytes | None = None, user: str = "alice", through: t.Sequence[str] = ()
    ) -> Result[str]:
        """Submit from the front end.

        Args:
            arguments: of the command.
            stdin: its standard input.
            user: whose job it is.
            through: words before the command, as of `env`.
        """
        return self.on("fe", *through, "vsub", *arguments, user=user, stdin=stdin)

    def qsub(self, *arguments: str, stdin: str | bytes | None = None, user: str = "alice") -> Result[str]:
        """Submit past vsub."""
        return self.on("fe", "qsub", *arguments, user=user, stdin=stdin)

    def write(self, path: str, content: str | bytes, user: str = "alice") -> str:
        """A file of the user's on the shared home."""
        done = self.on("fe", "/bin/sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1" && chmod 755 "$1"', "sh", path,
                       user=user, stdin=content)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return path

    def read(self, path: str) -> str:
        """A file of the shared home, "" when there is none."""
        return self.on("fe", "cat", path).stdout

    def facts(self, job_id: str) -> dict[str, str]:
        """What `qstat -x -f` says of a job, its nested groups left out; {} for an unknown job."""
        status, printed = self._look("qstat", "-x", "-f", job_id)
        if status != 0:
            return {}
        job = tree_of(printed).find("Job")
        assert job is not None, printed
        return {child.tag: child.text or "" for child in job}

    def _look(self, *arguments: str) -> tuple[int, str]:
        """Return the status and the output of a `qstat` or `pbsnodes` on the front end.

        The request is the program's own (lab/torque/commands/look_client.py), and so is the answer, which the server
        words. To send it from here saves a start of Python at each of many calls while a test waits for a job.
        """
        request = {"op": "look", "words": " ".join(word.encode().hex() for word in arguments)}
        answer = b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(JOB_TIMEOUT_S)
            try:
                connection.connect(wire.server_socket(str(self.directory / "batch"), "fe"))
                connection.sendall(wire.encode(request))
                while data := connection.recv(1 << 20):
                    answer += data
            except (FileNotFoundError, ConnectionError):
                answer = b""
        if not answer:  # no server: the program knows what to say
            done = self.on("fe", *arguments)
            return done.returncode, done.stdout
        head, _newline, text = answer.partition(b"\n")
        status, length = map(int, head.split())
        return status, text[:length].decode(errors="replace")

    def wait_for(
        self, what: str, probe: t.Callable[[], t.Any], timeout_s: float = JOB_TIMEOUT_S,
        seen: t.Callable[[], t.Any] | None = None,
    ) -> t.Any:  # fmt: skip
        """Ask until the answer is true; the failure says what was waited for and what was seen."""
        end = time.monotonic() + timeout_s
        pause = threading.Event()
        while not (answer := probe()):
            report = seen() if seen else answer
            assert time.monotonic() < end, f"waited {timeout_s} s for {what}; last seen: {report!r}"
            pause.wait(self.look_s)
        return answer

    def wait_state(self, job_id: str, states: str) -> dict[str, str]:
        """Wait until the job is in one of these states (letters of qstat)."""
        facts: dict[str, str] = {}

        def reached() -> bool:
            facts.clear()
            facts.update(self.facts(job_id))
            return facts.get("job_state", "?") in states

        self.wait_for(f"job {job_id} in state {states}", reached, seen=lambda: facts)
        return facts

    def end(self, job_id: str) -> Ended:
        """Wait for the end of a batch job and collect its output."""
        facts = self.wait_state(job_id, "C")
        out, err = (self.read(facts[key].partition(":")[2]) for key in ("Output_Path", "Error_Path"))
        return Ended(job_id, int(facts.get("exit_status", "-999")), out, err, node_of(facts))

    def runs(self, job_id: str) -> str:
        """Wait until a job was started somewhere; the node."""
        return node_of(self.wait_state(job_id, "R"))

    def submit(
        self, *arguments: str, stdin: str | bytes | None = None, user: str = "alice", through: t.Sequence[str] = ()
    ) -> str:
        """vsub that must succeed; the job's id."""
        done = self.vsub(*arguments, stdin=stdin, user=user, through=through)
        assert done.returncode == 0, f"vsub {arguments}: {done.stderr}"
        return done.stdout.strip()

    def job(self, *arguments: str, stdin: str | bytes | None = None) -> Ended:
        """A batch job from its submission to its end."""
        return self.end(self.submit(*arguments, stdin=stdin))

    def members(self, array: str) -> list[str]:
        """The jobs of an array of two, in their order."""
        return [array.replace("[]", f"[{number}]") for number in (1, 2)]

    def full_id(self, job_id: str) -> str:
        """Return a job's name as the product has it in records, notes and file names."""
        return self.batch.full_id(job_id)

    def submit_past_vsub(self, x: str, *arguments: str, stdin: str | bytes) -> str:
        """Submit a VM job with a request as others would make it; its id.

        Args:
            x: of the job, as `trouble.encoded` makes it.
            arguments: more for the batch system.
            stdin: the script.
        """
        done = self.qsub("-S", "/opt/vtorque/bin/vtorque-shell", "-l", "other=vtorque,mem=8gb", "-W", f"x={x}",
                         *arguments, stdin=stdin)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def queue_again(self, job_id: str) -> None:
        """Have a job that runs queued again, and started as soon as that can be."""
        done = self.on("fe", *self.batch.requeue, job_id)
        assert done.returncode == 0, done.stderr

    def forget(self, job_id: str) -> None:
        """Have the server forget a job that is over."""
        assert self.on("fe", *self.batch.drop_all, job_id).returncode == 0
        self.wait_for("the server to forget the job", lambda: not self.facts(job_id))

    def nodes(self) -> dict[str, Node]:
        """The compute nodes, in the server's words."""
        printed = ET.fromstring(self.root("fe", "pbsnodes -x"))
        return {
            node.findtext("name", ""): Node(frozenset(node.findtext("state", "").split(",")), node.findtext("note", ""))
            for node in printed.iter("Node")
        }

    def jobs(self) -> dict[str, str]:
        """The states of all jobs that the server knows, by their ids."""
        return {job_id: facts.get("job_state", "") for job_id, facts in self.all_facts().items()}

    def all_facts(self) -> dict[str, dict[str, str]]:
        """What the server says of all jobs, by their ids; see `facts`."""
        printed = self.root("fe", "qstat -x -f")
        jobs = tree_of(printed).iter("Job") if printed.strip() else ()
        return {job.findtext("Job_Id", ""): {child.tag: child.text or "" for child in job} for job in jobs}

    def record_place(self, job_id: str) -> str:
        """Where a node has what outlives the starts of a job, but for the number of the start."""
        return f"/var/lib/vtorque/records/{self.full_id(job_id).replace('[', '-').replace(']', '')}."

    def stored(self, node: str, job_id: str, start: int = 1, name: str = "record.json") -> str:
        """A file of what outlives a start of a job, "" when there is none."""
        return self.on(node, "cat", f"{self.record_place(job_id)}{start}/{name}").stdout

    def last_start(self, node: str, job_id: str) -> int:
        """The number of a job's last start, whose guests ran its script: a busy machine may need more than one."""
        place = self.record_place(job_id)
        return max(int(path.removeprefix(place)) for path in self.root(node, f"ls -d {place}*").split())

    def output_place(self, job_id: str) -> tuple[str, str]:
        """The host and the file where the output of a job at work is."""
        name = job_id.replace("[", "-").replace("]", "")  # of the member of an array
        return node_of(self.facts(job_id)), f"/var/spool/torque/spool/{name}.OU"

    def reported(self, facts: dict[str, str]) -> str:
        """What the owner of a job that did not run reads of its last start."""
        text = self.read(facts[self.batch.reports_in].partition(":")[2])
        return text[text.rfind("\nvtorque: ") + 1 :]

    def output_so_far(self, job_id: str) -> str:
        """What the script of a job at work has written."""
        host, path = self.output_place(job_id)
        return self.on(host, "cat", path).stdout

    def tidy(self) -> None:
        """End what a test has left: the next one shall not fail for it."""
        self.on("fe", *self.batch.drop_all, *(job_id for job_id, state in self.jobs().items() if state != "C"))
        for name in self.nodes():
            self.on("fe", "/bin/sh", "-c", self.batch.clear.format(name))

    def left_on_nodes(self) -> list[str]:
        """What there is of jobs on the nodes at this moment; nobody is waited for (lab/leftovers.py)."""
        found = on_nodes.left(self.facts_of_lab)
        return [f"{node}: {thing}" for node, there in found.items() for thing in there]

    def left(self) -> list[str]:
        """What there still is of any job: on the nodes, in the queue, in the nodes' notes.  Nothing, it is hoped."""

        def at_work(node: str) -> list[str]:
            return [f"{node}: {thing}" for thing in self.root(node, AT_WORK).splitlines()]

        with concurrent.futures.ThreadPoolExecutor() as pool:  # every test ends with this: side by side
            leftovers, jobs, nodes = pool.submit(self.left_on_nodes), pool.submit(self.jobs), self.nodes()
            working = pool.map(at_work, ("fe", *nodes))
        things = [*leftovers.result()]
        things += [thing for there in working for thing in there]
        things += [f"job {job_id} in state {state}" for job_id, state in jobs.result().items() if state != "C"]
        for name, node in nodes.items():
            if node.note or not node.usable:
                things.append(f"node {name} is {','.join(sorted(node.states))}: {node.note}")
        return things


def tree_of(text: str) -> ET.Element:
    """The batch system's XML, which holds control characters of users' texts as they are; real XML may not."""
    return ET.fromstring("".join(char if char.isprintable() or char in "\n\t" else " " for char in text))


def node_of(facts: dict[str, str]) -> str:
    """The mother superior of a job."""
    return facts.get("exec_host", "").partition("/")[0]


AT_WORK = """
for pid in $(pgrep -f '[a]nsible'); do echo "process $pid $(tr '\\0' ' ' 2>/dev/null </proc/$pid/cmdline)"; done
cd /run/vtorque/locks 2>/dev/null || exit 0
exec /usr/bin/python3 -ISE -c '
import fcntl, os
for name in sorted(os.listdir()):
    try:
        with open(name, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("lock", os.path.abspath(name), "is held")
    except FileNotFoundError:  # it has gone meanwhile
        pass
'
"""
"""Programs of ours and playbooks that still run on a node, and locks that somebody holds.

The lab looks for processes at the same time, so that none of these has a path of ours for a word.  One process tries
every lock, of which each job leaves one behind.
"""


@pytest.fixture(scope="session")
def debian13() -> str:
    """The name of the image of Debian 13, which the role makes in the pool of all labs."""
    pool = CHECKOUT / "build/pool"
    with (pool.parent / "debian13.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([CHECKOUT / "lab/debian_image.sh", pool, "trixie"], check=True, timeout=1800)
    return "debian13"


@pytest.fixture(scope="session")
def labs() -> t.Iterator[t.Callable[[str], Site]]:
    """The lab of each batch system, up from its first use; it ends with the tests unless it was up before them."""
    up: dict[str, Site] = {}
    ours = []

    def lab_of(name: str) -> Site:
        if name not in up:
            here = site_of(name)
            if here.run("status").returncode != 0:
                ours.append(here)
                here.up("--batch", name, by_roles=BY_ROLES and name == TORQUE.name)
            up[name] = here
        return up[name]

    yield lab_of
    for here in [] if os.environ.get("VTORQUE_KEEP_LAB") else ours:
        here.run("down")


def site_of(name: str, more: str = "") -> Site:
    """The lab of a batch system that all tests share, whether it is up or not.

    Args:
        name: of the batch system.
        more: the end of another lab's name, beside it.
    """
    place = os.environ.get("VTORQUE_LAB") or (DEFAULT if more or name != TORQUE.name else "")
    if name == TORQUE.name:
        return Site(f"{place}{more}")
    from .on_slurm import OnSlurm  # which imports this module

    return OnSlurm(f"{place}-{name}{more}")


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest, labs: t.Callable[[str], Site]) -> Site:
    """The lab, up: that of what acts like Torque, or of the batch system of a test that runs on each (`both`)."""
    return labs(getattr(request, "param", TORQUE.name))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have a test run on each batch system that is marked so, and in each way one of a module that asks for that."""
    if marker := metafunc.definition.get_closest_marker("both"):
        metafunc.parametrize("site", list(_systems(*marker.args, **marker.kwargs)), indirect=True, scope="session")
    if ways := getattr(metafunc.module, "START_WAYS", ()):
        metafunc.parametrize("start_way", ways, indirect=True, scope="module")


def _systems(*short: str, elsewhere: str = "") -> t.Iterator[t.Any]:
    """The batch systems; on another than Torque a test that does not name it is of those that `FULL=1` adds.

    So is a test on Torque that says that another one proves the same there (`elsewhere`).
    """
    for name in BATCHES:
        marks = [*([pytest.mark.slurm] if name != TORQUE.name else [])]
        marks += [pytest.mark.full] if name not in (*short, TORQUE.name) or name == elsewhere else []
        yield pytest.param(name, marks=marks, id=name)


@pytest.fixture(scope="module", autouse=True)
def start_way(request: pytest.FixtureRequest, site: Site) -> t.Iterator[str]:
    """How the starts of jobs go on all nodes of the lab."""
    way = getattr(request, "param", USUAL_WAY)
    if way == "fast":
        yield way
        return
    from . import trouble, warm_nodes  # which import this module

    with warm_nodes.started_warm(site) if way == "warm" else trouble.changed(site, fast_start=False):
        yield way


@pytest.fixture(autouse=True)
def leaves_nothing(site: Site) -> t.Iterator[None]:
    """Every test ends with a look at what is left of its jobs anywhere, and finds nothing."""
    yield
    look_afterwards(site)


def look_afterwards(site: Site) -> None:
    """Find nothing of a test's jobs anywhere."""
    from .terminal import hang_up  # which imports this module

    hang_up()
    # for which jobs of many tests wait; root's own, alice could not write for the next
    site.root("fe", "rm -f /home/alice/go")
    try:
        check_nothing_left(site)
    except AssertionError:
        site.tidy()
        raise


def check_nothing_left(site: Site) -> None:
    """Wait until nothing is left; the failure says what there is."""
    last: list[str] = []

    def settled() -> bool:
        last[:] = site.left()
        # what waits or is held in the queue does not go away by itself
        return not last or any(thing.startswith("job ") and thing[-1] in "HQ" for thing in last)

    site.wait_for("nothing to be left of any job", settled, timeout_s=300, seen=lambda: last)
    assert last == []
