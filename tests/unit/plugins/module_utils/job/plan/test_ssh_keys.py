# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of one start of a job."""

from __future__ import annotations

import re

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.ssh_keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages
from cryptography.hazmat.primitives import serialization


def test_key_is_of_the_form_that_nodes_accept() -> None:
    pair = make_key("job@4711.head.1")
    assert re.fullmatch(messages.PRIVATE_KEY, pair.private)
    assert re.fullmatch(messages.PUBLIC_KEY, pair.public)
    assert pair.public.endswith(" job@4711.head.1")


def test_key_halves_belong_together_and_every_key_is_new() -> None:
    first, second = make_key("a"), make_key("a")
    private = serialization.load_ssh_private_key(first.private.encode(), password=None)
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert first.public == f"{public.decode()} a"
    assert first.private != second.private


def test_private_half_is_not_shown() -> None:
    pair = make_key("a")
    assert pair.private not in repr(pair)
    assert "PRIVATE" not in repr(pair)


@pytest.mark.parametrize("comment", ["a b", "a\nssh-ed25519 evil", "x" * 101, "\u00e9"])
def test_comment_that_could_be_more_than_a_comment_is_refused(comment: str) -> None:
    with pytest.raises(VTorqueError, match="not of the form"):
        make_key(comment)
