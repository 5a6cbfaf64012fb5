# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `make lab` suggests to type: all of it runs as it stands, and finds all well."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import CHECKOUT, Site

BY_HAND = ("vsub -I", "vsalloc", "make down")
"""A terminal has tests of its own (`test_interactive.py`), and the lab is ended by its fixture."""


def suggested(site: Site) -> list[str]:
    """Return the lines that `make lab` prints to be typed, in order."""
    arguments = [sys.executable, "-m", "lab.stories.demo", "--image", "tiny", "--batch", site.batch.name, "--next"]
    text = subprocess.run(
        arguments, cwd=CHECKOUT, capture_output=True, text=True, check=True, env=site.environment
    ).stdout  # fmt: skip
    return [line.strip() for line in text.splitlines() if line.startswith("  ")]


def type_line(site: Site, line: str, job: str) -> str:
    """Run a line in a shell like the user's, which knows the alias and the job; return what it printed."""
    arguments = [
        "shopt -s expand_aliases",
        suggested(site)[0],
        f"job={job}",
        line,
        *(['echo "$job"'] if not job else []),
    ]
    # a shell takes an alias from the line after it
    done = subprocess.run(
        ["/bin/bash", "-c", "\n".join(arguments)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        env=site.environment,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{line}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.both
def test_suggestions_of_make_lab_run_and_find_all_well(site: Site) -> None:
    """Also where the front end has a MOM's directory, as Torque's own `make install` makes it on every host."""
    swept = site.run("sweeps")  # as lab/demo.sh does before it suggests anything
    assert (swept.returncode, swept.stderr) == (0, "")
    if site.batch.name == "torque":
        site.root("fe", "mkdir -m 751 /var/spool/torque/mom_priv")
    job = ""
    printed = {}
    for line in suggested(site)[1:]:
        if line.startswith("job="):
            job = type_line(site, line, "").strip()
            site.wait_state(job, "C")
        elif not any(word in line for word in BY_HAND):
            printed[line.partition("#")[0].strip()] = type_line(site, line, job)
    if site.batch.name == "torque":
        site.root("fe", "rmdir /var/spool/torque/mom_priv")
    look = "lab on fe --user alice -- vmgr job"
    assert job in printed[f"{look} list"]
    assert job in printed[f'{look} show "$job"']
    assert printed["lab on fe -- vmgr doctor"].splitlines()[-1] == "All 3 hosts are well."
    assert printed["lab left"].startswith("nothing of a job is on ")
    done = subprocess.run(
        ["lab/demo.sh"], cwd=CHECKOUT, capture_output=True, text=True, check=False, env=site.environment
    )
    assert done.returncode == 2, done.stdout
    assert "the cluster of `make lab` is up" in done.stderr
    assert site.run("status").returncode == 0, "the demo has left the cluster of others alone"
