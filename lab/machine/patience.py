# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a lab in the machine is set to: an emulated processor that others use, too, takes some minutes to a start."""

from __future__ import annotations

PARAMETERS = {"prologue_timeout": 1500, "timeout": 1400, "ssh_timeout": 300}
ALARM_S = 1600
CONFIG, MOM = "/etc/vtorque/vtorque.yml", "/var/spool/torque/mom_priv"


def front_end() -> str:
    """Return the line of shell that sets a front end, for root on it."""
    lines = "".join(f"{name}: {value}\\n" for name, value in PARAMETERS.items())
    drop = " ".join(f"-e '/^{name}:/d'" for name in PARAMETERS)
    return f"sed -i {drop} {CONFIG} && printf '{lines}' >>{CONFIG}"


def node() -> str:
    """Return that of a compute node, whose MOM waits for its hooks as long."""
    reread = f"kill -HUP $(cat {MOM}/mom.lock) && momctl -d 0 >/dev/null"
    return f"{front_end()} && echo '$prologalarm {ALARM_S}' >{MOM}/config && {reread}"
