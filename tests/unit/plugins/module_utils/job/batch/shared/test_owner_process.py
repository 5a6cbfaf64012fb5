# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A child of root's that becomes a job's owner, and what is left to it of root."""

from __future__ import annotations

import grp
import json
import os
import pathlib
import pwd
import subprocess
import sys

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.shared import owner_process

NOBODY = pwd.getpwnam("nobody")
JOBS_GROUP = grp.getgrnam("games").gr_gid
"""Of the job, and not the user's own."""
OTHERS = [JOBS_GROUP, 4242, 4243]
LOOK = """\
import ctypes, json, os, re
status = open("/proc/self/status").read()
def refused(call, *arguments):
    try:
        call(*arguments)
    except PermissionError:
        return True
    return False
back = [refused(os.setuid, 0), refused(os.setgid, 0), refused(os.setgroups, [0]), refused(os.setresuid, 0, 0, 0)]
print(json.dumps({
    "ids": [os.getresuid(), os.getresgid()], "groups": sorted(os.getgroups()), "back": back,
    "privileges": re.findall(r"(?m)^(NoNewPrivs|Cap\\w+):\\s*(\\w+)", status),
}))
"""


def run_as(call: tuple[str, ...], *command: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*before, *call, *command], check=False, capture_output=True, text=True, timeout=60)


def test_owner_has_the_jobs_group_theirs_and_no_way_back() -> None:
    call = owner_process.become(NOBODY.pw_uid, JOBS_GROUP, [NOBODY.pw_gid, *OTHERS, 0])
    found = json.loads(run_as(call, sys.executable, "-I", "-c", LOOK).stdout)
    assert found["ids"] == [[NOBODY.pw_uid] * 3, [JOBS_GROUP] * 3]
    assert found["groups"] == sorted({NOBODY.pw_gid, *OTHERS}), "and none of root's"
    assert found["back"] == [True] * 4
    privileges = dict(found["privileges"])
    assert privileges.pop("NoNewPrivs") == "1"
    assert {name: int(value, 16) for name, value in privileges.items()} == dict.fromkeys(privileges, 0)


@pytest.mark.parametrize("right", ["setgid", "setuid"])
def test_nothing_is_run_where_a_step_fails(tmp_path: pathlib.Path, right: str) -> None:
    """Groups that cannot be set are not left as they were."""
    call = owner_process.become(NOBODY.pw_uid, JOBS_GROUP, OTHERS)
    without = ("/usr/bin/setpriv", f"--bounding-set=-{right}", f"--inh-caps=-{right}")
    done = run_as(call, "/usr/bin/touch", str(tmp_path / "ran"), before=without)
    assert done.returncode != 0
    assert "setpriv" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("uid", "gid"), [(0, 5), (5, 0), (-1, 5)])
def test_root_is_nobodys_owner(uid: int, gid: int) -> None:
    with pytest.raises(ValueError, match="never root"):
        owner_process.become(uid, gid, [])


def test_owner_is_as_this_host_knows_them_with_the_group_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgrouplist", lambda _user, gid: [gid, *OTHERS])
    assert owner_process.become_owner("nobody", "games") == owner_process.become(
        NOBODY.pw_uid, JOBS_GROUP, [NOBODY.pw_gid, *OTHERS]
    )
    own = owner_process.become_owner("nobody", "")
    assert own is not None
    assert f"--regid={NOBODY.pw_gid}" in own


@pytest.mark.parametrize(
    ("user", "group"), [("root", ""), ("nobody", "root"), ("nobody", "games"), ("nobody", "no-such"), ("no-such", "")]
)
def test_who_is_no_owner_or_no_member_is_nobody(user: str, group: str) -> None:
    assert owner_process.become_owner(user, group) is None
