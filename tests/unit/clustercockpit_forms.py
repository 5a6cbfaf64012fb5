# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two forms of ClusterCockpit's job archive: what each demands, and every name that it knows.

Facts of https://github.com/ClusterCockpit/cc-lib, schema/schemas at 3facfa36 (`NOW`: since version 2.3, unchanged in
2.9), and at c55f202d and 49458b59, with those of https://github.com/ClusterCockpit/cc-backend, pkg/schema/schemas at
0a3e6783 (`FORMER`: what all three of them allow).  The program decodes meta.json without unknown fields
(internal/importer), so the names are closed here.
"""

from __future__ import annotations

import typing as t

import jsonschema

NUMBER = {"type": "number", "minimum": 0}
POSITIVE = {"type": "integer", "exclusiveMinimum": 0}
WHOLE = {"type": "integer"}
TEXT = {"type": "string"}


def _closed(required: t.Sequence[str], properties: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": dict(properties),
        "additionalProperties": False,
    }


UNIT = _closed(["base"], {
    "base": {"enum": ["B", "F", "B/s", "F/s", "CPI", "IPC", "Hz", "W", "J", "°C", ""]},
    "prefix": {"enum": ["K", "M", "G", "T", "P", "E"]},
})  # fmt: skip
STATISTICS = {"avg": NUMBER, "min": NUMBER, "max": NUMBER}
JOB_STATISTICS = _closed(["unit", *STATISTICS], {"unit": UNIT, **STATISTICS})
SERIES = _closed(["hostname", "statistics", "data"], {
    "hostname": TEXT, "id": TEXT, "statistics": _closed([*STATISTICS], STATISTICS),
    "data": {"type": "array", "minItems": 1, "contains": NUMBER, "items": {"type": ["number", "null"]}},
})  # fmt: skip
METRIC = _closed(["node"], {
    "node": _closed(["unit", "timestep", "series"],
                    {"unit": UNIT, "timestep": WHOLE, "series": {"type": "array", "items": SERIES}}),
})  # fmt: skip
RESOURCES = {"type": "array", "items": _closed(["hostname"], {
    "hostname": TEXT, "hwthreads": {"type": "array", "items": WHOLE},
    "accelerators": {"type": "array", "items": TEXT}, "configuration": TEXT,
})}  # fmt: skip
META_DATA = _closed([], {"jobScript": TEXT, "jobName": TEXT, "slurmInfo": TEXT})
NEEDED = ("cpu_user", "cpu_load", "mem_used", "flops_any", "mem_bw")
OF_BOTH = (
    *NEEDED, "net_bw", "ipc", "flops_dp", "flops_sp", "acc_mem_used", "acc_power", "clock", "eth_read_bw",
    "eth_write_bw", "ic_rcv_packets", "ic_send_packets", "ic_read_bw", "ic_write_bw",
)  # fmt: skip
NAMES_NOW = (*OF_BOTH, "vectorization_ratio", "cpu_power", "mem_power", "acc_utilization")
NAMES_FORMER = (*OF_BOTH, "file_bw", "cpu_used", "rapl_power", "acc_used")
FILE_SYSTEM = _closed(["name", "type", "read_bw", "write_bw"], {
    "name": TEXT, "type": {"enum": ["nfs", "lustre", "gpfs", "nvme", "ssd", "hdd", "beegfs"]},
    **dict.fromkeys(("read_bw", "write_bw", "read_req", "write_req", "inodes", "accesses", "fsync", "create", "open",
                     "close", "seek"), METRIC),
})  # fmt: skip


class Form(t.NamedTuple):
    """What `meta.json` and `data.json` have to be, as JSON schemas."""

    meta: dict[str, t.Any]
    data: dict[str, t.Any]

    def check(self, meta: t.Any, data: t.Any) -> None:
        """Check both files.

        Raises:
            jsonschema.ValidationError: one of them is not of this form.
        """
        jsonschema.validate(meta, self.meta)
        jsonschema.validate(data, self.data)


def _form(sharing: str, how: t.Mapping[str, t.Any], states: str, names: t.Sequence[str], more: t.Any) -> Form:
    required = ["jobId", "user", "project", "cluster", "subCluster", "numNodes", sharing, "startTime", "jobState",
                "duration", "resources", "statistics"]  # fmt: skip
    meta = _closed(required, {
        "jobId": WHOLE, "arrayJobId": WHOLE, "monitoringStatus": WHOLE, "smt": WHOLE, sharing: how,
        **dict.fromkeys(("user", "project", "cluster", "subCluster", "partition"), TEXT),
        **dict.fromkeys(("numNodes", "numHwthreads", "numAcc", "walltime", "startTime", "duration"), POSITIVE),
        "jobState": {"enum": states.split()}, "resources": RESOURCES, "metaData": META_DATA,
        "statistics": _closed(NEEDED, dict.fromkeys(names, JOB_STATISTICS)), **more,
    })  # fmt: skip
    data = _closed([*NEEDED, "net_bw", "filesystems"], {
        **dict.fromkeys(names, METRIC), "filesystems": {"type": "array", "minItems": 1, "items": FILE_SYSTEM},
    })  # fmt: skip
    return Form(meta, data)


NOW = _form(
    "shared",
    {"enum": ["none", "single_user", "multi_user"]},
    "boot_fail cancelled completed deadline failed node_fail out_of_memory pending preempted running suspended timeout",
    NAMES_NOW,
    {"submitTime": WHOLE, "requestedMemory": POSITIVE, "energy": {"type": "number"}},
)
FORMER = _form(
    "exclusive",
    {"type": "integer", "minimum": 0, "maximum": 2},
    "completed failed stopped out_of_memory timeout",
    NAMES_FORMER,
    {},
)
