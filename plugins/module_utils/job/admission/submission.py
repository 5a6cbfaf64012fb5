# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what the user typed and wrote into the script to what qsub gets, or everything that speaks against it."""

from __future__ import annotations

import dataclasses
import os
import re
import types
import typing as t

from ...errors import UserFault
from ...frozen import frozen
from ..config.parameters import DEFAULT_OF, SITE_FILES, Policy
from ..request import attached_file
from ..request.keys import ADDITIONS, DISK, FILES, IMAGE, SCRIPTS
from ..request.pbs_directives import Script
from ..request.qsub_arguments import VM, Arguments, NodeChunk
from ..request.request import MARKER, PREFIX, Request, RequestErrors, is_path, parse
from ..request.value_types import BadValue, KeyFault, format_value
from . import metadata, mixed, osv, start_directory
from .asked import COMMAND_LINE, Asked
from .node_request import count_hosts, object_to_sizes, raise_sizes, read_nodes_asked
from .resolve import NOT_AVAILABLE_YET, SITE_DEFAULT, Offers, Resolved, resolve
from .resources import NodeSize, demand, too_big

OUR_WORD = re.compile(rf"""(^|[\s,;="']){re.escape(PREFIX)}""")
"""Where an attribute begins, or a part of one; not in the name of a host (`stageout=/o@myvtorque:/p`)."""


@frozen
class Site:
    """What there is at the site; the caller has looked, or knows how to.

    Attributes:
        offers: images and architectures to choose from.
        broken: images that are there and cannot be used, by name, with the reason.
        sizes: asks the batch server for the nodes' sizes.
        disk: looks at a disk of the user's; raises `UserFault`.
        image: looks at an image of the user's, and says by a digest which it is (`user_image.py`); raises `UserFault`.
        look: reads a file of the user's, and says whether it is to be a script: its absolute path and its content, or
            `BadValue`.
    """

    offers: Offers
    broken: t.Mapping[str, str]
    sizes: t.Callable[[], t.Sequence[NodeSize]]
    disk: t.Callable[[str], None] = lambda _path: None
    image: t.Callable[[str], str] = lambda _path: "0" * 64
    look: t.Callable[[str, bool], tuple[str, bytes]] = lambda word, runs: attached_file.look(
        word,
        os.getcwd(),  # noqa: PTH109 - as the user's shell names it
        runs=runs,
    )


@frozen
class Submission:
    """What qsub gets.

    Attributes:
        arguments: qsub's, the script's path still the user's own.
        resolved: the request with everything decided, for people; root decides afresh when the job starts.
        notices: what was raised, and why, one line each.
        script: what qsub must read in place of the user's script, None where that can be read as it is.
        hosts: how many hosts the job asks for.
        added: what the user adds to each guest, in a few words; "": nothing.
    """

    arguments: Arguments
    resolved: Resolved
    notices: tuple[str, ...]
    script: bytes | None
    hosts: int = 1
    added: str = ""

    @property
    def vm_hosts(self) -> int:
        """How many of them have guests."""
        return mixed.vm_hosts(self.resolved, self.hosts)


def asks_for_vm(arguments: Arguments, script: Script) -> bool:
    """Does the user speak of a VM anywhere?  (Without a word about one the job runs in the site's default.)

    Args:
        arguments: of vsub.
        script: with its directives.

    Returns:
        True for a `-vm` on the command line or in the script.
    """
    return bool(arguments.all(VM) or script.vm_texts)


def prepare(
    arguments: Arguments,
    script: Script,
    policy: Policy,
    site: Site,
    home: str,
    log: t.Mapping[str, bool] = types.MappingProxyType({}),
) -> Submission:
    """Decide what qsub gets.

    Args:
        arguments: of vsub, without its own `--words`.
        script: the job script, empty for an interactive job without one.
        policy: the site's configuration.
        site: what there is.
        home: the user's home directory.
        log: what the user wishes of the job's log (`Request.log`).

    Returns:
        qsub's arguments, what was raised, and the script that qsub must read, if not the user's.

    Raises:
        RequestErrors: with everything that speaks against the job.
    """
    asked = Asked(arguments, script)
    request, faults = _request(asked)
    request, added, wrong = complete(request, policy, site, home)
    faults += wrong
    faults += _refused(asked, policy, home)
    nodes = read_nodes_asked(asked, faults)
    known = tuple(site.sizes())
    faults += object_to_sizes(asked, nodes, known)
    spoilt = {fault.key for fault in faults}
    try:
        resolved = resolve(request, policy, site.offers)
        need = demand(resolved, policy)
        faults += [fault for fault in too_big(need, known) if fault.key not in spoilt]
        if mixed.KEY not in spoilt and (why := mixed.objection(resolved, count_hosts(nodes))):
            faults.append(KeyFault(mixed.KEY, resolved.word(mixed.KEY), why, resolved.origins[mixed.KEY]))
        faults += [fault for fault in _refused_in_osv(asked, resolved, nodes) if fault.key not in spoilt]
    except RequestErrors as errors:
        faults += [_explained(fault, site) for fault in errors.faults if fault.key not in spoilt]
    if faults:
        raise RequestErrors(faults, request)
    asked, notices = raise_sizes(asked, nodes, need, policy)
    neutral = script.neutral if script.vm_texts else None
    ours = _ours(asked, request.with_log(log), policy)
    notices = (*notices, *_working_directory(asked))
    return Submission(ours, resolved, notices, neutral, count_hosts(nodes), added)


def complete(request: Request, policy: Policy, site: Site, home: str) -> tuple[Request, str, list[KeyFault]]:
    """Add to a request what the site has for who does not say, and what the user's own files hold now.

    Args:
        request: as it was typed.
        policy: the site's configuration.
        site: looks at the user's files.
        home: the user's home directory.

    Returns:
        The request; what it adds to guests, in words; what is wrong with it.
    """
    request = _with_files_of_the_site(request, policy, home)
    request, contents, unread = _with_digests(request, site)
    added, wrong = _additions(request, contents, policy, home)
    request, bad_disk = _with_disk(request, site)
    request, bad_image = _with_image(request, policy, site)
    return request, added, [*unread, *wrong, *bad_disk, *bad_image, *_too_long(request)]


def _explained(fault: KeyFault, site: Site) -> KeyFault:
    """An image that is there and broken is not said to be missing."""
    names = (fault.value, f"{fault.value}.qcow2", f"{fault.value}.img") if fault.key == "img" else ()
    return next((dataclasses.replace(fault, message=site.broken[n]) for n in names if n in site.broken), fault)


def _request(asked: Asked) -> tuple[Request, list[KeyFault]]:
    """What the user asks for, as far as it can be read, and what is wrong with the rest."""
    merged = Request()
    faults: list[KeyFault] = []
    own = [(option.value or "", COMMAND_LINE) for option in asked.arguments.all(VM)]
    for texts in (asked.script.vm_texts, own):
        try:
            part = parse(texts)
        except RequestErrors as errors:
            part = errors.good
            faults += errors.faults
        merged = part.merged_over(merged)
    if (shell := asked.last("S")) is not None:
        try:
            merged = merged.with_shell(shell[0])
        except UserFault as fault:
            faults.append(KeyFault("-S", format_value(shell[0]), f"{fault.why}; {fault.hint}", shell[1]))
    return merged, faults


def _with_digests(request: Request, site: Site) -> tuple[Request, dict[str, bytes], list[KeyFault]]:
    """The request with the files that go to the guest as they are now, what they hold, and what is wrong with them."""
    values, contents = dict(request.values), {}
    faults = []
    for key in FILES:
        if key in values:
            try:
                values[key], contents[key] = site.look(str(values[key]), key in SCRIPTS)
            except BadValue as error:
                faults.append(KeyFault(key, format_value(values[key]), str(error), request.origins[key]))
    digests = {key: attached_file.digest(content) for key, content in contents.items()}
    return dataclasses.replace(request, values=values, digests=digests), contents, faults


def _additions(
    request: Request, contents: t.Mapping[str, bytes], policy: Policy, home: str
) -> tuple[str, list[KeyFault]]:
    """What the user adds to the guests, in words, and what is wrong with it, a line of the file each."""
    content = contents.get(ADDITIONS)
    if content is None:
        return "", []
    path = str(request.values[ADDITIONS])
    try:
        return metadata.describe(metadata.read(content, path, policy, home)), []
    except metadata.AdditionsErrors as errors:
        name = format_value(os.path.basename(path))  # noqa: PTH119
        places = [f"{name}:{fault.line}" if fault.line else name for fault in errors.faults]
        return "", [KeyFault(place, "", one.message) for place, one in zip(places, errors.faults, strict=True)]


def _with_disk(request: Request, site: Site) -> tuple[Request, list[KeyFault]]:
    """The request with the full path of the user's own disk, and what is wrong with that."""
    if DISK not in request.values:
        return request, []
    word = str(request.values[DISK])
    path = os.path.abspath(word)  # noqa: PTH100 - text in, text out
    request = dataclasses.replace(request, values={**request.values, DISK: path})
    try:
        site.disk(path)
    except UserFault as fault:
        return request, [_of_file(DISK, word, fault, request)]
    return request, []


def _with_image(request: Request, policy: Policy, site: Site) -> tuple[Request, list[KeyFault]]:
    """The request with what the user's own image is now, and what is wrong with that."""
    path = request.values.get(IMAGE)
    if not is_path(path) or not policy.allow_user_images:  # what it is does not matter then: `resolve` refuses it
        return request, []
    try:
        return dataclasses.replace(request, digests={**request.digests, IMAGE: site.image(str(path))}), []
    except UserFault as fault:
        return request, [_of_file(IMAGE, str(path), fault, request)]


def _of_file(key: str, word: str, fault: UserFault, request: Request) -> KeyFault:
    why = f"{fault.why}; {fault.hint}" if fault.hint else fault.why
    return KeyFault(key, format_value(word), why, request.origins[key])


def _with_files_of_the_site(request: Request, policy: Policy, home: str) -> Request:
    """The request with the files that the site has for who names none; those of a home only where they are."""
    values, origins = dict(request.values), dict(request.origins)
    files = [*SITE_FILES, *([IMAGE] if is_path(policy.img_default) else [])]
    for key in files:
        word = getattr(policy, DEFAULT_OF[key])
        if key in values or word is None:
            continue
        path = f"{home}/{word[2:]}" if word.startswith("~/") else word
        if path == word or os.path.lexists(path):
            values[key], origins[key] = path, SITE_DEFAULT
    return dataclasses.replace(request, values=values, origins=origins)


def _too_long(request: Request) -> t.Iterator[KeyFault]:
    try:
        request.encode()
    except UserFault as fault:
        yield KeyFault("-vm", "", f"{fault.what}: {fault.why}; {fault.hint}")


def _refused(asked: Asked, policy: Policy, home: str) -> t.Iterator[KeyFault]:
    """Options of qsub that no VM job can have, or not yet."""
    reasons = {
        "T": "a VM job has no job type: it would choose other hooks than those that start the guest",
        "L": f"with VMs {NOT_AVAILABLE_YET}: ask by -l nodes=1:ppn=N",
        "D": f"a root directory of the node is not there in the guest: {NOT_AVAILABLE_YET}",
    }
    for name, reason in reasons.items():
        if (found := asked.last(name)) is not None:
            yield KeyFault(f"-{name}", format_value(found[0]), reason, found[1])
    yield from _slots_anywhere(asked)
    yield from _start_directory(asked, policy, home)
    for value, where in asked.every("W"):
        if OUR_WORD.search(value):
            yield KeyFault("-W", format_value(value), f"{PREFIX} is what vsub itself puts there", where)
    if asked.arguments.all("x"):
        yield from _command(asked, policy, home)


def _slots_anywhere(asked: Asked) -> t.Iterator[KeyFault]:
    """Cores that are asked for without nodes: no VM job can have them (docs/adr/0017-procs-refused.md)."""
    taken = "is what qsub takes only without -l nodes, which every VM job has"
    reasons = {
        "procs": "slots on whichever nodes have some; the machines of a job need as many on each",
        **dict.fromkeys(("ncpus", "size", "mppwidth"), taken),
    }
    for name, reason in reasons.items():
        if (found := asked.resource(name)) is not None:
            count = found[0] if re.fullmatch("[1-9][0-9]{0,5}", found[0], re.ASCII) else "N"
            hint = f"ask by -l nodes=1:ppn={count}, or more nodes with fewer each"
            yield KeyFault(name, format_value(found[0]), f"{reason}: {hint}", found[1])


def _refused_in_osv(asked: Asked, resolved: Resolved, nodes: tuple[NodeChunk, ...]) -> t.Iterator[KeyFault]:
    """What a job cannot have whose guest is one process, where it is to be one."""
    if not osv.is_osv(resolved):
        return
    yield from osv.objections(resolved, count_hosts(nodes))
    interactive = bool(asked.arguments.all("I")) or asked.script.last("I") is not None
    yield from osv.refused_options(resolved, interactive=interactive, directory=asked.last("d"))
    if not interactive:
        yield from osv.script_objections(asked.script.data, asked.script.name)


def _command(asked: Asked, policy: Policy, home: str) -> t.Iterator[KeyFault]:
    """The command of `-I -x` is run by its path in the guest: a file of the home must be there."""
    operands = [asked.arguments.words[index] for index in asked.arguments.operands]
    path = os.path.abspath(operands[0]) if operands else ""  # noqa: PTH100
    if asked.script.vm_texts:
        yield KeyFault("-vm", "", "of a command of -x is said on the command line", asked.script.name)
    if path and start_directory.is_below(path, (home,)) and not start_directory.home_is_shared(policy):
        yield KeyFault("-x", format_value(operands[0]), "lies in your home, and the guest's is empty on this site")


def _start_directory(asked: Asked, policy: Policy, home: str) -> t.Iterator[KeyFault]:
    """Torque starts a job in PBS_O_INITDIR where that is set, which must exist in the guest."""
    places = [("-d", asked.last("d"))]
    for text, where in asked.every("v"):
        for item in text.split(","):
            name, equals, value = item.partition("=")
            if name.strip() == start_directory.VARIABLE and equals:
                places.append((start_directory.VARIABLE, (value, where)))
    for key, found in places:
        if found is not None:
            path = os.path.abspath(found[0])  # noqa: PTH100 - a relative one is taken from where qsub is called
            if why := start_directory.cut_off(path) or start_directory.objection(path, policy, home):
                yield KeyFault(key, format_value(found[0]), why, found[1])


def _working_directory(asked: Asked) -> t.Iterator[str]:
    """A word where PBS_O_WORKDIR will not be the directory that it should be."""
    found = asked.last("w")
    try:
        path = found[0] if found is not None else os.getcwd()  # noqa: PTH109
    except OSError:  # it is gone, which qsub tells
        return
    if (left := start_directory.as_listed(path)) != path:
        whole = format_value(path)
        yield f"PBS_O_WORKDIR will be {format_value(left)}: Torque keeps no more of {whole} in its list of variables"


def _ours(asked: Asked, request: Request, policy: Policy) -> Arguments:
    """The arguments of qsub: the user's, and what makes a VM job of it."""
    other = asked.resource("other")
    marks = other[0].split("+") if other and other[0] else []
    if MARKER not in marks:
        asked = asked.raised("other", "+".join([*marks, MARKER]))
    front = ["-S", f"{policy.prefix_nodes}/bin/vtorque-shell", "-W", f"x={request.encode()}"]
    if policy.pbs_exclusive_node_alloc and not asked.arguments.all("n"):
        front.append("-n")
    return asked.arguments.without(VM, "S").with_front(*front)
