# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps by which guests are made, by the module and the name under which each is called."""

from __future__ import annotations

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.creation import build
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.network import addresses
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import seed
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state import slots
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.storage import overlay

STEPS = {
    "image": (images, "find"),
    "slot": (slots, "take"),
    "guest's directory": (build, "make_directory"),
    "what it says": (build, "write_guest_file"),
    "address of the node": (addresses, "node_address"),
    "overlay": (overlay, "make_overlay"),
    "seed": (seed, "write_iso"),
    "domain XML": (build, "render_xml"),
    "start of the domain": (present_absent, "Domains"),
    "forgetting old addresses": (addresses, "flush"),
    "waiting": (build, "wait_ready"),
}
