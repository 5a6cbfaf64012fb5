# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line and the script together, as qsub takes them."""

from __future__ import annotations

import dataclasses
import typing as t

from .....frozen import frozen
from ....request.command_call import COMMAND_LINE
from .arguments import Arguments
from .directives import Script


@frozen
class Options:
    """The command line and the script together: the command line wins, as it does for qsub."""

    arguments: Arguments
    script: Script

    def last(self, name: str) -> tuple[str, str] | None:
        """The value that counts of an option, and where it stands."""
        if self.arguments.all(name):
            return self.arguments.last(name) or "", COMMAND_LINE
        return self.script.last(name)

    def every(self, name: str) -> t.Iterator[tuple[str, str]]:
        """Every value of an option, with where it stands."""
        for directive in self.script.directives:
            for option in directive.arguments.all(name):
                yield option.value or "", self.script.origin(directive)
        for option in self.arguments.all(name):
            yield option.value or "", COMMAND_LINE

    def resource(self, name: str) -> tuple[str, str] | None:
        """What `-l` asks for of a resource, and where it stands."""
        own = self.arguments.resources()
        if name in own:
            return own[name], COMMAND_LINE
        for directive in reversed(self.script.directives):
            found = directive.arguments.resources()
            if name in found:
                return found[name], self.script.origin(directive)
        return None

    def raised(self, name: str, value: str) -> Options:
        """Return the options with another value of a resource on the command line."""
        return dataclasses.replace(self, arguments=self.arguments.with_resource(name, value))
