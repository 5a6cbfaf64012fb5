# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What cannot be read is not taken for nothing, by whoever removes things."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import sweep
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.bare import bare_host, ssh_sessions
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import disk_space, overlay_bases
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import retire
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import leftovers, run_files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import directories, qemu_user, slots
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import shell_link
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state.layout import RUN_DIR, STATE_DIR
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process.process_id import ProcessId
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import form, messages
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.hooks import start_sweep

KEY = "7.head.1"
OWNER = messages.Owner("alice", 1001, 1001, "alice", "/home/alice", "/bin/bash")
BROKEN = r"cannot be read: Input/output error"

Refuse = t.Callable[..., None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Let the system refuse to read a file or a directory."""

    def begin(path: pathlib.Path, number: int = errno.EIO) -> None:
        def refusing(call: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
            def answer(asked: t.Any, *others: t.Any, **how: t.Any) -> t.Any:
                if not isinstance(asked, int) and os.fspath(asked) == str(path):
                    raise OSError(number, os.strerror(number), str(path))
                return call(asked, *others, **how)

            return answer

        for module, name in ((os, "listdir"), (os, "open"), (pathlib.io, "open")):  # type: ignore[attr-defined]
            monkeypatch.setattr(module, name, refusing(getattr(module, name)))

    return begin


@pytest.fixture
def settings(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> NodeSettings:
    """A node on which one start has a guest."""
    monkeypatch.setattr(leftovers, "SYS_NET", tmp_path / "net")
    found = NodeSettings(
        "cn1", 1, state_dir=tmp_path / "state", run_dir=tmp_path / "run", libvirt_uri="test:///default",
        template_dir=None, bridge="vtq-no-bridge",
    )  # fmt: skip
    (found.guests_dir / KEY / "vcn1-1").mkdir(parents=True)
    found.slots_dir.mkdir()
    (found.slots_dir / "1").symlink_to(f"{KEY}/vcn1-1")
    files.make_directory(found.run_dir)
    return found


def test_entries_is_empty_only_where_there_is_nothing(tmp_path: pathlib.Path, refuse: Refuse) -> None:
    (tmp_path / "file").touch()
    for name in ("b", "a"):
        (tmp_path / "here" / name).mkdir(parents=True)
    assert directories.entries(tmp_path / "none") == directories.entries(tmp_path / "file") == []
    assert [path.name for path in directories.entries(tmp_path / "here")] == ["a", "b"]
    assert [path.parent.name for path in directories.guest_directories(tmp_path)] == ["here", "here"]
    refuse(tmp_path / "here")
    with pytest.raises(NodeFault, match=BROKEN):
        directories.entries(tmp_path / "here")


@pytest.mark.parametrize("look", [
    leftovers.processes,
    lambda settings: leftovers.end_processes(settings, KEY),
    leftovers.list_leftovers_without_libvirt,
    lambda settings: disk_space.read_disk_use(settings.guests_dir),
    lambda settings: list(overlay_bases.bases(settings.guests_dir)),
    lambda settings: retire.users("tiny@1", pathlib.Path("/pool"), settings.guests_dir),
])  # fmt: skip
@pytest.mark.parametrize("place", ["", KEY])
def test_directory_that_cannot_be_read_is_a_fault(
    settings: NodeSettings, refuse: Refuse, look: t.Callable[[NodeSettings], object], place: str
) -> None:
    refuse(settings.guests_dir / place)
    with pytest.raises(NodeFault, match=BROKEN):
        look(settings)


def test_left_says_that_it_is_not_known(settings: NodeSettings, refuse: Refuse) -> None:
    """Whoever asked is answered: the sister's program would else end without a word."""
    refuse(settings.guests_dir / KEY)
    (arguments,) = present_absent.describe_leftovers(settings, "7.head", 1)
    assert arguments.startswith("unknown: ")
    assert arguments.count("Input/output error") == 1


@pytest.mark.parametrize("place", ["state/guests", f"state/guests/{KEY}", "state/slots", "run/bare", "run/jobs"])
def test_sweep_removes_nothing_while_it_cannot_see_what_is_here(
    settings: NodeSettings, refuse: Refuse, place: str
) -> None:
    for name in ("bare", "jobs"):
        (settings.run_dir / name).mkdir()
    refuse(settings.run_dir.parent / place)
    for _look in range(2):
        with pytest.raises(NodeFault, match=BROKEN):
            sweep.sweep(settings, lambda *_words: False, lambda _job: False, Deadline.after(60.0), twice_s=0.0)
    assert (settings.guests_dir / KEY / "vcn1-1").is_dir()
    assert os.readlink(settings.slots_dir / "1") == f"{KEY}/vcn1-1"


def test_epilogue_that_cannot_see_what_is_here_goes_on(settings: NodeSettings, refuse: Refuse) -> None:
    refuse(settings.guests_dir)
    with pytest.raises(NodeFault, match=BROKEN):
        start_sweep.something_unheld(settings.run_dir, settings.state_dir)
    start_sweep.sweep_if_needed(RUN_DIR, STATE_DIR)


def test_process_that_cannot_be_looked_at_is_not_gone(settings: NodeSettings, refuse: Refuse) -> None:
    """A start whose shell lives is not swept, and no file of a living writer is taken away."""
    parent = os.getppid()
    directory = settings.run_dir / "jobs" / KEY
    directory.mkdir(parents=True)
    shell = ProcessId.of(parent)
    half = settings.run_dir / f".ready.json.{parent}"
    half.touch()
    refuse(pathlib.Path(f"/proc/{parent}/stat"), errno.EMFILE)
    shell_link.point(shell, settings.run_dir / "jobs" / "8.head.1", settings.run_dir)
    assert run_files.tidy(settings) == ()
    shell_link.point(shell, directory, settings.run_dir)
    with pytest.raises(OSError, match="Too many open files"):
        run_files.living_shell(settings, KEY)
    swept = sweep.sweep(settings, lambda *_words: False, lambda _job: False, Deadline.after(60.0), twice_s=0.0)
    assert swept.removed == ()
    assert ["whether it lives is not known" in output.why for output in swept.left] == [True]
    assert half.exists()
    assert len(list((settings.run_dir / "shells").iterdir())) == 1


def test_processes_that_nobody_could_look_at_are_not_none(settings: NodeSettings, refuse: Refuse) -> None:
    refuse(pathlib.Path(f"/proc/{os.getpid()}/status"), errno.EMFILE)
    with pytest.raises(VTorqueError, match="what runs on this node cannot be seen"):
        leftovers.processes(settings)


def test_qemu_user_is_known_or_reported_as_unknown(settings: NodeSettings, refuse: Refuse) -> None:
    assert qemu_user.load_uids(settings) == {0}
    qemu_user.save_uid(64055, settings)
    assert qemu_user.load_uids(settings) == {0, 64055}
    refuse(settings.run_dir / qemu_user.FILE)
    with pytest.raises(NodeFault, match=BROKEN):
        qemu_user.load_uids(settings)
    qemu_user.save_uid(1, settings)


def test_image_whose_overlays_cannot_be_read_is_not_free(settings: NodeSettings, refuse: Refuse) -> None:
    overlay = settings.guests_dir / KEY / "vcn1-1" / "disk.qcow2"
    overlay.touch()
    refuse(overlay)
    with pytest.raises(NodeFault, match=BROKEN):
        retire.users("tiny@1", pathlib.Path("/pool"), settings.guests_dir)


def test_bare_host_whose_user_cannot_be_read_is_not_closed_by_half(
    settings: NodeSettings, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What their guests began there would go on, and nobody would know of it."""
    monkeypatch.setattr(ssh_sessions, "end", lambda *_words: pytest.fail("whose sessions?"))
    directory = settings.bare_dir / KEY
    files.make_directory(directory)
    files.write(directory / bare_host.OWNER, json.dumps(form.to_dict(OWNER)))
    files.write(directory / bare_host.GUESTS, json.dumps({"addresses": ["192.0.2.1"]}))
    refuse(directory / bare_host.OWNER)
    with pytest.raises(NodeFault, match=BROKEN):
        bare_host.remove(KEY, settings, Deadline.after(60.0))
    assert directory.is_dir()


@pytest.mark.parametrize("file", [bare_host.OWNER, bare_host.AUTHORIZED])
def test_bare_host_keeps_the_key_of_a_start_that_cannot_be_read(
    settings: NodeSettings, refuse: Refuse, file: str
) -> None:
    for directory in (settings.bare_dir / KEY, settings.authorized_keys_dir):
        files.make_directory(directory)
    files.write(settings.bare_dir / KEY / bare_host.OWNER, json.dumps(form.to_dict(OWNER)))
    files.write(settings.bare_dir / KEY / bare_host.AUTHORIZED, "a key\n")
    files.write(settings.authorized_keys_dir / "alice", "a key\n", reader_uid=OWNER.uid)
    refuse(settings.bare_dir / KEY / file)
    with pytest.raises(NodeFault, match=BROKEN):
        bare_host.tidy(settings, Deadline.after(60.0))
    assert (settings.authorized_keys_dir / "alice").read_text() == "a key\n"


def test_slots_that_cannot_be_read_are_not_free(settings: NodeSettings, refuse: Refuse) -> None:
    refuse(settings.slots_dir)
    with pytest.raises(NodeFault, match=BROKEN):
        slots.read_slots(settings)
