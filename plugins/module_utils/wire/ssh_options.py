# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of every ssh that the product calls: one base, and what a kind of connection adds to it.

All are called with `-F none`: neither the user's configuration nor the node's takes part (ssh_config(5)).
"""

from __future__ import annotations

import typing as t

KEX_ALGORITHMS = "-sntrup761x25519-sha512*"
"""For ssh's `KexAlgorithms`: all that it has, but for the first choice of OpenSSH 9.0 to 9.8.

A client's key pair of sntrup761 takes 65 ms of processor time of the 80 ms that a connection takes; a mother superior
makes one connection for each node.  The first choice of later ones (mlkem768x25519) is quick, and stays.
"""

BASE = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "ControlMaster=no",
    "ControlPath=none",
    "LogLevel=ERROR",
    f"KexAlgorithms={KEX_ALGORITHMS}",
)
"""No question, a host key that is known, nothing forwarded.  No connection is shared, because a master would outlive
the hook that began it.  Standard error holds ssh's errors alone, because programs read it and administrators see it."""

NODE = (*BASE, "ServerAliveInterval=5", "ServerAliveCountMax=3")
"""Root to root of another host: a hook has seconds, so a host that is silent for 15 s is given up."""

_GUEST = (
    *BASE,
    "GlobalKnownHostsFile=/dev/null",
    "CheckHostIP=no",
    "VerifyHostKeyDNS=no",
    "HostKeyAlgorithms=ssh-ed25519",
    "IdentityAgent=none",
)
"""To a guest: only the key that was made for it counts, and it is in a file of its own (`UserKnownHostsFile`)."""

GUEST_PROBE = (*_GUEST, "PreferredAuthentications=none", "IdentityFile=none")
"""The host key alone is looked at; a login must fail.  The caller ends it at its own deadline, which is shorter than
any sensible ServerAliveInterval."""

GUEST_LOGIN = (
    *_GUEST,
    "IdentitiesOnly=yes",
    "PreferredAuthentications=publickey",
    "PubkeyAuthentication=yes",
    "PasswordAuthentication=no",
    "KbdInteractiveAuthentication=no",
    "HostbasedAuthentication=no",
    "GSSAPIAuthentication=no",
    "ProxyCommand=none",
    "CanonicalizeHostname=no",
    "Compression=no",
    "EscapeChar=none",
    "ConnectTimeout=30",
    "ConnectionAttempts=1",
    "TCPKeepAlive=no",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
)
"""The job's shell, which lasts as long as the job: a guest that swaps or is stopped for 60 s keeps its job.  One that
is suspended keeps it for days, because ssh is stopped, too; the kernel's own keepalive, which is not, would end it
after two hours (tcp(7): tcp_keepalive_time)."""

X11 = ("ForwardX11=yes", "ForwardX11Trusted=yes", "LogLevel=FATAL")
"""Before `GUEST_LOGIN`, since ssh takes the first of several values.  With `qsub -X` the job may do with the user's
display what it may on bare metal, where it has the real cookie.  That the guest forwards none is not for ssh to say:
the far end has clearer words."""


def option_arguments(options: t.Iterable[str]) -> list[str]:
    """Return the arguments of ssh for options of the form `Name=value`, in their order."""
    return [argument for option in options for argument in ("-o", option)]


def root_arguments(host: str, timeout_s: float) -> list[str]:
    """Return the arguments of an ssh to root of another host, up to the command.

    Args:
        host: name or address.
        timeout_s: seconds for the connection; ssh counts whole ones, 1 at least.
    """
    options = option_arguments((*NODE, f"ConnectTimeout={max(1, int(timeout_s))}"))
    return ["-F", "none", "-T", "-l", "root", *options, "--", host]
