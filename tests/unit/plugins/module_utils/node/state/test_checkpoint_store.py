# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints in the site's directory: committed whole, read back strictly, and gone with their job."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import stat
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import (
    CheckpointFault,
    SiteFault,
    VTorqueError,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import (
    checkpoint_store,
    gone_checkpoints,
    saved_memory,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

JOB = "7.head"


@pytest.fixture
def guest(tmp_path: pathlib.Path) -> pathlib.Path:
    """A guest whose memory is on the disk of its node."""
    place = tmp_path / "guests/7.head.1/vcn1-1"
    place.mkdir(parents=True)
    saved_memory.order_save(place, 100)
    saved_memory.memory_file(place).write_bytes(saved_memory.COMPLETE + b"pages")
    for name in ("disk.qcow2", "seed.iso", "guest.json", "console.log", "told"):
        (place / name).write_text(name)
    return place


def save(store: pathlib.Path, guest: pathlib.Path, generation: int = 1) -> pathlib.Path:
    place = checkpoint_store.job_dir(store, JOB) / f"{generation}{checkpoint_store.NEW}" / guest.name
    checkpoint_store.save_guest(guest, place, Deadline.after(60.0))
    return place


def commit(store: pathlib.Path, guest: pathlib.Path, generation: int = 1, **more: object) -> None:
    save(store, guest, generation)
    manifest = {"version": 1, "job_id": JOB, "generation": generation, **more}
    checkpoint_store.commit(store, JOB, generation, manifest)


def test_guest_that_is_saved_returns_byte_for_byte_and_all_is_roots_alone(
    store: pathlib.Path, guest: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    place = save(store, guest)
    for directory in (place, place.parent, place.parent.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert all(not stat.S_IMODE(path.stat().st_mode) & 0o077 for path in place.iterdir())
    back = tmp_path / "back"
    back.mkdir()
    checkpoint_store.bring_guest(place, checkpoint_store.digest_of(place / "files.json"), back, Deadline.after(60.0))
    assert saved_memory.memory_file(back).read_bytes() == saved_memory.COMPLETE + b"pages"
    names = {path.name for path in back.iterdir() if path.is_file()}
    assert names == {"disk.qcow2", "seed.iso", "guest.json", "processor"}
    assert (back / "seed.iso").read_text() == "seed.iso"


@pytest.mark.parametrize("name", ["memory", "disk.qcow2", "files.json", "seed.iso"])
def test_guest_of_a_checkpoint_that_was_edited_does_not_return(
    store: pathlib.Path, guest: pathlib.Path, tmp_path: pathlib.Path, name: str
) -> None:
    place = save(store, guest)
    digest = checkpoint_store.digest_of(place / "files.json")
    (place / name).chmod(0o600)
    with (place / name).open("r+b") as stream:
        stream.write(b"#")
    back = tmp_path / "back"
    back.mkdir()
    with pytest.raises(CheckpointFault, match=f"{name} is not what was saved"):
        checkpoint_store.bring_guest(place, digest, back, Deadline.after(60.0))


def test_guest_whose_memory_is_not_whole_is_in_no_checkpoint(store: pathlib.Path, guest: pathlib.Path) -> None:
    saved_memory.memory_file(guest).write_bytes(b"LibvirtQemudPart")
    with pytest.raises(VTorqueError, match="its memory is not on the disk"):
        save(store, guest)


def test_checkpoint_appears_by_its_commit_and_two_stay(store: pathlib.Path, guest: pathlib.Path) -> None:
    save(store, guest)
    assert checkpoint_store.generations(store, JOB) == ()
    checkpoint_store.drop_new(store, JOB)
    for generation in (1, 2, 3):
        commit(store, guest, generation)
    assert checkpoint_store.generations(store, JOB) == (3, 2)
    assert checkpoint_store.read_manifest(store, JOB, 3)["generation"] == 3
    save(store, guest, 4)
    checkpoint_store.drop_new(store, JOB)
    assert sorted(path.name for path in checkpoint_store.job_dir(store, JOB).iterdir()) == ["2", "3"]


def test_manifest_that_was_edited_or_is_of_another_job_is_not_read(store: pathlib.Path, guest: pathlib.Path) -> None:
    commit(store, guest)
    path = checkpoint_store.job_dir(store, JOB) / "1" / "manifest.json"
    text = path.read_text()
    path.chmod(0o600)
    for wrong, why in (
        (text.replace("generation", "Generation"), "not what was committed"),
        ("{}", "cannot be read"),
        ("[", "not a record"),
    ):
        path.write_text(wrong)
        with pytest.raises(VTorqueError, match=why):
            checkpoint_store.read_manifest(store, JOB, 1)
    path.unlink()
    with pytest.raises(VTorqueError, match="cannot be read"):
        checkpoint_store.read_manifest(store, JOB, 1)
    checkpoint_store.job_dir(store, JOB).rename(checkpoint_store.job_dir(store, "8.head"))
    (checkpoint_store.job_dir(store, "8.head") / "1" / "manifest.json").write_text(text)
    with pytest.raises(VTorqueError, match=r"of job 7\.head"):
        checkpoint_store.read_manifest(store, "8.head", 1)


def test_names_of_saved_guests_are_used_until_their_job_is_gone(store: pathlib.Path, guest: pathlib.Path) -> None:
    assert checkpoint_store.used_names(store) == frozenset()
    commit(store, guest)
    for mark in (gone_checkpoints.GONE, checkpoint_store.PARKED):  # beside the checkpoints
        (checkpoint_store.job_dir(store, JOB) / mark).touch()
    assert checkpoint_store.used_names(store) == {"vcn1-1"}
    assert checkpoint_store.used_names(store, JOB) == frozenset()
    assert checkpoint_store.forget(store, JOB)
    assert not checkpoint_store.forget(store, JOB)
    assert checkpoint_store.used_names(store) == frozenset()


@pytest.mark.parametrize("gone", ["7.head", "7.head/1"])
def test_checkpoint_that_is_removed_meanwhile_hides_no_names_of_others(
    store: pathlib.Path, guest: pathlib.Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    commit(store, guest)
    (store / "6.head/1/vcn1-6").mkdir(parents=True)
    (store / "8.head/1/vcn1-8").mkdir(parents=True)
    list_entries = pathlib.Path.iterdir

    def iterdir(path: pathlib.Path) -> t.Iterator[pathlib.Path]:
        if path == store:
            return iter([store / job for job in ("6.head", "7.head", "8.head")])
        if path == store / gone:
            raise FileNotFoundError(path)
        return list_entries(path)

    monkeypatch.setattr(pathlib.Path, "iterdir", iterdir)
    assert checkpoint_store.used_names(store) == {"vcn1-6", "vcn1-8"}


@pytest.mark.parametrize("bare", [False, True], ids=["missing", "bare mount point"])
def test_names_of_saved_guests_stay_used_while_the_store_is_not_mounted(
    store: pathlib.Path, guest: pathlib.Path, tmp_path: pathlib.Path, bare: bool
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    settings = NodeSettings(node_name="cn1", node_number=1, state_dir=state, checkpoint_dir=store)
    find = functools.partial(checkpoint_store.find_used_names, settings)
    assert find() == frozenset()
    commit(store, guest)
    assert find() == {"vcn1-1"}
    store.rename(tmp_path / "elsewhere")
    if bare:
        store.mkdir(mode=0o755)
    assert find() == {"vcn1-1"}
    store.rmdir() if bare else None
    (tmp_path / "elsewhere").rename(store)
    checkpoint_store.forget(store, JOB)
    assert find() == frozenset()
    store.rmdir()
    assert find() == frozenset()
    assert checkpoint_store.find_used_names(dataclasses.replace(settings, checkpoint_dir=None)) == frozenset()


def test_store_that_cannot_be_read_is_the_sites_fault(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SiteFault, match="checkpoint_dir"):
        checkpoint_store.used_names(tmp_path / "file")


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_store_that_others_can_enter_is_unsafe(store: pathlib.Path, mode: int) -> None:
    assert checkpoint_store.why_unsafe(store) == ""
    store.chmod(mode)
    assert "mode 0700" in checkpoint_store.why_unsafe(store)
    assert "No such file" in checkpoint_store.why_unsafe(store / "absent")
    (store.parent / "link").symlink_to(store)
    assert "mode 0700" in checkpoint_store.why_unsafe(store.parent / "link")


def test_processor_is_what_a_guest_under_kvm_depends_on(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nmodel name\t: A 5\nflags\t\t: fpu sse\ncpu MHz\t: 1\n")
    first = checkpoint_store.read_processor(path)
    path.write_text(path.read_text().replace("cpu MHz\t: 1", "cpu MHz\t: 2"))
    assert checkpoint_store.read_processor(path) == first
    path.write_text(path.read_text().replace("sse", "sse avx"))
    assert checkpoint_store.read_processor(path) != first
    assert json.dumps(first)
