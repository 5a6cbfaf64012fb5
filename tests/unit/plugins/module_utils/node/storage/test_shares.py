# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests mount: the user's own home, never all of them, and what the site wants, without any power in it."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage.shares import Share, plan_mounts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists.mounts import Mount, read_line
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import Owner

OWNER = Owner("alice", 1001, 1001, "alice", "/home/alice", "/bin/sh")


def planned(home: str = "/home/alice", **settings: t.Any) -> tuple[tuple[Mount, ...], tuple[Share, ...]]:
    found = plan_mounts(NodeSettings("cn1", 1, **settings), dataclasses.replace(OWNER, home=home))
    return found.mounts, found.shares


def test_site_that_says_nothing_shares_nothing() -> None:
    assert planned() == ((), ())


@pytest.mark.parametrize(
    ("home", "source"),
    [
        ("/home/alice", "fs:/export/alice"),
        ("/home/chem/alice", "fs:/export/chem/alice"),
        ("/users/a/alice", "fs:/export/alice"),
        ("/homes/alice", "fs:/export/alice"),
    ],
)
def test_home_by_nfs_is_the_users_own(home: str, source: str) -> None:
    mounts, shares = planned(home, home_export="fs:/export/")
    assert mounts == (Mount("nfs", source, home, "nosuid,nodev"),)
    assert shares == ()


def test_home_by_virtiofs_is_where_the_node_has_it() -> None:
    mounts, shares = planned(home_via="virtiofs", home_export="fs:/export")
    assert mounts == (Mount("virtiofs", "vtorque0", "/home/alice", "nosuid,nodev"),)
    assert shares == (Share("vtorque0", "virtiofs", "/home/alice"),)


@pytest.mark.parametrize("home", ["/", "/usr", "/usr/lib/x", "/home", "/home/", "/etc/x", "/home/../etc", "/home//a"])
@pytest.mark.parametrize("via", [{"home_via": "virtiofs"}, {"home_export": "fs:/export"}])
def test_home_that_the_systems_own_files_are_in_is_the_sites_fault(home: str, via: dict[str, str]) -> None:
    with pytest.raises(SiteFault, match="no place of one user"):
        planned(home, **via)


def test_every_mount_is_without_devices_and_setuid_whatever_the_site_says() -> None:
    lines = ("fs:/ws /workspace nfs vers=4.2,hard", "/srv/opt /opt-hpc virtiofs ro", "/srv/9 /data 9p")
    mounts, shares = planned(mounts=tuple(map(read_line, lines)))
    assert [(mount.source, mount.options) for mount in mounts] == [
        ("fs:/ws", "vers=4.2,hard,nosuid,nodev"), ("vtorque1", "ro,nosuid,nodev"), ("vtorque2", "ro,nosuid,nodev"),
    ]  # fmt: skip
    assert shares == (Share("vtorque1", "virtiofs", "/srv/opt"), Share("vtorque2", "9p", "/srv/9"))


@pytest.mark.parametrize("line", ["/srv/x /home/alice/x virtiofs", "/srv/x /home/alice virtiofs"])
def test_mount_within_another_is_the_sites_fault(line: str) -> None:
    with pytest.raises(SiteFault, match="would hold it"):
        planned(home_via="virtiofs", mounts=(read_line(line),))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fs:/ws /workspace", "source target kind"),
        ("fs:/ws /workspace smb", "source target kind"),
        ("/ws /workspace nfs", "source target kind"),
        ("fs:/ws /workspace virtiofs", "source target kind"),
        ("fs:/ws workspace nfs", "may be mounted over"),
        ("fs:/ws /etc nfs", "may be mounted over"),
        ("fs:/ws / nfs", "may be mounted over"),
        ("fs:/ws /usr/lib/x nfs", "may be mounted over"),
        ("fs:/ws /x/../etc nfs", "may be mounted over"),
        ("fs:/ws /workspace nfs a,,b", "joined by commas"),
        ("fs:/ws /workspace nfs hard,suid", "nosuid,nodev"),
        ("fs:/ws /workspace nfs $(id)", "joined by commas"),
    ],
)
def test_line_of_no_usable_form_is_named(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_line(line)


@pytest.mark.parametrize("source", ["fs:/", "10.0.0.1:/a/b", "[fe80::1]:/a", "fs.example.org:/home"])
def test_exports_of_every_form_are_read(source: str) -> None:
    assert read_line(f"{source} /workspace/ nfs") == Mount("nfs", source, "/workspace")
