# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This node's own sshd: whether a job's key may open it, and what others have to know of it."""

from __future__ import annotations

import os
import pathlib
import re
import socket
import subprocess

from ...errors import NodeFault, SiteFault
from ...system.clock import Deadline
from ...system.process.environment import TOOL_ENVIRONMENT
from ...time_budget import SSHD_GREETING_S, SSHD_SETTINGS_S
from ...wire.messages import PUBLIC_KEY
from ...wire.node_answers import BareHost
from ..network.addresses import node_address
from ..state.settings import NodeSettings

KEY_LIMIT = 4096
PORT = 22
DROP_IN = "/etc/ssh/sshd_config.d/00-vtorque.conf"


def check_sshd(user: str, settings: NodeSettings, reached_at: str, deadline: Deadline) -> BareHost:
    """See that sshd would let this user in by a job's key, and say where it is reached and how it is known.

    Args:
        user: the job's.
        settings: NodeSettings of this node.
        reached_at: the address at which this node was asked; "" when it was not asked from elsewhere.
        deadline: when there must be an answer.

    Returns:
        Address and public host key.

    Raises:
        SiteFault: it would not, or nobody answers there.
    """
    address = address_of(settings, deadline, reached_at)
    settings_found = _settings_of_sshd(user, address, settings, deadline)
    wanted = f"{settings.authorized_keys_dir}/%u"
    if wanted not in settings_found.get("authorizedkeysfile", ""):
        raise SiteFault(
            f"sshd of {settings.node_name} takes no keys of jobs",
            f"its AuthorizedKeysFile names {settings_found.get('authorizedkeysfile') or 'nothing'}, and not {wanted}",
            f"place {DROP_IN} (templates/ssh) and reload sshd; mixed requests need it",
        )
    if str(PORT) not in settings_found.get("port", "").split():
        why = f"listens on port {settings_found.get('port')}, and the hosts of a job use {PORT}"
        raise SiteFault(f"sshd of {settings.node_name}", why)
    _require_greeting(address, settings, deadline)
    return BareHost(address, _host_key(settings_found, settings))


def address_of(settings: NodeSettings, deadline: Deadline, reached_at: str = "") -> str:
    """Where guests reach this node: on their own network when it is there, else where the mother superior does.

    Raises:
        SiteFault: it cannot be told.
    """
    try:
        return node_address(settings.bridge, deadline)
    except NodeFault:
        if reached_at:
            return reached_at
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SiteFault(f"the address of {settings.node_name}", f"is not known here: {error}") from error
    known = [str(entry[4][0]) for entry in found if not str(entry[4][0]).startswith(("127.", "::1"))]
    if not known:
        raise SiteFault(f"the address of {settings.node_name}", "its own name means nothing but its loopback")
    return known[0]


def _settings_of_sshd(user: str, address: str, settings: NodeSettings, deadline: Deadline) -> dict[str, str]:
    """What counts for this user (sshd(8), -T and -C); of what may stand there several times, all in one line each."""
    what = f"the settings of sshd on {settings.node_name}"
    try:
        done = subprocess.run(
            [str(settings.sshd), "-T", "-C", f"user={user},host={settings.node_name},addr={address}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=deadline.left_s(SSHD_SETTINGS_S),
            check=False,
            cwd="/",
            env=TOOL_ENVIRONMENT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SiteFault(what, f"cannot be asked: {error}", "a host that stays bare needs OpenSSH's sshd") from error
    if done.returncode != 0:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise SiteFault(what, f"cannot be told: {last[:300]}", f"{settings.sshd} -T says the same")
    found: dict[str, str] = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        name, _blank, value = line.partition(" ")
        found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


def _host_key(sshd_settings: dict[str, str], settings: NodeSettings) -> str:
    """The public half of a host key that sshd has; ed25519, which every guest knows."""
    for private in sshd_settings.get("hostkey", "").split("\n"):
        try:
            with pathlib.Path(f"{private}.pub").open(encoding="ascii") as stream:
                key = " ".join(stream.read(KEY_LIMIT).split()[:2])
        except (OSError, ValueError):
            continue
        if re.fullmatch(PUBLIC_KEY, key):
            return key
    raise SiteFault(
        f"sshd of {settings.node_name}", "has no ed25519 host key with its public half beside it", "ssh-keygen -A"
    )


def _require_greeting(address: str, settings: NodeSettings, deadline: Deadline) -> None:
    """Somebody who speaks ssh listens there."""
    what = f"sshd of {settings.node_name} at {address}, port {PORT}"
    try:
        with socket.create_connection((address, PORT), timeout=deadline.left_s(SSHD_GREETING_S)) as peer:
            greeting = peer.recv(64)
    except OSError as error:
        raise SiteFault(what, str(error) or os.strerror(error.errno or 0), "is sshd running there?") from error
    if not greeting.startswith(b"SSH-"):
        raise SiteFault(what, f"answers {greeting[:20]!r}, which is not ssh")
