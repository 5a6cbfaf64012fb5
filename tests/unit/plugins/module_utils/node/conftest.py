# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node whose hypervisor and network are the test's, and whose files and processes are real."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import typing as t
import xml.etree.ElementTree as ET

import inotify_simple
import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.capabilities import Capabilities
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.domain_xml import DomainFacts, read_facts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.events import DomainEvent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.reconnecting import ReconnectingDomains
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import readiness
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import client, monitor, present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.creation import build
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import addresses
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import seed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.layout import job_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files as files_module
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import form, messages, node_answers

KEY = messages.KeyPair(
    "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "A" * 200 + "\n-----END OPENSSH PRIVATE KEY-----\n",
    "ssh-ed25519 " + "A" * 68,
)
OWNER = messages.Owner("alice", 1001, 1001, "HPC Users", "/home/alice", "/bin/bash")
JOB = "7.head"
PATIENCE_S = 120
"""Generous: a machine may be busy, and no test measures time."""


def spec(rank: int = 0, **changes: t.Any) -> messages.GuestSpec:
    one = messages.GuestSpec(
        rank=rank, index=rank, image="tiny", distro="debian", arch="x86_64", vcpus=2, ram_mib=64, hypervisor="qemu",
        fs_type="sharedfs", host_key=KEY, authorized_key=KEY.public,
    )  # fmt: skip
    return dataclasses.replace(one, **changes)


class Hypervisor:
    """What libvirt would know, in files: it outlives connections and processes, as libvirt does."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        place.mkdir()
        self.refuses = ""
        self.qemu_ids = (0, 0)

    @property
    def running(self) -> dict[str, DomainFacts]:
        found = {}
        for path in sorted(self.place.glob("*.xml")):
            with contextlib.suppress(FileNotFoundError):  # it ends meanwhile
                state = "paused" if self._paused(path.stem) else "running"
                found[path.stem] = read_facts(path.read_text(), state, False)
        return found

    def _paused(self, name: str) -> bool:
        return any((self.place / f"{name}.{kind}").exists() for kind in ("paused", "still"))

    @property
    def dead(self) -> bool:
        return (self.place / "dead").exists()

    @dead.setter
    def dead(self, value: bool) -> None:
        if value:
            (self.place / "dead").touch()
        else:
            (self.place / "dead").unlink()

    @property
    def limits(self) -> dict[str, int]:
        """What each qemu may have of memory, in MiB."""
        return {path.stem: int(path.read_text()) for path in self.place.glob("*.limit")}

    def forget(self) -> None:
        """All domains end."""
        for path in self.place.glob("*.xml"):
            path.unlink()

    def pause(self, name: str) -> None:
        (self.place / f"{name}.paused").touch()

    def finish_save(self, name: str, path: pathlib.Path) -> None:
        """As a libvirt does that lets nobody in any more, but ends what it has begun."""
        there = self.place / f"{name}.xml"
        path.write_text(f"LibvirtQemudSave{there.read_text()}")
        there.unlink()
        (self.place / f"{name}.still").unlink()

    def connect(self, _uri: str, **_how: object) -> Connection:
        if self.dead:
            raise NodeFault("libvirt", "is dead", cause="libvirt")
        return Connection(self)


class Connection:
    """Like `domain.Domains`."""

    def __init__(self, hypervisor: Hypervisor) -> None:
        self.hypervisor = hypervisor
        self._heard = inotify_simple.INotify(nonblocking=True)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._heard.close()

    @staticmethod
    def host_capabilities() -> ET.Element:
        """A host with eight cores in one cell."""
        cores = "".join(f"<cpu id='{n}' socket_id='0' die_id='0' core_id='{n}' siblings='{n}'/>" for n in range(8))
        cell = f"<cell id='0'><memory unit='KiB'>8388608</memory><cpus num='8'>{cores}</cpus></cell>"
        return ET.fromstring(f"<capabilities><host><topology><cells>{cell}</cells></topology></host></capabilities>")

    def listen(self) -> None:
        flags = inotify_simple.flags
        self._heard.add_watch(str(self.hypervisor.place), flags.CREATE | flags.DELETE)

    def fileno(self) -> int:
        return int(self._heard.fileno())

    def events(self) -> tuple[DomainEvent, ...]:
        found = []
        for event in self._heard.read(timeout=0):
            name, _dot, kind = event.name.partition(".")
            if name == "dead" and event.mask & inotify_simple.flags.CREATE:
                found.append(DomainEvent("", "lost", "libvirt ended"))
            elif kind == "still" and event.mask & inotify_simple.flags.CREATE:
                found.append(DomainEvent(name, "suspended"))
            elif kind == "paused":
                found.append(DomainEvent(name, "suspended", "an I/O error (no room left on the disk?)"))
            elif kind == "xml" and event.mask & inotify_simple.flags.DELETE:
                found.append(DomainEvent(name, "stopped", "it was destroyed"))
        return tuple(found)

    def capabilities(self) -> Capabilities:
        return Capabilities({"x86_64": ("qemu",)}, self.hypervisor.qemu_ids)

    def list(self, *, ours: bool = True) -> tuple[DomainFacts, ...]:
        return tuple(facts for facts in self.hypervisor.running.values() if facts.mark or not ours)

    def facts(self, name: str) -> DomainFacts | None:
        if self.hypervisor.dead:
            raise NodeFault("libvirt", "is dead", cause="libvirt")
        return self.hypervisor.running.get(name)

    def reconnect(self, _within_s: float) -> None:
        """The daemon was restarted, unless it is dead for good."""
        if self.hypervisor.dead:
            raise NodeFault("libvirt", "is dead", cause="libvirt")

    def repeat_if_lost(self, call: t.Callable[[], object], within_s: float) -> None:
        ReconnectingDomains.repeat_if_lost(t.cast("ReconnectingDomains", self), call, within_s)

    def figures(self, names: t.Collection[str], within_s: float) -> dict[str, dict[str, int]]:
        report = {"cpu.process": 2_500_000_000, "block.0.rd.bytes": 10, "block.1.rd.bytes": 5, "net.0.tx.bytes": 7}
        return {name: dict(report) for name in names if name in self.hypervisor.running}

    def create(self, xml: str) -> DomainFacts:
        if self.hypervisor.refuses:
            raise VTorqueError("the start of a domain", self.hypervisor.refuses)
        facts = read_facts(xml, "running", False)
        assert facts.name not in self.hypervisor.running
        for disk in facts.disks:
            assert pathlib.Path(disk).exists(), "a guest's files are there before it"
        new = self.hypervisor.place / f".{facts.name}"
        new.write_text(xml)
        new.rename(self.hypervisor.place / f"{facts.name}.xml")
        (pathlib.Path(facts.disks[0]).parent / "console.log").write_text("Linux version 6.1\x1b[2J\n")
        return facts

    def limit_memory(self, name: str, limit_mib: int) -> bool:
        assert name in self.hypervisor.running
        (self.hypervisor.place / f"{name}.limit").write_text(str(limit_mib))
        return True

    def pin(self, name: str, cores: t.Collection[int], *, vcpus: bool = True) -> None:
        assert name in self.hypervisor.running
        (self.hypervisor.place / f"{name}.{'pinned' if vcpus else 'others'}").write_text(
            " ".join(map(str, sorted(cores)))
        )

    def pause(self, name: str, *, paused: bool) -> bool:
        if self.hypervisor.dead:
            raise NodeFault("libvirt", "is dead", cause="libvirt")
        still = self.hypervisor.place / f"{name}.still"
        if still.exists() == paused:
            return False
        still.touch() if paused else still.unlink()
        return True

    def save(self, name: str, path: pathlib.Path) -> None:
        if self.hypervisor.dead:
            raise NodeFault("libvirt", "is dead", cause="libvirt")
        self._refuse("the saving of a domain")
        there = self.hypervisor.place / f"{name}.xml"
        assert self.hypervisor._paused(name), "a guest stands still before it is saved"
        path.write_text("LibvirtQemudPart")
        while (self.hypervisor.place / "slow").exists():
            if self.hypervisor.dead:
                raise NodeFault("libvirt", "is dead", cause="libvirt")
            if not there.exists():
                raise VTorqueError("the saving of a domain", "it was destroyed")
        self.hypervisor.finish_save(name, path)

    def is_saving(self, name: str) -> bool:
        if self.hypervisor.dead:
            raise NodeFault("libvirt", "is dead", cause="libvirt")
        (self.hypervisor.place / f"{name}.asked").touch()
        return (self.hypervisor.place / f"{name}.saving").exists()

    def _refuse(self, what: str) -> None:
        """In a file, since a worker asks."""
        refuses = self.hypervisor.place / "refuses"
        if refuses.exists():
            raise VTorqueError(what, refuses.read_text())

    def restore(self, path: pathlib.Path, change: t.Callable[[ET.Element], None] | None = None) -> None:
        self._refuse("the return of a saved domain")
        xml = path.read_text().removeprefix("LibvirtQemudSave")
        if change is not None:
            root = ET.fromstring(xml)
            change(root)
            xml = ET.tostring(root, encoding="unicode")
        name = read_facts(xml, "paused", False).name
        (self.hypervisor.place / f"{name}.still").touch()
        new = self.hypervisor.place / f".{name}"
        new.write_text(xml)
        new.rename(self.hypervisor.place / f"{name}.xml")

    def destroy(self, name: str) -> bool:
        there = (self.hypervisor.place / f"{name}.xml").exists()
        (self.hypervisor.place / f"{name}.xml").unlink(missing_ok=True)
        return there


QEMU = 'exec 3<"$0"; echo up; read -r _'


def like_qemu(place: pathlib.Path, guest: pathlib.Path, opens: pathlib.Path, **how: t.Any) -> subprocess.Popen[bytes]:
    """A process with a qemu's words that has a file open; its program is a shell, and a qemu by its name alone.

    Args:
        place: for the program.
        guest: what its words name.
        opens: what it opens.
        how: for Popen.
    """
    program = place / "qemu-system-test"
    if not program.exists():
        shutil.copy("/bin/sh", program)
    arguments = ["qemu-system-test", "-p", "-c", QEMU, str(opens), str(guest)]
    process = subprocess.Popen(
        arguments, **{"executable": program, **how}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


class Asked:
    """A request in a process of its own, as `vtorque-node` is one; `answer` waits for it."""

    def __init__(self, node: Node, part: messages.NodePart, deadline: Deadline) -> None:
        self._hearing, saying = os.pipe()
        self.caller, callers_end = os.pipe()
        """Close it, and nobody waits for the answer any more."""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.caller)
            with contextlib.suppress(BaseException):
                os.write(saying, json.dumps(self._ask(node, part, deadline, callers_end)).encode())
            os._exit(0)
        os.close(saying)
        os.close(callers_end)

    @staticmethod
    def _ask(node: Node, part: messages.NodePart, deadline: Deadline, caller: int) -> dict[str, t.Any]:
        try:
            found = client.request_guests(part, node.settings, deadline, caller=caller)
            return {"guests": [form.to_dict(one) for one in found]}
        except VTorqueError as error:
            return {"error": error.to_dict()}

    def answer(self) -> dict[str, t.Any]:
        assert select.select([self._hearing], [], [], PATIENCE_S)[0], "no answer"
        data = b""
        while more := os.read(self._hearing, 1 << 16):
            data += more
        os.waitpid(self.pid, 0)
        return t.cast("dict[str, t.Any]", json.loads(data or b"{}"))


class Node:
    """A node, and requests to it."""

    def __init__(self, directory: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.hypervisor = Hypervisor(directory / "libvirt")
        self.seeds: list[seed.Seed] = []
        self.flushed: list[set[str]] = []
        pool = directory / "pool"
        pool.mkdir(mode=0o755)
        (pool / "tiny.img").write_bytes(b"\0" * (1 << 20))
        (pool / "tiny.img").chmod(0o444)
        self.settings = NodeSettings(
            node_name="cn1", node_number=258, pool=pool, state_dir=directory / "state", run_dir=directory / "run",
            template_dir=None, allow_emulation=True, host_ram_mib=0,
        )  # fmt: skip
        real = images.find
        patch.setattr(images, "find", lambda name, where: real(name, where, owner_uid=os.getuid()))
        for room in (present_absent, monitor):
            patch.setattr(room, "Domains", self.hypervisor.connect)
        patch.setattr(addresses, "bridge_index", lambda _bridge: 1)
        patch.setattr(addresses, "node_address", lambda _bridge, _deadline: "10.77.0.11")
        patch.setattr(addresses, "flush", lambda macs, _bridge, _deadline: self.flushed.append(set(macs)))
        patch.setattr(addresses, "SYS_NET", directory / "net")
        patch.setattr(build, "wait_ready", self.wait)
        patch.setattr(seed, "render", self.render)
        # records are root's; whoever runs this test is root enough
        patch.setattr(files_module, "read_json", lambda path: json.loads(path.read_text()))
        # the guests' owner need not be a user of this machine
        write = files_module.write
        patch.setattr(files_module, "write", lambda path, text, **_reader: write(path, text))

    def render(self, report: seed.Seed, *_places: object) -> dict[str, str]:
        self.seeds.append(report)
        return {"user-data": "#cloud-config\n"}

    def wait(self, waiting: t.Sequence[readiness.AwaitedGuest], *_more: object, **_options: object) -> dict[str, str]:
        return {guest.name: f"10.77.0.{100 + number}" for number, guest in enumerate(waiting)}

    @staticmethod
    def part(count: int = 1, start: int = 1, job_id: str = JOB, **changes: t.Any) -> messages.NodePart:
        specs = tuple(spec(rank, **changes) for rank in range(count))
        return messages.NodePart(1, "present", job_id, start, "cn1", 60.0, OWNER, specs)

    @staticmethod
    def soon() -> Deadline:
        return Deadline.after(PATIENCE_S)

    def present(self, asked: messages.NodePart | None = None) -> tuple[node_answers.GuestFacts, ...]:
        """The guests made here and now, without a worker."""
        return present_absent.ensure_guests(asked or self.part(), self.settings, self.soon())

    def absent(self, start: int = 1) -> tuple[str, ...]:
        return present_absent.absent(JOB, start, self.settings, self.soon())

    def ask(self, asked: messages.NodePart | None = None, deadline: Deadline | None = None) -> Asked:
        """What `vtorque-node` does with a request."""
        return Asked(self, asked or self.part(), deadline or self.soon())

    def qemu_that_libvirt_forgot(self, guest: pathlib.Path, opens: pathlib.Path) -> subprocess.Popen[bytes]:
        """A process of a guest's, as far as can be seen; the caller waits for it."""
        return like_qemu(self.settings.pool.parent, guest, opens)

    # -- workers

    @property
    def lock(self) -> pathlib.Path:
        return start_lock.start_lock(self.settings, job_key(JOB, 1))

    @property
    def worker(self) -> int:
        """The process that holds the lock of the start."""
        assert start_lock.is_locked(self.lock)
        return int(self.lock.read_text().split()[0])

    @property
    def run_directory(self) -> pathlib.Path:
        """The mother superior's; made when it is asked for."""
        path = layout.run_directory(JOB, 1, self.settings.run_dir)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def reached(self, room: t.Any, name: str) -> t.Callable[[], None]:
        """Let a function of a room never return; what is given back waits until somebody is in it."""
        mark = self.settings.pool.parent / f"reached {name}"

        def stay(*_words: object, **_more: object) -> t.NoReturn:
            mark.touch()
            while True:
                signal.pause()

        self.patch.setattr(room, name, stay)
        return lambda: self.wait_for_file(mark)

    @staticmethod
    def wait_for_the_end_of(pid: int) -> None:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        with contextlib.closing(os.fdopen(handle)):
            assert select.select([handle], [], [], PATIENCE_S)[0], f"process {pid} does not end"

    def wait_for(self, path: pathlib.Path) -> dict[str, t.Any]:
        """A record that somebody writes."""
        self.wait_for_file(path)
        return t.cast("dict[str, t.Any]", json.loads(path.read_text()))

    @staticmethod
    def wait_for_file(path: pathlib.Path) -> None:
        with contextlib.closing(inotify_simple.INotify()) as watch:
            watch.add_watch(str(path.parent), inotify_simple.flags.CREATE | inotify_simple.flags.MOVED_TO)
            until = Deadline.after(PATIENCE_S)
            while not path.exists():
                assert not until.passed, f"{path} does not come"
                watch.read(timeout=1000)

    def open_log(self) -> None:
        """As the hook of a mother superior does."""
        self.log.parent.mkdir(parents=True)
        self.log.touch()

    def begin_watched(self, count: int) -> None:
        """Have guests that are ready and watched, as those of a job whose prologue is over."""
        self.open_log()
        (self.run_directory / "ready.json").write_text("{}")
        client.request_guests(self.part(count), self.settings, self.soon())
        self.wait_for_words("watches the guests")

    def states(self) -> dict[str, str]:
        """States of the guests, by name."""
        return {name: facts.state for name, facts in self.hypervisor.running.items()}

    @property
    def log(self) -> pathlib.Path:
        return self.settings.record_dir(JOB, 1) / "vtorque.log"

    def wait_for_words(self, message: str) -> None:
        """In the job's log."""
        with contextlib.closing(inotify_simple.INotify()) as watch:
            watch.add_watch(str(self.log), inotify_simple.flags.MODIFY)
            until = Deadline.after(PATIENCE_S)
            while message not in self.log.read_text():
                assert not until.passed, self.log.read_text()
                watch.read(timeout=1000)

    @property
    def things(self) -> list[str]:
        """Everything that is here, but for what outlives a job."""
        state = self.settings.state_dir
        there = [path for path in state.rglob("*") if "records" not in path.parts] if state.exists() else []
        files = [str(path.relative_to(state)) for path in there if path.name not in ("guests", "slots")]
        return sorted([*files, *self.hypervisor.running])


@pytest.fixture
def node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Node]:
    here = Node(tmp_path, monkeypatch)
    yield here
    # a worker that a test left is nobody's
    for lock in (tmp_path / "run/locks").glob("*"):
        if lock.name not in ("disk", "slots") and start_lock.is_locked(lock):
            with contextlib.suppress(IndexError, OSError):  # it ends by itself, perhaps before it has signed
                os.kill(int(lock.read_text().split()[0]), signal.SIGKILL)
