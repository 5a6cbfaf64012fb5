# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hook says of a fault of its own; how it is run as a whole, `cli/test_hook.py` shows."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.hook_call import HookCall
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.hooks.start import Places
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.hooks import main

FIXTURES = pathlib.Path(__file__).resolve().parents[4] / "fixtures/slurm"


def test_fault_of_ours_is_one_line_whatever_becomes_of_the_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Found by the fault suite: what failed was the log, which failed again, and the user read all of it."""

    def fail(*_words: object) -> None:
        raise RuntimeError("the log")

    monkeypatch.setattr(main, "_log_to_site", fail)
    main.report_unexpected(KeyError, KeyError("x"), None)
    assert capfd.readouterr().err == "vtorque: a fault in vTorque itself: KeyError: tell the administrator\n"


@pytest.fixture
def slurm_prolog(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a recorded Prolog of Slurm; this process keeps its own signals and umask."""
    for line in (FIXTURES / "prolog-cn1.txt").read_text().splitlines():
        monkeypatch.setenv(*line.split("=", 1))
    monkeypatch.setenv("VTORQUE_BATCH_SYSTEM", "slurm")
    monkeypatch.setattr(main, "_reset_process", lambda: None)


@pytest.mark.usefixtures("slurm_prolog")
@pytest.mark.parametrize("role", ["prologue", "prologue.other"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_JOB_USER", "4alice"),
        ("SLURM_JOB_USER", "alice@dom.example"),
        ("SLURM_JOB_USER", "a" * 33),
        ("SLURM_CLUSTER_NAME", "hpc_main"),
        ("SLURM_NODELIST", "gpu_n[1-2]"),
    ],
)
def test_job_of_slurm_with_a_name_of_another_form_drains_no_node(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: pathlib.Path,
    role: str,
    name: str,
    value: str,
) -> None:
    """The status is 0, and nothing is there that the job's shell takes for a record."""
    monkeypatch.setenv(name, value)
    places = Places(run_dir=tmp_path / "run", state_dir=tmp_path / "state")
    assert main.main([role, "yes"], places) == 0
    assert "vtorque: this job's hook failed: " in capfd.readouterr().err
    assert value.partition("[")[0] in (tmp_path / "state/log" / main.LOG).read_text()
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("slurm_prolog")
def test_hook_that_fails_later_still_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    def fail(_call: HookCall, *_rest: object) -> None:
        raise OSError(os.strerror(28))

    monkeypatch.setattr(main, "_dispatch", fail)
    assert main.main(["prologue", "yes"], Places(run_dir=tmp_path / "run", state_dir=tmp_path / "state")) == 1
