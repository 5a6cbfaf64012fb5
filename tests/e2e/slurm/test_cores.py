# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a shared node each thread of a job's guests stays on the cores that Slurm has given the job, by its own cpuset."""

from __future__ import annotations

from ..test_confined import SHARED, cores
from ..trouble import NODES, changed
from .conftest import SlurmSite

CPUSET = (
    "cat /sys/fs/cgroup/cpuset/slurm*/uid_*/job_{0}/cpuset.cpus || cat /sys/fs/cgroup/*.slice/*/job_{0}/cpuset.cpus"
)
DIRECTORIES = "ls -d /sys/fs/cgroup/*/slurm*/uid_*/job_{0} /sys/fs/cgroup/*.slice/*/job_{0} 2>/dev/null; true"
WAITS = "#!/bin/sh\necho begun\nuntil [ -e ~/go ]; do sleep 0.2; done\n"
ALONE = ("-n1", "-w", "cn1")


def begun(site: SlurmSite, number: str) -> None:
    site.wait_for("the script to begin", lambda: "begun" in site.read(f"/home/alice/slurm-{number}.out"))


def test_guests_of_two_jobs_of_one_node_stay_each_on_the_cores_of_its_own(site: SlurmSite) -> None:
    """While the second boots, the first, which is bare, has its core for itself."""
    site.root("fe", "rm -f /home/alice/go")
    with changed(site, ("fe", *NODES), **SHARED):
        bare = site.sbatch(*ALONE, "--mem=100M", script=WAITS)
        begun(site, bare)
        number = site.submit_vm(WAITS, *ALONE)
        site.wait_for("qemu", lambda: site.on("cn1", "pgrep", "-f", "guest=vcn1").returncode == 0)
        (others,) = site.root("cn1", CPUSET.format(bare)).split()
        assert others not in cores(site, "cn1", least=1)
        begun(site, number)
        (own,) = site.root("cn1", CPUSET.format(number)).split()
        assert own != others
        site.wait_for("all threads there", lambda: cores(site, "cn1") == {own}, seen=lambda: cores(site, "cn1"))
        assert site.root("cn1", DIRECTORIES.format(number))
        site.root("fe", "touch /home/alice/go")
        assert [site.ended(one).code for one in (bare, number)] == ["0:0", "0:0"]
        site.wait_for(
            "no cgroup of Slurm's to be left of it",
            lambda: not site.root("cn1", DIRECTORIES.format(number)),
            seen=lambda: site.root("cn1", DIRECTORIES.format(number)),
        )
