# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts what is really tried, and ends what hangs.

An input counts when the test came to its end with it; what a strategy or an assumption threw away does not.
"""

from __future__ import annotations

import functools
import signal
import typing as t

import pytest

from .inputs import CASES

LONGEST_S = 300
"""One input that takes longer is a hang, whatever else the machine does: they take milliseconds."""
TRIED = "random inputs tried"


def is_random(item: pytest.Item) -> bool:
    """Is it a test of hypothesis?"""
    return hasattr(getattr(item, "obj", None), "hypothesis")


def _hangs(_number: int, _frame: object) -> t.NoReturn:
    raise AssertionError(f"hangs: more than {LONGEST_S} s for one input")


class Count:
    """Counts the calls of a test's inner function that come to their end."""

    def __init__(self) -> None:
        self.tried = 0

    def around(self, inner: t.Callable[..., None]) -> t.Callable[..., None]:
        """The function, counted, and with an end."""

        @functools.wraps(inner)
        def one(*values: object, **named: object) -> None:
            signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
            try:
                inner(*values, **named)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            self.tried += 1

        return one


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> t.Generator[None, object, object]:
    """Go round as often as the test's share of all inputs demands."""
    if not is_random(pyfuncitem):
        return (yield)
    handle, former, count = pyfuncitem.obj.hypothesis, signal.signal(signal.SIGALRM, _hangs), Count()
    inner, handle.inner_test = handle.inner_test, count.around(handle.inner_test)
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    share = -(-CASES // sum(map(is_random, pyfuncitem.session.items)))
    try:
        result = yield
        while count.tried < share:
            before = count.tried
            pyfuncitem.obj(**arguments)
            assert count.tried > before, "there is no other input"
        return result
    finally:
        handle.inner_test = inner
        signal.signal(signal.SIGALRM, former)
        pyfuncitem.user_properties.append((TRIED, count.tried))


class Sum:
    """Adds up what the tests say, those of other processes too."""

    def __init__(self) -> None:
        self.by_test: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What one test tried."""
        if report.when == "teardown":
            self.by_test[report.nodeid] = t.cast(int, dict(report.user_properties).get(TRIED, 0))

    @property
    def all(self) -> int:
        """Of all tests together."""
        return sum(self.by_test.values())

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fewer than were wanted are a failure, whatever the reason."""
        if self.all < CASES and not hasattr(session.config, "workerinput"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """How many that were, in the last lines."""
        if CASES:
            for test, number in sorted((test, number) for test, number in self.by_test.items() if number):
                terminalreporter.write_line(f"{number:9}  {test.rpartition('/')[2]}")
            lack = "" if self.all >= CASES else f", and {CASES} were wanted"
            terminalreporter.write_line(f"{self.all} {TRIED}, by {sum(map(bool, self.by_test.values()))} tests{lack}")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to add up."""
    config.pluginmanager.register(Sum())
