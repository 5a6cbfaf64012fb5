# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job as ClusterCockpit's archive has it: `meta.json` and `data.json`.

Two forms are in use, and the program refuses fields that are not of its own.  `NOW`, since version 2.3 of
https://github.com/ClusterCockpit/cc-lib (schema/schemas: job-meta, job-data, job-metric-data, job-metric-statistics,
unit); `FORMER`, as https://github.com/ClusterCockpit/cc-backend had it before (pkg/schema/schemas).  A host is a node
of the job: guests of the same node are added up.  Both demand `flops_any` and `mem_bw`, which nobody can count from
outside a guest: they are 0.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ....wire.series import MEASURED, JobSeries
from ..job_record import JobRecord
from .rates import GuestRates, rates_of
from .series_file import read_energy

NEVER_MEASURED = ("flops_any", "mem_bw")
DISKS = ("read_bw", "write_bw")
UNITS = {
    "cpu_load": "",
    "cpu_user": "",
    "cpu_used": "",
    "mem_used": "B",
    "net_bw": "B/s",
    "file_bw": "B/s",
    "eth_read_bw": "B/s",
    "eth_write_bw": "B/s",
    "read_bw": "B/s",
    "write_bw": "B/s",
    "flops_any": "F/s",
    "mem_bw": "B/s",
}
_OF_BOTH = ("cpu_load", "cpu_user", "mem_used", "net_bw", "eth_read_bw", "eth_write_bw", *NEVER_MEASURED)
MOST_STEPS = 200
LEAST_STEP_S = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Archive:
    """The two files of a job."""

    meta: dict[str, t.Any]
    data: dict[str, t.Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """What differs between the forms.

    Attributes:
        metrics: their names, without those of file systems.
        sharing: the field that tells whether the job had its nodes for itself.
        alone: its value if it had.
        among_others: its value else.
        did_not_run: state of a job whose script never ran.
        lost: state of one that lost a guest.
        energy: whether there is a field for joules.
    """

    metrics: tuple[str, ...]
    sharing: str
    alone: str | int
    among_others: str | int
    did_not_run: str
    lost: str
    energy: bool


NOW = Form(_OF_BOTH, "shared", "none", "multi_user", "boot_fail", "node_fail", energy=True)
FORMER = Form((*_OF_BOTH, "cpu_used", "file_bw"), "exclusive", 1, 0, "stopped", "failed", energy=False)


def archive_of(record: JobRecord, series: JobSeries, cluster: str, form: Form = NOW) -> Archive:
    """Return a job in a form of ClusterCockpit's.

    Args:
        record: of the job.
        series: what its nodes measured.
        cluster: what ClusterCockpit calls the cluster.
        form: which one.
    """
    rates = rates_of(series)
    length_s = max((one.intervals[-1].end_s for one in rates if one.intervals), default=0.0)
    step_s = max(LEAST_STEP_S, _whole(length_s / MOST_STEPS), _whole(max((n.every_s for n in series.nodes), default=1)))
    hosts = {
        node: _of_host([one for one in rates if one.node == node], record, step_s, length_s) for node in record.nodes
    }
    hosts = {node: metrics for node, metrics in hosts.items() if metrics}
    data: dict[str, t.Any] = {name: {"node": _metric(name, hosts, step_s)} for name in form.metrics}
    disks = {name: {"node": _metric(name, hosts, step_s)} for name in DISKS}
    data["filesystems"] = [{"name": "disks", "type": "hdd", **disks}]
    return Archive(_meta(record, hosts, cluster, form), data)


def _whole(seconds: float) -> int:
    return int(seconds) + (seconds > int(seconds))


def _of_host(
    rates: t.Sequence[GuestRates], record: JobRecord, step_s: int, length_s: float
) -> dict[str, list[float | None]]:
    """The metrics of a node at even steps."""
    if not any(one.intervals for one in rates):
        return {}
    vcpus = {guest.name: guest.vcpus or 1 for guest in record.guests}
    given = sum(vcpus.get(one.name, 1) for one in rates)
    found: dict[str, list[float | None]] = {name: [] for name in UNITS}
    for number in range(max(1, _whole(length_s / step_s))):
        now = _at(rates, (number + 0.5) * step_s)
        load = now["cpu_load"]
        share = None if load is None else min(1.0, load / given)
        values = {
            "cpu_load": load,
            "cpu_user": share,
            "cpu_used": share,
            "mem_used": now["memory_bytes"],
            "net_bw": _sum(now["receive_bw"], now["send_bw"]),
            "file_bw": _sum(now["read_bw"], now["write_bw"]),
            "eth_read_bw": now["receive_bw"],
            "eth_write_bw": now["send_bw"],
            "read_bw": now["read_bw"],
            "write_bw": now["write_bw"],
            **dict.fromkeys(NEVER_MEASURED, 0.0),
        }
        for name, value in values.items():
            found[name].append(None if value is None else round(value, 4))
    return found


def _at(rates: t.Sequence[GuestRates], at_s: float) -> dict[str, float | None]:
    """The sums of the rates of some guests at a moment."""
    found: dict[str, float | None] = dict.fromkeys(
        ("cpu_load", "memory_bytes", "read_bw", "write_bw", "receive_bw", "send_bw")
    )
    for guest in rates:
        now = next((one for one in guest.intervals if one.begin_s <= at_s < one.end_s), None)
        for name in found if now else ():
            found[name] = _sum(found[name], t.cast("t.Any", now).rates[name])
    return found


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _statistics(values: t.Iterable[float | None]) -> dict[str, float]:
    known = [value for value in values if value is not None] or [0.0]
    return {"avg": round(sum(known) / len(known), 4), "min": min(known), "max": max(known)}


def _metric(name: str, hosts: t.Mapping[str, t.Mapping[str, list[float | None]]], step_s: int) -> dict[str, t.Any]:
    series = []
    for node, metrics in hosts.items():
        values = metrics[name] if any(value is not None for value in metrics[name]) else [0.0]
        series.append({"hostname": node, "statistics": _statistics(values), "data": values})
    return {"unit": {"base": UNITS[name]}, "timestep": step_s, "series": series}


def _meta(
    record: JobRecord,
    hosts: t.Mapping[str, t.Mapping[str, list[float | None]]],
    cluster: str,
    form: Form,
) -> dict[str, t.Any]:
    number, _bracket, member = record.job_id.partition(".")[0].partition("[")
    began, ended = record.began or 1.0, record.ended or record.began or 1.0
    meta: dict[str, t.Any] = {
        "jobId": int(number),
        "user": record.user,
        "project": "",
        "cluster": cluster,
        "subCluster": "main",
        "numNodes": max(1, len(record.nodes)),
        form.sharing: form.alone if _was_alone(record) else form.among_others,
        "startTime": max(1, int(began)),
        "duration": max(1, round(ended - began)),
        "jobState": _state(record, form),
        "resources": [{"hostname": node} for node in record.nodes],
        "statistics": {
            name: {"unit": {"base": UNITS[name]}, **_statistics(value for one in hosts.values() for value in one[name])}
            for name in form.metrics
        },
    }
    if member:
        meta["arrayJobId"] = int(number)
    if vcpus := sum(guest.vcpus or 0 for guest in record.guests):
        meta["numHwthreads"] = vcpus
    joules = read_energy(record)
    if form.energy and joules and len(joules) == len(record.nodes):
        meta["energy"] = round(sum(one for one, _how in joules), 1)
    if record.name:
        meta["metaData"] = {"jobName": record.name}
    return meta


def _was_alone(record: JobRecord) -> bool:
    return any(how == MEASURED for _joules, how in read_energy(record))


def _state(record: JobRecord, form: Form) -> str:
    if record.raw.get("lost"):
        return form.lost
    if record.state != "finished":
        return form.did_not_run
    return "completed" if record.exit_status == 0 else "failed"
