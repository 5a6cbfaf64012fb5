# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The product on a node, as its installation leaves it; rendered by the installed collection itself."""

from __future__ import annotations

import importlib
import pathlib
import typing as t

from ..system.daemons import DaemonError, put
from ..system.state import NodePlan

PREFIX = pathlib.Path("/opt/vtorque")
ETC = pathlib.Path("/etc/vtorque")
TORQUE_HOME = pathlib.Path("/var/spool/torque")
HOOKS = ("prologue", "prologue.parallel", "epilogue", "epilogue.parallel")
SLURM_HOOKS = ("prolog", "epilog")
OF_NODES = frozenset({"vtorque-sweep", "vtorque-cache"})
"""Launchers that a front end has no use for.  The lab has no systemd: nothing calls the sweep but hooks and people."""
SETTINGS = {
    "record_host": "fe",
    "bridge": "br0",
    "allow_emulation": True,
    "hypervisor_default": "qemu",
    "img_default": "tiny",
    "distro_default": "debian",
    "vcpus_default": 1,
    # all nodes of a lab share the machine's few processors
    "vcpu_pinning_default": False,
    "ram_default": 192,
    "host_os_core_count": 1,
    "host_os_ram_mb": 512,
    # emulated guests on a machine that may be busy with other things
    "timeout": 240,
    "ssh_timeout": 20,
    # no server and no network are needed for it: the faster of the two ways
    "home_via": "virtiofs",
    # of hosts that no lab has: what may be asked for, where the machine has no devices to hand on
    "pci_classes": ["nic 0000:3b:00.0 0000:3b:00.1 hosts=gn[0-9]+"],
    "networks": ["fast bridge bridge=br1 addresses=10.78.0.0/16", "mine vxlan addresses=172.31.0.0/16"],
    "iocm_enabled": True,
    "unclot_enabled": True,
    "unclot_shmem_max": 256,
    "vrdma_enabled": True,
}
"""The site's configuration of a lab: small guests, under software emulation."""


def install(plan: NodePlan) -> None:
    """Put the product onto this node: launchers, configuration, directories, and on compute nodes the hooks.

    Raises:
        DaemonError: a template is missing or cannot be rendered.
    """
    for name in _templates() - {"hook"} - (OF_NODES if plan.is_front_end else frozenset()):
        text = _render(f"launchers/{name}.sh.j2", prefix=str(PREFIX), batch_system=plan.batch)
        put(PREFIX / "bin" / name, text, 0o755)
    put(ETC / "vtorque.yml", _collection("job.config.policy_writer").policy_text(settings(plan)))
    for place, mode in (
        (ETC / "site-hooks", 0o755), (ETC / "templates", 0o755), (pathlib.Path("/var/lib/vtorque"), 0o711),
        (pathlib.Path("/var/lib/vtorque/log"), 0o700), (pathlib.Path("/run/vtorque"), 0o711),
    ):  # fmt: skip
        place.mkdir(mode=mode, exist_ok=True)
        place.chmod(mode)
    if plan.batch == "slurm":  # on the front end, too: slurm.conf is the same on all nodes, and names them
        for name in SLURM_HOOKS:
            put(ETC / "slurm" / name, _render(f"batch/slurm/{name}.sh.j2", prefix=str(PREFIX)), 0o755)
        for name in ("vsbatch", "vsub", "vsalloc"):
            template = "vsalloc" if name == "vsalloc" else "vsbatch"
            put(PREFIX / "bin" / name, _render(f"batch/slurm/{template}.sh.j2", prefix=str(PREFIX)), 0o755)
    if plan.batch == "torque" and not plan.is_front_end:
        hook = _render("batch/torque/hook.sh.j2", prefix=str(PREFIX), site_hooks=str(ETC / "site-hooks"))
        for name in HOOKS:
            put(TORQUE_HOME / "mom_priv" / name, hook, 0o500)


def place_drop_ins() -> None:
    """What a compute node's ssh and sshd read of jobs; placed before sshd starts, which would have to be told.

    Raises:
        DaemonError: a template is missing or cannot be rendered.
    """
    values = {
        "run_dir": "/run/vtorque", "authorized_keys_files": ".ssh/authorized_keys .ssh/authorized_keys2",
        "max_startups": "256", "max_sessions": "256",
    }  # fmt: skip
    for program in ("ssh", "sshd"):
        place = pathlib.Path(f"/etc/ssh/{program}_config.d/00-vtorque.conf")
        put(place, _render(f"ssh/{program}-vtorque.conf.j2", **values))


def settings(plan: NodePlan) -> dict[str, t.Any]:
    """The configuration of this node."""
    numbered = {} if plan.is_front_end else {"node_number": plan.number}
    return {"batch_system": plan.batch, **numbered, **SETTINGS}


def _templates() -> set[str]:
    """The launchers that this version of the collection has."""
    launchers = _collection("rendering.templates").COLLECTION_DIR / "launchers"
    return {path.name.removesuffix(".sh.j2") for path in launchers.glob("*.sh.j2")}


def _render(name: str, **values: t.Any) -> str:
    try:
        return str(_collection("rendering.templates").render(name, site_dir=None, **values))
    except _collection("errors").VTorqueError as error:
        raise DaemonError(str(error)) from error


def _collection(module: str) -> t.Any:
    # by name: only the node's environment has the collection, and only there this runs
    return importlib.import_module(f"ansible_collections.mikelangelo.vtorque.plugins.module_utils.{module}")
