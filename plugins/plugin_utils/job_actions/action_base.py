# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the job's action plugins share: checked arguments, check mode, diff, and one way to fail.

An action plugin runs inside the Ansible process on the mother superior: 0.02 s instead of the 0.2 s of a module.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import pathlib
import re
import time
import typing as t

from ansible.plugins.action import ActionBase

from ...module_utils.effects import leaves_nothing
from ...module_utils.errors import VTorqueError
from ...module_utils.frozen import frozen
from ...module_utils.state import layout
from ...module_utils.state.phases import write_phase
from ...module_utils.system import files
from ...module_utils.wire.messages import HOST_NAME

JOB_SPEC: dict[str, t.Any] = {
    "job_id": {"type": "str", "required": True},
    "start": {"type": "int", "required": True},
    "run_dir": {"type": "path"},
}


@frozen
class Outcome:
    """What an action did, or would do in check mode.

    Attributes:
        before: what was there, for the diff; holds no secrets.
        after: what is there now, or would be; holds no secrets.
        facts: further results for the playbook: safe tokens and numbers only.
    """

    changed: bool
    before: t.Any = None
    after: t.Any = None
    # pylint: disable=invalid-field-call  # it knows the library's own decorator alone
    facts: dict[str, t.Any] = dataclasses.field(default_factory=dict)


@frozen
class JobPlace:
    """One start of a job, and where root keeps what belongs to it."""

    job_id: str
    start: int
    run_dir: pathlib.Path

    @property
    def key(self) -> str:
        """`<job>.<start>`, as every directory of this start is called."""
        return layout.job_key(self.job_id, self.start)

    @property
    def root(self) -> pathlib.Path:
        """What `state.layout.RUN_DIR` is for this directory."""
        return self.run_dir.parents[1]

    @leaves_nothing
    def file(self, name: str) -> pathlib.Path:
        """A file in the run directory."""
        return self.run_dir / name

    @classmethod
    def of(cls, args: dict[str, t.Any]) -> JobPlace:
        """The place that the arguments of a task name.

        Raises:
            VTorqueError: the job id has no such form, or the directory belongs to something else.
        """
        key = layout.job_key(args["job_id"], args["start"])
        given = args.get("run_dir")
        run_dir = pathlib.Path(given) if given else layout.run_directory(args["job_id"], args["start"])
        if run_dir.name != key:
            raise VTorqueError(f"run_dir={run_dir}", f"the directory of this start is called {key}")
        return cls(args["job_id"], args["start"], run_dir)


class JobAction(ActionBase, metaclass=abc.ABCMeta):
    """Base of the job's actions: a subclass gives `SPEC` and `act`, and raises `VTorqueError`."""

    SPEC: t.ClassVar[dict[str, t.Any]] = {}
    _supports_check_mode = True
    _supports_async = False
    _requires_connection = False

    @abc.abstractmethod
    def act(self, place: JobPlace, args: dict[str, t.Any], host: str) -> Outcome:
        """Do the work for `host`, or, in check mode, find out what would be done.

        Args:
            place: the start of the job.
            args: the checked arguments of the task.
            host: the inventory host.

        Returns:
            What changed, or would change.

        Raises:
            VTorqueError: it was not done.
        """

    @property
    def checking(self) -> bool:
        """Whether this is check mode."""
        return bool(self._task.check_mode)

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Check the arguments, act, and turn the outcome or the error into a result.

        Args:
            tmp: not used, as Ansible has it.
            task_vars: holds the name of the inventory host.

        Returns:
            A result of Ansible; a `VTorqueError` is a failed one.
        """
        result = super().run(tmp, task_vars)
        checked, _all_args = self.validate_argument_spec({**JOB_SPEC, **self.SPEC})
        args = checked.validated_parameters
        host = str((task_vars or {}).get("inventory_hostname", "localhost"))
        place = None
        try:
            if not re.fullmatch(HOST_NAME, host):
                raise VTorqueError(f"host {host[:80]!r}", "not of the form of a host name")
            place = JobPlace.of(args)
            outcome = self.act(place, args, host)
        except VTorqueError as error:
            if place is not None and not self.checking:
                leave_error(place, host, error)
            result.update(failed=True, msg=str(error), fault=error.fault)
            return result
        result.update(outcome.facts, changed=outcome.changed)
        if self._task.diff:
            result["diff"] = {"before": outcome.before, "after": outcome.after}
        return result


def write_record(path: pathlib.Path, data: dict[str, t.Any], *, reader_uid: int | None = None) -> None:
    """Write a mapping as a record of root's (`system.files.write`)."""
    files.write(path, json.dumps(data, ensure_ascii=True), reader_uid=reader_uid)


def leave_error(place: JobPlace, host: str, error: VTorqueError) -> None:
    """Leave the error where the hook looks for it.

    Each host's own error is kept (`error.<host>.json`); `error.json` is the one that decides, which comes first.
    """
    content = {**error.to_dict(), "host": getattr(error, "node", "") or host}
    with contextlib.suppress(OSError, VTorqueError):  # the task fails anyway; a full /run must not hide why
        for path in (place.file(layout.StepFile.ERROR.of(host)), place.file(layout.ERROR)):
            if not path.exists():
                write_record(path, content)


@contextlib.contextmanager
def phase(place: JobPlace, name: str, *, when: bool = True) -> t.Iterator[None]:
    """Measure a phase and write its figure for the job's record (`phase.<name>.json`).

    Args:
        when: false in check mode, in which nothing is written.
    """
    began, tick = time.time(), time.monotonic()
    yield
    if when:
        write_phase(place.run_dir, name, began=began, seconds=time.monotonic() - tick)
