# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of a job: for Prometheus while it runs, in its record afterwards, and gone when nobody writes them."""

from __future__ import annotations

import json
import typing as t

import pytest

from tests.unit.exposition import check_metrics

from .conftest import Site
from .terminal import Terminal

CONFIG = "/etc/vtorque/vtorque.yml"
PLACE = "/run/node-exporter"
LINES = (f"metrics_dir: {PLACE}", "sample_s: 1", "metrics: both")
WORK = """\
dd if=/dev/zero bs=1M count=6 2>/dev/null | od -v
until [ -e ~/go ]; do :; done
cat /sys/class/net/eth0/statistics/tx_bytes >&2
"""
CANARY = "evil_name_of_a_job"


@pytest.fixture
def measured(site: Site) -> t.Iterator[Site]:
    """A site whose nodes sample each second, for an exporter too."""
    for node in ("cn1", "cn2"):
        added = "".join(f"sed -i '1 i {line}' {CONFIG}; " for line in LINES)
        site.root(node, f"mkdir -p {PLACE}; {added}")
    yield site
    for node in ("cn1", "cn2"):
        site.root(node, f"sed -i '1,{len(LINES)} d' {CONFIG}; rm -rf {PLACE}")
        site.on(node, "rm", "-f", "/home/alice/go", user="alice")


def metrics_of(site: Site, node: str) -> str:
    return site.root(node, f"cat {PLACE}/vtorque_[0-9]*.prom 2>/dev/null || true")


def begin_measured(site: Site, script: str) -> tuple[str, str]:
    """Return a job with figures, and its node."""
    job_id = site.submit(stdin=script)
    node = site.runs(job_id)
    site.wait_for("figures", lambda: metrics_of(site, node))
    return job_id, node


def test_figures_of_a_job_are_there_while_it_runs_and_in_its_record_afterwards(measured: Site) -> None:
    site = measured
    job_id = site.submit("-N", CANARY, stdin=WORK)
    terminal = Terminal(site, "vmgr", "job", "watch", job_id)
    node = site.runs(job_id)
    terminal.expect("running")
    site.wait_for("figures of disks", lambda: "block_read" in metrics_of(site, node))
    text = metrics_of(site, node) + site.root(node, f"cat {PLACE}/vtorque_node.prom")
    found = check_metrics(text)
    assert CANARY not in text
    labels = frozenset({("jobid", site.full_id(job_id)), ("rank", "0"), ("node", node)})
    for name in (
        "cpu_seconds_total",
        "memory_bytes",
        "block_read_bytes_total",
        "network_transmit_bytes_total",
        "vcpus",
    ):
        assert found[f"vtorque_guest_{name}"][labels] > 0, name
    assert list(found["vtorque_guests"].values()) == [1]
    site.write("/home/alice/go", "")
    ended = site.end(job_id)
    assert ended.exit_status == 0
    assert metrics_of(site, node) == ""
    terminal.expect("finished, exit status 0")
    assert terminal.process.wait(600) == 0
    site.wait_for("the record on the front end", lambda: site.stored("fe", job_id))
    (guest,) = json.loads(site.stored("fe", job_id))["guests"]
    report = int(ended.err.split()[-1])
    assert report > 1e7
    assert abs(guest["used"]["sent_bytes"] - report) < 0.05 * report
    (measures,) = json.loads(site.stored("fe", job_id, name="series.json"))["nodes"]
    points = measures["guests"][0]["points"].split(";")
    assert len(points) > 2
    assert abs(float(points[-1].split()[-1]) - report) < 0.05 * report
    assert float(points[-1].split()[1]) <= guest["used"]["cpu_s"] + 1
    table = site.on("fe", "vmgr", "job", "export", job_id, "--form", "csv", user="alice")
    assert len(table.stdout.splitlines()) == len(points) + 1, table.stderr


@pytest.mark.full
def test_figures_of_a_worker_that_was_killed_are_gone_after_a_sweep(measured: Site) -> None:
    site = measured
    job_id, node = begin_measured(site, "until [ -e ~/go ]; do sleep 1; done\n")
    site.root(node, "kill -9 $(head -n 1 /run/vtorque/locks/[0-9]* | cut -d ' ' -f 1)")
    site.wait_for(
        "the sweep", lambda: site.root(node, "vtorque-sweep >/dev/null; true") or metrics_of(site, node) == ""
    )
    site.write("/home/alice/go", "")
    assert site.end(job_id).exit_status == 0


def test_qemu_that_hangs_delays_neither_samples_nor_its_own_end(measured: Site) -> None:
    """libvirt waits for it in vain, with the worker's question about its disks."""
    site = measured
    job_id, node = begin_measured(site, "sleep 3600\n")
    site.root(node, "kill -STOP $(cat /run/libvirt/qemu/v*.pid)")
    count = "cat /var/lib/vtorque/records/[0-9]*/samples.jsonl | wc -l"
    before = int(site.root(node, count))
    site.wait_for("samples", lambda: int(site.root(node, count)) > before + 3)
    assert site.on("fe", *site.batch.cancel, job_id, user="alice").returncode == 0
    site.end(job_id)
    assert metrics_of(site, node) == ""
    assert site.left() == []
