# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader of Prometheus' text format for tests, and what Prometheus' own promtool says of a text.

Written from https://prometheus.io/docs/instrumenting/exposition_formats/; promtool is unpacked by lab/prepare.sh.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import typing as t

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "build/prometheus"
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r"[a-zA-Z_][a-zA-Z0-9_]*"
QUOTED = r'"((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL}={QUOTED}(?:,|(?=\}})))*)\}})? (\S+)(?: (-?[0-9]+))?")
PAIR = re.compile(rf"({LABEL})={QUOTED}")
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Labels = frozenset[tuple[str, str]]


class NotInFormat(AssertionError):
    """The text is not of the format, or breaks a rule."""


def read_metrics(text: str) -> dict[str, dict[Labels, float]]:
    """Return the samples of each metric by their labels.

    Raises:
        NotInFormat: says which line.
    """
    if text and not text.endswith("\n"):
        raise NotInFormat("the last line has no end")
    kinds: dict[str, str] = {}
    helps: dict[str, str] = {}
    found: dict[str, dict[Labels, float]] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            _read_comment(line, kinds, helps, found)
            continue
        match = SAMPLE.fullmatch(line)
        if not match:
            raise NotInFormat(line)
        labels = [
            (name, re.sub(r"\\.", lambda one: UNESCAPED[one[0]], value)) for name, value in PAIR.findall(match[2] or "")
        ]
        samples = found.setdefault(match[1], {})
        if len(dict(labels)) != len(labels) or frozenset(labels) in samples:
            raise NotInFormat(f"twice: {line}")
        samples[frozenset(labels)] = float(match[4])
    return found


def _read_comment(line: str, kinds: dict[str, str], helps: dict[str, str], found: t.Container[str]) -> None:
    word, name, rest = [*line[2:].split(" ", 2), "", ""][:3]
    if word not in ("HELP", "TYPE"):
        return
    table = helps if word == "HELP" else kinds
    if name in table or name in found or not re.fullmatch(NAME, name):
        raise NotInFormat(f"late, twice or of no metric: {line}")
    table[name] = rest


def check_metrics(text: str) -> dict[str, dict[Labels, float]]:
    """Return what `read_metrics` does, of a text that Prometheus' own program finds nothing to say about.

    Raises:
        NotInFormat: with the words of the reader or of the program.
    """
    found = read_metrics(text)
    if text:
        done = subprocess.run(
            [PROGRAMS / "promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
        )
        if done.returncode:
            raise NotInFormat(f"promtool: {done.stdout}{done.stderr}")
    return found
