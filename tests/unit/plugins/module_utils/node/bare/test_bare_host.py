# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that stays bare: who gets in, for how long, and that nothing is left however it ends."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import stat
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import NodeFault, SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.ssh_keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node import sweep
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.bare import bare_host, ssh_sessions, sshd
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.removal import run_files
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files as files_module
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import JobHost, JobMap, NodePart
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.node_answers import BareHost

JOB, OTHER = "7.head", "8.head"
OWNER = messages.Owner("alice", 1001, 1001, "alice", "/home/alice", "/bin/bash")
KEYS = {job: make_key(f"job@{job}") for job in (JOB, OTHER)}
HOST_KEY = " ".join(make_key("host").public.split()[:2])
HOSTS = (
    JobHost("vcn1-1", "192.0.2.101", 2, HOST_KEY),
    JobHost("cn2", "192.0.2.12", 1, HOST_KEY, bare=True),
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="what sshd reads is root's")


def part(job_id: str = JOB, start: int = 1, owner: messages.Owner = OWNER) -> NodePart:
    return NodePart(1, "present", job_id, start, "cn2", 60.0, owner, (), 1)


def job_map(job_id: str = JOB, start: int = 1, hosts: tuple[JobHost, ...] = HOSTS) -> JobMap:
    return JobMap(1, "join", job_id, start, "cn2", 60.0, hosts, KEYS[job_id])


def soon() -> Deadline:
    return Deadline.after(60)


@pytest.fixture
def settings(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> NodeSettings:
    """A node without libvirt, whose sshd is well."""

    def no_libvirt(*_words: object, **_how: object) -> t.NoReturn:
        raise NodeFault("libvirt", "is not here", cause="libvirt")

    for room in (present_absent, sweep):
        monkeypatch.setattr(room, "Domains", no_libvirt)
    monkeypatch.setattr(sshd, "check_sshd", lambda *_words: BareHost("192.0.2.12", HOST_KEY))
    return NodeSettings("cn2", 2, state_dir=tmp_path / "state", run_dir=tmp_path / "run", template_dir=None)


def opened(settings: NodeSettings, job_id: str = JOB, start: int = 1, owner: messages.Owner = OWNER) -> pathlib.Path:
    """A start whose ways are open; its directory."""
    bare_host.ensure_bare_host(part(job_id, start, owner), settings, soon())
    bare_host.join(job_map(job_id, start), settings, soon())
    return settings.bare_dir / f"{job_id}.{start}"


def files(settings: NodeSettings) -> list[str]:
    """All that is there, but for locks and tombstones."""
    places = (settings.bare_dir, settings.authorized_keys_dir)
    return sorted(str(path.relative_to(settings.run_dir)) for place in places for path in place.rglob("*"))


def test_bare_host_admits_no_login_before_the_join(settings: NodeSettings) -> None:
    found = bare_host.ensure_bare_host(part(), settings, soon())
    assert found == BareHost("192.0.2.12", HOST_KEY)
    assert files(settings) == ["bare/7.head.1", "bare/7.head.1/owner.json"]


def test_the_key_is_good_from_the_jobs_hosts_alone(settings: NodeSettings) -> None:
    opened(settings)
    kind, key = KEYS[JOB].public.split()[:2]
    path = settings.authorized_keys_dir / "alice"
    assert path.read_text() == f'restrict,pty,from="192.0.2.101,192.0.2.12" {kind} {key} vtorque:7.head.1\n'
    # sshd wants that nobody but root can write it or put another one in its place (StrictModes), and reads it as alice
    for place in (path, path.parent):
        facts = place.stat()
        assert (facts.st_uid, facts.st_mode & 0o022) == (0, 0)
    assert (
        "user:1001:r--" in subprocess.run(["getfacl", "-cpn", path], capture_output=True, text=True, check=False).stdout
    )


def test_ssh_settings_are_readable_and_the_key_is_not(settings: NodeSettings) -> None:
    """ssh dies of a file that it includes and cannot open."""
    directory = opened(settings)
    assert stat.S_IMODE(settings.bare_dir.stat().st_mode) == 0o755
    assert stat.S_IMODE((directory / "ssh_config").stat().st_mode) == 0o444
    assert stat.S_IMODE((directory / "known_hosts").stat().st_mode) == 0o444
    assert stat.S_IMODE((directory / "job_key").stat().st_mode) & 0o007 == 0
    acl = subprocess.run(["getfacl", "-cpn", directory / "job_key"], capture_output=True, text=True, check=False).stdout
    assert "user:1001:r--" in acl
    assert "group::---" in acl


@pytest.mark.parametrize("name", ["vcn1-1", "192.0.2.101"])
def test_ssh_takes_the_jobs_word_for_the_jobs_user(settings: NodeSettings, name: str) -> None:
    """OpenSSH itself says what it would do; whoever runs this is the user."""
    directory = opened(settings, owner=dataclasses.replace(OWNER, user="root"))
    output = subprocess.run(
        ["ssh", "-G", "-F", directory / "ssh_config", name], capture_output=True, text=True, check=False
    )
    arguments = set(output.stdout.splitlines())
    assert {
        "hostname 192.0.2.101", "hostkeyalias vcn1-1", "user root", f"identityfile {directory}/job_key",
        f"userknownhostsfile {directory}/known_hosts", "stricthostkeychecking true", "batchmode yes",
        "identitiesonly yes",
    } <= arguments, output.stderr  # fmt: skip
    asked = subprocess.run(
        ["ssh-keygen", "-F", "vcn1-1", "-f", directory / "known_hosts"], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert HOST_KEY in asked.stdout


def test_ssh_of_others_is_left_alone(settings: NodeSettings) -> None:
    directory = opened(settings)
    output = subprocess.run(
        ["ssh", "-G", "-F", directory / "ssh_config", "cn2"], capture_output=True, text=True, check=False
    )
    assert output.returncode == 0
    assert str(directory) not in output.stdout
    assert "hostname cn2" in output.stdout.splitlines()


def test_two_jobs_of_a_user_and_the_end_of_one(settings: NodeSettings) -> None:
    opened(settings)
    opened(settings, OTHER)
    keys = settings.authorized_keys_dir / "alice"
    assert [line.split()[-1] for line in keys.read_text().splitlines()] == ["vtorque:7.head.1", "vtorque:8.head.1"]
    assert bare_host.absent(JOB, 1, settings, soon()) == ("ssh access 7.head.1",)
    assert [line.split()[-1] for line in keys.read_text().splitlines()] == ["vtorque:8.head.1"]
    bare_host.absent(OTHER, 1, settings, soon())
    assert files(settings) == []


def test_absent_needs_no_libvirt_and_is_done_again(settings: NodeSettings) -> None:
    """As `vtorque-node` and the epilogue of a sister call it, who know no plan."""
    opened(settings)
    assert present_absent.absent(JOB, 1, settings, soon()) == ("ssh access 7.head.1",)
    assert present_absent.absent(JOB, 1, settings, soon(), bare=True) == ()
    assert present_absent.describe_leftovers(settings, JOB, 1, bare=True) == ()
    assert not start_lock.start_lock(settings, "7.head.1").exists()


def test_node_with_guests_of_the_start_is_not_taken_for_bare(settings: NodeSettings) -> None:
    """Whatever it is told: its domains are libvirt's to end."""
    settings.start_dir(JOB, 1).mkdir(parents=True)
    with pytest.raises(NodeFault, match="libvirt"):
        present_absent.absent(JOB, 1, settings, soon(), bare=True)


def test_start_that_is_over_opens_nothing(settings: NodeSettings) -> None:
    bare_host.ensure_bare_host(part(), settings, soon())
    bare_host.absent(JOB, 1, settings, soon())
    for late in (
        lambda: bare_host.ensure_bare_host(part(), settings, soon()),
        lambda: bare_host.join(job_map(), settings, soon()),
    ):
        with pytest.raises(start_lock.StartOver):
            late()
    assert files(settings) == []


def test_start_that_ends_in_the_middle_leaves_nothing(settings: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    bare_host.ensure_bare_host(part(), settings, soon())
    real = bare_host._write_keys

    def and_it_is_over(*arguments: t.Any) -> None:
        real(*arguments)
        start_lock.bury(settings, "7.head.1")

    monkeypatch.setattr(bare_host, "_write_keys", and_it_is_over)
    with pytest.raises(start_lock.StartOver):
        bare_host.join(job_map(), settings, soon())
    assert files(settings) == []


def test_sshd_that_is_not_made_for_it_leaves_nothing(settings: NodeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_words: object) -> t.NoReturn:
        raise SiteFault("sshd of cn2 takes no keys of jobs")

    monkeypatch.setattr(sshd, "check_sshd", look)
    with pytest.raises(SiteFault):
        bare_host.ensure_bare_host(part(), settings, soon())
    assert files(settings) == []
    assert not start_lock.start_lock(settings, "7.head.1").exists()


def test_start_that_nobody_announced_is_not_joined(settings: NodeSettings) -> None:
    with pytest.raises(VTorqueError, match="no bare host of this start"):
        bare_host.join(job_map(), settings, soon())


@pytest.mark.parametrize("cut", range(1, 7))
def test_absent_after_any_prefix_leaves_nothing(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Whoever was at work is killed before his n-th file: he undoes nothing himself."""
    real, written = files_module.write, []

    class Killed(BaseException):
        pass

    def write(path: pathlib.Path, *arguments: t.Any, **how: t.Any) -> None:
        written.append(path)
        if len(written) == cut:
            raise Killed
        real(path, *arguments, **how)

    with monkeypatch.context() as patch:
        patch.setattr(files_module, "write", write)
        patch.setattr(bare_host, "remove", lambda *_words: ())
        with pytest.raises(Killed):
            opened(settings)
    assert files(settings)
    bare_host.absent(JOB, 1, settings, soon())
    assert files(settings) == []


def test_sweep_takes_it_from_a_host_without_libvirt(settings: NodeSettings) -> None:
    directory = opened(settings)
    for twice_s in (60.0, 0.0):
        swept = sweep.sweep(settings, lambda *_: False, lambda _: False, soon(), twice_s=twice_s)
        assert directory.exists() == (twice_s > 0)
    assert [output.key for output in swept.removed] == ["7.head.1"]
    assert files(settings) == []


def test_sweep_leaves_that_of_a_living_job(settings: NodeSettings) -> None:
    directory = opened(settings)
    swept = sweep.sweep(settings, lambda *_: True, lambda _: False, soon(), twice_s=0)
    assert [output.key for output in swept.living] == ["7.head.1"]
    assert directory.exists()


def test_keys_of_no_job_that_is_here_are_taken_from_sshd(settings: NodeSettings) -> None:
    opened(settings)
    good = (settings.authorized_keys_dir / "alice").read_text()
    (settings.authorized_keys_dir / "alice").chmod(0o600)
    (settings.authorized_keys_dir / "alice").write_text(good + "ssh-ed25519 AAAA vtorque:1.head.1\n")
    (settings.authorized_keys_dir / "bob").write_text("ssh-ed25519 AAAA vtorque:2.head.1\n")
    assert run_files.tidy(settings) == ("authorized keys of alice", "authorized keys of bob")
    assert (settings.authorized_keys_dir / "alice").read_text() == good
    assert not (settings.authorized_keys_dir / "bob").exists()
    assert run_files.tidy(settings) == ()


def test_sessions_of_guests_end_after_logins_are_closed(
    settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(settings)
    seen: list[tuple[set[str], int, bool]] = []

    def end(addresses: set[str], uid: int) -> tuple[int, ...]:
        seen.append((addresses, uid, (settings.authorized_keys_dir / "alice").exists()))
        return (4711,)

    monkeypatch.setattr(ssh_sessions, "end", end)
    assert bare_host.absent(JOB, 1, settings, soon()) == ("ssh access 7.head.1", "process 4711")
    assert seen == [({"192.0.2.101"}, 1001, False)]


def test_earlier_start_is_seen(settings: NodeSettings) -> None:
    opened(settings, start=1)
    settings.start_dir(JOB, 2).mkdir(parents=True)
    assert present_absent.earlier_starts(part(start=3), settings) == (1, 2)


def test_guests_json_holds_guests_alone(settings: NodeSettings) -> None:
    directory = opened(settings)
    assert json.loads((directory / "guests.json").read_text()) == {"addresses": ["192.0.2.101"]}
