# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tiny guest: the distribution's kernel, busybox, dropbear and bash in one initramfs that reads a NoCloud seed.

It runs the same programs of the seed as every other guest; only what starts them is its own (`rc.sh`).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import pathlib
import re
import tempfile
import typing as t

from ..system.state import LabError
from . import boot_disk, kernel, osv
from .kernel import run

HERE = pathlib.Path(__file__).parent
OSV = "tiny-osv"
"""No OSv, but what acts as one (`osv.py`)."""
KERNELS = {
    "tiny": "linux-image-cloud", "tiny-9p": "linux-image", "tiny-bios": "linux-image-cloud", OSV: "linux-image-cloud",
    "tiny-rdma": "linux-image",
}  # fmt: skip
"""The guests, and the distribution's kernel of each: that for clouds boots sooner, and has neither 9p nor rxe."""
VERBS = "tiny-rdma"
"""The guest with verbs: of a kernel that has rxe, with the distribution's programs that try them (rdma-core)."""
VERBS_PACKAGES = ("ibverbs-utils", "ibverbs-providers")
VERBS_FILES = ("usr/bin/ibv_*", "usr/lib/*/libibverbs/librxe-*.so", "etc/libibverbs.d/rxe.driver")
RDMA_TOOL = pathlib.Path("/usr/bin/rdma")
RDMA_MODULES = ("crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm")
BY_ITSELF = "tiny-bios"
"""The guest whose disk is all that it boots from, as an image of a user's must be."""
BUSYBOX = pathlib.Path("/bin/busybox")
COMPILER = pathlib.Path("/usr/bin/cc")
"""Of what takes the first order of a warm start in a guest; without it guests boot."""
COMPILED = ("warm", "sequence")
"""Programs of the guest in C, in `usr/lib/vtorque-image`: the order's, and one that tests run."""
PROGRAMS = (
    pathlib.Path("/usr/sbin/dropbear"),
    pathlib.Path("/usr/bin/dropbearconvert"),
    pathlib.Path("/usr/bin/dbclient"),
    pathlib.Path("/bin/bash"),
)
MODULES = ("virtio_pci", "virtio_mmio", "virtio_blk", "virtio_net", "virtio_rng", "virtio_console", "isofs")
SHARING = {"virtiofs": ("virtiofs",), "nfs": ("nfsv4",), "9p": ("9pnet_virtio", "9p"), "disk": ("ext4",)}
"""What is loaded only in guests that mount something of this kind; `disk` is one of the user's own."""
CMDLINE = "console=ttyS0 quiet cryptomgr.notests no_timer_check"
"""The kernel would try each of its ciphers first, a seventh of its boot on an emulated processor.  And it would panic
where its timer is late for a tenth of a second, as on a machine with more to do than processors."""
DESCRIPTIONS = {OSV: "no OSv, but a Linux that speaks as much of its API as a job needs, for tests"}
DIRECTORIES = ("dev", "etc/ssh", "home", "lib/modules", "mnt", "opt", "proc", "root", "run", "sys", "usr/bin",
               "usr/lib/vtorque-image", "var/log", "var/run", "var/spool")  # fmt: skip
LINKS = {"bin": "usr/bin", "sbin": "usr/bin", "usr/sbin": "bin", "init": "usr/bin/busybox"}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/shadow": "root:*:::::::\n",
    "etc/shells": "/bin/sh\n/bin/bash\n",
    "etc/profile": "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin\nexport PATH\n",
    "etc/os-release": 'ID=vtorque-tiny\nPRETTY_NAME="vTorque tiny guest"\n',
    # busybox is init: it reaps what is orphaned; no getty, nobody logs in here
    "etc/inittab": "::sysinit:/etc/rc\n",
}


def make(pool: pathlib.Path, cache: pathlib.Path, name: str = "tiny") -> str:
    """Put a tiny guest into the pool, as a new revision, unless the newest one was made of the same things.

    Args:
        pool: the image pool.
        cache: where the kernel's package stays.
        name: of `KERNELS`.

    Returns:
        What was done, for a person.

    Raises:
        LabError: something is missing on this machine, or cannot be fetched.
    """
    for program in (BUSYBOX, *PROGRAMS):
        if not program.exists():
            raise LabError(f"{program} is not installed (lab/prepare.sh)")
    package = kernel.newest(KERNELS[name])
    further = [kernel.named(one) for one in VERBS_PACKAGES] if name == VERBS else []
    inputs = _digest([package, *further])
    newest = newest_record(pool, name)
    if newest and newest.get("inputs") == inputs:
        return f"{name}@{newest['revision']} in {pool} is current"
    file = kernel.fetch(package, cache)
    verbs = [kernel.fetch(one, cache) for one in further]
    with tempfile.TemporaryDirectory() as place:
        return f"{_build(name, file, pathlib.Path(place), pool, inputs, cache, verbs)} is in {pool}"


def newest_record(pool: pathlib.Path, name: str) -> dict[str, t.Any] | None:
    """The record of an image's highest revision; None when the pool has no such image."""
    found = [(int(m[1]), path) for path in pool.glob(f"{name}@*") if (m := re.fullmatch(r".*@([0-9]+)", path.name))]
    if not found:
        return None
    return t.cast("dict[str, t.Any]", json.loads((max(found)[1] / "record.json").read_text(encoding="utf-8")))


def _digest(packages: t.Sequence[kernel.Package]) -> str:
    total = hashlib.sha256("".join(package.sha256 for package in packages).encode())
    own = [path for form in ("*.py", "*.sh", "*.c") for path in sorted(HERE.glob(form))]
    for file in (BUSYBOX, *PROGRAMS, *_libraries(PROGRAMS), *own, osv.LAUNCHER):
        total.update(hashlib.sha256(file.read_bytes()).digest())
    total.update(b"compiled" if COMPILER.exists() else b"")
    return total.hexdigest()


def _libraries(programs: t.Sequence[pathlib.Path]) -> list[pathlib.Path]:
    """What the dynamic loader would load for the programs, and the loader itself."""
    report = run("/usr/bin/ldd", *map(str, programs)).decode()
    return [pathlib.Path(path) for path in sorted(set(re.findall(r"(?:=> |^\s)(/\S+) \(", report, re.MULTILINE)))]


def _build(
    name: str,
    package: pathlib.Path,
    place: pathlib.Path,
    pool: pathlib.Path,
    inputs: str,
    cache: pathlib.Path,
    verbs: t.Sequence[pathlib.Path],
) -> str:
    vmlinuz = kernel.unpack(package, place / "package")
    if name == OSV:
        osv.compile_all(place / "compiled")
        _bare_tree(place / "root", [*osv.parts(place / "compiled"), (HERE / "rc_osv.sh", "etc/rc")])
        _modules(place / "root", "order", kernel.modules(place / "package", MODULES))
    else:
        shares = [kind for kind in SHARING if kind != "9p" or name == "tiny-9p"]
        _tree(place, shares, _verbs(verbs, place / "verbs"))
        if verbs:
            _more_modules(place / "root", place / "package", "rdma", RDMA_MODULES)
    names = b"\0".join(str(path.relative_to(place / "root")).encode() for path in _sorted(place / "root"))
    # not compressed: unpacking costs an emulated processor more than reading the file
    archive = run("/usr/bin/cpio", "-o", "-0", "-H", "newc", "-R", "0:0", "--quiet", cwd=place / "root", stdin=names)
    (place / "initrd").write_bytes(archive)
    boot = {"kernel": vmlinuz, "initrd": place / "initrd", "cmdline": CMDLINE}
    if name == BY_ITSELF:
        boot_disk.make(place / "disk.raw", vmlinuz, place / "initrd", CMDLINE, cache)
        run("/usr/bin/qemu-img", "convert", "-O", "qcow2", str(place / "disk.raw"), str(place / "disk.qcow2"))
        boot = {}
    else:
        # nothing is on it: every guest has a disk of its own all the same
        run("/usr/bin/qemu-img", "create", "-q", "-f", "qcow2", str(place / "disk.qcow2"), "64M")
    pool.mkdir(mode=0o755, parents=True, exist_ok=True)
    wanted = {
        "name": name, "disk": place / "disk.qcow2", "distro": "osv" if name == OSV else "debian", "inputs": inputs,
        **boot, "made": "lab.guests", "rdma": "yes" if verbs else None, "warm": name != OSV and COMPILER.exists(),
        "description": DESCRIPTIONS.get(name, "busybox and dropbear: boots in seconds, for tests"),
    }  # fmt: skip
    try:
        image = _collection("publish").publish(_collection("revision").RevisionSpec(**wanted), pool)
    except Exception as error:
        raise LabError(f"{name} cannot be published: {error}") from error
    return str(image.name)


def _collection(module: str) -> t.Any:
    # by name: it is in the environment, and not where these sources are checked
    return importlib.import_module(f"ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool.{module}")


def _sorted(root: pathlib.Path) -> list[pathlib.Path]:
    """Directories before what is in them, as the kernel's unpacker needs it."""
    return sorted(root.rglob("*"))


def _verbs(packages: t.Sequence[pathlib.Path], tree: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
    """Return what of the packages a guest has, and where, and the program that makes the device."""
    for package in packages:
        run("/usr/bin/dpkg-deb", "-x", str(package), str(tree))
    found = [path for form in VERBS_FILES for path in sorted(tree.glob(form))] if packages else []
    tool = [(RDMA_TOOL, "usr/bin/rdma")] if packages else []
    return [*((path, str(path.relative_to(tree))) for path in found), *tool]


def _tree(place: pathlib.Path, shares: t.Sequence[str], more: t.Sequence[tuple[pathlib.Path, str]]) -> None:
    root, package = place / "root", place / "package"
    own = {"rc.sh": "etc/rc", "ssh.sh": "usr/bin/ssh"}
    programs = [(program, f"usr/bin/{program.name}") for program in PROGRAMS]
    for name in COMPILED if COMPILER.exists() else ():
        run(str(COMPILER), "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(place / name), str(HERE / f"{name}.c"))
        programs.append((place / name, f"usr/lib/vtorque-image/{name}"))
    _bare_tree(root, [*programs, *((HERE / name, path) for name, path in own.items()), *more])
    _modules(root, "order", kernel.modules(package, MODULES))
    for kind in shares:
        _more_modules(root, package, kind, SHARING[kind])


def _more_modules(root: pathlib.Path, package: pathlib.Path, kind: str, names: t.Sequence[str]) -> None:
    """Add modules that are loaded only in guests that need this."""
    order = (root / "lib/modules/order").read_text(encoding="ascii").split()
    further = kernel.modules(package, names).items()
    _modules(root, f"order-{kind}", {name: content for name, content in further if name not in order})


def _bare_tree(root: pathlib.Path, programs: t.Sequence[tuple[pathlib.Path, str]]) -> None:
    """What every guest has, its programs with the libraries that they need, and the applets of busybox."""
    for name in DIRECTORIES:
        (root / name).mkdir(parents=True)
    for name in ("tmp", "var/tmp"):
        (root / name).mkdir()
        (root / name).chmod(0o1777)
    for name, target in LINKS.items():
        (root / name).symlink_to(target)
    for name, text in FILES.items():
        (root / name).write_text(text, encoding="ascii")
    (root / "etc/shadow").chmod(0o600)
    for program, path in ((BUSYBOX, "usr/bin/busybox"), *programs):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        _program(program.read_bytes(), root / path)
    for applet in run(str(BUSYBOX), "--list").decode().split():
        if not (root / "usr/bin" / applet).exists():
            (root / "usr/bin" / applet).symlink_to("busybox")
    for library in _libraries([program for program, _path in programs if program.read_bytes()[:4] == b"\x7fELF"]):
        (root / library.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        _program(library.read_bytes(), root / library.relative_to("/"))
    _program((HERE / "udhcpc.sh").read_bytes(), root / "etc/udhcpc")


def _modules(root: pathlib.Path, order: str, contents: t.Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        (root / "lib/modules" / name).write_bytes(content)
    (root / "lib/modules" / order).write_text("".join(f"{name}\n" for name in contents), encoding="ascii")


def _program(content: bytes, path: pathlib.Path) -> None:
    path.write_bytes(content)
    path.chmod(0o755)
