# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The product's reading of Slurm's lists of hosts, beside Slurm's own; no lab is needed for that."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import host_list
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

CONFIGURATION = "ClusterName=x\nSlurmctldHost=fe\nNodeName=n1\nPartitionName=p Nodes=n1\n"


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text(CONFIGURATION)
    return path


def of_slurm(configuration: pathlib.Path, what: str, text: str) -> list[str]:
    """What `scontrol show hostnames` or `hostlist` makes of a text; it ends with 0 in any case."""
    done = subprocess.run(
        ["/usr/bin/scontrol", "show", what, text], capture_output=True, text=True, timeout=60,
        env={"SLURM_CONF": str(configuration)}, check=False,
    )  # fmt: skip
    return done.stdout.split()


SPANS = st.tuples(st.integers(0, 300), st.integers(0, 12), st.integers(1, 4))
NAMES = st.tuples(st.sampled_from(["n", "m0", "r1-"]), SPANS)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(NAMES, min_size=1, max_size=5))
def test_expand_what_slurm_writes_of_any_hosts_is_what_slurm_makes_of_it(
    configuration: pathlib.Path, names: list[tuple[str, tuple[int, int, int]]]
) -> None:
    hosts = {f"{name}{n:0{width}d}" for name, (first, more, width) in names for n in range(first, first + more + 1)}
    (text,) = of_slurm(configuration, "hostlist", ",".join(sorted(hosts)))
    expanded = host_list.expand(text)
    assert set(expanded) == hosts
    assert list(expanded) == of_slurm(configuration, "hostnames", text)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(["n", "a", "[", "]", "[1-", "0", "9", "10", "-", ",", "."]), max_size=9).map("".join))
def test_expand_what_it_takes_is_read_as_slurm_reads_it(configuration: pathlib.Path, text: str) -> None:
    try:
        hosts = host_list.expand(text)
    except SiteFault:
        assume(False)
    assert list(hosts) == of_slurm(configuration, "hostnames", text)


@pytest.mark.parametrize("text", ["n[1-2,5],m07", "n[08-11]", "n[099-101]", "a[1-2]b[1-2]", "n[1-2][03-04]", "cn1.a.b"])
def test_expand_of_a_list_is_slurm_s_own(configuration: pathlib.Path, text: str) -> None:
    assert list(host_list.expand(text)) == of_slurm(configuration, "hostnames", text)
