# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr image compose`, and the bases that it composes on (`vmgr image add --osv-base`)."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import tempfile
import typing as t

from .....module_utils.errors import SiteFault, UserFault
from .....module_utils.guest_kinds import OSV, OSV_BASE
from .....module_utils.node.compose import base, composition, rofs
from .....module_utils.node.compose.archive import UNPACK_DIRECTORY
from .....module_utils.node.compose.metadata import VARIABLE
from .....module_utils.node.compose.packages import read_package
from .....module_utils.node.compose.tree import File, Tree
from .....module_utils.node.pool import images, publish, revision
from .....module_utils.text import format_disk_bytes, printable
from ....bridge.node_settings import Configuration
from ...output.json_output import print_json
from ...output.progress import copied
from . import image_facts

DEFAULT_BASE = "osv-base"
EPILOG = """\
A package is a directory as capstan has it, or an archive (.mpm) of one: the files as they are to lie in the image, and
meta/package.yaml with name, title and author; require: [libz, openmpi >= 4.1] names other packages.  They are looked
for among those of --package, then in the base.  meta/run.yaml (runtime: native) gives variables of the environment.

Everything is checked before anything is written: what is required and missing, or in a circle; libraries that a program
needs and the image lacks; links that lead out of the image; devices and setuid files; two packages with different files
of one name.  The image is read-only in the guest, but for /tmp.

No program of a package is run, and nothing is unpacked.  The image appears in the pool as the next revision of NAME, as
root, like that of vmgr image add.  With --output everybody can compose, into a file of their own; no job boots it.

exit status:
  0  it is in the pool, or was there already; or the file is written
  2  a package or the base cannot be in an image
  3  the pool cannot be written

examples:
  vmgr image compose solver --package ./solver
  vmgr image compose solver --package libfft.mpm --package ./solver --base osv-base@2 --set OMP_NUM_THREADS=4
  vmgr image compose solver --package ./solver --output solver.img --query cmdline
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb.

    Args:
        parser: of the verb.
    """
    parser.add_argument("name", metavar="NAME", help="the image, without a revision")
    parser.add_argument(
        "--package",
        metavar="DIR|FILE.mpm",
        action="append",
        required=True,
        help="what is in it; again for each further one, the program last",
    )
    parser.add_argument("--base", default=DEFAULT_BASE, metavar="NAME", help="a base of the pool (%(default)s)")
    parser.add_argument(
        "--config", dest="config_set", default="", metavar="SET", help="a set of meta/run.yaml (config_set_default)"
    )
    parser.add_argument(
        "--set", dest="variables", default=[], metavar="NAME=VALUE", action="append", help="a variable, of all its jobs"
    )
    parser.add_argument("--description", default="", metavar="TEXT", help="what people read about it (the title)")
    parser.add_argument("--output", metavar="FILE", help="write the disk there, and nothing into the pool")


def run(call: argparse.Namespace, configuration: Configuration) -> int:
    """Compose an image; see `image.run`.

    Raises:
        VTorqueError: it could not be composed, and why; the pool is as it was.
    """
    pool = configuration.settings.pool
    max_bytes = configuration.policy.image_max << 20
    images.believe_pool(pool)
    if call.output is None:
        if os.geteuid() != 0:
            raise UserFault(f"image {call.name}", "the pool is root's", "call it as root, or with --output FILE")
        revision.check_name(call.name, pool)
    variables = _read_variables(call.variables)
    packages = tuple(read_package(pathlib.Path(path), max_bytes) for path in call.package)
    stand = base.load_base(images.find(call.base, pool))
    written = composition.list_written_directories(configuration.settings.torque_home)
    choice = composition.Choice(packages, call.config_set, variables, written, max_bytes)
    found = composition.compose(choice, stand)
    if call.output is not None:
        return _write_output(call, found, stand)
    _refuse_useless(call.name, found, stand)
    with tempfile.TemporaryFile(dir=UNPACK_DIRECTORY) as stream:
        disk = _write_nameless(call, found.tree, stream, "composing")
        wanted = revision.RevisionSpec(
            name=call.name,
            disk=disk,
            format="raw",
            distro=OSV.name,
            arch=stand.image.arch,
            description=call.description or packages[-1].description.title,
            kernel=stand.image.boot.kernel,
            initrd=stand.image.boot.initrd,
            cmdline=found.cmdline,
            made="vmgr image compose",
            source=printable(composition.describe_sources(found, stand))[:4096],
        )
        image, is_new = _publish(call, configuration, wanted)
    _report(call, found, stand, image, is_new)
    return 0


def _read_variables(options: t.Sequence[str]) -> dict[str, str]:
    variables = {}
    for option in options:
        found = VARIABLE.fullmatch(option)
        if found is None or not found[2]:
            raise UserFault(f"--set {printable(option[:80])}", "is no variable with a value", "--set NAME=VALUE")
        variables[found[1]] = found[2]
    return variables


def _refuse_useless(name: str, found: composition.Composition, stand: base.Base) -> None:
    """An image of the pool is for jobs."""
    if found.lacks:
        lacking = ", ".join(f"{path} ({module})" for path, module in found.lacks.items())
        raise UserFault(
            f"image {name}",
            f"no job could run in it: {stand.image.name} and the packages lack {lacking}",
            "build the base with these modules of OSv, or write a disk with --output",
        )


def _write_nameless(call: argparse.Namespace, tree: Tree, stream: t.IO[bytes], what: str) -> pathlib.Path:
    """Write a disk into a file without a name, of which nothing is left when this process is killed."""
    with copied(what, tree.bytes, wanted=not call.json) as advance:
        try:
            rofs.write_disk(tree, t.cast("t.BinaryIO", stream), advance)
            stream.flush()
        except OSError as error:
            raise SiteFault(f"a disk in {UNPACK_DIRECTORY}", error.strerror or str(error), "free some space") from error
    return pathlib.Path(f"/proc/self/fd/{stream.fileno()}")


def _write_output(call: argparse.Namespace, found: composition.Composition, stand: base.Base) -> int:
    path = pathlib.Path(call.output)
    try:
        with path.open("xb") as stream:
            try:
                with copied("composing", found.tree.bytes, wanted=not call.json) as advance:
                    size = rofs.write_disk(found.tree, stream, advance)
            except BaseException:
                path.unlink()
                raise
    except OSError as error:
        hint = "another name, or remove it first" if isinstance(error, FileExistsError) else ""
        raise UserFault(f"--output {path}", error.strerror or str(error), hint) from error
    if call.json:
        print_json(call, {"image": "", "output": f"{path}", "disk_bytes": size, **_facts(found, stand)})
    else:
        print(f"{path} is a disk of {format_disk_bytes(size)} for the kernel {stand.image.boot.kernel}")
        print(f"command line: {found.cmdline}")
    return 0


def _publish(
    call: argparse.Namespace, configuration: Configuration, wanted: revision.RevisionSpec
) -> tuple[images.Image, bool]:
    pool = configuration.settings.pool
    before = revision.newest(wanted.name, pool)
    if before is not None and revision.same(wanted, before):
        return before, False
    with copied("adding", revision.bytes_to_read(wanted), wanted=not call.json) as advance:
        return publish.publish(wanted, pool, advance=advance, max_bytes=configuration.policy.image_max << 20), True


def _report(
    call: argparse.Namespace, found: composition.Composition, stand: base.Base, image: images.Image, is_new: bool
) -> None:
    if call.json:
        print_json(call, {"image": image.name, "new": is_new, **image_facts.facts(image, {}), **_facts(found, stand)})
        return
    state = "is in the pool" if is_new else "is in the pool already, and the same"
    files = sum(1 for entry in found.tree.entries.values() if isinstance(entry, File))
    print(
        f"{image.name} {state} ({', '.join(map(str, found.packages))} on {stand.image.name}: {files} files, a disk of "
        f"{format_disk_bytes(image.virtual_bytes)})"
    )
    if not found.launcher:
        print("without /usr/lib/vtorque-launcher.so: OSv's kernel reports the exit status, and prints more of its own")


def _facts(found: composition.Composition, stand: base.Base) -> dict[str, t.Any]:
    return {
        "base": stand.image.name,
        "packages": [
            {"name": one.description.name, "version": one.description.version, "origin": one.origin}
            for one in found.packages
        ],
        "entries": len(found.tree.entries),
        "file_bytes": found.tree.bytes,
        "cmdline": found.cmdline,
        "command": found.command,
        "launcher": found.launcher,
        "lacks": sorted(found.lacks),
    }


@contextlib.contextmanager
def write_base(call: argparse.Namespace, configuration: Configuration) -> t.Iterator[dict[str, t.Any]]:
    """Write the disk of a base, for `vmgr image add --osv-base`.

    Args:
        call: the arguments of `vmgr image add`.
        configuration: of the site.

    Yields:
        What `revision.RevisionSpec` is to have of it; the disk is gone afterwards.

    Raises:
        UserFault: the directory holds what no base can have.
    """
    if call.file or call.boot or call.format or call.distro:
        others = "FILE, --boot, --format and --distro"
        raise UserFault(f"image {call.name}", f"{others} do not go with --osv-base", "the base is the directory")
    if os.geteuid() != 0:
        raise UserFault(f"image {call.name}", "the pool is root's", "call it as root")
    directory = pathlib.Path(call.osv_base)
    kernel = pathlib.Path(call.kernel) if call.kernel else directory / base.KERNEL
    arch = call.arch if call.kernel and call.arch else base.kernel_arch(kernel)
    tree = base.read_build(directory, configuration.policy.image_max << 20)
    with tempfile.TemporaryFile(dir=UNPACK_DIRECTORY) as stream:
        yield {
            "disk": _write_nameless(call, tree, stream, "reading"),
            "format": "raw",
            "distro": OSV_BASE,
            "arch": arch,
            "kernel": kernel,
            "cmdline": call.cmdline or base.CMDLINE,
            "source": printable(f"{directory.absolute()}"),
        }
