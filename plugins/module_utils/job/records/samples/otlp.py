# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a job as a trace of OpenTelemetry: OTLP in JSON, as any collector takes it at /v1/traces.

The form: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding and
https://github.com/open-telemetry/opentelemetry-proto (trace.proto): identifiers are hexadecimal, times are texts.
"""

from __future__ import annotations

import hashlib
import typing as t

from .... import installed
from ....errors import VTorqueError
from ..job_record import JobRecord

_INTERNAL = 1
_OK, _ERROR = 1, 2


def trace_of(record: JobRecord) -> dict[str, t.Any]:
    """Return the trace of a start of a job: a span for it, one for each of its phases, and for those of its guests.

    Args:
        record: of the start.
    """
    phases = record.phases
    began = record.began or 0.0
    ended = max([record.ended or began, *(begin + seconds for begin, seconds in phases.values())], default=began)
    root = _identity(record, "job", 8)
    status = {"code": _OK if record.exit_status == 0 and not record.reasons else _ERROR}
    spans = [_span(record, "job", began, ended, "", {"vtorque.state": record.state}, status)]
    for name, (begin, seconds) in phases.items():
        spans.append(_span(record, name, begin, begin + seconds, root, {}))
    for guest in record.guests:
        parent = f"present.{guest.node}"
        begin = phases.get(parent, (began, 0.0))[0]
        named: dict[str, str | int] = {
            "vtorque.guest": guest.name,
            "vtorque.rank": guest.rank or 0,
            "host.name": guest.node,
        }
        for name, seconds in guest.seconds.items():
            above = _identity(record, parent, 8) if parent in phases else root
            spans.append(_span(record, f"{guest.name} {name}", begin, begin + seconds, above, named))
            begin += seconds
    resource: dict[str, str | int] = {
        "service.name": "vtorque",
        "vtorque.job_id": record.job_id,
        "vtorque.start": record.start,
        "enduser.id": record.user,
        "host.name": record.nodes[0] if record.nodes else "",
    }
    scope = {"name": "mikelangelo.vtorque", "version": _version()}
    return {
        "resourceSpans": [
            {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
        ]
    }


def _version() -> str:
    try:
        return installed.version()
    except VTorqueError:
        return ""


def _identity(record: JobRecord, name: str, size: int) -> str:
    """Hexadecimal, the same each time that this start is exported, and never all zeros."""
    text = f"{record.job_id}/{record.start}/{name}"
    return hashlib.sha256(text.encode()).digest()[:size].hex()


def _span(
    record: JobRecord,
    name: str,
    begin: float,
    end: float,
    parent: str,
    facts: t.Mapping[str, str | int],
    status: t.Mapping[str, int] | None = None,
) -> dict[str, t.Any]:
    span = {
        "traceId": _identity(record, "trace", 16),
        "spanId": _identity(record, name, 8),
        "parentSpanId": parent,
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(round(begin * 1e6) * 1000),
        "endTimeUnixNano": str(round(max(begin, end) * 1e6) * 1000),
        "attributes": _attributes(facts),
        "status": dict(status or {}),
    }
    if not parent:
        del span["parentSpanId"]
    return span


def _attributes(facts: t.Mapping[str, str | int]) -> list[dict[str, t.Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in facts.items()
    ]
