# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain sbatch where the site's job_submit.lua calls our module, on a real slurmctld."""

from __future__ import annotations

import re
import textwrap
import typing as t

import pytest

from ..conftest import CHECKOUT
from .conftest import SlurmSite

PLACE = "/etc/vtorque/slurm/vtorque_job_submit.lua"
PAGE = (CHECKOUT / "docs/admin/slurm.md").read_text(encoding="utf-8")
OF_SITE = textwrap.dedent(PAGE.partition("```text\n")[2].partition("```")[0])
"""The file that the manual has for a site without one."""
LINE = "JobSubmitPlugins=lua"
SCRIPT = "#!/bin/sh\n#VM vcpus=1\n#SBATCH -n2 --mem=2G\nhostname; exit 6\n"


@pytest.fixture
def with_module(site: SlurmSite) -> t.Iterator[None]:
    """The site's job_submit.lua, and the module as the collection installed on the front end renders it."""
    render = (
        "from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates as t;"
        "print(t.render('batch/slurm/vtorque_job_submit.lua.j2', site_dir=None, prefix='/opt/vtorque'))"
    )
    text = site.root("fe", f'/opt/vtorque/venv/bin/python -I -c "{render}"')
    site.write(PLACE, text, user="")
    site.write("/etc/slurm/job_submit.lua", OF_SITE, user="")
    site.root("fe", f"echo {LINE} >>/etc/slurm/slurm.conf && scontrol reconfigure")
    site.wait_for("slurmctld to have the plugin", lambda: LINE.partition("=")[2] in plugin(site))
    yield
    site.root("fe", f"sed -i /^{LINE}/d /etc/slurm/slurm.conf && scontrol reconfigure")
    site.root("fe", f"rm {PLACE} /etc/slurm/job_submit.lua")
    site.wait_for("slurmctld to be without it", lambda: "lua" not in plugin(site))


def plugin(site: SlurmSite) -> str:
    """What slurmctld says of its plugins for submissions."""
    return site.root("fe", "scontrol show config | grep JobSubmitPlugins")


@pytest.mark.full
def test_plain_sbatch_runs_in_a_guest_where_the_sites_program_calls_ours(site: SlurmSite, with_module: None) -> None:
    ended = site.ended(site.sbatch(script=SCRIPT))
    assert re.fullmatch(r"vcn[12]-[0-9]+\n", ended.out or "")
    assert (ended.state, ended.code) == ("FAILED", "6:0")
    bare = site.bare("#!/bin/sh\nhostname # VM\nexit 3\n")
    assert (bare.out, bare.code) == ("cn1\n", "3:0")
    refused = site.on("fe", "sbatch", user="alice", stdin="#!/bin/sh\n#VM vcpu=2\ntrue\n")
    assert refused.returncode == 1
    assert "vtorque: vcpu=: no such key" in refused.stderr
    too_much = site.ended(site.sbatch(script=SCRIPT.replace("vcpus=1", "vcpus=many")))
    assert (too_much.state, too_much.code) == ("FAILED", "1:0")
    assert "vcpus=many" in (too_much.out or "")


@pytest.mark.full
def test_plain_sbatch_runs_on_the_node_where_no_module_is(site: SlurmSite) -> None:
    ended = site.ended(site.sbatch(script=SCRIPT))
    assert (ended.out, ended.code) == ("cn1\n", "6:0")
