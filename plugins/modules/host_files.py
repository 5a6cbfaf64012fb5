#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `host_files`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_files
short_description: Manage many files, directories and links of a host in one call
version_added: 1.0.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Places and removes files, directories, links and blocks of text, one after the other, all as root's.
  - A task for each costs a site with many nodes more than the placing. This is one task, and one program on the host.
  - A file appears whole or not at all. Where one cannot be placed, those before it are.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
attributes:
  check_mode:
    support: full
    details: What comes later in the list counts as done what comes earlier.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  entries:
    description:
      - What is wanted, in its order; a directory comes before what is in it.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description:
          - Where it is, from the root.
        type: path
        required: true
      state:
        description:
          - V(file) is a file with O(entries[].content).
          - V(directory) is a directory; missing ones above it are made.
          - V(link) is a link to O(entries[].target); another link is replaced, and nothing else.
          - V(block) is a file in which O(entries[].content) stands between two marks. Where that is empty the block is
            taken out, and the file stays.
          - V(absent) is nothing. A directory goes with all that is in it, and of a link the link.
          - V(empty) is as V(absent), for a file or a directory that nothing is in.
        type: str
        choices: [file, directory, link, block, absent, empty]
        default: file
      content:
        description:
          - The text. Only one of this, O(entries[].template) and O(entries[].source) can be given.
        type: str
        default: ""
      template:
        description:
          - A template of this collection, below its C(templates), that gives the text.
          - It is rendered where Ansible runs, with O(entries[].values) and nothing else.
        type: str
      values:
        description:
          - What the template uses.
        type: dict
        default: {}
      source:
        description:
          - A file where Ansible runs that has the text.
        type: path
      each:
        description:
          - Have this entry once for each of these words, which stand for C({each}) in O(entries[].path),
            O(entries[].template) and O(entries[].source).
        type: list
        elements: str
      target:
        description:
          - What a link leads to.
        type: str
        default: ""
      mode:
        description:
          - Of a file or a directory, in octal digits after a zero, in quotes. Default is V(0755) for a directory and
            V(0644) for a file; a file that is there keeps its mode and owner when a block is written into it.
        type: str
      force:
        description:
          - V(false) leaves what is there already as it is.
        type: bool
        default: true
      within:
        description:
          - Want it only where this directory is there; a link to one is none.
        type: path
      marker:
        description:
          - The line above and below a block, with C({mark}) for C(BEGIN) and C(END).
        type: str
        default: "# {mark} VTORQUE"
      validate:
        description:
          - A command with C(%s) for the name of a file, which must succeed before the file is placed.
        type: str
  gone:
    description:
      - Paths that count as removed in check mode, as other tasks would have removed them.
    type: list
    elements: path
    default: []
seealso:
  - module: mikelangelo.vtorque.host_info
"""

EXAMPLES = r"""
---
- name: Bring commands, and have those who log in find them
  mikelangelo.vtorque.host_files:
    entries:
      - {path: /opt/vtorque/bin, state: directory}
      - path: /opt/vtorque/bin/{each}
        template: launchers/{each}.sh.j2
        values: {prefix: /opt/vtorque}
        each: [vmgr, vsub]
        mode: "0755"
      - path: /etc/profile.d/vtorque.sh
        content: |
          export PATH="$PATH:/opt/vtorque/bin"
"""

RETURN = r"""
paths:
  description: What was placed, changed or removed, or would be in check mode; in a failure, before it.
  returned: always
  type: list
  elements: str
  sample: [/opt/vtorque/bin/vmgr]
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.host_files import CONTROLLER_KEYS, SPEC, Change, Entry, EntryWriter, PlacingError


class QuietModule(AnsibleModule):
    """As any, but for the host's journal, where every text that is placed would stand, some of them secret."""

    def _log_invocation(self) -> None:
        self.log(f"Invoked for {len(self.params['entries'])} entries")


def main() -> None:
    """Check the arguments, act and tell."""
    module = QuietModule(
        argument_spec=SPEC,
        supports_check_mode=True,
    )
    # not every text once more
    invocation = {"module_args": {"entries": [entry["path"] for entry in module.params["entries"]]}}
    plain = [{key: entry[key] for key in entry if key not in CONTROLLER_KEYS} for entry in module.params["entries"]]

    def run(argv: t.Sequence[str]) -> tuple[int, str]:
        status, out, error = module.run_command(list(argv))
        return status, out + error

    def label(place: str) -> None:
        module.set_default_selinux_context(place, False)

    os.umask(0o022)  # of the directories above what is wanted
    writer = EntryWriter(check=module.check_mode, removed_paths=module.params["gone"], label=label, run=run)
    failure = ""
    try:
        changes: t.Sequence[Change] = writer.apply(Entry(**entry) for entry in plain)
    except PlacingError as error:
        failure, changes = str(error), error.changes
    result: dict[str, t.Any] = {"paths": [change.path for change in changes], "invocation": invocation}
    if module._diff:
        result["diff"] = [_diff(change) for change in changes]
    if failure:
        module.fail_json(msg=failure, changed=bool(changes), **result)
    module.exit_json(changed=bool(changes), **result)


def _diff(change: Change) -> dict[str, str]:
    return {
        "before_header": change.path,
        "after_header": change.path,
        "before": change.before,
        "after": change.after,
    }


if __name__ == "__main__":
    main()
