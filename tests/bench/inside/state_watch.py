# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: see the one guest of a job come to states, one after the other.

state_watch NAME STATE...     says `true` when it is watching, then for each state when it was reached, in seconds since
                              the epoch; the state "" is that libvirt has no guest of that name
"""

from __future__ import annotations

import json
import sys
import time

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain.connection import Domains

LOOK_S = 0.01


def main() -> None:
    """See all of them."""
    name, *states = map(json.loads, sys.argv[1:])
    with Domains(policy_file.load().libvirt_uri) as domains:
        print("true", flush=True)
        for state in states:
            while True:
                facts = domains.facts(name)
                if (facts.state if facts else "") == state:
                    break
                time.sleep(LOOK_S)
            print(json.dumps(time.time()), flush=True)


if __name__ == "__main__":
    main()
