# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in for a guest of OSv: its programs, compiled from C on this machine."""

from __future__ import annotations

import pathlib

from .kernel import run

HERE = pathlib.Path(__file__).parent
LAUNCHER = HERE.parents[1] / "templates/osv/launcher.c"
"""The collection's own, as an image of OSv has it."""
PROGRAMS = {
    "usr/bin/osv-stand-in": (HERE / "osv_stand_in.c", ()),
    "usr/lib/vtorque-launcher.so": (LAUNCHER, ("-fPIC", "-shared")),
    "usr/lib/osv-program.so": (HERE / "osv_program.c", ("-fPIC", "-shared")),
}
"""By their places in the guest."""


def compile_all(directory: pathlib.Path) -> None:
    """Compile everything.

    Args:
        directory: gets it, by the names that it has in the guest; it is made.

    Raises:
        LabError: there is no compiler, or something does not compile.
    """
    directory.mkdir(parents=True)
    for place, (source, options) in PROGRAMS.items():
        target = directory / pathlib.Path(place).name
        run("/usr/bin/cc", "-O2", "-Wall", "-Wextra", "-Werror", *options, "-o", str(target), str(source), "-ldl")


def parts(directory: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
    """What was compiled, and where the guest has it."""
    return [(directory / pathlib.Path(place).name, place) for place in PROGRAMS]
