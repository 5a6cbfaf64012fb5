# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr changes the pool as root, and says what it did."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    ImageFault,
    SiteFault,
    UserFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool.retire import InUse
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.trial import boot as trial
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.trial.report import TrialObservations
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.output import messages
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.images import image_changes

if t.TYPE_CHECKING:
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool.images import Image

    from tests.unit.conftest import ImagePool

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the pool is root's")
VmgrCall = t.Callable[..., t.Any]
Make = t.Callable[..., None]
NO_JOBS = "#!/bin/sh\n"


@pytest.fixture
def call(image_pool: ImagePool, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str],
         monkeypatch: pytest.MonkeyPatch) -> VmgrCall:  # fmt: skip
    """Calls vmgr; the lines that it printed, or what it told as JSON."""
    monkeypatch.setattr(image_changes, "GUESTS", tmp_path / "guests")
    (tmp_path / "bin").mkdir()
    qstat(tmp_path, NO_JOBS)
    file = tmp_path / "vtorque.yml"
    file.write_text(json.dumps({
        "vm_img_dir": str(image_pool.path), "pbs_qsub_on_fe": str(tmp_path / "bin/qsub"), "image_max": "1G",
        "libvirt_uri": f"qemu+unix:///system?socket={tmp_path}/none",
    }))  # fmt: skip
    for path in (tmp_path, file):
        path.chmod(0o755)

    def run(*arguments: object, status: int = 0) -> t.Any:
        assert main.run_subject(list(map(str, arguments)), file) == status
        report = capsys.readouterr().out
        return json.loads(report) if "--json" in arguments else report.splitlines()

    return run


def qstat(place: pathlib.Path, program: str) -> None:
    (place / "bin/qstat").write_text(program)
    (place / "bin/qstat").chmod(0o755)


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    arguments = ["qemu-img", "create", "-q", "-f", "qcow2", str(tmp_path / "new.qcow2"), "32M"]
    subprocess.run(arguments, check=True, timeout=60)
    return tmp_path / "new.qcow2"


def test_image_from_its_disk_to_its_end(call: VmgrCall, disk: pathlib.Path) -> None:
    assert call("image", "add", "debian12", disk, "--description", "first") == [
        "debian12@1 is in the pool (debian, qcow2, a disk of 32M)"
    ]
    made = call("image", "update", "debian12", "--description", "second", "--json")
    assert (made["name"], made["description"], made["made"]) == ("debian12@2", "second", "vmgr image update")
    assert call("image", "show", "debian12", "--json") == made
    row = next(row for row in call("image", "list", "--json") if row["name"] == "debian12@2")
    assert (row["size"], row["virtual_bytes"], row["last_use"], row["wrong"]) == ("32M", 32 << 20, None, "")
    with pytest.raises(UserFault, match="has 2 revisions"):
        call("image", "delete", "debian12")
    assert call("delete", "debian12@1") == ["deleted debian12@1"]
    assert call("image", "delete", "debian12", "--json") == {"deleted": ["debian12@2"]}
    with pytest.raises(UserFault, match="no such image"):
        call("image", "delete", "debian12")


def test_damage_is_told_with_a_status(call: VmgrCall, disk: pathlib.Path, image_pool: ImagePool) -> None:
    call("image", "add", "debian12", disk)
    assert [line.split()[1] for line in call("image", "verify", "debian12", "plain")[1:]] == ["ok", "readable;"]
    path = image_pool.path / "debian12@1/disk.qcow2"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    path.chmod(0o444)
    (found,) = call("image", "verify", "debian12", "--json", status=1)
    assert (found["name"], found["state"]) == ("debian12@1", "bad")
    assert "is damaged" in found["wrong"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("add", "tiny2", "DISK"), "of which distribution"),
        (("add", "debian/x", "DISK"), "letters, digits"),
        (("add", "debian12", "/nowhere"), "No such file"),
        (("add", "debian12", "DISK", "--kernel", "/etc/hostname", "--boot", "bios"), "not by both"),
        (("update", "debian12", "DISK"), "no such image"),
        (("update", "plain", "DISK"), "no record"),
        (("update", "tiny"), "nothing is to be changed"),
        (("update", "tiny", "DISK"), "may not fit"),
        (("delete", "../pool"), "not the name"),
        (("verify", "none"), "no such image"),
    ],
)
def test_image_command_that_fails_is_reported(
    call: VmgrCall, disk: pathlib.Path, arguments: tuple[str, ...], why: str
) -> None:
    with pytest.raises(VTorqueError, match=why) as caught:
        call("image", *(str(disk) if word == "DISK" else word for word in arguments))
    assert messages.text("vmgr", caught.value).startswith("vmgr: ")


def test_greater_disk_than_the_site_wants(call: VmgrCall, tmp_path: pathlib.Path, image_pool: ImagePool) -> None:
    image_pool.qemu_img("create", "-q", "-f", "qcow2", tmp_path / "big", "2G")
    with pytest.raises(VTorqueError, match="the site allows 1024 MiB"):
        call("image", "add", "debian12", tmp_path / "big")


def truncated(path: pathlib.Path, make: Make) -> None:
    path.with_name("raw").write_bytes(os.urandom(1 << 20))
    make("convert", "-f", "raw", "-O", "qcow2", path.with_name("raw"), path)
    os.truncate(path, path.stat().st_size - 65536)


def garbage(path: pathlib.Path, make: Make) -> None:
    make("create", "-q", "-f", "qcow2", path, "8M")
    content = path.read_bytes()
    path.write_bytes(content[:36] + b"\xa5" * 20 + content[56:])


def bomb(path: pathlib.Path, _make: Make) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 43)


BAD_DISKS: list[t.Any] = [
    pytest.param(truncated, "qemu-img check", id="truncated"),
    pytest.param(
        lambda path, make: make("create", "-q", "-f", "qcow2", "-o", "cluster_size=2M", path, 1 << 60),
        "the site allows 1024 MiB", id="2^60 bytes",
    ),
    pytest.param(
        lambda path, make: make("create", "-q", "-f", "qcow2", "--object", "secret,id=s,data=x", "-o",
                                "encrypt.format=aes,encrypt.key-secret=s", path, "8M"),
        "is encrypted", id="encrypted",
    ),
    pytest.param(bomb, "garbage", id="a sparse bomb"),
    pytest.param(
        lambda path, make: make("create", "-q", "-f", "qcow2", "-b", "/etc/shadow", "-F", "raw", path, "8M"),
        "backing file", id="a backing file",
    ),
    pytest.param(
        lambda path, make: make("create", "-q", "-f", "qcow2", "-o", f"data_file={path}.data", path, "8M"),
        "external file", id="a data file",
    ),
    pytest.param(
        lambda path, _make: path.write_text('# Disk DescriptorFile\nversion=1\nRW 1 FLAT "/etc/shadow" 0\n'),
        "format VMDK", id="a descriptor",
    ),
    pytest.param(garbage, "header is garbage", id="garbage in its header"),
    pytest.param(lambda path, _make: path.write_bytes(b""), "is empty", id="nothing"),
    pytest.param(lambda path, _make: path.mkdir(), "not a regular file|Is a directory", id="a directory"),
]  # fmt: skip


@pytest.mark.parametrize("verb", ["add", "update"])
@pytest.mark.parametrize(("spoil", "why"), BAD_DISKS)
def test_bad_disk_is_refused_in_a_line_and_the_pool_is_as_it_was(
    call: VmgrCall, tmp_path: pathlib.Path, image_pool: ImagePool, disk: pathlib.Path,
    spoil: t.Callable[[pathlib.Path, Make], object], why: str, verb: str,
) -> None:  # fmt: skip
    """A guest gets what it got."""
    call("image", "add", "debian12", disk)
    spoil(tmp_path / "bad", image_pool.qemu_img)
    before = {path: path.stat().st_mtime_ns for path in image_pool.path.rglob("*") if path.is_file()}
    with pytest.raises(VTorqueError, match=why) as caught:
        call("image", verb, "debian12", tmp_path / "bad")
    line = messages.text("vmgr", caught.value)
    assert line.startswith(f"vmgr: {tmp_path / 'bad'}: ")
    assert line.isprintable()
    assert caught.value.fault in ("user", "image")
    assert {path: path.stat().st_mtime_ns for path in image_pool.path.rglob("*") if path.is_file()} == before
    assert image_pool.find("debian12").name == "debian12@1"


def test_image_of_a_job_stays_without_force(call: VmgrCall, tmp_path: pathlib.Path) -> None:
    part = "vtorque:" + request_of("tiny@9")
    job = f"<Job><Job_Id>7.s</Job_Id><job_state>R</job_state><euser>alice</euser><x>{part}</x></Job>"
    qstat(tmp_path, f"#!/bin/sh\necho '<Data>{job}</Data>'\n")
    with pytest.raises(InUse, match=r"job 7\.s of alice \(runs\)"):
        call("image", "delete", "tiny@9")
    assert call("image", "delete", "tiny@2") == ["deleted tiny@2"]
    assert call("image", "delete", "tiny@9", "--force") == ["deleted tiny@9"]


def request_of(image: str) -> str:
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request import request

    return request.parse([(f"img={image}", "command line")]).encode().removeprefix("vtorque:")


def test_silent_batch_server_is_no_leave(call: VmgrCall, tmp_path: pathlib.Path) -> None:
    qstat(tmp_path, "#!/bin/sh\nexit 111\n")
    with pytest.raises(SiteFault, match="which jobs need it is not known"):
        call("image", "delete", "tiny@9")
    assert call("image", "delete", "tiny@9", "--force") == ["deleted tiny@9"]


DEBIAN = TrialObservations(
    18.44, lines=("begun 9.3", "up 18.0", "cloud-init cloud-init 22.4.2", "sshd /usr/sbin/sshd", "end")
)
DEAD = TrialObservations(2.0, nothing_to_boot="No bootable device", emulated="no kvm")


@pytest.fixture
def boots(monkeypatch: pytest.MonkeyPatch) -> t.Callable[[TrialObservations], list[Image]]:
    """Has images boot so; those that were booted."""

    def so(seen: TrialObservations) -> list[Image]:
        booted: list[Image] = []

        def boot(image: Image, *_others: object, **_more: object) -> TrialObservations:
            assert image.path.stat().st_mode & 0o777 == 0o444
            assert image.path.parent.stat().st_mode & 0o777 == 0o711
            booted.append(image)
            return seen

        monkeypatch.setattr(trial, "boot", boot)
        return booted

    return so


def test_image_is_booted_before_it_is_published(
    call: VmgrCall, disk: pathlib.Path, boots: t.Callable[[TrialObservations], list[Image]], image_pool: ImagePool
) -> None:
    booted = boots(DEBIAN)
    assert [line.split()[:2] for line in call("image", "add", "debian12", disk)] == [
        ["check", "state"], ["boots", "ok"], ["cloud-init", "ok"], ["sshd", "ok"], ["debian12@1", "is"],
    ]  # fmt: skip
    assert booted[0].path.parent.parent == image_pool.path
    assert not booted[0].path.exists()
    report = call("image", "update", "debian12", disk, "--json")["trial"]
    assert (report["booted"], report["good"], report["seconds"]) == (True, True, 18.4)
    # a disk that stays was booted before
    assert "trial" not in call("image", "update", "debian12", "--description", "x", "--json")
    call("image", "add", "debian12", disk, "--no-boot")
    assert len(booted) == 2


def test_image_that_does_not_boot_is_refused_without_force(
    call: VmgrCall, disk: pathlib.Path, boots: t.Callable[[TrialObservations], list[Image]], image_pool: ImagePool,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    boots(DEAD)
    before = sorted(image_pool.path.iterdir())
    with pytest.raises(ImageFault, match="no job could run in it: boots: the firmware found nothing to boot"):
        call("image", "add", "debian12", disk)
    assert "bad" in capsys.readouterr().out
    with pytest.raises(ImageFault, match="--force adds it nonetheless"):
        call("image", "add", "debian12", disk, "--json")
    report = json.loads(capsys.readouterr().out)
    assert (report["added"], report["trial"]["good"], report["trial"]["emulated"]) == (False, False, "no kvm")
    assert sorted(image_pool.path.iterdir()) == before
    lines = call("image", "add", "debian12", disk, "--force")
    assert lines[1].split()[:2] == ["boots", "bad"]
    assert lines[2].startswith("by emulation (no kvm)")
    assert lines[3].startswith("debian12@1 is in the pool")


def test_image_that_cannot_be_tried_is_added_with_a_notice(call: VmgrCall, disk: pathlib.Path) -> None:
    report = call("image", "add", "debian12", disk, "--json")["trial"]
    assert report["booted"] is False
    assert report["why"].startswith("libvirt at qemu+unix")


def test_image_of_osv_is_not_booted_and_has_no_profile(call: VmgrCall, disk: pathlib.Path) -> None:
    """It has no cloud-init that could report; it is checked as all are, and added."""
    report = call("image", "add", "osv-solver", disk, "--json")
    assert report["trial"] == {
        "booted": False,
        "why": "a guest of osv has no cloud-init that could report; a job tells",
    }
    assert report["distro"] == "osv"
    with pytest.raises(UserFault, match="no cloud-init that could report"):
        call("image", "profile", "osv-solver")


@pytest.mark.parametrize("seconds", ["0", "3601", "1.5", "-1", "\u0661"])
def test_time_that_is_none_is_refused(call: VmgrCall, disk: pathlib.Path, seconds: str) -> None:
    with pytest.raises(SystemExit):
        call("image", "add", "debian12", disk, "--boot-timeout", seconds)


PROFILED = (
    *DEBIAN.lines[:-1], "unit 9.5s snapd.service", "mark userspace 2.500", "span ssh.service 16.000 17.250", "end",
)  # fmt: skip


def test_boot_profile_is_printed_by_cost(
    call: VmgrCall, image_pool: ImagePool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a table with advice, as a picture beside it, as a picture alone, and for programs."""
    booted: list[str] = []

    def boot(image: Image, *_others: object, **_more: object) -> TrialObservations:
        booted.append(image.name)
        return TrialObservations(18.44, lines=PROFILED, emulated="no kvm")

    monkeypatch.setattr(trial, "boot", boot)
    lines = call("image", "profile", "tiny@9", "--svg", tmp_path / "boot.svg")
    assert lines[0] == "tiny@9: up after 18.4 s"
    assert [line.split()[:2] for line in lines[1:6]] == [
        ["phase", "what"], ["firmware", "firmware"], ["kernel", "kernel"], ["others", "systemd"],
        ["ssh", "ssh.service"],
    ]  # fmt: skip
    assert lines[6:] == [
        "snapd.service (9.5 s): jobs need no snaps: remove snapd",
        "by emulation (no kvm): it boots faster on a node that has KVM",
    ]
    picture = (tmp_path / "boot.svg").read_text()
    assert "ssh.service" in picture
    assert "".join(call("image", "profile", "tiny@9", "--svg", "-")) == picture.replace("\n", "")
    report = call("image", "profile", "tiny@9", "--json")
    assert (report["image"], report["spans"][-1]["phase"], report["costs"][0]["what"]) == (
        "tiny@9",
        "ssh",
        "snapd.service",
    )
    assert booted == ["tiny@9"] * 3
    with pytest.raises(UserFault, match="no such image"):
        call("image", "profile", "nobody")
    with pytest.raises(UserFault, match="No such file or directory"):
        call("image", "profile", "tiny@9", "--svg", tmp_path / "none" / "boot.svg")


def test_boot_that_cannot_be_has_no_profile(call: VmgrCall) -> None:
    with pytest.raises(trial.NotTried, match="the image was not booted"):
        call("image", "profile", "tiny@9")
