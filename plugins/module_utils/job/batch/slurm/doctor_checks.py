# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of Slurm the doctor checks: the launchers of Prolog and Epilog, and settings that only the site may write."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import typing as t

from ....errors import SiteFault
from ....time_budget import HOOK_RESERVE_S
from ....wire.health_report import BAD, INSTALL, WARN, Finding
from ....wire.messages import HOST_NAME, JOB_ID
from ..host_match import same_host
from ..shared.commands_directory import commands_directory
from ..shared.hook_program import why_unsafe
from . import node_traces
from .adapter import Slurm

if t.TYPE_CHECKING:
    from ...config.parameters import Policy
    from ..api import BatchSystem

PLACE = pathlib.Path("/etc/vtorque/slurm")
LAUNCHERS = ("prolog", "epilog")
NAMES = {"Prolog": "prolog", "Epilog": "epilog"}
"""By which slurm.conf names them."""
CGROUPS = "proctrack/cgroup"
LOOKED_AT = 1 << 16
"""Bytes of a site's own program in which ours is looked for."""
ASK_S = 5.0
OLDEST, NEWEST = (22, 5), (26, 5)
"""Older ones do not tell Prolog a job's comment and which start it is.  A newer one may write its answers in another
form: it is tried, and what cannot be read is named."""
BOOT_S = 300
"""Seconds that a Prolog may take by default, and a margin."""
NONE_S = 65534
"""What a bound of seconds is where there is none."""
CALL = (
    'local is_there, vtorque = pcall(dofile, "{}")',
    "if is_there and vtorque(job_desc) ~= slurm.SUCCESS then return slurm.ERROR end",
)
"""Lines of a site's job_submit.lua that call our module."""
SAME = "Match"
"""HASH_VAL of a host whose slurm.conf is the controller's."""
Wrong = tuple[str, str]
"""What is wrong, and the remedy."""


def node_checks(policy: Policy, node: str, *, owner_uid: int, thorough: bool) -> dict[str, t.Callable[[], Finding]]:
    """The checks of a node that only Slurm has, by their names; see `DoctorAdapter.node_checks`."""
    # rights are not looked at: munge makes root of each node an administrator
    batch = Slurm(commands_directory(policy), timeout_s=ASK_S) if thorough else None
    return {"hooks": lambda: check_hooks(PLACE, owner_uid, batch=batch, policy=policy, node=node)}


def check_hooks(
    place: pathlib.Path,
    owner_uid: int = 0,
    *,
    batch: Slurm | None = None,
    policy: Policy | None = None,
    node: str = "",
) -> Finding:
    """Check that vTorque's launchers are in place, root's alone, and called by Slurm as they need it.

    Args:
        place: their directory.
        owner_uid: whose they must be.
        batch: is asked for Slurm's settings and this node; None: only the files are looked at.
        policy: of the site; None: the settings are not compared with it.
        node: this node.
    """
    wrong = [f"{name} {why}" for name in LAUNCHERS if (why := why_unsafe(place / name, owner_uid))]
    if wrong:
        return Finding("hooks", BAD, BAD, f"in {place}: {', '.join(wrong)}", INSTALL)
    if batch is None:
        return Finding("hooks")
    try:
        settings = batch.configuration()
        found = (
            _other_file(settings)
            or _wrong_setting(settings, _needed_s(policy))
            or next((bad for name in LAUNCHERS if (bad := _not_called(settings, place, name))), None)
            or (_unreadable_node(node) or _unknown_node(batch, node) if node else None)
            or _without_cpusets(policy)
            or _without_feature(batch, policy, node)
        )
    except SiteFault as error:
        return Finding("hooks", WARN, "?", f"Slurm does not tell how it is set: {error}")
    return Finding("hooks", BAD, BAD, *found) if found else Finding("hooks")


def check_server(batch: BatchSystem, nodes: t.Sequence[str], preface: str = "") -> Finding:
    """Check that Slurm is set as vTorque needs it; JSON has no preface; see `DoctorAdapter.check_server`."""
    try:
        settings = batch.configuration() if isinstance(batch, Slurm) else {}
    except SiteFault as error:
        return Finding("server", WARN, "?", f"it does not tell how it is set: {error}")
    if found := too_old(settings) or _other_file(settings) or _wrong_setting(settings, BOOT_S):
        return Finding("server", BAD, BAD, *found)
    # of nodes that may be none for virtual machines; each node's own check is sure of that
    found = next((wrong for node in nodes if (wrong := _unreadable_node(node))), None) or _untried(batch, settings)
    return Finding("server", WARN, "?", *found) if found else Finding("server")


def too_old(settings: t.Mapping[str, str]) -> Wrong | None:
    """Return what a controller older than `OLDEST` lacks."""
    version = _version(settings.get("SLURM_VERSION", ""))
    if not version or version >= OLDEST:
        return None
    problem = f"it is Slurm {settings['SLURM_VERSION']}, which does not give Prolog the comment of a job"
    return problem, "Slurm 22.05 or newer"


def _untried(batch: BatchSystem, settings: t.Mapping[str, str]) -> Wrong | None:
    """Return what is to be known of a version that nobody has tried, or of two that work together."""
    text = settings.get("SLURM_VERSION", "")
    version = _version(text)
    if not version or version > NEWEST:
        problem = f"it is Slurm {text or '(unknown)'}; vTorque was made for 22.05 to 26.05, and tries this one"
        return problem, "run vmgr selftest; a message names what cannot be read"
    with contextlib.suppress(SiteFault):
        ours = batch.commands_version() if isinstance(batch, Slurm) else ""
        if _version(ours) and _version(ours) != version:
            problem = f"the commands of this host are Slurm {ours}, and the controller is {text}"
            return problem, "install the same version on both; until then what Slurm itself allows works"
    return None


def _version(text: str) -> tuple[int, ...]:
    """Return the two numbers of a release; (): they cannot be read."""
    found = re.match(r"([0-9]+)\.([0-9]+)", text)
    return (int(found[1]), int(found[2])) if found else ()


def plain_sbatch_lines(settings: t.Mapping[str, str], module: pathlib.Path, host: str) -> list[str]:
    """Return what is missing until plain sbatch reads lines `#VM`, one sentence each with the lines to write.

    Args:
        settings: of the controller, by the names of slurm.conf.
        module: our module for the site's own job_submit.lua, as that file names it.
        host: this host.  Only the controller's own has the site's file.
    """
    found = []
    plugins = [one for one in settings.get("JobSubmitPlugins", "").split(",") if one not in ("", "(null)")]
    if "lua" not in plugins:
        line = f"JobSubmitPlugins={','.join([*plugins, 'lua'])}"
        found.append(f"Slurm reads no job_submit.lua: write {line} into slurm.conf, then scontrol reconfigure")
    file = pathlib.Path(settings.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent / "job_submit.lua"
    controller = settings.get("SlurmctldHost[0]", host).partition("(")[0]
    with contextlib.suppress(OSError):
        if os.fsencode(module) in file.read_bytes()[:LOOKED_AT]:
            return found
    place = f"{file} of {controller}"
    if not same_host(controller, host):
        place += f", if it does not call {module} yet, which must be there as it is here"
    first, second = CALL[0].format(module), CALL[1]
    found.append(
        f"plain sbatch reads no lines #VM: write into {place}, at its top `{first}`, and in slurm_job_submit, after the"
        f" site's own checks, `{second}`, then scontrol reconfigure (docs/admin/slurm.md has a whole file)"
    )
    return found


def _needed_s(policy: Policy | None) -> int:
    """The longest that a Prolog of vTorque may take, by the site's settings."""
    return BOOT_S if policy is None else int(policy.prologue_timeout + HOOK_RESERVE_S)


def _other_file(settings: t.Mapping[str, str]) -> Wrong | None:
    """The controller compares this host's slurm.conf with its own (HASH_VAL of `scontrol show config`)."""
    if settings.get("HASH_VAL", SAME) == SAME:
        return None
    return "slurm.conf of this host is not the controller's", "copy the controller's, then scontrol reconfigure"


def _wrong_setting(settings: t.Mapping[str, str], needed_s: int) -> Wrong | None:
    """The first setting with which no job runs in a virtual machine, and the line to write."""

    def write(line: str) -> str:
        return f"write {line} into slurm.conf, then scontrol reconfigure"

    flags = settings.get("PrologFlags", "").lower().split(",")
    if not {"alloc", "contain"} & set(flags):
        problem = "without PrologFlags=Alloc a job's Prolog runs on its first node alone, or not before the job"
        return problem, write("PrologFlags=Alloc,Contain")
    tracking = settings.get("ProctrackType", CGROUPS)
    if tracking != CGROUPS:
        problem = f"ProctrackType is {tracking}: a job's shell knows its job by cgroups alone"
        return problem, f"write ProctrackType={CGROUPS} into slurm.conf, and start the daemons anew"
    # a VM job's guests boot in Prolog, and meanwhile its node may register
    batch_s = _seconds(settings, "BatchStartTimeout")
    if batch_s is not None and batch_s < needed_s:
        problem = (
            f"BatchStartTimeout is {batch_s} s: a job whose guests boot for longer is taken for lost, and queued again"
        )
        return problem, write(f"BatchStartTimeout={needed_s}")
    prolog_s = _seconds(settings, "PrologEpilogTimeout")
    if prolog_s is not None and prolog_s < min(needed_s, NONE_S):
        problem = f"PrologEpilogTimeout is {prolog_s} s: a Prolog whose guests boot for longer is killed"
        return problem, write(f"PrologEpilogTimeout={needed_s}, or none,")
    for name, launcher in NAMES.items():
        if settings.get(name, "(null)") == "(null)":
            problem = f"it calls no {name}, and no job runs in a virtual machine"
            return problem, write(f"{name}={PLACE / launcher}")
    return _without_memory(settings) or _unreadable_cluster(settings)


def _without_memory(settings: t.Mapping[str, str]) -> Wrong | None:
    """Slurm counts memory only where SelectTypeParameters says so; unset with cons_tres it shows CR_CORE_MEMORY."""
    value = settings.get("SelectTypeParameters", "MEMORY")
    if "MEMORY" in value.upper():
        return None
    counted = re.sub(r"CR_(CPU|CORE|SOCKET)(?![A-Z_])", r"CR_\1_MEMORY", value.upper())
    if counted == value.upper():
        what = "CR_MEMORY" if settings.get("SelectType") == "select/linear" else "CR_CORE_MEMORY"
        counted = ",".join([what, *re.findall(r"CR_\w+", counted)])
    problem = f"SelectTypeParameters is {value[:80]}: Slurm counts no memory of jobs, and each VM job is refused"
    return problem, f"write SelectTypeParameters={counted} into slurm.conf, then restart slurmctld"


def _unreadable_cluster(settings: t.Mapping[str, str]) -> Wrong | None:
    cluster = settings.get("ClusterName", "")
    if cluster and not re.fullmatch(JOB_ID, f"1.{cluster}"):
        problem = f"ClusterName is {cluster[:80]}: vTorque reads only letters, digits, - and ., and refuses each VM job"
        line = f"ClusterName={re.sub(r'[^A-Za-z0-9.-]+', '-', cluster).strip('-.') or 'cluster'}"
        return problem, f"write {line} into slurm.conf; its manual tells what such a change needs"
    return None


def _unreadable_node(node: str) -> Wrong | None:
    """The name of a node stands in the lists of nodes that Prolog reads, and names guests."""
    if re.fullmatch(HOST_NAME, node):
        return None
    problem = f"node {node[:80]}: vTorque reads only letters, digits, - and . in the name of a node"
    return problem, "give the host and its NodeName in slurm.conf another name"


def _unknown_node(batch: Slurm, node: str) -> Wrong | None:
    """Prolog, Epilog and the sweep compare NodeName with the name of their host."""
    if any(same_host(known.name, node) for known in batch.nodes()):
        return None
    problem = f"Slurm has no node {node}: vTorque needs the name of the host as its NodeName, and no VM job runs here"
    return problem, f"write NodeName={node} into slurm.conf, or give the host that name"


def _seconds(settings: t.Mapping[str, str], name: str) -> int | None:
    """A bound; None: there is none, or the controller does not tell."""
    found = re.match(r"[0-9]+", settings.get(name, ""))
    return int(found[0]) if found and int(found[0]) < NONE_S else None


def _not_called(settings: t.Mapping[str, str], place: pathlib.Path, launcher: str) -> Wrong | None:
    """Prolog and Epilog may be ours, a pattern that finds ours, or the site's own programs that name ours."""
    name = next(name for name, ours in NAMES.items() if ours == launcher)
    value, ours = settings.get(name, ""), place / launcher
    programs = [*pathlib.Path("/").glob(value.lstrip("/") or "?"), pathlib.Path(value)]
    for program in programs:
        with contextlib.suppress(OSError):
            if program.samefile(ours) or os.fsencode(ours) in program.read_bytes()[:LOOKED_AT]:
                return None
    problem = f"{name} is {value[:200]}, which does not call {ours}: no job runs in a virtual machine here"
    return problem, f"write {name}={ours} into slurm.conf, or call it there, then scontrol reconfigure"


def _without_cpusets(policy: Policy | None) -> Wrong | None:
    """Jobs may share this node, and nothing would keep their guests apart: each is refused."""
    if policy is None or policy.pbs_exclusive_node_alloc or node_traces.cpusets(policy, "*"):
        return None
    problem = "jobs may share this node (pbs_exclusive_node_alloc: false), and slurmd gives them no cpusets"
    remedy = "write TaskPlugin=task/cgroup,task/affinity into slurm.conf and ConstrainCores=yes into cgroup.conf"
    return problem, f"{remedy}, then restart slurmd"


def _without_feature(batch: Slurm, policy: Policy | None, node: str) -> Wrong | None:
    feature = None if policy is None else policy.vm_node_property
    if feature is None or not node:
        return None
    known = batch.node(node)
    if feature in known.properties:
        return None
    problem = f"{known.name} has no feature {feature}, which every VM job asks for (vm_node_property)"
    return problem, f"write Features={feature} to NodeName={known.name} in slurm.conf, then scontrol reconfigure"
