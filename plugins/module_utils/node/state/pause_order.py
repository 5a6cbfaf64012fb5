# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order that the guests of a start stand still on this node: a file, which their worker follows.

The worker (`lifecycle/pausing.py`) does so whenever it can.  The file is root's, and made by the batch server's word
alone.  Whoever buries the start takes it away.
"""

from __future__ import annotations

import pathlib
import time

from .settings import NodeSettings


def pause_order(settings: NodeSettings, key: str) -> pathlib.Path:
    """The file, which is there while guests are to stand still.

    Args:
        settings: NodeSettings of this node.
        key: `layout.job_key` of the start.
    """
    return settings.run_dir / "paused" / key


def is_ordered(settings: NodeSettings, key: str) -> bool:
    """Return whether the guests of a start are to stand still; one for a checkpoint ends by itself."""
    until = checkpoint_until(settings, key)
    return until == 0.0 or (until is not None and time.time() < until)


def checkpoint_until(settings: NodeSettings, key: str) -> float | None:
    """Return until when guests stand still for a checkpoint, in seconds since the epoch; None: nothing is ordered.

    0.0: they stand still for as long as the order is there, since their job is suspended.
    """
    try:
        return float(pause_order(settings, key).read_text("ascii") or "0")
    except FileNotFoundError:
        return None
    except ValueError:
        return 0.0


def order_checkpoint(settings: NodeSettings, key: str, until: float) -> bool:
    """Order that the guests of a start stand still for a checkpoint, and go to the disk.

    Args:
        settings: NodeSettings of this node.
        key: `layout.job_key` of the start.
        until: when they go on at the latest, in seconds since the epoch.

    Returns:
        False: another order is there.

    Raises:
        OSError: it was not written.
    """
    if is_ordered(settings, key):
        return False
    path = pause_order(settings, key)
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}")
    new.write_text(f"{until:.3f}", "ascii")
    new.chmod(0o600)
    new.rename(path)
    return True


def order_pause(settings: NodeSettings, key: str) -> bool:
    """Order it; the worker of the start hears it.

    Returns:
        Whether that is new.

    Raises:
        OSError: it was not written.
    """
    path = pause_order(settings, key)
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    if checkpoint_until(settings, key) == 0.0:
        return False
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    return True


def take_back(settings: NodeSettings, key: str) -> bool:
    """Let the guests of a start go on; the worker of the start hears it.

    Returns:
        Whether it was ordered.

    Raises:
        OSError: it could not be taken back.
    """
    try:
        pause_order(settings, key).unlink()
    except FileNotFoundError:
        return False
    return True
