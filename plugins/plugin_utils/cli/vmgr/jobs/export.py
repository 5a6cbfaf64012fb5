# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vmgr job export`: a job in the form of other programs."""

from __future__ import annotations

import argparse
import json
import pathlib
import typing as t

from .....module_utils.errors import UserFault
from .....module_utils.job.records.job_record import JobRecord
from .....module_utils.job.records.samples import clustercockpit, otlp, series_file, table
from .....module_utils.wire.series import JobSeries
from ...output.named_file import write_file

EPILOG = """\
clustercockpit    meta.json and data.json of ClusterCockpit's job archive, in the directory that --output names.  A
                  host is a node; flops_any and mem_bw, which nobody can count from outside a guest, are 0
clustercockpit-1  the same for programs before cc-lib 2.3, which know "exclusive" in place of "shared"
otlp              a trace of OpenTelemetry (OTLP in JSON), a span for each phase; a collector takes it at /v1/traces
csv               the samples: a line for each guest and moment

examples:
  vmgr job export 4711 --form csv                                  on standard output
  vmgr job export 4711 --form clustercockpit --output archive/4711 --cluster hpc1
  vmgr job export 4711 --form otlp --output trace.json
"""
ARCHIVES = {"clustercockpit": clustercockpit.NOW, "clustercockpit-1": clustercockpit.FORMER}
FORMS = (*ARCHIVES, "otlp", "csv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb.

    Args:
        parser: of the verb.
    """
    parser.add_argument("--form", required=True, choices=FORMS, help="which form")
    parser.add_argument(
        "--output", default="-", metavar="FILE", help="where to (clustercockpit: a directory); - is standard output"
    )
    parser.add_argument("--cluster", default="vtorque", metavar="NAME", help="what ClusterCockpit calls the cluster")


def run(call: argparse.Namespace, record: JobRecord) -> None:
    """Write a job in the form that was asked for.

    Args:
        call: as the parser read it.
        record: of the job.

    Raises:
        UserFault: it has no samples, or a file cannot be written.
    """
    if call.form == "otlp":
        write_file(call.output, _text(otlp.trace_of(record)))
    elif call.form == "csv":
        write_file(call.output, table.format_csv(_series_of(record)))
    else:
        archive = clustercockpit.archive_of(record, _series_of(record), call.cluster, ARCHIVES[call.form])
        _write_archive(call, archive)


def _series_of(record: JobRecord) -> JobSeries:
    found = series_file.read_series(record.directory)
    if found is None:
        raise UserFault(
            f"job {record.job_id}",
            "its record has no samples",
            "a job has them when it has ended, where the site takes some (metrics, sample_s)",
        )
    return found


def _write_archive(call: argparse.Namespace, archive: clustercockpit.Archive) -> None:
    directory = call.output
    if directory == "-":
        raise UserFault(f"--form {call.form}", "is two files", "name a directory: --output DIRECTORY")
    try:
        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserFault(directory, error.strerror or str(error)) from error
    write_file(f"{directory}/meta.json", _text(archive.meta))
    write_file(f"{directory}/data.json", _text(archive.data))


def _text(data: t.Mapping[str, t.Any]) -> str:
    return f"{json.dumps(data)}\n"
