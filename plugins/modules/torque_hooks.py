#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `torque_hooks`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: torque_hooks
short_description: Place a hook around the prologues and epilogues of the site, or restore them
version_added: 1.0.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Puts one program under the names C(prologue), C(prologue.parallel), C(epilogue) and C(epilogue.parallel) into the
    C(mom_priv) of a Torque MOM, as root's, with mode C(0500).
  - What the site had there is kept elsewhere first, byte for byte and mode for mode, so that the program can run it
    from there. It is not kept in C(mom_priv), since any user could have it run by C(qsub -T).
  - Each hook is replaced at one moment. Nothing is changed while a job is on the node.
  - A hook that Torque itself would not run, because others may change it, is refused and not kept.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows what each hook is, not its text.
  idempotent:
    support: full
options:
  state:
    description:
      - V(present) puts the program in place, or a newer one in the place of an older one.
      - V(absent) puts back what the site had, links as links, and removes the program where there was nothing. A hook
        that was put in the program's place since then stays.
    type: str
    choices: [present, absent]
    default: present
  mom_priv:
    description:
      - The directory of the MOM.
    type: path
    default: /var/spool/torque/mom_priv
  site_hooks:
    description:
      - Where the site's own hooks are kept.
    type: path
    default: /etc/vtorque/site-hooks
  content:
    description:
      - The program. It is told from the site's hooks by what it calls.
      - Required for O(state=present).
    type: str
seealso:
  - name: The hooks of vTorque
    description: What the program does with a job that is none of its own.
    link: https://github.com/mikelangelo-project/vTorque
"""

EXAMPLES = r"""
---
- name: Put the hooks in place
  mikelangelo.vtorque.torque_hooks:
    content: "{{ lookup('ansible.builtin.template', 'hook.sh.j2') }}"

- name: Put back what the site had
  mikelangelo.vtorque.torque_hooks:
    state: absent
"""

RETURN = r"""
hooks:
  description: What each hook is now, in words.
  returned: success
  type: dict
  sample:
    prologue: "vTorque's, 0500, sha256 3f1e2b9a03c55d10; the site's is kept: the site's, 0755, sha256 a3c55d103f1e2b90"
others:
  description: Further files there that any user can have run by root, with C(qsub -T).
  returned: success
  type: list
  elements: str
  sample: [prologue.old]
left:
  description: Hooks of the site that are still kept, because another one has come into their place.
  returned: success
  type: list
  elements: str
  sample: []
fault:
  description: Whose fault a failure is, V(site) as a rule.
  returned: failure
  type: str
  sample: site
"""

import pathlib
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import SiteFault, VTorqueError
from ..module_utils.job.batch.torque.mom_hooks import OURS, Outcome, Places, absent, present


def run(params: dict[str, t.Any], check: bool) -> Outcome:
    """Do what is asked."""
    places = Places(pathlib.Path(params["mom_priv"]), pathlib.Path(params["site_hooks"]))
    if params["state"] == "absent":
        return absent(places, check=check)
    text = params["content"].encode()
    if OURS not in text:
        raise SiteFault("content", "is no hook of vTorque's, and could not be told from the site's own afterwards")
    return present(places, text, check=check)


def main() -> None:
    """Check the arguments, act and tell."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "mom_priv": {"type": "path", "default": "/var/spool/torque/mom_priv"},
            "site_hooks": {"type": "path", "default": "/etc/vtorque/site-hooks"},
            "content": {"type": "str"},
        },
        required_if=[("state", "present", ["content"])],
        supports_check_mode=True,
    )
    try:
        outcome = run(module.params, module.check_mode)
    except VTorqueError as error:
        module.fail_json(msg=str(error), fault=error.fault)
    for name in outcome.others:
        where = f"{name} in {module.params['mom_priv']}"
        module.warn(f"{where}: any user can have it run by root (qsub -T): keep it elsewhere")
    for name in outcome.left:
        module.warn(f"{name}: another hook is in its place; the former one stays in {module.params['site_hooks']}")
    result: dict[str, t.Any] = {"hooks": outcome.after, "others": list(outcome.others), "left": list(outcome.left)}
    if module._diff and outcome.changed:
        before, after = (_lines(files) for files in (outcome.before, outcome.after))
        result["diff"] = {"before": before, "after": after}
    module.exit_json(changed=outcome.changed, **result)


def _lines(files: dict[str, str]) -> str:
    return "".join(f"{name}: {text}\n" for name, text in files.items())


if __name__ == "__main__":
    main()
