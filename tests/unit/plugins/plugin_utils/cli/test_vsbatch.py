# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vsbatch from where its user stands: what a stand-in for sbatch gets, and what is refused before it."""

from __future__ import annotations

import json
import os
import pathlib
import pwd
import random
import re
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import comment
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.sbatch import front
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_writer import policy_text
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vsub

SBATCH = """#!{python} -I
import json, os, pathlib, sys
place = pathlib.Path({place!r})
words = sys.argv[1:]
script = next((word for word in words if "/vsbatch." in word), "")
content = pathlib.Path(script).read_text() if script else ""
(place / "got.json").write_text(json.dumps([words, content, os.environ.get("ODD", "")]))
print("Submitted batch job 7")
sys.exit({status})
"""


class Desk:
    """A front end with a stand-in for sbatch."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.launcher = "slurm"
        (place / "bin").mkdir()
        (place / "pool").mkdir()
        self.policy = {"batch_system": "slurm", "pbs_qsub_on_fe": f"{place}/bin/qsub", "vm_img_dir": f"{place}/none",
                       "img_default": "tiny", "distro_default": "debian", "vcpus_default": 1, "ram_default": 192,
                       "host_os_core_count": 1, "host_os_ram_mb": 512, "allow_emulation": True}  # fmt: skip
        self.answer(0)

    def answer(self, status: int) -> None:
        program = self.place / "bin/sbatch"
        program.write_text(SBATCH.format(python=sys.executable, place=str(self.place), status=status))
        program.chmod(0o755)

    def submit(self, *argv: str, **variables: str) -> int:
        config = self.place / "vtorque.yml"
        config.write_text(policy_text(self.policy))
        caller = {b"PATH": b"/usr/bin", **{name.encode(): value.encode() for name, value in variables.items()}}
        return vsub.submit(argv, caller, config, launcher=self.launcher)

    def script(self, text: str, name: str = "job.sh") -> str:
        (self.place / name).write_text(text)
        return str(self.place / name)

    def got(self) -> t.Any:
        path = self.place / "got.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def desk(tmp_path: pathlib.Path) -> Desk:
    return Desk(tmp_path)


def request_in(arguments: list[str]) -> dict[str, t.Any]:
    (option,) = (word for word in arguments if word.startswith("--comment="))
    data = comment.unpack(option.removeprefix("--comment="))
    assert data is not None
    return dict(json.loads(data)["k"])


def test_script_gets_our_interpreter_line_and_everything_else_is_sbatchs(desk: Desk) -> None:
    script = desk.script("#!/bin/bash\n#SBATCH -t 5\nexit 3\n")
    assert desk.submit("-p", "fast", "-N2", "--wait", script, "a b", "-vm", "", ODD="a\nb") == 0
    arguments, content, odd = desk.got()
    assert content == "#!/opt/vtorque/bin/vtorque-shell\n#!/bin/bash\n#SBATCH -t 5\nexit 3\n"
    at = arguments.index("-p")
    assert arguments[at : at + 4] == ["-p", "fast", "-N2", "--wait"]
    assert arguments[-3:] == ["a b", "-vm", ""]
    assert arguments[-4].endswith("/job.sh")
    assert odd == "a\nb"
    assert request_in(arguments) == {}


@pytest.mark.parametrize(
    ("options", "line", "name", "added"),
    [
        ([], "", "link", ["--chdir={}/link"]),
        ([], "", "real", []),
        ([], "", "elsewhere", []),
        (["-D", "/tmp"], "", "link", []),
        ([], "#SBATCH --chdir=/tmp", "link", []),
    ],
)
def test_job_starts_under_the_name_by_which_its_user_came_to_the_directory(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, options: list[str], line: str, name: str, added: list[str]
) -> None:
    """sbatch itself takes the path without links, which no guest has."""
    (desk.place / "real").mkdir()
    (desk.place / "link").symlink_to("real")
    monkeypatch.chdir(desk.place / "real")
    script = desk.script(f"#!/bin/sh\n{line}\ntrue\n")
    assert desk.submit(*options, script, PWD=str(desk.place / name)) == 0
    arguments = desk.got()[0]
    assert [word for word in arguments if word.startswith("--chdir=")] == [one.format(desk.place) for one in added]


@pytest.mark.parametrize(
    ("options", "line", "variables", "refused"),
    [
        (["-D", "/srv/x"], "", {}, "/srv/x"),
        (["--chdir=/srv/x"], "", {}, "/srv/x"),
        ([], "#SBATCH -D /srv/x", {}, "/srv/x"),
        (["-D", "/shared/../srv"], "", {}, "/shared/../srv"),
        (["-D", "/shared/a"], "", {}, ""),
        (["-D", "/tmp"], "#SBATCH -D /srv/x", {}, ""),
    ],
)
def test_start_directory_that_no_guest_has_is_refused(
    desk: Desk,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    line: str,
    variables: dict[str, str],
    refused: str,
) -> None:
    desk.policy["mounts"] = ["fs:/shared /shared nfs"]
    script = desk.script(f"#!/bin/sh\n{line}\ntrue\n")
    assert desk.submit(*options, script, **variables) == (2 if refused else 0)
    assert (desk.got() is None) == bool(refused)
    if refused:
        text = capsys.readouterr().err
        assert re.search(rf"-D {re.escape(refused)} +no such directory in the guest; it has ", text)
        assert "/shared" in text


def test_command_line_wins_over_the_lines_of_the_script(desk: Desk) -> None:
    script = desk.script("#!/bin/sh\n#VM vcpus=3,ram=1G\n# text\n\n#VM vms_per_node=2\ntrue\n#VM vcpus=9\n")
    assert desk.submit("-vm", "vcpus=2", "--vm=ram=2G", script) == 0
    arguments = desk.got()[0]
    assert request_in(arguments) == {"ram": "2048", "vcpus": "2", "vms_per_node": "2"}
    assert {"--cpus-per-task=5", "--mem=4608M"} <= set(arguments)


@pytest.mark.parametrize(
    ("options", "line", "added"),
    [
        ([], "", {"--cpus-per-task=2", "--mem=704M"}),
        (["-n4"], "", {"--mem=704M"}),
        (["-c", "4"], "", {"--mem=704M"}),
        (["--ntasks-per-node", "4", "--mem-per-cpu=1G"], "", set()),
        (["-Hn4"], "", {"--mem=704M"}),
        ([], "#SBATCH --ntasks=2 --mem=2G", set()),
        ([], "#SBATCH -c2 # --mem=2G", {"--mem=704M"}),
        (["--cpus-per-t=4"], "", {"--mem=704M"}),
        (["--tasks-per", "4"], "", {"--mem=704M"}),
        ([], "#SBATCH --cpus-per-t=2", {"--mem=704M"}),
    ],
)
def test_job_that_asks_for_no_size_asks_for_what_its_guests_need(
    desk: Desk, options: list[str], line: str, added: set[str]
) -> None:
    assert desk.submit(*options, desk.script(f"#!/bin/sh\n{line}\ntrue\n")) == 0
    arguments = desk.got()[0]
    ours = {word for word in arguments if word.startswith(("--cpus-per-task=", "--mem="))}
    assert ours == added


@pytest.mark.parametrize(
    ("options", "text", "expected"),
    [
        (["-vm", "vcpus=many"], "#!/bin/sh\n", "vcpus=many"),
        (["-vm", "vcpu=2"], "#!/bin/sh\n", "no such key"),
        (["-vm", "vcpus=many"], "#!/bin/sh\n#VM ram=x\n", "(job.sh, line 2)"),
        (["--comment", "mine"], "#!/bin/sh\n", "no other comment"),
        ([], "#!/bin/sh\n#SBATCH --comment=mine\n", "no other comment"),
        (["--comm=mine"], "#!/bin/sh\n", "no other comment"),
        (["--comm", "mine"], "#!/bin/sh\n", "no other comment"),
        ([], "#!/bin/sh\n#SBATCH --comm 'mine and'\n", "no other comment"),
        ([], "echo no line\n", "the script job.sh: does not begin with #!"),
        (["-i", "data"], "#!/bin/sh\n", "the standard input of a script"),
        (["-idata"], "#!/bin/sh\n", "the standard input of a script"),
        (["--inp=data"], "#!/bin/sh\n", "the standard input of a script"),
        ([], "#!/bin/sh\n#SBATCH -i data\n", "the standard input of a script"),
        (["--batch=fast"], "#!/bin/sh\n", "it may run the script on another"),
        ([], "#!/bin/sh\n#SBATCH --bat fast\n", "it may run the script on another"),
        ([], "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\n", "(job.sh, line 3)"),
        ([], "#!/bin/sh\n#SBATCH packjob\n", "a heterogeneous job"),
        (["-n1", ":", "-n2"], "#!/bin/sh\n", "a heterogeneous job"),
        (["--wrap=true", ":", "-n2", "--wrap=true"], "#!/bin/sh\n", "a heterogeneous job"),
        (["-vm", "vm_prologue=/bin/true"], "#!/bin/sh\n", "cannot run with Slurm"),
        ([], "#!/bin/sh\n#VM vm_epilogue=/bin/true\n", "cannot run with Slurm"),
    ],
)
def test_request_that_is_wrong_queues_nothing(
    desk: Desk, capsys: pytest.CaptureFixture[str], options: list[str], text: str, expected: str
) -> None:
    assert desk.submit(*options, desk.script(text)) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert "nothing was submitted" in err
    assert desk.got() is None


@pytest.mark.parametrize("name", ["4alice", "alice@dom.example", "a" * 33])
def test_user_whose_name_no_prolog_reads_queues_nothing(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    known = list(pwd.getpwuid(os.getuid()))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: pwd.struct_passwd([name, *known[1:]]))
    assert desk.submit(desk.script("#!/bin/sh\n")) == 2
    assert re.search(f"user={name} +vTorque reads names of users", capsys.readouterr().err)
    assert desk.got() is None


@pytest.mark.parametrize("arguments", [["-vm"], ["/nowhere/job.sh"], ["/"], ["--wrap", "true", "/bin/true"]])
def test_call_that_is_wrong_queues_nothing(desk: Desk, arguments: list[str]) -> None:
    assert desk.submit(*arguments) == 2
    assert desk.got() is None


def test_request_that_does_not_fit_into_a_comment_is_refused(desk: Desk) -> None:
    with pytest.raises(UserFault, match="too long to travel"):
        front.comment_of(random.Random(1).randbytes(1024))


@pytest.mark.parametrize("flag", ["--overc", "--exclusive", "--parsab", "--no-req", "-k", "--get"])
def test_flag_that_is_cut_short_takes_no_script_for_its_value(desk: Desk, flag: str) -> None:
    assert desk.submit(flag, desk.script("#!/bin/sh\n"), "one") == 0
    arguments = desk.got()[0]
    ours = [word for word in arguments[arguments.index(flag) + 1 :] if word != "--exclusive"]
    assert ours[0].startswith("--comment=")
    assert arguments[-1] == "one"


@pytest.mark.parametrize(
    ("alone", "options", "environment", "asked"),
    [
        (True, [], {}, True),
        (False, [], {}, False),
        (True, ["--exclusive=user"], {}, False),
        (True, ["--oversubscribe"], {}, False),
        (True, [], {"SBATCH_EXCLUSIVE": "user"}, False),
    ],
)
def test_job_has_its_nodes_alone_where_the_site_wants_it_and_its_user_says_nothing(
    desk: Desk, alone: bool, options: list[str], environment: dict[str, str], asked: bool
) -> None:
    desk.policy |= {"pbs_exclusive_node_alloc": alone, "kill_user_processes_after_job": alone}
    assert desk.submit(*options, desk.script("#!/bin/sh\n"), **environment) == 0
    assert ("--exclusive" in desk.got()[0]) == asked


@pytest.mark.parametrize("name", ["SBATCH_INPUT", "SBATCH_BATCH"])
def test_option_in_the_environment_is_refused_as_on_the_command_line(desk: Desk, name: str) -> None:
    assert desk.submit(desk.script("#!/bin/sh\n"), **{name: "x"}) == 2
    assert desk.got() is None


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--gres=gpu:1"], {}),
        (["--gres", "tmp:5G,gpu:t4:2"], {}),
        (["--gpus-per-node=2"], {}),
        (["-G2"], {}),
        (["-G", "t4:1"], {}),
        ([], {"SBATCH_GRES": "gpu"}),
        ([], {"SBATCH_GPUS": "1"}),
    ],
)
def test_job_that_asks_for_devices_is_refused(
    desk: Desk, arguments: list[str], environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert desk.submit(*arguments, desk.script("#!/bin/sh\n"), **environment) == 2
    assert desk.got() is None
    output = capsys.readouterr().err
    assert "devices of GRES reach no guest by themselves: add -vm pci=CLASS:N" in output
    assert "--g" in output


def test_job_whose_guests_get_devices_asks_slurm_for_them(desk: Desk) -> None:
    desk.policy["pci_classes"] = ["gpu 0000:3b:00.0 resource=gpu"]
    assert desk.submit("-vm", "pci=gpu:1", "--gres=gpu:1", desk.script("#!/bin/sh\n")) == 0
    assert "--gres=gpu:1" in desk.got()[0]


def test_what_is_counted_and_no_device_may_be_asked_for(desk: Desk) -> None:
    assert desk.submit("--gres=tmp:5G", desk.script("#!/bin/sh\n")) == 0
    assert "--gres=tmp:5G" in desk.got()[0]


def test_size_in_the_environment_is_not_asked_for_twice(desk: Desk) -> None:
    assert desk.submit(desk.script("#!/bin/sh\n"), SBATCH_MEM_PER_CPU="512") == 0
    assert not [word for word in desk.got()[0] if word.startswith("--mem=")]


@pytest.mark.parametrize("option", ["--wra=echo 1", "--wr=echo 1"])
def test_wrap_that_is_cut_short_is_wrap(desk: Desk, option: str) -> None:
    assert desk.submit(option) == 0
    assert desk.got()[1].endswith("\necho 1\n")


def test_command_of_wrap_becomes_a_script(desk: Desk) -> None:
    assert desk.submit("--wrap=echo $HOME") == 0
    arguments, content, _odd = desk.got()
    assert content.endswith("\necho $HOME\n")
    assert content.startswith("#!/opt/vtorque/bin/vtorque-shell\n#!/bin/sh\n")
    assert arguments[-1].endswith("/wrap")
    assert not any(word.startswith("--wrap") for word in arguments)


def test_status_of_sbatch_is_ours(desk: Desk) -> None:
    desk.answer(1)
    assert desk.submit(desk.script("#!/bin/sh\n")) == 1


def test_question_goes_to_sbatch_as_it_is(desk: Desk) -> None:
    assert desk.submit("-V") == 0
    assert desk.got()[0] == ["-V"]


def test_site_with_another_batch_system_is_told(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.policy["batch_system"] = "torque"
    assert desk.submit(desk.script("#!/bin/sh\n")) == 2
    assert "use vsub" in capsys.readouterr().err


def test_vsub_on_a_site_of_slurm_is_vsbatch(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.launcher = ""
    assert desk.submit("-vm", "vcpus=2", desk.script("#!/bin/sh\n")) == 0
    assert request_in(desk.got()[0]) == {"vcpus": "2"}
    assert desk.submit("-vm", "vcpus=many", desk.script("#!/bin/sh\n")) == 2
    assert capsys.readouterr().err.startswith("vsbatch: ")
    assert desk.submit("--help") == 0
    assert capsys.readouterr().out.startswith("usage: vsbatch [options of sbatch]")


def test_dry_run_shows_the_command_and_submits_nothing(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    script = desk.script("#!/bin/sh\n#VM vcpus=2\n")
    assert desk.submit("--dry-run", "-N2", script, "one") == 0
    printed = capsys.readouterr().out
    assert re.search(r"^vcpus +2 +job\.sh, line 2$", printed, re.MULTILINE)
    assert "/bin/sbatch --cpus-per-task=3 --mem=704M -N2 --exclusive --comment=" in printed
    assert f" {script} one\n(sbatch reads a copy of job.sh " in printed
    assert desk.submit("--dry-run", "--query=request.vcpus.value", script) == 0
    assert capsys.readouterr().out == "2\n"
    assert desk.submit("--dry-run", "--json", script) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sbatch"][-1] == script
    assert document["neutral_lines"] == [2]
    assert document["hosts"] == {"vm": None, "of": None, "spare": 0}
    assert desk.submit("--json", script) == 2
    assert desk.got() is None


@pytest.mark.parametrize("piped", [False, True])
def test_site_without_vms_leaves_bare_jobs_to_sbatch(desk: Desk, piped: bool) -> None:
    desk.policy["disable_mikelangelo_hpc_stack"] = True
    script = desk.script("#!/bin/sh\n")
    assert desk.submit("-vm", "vcpus=2", script) == 2
    assert desk.submit(desk.script("#!/bin/sh\n#VM vcpus=2\n", "vm.sh")) == 2
    assert desk.got() is None
    program = (
        "import pathlib, sys\n"
        "from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vsub\n"
        "sys.exit(vsub.submit(sys.argv[2:], {b'PATH': b'/usr/bin'}, pathlib.Path(sys.argv[1])))\n"
    )
    arguments = ["-N2"] if piped else ["-N2", script]
    done = subprocess.run(
        [sys.executable, "-c", program, str(desk.place / "vtorque.yml"), *arguments],
        input=pathlib.Path(script).read_bytes(), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert desk.got()[0] == arguments


def test_site_without_sbatch_is_an_administrators_case(desk: Desk) -> None:
    (desk.place / "bin/sbatch").unlink()
    assert desk.submit(desk.script("#!/bin/sh\n")) == 3


def submit_piped(desk: Desk, text: str) -> subprocess.CompletedProcess[bytes]:
    """Submit a script on standard input."""
    desk.script(text, "in")
    (desk.place / "vtorque.yml").write_text(policy_text(desk.policy))
    program = (
        "import pathlib, sys\n"
        "from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vsub\n"
        f"sys.exit(vsub.submit([], {{b'PATH': b'/usr/bin'}}, pathlib.Path({str(desk.place / 'vtorque.yml')!r})))\n"
    )
    with (desk.place / "in").open("rb") as stream:
        return subprocess.run(
            [sys.executable, "-c", program], stdin=stream, capture_output=True, timeout=60, check=False
        )


def test_script_on_standard_input_without_an_interpreter_is_named_by_where_it_came_from(desk: Desk) -> None:
    done = submit_piped(desk, "echo no line\n")
    assert done.returncode == 2
    assert b"the script on standard input: does not begin with #!" in done.stderr


def test_script_on_standard_input_has_sbatchs_name(desk: Desk) -> None:
    done = submit_piped(desk, "#!/bin/sh\nexit 4\n")
    assert done.returncode == 0, done.stderr
    arguments, content, _odd = desk.got()
    assert arguments[-1].endswith("/sbatch")
    assert content.endswith("#!/bin/sh\nexit 4\n")


@pytest.mark.parametrize(
    ("options", "line", "wanted"),
    [
        ([], "", "--constraint=vm"),
        (["-C", "fast"], "", "--constraint=fast&vm"),
        (["-Cfast|big"], "", "--constraint=fast|big&vm"),
        (["--constraint=[a|b]"], "#SBATCH -C c", "--constraint=[a|b]&vm"),
        ([], "#SBATCH --constraint=fast", "--constraint=fast&vm"),
        ([], "#SBATCH -C ''", "--constraint=vm"),
    ],
)
def test_users_constraint_is_joined_with_the_feature_of_nodes_with_guests(
    desk: Desk, options: list[str], line: str, wanted: str
) -> None:
    desk.policy["vm_node_property"] = "vm"
    assert desk.submit(*options, desk.script(f"#!/bin/sh\n{line}\ntrue\n")) == 0
    arguments = [word for word in desk.got()[0] if word.startswith(("-C", "--constraint"))]
    assert arguments[-1] == wanted  # the last one counts


def test_constraint_that_counts_nodes_must_name_the_feature_itself(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.policy["vm_node_property"] = "vm"
    script = desk.script("#!/bin/sh\ntrue\n")
    assert desk.submit("-C", "[fast*1&big*1]", script) == 2
    assert "write vm into each of its terms" in capsys.readouterr().err
    assert desk.submit("-C", "[(fast&vm)*1&(big&vm)*1]", script) == 0
    assert [word for word in desk.got()[0] if word.startswith("--constraint")] == []
