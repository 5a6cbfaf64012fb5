# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ssh keys of one start of one job."""

from __future__ import annotations

import contextlib
import re

from ...errors import VTorqueError
from ...wire.messages import PRIVATE_KEY, PUBLIC_KEY, KeyPair

with contextlib.suppress(ImportError):  # the roles install it; ansible-test imports this file without it
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519


def make_key(comment: str) -> KeyPair:
    """Make an ed25519 key in OpenSSH's own format, without a passphrase: it lives as long as one start of a job.

    Args:
        comment: what stands behind the public key: letters, digits and `@ . _ -`.

    Raises:
        VTorqueError: the comment holds something else.
    """
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    ).decode("ascii")
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    pair = KeyPair(private=private, public=f"{public.decode('ascii')} {comment}")
    if not re.fullmatch(PUBLIC_KEY, pair.public) or not re.fullmatch(PRIVATE_KEY, pair.private):
        raise VTorqueError("a key for the job was not made", "it is not of the form that nodes accept")
    return pair
