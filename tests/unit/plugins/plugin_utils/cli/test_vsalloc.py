# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vsalloc from where its user stands: what salloc is called with, and what is refused before it."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import comment
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_writer import policy_text
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vsub

SHELL = "/opt/vtorque/bin/vtorque-shell"
ENVIRONMENT = {b"PATH": b"/usr/bin", b"ODD": b"a\nb"}
STEP = ["--interactive", "--preserve-env", "--mpi=none", "-n1", "-N1"]


class Called(Exception):
    """This process has become another program."""


class Desk:
    """A front end on which nothing is executed."""

    def __init__(self, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        (place / "pool").mkdir()
        self.policy = {"batch_system": "slurm", "pbs_qsub_on_fe": f"{place}/bin/qsub", "vm_img_dir": f"{place}/none",
                       "img_default": "tiny", "distro_default": "debian", "vcpus_default": 1, "ram_default": 192,
                       "host_os_core_count": 1, "host_os_ram_mb": 512, "allow_emulation": True}  # fmt: skip
        self.arguments: list[str] = []
        self.environment: dict[bytes, bytes] = {}
        self.terminal = True
        monkeypatch.setattr(os, "isatty", lambda _fd: self.terminal)
        monkeypatch.setattr(os, "execve", self.become)

    def become(self, path: str, arguments: list[str], environment: dict[bytes, bytes]) -> t.NoReturn:
        """Note what would be executed."""
        assert path == arguments[0]
        self.arguments, self.environment = arguments, environment
        raise Called

    def allocate(self, *argv: str, environment: dict[bytes, bytes] = ENVIRONMENT) -> int | None:
        """The exit status; None: salloc was executed."""
        config = self.place / "vtorque.yml"
        config.write_text(policy_text(self.policy))
        try:
            return vsub.submit(argv, environment, config, launcher="slurm", session=True)
        except Called:
            return None


@pytest.fixture
def desk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def request_in(arguments: list[str]) -> dict[str, t.Any]:
    (option,) = (word for word in arguments if word.startswith("--comment="))
    data = comment.unpack(option.removeprefix("--comment="))
    assert data is not None
    return dict(json.loads(data)["k"])


def test_shell_is_started_as_salloc_itself_starts_one(desk: Desk) -> None:
    assert desk.allocate("-N2", "-t", "5", "-vm", "vcpus=3", "--no-bell", "-I", "-J", "mine") is None
    srun = desk.arguments.index(f"{desk.place}/bin/srun")
    assert desk.arguments[srun + 1 :] == [*STEP, "--pty", SHELL]
    asked = desk.arguments[1:srun]
    assert desk.arguments[0] == f"{desk.place}/bin/salloc"
    assert request_in(asked)["vcpus"] == "3"
    assert asked[2:-1] == ["-N2", "-t", "5", "--no-bell", "-I", "-J", "mine", "--exclusive"]
    assert asked[:2] == ["--cpus-per-task=4", "--mem=704M"]
    assert desk.environment == {b"PATH": b"/usr/bin", b"ODD": b"a\nb"}


@pytest.mark.parametrize("terminal", [True, False])
def test_command_goes_to_the_guest_word_by_word(desk: Desk, terminal: bool) -> None:
    desk.terminal = terminal
    assert desk.allocate("-n2", "prog", "-n", "a b", "") is None
    srun = desk.arguments.index(f"{desk.place}/bin/srun")
    pty = ["--pty"] if terminal else []
    assert desk.arguments[srun + 1 :] == [*STEP, *pty, SHELL, "--command", "prog", "-n", "a b", ""]


@pytest.mark.parametrize(("quiet", "reads"), [((), True), (("-Q",), False), (("--quiet",), False)])
def test_user_reads_why_slurm_may_call_a_boot_hung(
    desk: Desk, capsys: pytest.CaptureFixture[str], quiet: tuple[str, ...], reads: bool
) -> None:
    """salloc 24.11.5 writes `Prolog hung on node cn1` while a guest boots."""
    assert desk.allocate(*quiet, "prog") is None
    assert ("'Prolog hung'" in capsys.readouterr().err) is reads


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("-vm", "vcpus=many", "x"), "vcpus=many"),
        (("--comment=mine", "x"), "--comment"),
        (("--no-shell",), "--no-shell"),
        (("--wrap=hostname",), "--wrap"),
        (("-n1", ":", "-n2"), "heterogeneous"),
    ],
)
def test_wrong_request_is_refused_and_nothing_is_asked_for(
    desk: Desk, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], text: str
) -> None:
    assert desk.allocate(*argv) == 2
    err = capsys.readouterr().err
    assert text in err
    assert "nothing was submitted" in err


def test_environment_of_salloc_counts_and_that_of_sbatch_does_not(desk: Desk) -> None:
    mine = {b"SALLOC_MEM_PER_NODE": b"64G", b"SALLOC_CONSTRAINT": b"fast", b"SBATCH_INPUT": b"x", b"SBATCH_BATCH": b"x"}
    desk.policy["vm_node_property"] = "vtorque"
    assert desk.allocate("-n2", "x", environment=mine) is None
    assert "--constraint=fast&vtorque" in desk.arguments
    assert not any(word.startswith("--mem") for word in desk.arguments)


def test_shell_without_a_terminal_is_refused(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.terminal = False
    assert desk.allocate("-n1") == 2
    assert "needs a terminal" in capsys.readouterr().err


def test_site_of_another_batch_system_is_refused(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.policy["batch_system"] = "torque"
    assert desk.allocate("x") == 2
    assert "use vsub" in capsys.readouterr().err


def test_host_or_site_without_vm_jobs_is_refused(desk: Desk) -> None:
    desk.policy["disable_mikelangelo_hpc_stack"] = True
    assert desk.allocate("-vm", "vcpus=1", "x") == 2
    assert desk.allocate("-n1", "x") is None
    assert desk.arguments == [f"{desk.place}/bin/salloc", "-n1", "x"]


def test_help_and_version_are_ours(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert desk.allocate("--help") == 0
    assert capsys.readouterr().out.startswith("usage: vsalloc")
    assert desk.allocate("--version") == 0
    assert capsys.readouterr().out.startswith("vsalloc ")


def test_salloc_that_is_not_there_is_the_sites_fault(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(os, "isatty", lambda _fd: True)
    assert desk.allocate("-n1", "x") == 3
    assert "salloc" in capsys.readouterr().err
