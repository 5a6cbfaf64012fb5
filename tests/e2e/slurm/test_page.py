# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of docs/user/slurm.md that are typed on a front end."""

from __future__ import annotations

import re

import pytest

from ..terminal import Terminal
from .conftest import SlurmSite

SCRIPT = "#!/bin/sh\n#SBATCH -t 10\n#VM vcpus=1\nsrun hostname\n"
GUEST = r"vcn[12]-[0-9]+\n"


@pytest.mark.full
def test_commands_of_the_page_run_in_guests(site: SlurmSite) -> None:
    site.write("/home/alice/job.sh", SCRIPT)
    for line, out in (
        ("vsbatch job.sh", GUEST),
        ("vsbatch -N2 -vm vcpus=1 job.sh", GUEST * 2),
        ("vsbatch -vm vcpus=1 --wrap hostname", GUEST),
    ):
        done = site.on("fe", "sh", "-c", f"cd; {line}", user="alice")
        assert done.returncode == 0, done.stderr
        ended = site.ended(done.stdout.split()[-1])
        assert re.fullmatch(out, ended.out or ""), line
        assert (ended.state, ended.code) == ("COMPLETED", "0:0")
    found = site.on("fe", "vsalloc", "-vm", "vcpus=1", "hostname", user="alice")
    assert (found.returncode, bool(re.fullmatch(GUEST, found.stdout))) == (0, True), found.stderr
    terminal = Terminal(site, "setsid", "--ctty", "--wait", "vsalloc", "-vm", "vcpus=1")
    terminal.expect("Granted job allocation")
    terminal.type("exit 4")
    assert terminal.close() == 4
