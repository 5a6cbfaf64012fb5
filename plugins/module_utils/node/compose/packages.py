# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages, and which of them an image needs: `require`, followed until nothing is missing."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import difflib
import pathlib
import typing as t

from ...errors import UserFault
from .archive import SUFFIX, read_archive
from .directory import read_directory, read_small_file
from .metadata import Description, Requirement, RunConfig, parse_description, parse_run, version_key
from .tree import MAX_ENTRIES, Tree

MAX_PACKAGES = 256
_DESCRIPTION, _RUN = "meta/package.yaml", "meta/run.yaml"


@dataclasses.dataclass(frozen=True, slots=True)
class Package:
    """A package that was read.

    Attributes:
        description: what it says of itself.
        configs: how its program is run; (): it says nothing of that.
        default_config: the set that counts where none is chosen; "".
        tree: its files.
        small_files: what it says of itself, as it stands there.
        origin: where it was read.
    """

    description: Description
    configs: tuple[RunConfig, ...]
    default_config: str
    tree: Tree
    small_files: t.Mapping[str, bytes]
    origin: str

    def __str__(self) -> str:
        return f"{self.description.name} {self.description.version}".rstrip()


def read_package(path: pathlib.Path, max_bytes: int) -> Package:
    """Read a package: a directory, or an archive of capstan.

    Args:
        path: of it.
        max_bytes: of its files, unpacked.

    Raises:
        UserFault: it is none, or holds what no image can have; says what.
    """
    name = path.name or str(path)
    tree = Tree(max_bytes)
    if path.is_dir():
        small = {place: read_small_file(path, place) for place in (_DESCRIPTION, _RUN)}
        read_directory(path, name, tree)
    elif path.suffix == SUFFIX:
        archive = read_archive(path, name, max_bytes, MAX_ENTRIES)
        small = {place: archive.small_files.get(place) for place in (_DESCRIPTION, _RUN)}
        if small[_DESCRIPTION] is None:
            # capstan's repositories have it beside the archive
            small[_DESCRIPTION] = _read_beside(path.with_suffix(".yaml"))
        archive.add_to(tree)
    else:
        raise UserFault(f"{path}", "is no package", f"a directory with {_DESCRIPTION}, or an archive {SUFFIX}")
    return build_package(small, tree, f"{path}")


def _read_beside(path: pathlib.Path) -> bytes | None:
    with contextlib.suppress(OSError):
        return read_small_file(path.parent, path.name)
    return None


def build_package(small_files: t.Mapping[str, bytes | None], tree: Tree, origin: str) -> Package:
    """Return the package of these files.

    Args:
        small_files: what lies in `meta/`, by its place.
        tree: all others.
        origin: where they are, for messages.

    Raises:
        UserFault: its description is missing or wrong.
    """
    content = small_files.get(_DESCRIPTION)
    if content is None:
        raise UserFault(origin, f"has no {_DESCRIPTION}", "capstan package init writes one")
    run = small_files.get(_RUN)
    configs, default = parse_run(run, origin) if run is not None else ((), "")
    there = {place: content for place, content in small_files.items() if content is not None}
    return Package(parse_description(content, origin), configs, default, tree, there, origin)


def resolve(wanted: t.Sequence[Package], known: t.Sequence[Package]) -> list[Package]:
    """Find all packages that some need.

    Of several versions the newest is taken that everything admits; no other choice of another package is tried for it.

    Args:
        wanted: those that were asked for; they count before others of their names.
        known: all that there are besides.

    Returns:
        Each once, before whoever requires it.

    Raises:
        UserFault: one is missing, is wanted in versions that exclude each other, or requires itself on a way.
    """
    candidates: dict[str, list[Package]] = collections.defaultdict(list)
    given = {package.description.name for package in wanted}
    if len(given) != len(wanted):
        raise UserFault("--package", "names two packages of the same name", ", ".join(map(str, wanted)))
    for package in (*wanted, *(one for one in known if one.description.name not in given)):
        candidates[package.description.name].append(package)
    demands: dict[str, dict[str, Requirement]] = {}
    # a choice brings requirements of its own: until they choose what was chosen
    for _round in range(MAX_PACKAGES):
        found: dict[str, Package] = {}
        new: dict[str, dict[str, Requirement]] = collections.defaultdict(dict)
        for package in wanted:
            _visit(package, candidates, demands, new, found, ())
        # what has once been demanded counts on, so that this ends
        both = {name: {**demands.get(name, {}), **new.get(name, {})} for name in {**demands, **new}}
        if both == demands:
            return list(found.values())
        demands = both
    raise UserFault("require", "its versions agree in no order", "name exact versions: NAME == VERSION")


def _visit(
    package: Package,
    candidates: t.Mapping[str, list[Package]],
    demands: t.Mapping[str, t.Mapping[str, Requirement]],
    new: dict[str, dict[str, Requirement]],
    found: dict[str, Package],
    way: tuple[str, ...],
) -> None:
    name = package.description.name
    if name in way:
        circle = " -> ".join((*way[way.index(name) :], name))
        raise UserFault(f"package {name}", f"requires itself: {circle}", "take one require out")
    if name in found:
        return
    if len(way) >= MAX_PACKAGES or len(found) >= MAX_PACKAGES:
        raise UserFault(f"package {name}", f"an image has at most {MAX_PACKAGES} packages")
    for requirement in package.description.require:
        new[requirement.name][f"{requirement} ({name})"] = requirement
        chosen = _choose(requirement, candidates, {**demands.get(requirement.name, {}), **new[requirement.name]})
        _visit(chosen, candidates, demands, new, found, (*way, name))
    found[name] = package


def _choose(
    requirement: Requirement, candidates: t.Mapping[str, list[Package]], demands: t.Mapping[str, Requirement]
) -> Package:
    name = requirement.name
    there = candidates.get(name)
    if not there:
        near = difflib.get_close_matches(name, candidates, n=1)
        hint = f"did you mean {near[0]}?" if near else "give it by --package, or put it into the base (packages/)"
        raise UserFault(f"package {name}", f"is required by {requirement.wanted_by}, and is not there", hint)
    good = [one for one in there if all(demand.admits(one.description.version) for demand in demands.values())]
    if not good:
        versions = ", ".join(sorted({one.description.version or "of no version" for one in there}, key=version_key))
        wishes = "; ".join(f"{one.wanted_by} requires {one}" for one in demands.values())
        raise UserFault(f"package {name}", f"no version is good for all: {wishes}; there is {versions}")
    return max(good, key=lambda one: version_key(one.description.version))
