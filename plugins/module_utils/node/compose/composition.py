# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image of OSv out of packages and a base: which files it has, and with which command line its kernel boots.

Nothing is run for it, and nothing of a package is made a file of this host.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ...errors import UserFault
from ...guest_kinds import OSV_LAUNCHER
from ...text import printable
from ..pool.images import CMDLINE as MAX_CMDLINE
from .base import CMDLINE, Base
from .elf import check_programs
from .metadata import VARIABLE, RunConfig
from .packages import Package, resolve
from .tree import Directory, File, Tree, create_file

API = "/libhttpserver-api.so"
"""OSv's REST API, as its module has it; a job starts its program by it."""
FOR_JOBS = {
    API: "module httpserver-api",
    "/usr/mgmt/cloud-init.so": "module cloud-init",
    "/usr/bin/iso-read.so": "module libcdio",
    "/init/00-cmdline": "module cloud-init",
}
"""What must be in an image in which jobs run (`docs/admin/osv.md`), and where OSv has it."""
FSTAB = "etc/fstab"
_MADE = "vTorque"


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """What is to be composed.

    Attributes:
        packages: asked for; the last is the program.
        config: a set of its `run.yaml`; "": its default.
        variables: of the environment of everything in the image, besides those of the set.
        written: directories, absolute, that are in memory and can be written, besides `/tmp`.
        max_bytes: of all files together.
    """

    packages: tuple[Package, ...]
    config: str
    variables: t.Mapping[str, str]
    written: tuple[str, ...]
    max_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Composition:
    """An image that can be written.

    Attributes:
        tree: its files.
        packages: that are in it, each before whoever requires it.
        cmdline: of its kernel.
        command: what `run.yaml` says is run; "": nothing.
        lacks: what is missing for jobs, with its module; {}: nothing.
        launcher: whether it has the launcher of vTorque.
    """

    tree: Tree
    packages: tuple[Package, ...]
    cmdline: str
    command: str
    lacks: t.Mapping[str, str]
    launcher: bool


def compose(choice: Choice, base: Base) -> Composition:
    """Put an image together.

    Args:
        choice: what is wanted.
        base: what it stands on.

    Returns:
        The image, of which no file has been written.

    Raises:
        UserFault: packages are missing, contradict each other, or hold what no image can have.
    """
    packages = resolve(choice.packages, base.packages)
    tree = Tree(choice.max_bytes)
    tree.merge(base.root)
    tree.remove(FSTAB)
    for package in packages:
        tree.merge(package.tree)
    _add_mounts(tree, choice.written)
    names = {entry.package for package in packages for entry in package.tree.entries.values()}
    tree.check_links(names)
    check_programs(tree, base.image.arch, names)
    config = _choose_config(choice.packages[-1], choice.config)
    if config.command:
        _check_command(tree, config.command)
    lacks = {path: module for path, module in FOR_JOBS.items() if not _has_file(tree, path)}
    launcher = _has_file(tree, OSV_LAUNCHER)
    cmdline = _command_line(base, {**config.variables, **choice.variables}, launcher, API not in lacks, config.command)
    return Composition(tree, tuple(packages), cmdline, config.command, lacks, launcher)


def _add_mounts(tree: Tree, written: tuple[str, ...]) -> None:
    """Add OSv's table of mounts, and where they are: the image itself is read-only (fs/vfs/main.cc, pivot_rootfs)."""
    mounts = {"/dev": "devfs", "/proc": "procfs", "/sys": "sysfs", "/tmp": "ramfs"}  # noqa: S108 - the guest's
    mounts |= dict.fromkeys(written, "ramfs")
    for path in mounts:
        tree.add(path, Directory(_MADE))
    lines = [f"{'none':<12} {path:<10} {kind:<9} defaults 0 0\n" for path, kind in mounts.items()]
    present = tree.entries.get(FSTAB)
    if present is not None:
        raise UserFault(f"/{FSTAB} of {present.package}", "is written by the composition", "leave it out")
    tree.add(FSTAB, create_file("".join(lines).encode(), _MADE))


def _choose_config(package: Package, name: str) -> RunConfig:
    what = f"package {package.description.name}"
    if not package.configs:
        if name:
            raise UserFault(f"--config {printable(name)}", f"{what} has no meta/run.yaml")
        return RunConfig("", "", {})
    names = ", ".join(one.name for one in package.configs)
    chosen = name or package.default_config
    if not chosen:
        raise UserFault(what, f"has several sets in meta/run.yaml, and no config_set_default: {names}", "--config SET")
    found = next((one for one in package.configs if one.name == chosen), None)
    if found is None:
        raise UserFault(f"--config {printable(chosen)}", f"{what} has no such set", names)
    return found


def _check_command(tree: Tree, command: str) -> None:
    path = command.split()[0].strip('"')
    if not _has_file(tree, path):
        raise UserFault(f"the command {printable(command[:80])}", f"there is no {printable(path)} in the image")


def _has_file(tree: Tree, path: str) -> bool:
    try:
        found = tree.find(path)
    except RecursionError:
        return False
    return found is not None and isinstance(found[1], File)


def _command_line(base: Base, variables: t.Mapping[str, str], launcher: bool, api: bool, command: str) -> str:
    options = [base.image.boot.cmdline or CMDLINE]
    if not launcher:
        # only then the kernel reports what a program returned (core/app.cc, run_main)
        options.append("--verbose")
    options += [f"--env={name}={_escape(name, value)}" for name, value in sorted(variables.items())]
    line = " ".join((*options, API if api else command)).rstrip()
    if len(line) > MAX_CMDLINE:
        raise UserFault("the command line of the kernel", f"has {len(line)} characters; {MAX_CMDLINE} are possible")
    return line


def _escape(name: str, value: str) -> str:
    """As OSv's loader reads an option (core/commands.cc, loader_parse_cmdline): no quotes, a backslash for a blank."""
    if not VARIABLE.fullmatch(f"{name}={value}") or not value.isprintable() or not value.isascii():
        raise UserFault(
            f"variable {printable(name[:80])!a}", "a name of letters and digits, a value of printable ASCII"
        )
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def describe_sources(composition: Composition, base: Base) -> str:
    """Return of what an image is, for its record."""
    return f"{', '.join(map(str, composition.packages))}; on {base.image.name}"


def list_written_directories(torque_home: pathlib.Path) -> tuple[str, ...]:
    """Return where the seed of a job writes (`templates/osv/user-data.j2`).

    Args:
        torque_home: of the guests.
    """
    return (f"{torque_home}/aux",)
