#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `slurm_info`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_info
short_description: Check whether Slurm is configured as vTorque needs it
version_added: 1.0.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Asks Slurm's controller by the commands of this host. C(slurm.conf) is never written.
  - What it finds of the settings is what C(vmgr doctor) says of them, here before anything is installed.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.info_module
options:
  commands:
    description:
      - The directory of Slurm's commands.
    type: path
    default: /usr/bin
  nodes:
    description:
      - The nodes that are to run virtual machines, as Slurm names them.
    type: list
    elements: str
    default: []
  node:
    description:
      - The node that is asked about; where Slurm does not know it, it calls nothing there.
    type: str
  launchers:
    description:
      - Where vTorque's Prolog and Epilog are.
    type: path
    default: /etc/vtorque/slurm
  job_submit:
    description:
      - The module that the site's own C(job_submit.lua) is to call; without it nothing is asked about plain C(sbatch).
    type: path
seealso:
  - module: mikelangelo.vtorque.torque_hooks
"""

EXAMPLES = r"""
---
- name: What should be set otherwise?
  mikelangelo.vtorque.slurm_info:
  register: asked
"""

RETURN = r"""
installed:
  description: Are Slurm's commands here?
  returned: success
  type: bool
  sample: true
faults:
  description: Why nothing can be said of Slurm, one sentence each.
  returned: success
  type: list
  elements: str
  sample: ["squeue, scontrol of Slurm not in /opt/slurm/bin: vtorque_slurm_bin must name the directory that has them"]
settings:
  description:
    - What is wrong with the controller's settings, and what to write, one sentence each.
    - Also that a version was not tried, or that the commands here have another one than the controller.
  returned: success
  type: list
  elements: str
  sample: ["BatchStartTimeout is 10 s: ...: write BatchStartTimeout=300 into slurm.conf"]
calls:
  description: The settings by which Slurm calls the launchers of vTorque.
  returned: success
  type: list
  elements: str
  sample: ["Prolog=/etc/vtorque/slurm/prolog"]
jobs:
  description: The jobs in virtual machines that wait or run.
  returned: success
  type: list
  elements: str
  sample: ["4711"]
"""

import glob
import os
import pathlib
import platform
import re
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VTorqueError
from ..module_utils.job.batch.host_match import same_host
from ..module_utils.job.batch.slurm.adapter import Slurm
from ..module_utils.job.batch.slurm.comment import wants_guests
from ..module_utils.job.batch.slurm.doctor_checks import check_server, plain_sbatch_lines, too_old

COMMANDS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue")
"""What vTorque calls."""
TIMEOUT_S = 30.0
LINE = re.compile(r"write (\w+)=(\S+)")
"""In a remedy of the doctor's: the line of slurm.conf."""
MOST = 20
"""Settings that are looked at."""


class ExtendedSlurm(Slurm):
    """The site's Slurm, as it would be with further lines in slurm.conf."""

    lines: t.Mapping[str, str] = {}

    def configuration(self) -> dict[str, str]:
        """The controller's settings, and the lines."""
        return {**super().configuration(), **self.lines}


def run(
    commands: pathlib.Path,
    nodes: t.Sequence[str],
    launchers: pathlib.Path,
    node: str | None = None,
    job_submit: pathlib.Path | None = None,
) -> dict[str, t.Any]:
    """Ask, and return what the module returns."""
    found: dict[str, t.Any] = {"installed": False, "faults": [], "settings": [], "calls": [], "jobs": []}
    lacking = [name for name in COMMANDS if not os.access(commands / name, os.X_OK)]
    if lacking:
        remedy = "vtorque_slurm_bin must name the directory that has them"
        return {**found, "faults": [f"{', '.join(lacking)} of Slurm not in {commands}: {remedy}"]}
    found["installed"] = True
    batch = ExtendedSlurm(commands, timeout_s=TIMEOUT_S)
    try:
        settings = batch.configuration()
        if old := too_old(settings):
            found["faults"] = [f"{old[0]}: nothing is installed beside it"]
        found["settings"] = _settings(batch, nodes)
        if job_submit is not None:
            found["settings"] += plain_sbatch_lines(settings, job_submit, platform.node())
        jobs = batch.all_jobs()
        is_known = node is None or any(same_host(one.name, node) for one in batch.nodes())
    except VTorqueError as error:
        return {**found, "faults": [f"{error}: do sinfo and squeue work here, as root? Is munged running?"]}
    found["calls"] = _calls(settings, launchers) if is_known else []
    found["jobs"] = [batch.display_id(job.job_id) for job in jobs if wants_guests(job.x) and job.state != "C"]
    return found


def _settings(batch: ExtendedSlurm, nodes: t.Sequence[str]) -> list[str]:
    """What the doctor finds of the settings, one after the other: it names the next one when a line is written."""
    found: list[str] = []
    while len(found) < MOST:
        finding = check_server(batch, nodes)
        if not finding.problem:
            break
        found.append(": ".join(filter(None, (finding.problem, finding.remedy))))
        line = LINE.match(finding.remedy)
        if line is None or line[1] in batch.lines:
            break
        batch.lines = {**batch.lines, line[1]: line[2].rstrip(",")}
    return found


def _calls(settings: t.Mapping[str, str], launchers: pathlib.Path) -> list[str]:
    """The settings that lead to one of our launchers, by whatever pattern or link."""
    found = []
    for name in ("Prolog", "Epilog"):
        value = settings.get(name, "")
        paths = [value, *glob.glob(value)]  # noqa: PTH207 - a pattern of the site's, from the root
        if any(path.parent == launchers for one in paths for path in (pathlib.Path(one), pathlib.Path(one).resolve())):
            found.append(f"{name}={value}")
    return found


def main() -> None:
    """Ask, and tell."""
    module = AnsibleModule(
        argument_spec={
            "commands": {"type": "path", "default": "/usr/bin"},
            "nodes": {"type": "list", "elements": "str", "default": []},
            "node": {"type": "str"},
            "launchers": {"type": "path", "default": "/etc/vtorque/slurm"},
            "job_submit": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    places = pathlib.Path(params["commands"]), pathlib.Path(params["launchers"])
    module_place = pathlib.Path(params["job_submit"]) if params["job_submit"] else None
    answer = run(places[0], params["nodes"], places[1], params["node"], module_place)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()
