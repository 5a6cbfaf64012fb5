# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose guests of the lab's default shape start warm: the way `warm` of a start (conftest.py).

A template is made once for all labs that have the same programs, image and configuration; the others get a copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import typing as t

from lab.cluster import on_nodes
from lab.installation import runtime
from lab.system import places

from .conftest import CHECKOUT, Site
from .trouble import CONFIG, NODES, POOL, changed

WARM = "/var/lib/vtorque/warm"
IMAGE = "tiny"
STORE = CHECKOUT / "build/warm"
COPY_TIMEOUT_S = 300
NO_WANT = "nothing"
"""A mark of no template: with `warm_max` of them nothing else is wanted (`node/warm/wants.py`)."""
_GIVEN: set[str] = set()
"""Templates of nodes of labs that were found good once."""


@contextlib.contextmanager
def started_warm(site: Site) -> t.Iterator[None]:
    """Guests start warm on all nodes of the lab; templates stay there for the next file of tests."""
    for node in NODES:
        if not _has_template(site, node):
            _give(site, node)
    try:
        # else sweeps would make what guests of other shapes have wanted, beside tests that expect nothing on a node
        for node in NODES:
            site.root(node, f"mkdir -p -m 700 {WARM}/wanted && touch {WARM}/wanted/{NO_WANT}")
        with changed(site, ("fe", *NODES), warm_start=True, warm_max=1):
            yield
    finally:
        for node in NODES:
            site.root(node, f"rm -rf {WARM}/wanted")


def _newest() -> pathlib.Path:
    return max(POOL.glob(f"{IMAGE}@*"), key=lambda path: int(path.name.partition("@")[2]))


def _has_template(site: Site, node: str) -> bool:
    there = {f"{site.directory} {node} {name}" for name in site.root(node, f"ls {WARM} 2>/dev/null || true").split()}
    if not there & _GIVEN:  # the product's own answer takes a start of Python
        listed = json.loads(site.root(node, "vmgr image warm list --json"))["templates"]
        good = [one["key"] for one in listed if one["image"] == _newest().name and not one["old"]]
        _GIVEN.update(f"{site.directory} {node} {key}" for key in good)
    return bool(there & _GIVEN)


def _give(site: Site, node: str) -> None:
    """Give a node the template of the default shape, which is made unless there is a copy of it."""
    STORE.mkdir(exist_ok=True)
    with (STORE / ".lock").open("w") as lock:  # labs side by side would make the same one
        fcntl.flock(lock, fcntl.LOCK_EX)
        copy = STORE / f"{_digest(site, node)}.tar"
        if copy.exists():
            site.root(node, f"mkdir -p -m 711 {WARM}")
            with copy.open("rb") as stream:
                _run(site, node, ["tar", "-x", "-p", "-C", WARM], stdin=stream)
            if _has_template(site, node):
                return
        made = site.on(node, "vmgr", "image", "warm", "make", IMAGE, "--json")
        assert made.returncode == 0, made.stderr
        key = json.loads(made.stdout)["key"]
        # a lab's own nodes, and those that the roles have installed, have each their own
        for old in sorted(STORE.glob("*.tar"), key=lambda path: path.stat().st_mtime)[:-1]:
            old.unlink()
        part = copy.with_suffix(".new")
        with part.open("wb") as stream:
            _run(site, node, ["tar", "-c", "-C", WARM, key], stdout=stream)
        part.rename(copy)


def _run(site: Site, node: str, arguments: list[str], **streams: t.Any) -> None:
    line = on_nodes.command(site.facts_of_lab, node, arguments)
    subprocess.run(line, check=True, timeout=COPY_TIMEOUT_S, **{"stdin": subprocess.DEVNULL, **streams})


def _digest(site: Site, node: str) -> str:
    """Return a digest of what a template depends on; the product's own key decides whether a guest may have it."""
    config = site.root(node, f"grep -v -e '^#' -e '^node_number:' -e '^batch_system:' {CONFIG}")
    processor = [
        line
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith(("model name", "stepping", "microcode", "flags"))
    ]
    programs = []
    for program in ("qemu-system-x86_64", "libvirtd"):
        found = os.stat(shutil.which(program, path="/usr/sbin:/usr/bin") or "/")
        programs.append(f"{program} {found.st_size} {found.st_mtime_ns}")
    facts = [
        config, (_newest() / "record.json").read_text(), *sorted(set(processor)), *programs, os.uname().release,
        runtime.stamp(places.RUNTIME),
    ]  # fmt: skip
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]
