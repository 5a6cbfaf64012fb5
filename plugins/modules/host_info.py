#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `host_info`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Query facts of a host in one call
version_added: 1.0.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Runs commands that change nothing, one after the other, and tells what each wrote.
  - A task for each costs a site with many nodes more than the asking.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.info_module
options:
  questions:
    description:
      - By names of their own. Each has C(argv), a list of words, and perhaps C(stdin), a text. What is no text among
        the words is given as JSON.
      - C(program), a text, stands for a program that the Python of this module runs, with C(argv) as its arguments.
      - C(must), when it is true, has the task fail where the command does.
      - C(environment) is a dictionary of variables beside those that are there.
    type: dict
    required: true
  timeout:
    description:
      - For how many seconds each may go on. It is killed then, with what it began, and its status is 124.
    type: int
    default: 300
seealso:
  - module: mikelangelo.vtorque.host_files
"""

EXAMPLES = r"""
---
- name: Look at the host
  mikelangelo.vtorque.host_info:
    questions:
      kernel: {argv: [uname, -r], must: true}
      timers: {argv: [systemctl, is-enabled, vtorque-sweep.timer]}
  register: asked
"""

RETURN = r"""
answers:
  description:
    - What each wrote, without empty lines at its end, and its status C(rc). Of a command that is not there that is 127.
  returned: success
  type: dict
  sample: {"kernel": {"rc": 0, "stdout": "6.1.0-18-amd64", "stderr": ""}}
"""

import pathlib

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.host_questions import fault_of, run_question


class QuietModule(AnsibleModule):
    """As any, but for the host's journal, where whole programs would stand, and what is secret in an environment."""

    def _log_invocation(self) -> None:
        self.log(f"Invoked with questions {', '.join(self.params['questions'])}")


def main() -> None:
    """Ask, and tell."""
    module = QuietModule(
        argument_spec={
            "questions": {"type": "dict", "required": True},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    invocation = {"module_args": {"questions": list(module.params["questions"])}}
    answers = {}
    for name, question in module.params["questions"].items():
        if fault := fault_of(question):
            module.fail_json(msg=f"{name} is no question: {fault}", invocation=invocation)
        answers[name] = run_question(question, pathlib.Path(module.tmpdir), module.params["timeout"])
        if question.get("must") and answers[name]["rc"] != 0:
            reason = answers[name]["stderr"] or answers[name]["stdout"]
            module.fail_json(
                msg=f"{name}: status {answers[name]['rc']}: {reason}", answers=answers, invocation=invocation
            )
    module.exit_json(changed=False, answers=answers, invocation=invocation)


if __name__ == "__main__":
    main()
