# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By what a template is known: everything that a guest must have in common with it.

The key is a digest of facts.  One that differs makes another key, so that an old template is never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import typing as t

from ..pool.images import Image

if t.TYPE_CHECKING:
    from ..domain.connection import Domains

FORM = 2
"""Of the facts, and of what a template's directory holds."""
CPUINFO = pathlib.Path("/proc/cpuinfo")
_OF_PROCESSOR = re.compile(r"^(vendor_id|model name|stepping|microcode|flags|Features)\s*:\s*(.*)$", re.MULTILINE)


def facts_of_node(domains: Domains, cpuinfo: pathlib.Path = CPUINFO) -> dict[str, str]:
    """Return what of a node a saved state depends on: libvirt, qemu, the processor, the kernel.

    Args:
        domains: libvirt.
        cpuinfo: what the kernel says of its processors.

    Raises:
        NodeFault: libvirt does not answer.
        OSError: the processor is not known.
    """
    processor = dict(_OF_PROCESSOR.findall(cpuinfo.read_text(encoding="utf-8", errors="replace")))
    return {
        **domains.versions(),
        "processor": hashlib.sha256(json.dumps(processor, sort_keys=True).encode()).hexdigest(),
        "kernel": os.uname().release,
    }


def facts_of_image(image: Image) -> dict[str, str]:
    """Return what makes an image the one that it is: its digests, and where it is.

    Args:
        image: as a guest's disk stands on it.
    """
    boot = image.record.get("boot") or {}
    return {
        "image": image.name,
        "disk": str(image.path),
        "disk_sha256": str(image.record.get("disk_sha256", "")),
        "kernel_sha256": str(boot.get("kernel_sha256", "")),
        "initrd_sha256": str(boot.get("initrd_sha256", "")),
        "cmdline": str(boot.get("cmdline", "")),
        "warm": str(image.record.get("warm", "")),
    }


def key_of(image: t.Mapping[str, str], node: t.Mapping[str, str], xml: str) -> str:
    """Return the key, 32 hexadecimal digits.

    Args:
        image: see `facts_of_image`.
        node: see `facts_of_node`.
        xml: of the template's domain, in which every name is the same for all guests: vCPUs, memory and its kind,
            machine, processor, devices.
    """
    facts = {"form": FORM, "image": dict(image), "node": dict(node), "xml": xml}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
