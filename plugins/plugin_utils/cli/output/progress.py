# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a command is, where somebody looks: a line on standard error that is gone when it ends."""

from __future__ import annotations

import contextlib
import sys
import typing as t

from ....module_utils.slow_libraries import load_library

Advance = t.Callable[[str], None]
"""One more is done; what is being waited for."""


@contextlib.contextmanager
def counted(what: str, total: int, *, wanted: bool = True) -> t.Iterator[Advance]:
    """Count what is done.

    Args:
        what: is being done.
        total: how many there are.
        wanted: False: show nothing.

    Yields:
        Called when one more is done.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda _words: None
        return
    rich = load_library("rich.progress")
    with _bar(what, rich.MofNCompleteColumn(), rich.TextColumn("{task.description}")) as progress:
        task = progress.add_task("", total=total)
        yield lambda text: progress.update(task, advance=1, description=text)


@contextlib.contextmanager
def copied(what: str, total_bytes: int, *, wanted: bool = True) -> t.Iterator[t.Callable[[int], None]]:
    """Count bytes, with their rate and the time that is left.

    Args:
        what: is being done.
        total_bytes: how many there are.
        wanted: False: show nothing.

    Yields:
        Called with how many more are done.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda _count: None
        return
    rich = load_library("rich.progress")
    columns = (rich.DownloadColumn(), rich.TransferSpeedColumn(), rich.TimeRemainingColumn())
    with _bar(what, *columns) as progress:
        task = progress.add_task("", total=total_bytes)
        yield lambda count: progress.update(task, advance=count)


@contextlib.contextmanager
def waiting(*, wanted: bool = True) -> t.Iterator[t.Callable[[str], None]]:
    """Say what is being waited for, as it changes.

    Args:
        wanted: False: show nothing.

    Yields:
        Called with the words.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda _words: None
        return
    make_text = load_library("rich.text").Text
    with _console().status("") as status:
        yield lambda text: status.update(make_text(text))


def _bar(what: str, *columns: t.Any) -> t.Any:
    """Return a `rich.progress.Progress`: a text, a bar, and these columns."""
    rich = load_library("rich.progress")
    return rich.Progress(rich.TextColumn(what), rich.BarColumn(), *columns, console=_console(), transient=True)


def _console() -> t.Any:
    return load_library("rich.console").Console(stderr=True)
