# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's scripts in guests: which runs where, what it finds, and what its end means."""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.registry import open_guest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest import site_scripts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.guest.agent import OrderResult
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline

from .ordered_node import OrderedNode

JOB = "7.head"


class Site(OrderedNode):
    """A node with guests that run what they are told here, and a site with scripts."""

    def __init__(self, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (place / "hooks").mkdir()
        self.place = place
        super().__init__(place, site_scripts, monkeypatch, JOB, guest_hooks_dir=place / "hooks")

    def script(self, name: str, text: str = "#!/bin/sh\nexit 0\n") -> pathlib.Path:
        path = self.place / "hooks" / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def prologues(self) -> None:
        site_scripts.run_prologues(JOB, 1, self.settings, Deadline.after(60))


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_rank_0_and_the_others_have_scripts_of_their_own(site: Site) -> None:
    for rank in (0, 1, 2):
        site.add_guest(rank)
    site.script("prologue")
    site.script("epilogue.parallel")
    site.prologues()
    assert set(site.reported) == {"vn1-1"}
    assert site_scripts.run_epilogues(JOB, 1, site.settings) == ()
    assert set(site.reported) == {"vn1-2", "vn1-3"}


def test_guest_without_a_shell_is_ordered_nothing(site: Site) -> None:
    site.add_guest(0)
    site.add_guest(1, kind="osv")
    site.script("prologue")
    site.script("prologue.parallel")
    site.prologues()
    assert set(site.reported) == {"vn1-1"}


def test_site_without_scripts_orders_nothing(site: Site) -> None:
    site.add_guest(0)
    site.prologues()
    assert site.reported == {}


def test_prologue_that_fails_is_the_sites_fault_and_an_epilogue_is_told(site: Site) -> None:
    site.add_guest(0)
    site.script("prologue")
    site.script("epilogue")
    site.done = {"vn1-1": OrderResult(3, "no licence server")}
    with pytest.raises(SiteFault, match="guest vn1-1: ended with status 3: no licence server"):
        site.prologues()
    message = "the site's epilogue in guest vn1-1: ended with status 3: no licence server"
    assert site_scripts.run_epilogues(JOB, 1, site.settings) == (message,)
    site.done = {"vn1-1": OrderResult(124, "")}
    with pytest.raises(SiteFault, match="was not done in time"):
        site.prologues()


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_script_that_others_can_write_is_not_run(site: Site, mode: int) -> None:
    site.add_guest(0)
    site.script("prologue").chmod(mode)
    with pytest.raises(SiteFault, match="root alone can write"):
        site.prologues()
    assert site.reported == {}


def test_order_runs_the_script_with_what_it_needs(site: Site, tmp_path: pathlib.Path) -> None:
    """Under its own `#!` line; any bytes; its status is the order's."""
    stored = dataclasses.replace(site.add_guest(0), rank=5)
    message = b"$PBS_JOBID $PBS_NODEFILE $VTORQUE_RANK $VTORQUE_USER ${BASH_VERSION:+bash} $(umask)"
    script = b'#!/bin/bash\necho "%b"\nexit 9\n' % message
    variables = tuple(open_guest("torque").GUEST_VARIABLES.items())
    settings = dataclasses.replace(site.settings, guest_variables=variables)
    order = site_scripts.format_script_order(script, "72[1].head", stored, settings)
    (tmp_path / "guest.env").write_text("VTORQUE_USER='al ice'\n")
    order = order.replace("/etc/vtorque/guest.env", str(tmp_path / "guest.env")).replace("/run/", f"{tmp_path}/")
    done = subprocess.run(
        ["/bin/sh"], umask=0o077, input=order, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (9, "")
    assert done.stdout == "72[1].head /var/spool/torque/aux/72[1].head 5 al ice bash 0022\n"
    assert not (tmp_path / "vtorque-site-hook").exists()
