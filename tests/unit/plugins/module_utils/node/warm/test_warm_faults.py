# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fault before and after each step of a start from a template: nothing is left, and the template serves the next.

Steps are found as the fault suite finds them (`tests/e2e/faults/step_rules.py`), in the modules of `WALKED`; the
hypervisor is the test's, which keeps its guests in files, so that a killed process leaves them as libvirt's would.
It has been seen to fail: without `self._domains.destroy` in `WarmStarts.give_up` a guest ran twice.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import errno
import os
import pathlib
import signal
import traceback
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle import present_absent
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.lifecycle.creation import warm_starts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import start, template

from tests.e2e.faults import step_rules, strike

from ..conftest import JOB, Node
from .template_node import GUEST, TemplateNode

WALKED = {"start": start, "warm_starts": warm_starts}
"""In the order in which they import each other."""
CHILD_S = 60


class Steps:
    """The steps that a start comes to, one of which fails."""

    def __init__(self) -> None:
        self.reached: list[tuple[str, str]] = []
        self._at = ("", "")
        self._act: t.Callable[[], None] = lambda: None

    def arm(self, at: tuple[str, str], act: t.Callable[[], None]) -> None:
        self._at, self._act = at, act

    def of(self, home: str) -> t.Callable[[str, t.Any], t.Any]:
        def cell(place: str, callee: t.Any) -> t.Any:
            return step_rules.with_faults(callee, home, lambda when: self._come((place, when)))

        return cell

    def _come(self, at: tuple[str, str]) -> None:
        self.reached.append(at)
        if at == self._at:
            self._act()


@contextlib.contextmanager
def walked() -> t.Iterator[Steps]:
    """The modules, compiled so that each of their calls may fail."""
    steps = Steps()
    former = {name: dict(vars(module)) for name, module in WALKED.items()}
    try:
        for name, module in WALKED.items():
            tree = strike.Wrapper(name).visit(ast.parse(pathlib.Path(str(module.__file__)).read_text()))
            vars(module)[step_rules.CELL] = steps.of(module.__name__)
            exec(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec"), vars(module))
            _keep_classes(module, former[name])
        yield steps
    finally:
        for name, module in WALKED.items():
            vars(module).clear()
            vars(module).update(former[name])


def _keep_classes(module: types.ModuleType, former: dict[str, t.Any]) -> None:
    """Errors and records are those that other modules know: only what is done with them is walked."""
    for name, value in former.items():
        known = isinstance(value, type) and value.__module__ == module.__name__
        if known and (issubclass(value, BaseException) or dataclasses.is_dataclass(value)):
            vars(module)[name] = value


def _disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Starts:
    """Starts of one job, of which each has its number once.

    Args:
        warm: the node, which has a template.
    """

    def __init__(self, warm: TemplateNode) -> None:
        self.warm = warm
        self.made = warm.make_template()
        self.number = 0

    def present(self) -> str:
        """What the record says of the next start."""
        self.number += 1
        (facts,) = self.warm.node.present(dataclasses.replace(self.warm.part(), start=self.number))
        return facts.warm

    def points(self) -> list[tuple[str, str]]:
        """What a start comes to that nothing hinders; its guest is gone again."""
        with walked() as steps:
            assert self.present() == "yes"
            found = list(dict.fromkeys(steps.reached))
        self.warm.node.absent(self.number)
        return found

    def end(self) -> None:
        """After the removal nothing of the job is left, and the template is as it was."""
        settings = self.warm.node.settings
        self.warm.node.absent(self.number)
        assert self.warm.hypervisor.running == {}
        assert not settings.start_dir(JOB, self.number).exists()
        assert present_absent.describe_leftovers(settings, JOB) == ()
        # two failures in a row are the template's, and here they are the test's
        (self.made.place / template.FAILED).unlink(missing_ok=True)
        assert template.find(self.made.record.key, settings) == self.made


@pytest.fixture
def starts(node: Node, monkeypatch: pytest.MonkeyPatch) -> Starts:
    return Starts(TemplateNode(node, monkeypatch))


def test_start_whose_step_fails_boots_or_undoes_all(starts: Starts) -> None:
    tried = starts.points()
    assert {place.partition(".")[0] for place, _when in tried} == set(WALKED)
    for at in tried:
        with walked() as steps:
            steps.arm(at, _disk_full)
            # an error that is not the template's ends the start, and the removal has the rest
            with contextlib.suppress(VTorqueError, OSError):
                how = starts.present()
                assert how == "yes" or how.startswith("no, because "), at
                assert list(starts.warm.hypervisor.running) == [GUEST], at
            assert at in steps.reached
        starts.end()
    assert starts.present() == "yes"


def test_start_that_is_killed_at_a_step_leaves_nothing_that_the_removal_does_not_find(starts: Starts) -> None:
    for at in starts.points():
        starts.number += 1
        child = os.fork()
        if child == 0:
            signal.alarm(CHILD_S)
            starts.number -= 1
            try:
                with walked() as steps:
                    steps.arm(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
                    starts.present()
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        _pid, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), at
        assert os.WTERMSIG(status) == signal.SIGKILL, at
        starts.end()
    assert starts.present() == "yes"
