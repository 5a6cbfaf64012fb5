# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's lists of hosts; lab/tests/slurm/test_host_list.py compares them with `scontrol show hostnames`."""

from __future__ import annotations

import re
import time

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import host_list
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import HOST_NAME
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", "n1"),
        ("cn1.site.example", "cn1.site.example"),
        ("n[1-2,5],m07", "n1 n2 n5 m07"),
        ("n[5,1-2]", "n5 n1 n2"),
        ("n[0-0]", "n0"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[099-101]", "n099 n100 n101"),
        ("n[9-10]", "n9 n10"),
        ("n-[1-2],rack2-n[3]", "n-1 n-2 rack2-n3"),
        ("a[1-2]b[1-2]", "a1b1 a1b2 a2b1 a2b2"),
        ("n[1-2][03-04]", "n103 n104 n203 n204"),
    ],
)
def test_expand_what_slurm_writes_gives_the_hosts_in_its_order(text: str, hosts: str) -> None:
    assert list(host_list.expand(text)) == hosts.split()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "an empty place is no name"),
        ("(null)", r"\(null\) is no name"),
        ("n1,", "an empty place"),
        ("n1,,n2", "an empty place"),
        (" n1", " n1 is no name"),
        ("n1 n2", "n1 n2 is no name"),
        ("n1\n", r"n1\? is no name"),
        ("n[1-2", "brackets"),
        ("n1]", "brackets"),
        ("n[[1-2]]", "brackets"),
        ("n[]", "is no name"),
        ("n[1-2,]", "nothing in brackets"),
        ("n[,1]", "nothing in brackets"),
        ("n[-2]", "-2 in brackets"),
        ("n[1-2-3]", "1-2-3 in brackets"),
        ("n[2-1]", "2-1 is no range"),
        ("n[010-9]", "010-9 is no range"),
        ("n[1-010]", "does not say how many digits"),
        ("n[\u0661-\u0662]", "is no name"),
        ("n[ 1-2]", "is no name"),
        ("n[1-2]x", "behind the brackets"),
        ("n[1-2].site", "behind the brackets"),
        ("n[1,1]", "names n1 twice"),
        ("n[1-3],n2", "names n2 twice"),
        ("n;reboot", "is no name"),
        ("../n1", "is no name"),
        ("..", "is no host's name"),
        ("-o[1-2]", "is no host's name"),
        ("n[1-65537]", "more than 65536"),
        ("n[1-65536],m", "more than 65536"),
        ("a[1-257]b[1-257]", "more than 65536"),
        ("a[1-2]" + "b[1-2]" * 40, "more than 65536"),
        ("n[1-99999999999999999999]", "is no range"),
        ("n[0000000000000000001-2]", "is no range"),
        ("n" * 200_000, "at most 131072"),
    ],
)
def test_expand_what_is_no_list_of_slurm_s_is_refused_with_the_reason(text: str, why: str) -> None:
    begin = time.process_time()
    with pytest.raises(SiteFault, match=why) as caught:
        host_list.expand(text)
    assert time.process_time() - begin < 5
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


def test_expand_as_many_hosts_as_slurm_takes_gives_them_all() -> None:
    hosts = host_list.expand("n[00001-65536]")
    assert (len(hosts), hosts[0], hosts[-1]) == (65_536, "n00001", "n65536")


SPANS = st.tuples(st.integers(0, 2000), st.integers(0, 30), st.integers(1, 5))
ITEMS = st.lists(
    st.tuples(st.sampled_from(["n", "rack1-", "a0b"]), st.lists(SPANS, min_size=1, max_size=4)), max_size=4
)


@given(ITEMS, st.lists(st.sampled_from(["login", "gpu.site", "x-1"]), unique=True, min_size=1))
def test_expand_of_written_ranges_is_what_was_written(
    items: list[tuple[str, list[tuple[int, int, int]]]], plain: list[str]
) -> None:
    texts, hosts = list(plain), list(plain)
    for name, spans in items:
        arguments = []
        for first, more, width in spans:
            low, high = f"{first:0{width}d}", f"{first + more:0{width}d}"
            arguments.append(low if not more else f"{low}-{high}")
            hosts += [f"{name}{number:0{width}d}" for number in range(first, first + more + 1)]
        texts.append(f"{name}[{','.join(arguments)}]")
    if len(set(hosts)) == len(hosts):
        assert list(host_list.expand(",".join(texts))) == hosts
    else:
        with pytest.raises(SiteFault, match="twice"):
            host_list.expand(",".join(texts))


@given(st.text(st.sampled_from("n01259[]-,. ax\n\u0663"), max_size=24))
def test_expand_of_any_text_gives_hosts_or_an_error_of_ours(text: str) -> None:
    try:
        hosts = host_list.expand(text)
    except SiteFault:
        return
    assert len(set(hosts)) == len(hosts) > 0
    assert all(re.fullmatch(HOST_NAME, host) for host in hosts)
