# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs over all guests of a job: Open MPI of the distribution in Debian guests, pbsdsh and ssh in any."""

from __future__ import annotations

import base64
import re
import subprocess

import pytest

from .conftest import CHECKOUT, Site

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


def ranks(out: str) -> list[tuple[int, int, str]]:
    """What the ranks of the ring said, in their order: rank, number of ranks, host; the number went round them all."""
    said = [re.fullmatch(r"rank (\d+) of (\d+) on (\S+) got (\d+)", line) for line in out.splitlines()]
    found = sorted((int(match[1]), int(match[2]), match[3], int(match[4])) for match in said if match)
    assert [got for *_, got in found] == [sum(range(rank)) for rank, *_ in found]
    assert f"round with {sum(range(len(found)))}" in out.splitlines()
    return [(rank, size, host) for rank, size, host, _got in found]


def test_mpirun_over_two_nodes(site: Site, ring: str) -> None:
    """As an ordinary user, over the node file and without any: a process a virtual processor, in both guests."""
    script = f"""{ring}mpirun --hostfile "$PBS_NODEFILE" /tmp/ring || exit
echo again
mpirun /tmp/ring || exit
cat "$PBS_NODEFILE"
"""
    ended = site.job("-l", "nodes=2", "-vm", f"{DEBIAN},vcpus=1", stdin=script)
    assert (ended.exit_status, ended.err) == (0, "")
    given, _again, found = ended.out.partition("again\n")
    hosts = found.splitlines()[-2:]
    assert {host.rpartition("-")[0] for host in hosts} == {"vcn1", "vcn2"}
    assert ranks(given) == ranks(found) == [(0, 2, hosts[0]), (1, 2, hosts[1])]


def test_pbsdsh_in_one_guest(site: Site) -> None:
    """Found by PATH; a task a virtual processor, numbered; the greatest status."""
    script = "command -v pbsdsh; pbsdsh -s sh -c 'echo \"$PBS_VNODENUM $(hostname)\"; exit $((PBS_VNODENUM + 3))'\n"
    ended = site.job("-vm", "vcpus=2", stdin=script)
    place, *lines = ended.out.splitlines()
    host = lines[0].partition(" ")[2]
    assert (place, lines) == ("/usr/local/bin/pbsdsh", [f"0 {host}", f"1 {host}"])
    assert sorted(ended.err.splitlines()) == ["pbsdsh: task 0 exit status 3", "pbsdsh: task 1 exit status 4"]
    assert ended.exit_status == 4


SSH = """
set -- $(sort -u "$PBS_NODEFILE")
for host; do ssh "$host" hostname; done
[ "$1" = "$(hostname)" ] || set -- "$2" "$1"
ssh "$2" "ssh $1 hostname"
ssh "$2" 'exit 37'
echo "$?"
"""


def test_guests_reach_each_other_by_ssh_without_a_question(site: Site) -> None:
    """Each by its name, from each; the exact status."""
    ended = site.job("-l", "nodes=2", "-vm", "vcpus=1", stdin=f'cat "$PBS_NODEFILE"\n{SSH}')
    first, second, *said, back, status = ended.out.splitlines()
    assert (ended.exit_status, ended.err) == (0, "")
    assert (said, back, status) == (sorted([first, second]), first, "37")


def test_pbsdsh_over_two_nodes(site: Site) -> None:
    """A task a virtual processor, wherever it is; with -u one a guest; variables go along."""
    script = """cat "$PBS_NODEFILE"
export WORDS="it's  two
lines"
pbsdsh sh -c 'echo "$PBS_NODENUM $PBS_VNODENUM $(hostname)"' | sort
pbsdsh -u sh -c 'exit $((PBS_NODENUM + 5))'
echo "$?"
pbsdsh -n 2 sh -c 'printf "%s|" "$WORDS" "$HOME" "$(pwd)"'
"""
    ended = site.job("-l", "nodes=2", "-vm", "vcpus=2", stdin=script)
    lines = ended.out.splitlines()
    hosts = lines[:4]
    assert hosts == [hosts[0], hosts[0], hosts[2], hosts[2]]
    assert hosts[0] != hosts[2]
    assert lines[4:8] == [f"{n // 2} {n} {hosts[n]}" for n in range(4)]
    assert lines[8] == "6"
    assert "\n".join(lines[9:]) == "it's  two\nlines|/home/alice|/home/alice|"
    assert sorted(ended.err.splitlines()) == ["pbsdsh: task 0 exit status 5", "pbsdsh: task 1 exit status 6"]
