# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The original's configuration, a file of bash, made into a vtorque.yml: what becomes of each name, and why."""

from __future__ import annotations

import dataclasses
import math
import posixpath
import re
import typing as t

from ..request.value_types import encode_value, format_value
from . import legacy_bash
from .legacy_bash import Assignment, SkippedLine
from .parameters import BOUNDS_OF, DEFAULT_OF, PARAMETERS, RETIRED, Parameter
from .policy_file import PolicyErrors, meant, objection, parse
from .policy_writer import policy_text, variables_text

MAPPED, CHANGED, DROPPED, REFUSED, SKIPPED = "mapped", "changed", "dropped", "refused", "skipped"
NEEDS_A_LOOK = frozenset({REFUSED, SKIPPED})

CONSTANTS = {"FILESYSTEM_TYPE_SFS": "sharedfs", "FILESYSTEM_TYPE_RD": "ramdisk"}
"""What the original's const.sh said before its configuration was read."""

SAME: tuple[str, ...] = (
    "DISABLED_HOSTS_LIST",
    "REGEX_FE",
    "TORQUE_HOME",
    "PBS_QSUB_ON_FE",
    "PBS_QSUB_ON_NODES",
    "VM_IMG_DIR",
    "RAMDISK_DIR",
    "VM_NFS_HOME",
    "VM_NFS_WS",
    "VM_NFS_OPT",
    "MAC_PREFIX",
    "HOST_OS_CORE_COUNT",
    "HOST_OS_RAM_MB",
    "PBS_EXCLUSIVE_NODE_ALLOC",
    "KILL_USER_PROCESSES_AFTER_JOB",
    "SSH_TIMEOUT",
    "TIMEOUT",
    "PROLOGUE_TIMEOUT",
    "NFS_TIMEOUT",
    "CUSTOM_IP_MAPPING",
    "IP_TO_MAC_SCRIPT",
    "DOMAIN",
    "NAME_SERVER",
    "SEARCH_DOMAIN",
    "NTP_SERVER_1",
    "NTP_SERVER_2",
    "FILESYSTEM_TYPE_DEFAULT",
    "IMG_DEFAULT",
    "DISTRO_DEFAULT",
    "ARCH_DEFAULT",
    "VCPUS_DEFAULT",
    "VCPU_PINNING_DEFAULT",
    "RAM_DEFAULT",
    "VMS_PER_NODE_DEFAULT",
    "DISK_DEFAULT",
    "HYPERVISOR_DEFAULT",
    "VRDMA_ENABLED_DEFAULT",
    "IOCM_ENABLED_DEFAULT",
    "UNCLOT_ENABLED_DEFAULT",
    "UNCLOT_SHMEM_DEFAULT",
    "IOCM_MIN_CORES_DEFAULT",
    "IOCM_MAX_CORES_DEFAULT",
    "PARALLEL",
    "ALLOW_USER_IMAGES",
    "DEBUG_DEFAULT",
    "TRACE_DEFAULT",
    "SHOW_LOG_DEFAULT",
    "LOG_ROTATE",
    "LOG_FILE",
    "IOCM_ENABLED",
    "IOCM_MIN_CORES",
    "IOCM_MAX_CORES",
    "IOCM_NODES",
    "VRDMA_ENABLED",
    "VRDMA_NODES",
    "UNCLOT_ENABLED",
    "DISABLE_MIKELANGELO_HPC_STACK",
    "MAX_VMS_PER_NODE",
)
"""Names that became parameters in small letters; further ones stand in `Parameter.old`."""

NEW_NAMES: dict[str, str] = {
    **{name: name.lower() for name in SAME},
    **{old: parameter.name for parameter in PARAMETERS.values() for old in parameter.old},
}
"""The parameter that each old name became."""

END_OF_SETTINGS = "DO NOT EDIT BELOW THIS LINE"
"""What the original's file says above its own code; settings that somebody put below it count all the same."""
_OWN_CODE = re.compile(r"set -o nounset|.*\$\{?LIB_LOG4BSH\b")
"""What it does above that line."""

_SKVM = "a constant of the sKVM prototype, which has no place in today's form of the component"
_LOG = "lines of the log have one form, and logs are bounded (log_rotate)"
_OWN = "a constant of the original's own programs"
GONE: dict[str, str] = {
    **{name.upper(): why for name, why in RETIRED.items()},
    "SERVER_HOSTNAME": "Torque's own commands know their server",
    "SUSPENDED_IMAGE_DIR": "suspended guests have no directory of their own yet",
    "MEASURE_TIME": "the record of every job has the time of each phase: vmgr job show",
    "KEEP_VM_ALIVE": "no guest outlives its job",
    "SSH_OPTS": "ssh is always called with every option, and checks host keys",
    "SCP_OPTS": "nothing is copied by scp",
    "VIRSH_OPTS": "virsh is not called",
    **dict.fromkeys(CONSTANTS, "a constant, which is known"),
    **dict.fromkeys(
        (
            "CLOUD_INIT_LOG",
            "SYS_LOG_FILE_RH",
            "SYS_LOG_FILE_DEBIAN",
            "PINNING_FILE",
            "RUID_CACHE_FILE",
            "ABSOLUTE_PATH_CONFIG",
            "LIB_LOG4BSH",
            "SHARED_FS_JOB_DIR",
            "RAMDISK",
            "PBS_QSUB",
            "VRDMA_CONFIGFILE",
        ),
        _OWN,
    ),
    "DEBUG": "set by a user, for one job: DEBUG=true vsub ...; debug_default is the site's",
    "TRACE": "set by a user, for one job: TRACE=true vsub ...; trace_default is the site's",
    "LOG_LEVEL": "log_levels has the level of each component",
    **dict.fromkeys(("MAX_LOG_SIZE", "USE_COLORS", "DATE_FORMAT", "LOG4BSH_CONFIG_FILE"), _LOG),
    **dict.fromkeys(
        (
            "IOCM_INTERFACE_NAME",
            "VRDMA_BRDIGE_ADDRESS",
            "VRDMA_BRIDGE",
            "IB_TARGET_PORT",
            "VRDMA_IB_PORT_MODE",
            "VRDMA_ROCE_PORT",
            "VRDMA_NIC_NAME",
            "HUGE_TABLE_SIZE",
            "SOCKET0_MEM",
            "OVS_DIR",
        ),
        _SKVM,
    ),
}
"""Names that nothing became, and why."""

_PLACEHOLDER = "my-domain"
_TRANSLATED: dict[tuple[str, str], tuple[str | None, str]] = {
    ("metrics", "true"): ("both", "figures go to the record and to a node exporter"),
    ("metrics", "false"): (None, "figures in the record need no collector"),
    ("prologue_timeout", "600"): (None, "the original's 600 is more than Torque's usual $prologalarm (300) leaves"),
}
"""What old values of parameters became, and why; None: the default."""


@dataclasses.dataclass(frozen=True, slots=True)
class EntryReport:
    """What became of one name, or of a line that is no assignment.

    Attributes:
        line: where it stood.
        name: the old name, or the beginning of the line.
        fate: `mapped`, `changed`, `dropped`, `refused` (the default holds) or `skipped`.
        text: the new name and value, and why it is not what it was.
    """

    line: int
    name: str
    fate: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """A new configuration, and a word on everything that stood in the old one.

    Attributes:
        text: as the site's file.
        variables: the same as variables of the roles.
        entries: in the order of the lines.
    """

    text: str
    variables: str
    entries: tuple[EntryReport, ...]

    @property
    def needs_review(self) -> bool:
        """Whether there is something that only an administrator can decide."""
        return any(word.fate in NEEDS_A_LOOK for word in self.entries)


def convert(text: str, file: str) -> Conversion:
    """Make a new configuration out of an old one.

    Args:
        text: the old file; it is read and never run.
        file: what it is called in the new one's comments.

    Returns:
        A configuration that is good, and what became of each name.
    """
    found, skipped = legacy_bash.read(text, CONSTANTS)
    own_code = _line_of_end(text)
    notes = _not_read(skipped, own_code)
    last = {NEW_NAMES.get(one.name, one.name): one for one in found}
    settings: dict[str, object] = {}
    came_from: dict[str, Assignment] = {}
    for one in found:
        target = NEW_NAMES.get(one.name, one.name)
        if one.line > own_code and target not in PARAMETERS:
            continue
        if last[target] is not one:
            notes.append(EntryReport(one.line, one.name, DROPPED, f"line {last[target].line} says it again"))
            continue
        word, value = _become(one, last)
        notes.append(word)
        if word.fate in (MAPPED, CHANGED) and value is not None:
            settings[target], came_from[target] = value, one
    _drop_contradictions(settings, came_from, notes)
    remarks = _remarks(notes, file)
    ordered = tuple(sorted(notes, key=lambda word: word.line))
    return Conversion(policy_text(settings, remarks), variables_text(settings, remarks), ordered)


def _line_of_end(text: str) -> float:
    """The line that ends what a site sets; infinity: there is none."""
    lines = (number for number, line in enumerate(text.splitlines(), 1) if END_OF_SETTINGS in line)
    return next(lines, math.inf)


def _not_read(skipped: t.Iterable[SkippedLine], own_code: float) -> list[EntryReport]:
    """A word on each thing that is no plain assignment, and one on all of the original's own code."""
    remarks: list[EntryReport] = []
    own_lines: set[int] = set()
    for one in skipped:
        if one.text in GONE:
            remarks.append(EntryReport(one.line, one.text, DROPPED, GONE[one.text]))
        elif one.line in own_lines:
            continue
        elif _OWN_CODE.match(one.text):
            own_lines.add(one.line)
            remarks.append(EntryReport(one.line, one.text, DROPPED, "the original's own code"))
        elif one.line < own_code or one.text in NEW_NAMES:
            remarks.append(EntryReport(one.line, one.text, SKIPPED, one.why))
    remarks = [word for word in remarks if word.line < own_code or word.fate == SKIPPED]
    if own_code < math.inf:
        remarks.append(EntryReport(int(own_code), END_OF_SETTINGS, DROPPED, "the original's own code follows"))
    return remarks


def _become(one: Assignment, others: t.Mapping[str, Assignment]) -> tuple[EntryReport, object]:
    """What becomes of an assignment by itself: a word on it, and its new value; None: the default."""

    def report(fate: str, text: str) -> EntryReport:
        return EntryReport(one.line, one.name, fate, text)

    if one.name in GONE:
        return report(DROPPED, GONE[one.name]), None
    if one.name not in NEW_NAMES:
        hint = meant(one.name)
        return report(SKIPPED, f"the original has no such parameter{hint}"), None
    parameter = PARAMETERS[NEW_NAMES[one.name]]
    if one.value is None:
        if parameter.name == "log_file":
            return report(DROPPED, "each job's log is in its record"), None
        return report(SKIPPED, f"{one.why}; {_default(parameter)}"), None
    value, changed = _translated(parameter, one.value, others)
    if value is None and not changed:
        return report(MAPPED, _default(parameter)), None
    if value is None:
        return report(DROPPED if "placeholder" in changed else CHANGED, f"{_default(parameter)}: {changed}"), None
    if wrong := objection(parameter, value):
        return report(REFUSED, f"{format_value(_old_value(one))}: {wrong}; {_default(parameter)}"), None
    new = f"{parameter.name}: {format_value(value)}"
    return (report(CHANGED, f"{new} ({changed})"), value) if changed else (report(MAPPED, new), value)


def _default(parameter: Parameter) -> str:
    if parameter.default is None:
        return f"{parameter.name} is not set"
    default = "" if isinstance(parameter.default, tuple) else f" ({format_value(encode_value(parameter.default))})"
    return f"{parameter.name} stays at its default{default}"


def _old_value(one: Assignment) -> str:
    return one.value if isinstance(one.value, str) else f"({' '.join(one.value or ())})"


def _translated(
    parameter: Parameter, old: str | tuple[str, ...], others: t.Mapping[str, Assignment]
) -> tuple[object | None, str]:
    """The value as today's table has it, and what was changed in it; None: the default."""
    if parameter.kind.form == "list":
        return list(old) if isinstance(old, tuple) else old.split(), ""
    if isinstance(old, tuple):
        return list(old), ""
    value = old.strip()
    if not value:
        return None, "" if parameter.default is None else "it was empty"
    if _PLACEHOLDER in value:
        return None, f"{format_value(value)} is the original's placeholder"
    if (parameter.name, value.lower()) in _TRANSLATED:
        return _TRANSLATED[parameter.name, value.lower()]
    if parameter.kind.form == "path" and value != "/" and value.endswith("/"):
        return value.rstrip("/"), ""
    if parameter.name == "img_default" and value.startswith("/"):
        pool = others.get("vm_img_dir")
        here = pool.value if pool is not None and isinstance(pool.value, str) else PARAMETERS["vm_img_dir"].default
        if posixpath.dirname(value) == str(here).rstrip("/"):
            return posixpath.basename(value), "images are called by their names in the pool"
    return value, ""


def _drop_contradictions(
    settings: dict[str, object], came_from: t.Mapping[str, Assignment], remarks: list[EntryReport]
) -> None:
    """Leave out, until the rest is good, what does not fit the rest."""
    while True:
        try:
            parse(policy_text(settings), "the new configuration")
        except PolicyErrors as error:
            fault = error.faults[0]
            # what was set gives way, and not a default that it does not fit
            bounds = " ".join(name for key, pair in BOUNDS_OF.items() if DEFAULT_OF[key] == fault.key for name in pair)
            concerned = re.findall(r"\w+", f"{fault.key} {fault.message} {bounds}")
            name = next(name for name in (*concerned, *settings) if name in settings)
            one = came_from[name]
            switched_off = PARAMETERS[fault.key].default is True and settings.get(fault.key) is not False
            if not switched_off or fault.key in came_from:  # a new word on it
                remarks[:] = [word for word in remarks if (word.line, word.name) != (one.line, one.name)]
            if switched_off:  # its default would not fit either
                settings[fault.key] = False
                remarks.append(EntryReport(one.line, one.name, CHANGED, f"{fault.key}: false, for it {fault.message}"))
                continue
            why = f"{format_value(_old_value(one))}: {fault.key} {fault.message}; {_default(PARAMETERS[name])}"
            remarks.append(EntryReport(one.line, one.name, REFUSED, why))
            del settings[name]
        else:
            return


def _remarks(notes: t.Sequence[EntryReport], file: str) -> dict[str, list[str]]:
    """What the new file says above a parameter whose old value was changed or could not be kept."""
    remarks: dict[str, list[str]] = {}
    for word in notes:
        if word.name in NEW_NAMES and word.fate in (CHANGED, REFUSED, SKIPPED):
            remarks.setdefault(NEW_NAMES[word.name], []).append(
                f"{file}, line {word.line}: {word.name} {word.fate}: {word.text}"
            )
    return remarks
