# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A contract that import-linter does not have: of several packages a module imports one, or stands where they meet."""

from __future__ import annotations

import typing as t

from importlinter import Contract, ContractCheck, fields, output

if t.TYPE_CHECKING:
    from grimp import ImportGraph


class MeetingPoint(Contract):
    """A module may import directly out of one of the parts, except in the package where they meet.

    Imports inside functions and for types alone count; modules of the parts themselves do not.

    Attributes:
        parts: packages.
        meeting_point: the package that may import from several of them.
    """

    type_name = "meeting_point"
    parts: t.Any = fields.ListField(subfield=fields.StringField())
    meeting_point: t.Any = fields.StringField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find the modules that import from several parts.

        Args:
            graph: of all imports.
            verbose: is not used.
        """
        for name in (*self.parts, self.meeting_point):
            if name not in graph.modules:
                raise ValueError(f"contract {self.name!r}: there is no package {name}")
        exempt = {name for package in (*self.parts, self.meeting_point) for name in _package(graph, package)}
        joining = {}
        for module in sorted(graph.modules - exempt):
            imported = graph.find_modules_directly_imported_by(module)
            found = {part: sorted(imported & _package(graph, part)) for part in self.parts}
            if sum(map(bool, found.values())) > 1:
                joining[module] = [name for names in found.values() for name in names]
        return ContractCheck(kept=not joining, metadata={"joining": joining})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each module that imports from several parts, with what it imports.

        Args:
            check: what was found.
        """
        for module, imported in check.metadata["joining"].items():
            output.print_error(f"{module} imports")
            for name in imported:
                output.print_error(f"- {name}", bold=False)
        output.new_line()
        output.print_error(f"move what joins them into {self.meeting_point}", bold=False)


def _package(graph: ImportGraph, name: str) -> set[str]:
    return {name, *graph.find_descendants(name)}
