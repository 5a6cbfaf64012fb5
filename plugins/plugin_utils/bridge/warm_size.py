# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Of which size a template of warm starts is: as a job's guest that does not say more."""

from __future__ import annotations

import dataclasses
import typing as t

from ...module_utils.errors import UserFault
from ...module_utils.job.config.parameters import DEFAULT_OF, Policy
from ...module_utils.job.request.keys import KEYS
from ...module_utils.job.request.value_types import BadValue
from ...module_utils.node.pool.images import Image
from ...module_utils.node.warm.clone_xml import Size

ASKED = {key: KEYS[key].meaning for key in ("vcpus", "ram", "fs_type", "hypervisor")}
"""The keys of a request that make a template another one, and what they mean."""


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """What guests of a template are.

    Attributes:
        size: of each.
        fs_type: what their disks stand on.
    """

    size: Size
    fs_type: str


def shape_of(image: Image, asked: t.Mapping[str, str | None], policy: Policy) -> Shape:
    """Return the shape of a template.

    Args:
        image: of its guests.
        asked: by keys of `ASKED`; None: the site's default.
        policy: the site's.

    Raises:
        UserFault: a word is none that a request may have.
    """
    values = {key: _value(key, asked.get(key), policy) for key in ASKED}
    arch = image.arch or policy.arch_default
    return Shape(Size(values["vcpus"], values["ram"], values["hypervisor"], arch), values["fs_type"])


def _value(key: str, word: str | None, policy: Policy) -> t.Any:
    if word is None:
        return getattr(policy, DEFAULT_OF[key])
    try:
        return KEYS[key].kind.read(word)
    except BadValue as error:
        raise UserFault(f"--{key.replace('_', '-')} {word[:80]!a}", str(error)) from None
