# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of warm starts that are made before a job wants them: of the site's default guest."""

from __future__ import annotations

import pathlib

from ...module_utils.errors import VTorqueError
from ...module_utils.job.config.parameters import Policy
from ...module_utils.job.request.request import is_path
from ...module_utils.node.pool import images
from ...module_utils.node.state.settings import NodeSettings
from ...module_utils.node.warm import template, wants
from . import warm_size


def want_default_template(policy: Policy, settings: NodeSettings) -> str:
    """Want the template of the site's default guest, and have made what is wanted, if no job has guests here.

    Args:
        policy: the site's.
        settings: what this host takes out of it.

    Returns:
        Why that could not be, in words; "": it is seen to, or there is nothing to do.
    """
    if not policy.warm_start:
        return ""
    try:
        if policy.img_default and not is_path(policy.img_default):
            _want_default(policy, settings)
        wants.request_making(settings)
    except (OSError, VTorqueError) as error:
        return f"templates of warm starts: {error}"
    return ""


def _want_default(policy: Policy, settings: NodeSettings) -> None:
    image = images.find(str(policy.img_default), pathlib.Path(policy.vm_img_dir))
    shape = warm_size.shape_of(image, {}, policy)
    if not image.record.get("warm") or image.boot.mode == "uefi":
        return
    alike = (image.name, shape.size.vcpus, shape.size.ram_mib)
    there = [one for one in template.list_templates(settings) if isinstance(one, template.Template)]
    if not any((one.record.image, one.record.vcpus, one.record.ram_mib) == alike for one in there):
        wants.want(settings, wants.TemplateWant(image.name, shape.size, shape.fs_type))
