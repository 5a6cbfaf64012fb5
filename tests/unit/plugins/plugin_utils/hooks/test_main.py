# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a hook says of a fault of its own; how it is run as a whole, `cli/test_hook.py` shows."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.hooks import main


def test_fault_of_ours_is_one_line_whatever_becomes_of_the_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Found by the fault suite: what failed was the log, which failed again, and the user read all of it."""

    def fail(*_words: object) -> None:
        raise RuntimeError("the log")

    monkeypatch.setattr(main, "_log_to_site", fail)
    main.report_unexpected(KeyError, KeyError("x"), None)
    assert capfd.readouterr().err == "vtorque: a fault in vTorque itself: KeyError: tell the administrator\n"
