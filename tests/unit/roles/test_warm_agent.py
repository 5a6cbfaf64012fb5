# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program of an image whose guests start warm: an order is carried out to the letter, or not at all."""

from __future__ import annotations

import base64
import contextlib
import os
import pathlib
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

FILES = pathlib.Path(__file__).resolve().parents[3] / "roles/guest_image/files"
TOKEN = "template0123"
ENTROPY = bytes(range(64))
FORMER_ID, MACHINE_ID = "f" * 32, "0123456789abcdef0123456789abcdef"
BOOT_ID = "11111111-2222-3333-4444-555555555555"
MAC = "52:54:00:0a:00:01"
LINES = (
    "version 1",
    f"entropy {base64.b64encode(ENTROPY).decode()}",
    "clock 1790000000.123456",
    f"machine_id {MACHINE_ID}",
    f"boot_id {BOOT_ID}",
    "hostname vcn1-1",
    f"mac {MAC}",
    "instance_id e31ed4db-b84c-4f4e-881c-dc906c408d23",
    f"file 0600 /etc/ssh/ssh_host_ed25519_key {base64.b64encode(b'secret').decode()}",
    f"file 0644 /etc/vtorque/guest.env {base64.b64encode(b'VTORQUE_TOKEN=abc').decode()}",
    "file 0644 /etc/ssh/authorized_keys/a b ",
    "end",
)
TIMERS = ("systemctl", "list-units", "--type=timer", "--state=active", "--no-legend", "--plain")
CALLS = ("add entropy", "reseed", "clock", "bind", "hostname", "down", "mac", "up")


sys.path.insert(0, str(FILES))
try:
    from vtorque_warm import channel, dhcp_client, dhcp_message, program, start, system  # type: ignore[import-not-found]
    from vtorque_warm import guest as steps  # type: ignore[import-not-found]
    from vtorque_warm import order as orders  # type: ignore[import-not-found]
finally:
    sys.path.remove(str(FILES))


class Watched(steps.Guest):  # type: ignore[misc,name-defined]
    """A guest in a directory, whose calls are written down."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.calls: list[tuple[str, t.Any]] = []
        self.printed: dict[tuple[str, ...], bytes] = {}
        self.active: set[str] = set()
        card = root / "sys/class/net/eth0"
        for place in (
            "dev",
            "etc/ssh",
            f"run/log/journal/{FORMER_ID}",
            "var/lib/cloud/instances/warm-1",
            "sys/class/net/lo",
        ):
            (root / place).mkdir(parents=True)
        (card / "device").mkdir(parents=True)
        (card / "type").write_text("1\n")
        (root / "dev/random").touch()
        (root / "dev/ttyS0").touch()
        (root / "etc/vtorque").mkdir()
        (root / "etc/vtorque/warm.env").write_text(f"VTORQUE_TOKEN='{TOKEN}'\nVTORQUE_WARM=1\n")
        (root / "var/lib/cloud/instance").symlink_to("/var/lib/cloud/instances/warm-1")

    def ioctl(self, descriptor: int, request: int, argument: bytes) -> bytes:
        if request == steps.SIOCGIFFLAGS:
            return argument[:16] + struct.pack("h14x", 0x1002)
        (flags,) = struct.unpack_from("h", argument, 16) if len(argument) >= 18 else (0,)
        name = {
            steps.RNDADDENTROPY: "add entropy", steps.RNDRESEEDCRNG: "reseed", steps.SIOCSIFHWADDR: "mac",
            steps.SIOCSIFFLAGS: "up" if flags & 1 else "down",
        }[request]  # fmt: skip
        self.calls.append((name, argument))
        return argument

    def set_clock(self, nanoseconds: int) -> None:
        self.calls.append(("clock", nanoseconds))

    def set_hostname(self, name: str) -> None:
        self.calls.append(("hostname", name))

    def bind(self, source: pathlib.Path, target: pathlib.Path) -> None:
        self.calls.append(("bind", (source.read_text(), str(target.relative_to(self.root)))))

    def run(self, *arguments: str, text: str = "", timeout_s: float = 30.0) -> subprocess.CompletedProcess[bytes]:
        self.calls.append(("run", arguments))
        active = arguments[:3] == ("systemctl", "--quiet", "is-active")
        status = int(arguments[3] not in self.active) if active else 0
        return subprocess.CompletedProcess(arguments, status, self.printed.get(arguments, b""))

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """Every file below the root, with its mode."""
        return {
            str(path.relative_to(self.root)): (stat.S_IMODE(path.lstat().st_mode), path.read_bytes())
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }  # fmt: skip


@pytest.fixture
def guest(tmp_path: pathlib.Path) -> Watched:
    return Watched(tmp_path / "root")


def _text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _changed(key: str, *instead: str) -> bytes:
    return _text(*(new for line in LINES for new in (instead if line.startswith(f"{key} ") else (line,))))


class Node:
    """The node's end; the agent is at work in a thread until the test hangs up for good."""

    def __init__(self, guest: Watched) -> None:
        self.peer, ours = socket.socketpair()
        self.peer.settimeout(20)
        self.stream = self.peer.makefile("rb")
        self.ended: list[t.Any] = []
        self._ours = ours

        def work() -> None:
            try:
                self.ended.append(channel.serve(channel.Channel(ours.fileno()), TOKEN, guest))
            except Exception as error:
                self.ended.append(error)

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        assert self.stream.readline() == f"vtorque-agent {TOKEN}\n".encode()

    def say(self, data: bytes) -> None:
        self.peer.sendall(data)

    def heard(self) -> tuple[int, str]:
        status, _blank, text = self.stream.readline().decode().rstrip("\n").partition(" ")
        return int(status), base64.b64decode(text).decode()

    def order(self, payload: bytes) -> tuple[int, str]:
        self.say(b"warm 10 %d\n" % len(payload) + payload)
        return self.heard()

    def join(self) -> t.Any:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.ended[0]

    def close(self) -> None:
        self.peer.close()
        self.stream.close()
        # as long as the agent uses the number, no other file may have it
        if self._thread.is_alive():
            self._ours.detach()
        else:
            self._ours.close()


@contextlib.contextmanager
def talk(guest: Watched) -> t.Iterator[Node]:
    node = Node(guest)
    try:
        yield node
    finally:
        node.close()


def test_order_whole_does_every_step_once_entropy_first(guest: Watched) -> None:
    with talk(guest) as node:
        node.say(b"hello 0badc0de\n")
        assert node.stream.readline() == f"vtorque-agent {TOKEN} 0badc0de\n".encode()
        assert node.order(_text(*LINES)) == (0, "")
        assert node.join().mac == MAC
    assert tuple(name for name, _value in guest.calls) == CALLS
    calls = dict(guest.calls)
    assert calls["add entropy"] == struct.pack("ii", 512, 64) + ENTROPY
    assert 0 <= calls["clock"] - 1790000000123456000 < 5 * 10**9
    assert calls["mac"][:24] == b"eth0".ljust(16, b"\0") + struct.pack("H", 1) + bytes.fromhex(MAC.replace(":", ""))
    assert calls["bind"] == (f"{BOOT_ID}\n", "proc/sys/kernel/random/boot_id")
    tree = guest.tree()
    assert tree["etc/machine-id"] == (0o444, f"{MACHINE_ID}\n".encode())
    assert tree["etc/hostname"] == (0o644, b"vcn1-1\n")
    assert tree["etc/ssh/ssh_host_ed25519_key"] == (0o600, b"secret")
    assert tree["etc/ssh/authorized_keys/a b"] == (0o644, b"")
    assert tree["var/lib/cloud/data/instance-id"][1] == b"e31ed4db-b84c-4f4e-881c-dc906c408d23\n"
    assert guest.path("var/lib/cloud/instance").readlink().name == "e31ed4db-b84c-4f4e-881c-dc906c408d23"
    assert os.listdir(guest.path("run/log/journal")) == [MACHINE_ID]
    assert "etc/vtorque/warm.env" not in tree


def test_order_with_the_network_of_the_site_holds_it_in_its_order() -> None:
    more = ("address 10.0.0.7", "name_server 10.0.0.1", "name_server fd00::1", "search_domain hpc.example")
    order = orders.parse_order(_changed("instance_id", LINES[7], *more), 0.0)
    assert (order.address, order.name_servers, order.search_domains) == (
        "10.0.0.7", ("10.0.0.1", "fd00::1"), ("hpc.example",),
    )  # fmt: skip


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"end\n",
        _text(*LINES[:-1]),
        _text(*LINES).rstrip(b"\n"),
        _text(*LINES, "end"),
        _text(LINES[1], LINES[0], *LINES[2:]),
        _text(*LINES[:3], *LINES[4:]),
        _text(*LINES[:-1], LINES[8], "end"),
        _text(*LINES[:-1], "colour blue", "end"),
        _text(*LINES) + b"\xff",
        _changed("version", "version 2"),
        _changed("entropy", f"entropy {base64.b64encode(ENTROPY[:31]).decode()}"),
        _changed("entropy", "entropy " + "A" * 45),
        _changed("clock", "clock 1790000000"),
        _changed("clock", "clock -1.000000"),
        _changed("machine_id", f"machine_id {'0' * 32}"),
        _changed("machine_id", f"machine_id {MACHINE_ID}\r"),
        _changed("boot_id", "boot_id 1"),
        _changed("hostname", "hostname a_b"),
        _changed("hostname", f"hostname {'a' * 65}"),
        _changed("mac", "mac 01:00:5e:00:00:01"),
        _changed("instance_id", "instance_id ../x"),
        _changed("instance_id", LINES[7], "address 10.0.0.256"),
        _changed("instance_id", LINES[7], "address 10.0.0.7", "address 10.0.0.8"),
        _changed("instance_id", LINES[7], "name_server ns"),
        _changed("instance_id", LINES[7], "search_domain a_b"),
        _changed("instance_id", LINES[7], "search_domain a", "name_server 10.0.0.1"),
        *(_text(*LINES[:-1], line, "end") for line in (
            "file 0644 etc/x QQ==", "file 0644 /etc/../x QQ==", "file 0644 /etc//x QQ==", "file 0644 /etc/x/ QQ==",
            "file 0644 //etc/x QQ==", "file 0644 / QQ==", "file 0644 /proc/x QQ==", "file 0644 /sys QQ==",
            "file 4755 /etc/x QQ==", "file 644 /etc/x QQ==", "file 0644 /etc/x Q", "file 0644 /etc/x\x00y QQ==",
            "file 0644 /etc/x", "file 0644  QQ==",
        )),
    ],
)  # fmt: skip
def test_order_out_of_form_changes_nothing_and_another_is_taken(guest: Watched, payload: bytes) -> None:
    before = guest.tree()
    with talk(guest) as node:
        # a length of none is no order's
        status, why = node.order(payload) if payload else (node.say(b"warm 10 0\n"), node.heard())[1]
        assert (status, guest.calls, guest.tree()) == (1, [], before)
        assert why.startswith("order: ")
        assert node.order(_text(*LINES)) == (0, "")


def test_order_with_too_many_files_changes_nothing(guest: Watched) -> None:
    before = guest.tree()
    many = [f"file 0644 /etc/x{number} QQ==" for number in range(300)]
    with talk(guest) as node:
        assert node.order(_text(*LINES[:8], *many, "end"))[0] == 1
    assert guest.tree() == before


@pytest.mark.parametrize(
    "line", [b"warm 10\n", b"warm 0 5\n", b"warm 9999 5\n", b"warm 10 9999999\n", b"10 5\n", b"\n", b"x" * 300 + b"\n"]
)
def test_line_unknown_is_answered_and_forgotten(guest: Watched, line: bytes) -> None:
    with talk(guest) as node:
        node.say(line)
        assert node.heard()[0] == 1
        assert node.order(_text(*LINES)) == (0, "")


def test_line_cut_off_does_not_hang_the_guest(guest: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "LINE_S", 0.05)
    with talk(guest) as node:
        node.say(b"warm 10 ")
        assert node.heard() == (1, "order: what the node sent is not whole")
        assert node.order(_text(*LINES)) == (0, "")


def test_order_cut_off_is_refused_when_its_time_is_over(guest: Watched) -> None:
    with talk(guest) as node:
        node.say(b"warm 1 1000\nversion 1\n")
        assert node.heard()[0] == 1
        assert guest.calls == []
        assert node.order(_text(*LINES)) == (0, "")


def test_machine_id_of_the_image_keeps_its_mode(guest: Watched) -> None:
    guest.path("etc/machine-id").touch(0o640)
    steps.apply(orders.parse_order(_text(*LINES), 0.0), guest)
    assert guest.tree()["etc/machine-id"] == (0o640, f"{MACHINE_ID}\n".encode())


def test_clock_of_an_order_that_took_a_while_is_set_to_the_time_of_now(guest: Watched) -> None:
    steps.apply(orders.parse_order(_text(*LINES), time.monotonic() - 100), guest)
    assert 100 <= dict(guest.calls)["clock"] / 10**9 - 1790000000.123456 < 105


def test_step_that_fails_is_named_and_ends_the_guest(guest: Watched) -> None:
    shutil.rmtree(guest.path("sys/class/net/eth0"))
    with talk(guest) as node:
        status, why = node.order(_text(*LINES))
        assert (status, why) == (1, "mac: one network card is expected, and there are 0")
        assert isinstance(node.join(), system.StepError)
    # what comes after is not done
    assert not guest.path("etc/vtorque/guest.env").exists()


_pieces = st.sampled_from(
    [*LINES, "address 10.0.0.7", "colour blue", "file 0755 /usr/lib/x QUJD", "file 0644 /etc/hosts Qg=="]
)
_payloads = st.one_of(
    st.lists(_pieces, max_size=14).map(lambda lines: _text(*lines)),
    st.tuples(st.integers(0, 700), st.integers(0, 700), st.binary(max_size=6)).map(
        lambda cut: _text(*LINES)[: cut[0]] + cut[2] + _text(*LINES)[min(cut[:2]) :]
    ),
    # orders that hold, with files of all kinds
    st.lists(
        st.tuples(st.integers(0, 0o777), st.text("abc /.é", min_size=1, max_size=9), st.binary(max_size=9)), max_size=5
    ).map(lambda files: _text(*LINES[:8], *(_entry(*file) for file in files), "end")),
)


def _entry(mode: int, path: str, content: bytes) -> str:
    return f"file {mode:04o} /srv/{path} {base64.b64encode(content).decode()}"


@settings(max_examples=60, deadline=None)
@given(_payloads)
def test_order_any_is_carried_out_to_the_letter_or_refused_whole(payload: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        guest = Watched(pathlib.Path(place) / "root")
        before = guest.tree()
        try:
            order = orders.parse_order(payload, time.monotonic())
        except orders.OrderError:
            assert (guest.calls, guest.tree()) == ([], before)
            return
        try:
            steps.apply(order, guest)
        except system.StepError:
            # a path through a file, or where a directory is: known when it is tried, and the guest is of no use then
            assert any(line.startswith("file ") for line in payload.decode().split("\n"))
            return
        # read by another way than the program's: line for line
        lines = payload.decode().split("\n")
        keys = [line.split(" ")[0] for line in lines]
        due = [line.split(" ")[0] for line in (*LINES, "") if not line.startswith("file ")]
        assert [key for key in keys if key != "file" and key not in orders.MORE] == due
        tree = guest.tree()
        for line in lines:
            if line.startswith("file "):
                _key, mode, rest = line.split(" ", 2)
                path, _blank, content = rest.rpartition(" ")
                assert tree[path[1:]] == (int(mode, 8), base64.b64decode(content))
        written = next(line for line in lines if line.startswith("clock ")).partition(" ")[2]
        assert -0.001 < dict(guest.calls)["clock"] / 10**9 - float(written) < 5
        assert f"hostname {dict(guest.calls)['hostname']}" in lines
        assert tuple(name for name, _value in guest.calls) == CALLS


# what a template is


def _settled(guest: Watched) -> list[str]:
    def save(channel: t.Any, token: str, guest: Watched) -> t.Any:
        raise system.StepError("not restored")

    (guest.root / "dev/vport1p1").touch()
    port = guest.root / "sys/class/virtio-ports/vport1p1"
    port.mkdir(parents=True)
    (port / "name").write_text("org.vtorque.0\n")
    stored, program.serve = program.serve, save
    try:
        assert program.main(guest) == 1
    finally:
        program.serve = stored
    return guest.path("dev/ttyS0").read_text().splitlines()


def test_template_settled_has_no_identity_and_reports_that_it_may_be_saved(guest: Watched) -> None:
    guest.printed["systemctl", "show", "--property=MainPID", "--value", "vtorque-ready.service"] = b"4711\n"
    for name in ("etc/machine-id", "etc/hostname", "var/lib/systemd/random-seed", "var/lib/dhcp/dhclient.leases"):
        guest.path(name).parent.mkdir(parents=True, exist_ok=True)
        guest.path(name).write_text("of the template\n")
    assert f"vtorque-warm {TOKEN}" in _settled(guest)
    assert guest.path("etc/machine-id").read_bytes() == b""
    for name in ("etc/hostname", "var/lib/systemd/random-seed", "var/lib/dhcp/dhclient.leases"):
        assert not guest.path(name).exists()
    commands = [arguments for name, arguments in guest.calls if name == "run"]
    assert ("systemctl", "start", "ssh.socket") in commands
    # the modules of homes cost each guest seconds else, whichever the site has
    assert {("modprobe", "-q", "virtiofs"), ("modprobe", "-q", "nfsv4")} <= set(commands)
    # what a start begins is begun already, and waits
    waits = next(arguments for arguments in commands if arguments[0] == "systemd-run")
    assert waits[-1] == "read -r go </run/vtorque-go && . /usr/lib/vtorque/ready"
    # systemd reads the line, too, and has words of its own for what begins with it
    assert not any("$" in word for word in waits)
    assert guest.path("run/vtorque-ready.pid").read_bytes() == b"4711\n"
    assert guest.path("run/systemd/system/ssh.service.d/vtorque-warm.conf").read_text() == "[Service]\nExecStartPre=\n"
    assert guest.calls[[name for name, _value in guest.calls].index("down")]


@pytest.mark.parametrize(
    ("free_kib", "taken_mib"),
    [(409600, [350]), (81920, [64]), (8192, []), (0, []), (67108864, [1024])],
    ids=["most of it", "but what is spared", "little", "nothing", "what a boot may have used"],
)
def test_free_memory_is_zeros_before_it_is_saved(
    guest: Watched, monkeypatch: pytest.MonkeyPatch, free_kib: int, taken_mib: list[int]
) -> None:
    taken: list[int] = []
    monkeypatch.setattr(guest, "take_memory", taken.append)
    guest.path("proc").mkdir()
    guest.path("proc/meminfo").write_text(
        f"MemTotal:  {free_kib + 9} kB\nMemFree:   {free_kib} kB\nMemAvailable: 1 kB\n"
    )
    assert f"vtorque-warm {TOKEN}" in _settled(guest)
    assert [size >> 20 for size in taken] == taken_mib


def test_memory_that_is_taken_is_given_back(guest: Watched) -> None:
    def resident() -> int:
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1])

    before = resident()
    guest.take_memory(64 << 20)
    with pytest.raises(OSError, match="allocate"):
        guest.take_memory(1 << 60)
    assert resident() - before < (64 << 20) // 4096


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (lambda guest: guest.path("etc/ssh/ssh_host_rsa_key").touch(), "host keys are in the image"),
        (lambda guest: guest.active.add("ssh.service"), "sshd runs"),
        (lambda guest: guest.printed.update({TIMERS: b"apt.timer loaded\n"}), "timers are still armed: apt.timer"),
    ],
    ids=["host key", "sshd", "timer"],
)  # fmt: skip
def test_template_with_what_guests_would_share_is_refused(guest: Watched, trouble: t.Any, why: str) -> None:
    trouble(guest)
    assert any(line.startswith(f"vtorque-failed {TOKEN} {why}") for line in _settled(guest))


# what a guest begins


class Began(start.Start):  # type: ignore[misc,name-defined]
    """A start whose network is not looked at."""

    def __init__(self, guest: Watched) -> None:
        self._guest = guest


def test_ready_that_waits_goes_on_when_its_guest_is_one(guest: Watched) -> None:
    os.mkfifo(guest.path("run/vtorque-go"))
    with subprocess.Popen(["sh", "-c", 'read -r go <"$1" && echo "$go"', "sh", guest.path("run/vtorque-go")],
                          stdout=subprocess.PIPE, text=True) as waits:  # fmt: skip
        Began(guest)._let_go()
        assert waits.communicate(timeout=20)[0] == "go\n"


def test_ready_that_does_not_wait_ends_the_guest(guest: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "WAITS_S", 0.1)
    os.mkfifo(guest.path("run/vtorque-go"))
    with pytest.raises(system.StepError, match="ready does not wait"):
        Began(guest)._let_go()
    guest.path("run/vtorque-go").unlink()
    with pytest.raises(system.StepError, match="ready does not wait"):
        Began(guest)._let_go()


def test_guest_is_ready_when_what_waited_has_become_the_agent(guest: Watched) -> None:
    line = guest.path("proc/4711/cmdline")
    line.parent.mkdir(parents=True)
    assert not Began(guest)._is_ready()
    guest.write("run/vtorque-ready.pid", b"4711\n", 0o644)
    for arguments, is_ready in ((b"/bin/sh\0-c\0read", False), (b"/bin/sh\0/usr/lib/vtorque/agent\0", True)):
        line.write_bytes(arguments)
        assert Began(guest)._is_ready() is is_ready


# the network


def _answer(question: bytes, kind: int, address: str, *options: bytes, mac: str = MAC) -> bytes:
    message = question[28:]
    reply = b"\x02" + message[1:16] + socket.inet_aton(address) + message[20:28]
    reply += bytes.fromhex(mac.replace(":", "")) + message[34:236] + dhcp_message.COOKIE
    reply += bytes([53, 1, kind]) + b"".join(options) + b"\xff"
    return question[:20] + struct.pack("!4H", 67, 68, 8 + len(reply), 0) + reply


MASK, ROUTER = b"\x01\x04\xff\xff\xff\x00", b"\x03\x04\x0a\x00\x00\x01"
SERVER, LEASE = b"\x36\x04\x0a\x00\x00\x02", b"\x33\x04\x00\x00\x02\x58"
NAMES = b"\x06\x08\x0a\x00\x00\x02\x0a\x00\x00\x03" + b"\x0f\x0chpc.example\x00"
GIVEN = (MASK, ROUTER, SERVER, LEASE, NAMES)


class Server:
    """A DHCP server that answers each question by a function; None: silence."""

    def __init__(self, reply: t.Callable[[int, bytes], bytes | None]) -> None:
        self.ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.asked: list[tuple[int, bytes]] = []
        self._reply = reply

    def fileno(self) -> int:
        return self.ours.fileno()

    def send(self, packet: bytes) -> int:
        options = packet[28 + 240 :]
        self.asked.append((options[2], packet))
        answer = self._reply(options[2], packet)
        if answer is not None:
            self._theirs.send(answer)
        return len(packet)

    def recv(self, size: int) -> bytes:
        return self.ours.recv(size)


def _usual(kind: int, packet: bytes) -> bytes:
    return _answer(
        packet, dhcp_message.OFFER if kind == dhcp_message.DISCOVER else dhcp_message.ACK, "10.0.0.7", *GIVEN
    )


def test_dhcp_without_an_address_takes_what_is_offered() -> None:
    server = Server(_usual)
    lease = dhcp_client.Dhcp(server, MAC, "vcn1-1").ask()
    assert [kind for kind, _packet in server.asked] == [dhcp_message.DISCOVER, dhcp_message.REQUEST]
    assert lease == dhcp_message.Lease(
        "10.0.0.7",
        24,
        bytes((10, 0, 0, 2)),
        600,
        (("0.0.0.0/0", "10.0.0.1"),),
        ("10.0.0.2", "10.0.0.3"),
        ("hpc.example",),
    )
    taken = server.asked[1][1]
    assert b"\x32\x04\x0a\x00\x00\x07" in taken
    assert SERVER in taken
    # known by its card, and by nothing that guests may share
    assert b"\x3d\x07\x01" + bytes.fromhex(MAC.replace(":", "")) in taken
    assert b"\x0c\x06vcn1-1" in taken
    assert dhcp_message._checksum(taken[:20]) == 0


def test_dhcp_with_the_address_of_before_needs_one_answer() -> None:
    server = Server(_usual)
    lease = dhcp_client.Dhcp(server, MAC, "vcn1-1").ask("10.0.0.7")
    assert lease is not None
    assert lease.address == "10.0.0.7"
    assert [kind for kind, _packet in server.asked] == [dhcp_message.REQUEST]


def test_dhcp_whose_address_is_anothers_now_gets_a_new_one() -> None:
    def reply(kind: int, packet: bytes) -> bytes:
        if kind == dhcp_message.REQUEST and b"\x32\x04\x0a\x00\x00\x09" in packet:
            return _answer(packet, dhcp_message.NAK, "0.0.0.0")
        return _usual(kind, packet)

    server = Server(reply)
    lease = dhcp_client.Dhcp(server, MAC, "vcn1-1").ask("10.0.0.9")
    assert lease is not None
    assert lease.address == "10.0.0.7"
    assert [kind for kind, _packet in server.asked] == [
        dhcp_message.REQUEST,
        dhcp_message.DISCOVER,
        dhcp_message.REQUEST,
    ]


def test_dhcp_answers_to_others_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(kind: int, packet: bytes) -> bytes:
        return _answer(packet, dhcp_message.OFFER, "10.0.0.8", *GIVEN, mac="52:54:00:0a:00:02")

    monkeypatch.setattr(dhcp_client, "TRIES_S", (0.02, 0.02))
    assert dhcp_client.Dhcp(Server(reply), MAC, "vcn1-1").ask() is None
    other = dhcp_message.dhcp_question(dhcp_message.DISCOVER, MAC, b"1234", "a")
    assert dhcp_message.dhcp_answer(_answer(other, dhcp_message.OFFER, "10.0.0.8", *GIVEN), MAC, b"4321") is None


def test_dhcp_that_renews_names_the_address_that_it_has() -> None:
    server = Server(_usual)
    lease = dhcp_client.Dhcp(server, MAC, "vcn1-1").ask()
    assert dhcp_client.Dhcp(server, MAC, "vcn1-1").renew(lease) == lease
    assert server.asked[-1][1][28 + 12 : 28 + 16] == bytes((10, 0, 0, 7))


def test_lease_with_routes_and_a_search_list_is_read_by_its_rfcs() -> None:
    question = dhcp_message.dhcp_question(dhcp_message.REQUEST, MAC, b"1234", "a")
    routes = b"\x79\x11" + b"\x00\x0a\x00\x00\x01" + b"\x10\x0a\x07\x0a\x08\x00\x02" + b"\x00\x00\x00\x00\x00"
    search = b"\x77\x11" + b"\x03hpc\x07example\x00" + b"\x01b\xc0\x04"
    answer = dhcp_message.dhcp_answer(
        _answer(question, dhcp_message.ACK, "10.0.0.7", MASK, ROUTER, routes, search, b"\x1a\x02\x23\x28"), MAC, b"1234"
    )
    assert answer is not None
    lease = answer[1]
    assert lease.routes == (("0.0.0.0/0", "10.0.0.1"), ("10.7.0.0/16", "10.8.0.2"), ("0.0.0.0/0", "0.0.0.0"))
    assert (lease.search, lease.mtu, lease.seconds) == (("hpc.example", "b.example"), 9000, dhcp_message.FOREVER)


USE = """
import sys
sys.path.insert(0, sys.argv[1])
from vtorque_warm import dhcp_message, network
lease = dhcp_message.Lease(
    "10.0.0.7", 24, b"", int(sys.argv[2]),
    (("0.0.0.0/0", "10.0.0.1"), ("10.7.0.0/16", "10.8.0.2"), ("10.9.0.0/16", "0.0.0.0")), mtu=9000,
)
for _time in range(2):
    network.use_lease("one", lease)
"""


def test_lease_is_used_as_by_ip_and_again_without_harm() -> None:
    script = """set -e
        ip link add one type veth peer name two && ip link set two up && ip link set one up
        "$@"
        ip -o -4 address show dev one; ip route; ip -o link show dev one"""
    run = ["unshare", "-n", "sh", "-c", script, "sh", sys.executable, "-c", USE, str(FILES)]
    for seconds, life in ((600, "valid_lft 600sec"), (dhcp_message.FOREVER, "valid_lft forever")):
        done = subprocess.run([*run, str(seconds)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        address, *routes, link = done.stdout.splitlines()
        assert "inet 10.0.0.7/24 brd 10.0.0.255 scope global" in address
        assert life in address.replace("599sec", "600sec")
        assert "mtu 9000" in link
        assert sorted(route.split("proto")[0].strip() for route in routes) == [
            "10.0.0.0/24 dev one",
            "10.7.0.0/16 via 10.8.0.2 dev one onlink",
            "10.9.0.0/16 dev one scope link",
            "default via 10.0.0.1 dev one",
        ]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 80), st.binary(max_size=60))
def test_dhcp_answer_any_is_read_or_passed_over(options: bytes, cut: int, noise: bytes) -> None:
    question = dhcp_message.dhcp_question(dhcp_message.REQUEST, MAC, b"1234", "a")
    whole = _answer(question, dhcp_message.ACK, "10.0.0.7", MASK, b"\x77" + bytes([len(options)]) + options)
    for packet in (whole, whole[: len(whole) - cut] + noise, noise):
        answer = dhcp_message.dhcp_answer(packet, MAC, b"1234")
        assert answer is None or answer[1] is None or answer[1].address == "10.0.0.7"


# its place in an image


def test_install_warm_in_an_image_is_whole_and_may_be_repeated(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/python3").touch(0o755)
    for _time in range(2):
        subprocess.run(["sh", FILES / "install_warm.sh", root], check=True)
    program = root / "usr/lib/vtorque-image/warm"
    assert stat.S_IMODE(program.stat().st_mode) == 0o755
    assert program.read_bytes() == b"#!/usr/bin/python3 -I\n" + (FILES / "warm.py").read_bytes()
    # it finds its modules where they were put, and nowhere else: without a channel's name it ends there
    done = subprocess.run([sys.executable, "-I", "-B", program], capture_output=True, text=True, cwd=tmp_path)
    assert (
        done.stderr.splitlines()[-1] == f"FileNotFoundError: [Errno 2] No such file or directory: '/{steps.WARM_ENV}'"
    )
    assert f"{root}/usr/lib/vtorque-image/vtorque_warm/program.py" in done.stderr
    for unit in ("ssh.service", "sshd.service", "sshd-keygen@.service"):
        text = (root / f"etc/systemd/system/{unit}.d/vtorque-warm.conf").read_text()
        assert text == f"[Unit]\nConditionPathExists=!/{steps.WARM_ENV}\n"


def test_install_warm_in_an_image_without_python_is_refused(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(["sh", FILES / "install_warm.sh", tmp_path], capture_output=True, text=True)
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "has no /usr/bin/python3" in done.stderr
