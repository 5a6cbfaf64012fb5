# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which directories of the cluster a guest has."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission.start_directory import (
    is_below,
    objection,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

HOME = "/home/alice"
ALL = Policy(
    vm_nfs_home="fs:/home", vm_nfs_ws="fs:/ws", vm_nfs_opt="fs:/opt", mounts=("fs:/data /data nfs ro", "malformed")
)


@pytest.mark.parametrize(
    ("policy", "there", "missing"),
    [
        (Policy(), (HOME, "/home/alice/"), ("/home/alice/run", "/workspace", "/data", "/", "/home/alicex")),
        (Policy(home_via="virtiofs"), ("/home/alice/run",), ("/workspace/x",)),
        (
            ALL,
            ("/home/alice/a/b", "/workspace", "/scratch/x", "/opt-hpc/y", "/data/z", "/workspace/a/../b"),
            ("/home/bob", "/workspaces", "/opt", "/tmp", "/home/alice/../bob", "/data/../etc"),
        ),
    ],
)
def test_start_directory_below_a_mount_is_there(
    policy: Policy, there: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    assert {path: objection(path, policy, HOME) for path in there} == dict.fromkeys(there, "")
    assert all(objection(path, policy, HOME) for path in missing)


def test_words_name_what_there_is() -> None:
    assert objection("/usr", ALL, HOME) == (
        "no such directory in the guest; it has /home/alice, /workspace, /scratch, /opt-hpc, /data"
    )
    assert objection("/usr", Policy(), HOME) == "no such directory in the guest; it has your home, /home/alice (empty)"


def test_root_covers_everything() -> None:
    assert is_below("/usr", ("/",))
    assert not is_below("/usr", ())
