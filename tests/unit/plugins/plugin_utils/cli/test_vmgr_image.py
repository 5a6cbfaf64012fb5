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
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.retiring import InUse
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import image_changes, messages, vmgr

if t.TYPE_CHECKING:
    from tests.unit.conftest import ImagePool

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the pool is root's")
VmgrCall = t.Callable[..., t.Any]
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
    }))  # fmt: skip
    for path in (tmp_path, file):
        path.chmod(0o755)

    def run(*words: object, status: int = 0) -> t.Any:
        assert vmgr.show(list(map(str, words)), file) == status
        told = capsys.readouterr().out
        return json.loads(told) if "--json" in words else told.splitlines()

    return run


def qstat(place: pathlib.Path, program: str) -> None:
    (place / "bin/qstat").write_text(program)
    (place / "bin/qstat").chmod(0o755)


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> pathlib.Path:
    words = ["qemu-img", "create", "-q", "-f", "qcow2", str(tmp_path / "new.qcow2"), "32M"]
    subprocess.run(words, check=True, timeout=60)
    return tmp_path / "new.qcow2"


def test_an_image_from_its_disk_to_its_end(call: VmgrCall, disk: pathlib.Path) -> None:
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
    ("words", "why"),
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
def test_what_cannot_be_done_is_told(call: VmgrCall, disk: pathlib.Path, words: tuple[str, ...], why: str) -> None:
    with pytest.raises(VTorqueError, match=why) as caught:
        call("image", *(str(disk) if word == "DISK" else word for word in words))
    assert messages.text("vmgr", caught.value).startswith("vmgr: ")


def test_a_greater_disk_than_the_site_wants(call: VmgrCall, tmp_path: pathlib.Path, image_pool: ImagePool) -> None:
    image_pool.qemu_img("create", "-q", "-f", "qcow2", tmp_path / "big", "2G")
    with pytest.raises(VTorqueError, match="the site allows 1024 MiB"):
        call("image", "add", "debian12", tmp_path / "big")


def test_what_a_job_needs_stays_until_it_is_forced(call: VmgrCall, tmp_path: pathlib.Path) -> None:
    part = "vtorque:" + request_of("tiny@9")
    job = f"<Job><Job_Id>7.s</Job_Id><job_state>R</job_state><euser>alice</euser><x>{part}</x></Job>"
    qstat(tmp_path, f"#!/bin/sh\necho '<Data>{job}</Data>'\n")
    with pytest.raises(InUse, match=r"job 7\.s of alice \(runs\)"):
        call("image", "delete", "tiny@9")
    assert call("image", "delete", "tiny@2") == ["deleted tiny@2"]
    assert call("image", "delete", "tiny@9", "--force") == ["deleted tiny@9"]


def request_of(image: str) -> str:
    from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job import request

    return request.parse([(f"img={image}", "command line")]).encode().removeprefix("vtorque:")


def test_a_silent_batch_server_is_no_leave(call: VmgrCall, tmp_path: pathlib.Path) -> None:
    qstat(tmp_path, "#!/bin/sh\nexit 111\n")
    with pytest.raises(SiteFault, match="which jobs need it is not known"):
        call("image", "delete", "tiny@9")
    assert call("image", "delete", "tiny@9", "--force") == ["deleted tiny@9"]
