# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is Slurm set as vTorque needs it?"""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import doctor_checks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.adapter import Slurm

CONFIG = (pathlib.Path(__file__).resolve().parents[6] / "fixtures/slurm/config.txt").read_text()


class Controller(Slurm):
    def __init__(self, text: str) -> None:
        super().__init__(pathlib.Path("/nowhere"))
        self.text = text

    def _run(self, *command: str, subject: str = "") -> bytes:
        if not self.text:
            raise SiteFault("scontrol", "is silent")
        return self.text.encode()


@pytest.mark.parametrize(
    ("old", "new", "remedy"),
    [
        ("= Alloc,Contain", "= (null)", "PrologFlags=Alloc,Contain"),
        ("= 360 sec", "= 10 sec", "BatchStartTimeout=300"),
        ("= /etc/vtorque/slurm/epilog", "= (null)", "Epilog=/etc/vtorque/slurm/epilog"),
        ("= 22.05.8", "= 21.08.5", "Slurm 22.05"),
        ("= 22.05.8", "= 23.02.1", "Slurm 22.05"),
        ("= 22.05.8", "= 24.11.0-0rc1", "Slurm 22.05"),
    ],
)
def test_setting_that_keeps_jobs_from_running_is_named_with_its_line(old: str, new: str, remedy: str) -> None:
    assert doctor_checks.look_at_server(Controller(CONFIG), ()).state == "ok"
    finding = doctor_checks.look_at_server(Controller(CONFIG.replace(old, new)), ())
    assert finding.state == "bad"
    assert remedy in finding.remedy


def test_controller_that_is_silent_is_nobodys_fault() -> None:
    assert doctor_checks.look_at_server(Controller(""), ()).state == "warn"


def test_launcher_that_others_could_change_is_bad(tmp_path: pathlib.Path) -> None:
    owner = tmp_path.stat().st_uid
    for name, mode in (("prolog", 0o755), ("epilog", 0o755)):
        (tmp_path / name).touch(mode)
        (tmp_path / name).chmod(mode)
    assert doctor_checks.look_at_hooks(tmp_path, owner).state == "ok"
    (tmp_path / "epilog").chmod(0o777)
    assert "epilog could be changed by others" in doctor_checks.look_at_hooks(tmp_path, owner).words
