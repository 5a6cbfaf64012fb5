# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hook begins before it has read the configuration, and that a site can have none of it."""

from __future__ import annotations

from .hook_site import JOB_ID, Site


def begun_early(site: Site) -> bool:
    """Was `vtorque-node` or a runner begun before there was anything to ask or play?"""
    return "early" in site.ways() or "--early" in site.calls()


def test_second_prologue_begins_early(site: Site) -> None:
    """The first one leaves the settings and the mark for it."""
    for early in (False, True):
        assert site.prologue().returncode == 0
        assert begun_early(site) == early
        assert (site.directory / "ready.json").exists()
    assert len(site.played()) == 2


def test_prologue_without_fast_start_is_played_by_ansible_playbook_alone(site: Site) -> None:
    site.policy("fast_start: false\n")
    for _again in range(2):
        assert site.prologue().returncode == 0
        assert (site.directory / "ready.json").exists()
    assert not begun_early(site)
    assert site.ways() == ["--plain", "--plain"]
    assert site.played() == [f"-i {site.directory}/job.pbs_nodefile.yml mikelangelo.vtorque.prologue"] * 2


def test_epilogue_without_fast_start_is_played_by_ansible_playbook_alone(site: Site) -> None:
    site.policy("fast_start: false\n")
    assert site.prologue().returncode == 0
    assert site.epilogue().returncode == 0
    assert site.ways() == ["--plain", "--plain"]
    assert site.played()[-1].endswith("mikelangelo.vtorque.epilogue")


def test_first_prologue_after_the_change_begins_nothing_early(site: Site) -> None:
    """Either way: what an earlier configuration allowed does not count any more."""
    assert site.prologue().returncode == 0
    site.policy("fast_start: false\n")
    assert site.prologue().returncode == 0
    assert not begun_early(site)
    site.policy("fast_start: true\n")
    assert site.prologue().returncode == 0
    assert not begun_early(site)
    assert site.prologue().returncode == 0
    assert begun_early(site)


def test_fast_start_that_the_configuration_forbids_is_ended(site: Site) -> None:
    """Somebody changed it after the hook had looked at the mark: the node is not asked, and nothing stays."""
    assert site.prologue().returncode == 0
    assert site.prologue(change="fast_start: false\n").returncode == 0
    assert begun_early(site)
    assert site.ways()[-1] == "--plain"
    assert not (site.directory / "asked.json").exists()
    assert (site.directory / "ready.json").exists()
    assert not (site.run_dir / "fast_start").exists()


def test_broken_configuration_allows_nothing_early(site: Site) -> None:
    assert site.prologue().returncode == 0
    site.policy("timeuot: 1\n")
    for _again in range(2):
        assert site.prologue().returncode != 0
    assert not begun_early(site)


def test_job_of_anybody_changes_nothing_about_it(site: Site) -> None:
    """The site's trouble with its configuration is not that of a job that is none of ours."""
    assert site.prologue().returncode == 0
    site.job(other="")
    site.policy("fast_start: false\n")
    assert site.prologue(marker="unknown").returncode == 0
    assert (site.run_dir / "fast_start").exists()
    assert len(site.played()) == 1, JOB_ID
