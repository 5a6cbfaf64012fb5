# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trace as a collector of OpenTelemetry reads it, by OpenTelemetry's own definitions."""

from __future__ import annotations

import base64
import json
import typing as t

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

IDENTIFIERS = ("traceId", "spanId", "parentSpanId")


def read_trace(text: str) -> trace_pb2.ResourceSpans:
    """Return the one resource of a trace, no field of which is unknown.

    OTLP's JSON has identifiers as hexadecimal where protobuf's has base64:
    https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding

    Args:
        text: OTLP in JSON.

    Raises:
        json_format.ParseError: it is none.
    """
    trace = json.loads(text)
    for resource in trace["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in IDENTIFIERS:
                    if key in span:
                        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    request = json_format.ParseDict(trace, trace_service_pb2.ExportTraceServiceRequest())
    (found,) = request.resource_spans
    return t.cast(trace_pb2.ResourceSpans, found)
