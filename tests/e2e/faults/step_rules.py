# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which calls are steps, at which the fault suite fails: the object that is called decides, not how it is spelled.

No step is what is marked with `effects.leaves_nothing`, a function of the caller's own module (its own calls are
steps), a class that only holds values, an error, and what `MODULES` and `NAMED` have of others.  All else is one.

The text runs on nodes, too, inside of the modules whose steps fail: it needs the standard library alone.
"""

from __future__ import annotations

import ast
import builtins
import functools
import io
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import types
import typing as t

MARK = "_leaves_nothing"
"""`effects.MARK`."""
MODULES = frozenset({
    "_ctypes", "_hashlib", "_stat", "_struct", "_thread", "abc", "builtins", "collections", "collections.abc",
    "concurrent.futures._base", "concurrent.futures.thread", "contextlib", "ctypes", "dataclasses", "enum",
    "functools", "gc", "itertools", "json", "posixpath", "re", "secrets", "select", "selectors", "shlex", "threading",
    "time", "traceback", "types", "typing",
})  # fmt: skip
"""Of the standard library, those whose functions, classes and methods compute, read, or change this process alone."""
READERS = frozenset({"close", "detach", "fileno", "flush", "read", "seek"})
"""Methods of open files that change none; what is written is a step of its own."""
NAMED = frozenset({
    *(f"pathlib.Path.{name}" for name in (
        "exists", "glob", "is_dir", "is_symlink", "iterdir", "read_text", "readlink", "stat",
    )),
    # a process's own descriptors, memory, signals and names, which go with it
    *(f"posix.{name}" for name in (
        "_exit", "chdir", "close", "closerange", "dup", "dup2", "fstat", "getpid", "getppid",
        "memfd_create", "pidfd_open", "pipe2", "pread", "read", "set_inheritable", "stat", "strerror", "sysconf",
        "umask", "uname", "waitstatus_to_exitcode",
    )),
    "_pickle.load", "_signal.setitimer", "_socket.socket.detach", "_socket.socket.fileno", "_socket.socket.recv",
    "ctypes.capget", "multiprocessing.process.parent_process", "os._Environ", "os.fdopen", "resource.getrlimit",
    "signal.signal", "socket.socket", "socket.socketpair", "subprocess.Popen.poll", "syslog.openlog",
})  # fmt: skip
"""Single ones of other modules, by the module and name under which they are defined; a class with its methods."""
OPENERS = frozenset({"posix.open", "io.open", "pathlib.Path.open"})
"""These may make a file: their arguments decide."""
NO_AFTER = frozenset({"posix.fork", "posix.execve"})
"""What comes after these comes never, or twice."""
OURS = "ansible_collections."
CELL = "strike_"
"""The name that each walked module has for what makes its calls fail."""


def plain(callee: t.Any) -> t.Any:
    """What stands behind bound methods and partial calls."""
    while True:
        if isinstance(callee, functools.partial):
            callee = callee.func
        elif isinstance(callee, (types.MethodType, staticmethod, classmethod)):
            callee = callee.__func__
        else:
            return callee


def owner_of(callee: t.Any) -> type | None:
    """The class of which a method of C is."""
    owner = getattr(callee, "__objclass__", None)
    if owner is None and isinstance(callee, types.BuiltinMethodType | types.MethodWrapperType):
        owner = callee.__self__
    if owner is None or isinstance(owner, types.ModuleType):
        return None
    owner = owner if isinstance(owner, type) else type(owner)
    name = getattr(callee, "__name__", "")
    return next((one for one in owner.__mro__ if name in vars(one)), owner)


def name_of(callee: t.Any) -> str:
    """Where something is defined: `module.Class.name`, for whatever can be called."""
    callee = plain(callee)
    owner = owner_of(callee)
    if owner is not None:
        return f"{owner.__module__}.{owner.__qualname__}.{callee.__name__}"
    if is_of_a_library(callee):
        return f"ctypes.{callee.__name__}"
    if not hasattr(callee, "__qualname__"):  # an object that can be called
        kind = type(callee)
        return f"{kind.__module__}.{kind.__qualname__}.__call__"
    return f"{callee.__module__}.{callee.__qualname__}"


def is_marked(callee: t.Any) -> bool:
    """Does the function say of itself that it leaves nothing, or the class of which it is?"""
    if isinstance(callee, type):
        return MARK in vars(callee) or MARK in getattr(callee.__init__, "__dict__", {})
    if MARK in getattr(callee, "__dict__", {}):
        return True
    above: t.Any = sys.modules.get(getattr(callee, "__module__", None) or "")
    for name in getattr(callee, "__qualname__", "").split(".")[:-1]:
        above = getattr(above, name, None)
        if isinstance(above, type) and MARK in vars(above):
            return True
    return False


def holds_values(kind: type) -> bool:
    """Has nobody written its constructor: is it a dataclass's, a named tuple's, an enumeration's, an error's?"""
    if issubclass(kind, BaseException):
        return True
    makers = [plain(vars(one)[name]) for one in kind.__mro__ for name in ("__init__", "__post_init__", "__new__")
              if name in vars(one)]  # fmt: skip
    written = [
        one for one in makers
        if isinstance(one, types.FunctionType)
        and one.__module__.startswith(OURS)
        and not one.__module__.endswith(".frozen")
        and not one.__code__.co_filename.startswith("<")  # generated
    ]  # fmt: skip
    return not written and all(one.__module__ in MODULES or one.__module__.startswith(OURS) for one in kind.__mro__)


def is_step(callee: t.Any, home: str) -> bool:
    """May this call, of a function of the module `home`, leave something behind, or take something away?"""
    callee = plain(callee)
    if is_of_a_library(callee):
        return name_of(callee) not in NAMED
    if isinstance(callee, type):
        return _makes_step(callee, home)
    if not hasattr(callee, "__qualname__"):  # an object that can be called
        callee = plain(type(callee).__call__)
    if is_marked(callee) or getattr(callee, "__module__", None) == home:
        return False
    if isinstance(callee, types.FunctionType) and "<locals>" in callee.__qualname__ and CELL in callee.__globals__:
        return False  # of another walked module, given to this one: its calls are steps
    name, owner = name_of(callee), owner_of(callee)
    where = owner.__module__ if owner is not None else callee.__module__
    if where == "_io" and callee.__name__ in READERS:
        return False
    return not (
        where in MODULES or name in NAMED or name.rpartition(".")[0] in NAMED or name in OPENERS
        or name.startswith("pathlib.PurePath.")
    )  # fmt: skip


def _makes_step(kind: type, home: str) -> bool:
    """Is it a step to call a class?"""
    if kind.__module__ == home or is_marked(kind) or issubclass(kind, BaseException | pathlib.PurePath):
        return False
    if kind.__module__.startswith(OURS):
        return not holds_values(kind)
    return kind.__module__ not in MODULES and name_of(kind) not in NAMED


def is_of_a_library(callee: t.Any) -> bool:
    """Is it a function of C that `ctypes` has found in a library?"""
    return any(one.__name__ == "CFuncPtr" for one in type(callee).__mro__)


def makes_file(callee: t.Any, args: tuple[t.Any, ...], named: t.Mapping[str, t.Any]) -> bool:
    """Does this call of something that opens files make or change one?"""
    at = 0 if isinstance(callee, types.MethodType) else 1
    how = args[at] if len(args) > at else named.get("flags", named.get("mode", "r"))
    return bool(how & (os.O_CREAT | os.O_TRUNC)) if isinstance(how, int) else any(one in how for one in "wax+")


def with_faults(callee: t.Any, home: str, act: t.Callable[[str], None]) -> t.Any:
    """What to call in place of something: itself, unless it is a step.

    Args:
        callee: of a call in the module `home`.
        home: the name of that module.
        act: hears `before` and `after` of the step, and may fail; after what comes back twice or never it is not asked.
    """
    opens = name_of(callee) in OPENERS
    if not opens and not is_step(callee, home):
        return callee

    def call(*args: t.Any, **named: t.Any) -> t.Any:
        if opens and not makes_file(callee, args, named):
            return callee(*args, **named)
        act("before")
        value = callee(*args, **named)
        if name_of(callee) not in NO_AFTER:
            act("after")
        return value

    return call


SOURCES: tuple[t.Any, ...] = (
    os, shutil, signal, pathlib.Path, subprocess, subprocess.Popen, socket.socket, io.TextIOWrapper, io.BufferedWriter,
    str, bytes, list, dict, set, tuple, re.Pattern, re.Match,
)  # fmt: skip
"""Whose a method may be of which only the name is known."""


def may_be_step(callee: ast.expr, module: types.ModuleType) -> bool:
    """Is a call a step that nothing has come to, so that the object is not known?

    A name is looked up in its module.  What is called on some value may be any method of that name, of our own classes
    and of `SOURCES`; one that none of them has is a step.

    Args:
        callee: as it stands in the code.
        module: in which it stands.
    """
    found = lookup(callee, module)
    if found is not None:
        return is_step(found, module.__name__)
    name = callee.attr if isinstance(callee, ast.Attribute) else ast.unparse(callee)
    methods = [getattr(one, name) for one in SOURCES if hasattr(one, name)]
    methods += [vars(one)[name] for one in _classes() if name in vars(one)]
    return not methods or any(is_step(one, module.__name__) for one in methods)


def lookup(callee: ast.expr, module: types.ModuleType) -> t.Any:
    """What a name stands for in a module, or an attribute of a module or class; None: of something else."""
    if isinstance(callee, ast.Name):
        return vars(module).get(callee.id, vars(builtins).get(callee.id))
    if isinstance(callee, ast.Attribute):
        above = lookup(callee.value, module)
        if isinstance(above, types.ModuleType | type):
            return getattr(above, callee.attr, None)
        if isinstance(callee.value, ast.JoinedStr):
            return getattr(str, callee.attr)
    return None


@functools.cache
def _classes() -> list[type]:
    """All of our own that were imported."""
    modules = [one for name, one in list(sys.modules.items()) if name.startswith(OURS) and one is not None]
    return list({
        value: None for one in modules for value in vars(one).values()
        if isinstance(value, type) and value.__module__ == one.__name__
    })  # fmt: skip
