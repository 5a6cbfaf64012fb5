# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Torque's list of a job's variables holds of a directory's name."""

from __future__ import annotations

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.qsub.variable_list import (
    as_listed,
    cut_off,
)


@pytest.mark.parametrize(
    ("directory", "left"),
    [
        ('/home/alice/it\'s "mine" =1', '/home/alice/it\'s "mine" =1'),
        ("/home/alice/a,b", "/home/alice/a"),
        ("/home/alice/a\nb", "/home/alice/a"),
        ("/home/alice/a\\b", "/home/alice/ab"),
        ("/home/alice/a\\,b", "/home/alice/a,b"),
        ("/home/alice/a \t", "/home/alice/a"),
        ("/home/alice/a\\", "/home/alice/a"),
        (",", ""),
    ],
)
def test_name_in_the_list_of_variables_is_what_torque_leaves_of_it(directory: str, left: str) -> None:
    assert as_listed(directory) == left
    assert (cut_off(directory) == "") == (directory == left)
