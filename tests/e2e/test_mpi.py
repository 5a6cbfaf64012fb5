# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs over all guests of a job: Open MPI of the distribution in Debian guests, pbsdsh and ssh in any."""

from __future__ import annotations

import base64
import re
import subprocess

import pytest

from .conftest import CHECKOUT, Ended, Site

PLACE = CHECKOUT / "build/mpi"
DEBIAN = "img=debian12,ram=512M"


@pytest.fixture(scope="session")
def ring() -> str:
    """Lines of shell that put the program into every guest of a job, as /tmp/ring, over the job's ssh."""
    subprocess.run([CHECKOUT / "tests/e2e/mpi/build.sh", PLACE], check=True, timeout=600)
    program = base64.encodebytes((PLACE / "ring").read_bytes()).decode()
    return f"""base64 -d >/tmp/ring.new <<'PROGRAM'
{program}PROGRAM
chmod 755 /tmp/ring.new
cp /tmp/ring.new /tmp/ring
for host in $(sort -u "$PBS_NODEFILE" | grep -vxF "$(hostname)"); do
    ssh "$host" 'cat >/tmp/ring && chmod 755 /tmp/ring' </tmp/ring.new || exit
done
"""


def rounds(ended: Ended) -> list[tuple[int, int, str]]:
    """What the ranks of the ring said, in the order of their ranks: rank, number of ranks, host."""
    assert (ended.exit_status, ended.err) == (0, "")
    said = [re.fullmatch(r"rank (\d+) of (\d+) on (\S+) got (\d+)", line) for line in ended.out.splitlines()]
    ranks = sorted((int(match[1]), int(match[2]), match[3], int(match[4])) for match in said if match)
    assert [got for *_, got in ranks] == [sum(range(rank)) for rank, *_ in ranks]
    assert f"round with {sum(range(len(ranks)))}" in ended.out.splitlines()
    return [(rank, size, host) for rank, size, host, _got in ranks]


def test_mpirun_in_one_guest_starts_a_process_a_processor(site: Site, ring: str) -> None:
    """No option, no host file: as many as there are virtual processors."""
    ended = site.job("-vm", f"{DEBIAN},vcpus=2", stdin=f"{ring}exec mpirun /tmp/ring\n")
    ranks = rounds(ended)
    assert [(rank, size) for rank, size, _host in ranks] == [(0, 2), (1, 2)]
    assert len({host for *_, host in ranks}) == 1


def test_pbsdsh_in_one_guest(site: Site) -> None:
    """Found by PATH; a task a virtual processor, numbered; the greatest status."""
    script = "command -v pbsdsh; pbsdsh -s sh -c 'echo \"$PBS_VNODENUM $(hostname)\"; exit $((PBS_VNODENUM + 3))'\n"
    ended = site.job("-vm", "vcpus=2", stdin=script)
    place, *lines = ended.out.splitlines()
    host = lines[0].partition(" ")[2]
    assert (place, lines) == ("/usr/local/bin/pbsdsh", [f"0 {host}", f"1 {host}"])
    assert sorted(ended.err.splitlines()) == ["pbsdsh: task 0 exit status 3", "pbsdsh: task 1 exit status 4"]
    assert ended.exit_status == 4
