# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has run on which systems: the table behind the supported versions in README.md and docs/admin/requirements.md.

    support.py record [--batch torque|slurm] [--python PYTHON] COMMAND
                     COMMAND has passed on this machine: write a file in build/support with the versions it ran with
    support.py merge [DIRECTORY]
                     fold these files, or those of another checkout's build/support, into tests/texts/support.yml

The commands themselves call `record` at their end. A run of another date on the same versions replaces the former.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import pathlib
import platform
import subprocess
import sys
import typing as t

import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
RUNS = CHECKOUT / "build/support"
TABLE = CHECKOUT / "tests/texts/support.yml"
STAND_IN = "stand-in for TORQUE 6.1.3"
PACKAGES = {"libvirt": "libvirt-daemon-system", "qemu": "qemu-system-x86", "nftables": "nftables", "python": "python3"}
"""By what a run names: the package of the distribution whose version counts."""


def main(arguments: t.Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    record = verbs.add_parser("record")
    record.add_argument("--batch", action="append", default=[], choices=("torque", "slurm"))
    record.add_argument("--python", default=str(CHECKOUT / "build/runtime/bin/python"))
    record.add_argument("command")
    merge = verbs.add_parser("merge")
    merge.add_argument("directory", nargs="?", type=pathlib.Path, default=RUNS)
    asked = parser.parse_args(arguments)
    if asked.verb == "merge":
        merge_runs(asked.directory)
    else:
        record_run(asked.command, asked.batch, asked.python)
    return 0


def record_run(command: str, batches: t.Iterable[str], python: str) -> None:
    """Write the file of a run that has passed on this machine.

    Args:
        command: as a person types it.
        batches: names of the batch systems that its jobs ran on.
        python: interpreter of the environment whose ansible-core it used.
    """
    print_version = "import importlib.metadata as m; print(m.version('ansible-core'))"
    ansible = subprocess.run([python, "-c", print_version], check=True, capture_output=True, text=True).stdout.strip()
    run = {
        "command": command,
        "date": datetime.datetime.now(tz=datetime.UTC).date(),
        "system": "Debian " + pathlib.Path("/etc/debian_version").read_text(encoding="ascii").strip(),
        "batch": [STAND_IN if one == "torque" else f"Slurm {installed('slurmctld')}" for one in batches],
        **{name: installed(package) for name, package in PACKAGES.items()},
        "ansible-core": ansible,
        "machine": platform.machine(),
    }
    RUNS.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(repr(key_of(run)).encode()).hexdigest()[:12]
    (RUNS / f"{name}.yml").write_text(dump([run]), encoding="utf-8")


def installed(package: str) -> str:
    """Return the upstream version of an installed package: "9.0.0" of 9.0.0-4+deb12u2."""
    printed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${source:Upstream-Version}", package], check=True, capture_output=True, text=True
    )
    return printed.stdout.strip().partition("+")[0]


def merge_runs(directory: pathlib.Path) -> None:
    """Fold the files of runs into the table; the later of two runs of one command on one system stays."""
    table = {key_of(run): run for run in yaml.safe_load(TABLE.read_text(encoding="utf-8"))["runs"]}
    for file in sorted(directory.glob("*.yml")):
        for run in yaml.safe_load(file.read_text(encoding="utf-8")):
            former = table.get(key_of(run))
            if former is None or former["date"] <= run["date"]:
                table[key_of(run)] = run
    head, _, _ = TABLE.read_text(encoding="utf-8").partition("runs:")
    TABLE.write_text(head + dump({"runs": [table[key] for key in sorted(table)]}), encoding="utf-8")


def key_of(run: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    """Return what makes two runs the same row: the command, and the releases it ran on without their last number."""
    releases = (run["ansible-core"], run["libvirt"])
    return (run["system"].partition(".")[0], run["command"], *(one.rpartition(".")[0] for one in releases))


def dump(data: t.Any) -> str:
    """Return data as YAML, a line for each value."""
    return yaml.safe_dump(data, sort_keys=False, width=1000)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
