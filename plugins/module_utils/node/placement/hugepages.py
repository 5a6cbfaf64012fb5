# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pools of huge pages of this node's cells: what is in them, raised for a start, lowered when it is over.

A start that raises a pool writes down before by how much it will be, and afterwards by how much it is: whoever is
killed between the two leaves what the next one needs to find that out.  A reboot sets the pools as the site has them.
"""

from __future__ import annotations

import json
import pathlib
import re
import typing as t

from ...errors import VTorqueError
from ...system import files
from ...system.clock import Deadline
from ...system.process import process_id
from ..state import slots
from ..state.directories import entries
from ..state.settings import NodeSettings
from ..state.start_lock import lock_alone
from .ledger import Pool, PoolId, page_name

NODES = pathlib.Path("/sys/devices/system/node")
ALL = pathlib.Path("/sys/kernel/mm/hugepages")
LOCK_S = 30.0
_POOL = re.compile(r"node([0-9]{1,5})/hugepages/hugepages-([0-9]{1,9})kB")


def read_pools(nodes: pathlib.Path | None = None) -> dict[PoolId, Pool]:
    """Return all pools of this node; {} where its kernel has none.

    Args:
        nodes: where the kernel shows its cells.
    """
    found = {}
    nodes = nodes or NODES
    for path in sorted(nodes.glob("node[0-9]*/hugepages/hugepages-*kB")):
        if named := _POOL.fullmatch(str(path.relative_to(nodes))):
            numbers = [int((path / name).read_text(encoding="ascii")) for name in ("nr_hugepages", "free_hugepages")]
            found[int(named[1]), int(named[2])] = Pool(*numbers)
    return found


def read_spoken_for(sizes: t.Iterable[int], everywhere: pathlib.Path | None = None) -> dict[int, int]:
    """Return how many free pages the kernel has promised to somebody who has not touched them, by their KiB.

    Args:
        sizes: of pages, in KiB.
        everywhere: where the kernel shows this; of the whole node alone.
    """
    found = {}
    for kib in set(sizes):
        try:
            file = (everywhere or ALL) / f"hugepages-{kib}kB/resv_hugepages"
            found[kib] = int(file.read_text(encoding="ascii"))
        except FileNotFoundError:
            found[kib] = 0
    return found


def pools_mib(settings: NodeSettings) -> int:
    """Return how much of this node's memory is in its pools, and will be: MiB.

    Args:
        settings: say where starts write down what they are about to raise.
    """
    pools = read_pools()
    mib = sum(pool.total * kib // 1024 for (_cell, kib), pool in pools.items())
    for path in entries(settings.pages_dir):
        for (cell, kib), before, more in _read(path)[1]:
            mib += max(0, before + more - pools.get((cell, kib), Pool(0, 0)).total) * kib // 1024
    return mib


def announce(missing: t.Mapping[PoolId, int], key: str, settings: NodeSettings) -> None:
    """Write down that a start is about to raise pools; the caller holds the lock of claims.

    Guests of ordinary memory are created without that lock: they count what is written down here (`pools_mib`).

    Args:
        missing: how many more each pool is to have.
        key: `state.layout.job_key` of the start.
        settings: say where.

    Raises:
        VTorqueError: it was not written.
    """
    finish_interrupted(settings)
    pools = read_pools()
    files.make_directory(settings.pages_dir)
    due = [(pool, pools.get(pool, Pool(0, 0)).total, more) for pool, more in sorted(missing.items())]
    _write(settings.pages_dir / key, due, {})


def raise_pools(key: str, settings: NodeSettings) -> tuple[dict[PoolId, int], str]:
    """Set more pages apart, as announced; the caller holds the lock of claims.

    Args:
        key: `state.layout.job_key` of the start.
        settings: say where it was announced.

    Returns:
        How many more each pool has: the kernel may find fewer that lie together; and why one was not raised, or "".

    Raises:
        VTorqueError: it was not written down.
    """
    path = settings.pages_dir / key
    due = _read(path)[1]
    whys = [_set(pool, before + more) for pool, before, more in due]
    pools = read_pools()
    got = {pool: max(0, pools.get(pool, Pool(0, 0)).total - before) for pool, before, _more in due}
    _write(path, [], got)
    return got, next(filter(None, whys), "")


def finish_interrupted(settings: NodeSettings) -> None:
    """Find out what those did who were killed while they raised pools; the caller holds the lock of claims.

    Args:
        settings: say where they wrote down what they were about to do.
    """
    for path in entries(settings.pages_dir):
        boot, due, got = _read(path)
        if due and boot == process_id.boot_id():
            pools = read_pools()
            for pool, before, more in due:
                got[pool] = min(more, max(0, pools.get(pool, Pool(0, 0)).total - before))
            _write(path, [], got)


def give_back(key: str, settings: NodeSettings) -> tuple[str, ...]:
    """Lower the pools by what a start has raised them; what guests still have of it goes when they end.

    Args:
        key: `state.layout.job_key` of the start, whose guests have ended.
        settings: say by how much that is.

    Returns:
        What was given back.

    Raises:
        VTorqueError: a pool could not be lowered; what it is due stays written down.
    """
    if not (settings.pages_dir / key).exists():
        return ()
    with lock_alone(settings.run_dir / "locks" / slots.LOCK, settings, Deadline.after(LOCK_S)):
        return lower_pools(key, settings)


def lower_pools(key: str, settings: NodeSettings) -> tuple[str, ...]:
    """As `give_back`; the caller holds the lock of claims."""
    finish_interrupted(settings)
    boot, _due, got = _read(settings.pages_dir / key)
    removed = []
    for (cell, kib), count in sorted(got.items()) if boot == process_id.boot_id() else ():
        now = read_pools().get((cell, kib), Pool(0, 0)).total
        if count and now:
            what = f"{count} pages of {page_name(kib)} in NUMA cell {cell}"
            if why := _set((cell, kib), max(0, now - count)):
                raise VTorqueError(f"{what} were not given back", why)
            removed.append(what)
    forget(key, settings)
    return tuple(removed)


def forget(key: str, settings: NodeSettings) -> None:
    """Forget what a start has raised; that of an earlier boot is gone with it, for each boot sets the pools anew."""
    (settings.pages_dir / key).unlink(missing_ok=True)


def _set(pool: PoolId, count: int) -> str:
    """Let a pool have so many pages; why it was refused, or ""."""
    cell, kib = pool
    try:
        file = NODES / f"node{cell}/hugepages/hugepages-{kib}kB/nr_hugepages"
        file.write_text(str(count), encoding="ascii")
    except OSError as error:
        return str(error)
    return ""


Due = list[tuple[PoolId, int, int]]


def _write(path: pathlib.Path, due: Due, got: t.Mapping[PoolId, int]) -> None:
    content = {
        "boot": process_id.boot_id(),
        "due": [[*pool, before, more] for pool, before, more in due],
        "raised": [[*pool, count] for pool, count in got.items()],
    }
    files.write(path, json.dumps(content))


def _read(path: pathlib.Path) -> tuple[str, Due, dict[PoolId, int]]:
    """The boot, what was to be raised from where by how much, and what was raised; nothing where it does not say."""
    try:
        content = files.read_json(path)
        due = [((int(cell), int(kib)), int(before), int(more)) for cell, kib, before, more in content["due"]]
        got = {(int(cell), int(kib)): int(count) for cell, kib, count in content["raised"]}
        return str(content["boot"]), due, got
    except (FileNotFoundError, KeyError, TypeError, ValueError, VTorqueError):
        return "", [], {}
