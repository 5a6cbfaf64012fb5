# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever the user gives qsub, a submission only adds to it; the whole command line is covered in test_vsub."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job import directives
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.policy import NodeSize, Offers, Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.qsub_arguments import Arguments
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request import Request, RequestErrors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.submission import Site, Submission, prepare
from hypothesis import given, settings
from hypothesis import strategies as st

POLICY = Policy(img_default="tiny", distro_default="debian", vcpus_default=2, ram_default=512)
SITE = Site(Offers(None), {}, lambda: [NodeSize("n1", 16, 65536)])


def submission(words: list[str], script: bytes = b"", policy: Policy = POLICY) -> Submission:
    return prepare(Arguments.read(words), directives.read(script, "job.sh"), policy, SITE, "/home/alice")


TEXT = st.text("ab =,:*'\"$\\é-", max_size=6)
OPTION = st.one_of(
    st.tuples(st.sampled_from(["-F", "-N", "-A", "-o", "-e", "-M", "-q", "-W", "-v"]), TEXT).map(list),
    st.sampled_from(
        [["-z"], ["-h"], ["-rn"], ["-Vz"], ["-lwalltime=60"], ["-vm", "vcpus=1"], ["-l", "nodes=n1:ppn=8"]]
    ),
)


@settings(deadline=None)
@given(st.lists(OPTION, max_size=6), st.sampled_from([[], ["job.sh"], ["-"]]))
def test_words_of_qsub_come_through_in_order(options: list[list[str]], operand: list[str]) -> None:
    words = [word for option in options for word in option] + operand
    done = submission(words).arguments
    mine = [word for option in options if option[0] != "-vm" for word in option] + operand
    assert list(done.words[len(done.words) - len(mine) :]) == mine
    added = Arguments.read(done.words[: len(done.words) - len(mine)])
    assert {option.name for option in added.options} <= {"S", "W", "l", "n"}
    assert added.operands == ()
    request = Request.decode((added.last("W") or "").removeprefix("x="))
    assert request is not None
    assert request.values == ({"vcpus": 1} if ["-vm", "vcpus=1"] in options else {})


@settings(deadline=None)
@given(st.lists(st.text("-vmlSTdtnodes=:1,ppn/x ", max_size=12), max_size=5), st.binary(max_size=60))
def test_any_words_give_a_submission_or_our_faults(words: list[str], script: bytes) -> None:
    try:
        done = submission(words, b"#PBS -vm vcpus=1\n#PBS " + script)
    except RequestErrors:
        return
    resources = done.arguments.resources()
    assert "vtorque" in resources["other"].split("+")
    assert done.arguments.all("vm") == ()
    assert len(done.arguments.all("S")) == 1


SHARED = dataclasses.replace(POLICY, vm_nfs_home="fs:/home")


@pytest.mark.parametrize("words", [["-d", "/home/alice/run"], ["-v", "A=1,PBS_O_INITDIR=/home/alice/run"]])
def test_start_directory_must_be_there_in_the_guest(words: list[str]) -> None:
    assert submission(words, policy=SHARED)
    with pytest.raises(RequestErrors, match=r"no such directory in the guest; it has your home, /home/alice \(empty\)"):
        submission(words)
    assert submission(["-d", "/home/alice/"])


def test_work_directory_is_only_a_variable() -> None:
    assert submission(["-w", "/usr"]).arguments.last("w") == "/usr"


def test_command_that_lies_in_a_home_which_guests_do_not_have_is_refused() -> None:
    words = ["-I", "-x", "/home/alice/bin/look", "a b"]
    assert list(submission(words, policy=SHARED).arguments.words[-4:]) == words
    with pytest.raises(RequestErrors, match="lies in your home, and the guest's is empty"):
        submission(words)
