# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parameters of degrading nodes and of side channels: what fits together, and what a batch system cannot keep."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import settings_of

SHARED = "pbs_exclusive_node_alloc: false\nkill_user_processes_after_job: false\n"
SLURM = "batch_system: slurm\nslurm_bin: /usr/bin\n"


def load(directory: pathlib.Path, text: str) -> policy_file.Policy:
    file = directory / "vtorque.yml"
    file.write_text(text, "utf-8")
    file.chmod(0o644)
    return policy_file.load(file)


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("health_sources: [sensor heat /x limit=1]\n", "health_sources", "a line `counter NAME FILES limit=N`"),
        ("health_sources: [program nhc nhc]\n", "health_sources", "absolute path"),
        (f"{SLURM}health_sources: [message mom]\n", "health_sources", "name the check as a program"),
        (f"health_sources: [{', '.join(f'program n{n} /x' for n in range(33))}]\n", "health_sources", "33 lines"),
        ("on_degrading: checkpoint\n", "on_degrading", "needs checkpoint_dir"),
        ("batch_system: openpbs\non_degrading: checkpoint\n", "on_degrading", "jobs of openpbs have no checkpoints"),
        (f"{SLURM}on_degrading: checkpoint\n", "on_degrading", "needs checkpoint_dir"),
        (
            "batch_system: openpbs\non_degrading: evacuate\nspare_nodes: [n9]\n",
            "on_degrading",
            "guests of openpbs cannot move",
        ),
        (f"{SLURM}on_degrading: evacuate\n", "on_degrading", "needs spare_nodes"),
        ("on_degrading: evacuate\n", "on_degrading", "needs spare_nodes"),
        ("side_channels: cache\n", "side_channels", "off, exclusive, cores or strict"),
        (f"side_channels: exclusive\n{SHARED}", "side_channels", "needs pbs_exclusive_node_alloc"),
        (f"side_channels: strict\n{SHARED}", "side_channels", "needs pbs_exclusive_node_alloc"),
        ("side_channels: cores\nsuspend_guests: session\n", "side_channels", "would run on beside those of the next"),
    ],
)
def test_value_that_cannot_be_kept_is_refused(tmp_path: pathlib.Path, text: str, name: str, reason: str) -> None:
    with pytest.raises(SiteFault) as refused:
        load(tmp_path, text)
    assert name in str(refused.value)
    assert reason in str(refused.value)


@pytest.mark.parametrize("level", ["off", "exclusive", "cores", "strict"])
def test_level_of_side_channels_reaches_the_node(tmp_path: pathlib.Path, level: str) -> None:
    text = SHARED if level in ("off", "cores") else ""
    assert settings_of(load(tmp_path, f"side_channels: {level!r}\n{text}"), "cn1").side_channels == level


def test_sources_reach_the_nodes_that_have_them(tmp_path: pathlib.Path) -> None:
    text = "health_sources:\n- program  nhc /usr/sbin/nhc hosts=cn1\n- message mom\n"
    policy = load(tmp_path, f"{text}on_degrading: checkpoint\ncheckpoint_dir: /shared\n")
    assert policy.health_sources == ("program nhc /usr/sbin/nhc hosts=cn1", "message mom")
    assert [one.name for one in settings_of(policy, "cn1").health_sources] == ["nhc", "mom"]
    assert [one.name for one in settings_of(policy, "cn2").health_sources] == ["mom"]
    assert [
        one.name for one in settings_of(load(tmp_path, f"{SLURM}{text.rpartition('-')[0]}"), "cn1").health_sources
    ] == ["nhc"]
