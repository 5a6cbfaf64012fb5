# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How root's ssh between nodes, and to guests, comes to its session keys."""

from __future__ import annotations

KEX_ALGORITHMS = "-sntrup761x25519-sha512*"
"""For ssh's `KexAlgorithms`: all that it has, but for the first choice of OpenSSH 9.0 to 9.8.

A client's key pair of sntrup761 takes 65 ms of processor time of the 80 ms that a connection takes; a mother superior
makes one connection for each node.  The first choice of later ones (mlkem768x25519) is quick, and stays.
"""
