# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's word: its configuration, and what it makes of a request."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import stat
import typing as t

from ..errors import SiteFault
from .parameters import BOUNDS_OF, DEFAULT_OF, PARAMETERS, Parameter, Policy
from .request import KEYS, Request, RequestErrors
from .values import BadValue, KeyFault, Value, nearest, shown, size_text, written

__all__ = [
    "PATH", "USELESS_YET", "Demand", "ImageFacts", "NodeSize", "Offers", "Policy", "PolicyErrors", "Resolved",
    "demand", "host_matches", "load", "resolve", "too_big",
]  # fmt: skip

PATH = pathlib.Path("/etc/vtorque/vtorque.yml")
SITE_DEFAULT = "site default"
MAX_FILE = 1 << 20


class PolicyErrors(SiteFault):
    """Everything that is wrong with the site's configuration, told at once.

    Attributes:
        faults: one for each thing that is wrong; their origin is file and line.
    """

    def __init__(self, file: pathlib.Path, faults: t.Sequence[KeyFault]) -> None:
        super().__init__(
            f"the site's configuration {file}", "; ".join(map(str, faults)), "an administrator must see to it"
        )
        self.faults = tuple(faults)


def load(path: pathlib.Path = PATH, *, owner_uid: int = 0) -> Policy:
    """Read the site's configuration and check all of it.

    Args:
        path: the file; it must belong to `owner_uid`, and neither it nor its directory may be writable by others.
        owner_uid: whose word is the site's: root's.

    Returns:
        Every parameter, checked.

    Raises:
        SiteFault: the file is missing, or not only root can have written it.
        PolicyErrors: something in it is wrong; all of it is named.
    """
    import yaml  # 10 ms that only those pay who read the file

    text = _read(path, owner_uid)
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        if root is None:
            return Policy()
        if not isinstance(root, yaml.MappingNode):
            raise SiteFault(f"the site's configuration {path}", "not a list of `name: value` lines")
        loader = yaml.CSafeLoader("")
        entries = [
            (str(key.value), loader.construct_object(value, deep=True), key.start_mark.line + 1)
            for key, value in root.value
        ]
    except yaml.YAMLError as error:
        raise SiteFault(f"the site's configuration {path}", f"not YAML: {' '.join(str(error).split())}") from None
    return _checked(path, entries)


def _read(path: pathlib.Path, owner_uid: int) -> str:
    what = f"the site's configuration {path}"
    try:
        with path.open("rb") as stream:
            for name, facts in ((path, os.fstat(stream.fileno())), (path.parent, path.parent.stat())):
                # with an ACL the group bits are its mask, so that a right granted there shows here too
                if facts.st_uid != owner_uid or facts.st_mode & 0o022:
                    raise SiteFault(what, f"{name} can be written by others than root, so it is not believed")
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise SiteFault(what, "not a regular file")
            return stream.read(MAX_FILE).decode()
    except FileNotFoundError:
        raise SiteFault(what, "the file is missing", "the install role writes it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SiteFault(what, str(error)) from error


def _checked(path: pathlib.Path, entries: t.Sequence[tuple[str, object, int]]) -> Policy:
    values: dict[str, t.Any] = {}
    lines: dict[str, int] = {}
    faults: list[KeyFault] = []
    for name, raw, line in entries:
        origin = f"line {line}"
        if name in lines:
            faults.append(KeyFault(shown(name), shown(raw), f"stands there twice, in line {lines[name]} too", origin))
        elif name not in PARAMETERS:
            faults.append(KeyFault(shown(name), shown(raw), f"no such parameter{_meant(name)}", origin))
        else:
            fault = _take(PARAMETERS[name], raw, origin, values)
            faults.extend([fault] if fault else [])
        lines.setdefault(name, line)
    policy = Policy(**values)
    faults.extend(_contradictions(policy, lines))
    if faults:
        raise PolicyErrors(path, faults)
    return policy


def _meant(name: str) -> str:
    for parameter in PARAMETERS.values():
        if name.lower() == parameter.name or name.upper() in parameter.old:
            return f"; it is called {parameter.name}"
    return nearest(name, PARAMETERS)


def _take(parameter: Parameter, raw: object, origin: str, values: dict[str, t.Any]) -> KeyFault | None:
    if raw is None and parameter.default is None:
        return None
    try:
        value = parameter.kind.read(raw)
    except BadValue as error:
        return KeyFault(parameter.name, shown(raw), f"allowed: {error}", origin)
    if parameter.later and value != parameter.default:
        why = f"belongs to {parameter.later}, which is not available yet; leave it at its default"
        return KeyFault(parameter.name, shown(raw), why, origin)
    values[parameter.name] = value
    return None


def _contradictions(policy: Policy, lines: t.Mapping[str, int]) -> t.Iterator[KeyFault]:
    """What no single parameter shows."""

    def fault(name: str, message: str) -> KeyFault:
        origin = f"line {lines[name]}" if name in lines else SITE_DEFAULT
        return KeyFault(name, shown(written(getattr(policy, name))), message, origin)

    if policy.kill_user_processes_after_job and not policy.pbs_exclusive_node_alloc:
        yield fault("kill_user_processes_after_job", "needs pbs_exclusive_node_alloc: a shared node has other users")
    if policy.custom_ip_mapping and policy.ip_to_mac_script is None:
        yield fault("custom_ip_mapping", "needs ip_to_mac_script")
    if policy.hypervisor_default == "qemu" and not policy.allow_emulation:
        yield fault("hypervisor_default", "needs allow_emulation")
    if policy.timeout > policy.prologue_timeout:
        yield fault("timeout", f"is more than prologue_timeout ({policy.prologue_timeout})")
    for key, (low, high) in BOUNDS_OF.items():
        least, greatest = getattr(policy, low), getattr(policy, high)
        if least is not None and greatest is not None and least > greatest:
            yield fault(low, f"is more than {high} ({greatest})")
        elif message := _out_of_bounds(key, getattr(policy, DEFAULT_OF[key]), policy):
            yield fault(DEFAULT_OF[key], message)


def host_matches(expression: str | None, host: str) -> bool:
    """Does a host fit one of the site's host expressions (None: no host does), by its full name or by its short one?"""
    if expression is None:
        return False
    return any(re.fullmatch(expression, name) for name in (host, host.partition(".")[0]))


@dataclasses.dataclass(frozen=True)
class ImageFacts:
    """An image of the pool, as far as a request can meet it.

    Attributes:
        name: `debian12@3` for a revision, the file's name (`tiny.qcow2`) for an image without a record.
        distro: its family, or "" when nothing is recorded.
        arch: its architecture, or "" when nothing is recorded.
    """

    name: str
    distro: str = ""
    arch: str = ""


@dataclasses.dataclass(frozen=True)
class Offers:
    """What there is to choose from; the caller has looked.

    Attributes:
        images: the pool's images; None: nobody could look, so the name is left to who can.
        archs: what the nodes' libvirt offers.
    """

    images: tuple[ImageFacts, ...] | None = None
    archs: tuple[str, ...] = ("x86_64",)


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A request with everything decided: a value, or None, and an origin for every key.

    Attributes:
        values: by key; `img` is the image's name in the pool with its revision.
        origins: by key: what the request says, or "site default", or "the image's record".
        shell: the user's own `-S`, or "".
    """

    values: t.Mapping[str, Value | None]
    origins: t.Mapping[str, str]
    shell: str

    def word(self, key: str) -> str:
        """The value of a key that holds a word, a name or a path; "" when there is none."""
        value = self.values[key]
        return "" if value is None else written(value)

    def figure(self, key: str) -> int:
        """The value of a key that holds a number (a size: MiB); 0 when there is none."""
        value = self.values[key]
        return value if isinstance(value, int) else 0


_NOT_YET: dict[str, t.Callable[[Value], bool]] = {
    "vrdma": lambda value: value is True,
    "iocm": lambda value: value is True,
    "unclot": lambda value: value is True,
    "vcpu_pinning": lambda value: value is not False,
    "fs_type": lambda value: value != "sharedfs",
    "hypervisor": lambda value: value == "skvm",
    "distro": lambda value: value == "osv",
    "img": lambda value: str(value).startswith("/"),
    "disk": lambda value: True,
    "metadata": lambda value: True,
    "iocm_min_cores": lambda value: True,
    "iocm_max_cores": lambda value: True,
    "unclot_shmem": lambda value: True,
    "nodes": lambda value: True,
    "pci": lambda value: True,
}
"""Which values of which keys have no effect yet, and are therefore refused when a user asks for them."""
NOT_AVAILABLE_YET = "not available on this site yet"

USELESS_YET = frozenset(_NOT_YET) - {"img", "distro", "hypervisor"}
"""Keys that only their defaults may be given for; of the others some values have their effect."""


def resolve(request: Request, policy: Policy, offers: Offers) -> Resolved:
    """Decide every key of a request: what was asked for, within the site's bounds, or the site's default.

    Args:
        request: what was asked for, script and command line merged.
        policy: the site's configuration.
        offers: the images and architectures there are.

    Returns:
        A value, or None, and an origin for every key.

    Raises:
        RequestErrors: something cannot be had; all of it is named.
    """
    values: dict[str, Value | None] = {}
    origins: dict[str, str] = {}
    faults: list[KeyFault] = []
    for key in KEYS:
        asked = key in request.values
        value = request.values[key] if asked else t.cast("Value | None", getattr(policy, DEFAULT_OF[key]))
        values[key], origins[key] = value, request.origins.get(key, "") if asked else SITE_DEFAULT
        message = _objection(key, value, policy, asked=asked)
        if message and value is not None:
            faults.append(KeyFault(key, _shown(key, value), message, origins[key]))
    faults.extend(_contradiction(values, origins))
    if not any(fault.key == "img" for fault in faults):
        faults.extend(_choose_image(values, origins, offers))
    if values["arch"] not in offers.archs:
        message = f"the nodes offer {', '.join(offers.archs) or 'none'}"
        faults.append(KeyFault("arch", shown(values["arch"]), message, origins["arch"]))
    if faults:
        first = {fault.key: fault for fault in reversed(faults)}  # one word on each key is enough
        raise RequestErrors([fault for fault in faults if first[fault.key] is fault], request)
    return Resolved(values, origins, request.shell)


def _shown(key: str, value: Value) -> str:
    return size_text(value) if key in ("ram", "unclot_shmem") and isinstance(value, int) else shown(written(value))


def _objection(key: str, value: Value | None, policy: Policy, *, asked: bool) -> str:
    """Why a value cannot be had, whatever the others are, or ""."""
    if value is None:
        return ""
    if asked and key in _NOT_YET and _NOT_YET[key](value):
        return NOT_AVAILABLE_YET
    if key == "hypervisor" and value == "qemu" and not policy.allow_emulation:
        return "this site does not allow software emulation"
    return _out_of_bounds(key, value, policy)


def _out_of_bounds(key: str, value: Value | None, policy: Policy) -> str:
    if key not in BOUNDS_OF or not isinstance(value, int):
        return ""
    least, greatest = (t.cast("int | None", getattr(policy, name)) for name in BOUNDS_OF[key])
    if least is not None and value < least:
        return f"at least {_shown(key, least)} on this site"
    if greatest is not None and value > greatest:
        return f"at most {_shown(key, greatest)} on this site"
    return ""


def _contradiction(values: t.Mapping[str, Value | None], origins: t.Mapping[str, str]) -> t.Iterator[KeyFault]:
    low, high = values["iocm_min_cores"], values["iocm_max_cores"]
    if isinstance(low, int) and isinstance(high, int) and low > high:
        message = f"is more than iocm_max_cores ({high}, {origins['iocm_max_cores']})"
        yield KeyFault("iocm_min_cores", str(low), message, origins["iocm_min_cores"])


_FAMILY = {"ubuntu": "debian", "centos": "redhat", "rocky": "redhat", "alma": "redhat"}
_FROM_RECORD = "the image's record"


def _choose_image(values: dict[str, Value | None], origins: dict[str, str], offers: Offers) -> t.Iterator[KeyFault]:
    """Put the image's full name and its distribution into `values`, and yield what speaks against it."""
    asked = values["img"]
    if asked is None:
        yield KeyFault("img", "", "no image: this site has no default, so -vm img=NAME must say it (vmgr image list)")
        return
    if offers.images is not None:
        image = _find(str(asked), offers.images)
        if image is None:
            names = {candidate.name.partition("@")[0] for candidate in offers.images}
            message = f"no such image in the pool{nearest(str(asked), sorted(names))} (vmgr image list)"
            yield KeyFault("img", shown(asked), message, origins["img"])
            return
        if image.name != asked:
            origins["img"] += f" ({asked})"
        values["img"] = image.name
        yield from _agree(image, values, origins)
    if values["distro"] is None:
        message = f"the image {values['img']} has no record that says it: give one of {KEYS['distro'].kind.allowed}"
        yield KeyFault("distro", "", message)


def _find(asked: str, images: t.Sequence[ImageFacts]) -> ImageFacts | None:
    """The image of that name; of several revisions the newest, of several files the one that is named exactly."""

    def stem(name: str) -> str:
        return name.removesuffix(".qcow2").removesuffix(".img")

    exact = [image for image in images if image.name == asked]
    revisions = [image for image in images if image.name.partition("@")[0] == asked and "@" in image.name]
    revisions.sort(key=lambda image: int(image.name.partition("@")[2]))
    files = [image for image in images if stem(image.name) == stem(asked)]
    return next(iter([*exact, *revisions[::-1], *files]), None)


def _agree(image: ImageFacts, values: dict[str, Value | None], origins: dict[str, str]) -> t.Iterator[KeyFault]:
    """The image's own word against the request's; a site default gives way without a word."""
    for key, fact in (("distro", image.distro), ("arch", image.arch)):
        if not fact:
            continue
        said = values[key]
        agrees = said == fact or (key == "distro" and said == _FAMILY.get(fact))
        if said is not None and not agrees and origins[key] != SITE_DEFAULT:
            yield KeyFault(key, shown(said), f"the image {image.name} is {fact}", origins[key])
        elif said != fact:
            values[key], origins[key] = fact, _FROM_RECORD
            if key in _NOT_YET and _NOT_YET[key](fact):
                yield KeyFault(key, shown(fact), NOT_AVAILABLE_YET, _FROM_RECORD)


@dataclasses.dataclass(frozen=True)
class Demand:
    """What a job needs on each of its nodes.

    Attributes:
        cores: slots (`ppn`).
        mem_mib: memory in MiB.
        cores_sum: how `cores` comes about, for people.
        mem_sum: how `mem_mib` comes about, for people.
    """

    cores: int
    mem_mib: int
    cores_sum: str
    mem_sum: str


@dataclasses.dataclass(frozen=True)
class NodeSize:
    """A node, as the batch server or libvirt tells its size; 0: not told."""

    name: str
    cores: int
    mem_mib: int = 0


def demand(resolved: Resolved, policy: Policy) -> Demand:
    """The sum over one node: its guests, the host's share, the cores for virtual I/O.

    Args:
        resolved: the request.
        policy: holds the host's share.

    Returns:
        Cores and MiB of memory, and how they come about.
    """
    guests, vcpus, ram = (resolved.figure(key) for key in ("vms_per_node", "vcpus", "ram"))
    host_cores, host_mib = policy.host_os_core_count, policy.host_os_ram_mb
    iocm = resolved.figure("iocm_min_cores") if resolved.values["iocm"] is True else 0
    times = f"{guests} x " if guests > 1 else ""
    cores_sum = f"{times}{_count(vcpus, 'vcpu')} + {_count(host_cores, 'core')} for the host"
    if iocm:
        cores_sum += f" + {_count(iocm, 'core')} for virtual I/O"
    mem_sum = f"{times}{size_text(ram)} of ram + {size_text(host_mib)} for the host"
    return Demand(guests * vcpus + host_cores + iocm, guests * ram + host_mib, cores_sum, mem_sum)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def too_big(need: Demand, sizes: t.Sequence[NodeSize]) -> tuple[KeyFault, ...]:
    """What no node of the site can give, with the sum; empty when some node can, or when nothing is known of any.

    Args:
        need: what is needed on each node.
        sizes: of all nodes.

    Returns:
        One objection for `ppn`, one for `mem`.
    """
    if not sizes or any(size.cores >= need.cores and _mem_fits(need, size) for size in sizes):
        return ()
    most_cores = max(size.cores for size in sizes)
    most_mem = max(size.mem_mib for size in sizes)
    faults = []
    if most_cores < need.cores:
        message = f"{need.cores_sum}: more than any node of this site has ({most_cores})"
        faults.append(KeyFault("ppn", str(need.cores), message))
    if not any(_mem_fits(need, size) for size in sizes):
        message = f"{need.mem_sum}: more than any node of this site has ({size_text(most_mem)})"
        faults.append(KeyFault("mem", size_text(need.mem_mib), message))
    if not faults:
        message = f"{need.cores_sum}, with {need.mem_sum}: no node of this site has both"
        faults.append(KeyFault("ppn", str(need.cores), message))
    return tuple(faults)


def _mem_fits(need: Demand, size: NodeSize) -> bool:
    return not size.mem_mib or size.mem_mib >= need.mem_mib
