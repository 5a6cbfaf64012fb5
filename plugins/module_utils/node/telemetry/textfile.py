# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures for Prometheus: files in the directory that a node exporter reads (`--collector.textfile.directory`).

    vtorque_<job>.<start>.prom      of the guests of a start, while its worker lives
    vtorque_node.prom               of the node
    vtorque_offline.prom            whether vTorque has set the node offline, as the sweep found it
    vtorque_health.prom             whether the node is degrading, as the sweep found it

The labels are closed: `jobid`, `rank` and `node` of a figure, besides them `user`, `image` and `tag` of `_info`, and
`source` of energy.  Nothing that a user chooses freely is among them; what is not plain is escaped.
Format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import typing as t

from ...frozen import frozen
from ...state.layout import start_of
from ...text import printable
from ..state import start_lock
from ..state.settings import NodeSettings

METRICS: dict[str, tuple[str, str]] = {
    "vtorque_guest_cpu_seconds_total": ("counter", "Processor time of a guest's process."),
    "vtorque_guest_vcpu_wait_seconds_total": (
        "counter",
        "Time in which vCPUs of a guest were ready and waited for a processor of the node.",
    ),
    "vtorque_guest_memory_bytes": ("gauge", "Memory that a guest's process has."),
    "vtorque_guest_block_read_bytes_total": ("counter", "Bytes read from the disks of a guest."),
    "vtorque_guest_block_written_bytes_total": ("counter", "Bytes written to the disks of a guest."),
    "vtorque_guest_network_receive_bytes_total": ("counter", "Bytes that a guest received."),
    "vtorque_guest_network_transmit_bytes_total": ("counter", "Bytes that a guest sent."),
    "vtorque_guest_vcpus": ("gauge", "Virtual processors that a guest was given."),
    "vtorque_guest_memory_limit_bytes": ("gauge", "Memory that a guest was given."),
    "vtorque_guest_info": ("gauge", "A guest of a job, with its user, its image and the site's tag; always 1."),
    "vtorque_job_energy_joules_total": (
        "counter",
        "Energy of a job on a node since its first sample, measured, or estimated by processor time.",
    ),
    "vtorque_guests": ("gauge", "Guests on a node."),
    "vtorque_slots_free": ("gauge", "Guests that a node could still take."),
    "vtorque_spool_waiting": ("gauge", "Records of jobs on a node that wait for the front end."),
    "vtorque_warm_templates": ("gauge", "Templates on a node, from which guests start warm."),
    "vtorque_node_offline": ("gauge", "Whether vTorque has set a node offline, and its cause is not gone."),
    "vtorque_node_degrading": ("gauge", "Whether a source of a node's health reports that it is degrading."),
}
"""Every metric, its type and its meaning."""
OF_FIGURES = (
    "vtorque_guest_cpu_seconds_total",
    "vtorque_guest_vcpu_wait_seconds_total",
    "vtorque_guest_memory_bytes",
    "vtorque_guest_block_read_bytes_total",
    "vtorque_guest_block_written_bytes_total",
    "vtorque_guest_network_receive_bytes_total",
    "vtorque_guest_network_transmit_bytes_total",
)
"""Metrics of the figures of a point, in the order of `series.FIGURES`."""
NODE, OFFLINE, HEALTH = OF_NODES = ("node", "offline", "health")
_NAMED = re.compile(r"vtorque_(.+)\.prom")
_HALF = re.compile(r"\.vtorque_.+\.prom\.[0-9]+")


@frozen
class Sample:
    """One value of a metric.

    Attributes:
        metric: of `METRICS`.
        labels: names and values.
        value: of it.
    """

    metric: str
    labels: tuple[tuple[str, str], ...]
    value: float


def wanted(settings: NodeSettings) -> bool:
    """Return whether the site wants such files."""
    return settings.metrics in ("textfile", "both")


def format_samples(samples: t.Iterable[Sample]) -> str:
    """Return samples in the text format of Prometheus, by metric."""
    by_metric: dict[str, list[str]] = {}
    for sample in samples:
        labels = ",".join(f'{name}="{escape(value)}"' for name, value in sample.labels)
        by_metric.setdefault(sample.metric, []).append(f"{sample.metric}{{{labels}}} {_number(sample.value)}\n")
    found = []
    for metric, (kind, meaning) in METRICS.items():
        if metric in by_metric:
            found += [f"# HELP {metric} {meaning}\n# TYPE {metric} {kind}\n", *by_metric[metric]]
    return "".join(found)


def escape(value: str) -> str:
    """Return the value of a label as it stands between quotes."""
    return printable(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def write(name: str, text: str, settings: NodeSettings) -> None:
    """Write a file, whole or not at all; nothing that lies in the directory is followed or opened.

    Args:
        name: one of `OF_NODES`, or the key of a start.
        text: as `format_samples` returns it.
        settings: NodeSettings of this node.

    Raises:
        OSError: it was not written.
    """
    with _directory(settings) as place:
        new, final = f".vtorque_{name}.prom.{os.getpid()}", f"vtorque_{name}.prom"
        with contextlib.suppress(FileNotFoundError):  # of a process of that number that was killed
            os.unlink(new, dir_fd=place)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=place)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as stream:
                os.fchmod(fd, 0o644)
                stream.write(text)
            os.rename(new, final, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new, dir_fd=place)
            raise


def remove(name: str, settings: NodeSettings) -> bool:
    """Take a file away; False: there was none."""
    with contextlib.suppress(OSError), _directory(settings) as place:
        os.unlink(f"vtorque_{name}.prom", dir_fd=place)
        return True
    return False


def remove_stale(settings: NodeSettings) -> tuple[str, ...]:
    """Take away what no worker writes any more: of starts that nobody watches, and all of it where none is wanted.

    Returns:
        What was removed, as words.
    """
    removed = []
    with contextlib.suppress(OSError), _directory(settings) as place:
        for name in sorted(os.listdir(place)):  # noqa: PTH208 - of a descriptor
            if _is_stale(name, settings):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=place)
                    removed.append(f"metrics {printable(name)}")
    return tuple(removed)


def _is_stale(name: str, settings: NodeSettings) -> bool:
    if _HALF.fullmatch(name):
        return not pathlib.Path("/proc", name.rpartition(".")[2]).exists()
    found = _NAMED.fullmatch(name)
    if not found or (found[1] not in OF_NODES and start_of(found[1]) is None):
        return False
    if not wanted(settings):
        return True
    return found[1] not in OF_NODES and not start_lock.is_locked(start_lock.start_lock(settings, found[1]))


@contextlib.contextmanager
def _directory(settings: NodeSettings) -> t.Iterator[int]:
    fd = os.open(settings.metrics_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
