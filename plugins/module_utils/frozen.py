# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Frozen dataclasses that share their methods.

`dataclasses.dataclass(frozen=True)` writes six functions for a class and compiles them each time a program loads it:
half a millisecond.  Measured as processor time of the imports (medians of 20 runs, Python 3.11, two cores that were
busy), with this module and with `dataclass(frozen=True, slots=True)` in its place:

    prologue's hook     76 ms, 103 ms        vtorque-node that makes guests    99 ms, 132 ms
    and its planner     88 ms, 127 ms        vtorque-shell                     54 ms,  67 ms
    epilogue's hook     92 ms, 121 ms        vsub                              66 ms,  93 ms

The three of a start's way to its guests are 100 ms of a node's processor.  `dataclasses` itself is loaded by all of
them anyway.  This module goes when a Python that vTorque supports brings that difference below 20 ms.  Classes that no
program of a start loads use `dataclasses` itself (a test says which), and so does a class that needs more than fields,
defaults and metadata.  attrs compiles as well, and a NamedTuple equals any tuple of the same values.
"""

from __future__ import annotations

import dataclasses
import typing as t

T = t.TypeVar("T")


class _Methods:
    """What every frozen class has."""

    def __init__(self, *values: t.Any, **named: t.Any) -> None:
        fields, what = dataclasses.fields(t.cast(t.Any, self)), type(self).__qualname__
        if len(values) > len(fields):
            raise TypeError(f"{what} has {len(fields)} fields, and {len(values)} values are given")
        mine = {field.name: value for field, value in zip(fields, values, strict=False)}
        for field in fields[len(values) :]:
            if field.name in named:
                mine[field.name] = named.pop(field.name)
            elif field.default is not dataclasses.MISSING:
                mine[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                mine[field.name] = field.default_factory()
            else:
                raise TypeError(f"{what} needs a value for {field.name}")
        if named:
            again = "twice a value for" if next(iter(named)) in mine else "no field"
            raise TypeError(f"{what} has {again} {', '.join(named)}")
        vars(self).update(mine)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    def __repr__(self) -> str:
        names = (field.name for field in dataclasses.fields(t.cast(t.Any, self)) if field.repr)
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __setattr__(self, name: str, _value: object) -> t.NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> t.NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


@t.dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class a dataclass whose instances cannot be changed: `dataclasses.dataclass(frozen=True)`, sooner loaded.

    Args:
        cls: of its own fields alone, which may have a default, a factory of one, metadata, and `repr=False`.

    Returns:
        The class; `fields`, `replace` and `asdict` of `dataclasses` take it for one of theirs.
    """
    for name in ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__"):
        setattr(cls, name, vars(_Methods)[name])
    return dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
