# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that a node must know to make one guest: the one thing that passes from the job to the nodes.

The JSON forms are strict: a key too many, a key missing, a wrong type or a value out of form is an error.
What a node reads is what it asked for, or nothing.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from .errors import VTorqueError
from .frozen import frozen

VERSION = 1

JOB_ID = r"[0-9]{1,12}(\[[0-9]{1,7}\])?\.[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
"""A job id as Torque prints it: `4711.head`, `72[1].head` for the member of an array (torque.md)."""
HOST_NAME = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
USER_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?"
GROUP_NAME = r"[^:,\x00-\x1f\x7f]{1,255}"
"""A group of a directory server may hold blanks and capitals; a colon or a comma would break group(5)."""
IMAGE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(@[1-9][0-9]{0,6})?"
ABSOLUTE_PATH = r"/[^\x00-\x1f\x7f]{0,4000}"
MAC = r"[0-9a-f]{2}(:[0-9a-f]{2}){5}"
ADDRESS = r"[0-9a-fA-F.:]{2,45}"
PUBLIC_KEY = r"ssh-ed25519 [A-Za-z0-9+/=]{68}( [A-Za-z0-9@._-]{1,100})?"
PACKAGE = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
"""A package of a distribution, by a name that no package manager takes for an option or a path."""
BASE64 = r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
ANY_TEXT = r"[^\x00\ud800-\udfff]+"
"""What can be a word of a command and can be written as UTF-8."""
PRIVATE_KEY = r"-----BEGIN OPENSSH PRIVATE KEY-----\n[A-Za-z0-9+/=\n]{100,2000}-----END OPENSSH PRIVATE KEY-----\n"

HYPERVISORS = ("kvm", "qemu")
FS_TYPES = ("sharedfs", "local", "ramdisk")
QUOTE_MAC = "write a MAC address in quotes"
_MAC_DIGITS = 12


def number_for_mac(value: object) -> str:
    """Why a value is no MAC address but a number, for people, or "".

    YAML 1.1 reads `52:54:00:00:01:03`, whose parts are all below 60, as a number of seconds, and Ansible makes text of
    it where text is due.  Such a number has 11 digits at most; 12 digits are a MAC address without separators.

    Args:
        value: what stands where a MAC address is due.
    """
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not re.fullmatch("[0-9]{1,20}", text) or len(text) == _MAC_DIGITS:
        return ""
    rest, parts = int(text), []
    for _part in range(5):
        rest, part = divmod(rest, 60)
        parts.append(f"{part:02d}")
    written = ":".join([f"{rest:02d}", *reversed(parts)])
    likely = f", as it reads {written} without quotes" if re.fullmatch(MAC, written) and rest else ""
    return f"is a number, which YAML makes of digits and colons{likely}"


def name_text(value: object) -> str:
    """A name that came as an option of a module; "" for none.

    Args:
        value: as Ansible read it, without making text of it: `12.10` is 12.1 to YAML 1.1, and `no` is false.

    Raises:
        VTorqueError: YAML made a number with a point, or true or false, of the name.
    """
    if isinstance(value, (bool, float)) or not isinstance(value, (str, int, type(None))):
        kind = "a text is due" if not isinstance(value, (bool, float)) else "YAML made this of a name without quotes"
        raise VTorqueError(f"name={str(value)[:40].lower()}", kind, "write the name in quotes: '12.10'")
    return "" if value is None else str(value)


def _text(pattern: str, *, secret: bool = False, default: t.Any = dataclasses.MISSING) -> t.Any:
    return dataclasses.field(default=default, metadata={"pattern": pattern}, repr=not secret)  # pylint: disable=invalid-field-call


def _part(*, default: t.Any = dataclasses.MISSING) -> t.Any:
    return dataclasses.field(default=default)  # pylint: disable=invalid-field-call


def _number(low: int, high: int, *, default: t.Any = dataclasses.MISSING) -> t.Any:
    figures = {"low": low, "high": high}
    return dataclasses.field(default=default, metadata=figures)  # pylint: disable=invalid-field-call


@frozen
class Group:
    """A group of the job's user besides the one as which the job runs."""

    name: str = _text(GROUP_NAME)
    gid: int = _number(0, 2**32 - 2)


@frozen
class Owner:
    """The job's user, as the node knows him (getpwuid, getgrouplist).

    Attributes:
        groups: his supplementary groups, without `gid`.
    """

    user: str = _text(USER_NAME)
    uid: int = _number(1, 2**32 - 2)
    gid: int = _number(1, 2**32 - 2)
    group: str = _text(GROUP_NAME)
    home: str = _text(ABSOLUTE_PATH)
    shell: str = _text(ABSOLUTE_PATH)
    groups: tuple[Group, ...] = ()


@frozen
class KeyPair:
    """An ed25519 key of OpenSSH, made for one start of one job."""

    private: str = _text(PRIVATE_KEY, secret=True)
    public: str = _text(PUBLIC_KEY)


@frozen
class GuestSpec:
    """One guest of a job on one node.

    Attributes:
        rank: position of the guest in the job, 0 first; the job script runs in rank 0.
        index: position among the job's guests on this node, 0 first (not the slot: that is the node's to give).
        image: name in the pool, with its revision once it is resolved (`debian12@3`); or the path of the user's own.
        ram_mib: memory of the guest in MiB.
        host_key: the guest's ssh host key, known before it boots.
        authorized_key: public key of the job, with which its user enters the guest.
        data_disk: path of a disk of the user's own; "": none.
        image_digest: of the user's own image as it was submitted (`own_image.py`); "": whatever it is.
    """

    rank: int = _number(0, 100_000)
    index: int = _number(0, 1_000)
    image: str = _text(f"{IMAGE_NAME}|{ABSOLUTE_PATH}")
    distro: str = _text(r"[a-z]{1,16}")
    arch: str = _text(r"[a-z0-9_]{1,16}")
    vcpus: int = _number(1, 4096)
    ram_mib: int = _number(16, 2**24)
    hypervisor: str = _text("|".join(HYPERVISORS))
    fs_type: str = _text("|".join(FS_TYPES))
    host_key: KeyPair = _part()
    authorized_key: str = _text(PUBLIC_KEY)
    data_disk: str = _text(f"({ABSOLUTE_PATH})?", default="")
    image_digest: str = _text(r"([0-9a-f]{64})?", default="")

    @property
    def own_image(self) -> bool:
        """Does it boot an image of the user's, and none of the pool?"""
        return self.image.startswith("/")


@frozen
class Package:
    """A package that a user wants in his guests; from the site's list."""

    name: str = _text(PACKAGE)


@frozen
class AddedFile:
    """A file that the user himself writes in his guests.

    Attributes:
        mode: permissions, three octal digits.
        content: in base64.
    """

    path: str = _text(ABSOLUTE_PATH)
    mode: str = _text("[0-7]{3}")
    content: str = _text(BASE64, secret=True)


@frozen
class Command:
    """A line for a shell, which the user himself runs in his guests."""

    line: str = _text(ANY_TEXT, secret=True)


@frozen
class Additions:
    """What a user adds to each guest of his job (`-vm metadata=`), in the order in which it is done there.

    Attributes:
        packages: installed by the guest's root.
        files: written by the user.
        commands: run by the user.
    """

    packages: tuple[Package, ...] = _part(default=())
    files: tuple[AddedFile, ...] = _part(default=())
    commands: tuple[Command, ...] = _part(default=())

    @property
    def any(self) -> bool:
        """Is there anything to do?"""
        return bool(self.packages or self.files or self.commands)


_NOBODY = Owner("nobody", 65534, 65534, "nogroup", "/nonexistent", "/bin/false")


@frozen
class NodePart:
    """What the mother superior asks of one node: this job's guests, there or gone.

    Attributes:
        do: `present` or `absent`.
        start: Torque's start_count of the job; a requeued job has a higher one.
        timeout_s: seconds from the reading of this request until the node must have answered.
        guests: empty for `absent`, which removes whatever of this start is there.
        bare_slots: how often the job's node file names this host, which stays bare (mixed request); 0: it is to have
            guests, or nobody knows.
        additions: the user's own, to each of the guests.
    """

    version: int = _number(VERSION, VERSION)
    do: str = _text("present|absent")
    job_id: str = _text(JOB_ID)
    start: int = _number(0, 2**31)
    node: str = _text(HOST_NAME)
    timeout_s: float = _number(0, 86_400)
    owner: Owner = _part()
    guests: tuple[GuestSpec, ...] = _part()
    bare_slots: int = _number(0, 100_000, default=0)
    additions: Additions = _part(default=Additions())

    @classmethod
    def removal(cls, job_id: str, start: int, node: str, timeout_s: float, bare_slots: int = 0) -> NodePart:
        """The request to remove whatever of a start is on a node; it is about no guest, and so about no owner.

        Args:
            job_id: the job.
            start: Torque's start_count of the job.
            node: which node is asked.
            timeout_s: seconds until it must have answered.
            bare_slots: as the plan says it of a bare host, which need not have libvirt; 0: it is not known to be one.

        Returns:
            A part with `absent` and without guests.
        """
        return cls(VERSION, "absent", job_id, start, node, timeout_s, _NOBODY, (), bare_slots)


@frozen
class GuestFacts:
    """A guest that is ready: the node's answer, and untrusted where it arrives (hence the forms).

    Attributes:
        name: host name of the guest, `v<node>-<slot>`.
        timings_s: seconds that each phase took on the node (`disk`, `seed`, `start`, `address`, `ready`).
    """

    rank: int = _number(0, 100_000)
    name: str = _text(HOST_NAME)
    mac: str = _text(MAC)
    address: str = _text(ADDRESS)
    timings_s: dict[str, float] = _part()


NOT_KNOWN = -1
"""In place of a figure of `GuestUse` that nobody could tell."""
_MOST = 2**63 - 1


CONSOLE_LENGTH = 1 << 16
"""Characters of a console's end that a node tells."""


@frozen
class GuestConsole:
    """The end of a console of a guest that was taken away: the node's answer, and untrusted where it arrives.

    Attributes:
        name: host name of the guest.
        end: the last lines.
    """

    name: str = _text(HOST_NAME)
    end: str = _text(rf"(?s:.{{1,{CONSOLE_LENGTH}}})")


@frozen
class GuestUse:
    """What a guest had used when it was taken away: the node's answer, and untrusted where it arrives.

    Attributes:
        name: host name of the guest.
        cpu_s: processor time of its process, in seconds.
        ram_peak_bytes: the most memory that its process has held.
        read_bytes: from its disks.
        written_bytes: to its disks.
        received_bytes: over its network.
        sent_bytes: over its network.
    """

    name: str = _text(HOST_NAME)
    cpu_s: float = _number(NOT_KNOWN, 10**12)
    ram_peak_bytes: int = _number(NOT_KNOWN, _MOST)
    read_bytes: int = _number(NOT_KNOWN, _MOST)
    written_bytes: int = _number(NOT_KNOWN, _MOST)
    received_bytes: int = _number(NOT_KNOWN, _MOST)
    sent_bytes: int = _number(NOT_KNOWN, _MOST)

    def known(self) -> dict[str, float]:
        """The figures that are known, by name, as a record holds them."""
        figures = dataclasses.asdict(self)
        return {key: figure for key, figure in figures.items() if key != "name" and figure != NOT_KNOWN}


@frozen
class BareHost:
    """A host of a mixed job that stays bare: the node's answer, and untrusted where it arrives.

    Attributes:
        address: where guests reach its sshd.
        host_key: the public ssh key that answers there.
    """

    address: str = _text(ADDRESS)
    host_key: str = _text(PUBLIC_KEY)


@frozen
class JobHost:
    """One host of a job, as the others know it.

    Attributes:
        name: host name.
        address: where it is reached.
        slots: how often the job's node file names it: vCPUs of a guest, slots of a bare host.
        host_key: the public ssh key that answers there.
        bare: is it a host of the cluster itself, and no guest?
    """

    name: str = _text(HOST_NAME)
    address: str = _text(ADDRESS)
    slots: int = _number(0, 100_000)
    host_key: str = _text(PUBLIC_KEY)
    bare: bool = False


@frozen
class JobMap:
    """What every host of a job learns when all guests are ready.

    Attributes:
        do: `join`.
        node: whose guests are told; or a bare host, which is told itself.
        timeout_s: seconds from the reading of this request until the node must have answered.
        hosts: of the whole job, in the order of the node file: the guests by rank, then the bare hosts.
        job_key: with which the job's user goes from host to host.
    """

    version: int = _number(VERSION, VERSION)
    do: str = _text("join")
    job_id: str = _text(JOB_ID)
    start: int = _number(0, 2**31)
    node: str = _text(HOST_NAME)
    timeout_s: float = _number(0, 86_400)
    hosts: tuple[JobHost, ...] = _part()
    job_key: KeyPair = _part()


@frozen
class LostGuest:
    """What a sister tells the mother superior while the job runs: a guest of hers ended or was paused.

    Attributes:
        do: `lost`.
        node: who tells it, and whose guest it was.
        guest: its host name.
        reason: what libvirt or the kernel said of it, in words.
        console: the last lines of its console, in one line; "" when it was silent.
    """

    version: int = _number(VERSION, VERSION)
    do: str = _text("lost")
    job_id: str = _text(JOB_ID)
    start: int = _number(0, 2**31)
    node: str = _text(HOST_NAME)
    guest: str = _text(HOST_NAME)
    reason: str = _text(r"[^\x00-\x1f\x7f]{1,500}")
    console: str = _text(r"[^\x00-\x1f\x7f]{0,4000}")


@frozen
class ImageOrder:
    """What a front end asks of a node ahead of jobs: a copy of an image of the pool, and how far that is.

    Attributes:
        do: `image`.
        image: with its revision, so that all nodes get the same.
        again: it was asked for before; what has failed since is told, and not begun anew.
        timeout_s: seconds that the answer may wait for the copy.
    """

    version: int = _number(VERSION, VERSION)
    do: str = _text("image")
    image: str = _text(IMAGE_NAME)
    fs_type: str = _text("local|ramdisk")
    again: bool = _part()
    timeout_s: float = _number(0, 600)


class FormError(VTorqueError):
    """JSON that is not of the form its reader demands."""


_T = t.TypeVar("_T")


def from_dict(cls: type[_T], data: object, where: str = "") -> _T:
    """Make a frozen dataclass of this module out of parsed JSON.

    Args:
        cls: the dataclass.
        data: what `json.loads` gave.
        where: path to `data` in the document, for messages.

    Raises:
        FormError: names the place and what was wrong there; secrets are not repeated.
    """
    where = where or cls.__name__
    if not isinstance(data, dict):
        raise FormError(where, f"an object was expected, not {type(data).__name__}")
    fields = {f.name: f for f in dataclasses.fields(t.cast(t.Any, cls))}
    unknown = sorted(set(map(str, data)) - set(fields))
    missing = sorted(set(fields) - set(data))
    if unknown:
        raise FormError(where, f"unknown key {unknown[0][:64]!r}")
    if missing:
        raise FormError(where, f"key {missing[0]!r} is missing")
    hints = t.get_type_hints(cls)
    values = {name: _value(hints[name], f, data[name], f"{where}.{name}") for name, f in fields.items()}
    return cls(**values)


def _value(hint: t.Any, field: dataclasses.Field[t.Any], value: object, where: str) -> object:
    if dataclasses.is_dataclass(hint):
        return from_dict(t.cast(t.Any, hint), value, where)
    if t.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise FormError(where, "a list was expected")
        return tuple(from_dict(t.get_args(hint)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if t.get_origin(hint) is dict:
        return _timings(value, where)
    if hint is str:
        if not isinstance(value, str) or not re.fullmatch(field.metadata["pattern"], value):
            shown = repr(value)[:80] if field.repr else "the value"
            raise FormError(where, f"{shown} is not of the form demanded")
        return value
    if hint is bool:
        if not isinstance(value, bool):
            raise FormError(where, f"true or false was expected, not {type(value).__name__}")
        return value
    return _figure(hint, field, value, where)


def _figure(hint: t.Any, field: dataclasses.Field[t.Any], value: object, where: str) -> object:
    number = (int, float) if hint is float else (int,)
    if isinstance(value, bool) or not isinstance(value, number):
        raise FormError(where, f"a number was expected, not {type(value).__name__}")
    if not field.metadata["low"] <= value <= field.metadata["high"]:
        raise FormError(where, f"{value} is not within {field.metadata['low']} .. {field.metadata['high']}")
    return value


def _timings(value: object, where: str) -> dict[str, float]:
    if not isinstance(value, dict) or len(value) > 32:
        raise FormError(where, "an object of at most 32 figures was expected")
    figures: dict[str, float] = {}
    for key, figure in value.items():
        good = isinstance(figure, (int, float)) and not isinstance(figure, bool) and 0 <= figure < 1e6
        if not re.fullmatch(r"[a-z_]{1,32}", str(key)) or not good:
            raise FormError(where, "a phase is named in small letters and takes 0 .. 1e6 seconds")
        figures[key] = float(figure)
    return figures


def to_dict(thing: t.Any) -> dict[str, t.Any]:
    """The dataclass as JSON-ready data; `from_dict` reads it back."""
    return dataclasses.asdict(thing)
