# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of a job: for Prometheus while it runs, in its record afterwards, and gone when nobody writes them."""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
import re
import typing as t

import pytest

from tests.screen import Screen
from tests.unit import clustercockpit_forms
from tests.unit.exposition import check_metrics
from tests.unit.opentelemetry_form import read_trace
from tests.unit.prometheus import MOMENTS, opened, queries, with_any

from .conftest import Site
from .terminal import Terminal

START_WAYS = ("fast",)  # figures of what a boot reads
CONFIG = "/etc/vtorque/vtorque.yml"
PLACE = "/run/node-exporter"
LINES = (f"metrics_dir: {PLACE}", "sample_s: 1", "metrics: both")
WORK = """\
dd if=/dev/zero bs=1M count=6 2>/dev/null | od -v
until [ -e ~/go ]; do :; done
cat /sys/class/net/eth0/statistics/tx_bytes >&2
"""
CANARY = "evil_name_of_a_job"
DATA = "/home/alice/figures.qcow2"


@pytest.fixture
def measured(site: Site) -> t.Iterator[Site]:
    """A site whose nodes sample each second, for an exporter too."""
    for node in ("cn1", "cn2"):
        added = "".join(f"sed -i '1 i {line}' {CONFIG}; " for line in LINES)
        site.root(node, f"mkdir -p {PLACE}; {added}")
    yield site
    for node in ("cn1", "cn2"):
        site.root(node, f"sed -i '1,{len(LINES)} d' {CONFIG}; rm -rf {PLACE}")
        site.on(node, "rm", "-rf", "/home/alice/go", "/home/alice/figures", "/home/alice/archive", DATA, user="alice")


def metrics_of(site: Site, node: str) -> str:
    return site.root(node, f"cat {PLACE}/vtorque_[0-9]*.prom 2>/dev/null || true")


@contextlib.contextmanager
def no_node_free(site: Site) -> t.Iterator[None]:
    """Have jobs wait in their queue."""
    for node in ("cn1", "cn2"):
        site.root("fe", site.batch.offline.format(node))
    try:
        yield
    finally:
        for node in ("cn1", "cn2"):
            site.root("fe", site.batch.clear.format(node))


def states_of(frame: str) -> t.Iterator[str]:
    """Yield what a table says of the state of jobs."""
    begin = 0
    for line in frame.splitlines():
        if line.split()[:4] == ["job", "name", "user", "state"]:
            begin = line.index("state")
        elif CANARY in line:
            yield line[begin:].split("  ")[0].strip()


def assert_watched(screen: Screen, node: str) -> None:
    """Check what a user has seen of a job: one table that was drawn over, from queued to the end of the job."""
    states = [state for frame in screen.frames for state in states_of(frame)]
    order = list(dict.fromkeys(states))
    assert order[:1] == ["queued"], list(screen.frames)
    assert order[-1] == "finished, exit status 0"
    assert "running" in order
    assert len(order) == sum(before != after for before, after in itertools.pairwise(states)) + 1, "none comes back"
    heading, _line, row = screen.lines[-3:]
    assert heading.split()[:4] == ["job", "name", "user", "state"], screen.text
    assert row[heading.index("nodes") :].split()[0] == node
    assert row[heading.index("guests") :].split()[0] == "1"
    assert next(line for line in screen.lines if line) == heading
    assert all(frame.count("user") <= 1 for frame in screen.frames)


def begin_measured(site: Site, script: str) -> tuple[str, str]:
    """Return a job with figures, and its node."""
    job_id = site.submit(stdin=script)
    node = site.runs(job_id)
    site.wait_for("figures", lambda: metrics_of(site, node))
    return job_id, node


def assert_dashboard_draws(site: Site, node: str, place: pathlib.Path) -> None:
    """Check that a real Prometheus answers each query of the dashboard by the files that the node has written."""
    site.root(node, "vtorque-sweep >/dev/null; true")  # which writes whether the node is offline
    texts = [site.root(node, f"cat {PLACE}/vtorque_*.prom") for _moment in range(MOMENTS)]
    with opened(place, texts) as ask:
        for query in queries():
            found = ask("query", {"query": with_any(query)})["result"]
            # a machine without counters of energy, a site without warm starts or sources of health have no such figures
            wanted = [metric in texts[-1] for metric in re.findall(r"vtorque_\w+", query)]
            assert bool(found) == all(wanted), query
            assert all(wanted) or re.search("energy|warm_templates|degrading", query), query


def assert_exported(site: Site, job_id: str) -> None:
    """Check that the record of a real job has the forms of other programs."""
    for name, form in (("clustercockpit", clustercockpit_forms.NOW), ("clustercockpit-1", clustercockpit_forms.FORMER)):
        place = f"/home/alice/archive/{name}"
        done = site.on("fe", "vmgr", "job", "export", job_id, "--form", name, "--output", place, user="alice")
        assert done.returncode == 0, done.stderr
        meta, data = (json.loads(site.read(f"{place}/{file}.json")) for file in ("meta", "data"))
        form.check(meta, data)
        assert (meta["user"], meta["jobState"]) == ("alice", "completed")
        assert max(rate or 0 for rate in data["eth_write_bw"]["node"]["series"][0]["data"]) > 0
    done = site.on("fe", "vmgr", "job", "export", job_id, "--form", "otlp", user="alice")
    spans = read_trace(done.stdout).scope_spans[0].spans
    assert {"job", "prologue", "epilogue"} <= {span.name for span in spans}
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)


@pytest.mark.both
def test_figures_of_a_job_are_there_while_it_runs_and_in_its_record_afterwards(
    measured: Site, tmp_path: pathlib.Path
) -> None:
    site = measured
    with no_node_free(site):
        job_id = site.submit(site.batch.named, CANARY, stdin=WORK)
        terminal = Terminal(site, "vmgr", "job", "watch", job_id, size=(24, 120))
        terminal.expect_frame("queued")
    node = site.runs(job_id)
    terminal.expect_frame("running")
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
    assert_dashboard_draws(site, node, tmp_path)
    site.write("/home/alice/go", "")
    ended = site.end(job_id)
    assert ended.exit_status == 0
    assert metrics_of(site, node) == ""
    assert terminal.close() == 0
    assert_watched(terminal.screen, node)
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
    reader = Terminal(site, "vmgr", "job", "show", job_id, size=(60, 160))
    assert reader.close() == 0
    bars = r"^  .*(vcpus|waits|memory|disk|net) +[█░]{24} +[0-9]+ % of .*"
    kinds = re.findall(bars, reader.screen.text, re.MULTILINE)
    assert {"vcpus", "memory"} <= set(kinds), reader.screen.text
    assert all(len(line) < 160 for line in reader.screen.lines)
    table = site.on("fe", "vmgr", "job", "export", job_id, "--form", "csv", user="alice")
    assert len(table.stdout.splitlines()) == len(points) + 1, table.stderr
    assert_exported(site, job_id)


@pytest.mark.full
@pytest.mark.both
def test_figures_of_a_worker_that_was_killed_are_gone_after_a_sweep(measured: Site) -> None:
    site = measured
    job_id, node = begin_measured(site, "until [ -e ~/go ]; do sleep 1; done\n")
    site.root(node, "kill -9 $(head -n 1 /run/vtorque/locks/[0-9]* | cut -d ' ' -f 1)")
    site.wait_for(
        "the sweep", lambda: site.root(node, "vtorque-sweep >/dev/null; true") or metrics_of(site, node) == ""
    )
    site.write("/home/alice/go", "")
    assert site.end(job_id).exit_status == 0


@pytest.mark.full
@pytest.mark.both
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


BLOB = 100 << 20
ON_EACH = """\
cd /home/alice/figures
me=$(hostname)
number=$(grep -n "^$me" hosts | cut -d: -f1)
next=$(sed -n "$((number % 4 + 1))p" hosts)
all() { touch "$1.$me"; until [ "$(ls "$1".* | wc -l)" = 4 ]; do sleep 1; done; }
busybox httpd -p 8080 -h /home/alice/figures
all up
until busybox wget -q -O /dev/null "http://$next:8080/blob"; do sleep 1; done
all served
echo "$me" $(cat /sys/class/net/eth0/statistics/rx_bytes /sys/class/net/eth0/statistics/tx_bytes) >>counts
all counted
"""
FOUR = """\
cd /home/alice/figures
sort -u $HOSTS >hosts
$EACH sh /home/alice/figures/each.sh
dd if=/dev/zero of=/data/blob bs=1M count=100 conv=fsync 2>/dev/null
cat /sys/block/vd?/stat | awk '{ written += $7 * 512 } END { print written }' >written
touch counts.whole
until [ -e /home/alice/go ]; do sleep 1; done
"""
KERNEL_COUNTS = """
for file in /run/libvirt/qemu/v*.pid; do echo $(basename $file .pid) $(cat /proc/$(cat $file)/stat); done
"""


@pytest.mark.full
def test_figures_of_four_guests_are_what_the_guests_and_the_kernel_count(measured: Site) -> None:
    """100 MB sent by each and 100 MB written by one, by the guests' own counts; processor time by the kernel's.

    An emulated guest counts time in which its threads waited for a core of the node as its own work, so it is no judge
    of its processor time.
    """
    site = measured
    made = site.on("fe", "vmgr", "disk", "create", DATA, "200M", user="alice")
    assert made.returncode == 0, made.stderr
    site.write("/home/alice/figures/each.sh", ON_EACH)
    site.root("fe", f"head -c {BLOB} /dev/zero >/home/alice/figures/blob")
    script = FOUR.replace("HOSTS", site.batch.hosts).replace("$EACH", site.batch.on_each)
    request = f"vms_per_node=2,vcpus=1,ram=192M,disk={DATA}"
    job_id = site.submit(*site.batch.pair, "-vm", request, stdin=script)
    site.wait_for("the guests' counts", lambda: site.root("fe", "ls /home/alice/figures/counts.whole || true"))
    counts = {
        name.partition(".")[0]: (int(received), int(sent))
        for name, received, sent in map(str.split, site.root("fe", "cat /home/alice/figures/counts").splitlines())
    }
    written = int(site.root("fe", "cat /home/alice/figures/written"))
    seconds = {}
    for node in ("cn1", "cn2"):
        for line in site.root(node, KERNEL_COUNTS).splitlines():
            name, _pid, _program, *rest = line.split()
            seconds[name] = (int(rest[11]) + int(rest[12])) / 100
    site.write("/home/alice/go", "")
    assert site.end(job_id).exit_status == 0
    site.wait_for("the record on the front end", lambda: site.stored("fe", job_id))
    record = json.loads(site.stored("fe", job_id))
    guests = {one["name"]: one["used"] for one in record["guests"]}
    series = json.loads(site.stored("fe", job_id, name="series.json"))["nodes"]
    sampled = {
        one["name"]: one["points"].split(";")[-1].split() for node in series for one in node["guests"]
    }  # by `series.FIGURES`, after the time
    assert len(guests) == len(sampled) == len(counts) == len(seconds) == 4
    for name, used in guests.items():
        received, sent = counts[name]
        assert sent > BLOB
        assert used["received_bytes"] == pytest.approx(received, rel=0.05)
        assert used["sent_bytes"] == pytest.approx(sent, rel=0.05)
        assert float(sampled[name][6]) == pytest.approx(received, rel=0.05)
        assert float(sampled[name][7]) == pytest.approx(sent, rel=0.05)
        assert used["cpu_s"] == pytest.approx(seconds[name], rel=0.05)
        assert float(sampled[name][1]) == pytest.approx(seconds[name], rel=0.05)
    assert written > BLOB
    assert record["guests"][0]["used"]["written_bytes"] == pytest.approx(written, rel=0.05)
