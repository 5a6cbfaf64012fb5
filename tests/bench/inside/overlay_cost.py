# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: what the disk of a guest costs, on the pool's own file and on a copy of it, in turn.

overlay_cost IMAGE TIMES     says {"sharedfs": [seconds, ...], "local": [...], "fetch": seconds}
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import time
import types
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.cache import (
    copy_queue,
    disk_space,
    wait_for_copy,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage import overlay
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import GuestSpec
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import host_name, settings_of

LONGEST_S = 300.0


def cost(image: images.Image, fs_type: str, settings: NodeSettings) -> float:
    """Seconds for all that a start does until a guest has its disk."""
    spec = t.cast(GuestSpec, types.SimpleNamespace(fs_type=fs_type, image=image.name))
    with tempfile.TemporaryDirectory(dir=settings.state_dir) as place:
        began = time.monotonic()
        wait_for_copy.wait_for_copies([spec], settings, Deadline.after(LONGEST_S), lambda _words: None)
        with wait_for_copy.base_of(image, fs_type, settings) as base:
            overlay.make_overlay(
                base, pathlib.Path(place) / "disk.qcow2", Deadline.after(LONGEST_S),
                taken=disk_space.read_disk_use(settings.guests_dir),
            )  # fmt: skip
        return time.monotonic() - began


def main() -> None:
    """Fetch the copy, then make disks in turn; the first pair only reads files and loads modules."""
    name, times = map(json.loads, sys.argv[1:])
    settings = settings_of(policy_file.load(), host_name())
    image = images.find(name, settings.pool)
    began = time.monotonic()
    what = copy_queue.Want("local", image.name)
    copy_queue.want(settings, what)
    copy_queue.wait(settings, what, Deadline.after(LONGEST_S))
    fetched_s = time.monotonic() - began
    seconds: dict[str, list[float]] = {"sharedfs": [], "local": []}
    for _number in range(times + 1):
        for fs_type, runs in seconds.items():
            runs.append(cost(image, fs_type, settings))
    print(json.dumps({**{kind: runs[1:] for kind, runs in seconds.items()}, "fetch": fetched_s}), flush=True)


if __name__ == "__main__":
    main()
