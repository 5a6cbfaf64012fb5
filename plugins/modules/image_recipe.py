#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the action plugin `image_recipe`, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image_recipe
short_description: Check the recipe of a guest image, and copy it to the host that builds the image
version_added: 1.0.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Reads a recipe where Ansible runs, and checks all of it. What is wrong is named, everything at once with its line,
    and nothing is brought anywhere then.
  - The role C(guest_image) uses it; the collection's C(docs/admin/image-building.md) describes recipes.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
attributes:
  check_mode:
    support: full
    details: The recipe is checked as otherwise, with the files that it names, and nothing is brought.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: The archive of the files holds no times, so that the same recipe makes the same one.
options:
  src:
    description:
      - The recipe, a file where Ansible runs, relative to the directory where it was started. Files that it names are
        relative to the recipe.
    type: path
    required: true
  dest:
    description:
      - A directory of the host for C(recipe.tar), the files of the recipe, and C(recipe.commands), each of which ends
        with a zero byte. It must exist. Without it the recipe is checked, and no more.
    type: path
"""

EXAMPLES = r"""
---
- name: Is the recipe good?
  mikelangelo.vtorque.image_recipe:
    src: "{{ inventory_dir }}/images/solver.yml"
  register: recipe
"""

RETURN = r"""
packages:
  description: What the recipe installs.
  returned: success
  type: list
  elements: str
  sample: [openmpi-bin]
digest:
  description: The same for recipes that ask for the same, however they are written down.
  returned: success
  type: str
  sample: 44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a
faults:
  description: What is wrong with the recipe, one sentence each.
  returned: when the recipe is not good
  type: list
  elements: str
  sample: ["line 3: pakages: no such key; did you mean packages?"]
"""
