# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job of a real Slurm finds in its guests: srun, scontrol, MPI's launchers, and nothing of the cluster's keys.

The commands are those of docs/user/slurm.md.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from ..conftest import CHECKOUT
from ..test_mpi import PLACE, put, ranks
from .conftest import SlurmSite

SRUN = r"""#!/bin/sh
unset SLURM_NTASKS # of the hosts' processors
scontrol show hostnames
echo "$SLURM_JOB_NODELIST"
echo each; srun hostname
echo four; srun -O -n 4 -l sh -c 'echo $SLURM_NODEID $SLURM_LOCALID $SLURM_STEP_ID $SLURM_NTASKS'
echo one; srun -O -N 1 -n 2 hostname
echo input; printf 'a\nb\n' | srun -n 2 wc -l
echo signal
srun -n 2 sh -c 'trap "echo caught; exit 3" USR1; : >up$SLURM_PROCID; while :; do sleep 1; done' &
until [ -e up0 ] && [ -e up1 ]; do sleep 1; done; rm up0 up1 # one that has set no trap would end by the signal
sleep 2; kill -USR1 $!; wait $!; echo "status $?"
srun --multi-prog x; echo "status $?"
scontrol show job $SLURM_JOB_ID; echo "status $?"
srun sh -c 'exit $((SLURM_PROCID + 6))'
"""


def test_srun_and_scontrol_work_over_the_guests_of_a_job(site: SlurmSite) -> None:
    ended = site.vm(SRUN, "-N2", "-n4")
    assert ended.out is not None
    hosts, _each, rest = ended.out.partition("each\n")
    *names, listed = hosts.splitlines()
    assert [re.sub("-[0-9]+$", "", name) for name in names] == ["vcn1", "vcn2"]
    assert listed == ",".join(names)
    each, _four, rest = rest.partition("four\n")
    assert sorted(each.splitlines()) == names
    four, _one, rest = rest.partition("one\n")
    assert sorted(four.splitlines()) == ["0: 0 0 1 4", "1: 0 1 1 4", "2: 1 0 1 4", "3: 1 1 1 4"]
    one, _input, rest = rest.partition("input\n")
    assert one.splitlines() == [names[0]] * 2
    read, _signal, rest = rest.partition("signal\n")
    assert read.split() == ["2", "2"]
    assert rest.splitlines().count("caught") == 2
    assert "status 3" in rest
    assert "srun: error: --multi-prog is not possible in a guest (srun --help says what is)\nstatus 1\n" in rest
    assert f"scontrol: error: 'show job {ended.number}' is not possible in a guest" in rest
    assert f"srun: error: {names[1]}: task 1: Exited with exit code 7" in rest
    assert (ended.state, ended.code) == ("FAILED", "7:0")


CLUSTERS = r"""#!/bin/sh
find / -xdev \( -name 'munge*' -o -name 'slurm.conf' -o -name 'slurm*.sock*' -o -name 'slurmd*' \
    -o -name 'slurmctld*' \) ! -path '/proc/*' ! -path '/sys/*' ! -path '/usr/share/*' 2>/dev/null
awk '$3 == "virtiofs" || $3 == "9p" || $3 == "nfs" || $3 == "nfs4" { print $2 }' /proc/self/mounts | sort -u |
    while read -r place; do echo "mounted $place"; done
grep -a -i -l munge /proc/net/unix
env | grep -i 'munge\|SLURM_CONF\|6817'
echo looked
"""


def test_nothing_of_the_clusters_keys_reaches_a_guest(site: SlurmSite) -> None:
    """No key of munge, no slurm.conf, no socket of a daemon, no address of the controller; the home alone is shared."""
    ended = site.vm(CLUSTERS)
    assert ended.out is not None
    assert ended.out.splitlines() == ["mounted /home/alice", "looked"]
    found = site.root("cn1", "ls /etc/munge/munge.key /etc/slurm/slurm.conf /run/munge")
    assert "munge.key" in found, "the node has what is looked for"


@pytest.mark.full
def test_mpi_starts_over_all_guests_without_a_word_of_the_user(site: SlurmSite) -> None:
    """Open MPI of Debian: mpirun and mpiexec over the default host file, and srun of a program of MPI by them."""
    subprocess.run([CHECKOUT / "tests/e2e/mpi/build.sh", PLACE], check=True, timeout=600)
    script = f"""#!/bin/bash
cat "$VTORQUE_HOSTS"
{put((PLACE / "ring").read_bytes(), "/home/alice/ring")}
echo mpirun; mpirun /home/alice/ring || exit
echo mpiexec; mpiexec /home/alice/ring || exit
echo srun; srun -n 2 /home/alice/ring || exit
echo pmix; srun --mpi=pmix /home/alice/ring || exit
"""
    vm = {"img": "debian12", "ram": "512M", "vcpus": "1"}
    number = site.submit_vm(script, "-N2", "-n2", "-c2", "--mem=2G", vm=vm)
    ended = site.ended(number)
    assert ended.out is not None
    parts = re.split(r"^(?:mpirun|mpiexec|srun|pmix)\n", ended.out, flags=re.MULTILINE)
    hosts = parts[0].split()
    assert {host.rpartition("-")[0] for host in hosts} == {"vcn1", "vcn2"}
    assert [ranks(part) for part in parts[1:]] == [[(0, 2, hosts[0]), (1, 2, hosts[1])]] * 4
    assert (ended.state, ended.code) == ("COMPLETED", "0:0")
