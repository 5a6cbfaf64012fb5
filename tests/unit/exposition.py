# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A strict reader of Prometheus' text format, with the rules of `promtool check metrics` that concern us.

Written from https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://prometheus.io/docs/practices/naming/.  Where promtool is installed, it reads the text as well.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import typing as t

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
    for name in found:
        _check_name(name, kinds.get(name, ""), helps.get(name, ""))
    run_promtool(text)
    return found


def _read_comment(line: str, kinds: dict[str, str], helps: dict[str, str], found: t.Container[str]) -> None:
    word, name, rest = [*line[2:].split(" ", 2), "", ""][:3]
    if word not in ("HELP", "TYPE"):
        return
    table = helps if word == "HELP" else kinds
    if name in table or name in found or not re.fullmatch(NAME, name):
        raise NotInFormat(f"late, twice or of no metric: {line}")
    table[name] = rest


def _check_name(name: str, kind: str, meaning: str) -> None:
    wrong = {
        "no help": not meaning,
        "no type": kind not in ("counter", "gauge"),
        "a counter ends with _total": (kind == "counter") != name.endswith("_total"),
        "a suffix of histograms": name.endswith(("_bucket", "_count", "_sum")),
        "the type is part of the name": any(word in name.split("_") for word in ("counter", "gauge")),
        "no base unit": any(
            unit in name.split("_") for unit in ("ms", "kb", "mib", "minutes", "milliseconds", "kilobytes")
        ),
        "camel case": name != name.lower(),
    }
    if rules := [rule for rule, broken in wrong.items() if broken]:
        raise NotInFormat(f"{name}: {', '.join(rules)}")


def run_promtool(text: str) -> None:
    """Let promtool read the text too, where it is installed (Debian's package prometheus)."""
    program = shutil.which("promtool")
    if program and text:
        done = subprocess.run([program, "check", "metrics"], input=text, text=True, capture_output=True, check=False)
        if done.returncode:
            raise NotInFormat(f"promtool: {done.stdout}{done.stderr}")
