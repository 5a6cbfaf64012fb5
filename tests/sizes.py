# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a reader of the sources may stumble over: long files, crowded packages, and small modules with one importer.

sizes.py    prints a line for each; it fails nothing, since a limit becomes a target that shapes the code
"""

from __future__ import annotations

import ast
import collections
import pathlib
import typing as t

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
PARTS = ("plugins", "lab")
MANY_LINES = 600
MANY_MODULES = 20
FEW_LINES = 60


def main() -> None:
    """Print the report."""
    for part in PARTS:
        files = {path: path.read_text(encoding="utf-8") for path in sorted((CHECKOUT / part).rglob("*.py"))}
        for line in (*long_files(files), *crowded_packages(files), *small_modules(files)):
            print(f"sizes: {line}")


def long_files(files: t.Mapping[pathlib.Path, str]) -> t.Iterator[str]:
    """Yield a line for each file of more than `MANY_LINES`."""
    for path, text in files.items():
        if (lines := text.count("\n")) > MANY_LINES:
            yield f"{_name(path)} has {lines} lines"


def crowded_packages(files: t.Iterable[pathlib.Path]) -> t.Iterator[str]:
    """Yield a line for each package of more than `MANY_MODULES`."""
    modules = collections.Counter(path.parent for path in files if path.name != "__init__.py")
    for package, count in modules.items():
        if count > MANY_MODULES:
            yield f"{_name(package)} has {count} modules"


def small_modules(files: t.Mapping[pathlib.Path, str]) -> t.Iterator[str]:
    """Yield a line for each module below `FEW_LINES` that one other module of the part imports."""
    importers = collections.defaultdict(set)
    for path, text in files.items():
        for imported in _imported(path, ast.parse(text)):
            importers[imported].add(path)
    for path, text in files.items():
        used_by = importers[path]
        if path.name != "__init__.py" and text.count("\n") < FEW_LINES and len(used_by) == 1:
            yield f"{_name(path)} has {text.count(chr(10))} lines, and is used by {_name(*used_by)} alone"


def _imported(path: pathlib.Path, tree: ast.AST) -> t.Iterator[pathlib.Path]:
    """Yield the files of the modules that relative imports of a file name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            package = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            yield package.with_suffix(".py")
            yield from (package / f"{name.name}.py" for name in node.names)


def _name(path: pathlib.Path) -> str:
    return str(path.relative_to(CHECKOUT) if path.is_relative_to(CHECKOUT) else path)


if __name__ == "__main__":
    main()
