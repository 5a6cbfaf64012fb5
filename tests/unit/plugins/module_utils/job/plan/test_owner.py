# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The job's owner, as the directory of this node knows them."""

from __future__ import annotations

import dataclasses
import grp
import os
import pwd
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.owner import owner_of


class Directory:
    """A small passwd and group, in place of the machine's."""

    def __init__(self, patch: pytest.MonkeyPatch, **entry: t.Any) -> None:
        self.user = types.SimpleNamespace(
            **{"pw_uid": 1001, "pw_gid": 2000, "pw_dir": "/home/alice", "pw_shell": "/bin/zsh", **entry}
        )
        self.groups = {"domain users": 2000, "physics": 2001, "others": 2002, "root": 0}
        patch.setattr(pwd, "getpwnam", lambda name: {"alice": self.user}[name])
        patch.setattr(grp, "getgrnam", lambda name: types.SimpleNamespace(gr_gid=self.groups[name]))
        names = {gid: name for name, gid in self.groups.items()}
        patch.setattr(grp, "getgrgid", lambda gid: types.SimpleNamespace(gr_name=names[gid]))
        patch.setattr(os, "getgrouplist", lambda name, gid: [gid, 2001, 0])


def test_owner_is_what_the_directory_says(monkeypatch: pytest.MonkeyPatch) -> None:
    Directory(monkeypatch)
    owner = owner_of("alice")
    others = (("root", 0), ("physics", 2001))
    assert dataclasses.astuple(owner) == ("alice", 1001, 2000, "domain users", "/home/alice", "/bin/zsh", others)


def test_job_of_another_group_of_the_user_gets_that_group(monkeypatch: pytest.MonkeyPatch) -> None:
    Directory(monkeypatch, pw_shell="")
    owner = owner_of("alice", "physics")
    assert (owner.gid, owner.group, owner.shell) == (2001, "physics", "/bin/sh")


@pytest.mark.parametrize(
    ("entry", "user", "group", "fault", "why"),
    [
        ({}, "bob", "", "site", "not known on this node"),
        ({}, "alice", "nobody-knows", "site", "not known on this node"),
        ({}, "alice", "others", "user", "not a member"),
        ({}, "alice", "root", "user", "root's group"),
        ({"pw_uid": 0}, "alice", "", "user", "jobs of root"),
        ({"pw_dir": "home"}, "alice", "", "site", "no usable form"),
        ({"pw_shell": "/bin/\nsh"}, "alice", "", "site", "no usable form"),
        ({}, "a b", "", "user", "cannot be given"),
        ({}, "../x", "", "user", "cannot be given"),
    ],
)
def test_owner_that_no_guest_may_have_is_refused(
    monkeypatch: pytest.MonkeyPatch, entry: dict[str, t.Any], user: str, group: str, fault: str, why: str
) -> None:
    Directory(monkeypatch, **entry)
    with pytest.raises(VTorqueError) as caught:
        owner_of(user, group)
    assert caught.value.fault == fault
    assert why in str(caught.value)
