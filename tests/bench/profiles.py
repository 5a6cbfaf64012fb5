# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the fast profile of role guest_image saves: its Debian, and Debian as it is by itself, booted in turn."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.trial.boot_profile import PHASES

from .measure import Progress
from .site import USER, Site

IMAGES = {"fast": "debian12", "stock": "debian12-stock"}
"""As `lab/debian_image.sh` names them."""
RUNS, RAM_MIB = 3, 512


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of a boot.

    Attributes:
        begin_s: when it was first at work, since the guest's processor began.
        end_s: when it was done.
        seconds: in which anything of it was at work.
    """

    begin_s: float
    end_s: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Boots:
    """What was measured.

    Attributes:
        runs: every figure's runs.
        stages: of one more boot of each profile, by their phase.
    """

    runs: dict[str, list[float]]
    stages: dict[str, dict[str, Stage]]


def measure(site: Site, progress: Progress) -> Boots:
    """Boot both in turn, each until it is ready as a job's guest is; then see once where the seconds of each go.

    Raises:
        Trouble: a guest did not boot.
    """
    seconds: dict[str, list[float]] = {profile: [] for profile in IMAGES}
    for number in range(RUNS):
        progress("a fast boot, then a stock one", number, RUNS)
        for profile, image in IMAGES.items():
            seconds[profile].append(site.ask("cn1", "bare_boot", image, RAM_MIB, USER, 1)["seconds"])
    stages = {}
    for number, (profile, image) in enumerate(IMAGES.items()):
        progress("where the seconds go", number, len(IMAGES))
        stages[profile] = stages_of(site.ask("cn1", "boot_stages", image)["spans"])
    return Boots(compare(seconds["fast"], seconds["stock"]), stages)


def compare(fast_s: t.Sequence[float], stock_s: t.Sequence[float]) -> dict[str, list[float]]:
    """The figures of both: each fast boot is held against the stock one that followed it."""
    return {
        "debian_fast_s": list(fast_s),
        "debian_stock_s": list(stock_s),
        "debian_fast_ratio": [fast / stock for fast, stock in zip(fast_s, stock_s, strict=True)],
    }


def stages_of(spans: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, Stage]:
    """The stages of a boot, in the order in which people look for them.

    Args:
        spans: as `vmgr image profile --json` has them; those of one phase may overlap.
    """
    found = {}
    for phase in PHASES:
        own = sorted((one["begin_s"], one["begin_s"] + one["seconds"]) for one in spans if one["phase"] == phase)
        if not own:
            continue
        at_work_s, reached_s = 0.0, own[0][0]
        for begin_s, end_s in own:
            at_work_s += max(0.0, end_s - max(begin_s, reached_s))
            reached_s = max(reached_s, end_s)
        found[phase] = Stage(round(own[0][0], 3), round(reached_s, 3), round(at_work_s, 3))
    return found
