# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One job in a Debian guest, set up by the real cloud-init."""

from __future__ import annotations

from .conftest import Site

LOOK = r"""#!/bin/bash
. /etc/os-release
echo "$ID $VERSION_ID"
id -un; id -u; id -g
cloud-init --version >/dev/null 2>&1 && echo cloud-init
test -s "$PBS_NODEFILE" && echo node file
sudo -n true 2>/dev/null && echo POWER
ls -A "$HOME" | wc -l
echo complaint >&2
exit 37
"""


def test_job_in_a_debian_guest(site: Site) -> None:
    """The distribution's system, the user's ids, no power, streams apart, status exact."""
    script = site.write("/home/alice/look.sh", LOOK)
    ended = site.job("-vm", "img=debian12,ram=512M", script)
    assert ended.out.splitlines()[:6] == ["debian 12", "alice", "1001", "1001", "cloud-init", "node file"]
    assert "POWER" not in ended.out
    assert ended.err == "complaint\n"
    assert ended.exit_status == 37
