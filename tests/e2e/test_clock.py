# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's clock is set while a job begins, runs or ends: nothing is late for it, and nothing living is taken for old.

Our own processes alone see another time (other_clock.c); the kernel, libvirt, Torque and the guests see the real one.
With hooks timed by the system's clock the first case was seen to fail: the record told of a prologue of three hours.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import typing as t

import pytest

from .conftest import Site
from .test_doctor import doctor, findings
from .test_phases import PHASES, at_gates, of_sites, open_gates
from .trouble import (
    NODES,
    SUPERIOR,
    finish,
    guest_on,
    sweep,
    wait_in_guest,
)

HOURS_S = 3 * 3600
CLOCK = "/run/lab/clock"
WRAPPER = f"""#!/bin/bash
export LD_PRELOAD=/run/lab/other_clock.so OTHER_CLOCK={CLOCK}
exec -a "$0" /run/lab/python "$@"
"""


@pytest.fixture(scope="module")
def other_clock_so(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The library that shows another time (other_clock.c)."""
    made = tmp_path_factory.mktemp("clock") / "other_clock.so"
    source = pathlib.Path(__file__).with_name("other_clock.c")
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, source], check=True)
    return made.read_bytes()


@contextlib.contextmanager
def other_clock(site: Site, library: bytes, *nodes: str) -> t.Iterator[t.Callable[[int], None]]:
    """Every Python that begins on these nodes has a clock that what is yielded sets: seconds, from the true time."""

    def set_clock(seconds: int) -> None:
        for node in nodes:
            site.root(node, f"echo '{seconds:+d}' >{CLOCK}.new && mv {CLOCK}.new {CLOCK}")

    set_clock(0)
    with contextlib.ExitStack() as stack:
        for node in nodes:
            python = site.root(node, "readlink -f /usr/bin/python3").strip()
            for name, content in (("wrapper", WRAPPER), ("other_clock.so", library)):
                place = f"/run/lab/{name}"
                done = site.on(node, "/bin/sh", "-c", f"cat >{place} && chmod 755 {place}", stdin=content)
                assert done.returncode == 0, done.stderr
            site.root(node, f"cp {python} /run/lab/python && mount --bind /run/lab/wrapper {python}")
            stack.callback(site.root, node, f"umount {python}; cd /run/lab && rm wrapper python clock *.so")
        yield set_clock


def clock_s(site: Site, node: str) -> float:
    """How far the clock of a node's Python is from the true one."""
    output = site.root(node, "/usr/bin/python3 -c 'import time; print(time.time())'; date +%s.%N").split()
    return float(output[0]) - float(output[1])


@pytest.mark.both
@pytest.mark.full
@pytest.mark.parametrize("hours_s", [HOURS_S, -HOURS_S], ids=["forward", "backward"])
def test_clock_that_is_set_under_a_job(site: Site, other_clock_so: bytes, hours_s: int) -> None:
    """In the prologue, while the script runs, and in the epilogue, each time by hours; sweeps look on meanwhile."""
    prologue, epilogue = (
        PHASES[of_sites(site, f"the user's {name} in the guest")] for name in ("prologue", "epilogue")
    )
    with other_clock(site, other_clock_so, *NODES) as set_clock:
        with at_gates(site, {SUPERIOR: prologue}, pair=True) as waiting:
            (one,) = waiting
            set_clock(hours_s)
            assert abs(clock_s(site, SUPERIOR) - hours_s) < HOURS_S / 2
            open_gates(site, waiting)
            assert wait_in_guest(site, one.job_id) == SUPERIOR
            for seconds in (0, hours_s):
                set_clock(seconds)
                for node in NODES:
                    done = sweep(site, node, "--json")
                    assert (done.returncode, done.stderr) == (0, ""), (node, done.stdout)
                    report = json.loads(done.stdout)
                    assert (report["removed"], report["left"]) == ([], []), node
                    assert guest_on(site, node)
            ended = finish(site, one.job_id)
            assert site.left_on_nodes() == []
            assert (ended.exit_status, ended.out, ended.err) == (0, "up\non\n", "")
        with at_gates(site, {SUPERIOR: epilogue}, pair=True) as waiting:
            set_clock(0)
            open_gates(site, waiting)
            last = site.end(waiting[0].job_id)
            assert site.left_on_nodes() == []
            assert (last.exit_status, last.out, last.err) == (0, "up\n", "")
    for job_id in (ended.job_id, last.job_id):
        record = json.loads(site.stored(SUPERIOR, job_id))
        assert record["left"] == []
        assert all(0 <= phase["seconds"] < HOURS_S / 2 for phase in record["phases"].values()), record["phases"]


@pytest.mark.full
def test_doctor_warns_of_a_clock_that_nobody_keeps(site: Site, other_clock_so: bytes) -> None:
    """A person is told what to do; a node is not ill for it."""
    assert sweep(site, SUPERIOR).returncode == 0
    with other_clock(site, other_clock_so, SUPERIOR) as set_clock:
        for seconds, state in ((0, "ok"), (1, "warn")):
            set_clock(seconds)
            done = doctor(site, SUPERIOR, "--local", "--json")
            assert done.returncode == 0, done.stdout
            found = findings(done)["time"]
            assert found["state"] == state
    assert found["problem"] == "the kernel reports that no program synchronises this clock"
    assert found["remedy"].startswith("start chrony")
