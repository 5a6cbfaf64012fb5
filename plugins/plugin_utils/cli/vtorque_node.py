# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`vtorque-node`: one node's part of a job (`plugin_utils/node_agent/serve.py`)."""

from __future__ import annotations

import gc
import os


def main() -> int:
    """The program; returns its exit status."""
    # a search for what is in a circle, every few hundred things that are loaded, takes a tenth of the time of loading
    gc.disable()
    from ..node_agent import serve  # after that: it is nearly all that is loaded

    return serve.main()


if __name__ == "__main__":
    status = main()
    os._exit(status)  # nothing is buffered, and Python takes its time to take itself apart
