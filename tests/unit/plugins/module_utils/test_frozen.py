# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A class of `frozen` behaves as the same class of `dataclasses.dataclass(frozen=True)`."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
import pickle
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.frozen import frozen
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.system.process import process_id
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages


class Fields:
    """What both have."""

    name: str
    # pylint: disable=invalid-field-call  # it knows the library's own decorator alone
    secret: str = dataclasses.field(default="", repr=False, metadata={"low": 1})
    values: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    count: int = 3


def _body() -> dict[str, t.Any]:
    body = {name: value for name, value in vars(Fields).items() if name not in ("__dict__", "__weakref__")}
    return {**body, "__qualname__": "Thing"}


OURS: t.Any = frozen(type("Thing", (), _body()))
THEIRS: t.Any = dataclasses.dataclass(frozen=True)(type("Thing", (), _body()))
BOTH = pytest.mark.parametrize("cls", [OURS, THEIRS], ids=["ours", "theirs"])


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("a",), {}),
        (("a", "b", {"c": 1}, 4), {}),
        ((), {"name": "a", "count": 5}),
        (("a",), {"values": {"d": 2}, "secret": "s"}),
    ],
)
def test_same_is_made_of_the_same_values(values: tuple[t.Any, ...], named: dict[str, t.Any]) -> None:
    ours, theirs = OURS(*values, **named), THEIRS(*values, **named)
    assert vars(ours) == vars(theirs)
    assert list(vars(ours)) == list(vars(theirs))
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert vars(dataclasses.replace(ours, count=9)) == vars(dataclasses.replace(theirs, count=9))
    assert copy.deepcopy(ours) == ours


@BOTH
@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), (("a", "b", {}, 4, 5), {}), (("a",), {"other": 1}), (("a",), {"name": "b"})],
    ids=["too few", "too many", "unknown", "twice"],
)
def test_wrong_arguments_are_a_type_error(cls: t.Any, values: tuple[t.Any, ...], named: dict[str, t.Any]) -> None:
    with pytest.raises(TypeError, match="Thing"):
        cls(*values, **named)


@BOTH
def test_frozen_object_cannot_be_changed(cls: t.Any) -> None:
    one = cls("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="'name'"):
        one.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError, match="'name'"):
        del one.name
    assert one.name == "a"


@BOTH
def test_equal_are_those_of_one_class_with_equal_values(cls: t.Any) -> None:
    assert cls("a") == cls("a")
    assert cls("a") != cls("b")
    assert OURS("a") != THEIRS("a")
    with pytest.raises(TypeError, match="unhashable"):
        hash(cls("a"))
    assert hash(cls("a", values=())) == hash(("a", "", (), 3))


@BOTH
def test_factory_makes_a_new_value_each_time(cls: t.Any) -> None:
    assert cls("a").values is not cls("a").values


@BOTH
def test_fields_are_known(cls: t.Any) -> None:
    assert dataclasses.is_dataclass(cls)
    assert [field.name for field in dataclasses.fields(cls)] == ["name", "secret", "values", "count"]
    assert dataclasses.fields(cls)[1].metadata["low"] == 1
    assert cls.__match_args__ == ("name", "secret", "values", "count")


def test_post_init_may_refuse_the_fields() -> None:
    def refuse(self: t.Any) -> None:
        raise ValueError(self.name)

    with pytest.raises(ValueError, match=r"^a$"):
        frozen(type("Thing", (), {**_body(), "__post_init__": refuse}))("a")


WAYS = {
    "vsub on OpenPBS": ("module_utils.job.batch.openpbs.front",),
    "prologue": (
        "plugin_utils.hooks.main", "module_utils.job.hooks.prologue", "plugin_utils.bridge.planning",
        "module_utils.job.hooks.user_file", "module_utils.job.admission.metadata",
    ),
    "epilogue": (
        "plugin_utils.hooks.main", "module_utils.job.hooks.epilogue", "plugin_utils.bridge.upkeep.leftover_processes",
        "plugin_utils.hooks.start_sweep",
    ),
    "vtorque-node": (
        "plugin_utils.node_agent.serve", "module_utils.node.lifecycle.creation.build",
        "module_utils.node.lifecycle.creation.preflight",
        "module_utils.node.lifecycle.creation.pinning",
        "module_utils.node.guest.osv.osv_probe",
        "module_utils.node.cache.copy_queue", "module_utils.node.bare.bare_host",
        "plugin_utils.bridge.exclusive_note",
    ),
    "playbook": ("action.job_plan", "action.job_guests", "action.job_record", "inventory.pbs_nodefile"),
    "shell": (
        "plugin_utils.cli.vtorque_shell", "module_utils.job.batch.torque.job_shell",
        "module_utils.job.shell.osv_session",
    ),
    "others": (
        "plugin_utils.cli.vsub", "module_utils.job.batch.torque.qsub.front", "plugin_utils.cli.vtorque_record",
        "plugin_utils.cli.user_script",
    ),
}  # fmt: skip
"""Programs of a job's start and end, by what they import on their way."""


def test_frozen_is_used_only_where_a_start_loads_the_module() -> None:
    package = frozen.__module__.partition(".module_utils")[0]
    plugins = pathlib.Path(sys.modules[frozen.__module__].__file__ or "").parents[1]
    begin = f"import sys; sys.path.insert(0, {str(plugins.parents[3])!r})\n"
    loaded: set[str] = set()
    for modules in WAYS.values():
        code = "".join([begin, *(f"import {package}.{name}\n" for name in modules), "print(*sys.modules)"])
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
        loaded |= set(done.stdout.split())
    users = {
        ".".join([package, *path.relative_to(plugins).with_suffix("").parts])
        for path in plugins.rglob("*.py")
        if "\n@frozen\n" in path.read_text(encoding="utf-8")
    }
    assert users - loaded == set(), "use dataclasses.dataclass(frozen=True, slots=True)"


@pytest.mark.parametrize("thing", [messages.Group("users", 100), process_id.ProcessId(3, 4)])
def test_frozen_object_survives_a_pickle(thing: t.Any) -> None:
    assert pickle.loads(pickle.dumps(thing)) == thing
