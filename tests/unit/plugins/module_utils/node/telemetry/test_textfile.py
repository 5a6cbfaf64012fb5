# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files for a node exporter: of the format, closed labels, nothing followed, gone when their start is."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import stat

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import saved_memory, slots, start_lock
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.telemetry import node_figures, textfile
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists.health_sources import HealthSource
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import delivery_queue
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.exposition import NotInFormat, check_metrics, read_metrics

KEY = "7.head.1"
CANARY = 'a"},evil{x="1\\\n# TYPE up gauge\x1b[2J'


@pytest.fixture
def site(tmp_path: pathlib.Path) -> NodeSettings:
    """A node whose exporter reads a directory."""
    (tmp_path / "metrics").mkdir()
    return NodeSettings(
        node_name="cn1", node_number=1, state_dir=tmp_path / "state", run_dir=tmp_path / "run",
        metrics="textfile", metrics_dir=tmp_path / "metrics", sample_s=30,
    )  # fmt: skip


def names(site: NodeSettings) -> list[str]:
    return sorted(path.name for path in site.metrics_dir.iterdir())


@given(st.lists(st.tuples(st.sampled_from(sorted(textfile.METRICS)), st.text(), st.floats(0, 1e18)), max_size=20))
def test_samples_of_any_value_are_of_the_format(report: list[tuple[str, str, float]]) -> None:
    samples = [
        textfile.Sample(metric, (("node", f"{number}"), ("tag", text)), value)
        for number, (metric, text, value) in enumerate(report)
    ]
    found = read_metrics(textfile.format_samples(samples))
    assert sum(map(len, found.values())) == len(report)
    for sample in samples:
        assert sample.value in found[sample.metric].values()


def test_label_with_text_of_an_attacker_stays_one_label() -> None:
    sample = textfile.Sample("vtorque_guest_info", (("tag", CANARY),), 1)
    found = check_metrics(textfile.format_samples([sample]))
    assert list(found) == ["vtorque_guest_info"]
    ((labels, _value),) = found["vtorque_guest_info"].items()
    assert [name for name, _text in labels] == ["tag"]


@pytest.mark.parametrize(
    "text",
    ["a 1", "# HELP a x\n# TYPE a counter\na 1\n", "# HELP a x\n# TYPE a gauge\na{b=1} 1\n", "x\n",
     "# HELP a x\n# TYPE a gauge\na 1\na 2\n", "# TYPE a gauge\na 1\n"],
)  # fmt: skip
def test_reader_of_these_tests_is_strict(text: str) -> None:
    with pytest.raises((NotInFormat, ValueError)):
        check_metrics(text)


def test_every_metric_is_named_as_prometheus_wants_it() -> None:
    samples = [textfile.Sample(metric, (("node", "cn1"),), 1) for metric in textfile.METRICS]
    assert set(check_metrics(textfile.format_samples(samples))) == set(textfile.METRICS)


def test_file_is_whole_and_the_exporter_may_read_it(site: NodeSettings) -> None:
    textfile.write(KEY, "one\n", site)
    textfile.write(KEY, "two\n", site)
    path = site.metrics_dir / f"vtorque_{KEY}.prom"
    assert path.read_text() == "two\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert textfile.remove(KEY, site)
    assert not textfile.remove(KEY, site)
    assert names(site) == []


def test_link_that_lies_in_wait_is_replaced_and_not_followed(site: NodeSettings, tmp_path: pathlib.Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (f"vtorque_{KEY}.prom", f".vtorque_{KEY}.prom.{os.getpid()}"):
        (site.metrics_dir / name).symlink_to(victim)
    textfile.write(KEY, "figures\n", site)
    assert victim.read_text() == "mine"
    assert names(site) == [f"vtorque_{KEY}.prom"]
    assert not (site.metrics_dir / f"vtorque_{KEY}.prom").is_symlink()


def test_directory_that_is_a_link_is_not_followed(site: NodeSettings, tmp_path: pathlib.Path) -> None:
    (tmp_path / "link").symlink_to(site.metrics_dir)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        textfile.write(KEY, "figures\n", dataclasses.replace(site, metrics_dir=tmp_path / "link"))


def test_file_of_a_start_that_nobody_watches_is_stale(site: NodeSettings) -> None:
    """After a kill -9 of its worker: the lock of the start is held by nobody."""
    for key in (KEY, "8.head.1"):
        textfile.write(key, "figures\n", site)
    for name in ("apt.prom", "vtorque_mine.prom", "notes"):
        (site.metrics_dir / name).touch()
    (site.metrics_dir / ".vtorque_9.head.1.prom.4194305").touch()
    textfile.write(textfile.NODE, "figures\n", site)
    lock = start_lock.Lock(start_lock.start_lock(site, "8.head.1"))
    assert lock.take_now()
    assert len(textfile.remove_stale(site)) == 2
    lock.close()
    assert names(site) == ["apt.prom", "notes", "vtorque_8.head.1.prom", "vtorque_mine.prom", "vtorque_node.prom"]
    assert textfile.remove_stale(site) == ("metrics vtorque_8.head.1.prom",)


def test_site_that_wants_no_files_any_more_loses_them(site: NodeSettings) -> None:
    textfile.write(KEY, "figures\n", site)
    textfile.write(textfile.NODE, "figures\n", site)
    textfile.write(textfile.OFFLINE, "figures\n", site)
    assert len(textfile.remove_stale(dataclasses.replace(site, metrics="record"))) == 3
    assert names(site) == []


def test_figures_of_the_node_count_guests_slots_and_waiting_records(site: NodeSettings) -> None:
    site.slots_dir.mkdir(parents=True)
    (site.slots_dir / "3").symlink_to("7.head.1/vcn1-3")
    assert len(slots.read_slots(site)) == 1
    delivery_queue.mark_pending(KEY, site.state_dir)
    node_figures.write_node(site)
    node_figures.write_offline(site, offline=True)
    with_sources = dataclasses.replace(site, health_sources=(HealthSource("message", "mom"),))
    node_figures.write_degrading(with_sources, degrading=True)
    found = check_metrics("".join((site.metrics_dir / name).read_text() for name in names(site)))
    labels = frozenset({("node", "cn1")})
    assert {metric: samples[labels] for metric, samples in found.items()} == {
        "vtorque_guests": 1, "vtorque_slots_free": 3, "vtorque_spool_waiting": 1, "vtorque_node_offline": 1,
        "vtorque_node_degrading": 1,
    }  # fmt: skip
    node_figures.write_degrading(site, degrading=False)
    assert "vtorque_health.prom" not in names(site)


def test_figures_of_the_node_count_its_templates_where_the_site_has_warm_starts(site: NodeSettings) -> None:
    for name in ("0" * 32, "f" * 32, "making.x", "gone.x", "wanted", "failed"):
        (site.warm_dir / name).mkdir(parents=True)
        (site.warm_dir / name / "record.json").touch()
    (site.warm_dir / ("1" * 32)).mkdir()
    labels = frozenset({("node", "cn1")})
    for warm, expected in ((True, {labels: 2}), (False, None)):
        node_figures.write_node(dataclasses.replace(site, warm_start=warm))
        found = check_metrics((site.metrics_dir / "vtorque_node.prom").read_text())
        assert found.get("vtorque_warm_templates") == expected


def test_guest_on_the_disk_leaves_its_place_to_the_next(site: NodeSettings) -> None:
    """As `slots.take` gives it away: one who looks for room must find it."""
    site.slots_dir.mkdir(parents=True)
    for slot in (1, 2):
        (site.slots_dir / f"{slot}").symlink_to(f"{KEY}/vcn1-{slot}")
    guest = site.guests_dir / KEY / "vcn1-2"
    guest.mkdir(parents=True)
    saved_memory.order_save(guest, 1 << 20)
    saved_memory.memory_file(guest).write_bytes(saved_memory.COMPLETE)
    node_figures.write_node(site)
    found = check_metrics((site.metrics_dir / "vtorque_node.prom").read_text())
    labels = frozenset({("node", "cn1")})
    assert (found["vtorque_guests"][labels], found["vtorque_slots_free"][labels]) == (1, 3)


def test_exporters_directory_that_is_missing_keeps_nobody_from_anything(site: NodeSettings) -> None:
    away = dataclasses.replace(site, metrics_dir=site.metrics_dir / "away")
    node_figures.write_node(away)
    node_figures.write_offline(away, offline=False)
    assert textfile.remove_stale(away) == ()
    assert not textfile.remove(KEY, away)
