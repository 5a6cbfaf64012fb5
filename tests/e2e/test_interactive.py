# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interactive jobs: a terminal in rank 0."""

from __future__ import annotations

import pytest

from .conftest import Site
from .terminal import Terminal


@pytest.mark.both
def test_interactive_session_is_in_the_guest(site: Site) -> None:
    """A prompt in the guest, a terminal there, and the session's exit status in the job's."""
    terminal = Terminal(site, *site.batch.session)
    terminal.expect(site.batch.ready)
    terminal.type('echo "name=$(hostname) tty=$(tty | cut -c1-8)"')
    terminal.expect("tty=/dev/pts")
    assert "name=vcn" in terminal.seen
    terminal.type("exit 9")
    assert terminal.end_session() == 9


@pytest.mark.full
def test_guest_that_forwards_no_display_says_so_and_the_session_goes_on(site: Site) -> None:
    """The tiny guest's sshd (dropbear) is built without X11; DISPLAY is as the MOM sets it for `qsub -X`."""
    terminal = Terminal(site, "vsub", "-I", "-v", "DISPLAY=localhost:50.0")
    terminal.expect("vtorque: no display in the guest (qsub -X)")
    terminal.type('echo "display<$DISPLAY>"; exit 7')
    terminal.expect("display<>")
    terminal.close()
    assert "X11 forwarding request failed" not in terminal.seen
    assert site.wait_state(terminal.job_id, "C")["exit_status"] == "7"
