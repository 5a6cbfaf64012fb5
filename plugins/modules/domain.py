#!/usr/bin/python
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module `domain`."""

from __future__ import annotations

DOCUMENTATION = r"""
module: domain
short_description: Start a libvirt domain from XML, or remove it
version_added: 0.1.0
author:
  - The vTorque authors (@mikelangelo-project)
description:
  - Sees to it that a domain runs as O(xml) says, or that there is none of that name.
  - The domain is transient, so that nothing of it is left when it ends.
  - A domain that runs is compared with O(xml) in everything that O(xml) sets, and in nothing that it leaves open,
    because libvirt fills that in. Sizes are compared as sizes, whatever their units.
  - Returns when libvirt says that the domain runs, or that it is gone.
extends_documentation_fragment:
  - mikelangelo.vtorque.attributes
  - mikelangelo.vtorque.attributes.libvirt
attributes:
  check_mode:
    support: full
    details:
      - Compares O(xml) with the domain that runs.
      - Where C(virt-xml-validate) is installed, libvirt's schema judges O(xml).
  diff_mode:
    support: full
    details: Shows the state, and every setting in which a domain differs from O(xml).
  idempotent:
    support: full
options:
  state:
    description:
      - V(running) starts the domain unless it runs.
      - V(absent) ends it at once and forgets it, a persistent one too, with its NVRAM and its saved state.
    type: str
    choices: [running, absent]
    default: running
  xml:
    description:
      - The domain, as libvirt's domain XML. It must have a name.
      - Required with O(state=running).
    type: str
  name:
    description:
      - Name of the domain to remove.
      - Required with O(state=absent), unless O(xml) is given, which has one.
      - Write it in quotes where YAML reads something else, as V(12.1) for C(12.10). That is refused.
    type: raw
  replace:
    description:
      - Whether a domain of that name which differs from O(xml), or does not run, is ended and made anew.
      - Such a domain is an error otherwise.
    type: bool
    default: false
seealso:
  - module: mikelangelo.vtorque.domain_info
  - module: mikelangelo.vtorque.seed
"""

EXAMPLES = r"""
---
- name: Start a guest
  mikelangelo.vtorque.domain:
    xml: "{{ lookup('ansible.builtin.template', 'guest.xml.j2') }}"

- name: Remove it
  mikelangelo.vtorque.domain:
    name: guest
    state: absent
"""

RETURN = r"""
name:
  description: Name of the domain.
  returned: success
  type: str
  sample: guest
domain:
  description:
    - The domain as it is now; not there when it is gone, or in check mode when it would be started.
    - M(mikelangelo.vtorque.domain_info) says what each key means.
  returned: when there is one
  type: dict
  sample:
    name: guest
    uuid: 6695eb01-f6a4-8304-79aa-97f2502e193f
    state: running
    persistent: false
    macs: ["52:54:00:00:01:03"]
    disks: [/var/lib/guest/disk.qcow2, /var/lib/guest/seed.iso]
differences:
  description: In what a domain of that name differed from O(xml).
  returned: O(state=running)
  type: list
  elements: str
  sample: ["domain/memory: '512' is wanted, '262144' is there"]
fault:
  description: Whose fault a failure is, V(node), V(site) or V(unclear).
  returned: failure
  type: str
  sample: node
"""

import importlib.util
import typing as t

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ..module_utils.errors import VTorqueError
from ..module_utils.node.domain.connection import Domains, Outcome
from ..module_utils.node.domain.domain_xml import DomainFacts, parse
from ..module_utils.unquoted import name_text


def domain_facts(facts: DomainFacts) -> dict[str, t.Any]:
    """A domain as results tell of it."""
    return {
        "name": facts.name,
        "uuid": facts.uuid,
        "state": facts.state,
        "persistent": facts.persistent,
        "macs": list(facts.macs),
        "disks": list(facts.disks),
    }


def sides(name: str, outcome: Outcome, *, running: bool) -> dict[str, t.Any]:
    """The two sides of a diff: states, and settings that differ."""
    before = {"name": name, "state": outcome.before.state if outcome.before else "absent"}
    after = {"name": name, "state": "running" if running else "absent"}
    if outcome.differences:
        return {"before": {**before, "differences": list(outcome.differences)}, "after": {**after, "differences": []}}
    return {"before": before, "after": after}


def validate(module: AnsibleModule, xml: str) -> None:
    """Let libvirt's own schema judge the XML, where its program is there."""
    program = module.get_bin_path("virt-xml-validate")
    if program is None or module.get_bin_path("xmllint") is None:
        return
    status, _out, complaint = module.run_command([program, "-", "domain"], data=xml)
    if status != 0:
        lines = [line for line in complaint.splitlines() if line.strip()]
        module.fail_json(msg=f"domain XML: libvirt's schema refuses it: {'; '.join(lines)[:1000]}", fault="site")


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """Bring the domain to its state, or in check mode find out what that would take."""
    params, check = module.params, module.check_mode
    running = params["state"] == "running"
    name = name_text(params["name"])
    if params["xml"] is not None:
        own = parse(params["xml"]).findtext("name") or ""
        if not own or (name and name != own):
            raise VTorqueError(
                f"name={name}" if name else "domain XML", f"the XML is of {own!r}" if own else "has no name"
            )
        name = own
    if running and check:
        validate(module, params["xml"])
    with Domains(params["uri"]) as domains:
        if running:
            outcome = domains.ensure_running(params["xml"], check=check, replace=params["replace"])
        else:
            outcome = domains.ensure_absent(name, check=check)
    result: dict[str, t.Any] = {"changed": outcome.changed, "name": name}
    if running:
        result["differences"] = list(outcome.differences)
    if outcome.after is not None:
        result["domain"] = domain_facts(outcome.after)
    if module._diff:
        result["diff"] = sides(name, outcome, running=running)
    return result


def main() -> None:
    """Check the arguments, act and tell."""
    module = AnsibleModule(
        argument_spec={
            "uri": {"type": "str", "default": "qemu:///system"},
            "state": {"type": "str", "choices": ["running", "absent"], "default": "running"},
            "xml": {"type": "str"},
            "name": {"type": "raw"},
            "replace": {"type": "bool", "default": False},
        },
        required_if=[("state", "running", ("xml",)), ("state", "absent", ("xml", "name"), True)],
        supports_check_mode=True,
    )
    if importlib.util.find_spec("libvirt") is None:
        module.fail_json(msg=missing_required_lib("libvirt-python"))
    try:
        result = run(module)
    except VTorqueError as error:
        module.fail_json(msg=str(error), fault=error.fault)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
