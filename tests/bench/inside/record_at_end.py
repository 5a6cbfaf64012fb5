# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a mother superior, as root: wait for the end of a job.

record_at_end JOB     says its record, which has the epilogue then
"""

from __future__ import annotations

import json
import sys
import time
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system import files

LOOK_S = 0.1
PATIENCE_S = 300.0


def record_of(job_id: str) -> dict[str, t.Any]:
    """Return what the job has written of its newest start."""
    directory = layout.STATE_DIR / "records"
    starts = layout.starts_of(job_id, directory)
    place = directory / layout.job_key(job_id, starts[-1]) / "record.json" if starts else directory
    return files.read_json(place) if place.is_file() else {}


def main() -> None:
    """Look until it is over."""
    job_id, until = json.loads(sys.argv[1]), time.monotonic() + PATIENCE_S
    while "epilogue" not in (record := record_of(job_id)).get("phases", {}):
        if time.monotonic() > until:
            raise SystemExit(f"job {job_id} does not end: {record}")
        time.sleep(LOOK_S)
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
