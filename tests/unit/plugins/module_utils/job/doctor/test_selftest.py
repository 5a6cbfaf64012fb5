# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a self-test's job proves, and what it does not."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.registry import open_trial
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.doctor import selftest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.records.job_record import JobRecord
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import Finding

EXPECTED = selftest.ExpectedOutcome("ab12", "alice", 1001, 1002, "/home/alice", True, 2, ("cn1", "cn2.site"), True)
OUTPUT = """\
begin ab12
host vcn1-1
kernel 6.1
user 1001 1002 alice
home /home/alice
found ab12
counts 3 2 2
node vcn1-1
node vcn1-1
node vcn2-1
reached vcn2-1 vcn2-1
end ab12
"""
RAW = {
    "guests": [{"rank": 0, "name": "vcn1-1", "node": "cn1"}, {"rank": 1, "name": "vcn2-1", "node": "cn2"}],
    "exit_status": 23, "ended": 5.0, "left": [],
}  # fmt: skip
RECORD = JobRecord("7.fe", 1, pathlib.Path("/records/7.fe.1"), "", RAW)
CAME = selftest.JobOutcome(23, OUTPUT, "ab12 on standard error\n", "ab12\n", RECORD)


def found(expected: selftest.ExpectedOutcome = EXPECTED, **changes: t.Any) -> dict[str, Finding]:
    return {
        finding.check: finding for finding in selftest.check_outcome(expected, dataclasses.replace(CAME, **changes))
    }


def record(**changes: t.Any) -> JobRecord:
    return dataclasses.replace(RECORD, raw={**RAW, **changes})


def test_all_is_proven() -> None:
    proofs = found()
    assert list(proofs) == [proof for proof in selftest.PROOFS[2:] if proof != selftest.WORKLOAD]
    assert {finding.state for finding in proofs.values()} == {"ok"}
    assert not any(finding.problem for finding in proofs.values())


@pytest.mark.parametrize(
    ("proof", "changes", "message"),
    [
        ("exit status", {"exit_status": 0}, "is 0, and the script ended with 23"),
        ("exit status", {"exit_status": None, "record": None}, "is not known"),
        ("output", {"output": None}, "did not come"),
        ("output", {"output": "begin ab12\n"}, "is not whole: begin ab12"),
        ("output", {"output": OUTPUT + OUTPUT}, "is not whole"),
        ("errors", {"errors": None}, "did not come"),
        ("errors", {"errors": "vtorque: no\n"}, "is not what it wrote: vtorque: no"),
        ("errors", {"output": OUTPUT + "ab12 on standard error\n"}, "is not what it wrote"),
        ("machine", {"output": OUTPUT.replace("host vcn1-1", "host cn2")}, "in no virtual machine"),
        ("machine", {"output": OUTPUT.replace("host vcn1-1", "host vcn1-2")}, "its first guest is vcn1-1"),
        ("machine", {"output": ""}, "did not say"),
        ("user", {"output": OUTPUT.replace("1001 1002", "1001 1001")}, "is 1001 1001 alice in the guest"),
        ("home", {"output": OUTPUT.replace("home /home/alice", "home /root")}, "is /root in the guest"),
        ("home", {"output": OUTPUT.replace("found ab12", "found ")}, "is not there in the guest"),
        ("home", {"seen": ""}, "is not there here"),
        (
            "node file",
            {"output": OUTPUT.replace("node vcn2-1\n", "")},
            "names vcn1-1, and the guests are vcn1-1, vcn2-1",
        ),
        ("node file", {"output": OUTPUT.replace("counts 3", "counts 4")}, "has 3 lines of 2 hosts"),
        (
            "ssh",
            {"output": OUTPUT.replace("vcn2-1 vcn2-1", "vcn2-1 ")},
            "not reached by ssh from the first guest: vcn2-1",
        ),
        ("ssh", {"output": OUTPUT.replace("reached", "x")}, "the others"),
        ("leftovers", {"record": record(left=["vcn1-1"])}, "left behind: vcn1-1"),
        ("record", {"record": None}, "did not come to this host"),
        ("record", {"record": record(lost={"guest": "vcn1-1"})}, "says guest lost"),
    ],
)
def test_selftest_without_one_proof_fails_that_check_alone(proof: str, changes: dict[str, t.Any], message: str) -> None:
    finding = found(**changes)[proof]
    assert finding.state == "bad"
    assert message in finding.problem
    assert finding.remedy or proof == "exit status"


@pytest.mark.parametrize(
    ("proof", "changes", "message"),
    [
        ("output", {"output": "hello from .profile\n" + OUTPUT}, "something else writes"),
        ("errors", {"errors": "hello\nab12 on standard error\n"}, "hello"),
        ("leftovers", {"record": None}, "no record says"),
    ],
)
def test_selftest_with_a_weaker_proof_warns(proof: str, changes: dict[str, t.Any], message: str) -> None:
    finding = found(**changes)[proof]
    assert (finding.state, message in finding.problem) == ("warn", True)


@pytest.mark.parametrize("output", [OUTPUT.replace(" ", " \x1b]0;x\x07\x9b2J", 30), "\x1b[2J\n"], ids=["whole", "not"])
def test_selftest_output_is_printable(output: str) -> None:
    output = output.replace("begin \x1b]0;x\x07\x9b2J", "begin ").replace("end \x1b]0;x\x07\x9b2J", "end ")
    proofs = found(output=output, errors="\x1b[2Jno\n", record=record(left=["\x1b[2J"], guests=[]))
    texts = [text for one in proofs.values() for text in (one.problem, one.cell, one.remedy)]
    assert all(text.isprintable() for text in texts)
    assert any("?" in text for text in texts)
    assert proofs["user"].state == "bad"


def test_site_that_has_less_proves_less() -> None:
    """No shared homes, no records on front ends, one node."""
    less = dataclasses.replace(EXPECTED, home_is_shared=False, keeps_records=False, guests=1)
    one = OUTPUT.replace("node vcn2-1\nreached vcn2-1 vcn2-1\n", "").replace("counts 3 2", "counts 2 1")
    proofs = found(less, output=one.replace("found ab12", "found "), seen="", record=None)
    assert {name: proofs[name].state for name in ("home", "record", "ssh", "node file", "exit status")} == {
        "home": "none", "record": "none", "ssh": "none", "node file": "ok", "exit status": "ok",
    }  # fmt: skip


def test_forgetful_server_is_helped_by_the_record() -> None:
    assert found(exit_status=None)["exit status"].state == "ok"


@pytest.mark.parametrize(
    ("system", "node_file", "variables"),
    [
        ("torque", "PBS_NODEFILE", {"PBS_NP": "2", "PBS_NUM_NODES": "1"}),
        ("slurm", "HYDRA_HOST_FILE", {"SLURM_CPUS_ON_NODE": "2", "SLURM_JOB_NUM_NODES": "1"}),
    ],
)
def test_script_says_what_is_expected_of_it(
    tmp_path: pathlib.Path, system: str, node_file: str, variables: dict[str, str]
) -> None:
    """Run here, where it is in no virtual machine."""
    place = tmp_path / "it's mine"
    place.mkdir()
    (place / "token").write_text("ab12\n")
    host = subprocess.run(["uname", "-n"], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "nodes").write_text(f"{host}\n{host}\n")
    job = open_trial(system)
    (tmp_path / "job.sh").write_text(
        selftest.render_script("ab12", str(place), counts=job.COUNTS, node_file=job.NODE_FILE)
    )
    done = subprocess.run(
        ["sh", str(tmp_path / "job.sh")], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/home/alice", node_file: str(tmp_path / "nodes"), **variables},
    )  # fmt: skip
    assert done.returncode == selftest.STATUS
    came = selftest.JobOutcome(done.returncode, done.stdout, done.stderr, (place / "seen").read_text(), None)
    one = dataclasses.replace(EXPECTED, guests=1, nodes=(host,))
    proofs = {finding.check: finding for finding in selftest.check_outcome(one, came)}
    assert {name for name, finding in proofs.items() if finding.state == "bad"} == {"machine", "user", "record"}
    assert "in no virtual machine" in proofs["machine"].problem


@pytest.mark.parametrize(
    ("policy", "image", "request_text"),
    [
        (Policy(), None, "vcpus=1,ram=1024M,vms_per_node=1"),
        (Policy(ram_default=192), "debian12", "img=debian12,vcpus=1,ram=192M,vms_per_node=1"),
        (Policy(vcpus_min=2, ram_min=4096), None, "vcpus=2,ram=4096M,vms_per_node=1"),
        (Policy(vms_per_node_min=2), None, "vcpus=1,ram=1024M,vms_per_node=2"),
    ],
)
def test_request_is_small_and_within_the_sites_bounds(policy: Policy, image: str | None, request_text: str) -> None:
    assert selftest.small_request(policy, image) == request_text


WORK = dataclasses.replace(EXPECTED, workload=True)


def worked(line: str, *printed: str) -> str:
    lines = "".join(f"printed {text}\n" for text in printed)
    return OUTPUT.replace("end ab12", f"workload {line}\n{lines}end ab12")


def test_workload_that_ends_well_is_proven_between_ssh_and_traces() -> None:
    proofs = found(WORK, output=worked("0 10.25 13.5"))
    assert [name for name in proofs if name in ("ssh", "workload", "leftovers")] == ["ssh", "workload", "leftovers"]
    assert proofs["workload"].state == "ok"
    assert selftest.workload_seconds(worked("0 10.25 13.5"), "ab12") == pytest.approx(3.25)


@pytest.mark.parametrize(
    ("output", "problem", "seconds"),
    [
        (
            worked("3 1.0 2.0", "no such file: data", "giving up"),
            "ended with 3, and printed last: no such file: data",
            1,
        ),
        (OUTPUT, "was not run", None),
        (worked("127 x y"), "ended with 127", None),
        ("begin ab12\n", "was not run", None),
    ],
)
def test_workload_that_fails_says_how(output: str, problem: str, seconds: float | None) -> None:
    finding = found(WORK, output=output)["workload"]
    assert (finding.state, problem in finding.problem) == ("bad", True), finding.problem
    assert selftest.workload_seconds(output, "ab12") == seconds


@pytest.mark.parametrize(
    ("workload", "status", "printed"),
    [
        ("#!/bin/sh\ncat; echo a; echo 'it ends'; exit 5\n", 5, ["printed a", "printed it ends"]),
        ("echo no line feed at its end, $TOKEN @TOKEN@ @STATUS@", 0, ["no line feed at its end, @TOKEN@ @STATUS@"]),
        ("#!/no/such/interpreter\n", 127, ["printed"]),
        ("yes | head -n 100000; exit 4", 4, ["printed y"] * 5),
    ],
)
def test_script_runs_the_workload_as_it_is_and_bounds_its_output(
    tmp_path: pathlib.Path, workload: str, status: int, printed: list[str]
) -> None:
    (tmp_path / "nodes").write_text("other\n", encoding="utf-8")
    job = tmp_path / "job.sh"
    text = selftest.render_script(
        "ab12", str(tmp_path), counts="1 1", node_file=str(tmp_path / "nodes"), workload=workload
    )
    job.write_text(text.replace("ssh ", "false "), encoding="utf-8")
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path / "tmp"), "HOME": "/nowhere"}
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        ["/bin/sh", job], env=environment, stdin=subprocess.PIPE, capture_output=True, text=True, check=False
    )
    assert done.returncode == selftest.STATUS, "the job's own end"
    lines = done.stdout.splitlines()
    (line,) = [number for number, line in enumerate(lines) if line.startswith("workload ")]
    assert lines[line].split()[1] == str(status)
    after = lines[line + 1 : -1]
    assert len(after) == len(printed)
    assert all(wanted in got for wanted, got in zip(printed, after, strict=True)), after
    assert not list((tmp_path / "tmp").iterdir()), "nothing remains in the guest"
