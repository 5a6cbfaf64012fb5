# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the material of Torque and of OpenPBS has alike: orders of qsub's kin, and the files of a MOM."""

from __future__ import annotations

import os
import pathlib
import shutil
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

from .material import FakeServer

QHOLD = """\
echo "qhold $*" >>{place}/orders
[ "$(cat {place}/state)" = deaf ] || echo u >{place}/holds
"""
ORDER = 'echo "{name} $*" >>{place}/orders\n'


class PbsMaterial(FakeServer):
    """See `Material`."""

    system: str
    job_id: str

    def __init__(self, place: pathlib.Path, texts: t.Mapping[str, str], programs: t.Mapping[str, str]) -> None:
        orders = {name: ORDER.replace("{name}", name) for name in ("qalter", "qdel")}
        super().__init__(place, {"holds": "n", **texts}, {"qhold": QHOLD, **orders, **programs})
        self.policy = Policy(
            batch_system=self.system, torque_home=str(place / "spool"), pbs_qsub_on_nodes=str(place / "bin/qsub"),
            pbs_qsub_on_fe=str(place / "bin/qsub"),
        )  # fmt: skip
        self.jobs = place / "spool/mom_priv/jobs"
        for directory in (self.jobs, place / "spool/aux"):
            directory.mkdir(parents=True)

    def offer_line(self, line: bytes) -> None:
        """Put a line on standard input, as a MOM does."""
        fd = os.memfd_create("stdin")
        os.write(fd, line)
        os.lseek(fd, 0, os.SEEK_SET)
        os.dup2(fd, 0)
        os.close(fd)

    def leave_traces(self) -> None:
        """See `Material.leave_traces`."""
        for suffix in ("JB", "SC"):
            (self.jobs / f"{self.job_id}.{suffix}").touch()

    def hide_traces(self) -> None:
        """See `Material.hide_traces`."""
        shutil.rmtree(self.jobs)
