# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which images of the pool must stay, because jobs of the batch server need them."""

from __future__ import annotations

import datetime
import typing as t

from ...module_utils.errors import SiteFault, VTorqueError
from ...module_utils.job.batch.registry import open_batch
from ...module_utils.job.records.image_usage import in_need
from ...module_utils.job.request.host_expressions import host_matches
from ...module_utils.node.pool import images, retire
from .node_settings import Configuration, host_name

BATCH_S = 60.0


def refuse_needed_images(found: t.Sequence[str], configuration: Configuration) -> None:
    """Refuse the removal of images on which jobs run, or which they would not find when they start.

    Args:
        found: the entries of the pool that are to go.
        configuration: says where the pool is, and how the batch server is reached.

    Raises:
        InUse: a job needs one.
        SiteFault: the batch server does not tell of its jobs.
    """
    policy = configuration.policy
    batch = open_batch(policy, front_end=host_matches(policy.regex_fe, host_name()), timeout_s=BATCH_S)
    try:
        jobs = batch.all_jobs()
    except SiteFault as error:
        raise SiteFault(
            f"image {found[0]} was not deleted", f"which jobs need it is not known: {error}", "--force does not ask"
        ) from error
    stay = {
        name: _creation_time(image)
        for name, image in images.list_images(configuration.settings.pool)
        if name not in found
    }
    for entry in found:
        needed = in_need(entry, jobs, default=policy.img_default, revisions=stay)
        if needed:
            more = f" and {len(needed) - 5} more" if len(needed) > 5 else ""
            raise retire.InUse(
                f"image {entry} was not deleted", f"needed by {', '.join(needed[:5])}{more}", "--force does not ask"
            )


def _creation_time(image: images.Image | VTorqueError) -> float | None:
    """When a good image was made; a bad one takes the place of none."""
    try:
        return datetime.datetime.fromisoformat(t.cast("images.Image", image).record["created"]).timestamp()
    except (AttributeError, KeyError, ValueError):
        return None
