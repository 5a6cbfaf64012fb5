# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr image compose` as the administrator and a user call it: a base, packages, and an image of the pool."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main

from tests.unit.plugins.module_utils.node.compose import osv_reader
from tests.unit.plugins.module_utils.node.compose.made_packages import archive, base, package, program, put

if t.TYPE_CHECKING:
    from tests.unit.conftest import ImagePool

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the pool is root's")
VmgrCall = t.Callable[..., t.Any]


@pytest.fixture
def call(image_pool: ImagePool, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> VmgrCall:
    """Calls `vmgr image`; what it printed, as JSON where that was asked for."""
    file = tmp_path / "vtorque.yml"
    file.write_text(json.dumps({"vm_img_dir": str(image_pool.path), "image_max": "64M"}))
    for path in (tmp_path, file):
        path.chmod(0o755)

    def run(*options: object) -> t.Any:
        assert main.run_subject(["image", *map(str, options)], file) == 0
        output = capsys.readouterr().out
        return json.loads(output) if "--json" in options else output.splitlines()

    return run


@pytest.fixture
def based(call: VmgrCall, tmp_path: pathlib.Path) -> pathlib.Path:
    """The directory of a base that is in the pool."""
    directory = base(tmp_path)
    package(directory / "packages", "libz", {"usr/lib/libz.so": program()}, version="1.3")
    archive(directory / "packages/libx.mpm", [("usr/lib/libx.so", program(["libz.so"]))], name="libx")
    assert call("add", "osv-base", "--osv-base", directory)[0].startswith("osv-base@1 is in the pool (osvbase, raw,")
    return directory


def disk_of(pool: ImagePool, name: str) -> dict[str, osv_reader.Content]:
    return osv_reader.read(pool.find(name).path.read_bytes())


def test_image_holds_the_base_the_required_and_the_package_and_boots_the_kernel(
    call: VmgrCall, based: pathlib.Path, image_pool: ImagePool, tmp_path: pathlib.Path
) -> None:
    solver = program(["libx.so", "libz.so", "libc.so.6"])
    run = {"runtime": "native", "config_set": {"only": {"bootcmd": "/usr/bin/solver -v", "env": {"MODE": "fast run"}}}}
    place = package(tmp_path, "solver", {"usr/bin/solver": solver, "data/empty": b"", "usr/bin/s": "solver"}, run,
                    require=["libx", "libz >= 1.2"])  # fmt: skip
    found = call("compose", "solver", "--package", place, "--set", "OMP=4", "--json")
    assert (found["image"], found["distro"], found["arch"], found["boot"]) == ("solver@1", "osv", "x86_64", "kernel")
    assert [one["name"] for one in found["packages"]] == ["libx", "libz", "solver"]
    assert found["source"] == "libx, libz 1.3, solver; on osv-base@1"
    files = disk_of(image_pool, "solver")
    assert files["/usr/bin/solver"] == solver
    assert files["/usr/bin/s"] == "solver"
    assert files["/data/empty"] == b""
    assert files["/usr/lib/libz.so"] == program()
    assert files["/usr/lib/libx.so"] == program(["libz.so"])
    assert files["/etc/mnttab"] == "/proc/mounts"
    assert not any(path.startswith("/meta") for path in files)
    mounts = [line.split()[1:3] for line in t.cast(bytes, files["/etc/fstab"]).decode().splitlines()]
    assert ["/tmp", "ramfs"] in mounts
    assert ["/var/spool/torque/aux", "ramfs"] in mounts, "where the seed writes"
    assert all(files[where] is None for where, _kind in mounts)
    image = image_pool.find("solver")
    assert image.boot.cmdline == r"--rootfs=rofs --env=MODE=fast\ run --env=OMP=4 /libhttpserver-api.so"
    assert image.boot.kernel is not None
    assert image.boot.kernel.read_bytes() == (based / "loader-stripped.elf").read_bytes()
    assert call("verify", "solver", "--json")[0]["state"] == "ok"


def test_same_packages_are_the_same_image_from_directory_and_archive(
    call: VmgrCall, based: pathlib.Path, image_pool: ImagePool, tmp_path: pathlib.Path
) -> None:
    files: dict[str, bytes | str] = {"usr/bin/hello": program(), "b": b"2", "a": b"1"}
    members = [(path, t.cast(bytes, content)) for path, content in files.items()]
    packed = archive(tmp_path / "hello.mpm", members)
    first = call("compose", "hello", "--package", package(tmp_path, files=files), "--json")
    again = call("compose", "hello", "--package", packed, "--json")
    assert [first["new"], again["new"], again["image"]] == [True, False, "hello@1"]
    put(tmp_path / "hello", {"c": b"3"})
    changed = call("compose", "hello", "--package", tmp_path / "hello", "--json")
    assert (changed["new"], changed["image"]) == (True, "hello@2")
    assert changed["disk_sha256"] != first["disk_sha256"]


def test_image_without_the_launcher_has_the_kernel_report_and_says_so(
    call: VmgrCall, tmp_path: pathlib.Path, image_pool: ImagePool
) -> None:
    directory = base(tmp_path)
    (directory / "root/usr/lib/vtorque-launcher.so").unlink()
    call("add", "bare", "--osv-base", directory)
    output = call("compose", "hello", "--package", package(tmp_path), "--base", "bare")
    assert "OSv's kernel reports the exit status" in output[-1]
    assert image_pool.find("hello").boot.cmdline == "--rootfs=rofs --verbose /libhttpserver-api.so"


def test_output_is_a_disk_for_everybody_and_nothing_in_the_pool(
    call: VmgrCall, tmp_path: pathlib.Path, image_pool: ImagePool
) -> None:
    """A base that is a kernel alone: the command of the package is what it boots."""
    directory = base(tmp_path)
    for name in ("init/00-cmdline", "libhttpserver-api.so", "usr/lib/vtorque-launcher.so"):
        (directory / "root" / name).unlink()
    call("add", "kernel-only", "--osv-base", directory)
    place = package(tmp_path, files={"hello": program()}, run={"runtime": "native", "main": "/hello one"})
    where = tmp_path / "it.img"
    before = sorted(os.listdir(image_pool.path))
    found = call("compose", "hello", "--package", place, "--base", "kernel-only", "--output", where, "--json")
    assert found["cmdline"] == "--rootfs=rofs --verbose /hello one"
    assert found["lacks"] == ["/init/00-cmdline", "/libhttpserver-api.so"]
    assert osv_reader.read(where.read_bytes())["/hello"] == program()
    with pytest.raises(UserFault, match="File exists"):
        call("compose", "hello", "--package", place, "--base", "kernel-only", "--output", where)
    with pytest.raises(UserFault, match=r"no job could run in it: .*libhttpserver-api\.so \(module httpserver-api\)"):
        call("compose", "hello", "--package", place, "--base", "kernel-only")
    assert sorted(os.listdir(image_pool.path)) == before


def test_image_is_composed_by_root_alone(
    call: VmgrCall, based: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `vmgr image add`: what is in the pool is believed by every node."""
    place = package(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    with pytest.raises(UserFault, match="the pool is root's"):
        call("compose", "hello", "--package", place)
    with pytest.raises(UserFault, match="the pool is root's"):
        call("add", "other", "--osv-base", based)
    assert call("compose", "hello", "--package", place, "--output", tmp_path / "it.img")


@pytest.mark.parametrize(("target", "why"), [
    ("/home/alice/lib.so", "is not in the image"), ("../../../etc/shadow", "leads out of the image"),
    ("nothing", "is not in the image"), ("a", "its way is a circle"), ("/usr/../../x", "leads out of the image"),
])  # fmt: skip
def test_link_that_leaves_the_image_is_refused(
    call: VmgrCall, based: pathlib.Path, image_pool: ImagePool, tmp_path: pathlib.Path, target: str, why: str
) -> None:
    place = package(tmp_path, files={"usr/lib/a": target})
    before = sorted(os.listdir(image_pool.path))
    with pytest.raises(UserFault, match=f"/usr/lib/a of hello: is a link to .*{why}"):
        call("compose", "hello", "--package", place)
    assert sorted(os.listdir(image_pool.path)) == before


def test_links_of_osvs_own_build_are_taken_as_they_are(
    call: VmgrCall, image_pool: ImagePool, tmp_path: pathlib.Path
) -> None:
    """An export of OSv's build has some that lead nowhere, and an administrator who cannot change that."""
    call("add", "osv-base", "--osv-base", base(tmp_path, {"etc/ssl/x": "/etc/pki/nowhere"}))
    call("compose", "hello", "--package", package(tmp_path))
    assert disk_of(image_pool, "hello")["/etc/ssl/x"] == "/etc/pki/nowhere"


@pytest.mark.parametrize("target", ["/tmp/x", "/dev/null", "b", "/usr/lib/b", "../../etc/mnttab", "c", "/"])
def test_link_within_the_image_is_good(
    call: VmgrCall, based: pathlib.Path, image_pool: ImagePool, tmp_path: pathlib.Path, target: str
) -> None:
    place = package(tmp_path, files={"usr/lib/a": target, "usr/lib/b": b"", "usr/lib/c": "/usr/lib/b"})
    call("compose", "hello", "--package", place)
    assert disk_of(image_pool, "hello")["/usr/lib/a"] == target


def test_two_packages_with_one_path_are_refused_unless_it_is_the_same(
    call: VmgrCall, based: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    one = package(tmp_path, "one", {"etc/x": b"1", "etc/l": "x"})
    same = package(tmp_path, "same", {"etc/x": b"1", "etc/l": "x"})
    other = package(tmp_path, "other", {"etc/x": b"2"})
    call("compose", "hello", "--package", one, "--package", same)
    with pytest.raises(UserFault, match=r"/etc/x: a file of one, and another \(a file\) of other"):
        call("compose", "hello", "--package", one, "--package", other)
    with pytest.raises(UserFault, match="/etc/fstab of tab: is written by the composition"):
        call("compose", "hello", "--package", package(tmp_path, "tab", {"etc/fstab": b"of OSv's own build\n"}))


def test_what_does_not_go_together_is_refused_with_what_to_do(
    call: VmgrCall, based: pathlib.Path, image_pool: ImagePool, tmp_path: pathlib.Path
) -> None:
    image_pool.add("debian12", 1)
    place = package(tmp_path, run={"runtime": "native", "config_set": {"a": {"main": "/none"}, "b": {}}})
    refused = {
        ("compose", "x", "--package", place, "--base", "nope"): "no such image",
        ("compose", "x", "--package", place, "--base", "debian12"): "is no base to compose on",
        ("compose", "x@2", "--package", place): "the pool gives the revisions their numbers",
        ("compose", "x", "--package", place): "has several sets",
        ("compose", "x", "--package", place, "--config", "c"): "has no such set",
        ("compose", "x", "--package", place, "--config", "a"): "there is no /none in the image",
        ("compose", "x", "--package", place, "--config", "b", "--set", "1=2"): "is no variable",
        ("compose", "x", "--package", place, "--config", "b", "--set", "A=ü"): "printable ASCII",
        ("compose", "x", "--package", place, "--config", "b", "--set", f"A={'x' * 3000}"): "characters; 2000",
        ("compose", "x", "--package", place, "--package", place): "two packages of the same name",
        ("add", "x", "--osv-base", tmp_path / "none"): "loader-stripped.elf",
        ("add", "x", "--osv-base", based, "--boot", "uefi"): "do not go with --osv-base",
        ("add", "osv-x"): "its disk is missing",
        ("update", "osv-base", based / "loader-stripped.elf"): "is a base of OSv, and no disk",
        ("profile", "osv-base"): "has no cloud-init that could report",
    }  # fmt: skip
    for options, why in refused.items():
        with pytest.raises(UserFault) as caught:
            call(*options)
        assert why in str(caught.value), options
    (based / "loader-stripped.elf").write_bytes(b"MZ" * 100)
    with pytest.raises(UserFault, match="is no kernel of OSv"):
        call("add", "x", "--osv-base", based)


def test_packages_of_a_base_are_checked_when_it_is_added(
    call: VmgrCall, based: pathlib.Path, image_pool: ImagePool
) -> None:
    package(based / "packages/again", "libz", version="1.3").rename(based / "packages/libz2")
    (based / "packages/again").rmdir()
    before = sorted(os.listdir(image_pool.path))
    with pytest.raises(UserFault, match=r"is libz 1\.3, as .*/libz is"):
        call("add", "osv-base", "--osv-base", based)
    assert sorted(os.listdir(image_pool.path)) == before
