# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each switch of a request gains on a site's own hardware (`make bench-iron`, docs/admin/measuring.md).

A user calls it on a front end, in a checkout.  For each switch it submits a job of two guests on one host, one job at a
time, and each job measures the same things.  What is reported is a job's figure over that of the job without switches
of the same round: absolute figures of two runs say nothing of each other, since other jobs share the site.

Nothing but the standard library is needed, and gcc.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {"probe": ROOT / "tests/bench/inside/probe.c", "pingpong": ROOT / "docs/examples/pingpong.c"}
PLAIN = "plain"
REGION = "unclot=true"
WORK = {
    "compute": "a loop of floating point on all vCPUs",
    "copy": "a copy of memory on all vCPUs",
    "write": "1 MiB written to the disk",
    "sync": "4 KiB written to the disk and flushed",
    "read": "4 KiB read from the disk",
    "tcp": "a round trip to the other guest by TCP",
    "region": "the same by the memory that both share",
}
"""What a job measures, each as seconds of one piece of work."""
LOOK_S, PATIENCE_S = 2.0, 3600.0
DISK, COPY_MIB, ROUNDS = "/var/tmp", 128, 5


class IronError(Exception):
    """Nothing can be measured; the text is for the person who called."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A request that is measured.

    Attributes:
        name: of its figures.
        keys: what `-vm` gets besides the keys that all jobs have.
        meaning: for people.
    """

    name: str
    keys: str
    meaning: str


SETTINGS = (
    Setting(PLAIN, "vcpu_pinning=false", "no switch"),
    Setting("same", "vcpu_pinning=false", "no switch, once more: what differs by chance"),
    Setting("pinned", "vcpu_pinning=true,numa=off", "a core for each vCPU"),
    Setting("cells", "vcpu_pinning=true", "the same, with the NUMA cells of these cores"),
    Setting("pages", "vcpu_pinning=true,hugepages=2M", "the same, in huge pages"),
    Setting("io_cores", "vcpu_pinning=true,iocm=true", "cells, and cores for virtual I/O"),
)


@dataclasses.dataclass(frozen=True)
class Order:
    """What is measured, and how.

    Attributes:
        submit: the command that submits a job, with what it asks of the batch system.
        keys: of `-vm`, which all jobs have.
        directory: for programs and figures; guests see it at the same place.
        disk: a directory of the guest on the disk that is measured, or a device, which is written over.
        copy_mib: of memory that each vCPU copies.
        rounds: how often all settings are measured.
        patience_s: for one job, in the queue and at work.
    """

    submit: tuple[str, ...]
    keys: str
    directory: pathlib.Path
    disk: str = DISK
    copy_mib: int = COPY_MIB
    rounds: int = ROUNDS
    patience_s: float = PATIENCE_S


def compile_programs(directory: pathlib.Path) -> None:
    """Create the programs that jobs run, unless they are there.

    Raises:
        IronError: there is no gcc, or it fails.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, source in SOURCES.items():
        if (directory / name).exists():
            continue
        line = ["gcc", "-O2", "-static", "-pthread", "-o", str(directory / name), str(source)]
        try:
            done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            raise IronError("gcc is not installed: install it, or compile the programs elsewhere") from None
        if done.returncode:
            raise IronError(f"gcc fails: {done.stderr[-2000:]}")


def job_script(order: Order, setting: Setting, result: pathlib.Path) -> str:
    """Return the script of a job, which leaves its figures in `result` when it is over."""
    return f"""#!/bin/sh
cd {shlex.quote(str(order.directory))} || exit 1
measure() {{
    ./probe guest {setting.name} {order.copy_mib} {shlex.quote(order.disk)} || return
    for peer in $(sort -u "${{PBS_NODEFILE:-$VTORQUE_HOSTS}}"); do
        [ "$peer" = "$(hostname)" ] || break
    done
    ssh "$peer" "$PWD/pingpong" pong &
    ./pingpong ping "$peer" && wait $!
}}
measure >{shlex.quote(result.name)}.new 2>&1
echo "status $?" >>{shlex.quote(result.name)}.new
mv {shlex.quote(result.name)}.new {shlex.quote(result.name)}
"""


def read_result(text: str) -> dict[str, float]:
    """Return the seconds of each work of `WORK` that a job has measured.

    Args:
        text: that the job has left.

    Raises:
        IronError: it has failed, or measured too little; with its last lines.
    """
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if line.startswith(("region: ", "tcp: ")) and re.fullmatch(r"[0-9.]+", fields[1]):
            found[fields[0][:-1]] = float(fields[1]) / 1e6
        elif len(fields) == 3 and fields[0] in WORK and re.fullmatch(r"[0-9.]+", fields[2]):
            found[fields[0]] = float(fields[2])
    if not text.rstrip().endswith("status 0") or not found.keys() >= WORK.keys() - {"region"}:
        raise IronError(f"the job has failed: {' / '.join(text.splitlines()[-4:])}")
    return found


def run_job(order: Order, setting: Setting, keys: str) -> dict[str, float]:
    """Submit one job, wait for its figures, and return them (`read_result`).

    Raises:
        IronError: it was refused, has failed, or has left nothing in time.
    """
    result = order.directory / f"{setting.name}.out"
    result.unlink(missing_ok=True)
    script = order.directory / f"{setting.name}.sh"
    script.write_text(job_script(order, setting, result), encoding="utf-8")
    line = [*order.submit, "-vm", keys, str(script)]
    done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=order.directory)
    if done.returncode:
        raise IronError(f"refused: {(done.stderr or done.stdout).strip()}")
    job_id = (done.stdout.split() or ["?"])[-1]
    # where the batch system copies it when the job is over
    error = order.directory / f"{script.name}.e{job_id.partition('.')[0]}"
    end = time.monotonic() + order.patience_s
    while not result.exists():
        if error.exists():
            time.sleep(LOOK_S)  # other files may reach this host a little later
            if not result.exists():
                raise IronError(f"job {job_id} did not run: {error.read_text(encoding='utf-8').strip()[-500:]}")
        if time.monotonic() > end:
            raise IronError(f"job {job_id} has left nothing in {order.patience_s:.0f} s: vmgr job log {job_id}")
        time.sleep(LOOK_S)
    return read_result(result.read_text(encoding="utf-8"))


Report = t.Callable[[str], None]


def measure(order: Order, report: Report) -> dict[str, list[dict[str, float]]]:
    """Return what was measured, by setting and round.

    A setting that the site refuses, or whose job fails, is reported and measured no more.

    Raises:
        IronError: not even a job without switches can be measured.
    """
    found: dict[str, list[dict[str, float]]] = collections.defaultdict(list)
    settings, region = list(SETTINGS), f",{REGION}"
    for number in range(order.rounds):
        # the plain one comes first, since all others are compared with it
        for setting in list(settings):
            report(f"round {number + 1} of {order.rounds}: {setting.name}, {setting.meaning}")
            keys = f"{order.keys},vms_per_node=2,{setting.keys}"
            try:
                try:
                    figures = run_job(order, setting, keys + region)
                except IronError as error:
                    if setting.name != PLAIN or number or not region:
                        raise
                    report(f"  without {REGION}: {error}")
                    region = ""
                    figures = run_job(order, setting, keys)
            except IronError as error:
                if setting.name == PLAIN:
                    raise
                report(f"  left out: {error}")
                settings.remove(setting)
                found.pop(setting.name, None)
            else:
                found[setting.name].append(figures)
    return dict(found)


def ratios(found: t.Mapping[str, t.Sequence[t.Mapping[str, float]]]) -> dict[str, list[float]]:
    """Return the figures of each round: `switch_<setting>_<work>_ratio`, and `switch_<setting>_region_over_tcp`.

    The first are over those without switches of the same round, less than 1 is faster; the others compare both ways to
    the other guest within one job.
    """
    figures: dict[str, list[float]] = collections.defaultdict(list)
    for name, rounds in found.items():
        for seconds, plain in zip(rounds, found[PLAIN], strict=True):
            for work in WORK:
                if name != PLAIN and work in seconds and work in plain:
                    figures[f"switch_{name}_{work}_ratio"].append(seconds[work] / plain[work])
            if "region" in seconds:
                figures[f"switch_{name}_region_over_tcp"].append(seconds["region"] / seconds["tcp"])
    return dict(figures)


def format_table(found: t.Mapping[str, t.Sequence[t.Mapping[str, float]]]) -> str:
    """Return the table for people: a row for each setting, medians with the range of all rounds."""
    figures = ratios(found)
    meaning = {setting.name: setting.meaning for setting in SETTINGS}
    rows = [("over a job without switches", *WORK)]
    for name in found:
        if name != PLAIN:
            rows.append((name, *(_cell(figures.get(f"switch_{name}_{work}_ratio", ())) for work in WORK)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"{name}: {meaning[name]}" for name in found]
    for name in found:
        if values := figures.get(f"switch_{name}_region_over_tcp"):
            lines.append(f"{name}: a round trip by the region over one by TCP: {_cell(values, 4)}")
    return "\n".join(lines) + "\n"


def _cell(values: t.Sequence[float], digits: int = 2) -> str:
    if not values:
        return "-"
    middle, least, most = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least}..{most})"


def main(arguments: t.Sequence[str] | None = None) -> int:
    """Measure, print, and save the figures; exit status 1 when nothing could be measured."""
    parser = argparse.ArgumentParser(prog="make bench-iron", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--submit", required=True, help="such as 'vsub -l nodes=1:ppn=18', or 'vsbatch -n 18 -N 1'")
    parser.add_argument("--vm", required=True, help="keys of all jobs, such as img=debian12,vcpus=8,ram=16G")
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path.home() / "vtorque-bench",
                        help="which guests see at the same place (%(default)s)")  # fmt: skip
    parser.add_argument("--disk", default=DISK, help="directory of the guest whose disk is measured (%(default)s)")
    parser.add_argument("--copy-mib", type=int, default=COPY_MIB, help="memory that each vCPU copies (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="(%(default)s)")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds for one job (%(default)s)")
    given = parser.parse_args(arguments)
    order = Order(
        tuple(shlex.split(given.submit)), given.vm, given.directory.absolute(), given.disk, given.copy_mib,
        given.rounds, given.patience,
    )  # fmt: skip
    try:
        compile_programs(order.directory)
        found = measure(order, lambda line: print(line, file=sys.stderr, flush=True))
    except (IronError, OSError) as error:
        print(f"bench-iron: {error}", file=sys.stderr)
        return 1
    saved = order.directory / "figures.json"
    saved.write_text(json.dumps({"seconds": found, "ratios": ratios(found)}, indent=1) + "\n", encoding="utf-8")
    print(format_table(found), end="")
    print(f"figures: {saved}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
