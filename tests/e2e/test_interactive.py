# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interactive jobs: a terminal in rank 0."""

from __future__ import annotations

from .conftest import Site
from .terminal import Terminal


def test_interactive_session_is_in_the_guest(site: Site) -> None:
    """A prompt in the guest, a terminal there, and the session's exit status in the job's."""
    terminal = Terminal(site, "vsub", "-I")
    terminal.expect("ready")
    terminal.type('echo "name=$(hostname) tty=$(tty | cut -c1-8)"')
    terminal.expect("tty=/dev/pts")
    assert "name=vcn" in terminal.seen
    terminal.type("exit 9")
    terminal.close()
    assert site.wait_state(terminal.job_id, "C")["exit_status"] == "9"
