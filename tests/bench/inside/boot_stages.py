# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a compute node, as root: boot an image once as `vmgr image profile` does, and say when each part was at work.

boot_stages IMAGE     says {"seconds": until it was up, "spans": [{"phase", "what", "begin_s", "seconds"}, ...], ...}
"""

from __future__ import annotations

import json
import sys

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.trial import boot, boot_profile
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.trial.report import report_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.clock import Deadline
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.bridge.node_settings import host_name, settings_of

LONGEST_S = 600.0


def main() -> None:
    """Boot once."""
    policy = policy_file.load()
    image = images.find(json.loads(sys.argv[1]), settings_of(policy, host_name()).pool)
    seen = boot.boot(
        image, policy.libvirt_uri, Deadline.after(LONGEST_S), allow_emulation=policy.allow_emulation,
        tell=lambda _words: None,
    )  # fmt: skip
    print(json.dumps(boot_profile.profile_of(seen, report_of(seen)).to_dict()), flush=True)


if __name__ == "__main__":
    main()
