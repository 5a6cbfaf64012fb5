# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mother superior's own guests go while Ansible loads, which takes half a second.

The playbook is the same: it asks all nodes, and finds this node's answer there already.  What fails here is left to the
playbook, which meets the same fault and tells it.
"""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

from ...module_utils.effects import leaves_nothing
from ...module_utils.system.process.environment import ROOT_ENVIRONMENT
from ...module_utils.time_budget import EARLY_NODE_END_S
from . import mark, node_socket, spawn
from .node_socket import EarlyNode
from .preloaded import PreloadedRunner

if t.TYPE_CHECKING:
    from ...module_utils.wire.messages import NodePart


class EarlyRemoval:
    """What an epilogue begins before the site's configuration is read; a context manager.

    Args:
        command: the call of `vtorque-node`.
        runner: runs the playbook, and may load before.
        place: the file by which an earlier hook lets this one begin early (`mark`).
        config: the site's configuration, which that file names.
    """

    @leaves_nothing
    def __init__(
        self, command: t.Sequence[str], runner: PreloadedRunner, *, place: pathlib.Path, config: pathlib.Path
    ) -> None:
        self._command = command
        self._runner = runner
        self._place = place
        self._config = config
        self._program: spawn.EarlyProgram | None = None
        self._node: EarlyNode | None = None

    def begin(self) -> EarlyNode | None:
        """Let load this node's program, and Ansible, which inherits the way to its answer.

        Returns:
            That way; None: nothing begins early.
        """
        if not (self._runner.ready_to_begin() and mark.allows(self._place, self._config)):
            return None
        self._program = spawn.begin((*self._command, mark.EARLY_REMOVAL), ROOT_ENVIRONMENT)
        if self._program is not None:
            self._node = EarlyNode(self._program.socket, self._program.complaint)
            inherited = (self._node.socket, self._node.complaint)
            self._runner.begin({node_socket.VARIABLE: self._node.variable}, inherited, idle=False)
        return self._node

    def go(self, part: NodePart, *, directory: pathlib.Path, until: float) -> None:
        """Ask this node to remove its guests, where it and Ansible load already.

        Args:
            part: what the playbook will ask of this node.
            directory: the run directory of the start.
            until: when the playbook is ended, in seconds of the monotonic clock.

        Raises:
            VTorqueError: it was asked, and that was not written down.
        """
        if self._node is not None and self._runner.loading:
            with contextlib.suppress(OSError):  # it has ended, and the playbook begins another
                self._node.request(part, directory=directory, until=until)

    def end(self) -> None:
        """End what has begun and was asked nothing; done again it does nothing."""
        self._runner.end()
        node, self._node = self._node, None
        if node is not None:
            node.close()

    def __enter__(self) -> EarlyRemoval:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()  # Ansible first, which keeps the program from noticing that nobody will ask it
        if self._program is not None:
            self._program.wait(EARLY_NODE_END_S)  # one that still removes goes on, under the lock of the start
