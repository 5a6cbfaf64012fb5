# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs over all guests of a job: Open MPI of the distribution in Debian guests, pbsdsh and ssh in any."""

from __future__ import annotations

import base64
import json
import re
import subprocess

import pytest

from .conftest import CHECKOUT, JOB_TIMEOUT_S, Result, Site
from .trouble import WAITS, check_logins, finish, logins

PLACE = CHECKOUT / "build/mpi"
DEBIAN = "img=debian12,ram=512M"


@pytest.fixture(scope="session")
def programs() -> dict[str, bytes]:
    """What is built for the guests' Open MPI, by name."""
    subprocess.run([CHECKOUT / "tests/e2e/mpi/build.sh", PLACE], check=True, timeout=600)
    return {name: (PLACE / name).read_bytes() for name in ("ring", "mca_plm_tm.so", "mca_ras_tm.so")}


@pytest.fixture(scope="session")
def ring(programs: dict[str, bytes]) -> str:
    """Lines of shell that put the program into every guest of a job, as /tmp/ring, over the job's ssh."""
    return f"""{put(programs["ring"], "/tmp/ring")}
for host in $(sort -u "$HOSTS" | grep -vxF "$(hostname)"); do
    ssh "$host" 'cat >/tmp/ring && chmod 755 /tmp/ring' </tmp/ring || exit
done
"""


@pytest.fixture(scope="session")
def with_tm(programs: dict[str, bytes]) -> str:
    """Lines of shell that give the user's Open MPI components `tm`, which say when they are asked (mpi/tm.c)."""
    place = "$HOME/.openmpi/components"
    return f"mkdir -p {place}\n" + "\n".join(
        put(programs[name], f"{place}/{name}") for name in ("mca_plm_tm.so", "mca_ras_tm.so")
    )


def put(program: bytes, place: str) -> str:
    """Lines of shell that write a program to a place."""
    return f"base64 -d >{place} <<'PROGRAM' && chmod 755 {place}\n{base64.encodebytes(program).decode()}PROGRAM"


def ranks(out: str) -> list[tuple[int, int, str]]:
    """What the ranks of the ring said, in their order: rank, number of ranks, host; the number went round them all."""
    output = [re.fullmatch(r"rank (\d+) of (\d+) on (\S+) got (\d+)", line) for line in out.splitlines()]
    found = sorted((int(match[1]), int(match[2]), match[3], int(match[4])) for match in output if match)
    assert [got for *_, got in found] == [sum(range(rank)) for rank, *_ in found]
    assert f"round with {sum(range(len(found)))}" in out.splitlines()
    return [(rank, size, host) for rank, size, host, _got in found]


STALE = """
mkdir -p "$HOME/.ssh" && ssh-keygen -q -t ed25519 -N '' -f /tmp/other || exit
for host in $(sort -u "$HOSTS"); do echo "$host $(cat /tmp/other.pub)"; done >"$HOME/.ssh/known_hosts"
"""
"""What the user's own file says of guests that had these names before."""
WAYS = """
hosts=$(cat "$HOSTS")
for from in $hosts; do
    ssh "$from" "for to in $(echo $hosts); do ssh \\$to 'echo way $from \\$(hostname) \\$(id -un)'; done" </dev/null
done
for host in $hosts; do ssh "root@$host" echo IN </dev/null; echo "root $?"; done
set -- $hosts
# as if the first answered in the place of the second
ssh -o HostKeyAlias="$2" "$1" echo IN </dev/null; echo "other $?"
"""


@pytest.mark.both
@pytest.mark.full
def test_mpirun_over_two_nodes(site: Site, ring: str, with_tm: str) -> None:
    """As an ordinary user, over the node file and without any: a process a virtual processor, in both guests.

    What Open MPI has for the batch system is asked only without what the job's environment says of it.  OpenSSH goes
    each way, whatever the user's own known_hosts says, to nobody that answers in another's place, and not to root, from
    a guest or from the node.
    """
    asks, asked = site.batch.untold
    script = f"""HOSTS=${site.batch.hosts}
{STALE}{ring}{with_tm if site.batch.name == "torque" else ""}
mpirun --hostfile "$HOSTS" /tmp/ring || exit
echo again
mpirun /tmp/ring || exit
cat "$HOSTS"
echo untold
env -u OMPI_MCA_plm -u OMPI_MCA_ras mpirun /bin/true 2>&1 | grep -o '{asks}'
rm -rf "$HOME/.openmpi"
echo ways
{WAYS}{WAITS}"""
    job_id = site.submit(*site.batch.two, "-vm", f"{DEBIAN},vcpus=1", stdin=script)
    node = site.runs(job_id)

    # twice as long as for others: the guests' boot is in it, and each ssh takes its time under emulation
    def is_through() -> bool:
        return site.facts(job_id)["job_state"] == "C" or "other " in site.output_so_far(job_id)

    site.wait_for("the last way", is_through, timeout_s=2 * JOB_TIMEOUT_S)
    as_user, as_root = (from_the_node(site, node, job_id, user) for user in ("alice", "root"))
    ended = finish(site, job_id)
    assert as_user.stdout == "IN\n", as_user.stderr
    assert (as_root.returncode, as_root.stdout) == (255, "")
    assert "Permission denied" in as_root.stderr
    given, _again, rest = ended.out.partition("again\n")
    found, _untold, rest = rest.partition("untold\n")
    untold, _ways, ways = rest.partition("ways\n")
    hosts = found.splitlines()[-2:]
    assert {host.rpartition("-")[0] for host in hosts} == {"vcn1", "vcn2"}
    assert ranks(given) == ranks(found) == [(0, 2, hosts[0]), (1, 2, hosts[1])]
    assert set(untold.splitlines()) == asked
    every = [f"way {one} {other} alice" for one in hosts for other in hosts]
    assert ways.splitlines() == [*every, "root 255", "root 255", "other 255", "up", "on"]
    output = ended.err.splitlines()
    assert output[:2] == [f"root@{host}: Permission denied (publickey)." for host in hosts]
    assert output[-1] == "Host key verification failed."
    assert "tm" not in ended.err
    assert ended.exit_status == 0


OF_13 = """
for program in openmpi mpich; do
    mpirun.$program hostname | sort | sed "s/^/$program /"
    mpirun.$program -n 1 hostname | sed "s/^/one by $program /"
done
mpirun.openmpi --hostfile "$HOSTS" hostname | sort | sed 's/^/by file /'
"""


@pytest.mark.both
@pytest.mark.full
def test_open_mpi_5_and_mpich_4_over_two_nodes(site: Site, debian13: str) -> None:
    """Those of Debian 13, by no option: a process a virtual processor, in both guests."""
    request = f"img={debian13},ram=512M,vcpus=2"
    ended = site.job(*site.batch.two, "-vm", request, stdin=f'HOSTS=${site.batch.hosts}\ncat "$HOSTS"\n{OF_13}')
    assert (ended.err, ended.exit_status) == ("", 0)
    lines = ended.out.splitlines()
    hosts = lines[:4]
    assert hosts == [hosts[0], hosts[0], hosts[2], hosts[2]]
    expected = [
        [f"{name} {host}" for host in sorted(hosts)] + [f"one by {name} {hosts[0]}"] for name in ("openmpi", "mpich")
    ]
    assert lines[4:] == [*expected[0], *expected[1], *(f"by file {host}" for host in sorted(hosts))]


def from_the_node(site: Site, node: str, job_id: str, user: str) -> Result[str]:
    """alice on the mother superior tries the job's own key, and the address and host key that she may read there."""
    place = f"/run/vtorque/jobs/{site.full_id(job_id)}.1"
    guest = json.loads(site.on(node, "cat", f"{place}/ready.json", user="alice").stdout)["guests"][0]
    options = [f"UserKnownHostsFile={place}/known_hosts", f"HostKeyAlias={guest['name']}", "BatchMode=yes"]
    arguments = [word for option in options for word in ("-o", option)]
    key = f"{place}/job_key"
    return site.on(
        node, "ssh", "-F", "none", "-i", key, *arguments, "-l", user, guest["address"], "echo IN", user="alice"
    )


@pytest.mark.full
def test_many_logins_at_once_lose_none(site: Site) -> None:
    """OpenSSH of a distribution; the tiny guest's is another (test_mixed.py)."""
    ended = site.job("-vm", f"{DEBIAN},vcpus=1,vms_per_node=3", stdin=f'{logins("$1")}uniq "$PBS_NODEFILE" >&2\n')
    _first, *sources = ended.err.splitlines()
    check_logins(ended.out, *sources)
    assert ended.exit_status == 0


@pytest.mark.full
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
set -- $(sort -u "$HOSTS")
for host; do ssh "$host" hostname; done
[ "$1" = "$(hostname)" ] || set -- "$2" "$1"
ssh "$2" "ssh $1 hostname"
ssh "$2" 'exit 37'
echo "$?"
"""


@pytest.mark.both
@pytest.mark.full
def test_guests_reach_each_other_by_ssh_without_a_question(site: Site) -> None:
    """Each by its name, from each; the exact status."""
    script = f'HOSTS=${site.batch.hosts}\ncat "$HOSTS"\n{SSH}'
    ended = site.job(*site.batch.two, "-vm", "vcpus=1", stdin=script)
    first, second, *output, back, status = ended.out.splitlines()
    assert (ended.exit_status, ended.err) == (0, "")
    assert (output, back, status) == (sorted([first, second]), first, "37")


@pytest.mark.full
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
