# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that repeat a table or a parser of the product, made out of it: `make generated`.

A file may have text of its own above a mark, and below the mark of the end; what is between them is made here.
"""

from __future__ import annotations

import functools
import pathlib
import sys
import typing as t

from ansible_collections.mikelangelo.vtorque.tests.texts import (
    commands,
    drawings,
    holes,
    man,
    parameters,
    support,
    time_budget,
    wire,
)

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
MARK = "below: made by `make generated` out of the table of parameters"
KEYS_MARK = "<!-- below: made by `make generated` out of the table of keys -->\n\n"
VERBS_MARK = "<!-- below: made by `make generated` out of vmgr's own parser -->\n\n"
FORMATS_MARK = "<!-- below: made by `make generated` out of the classes and constants themselves -->\n\n"
TIMES_MARK = "<!-- below: made by `make generated` out of module_utils/time_budget.py -->\n\n"
SUPPORT_MARK = "<!-- below: made by `make generated` out of tests/texts/support.yml -->\n\n"
HOLES_MARK = "<!-- below: made by `make generated` out of tests/texts/holes.yml -->\n\n"
END = "<!-- above: made -->\n"
"""From here on a file has text of its own again."""

FILES: dict[str, tuple[str, t.Callable[[], str]]] = {
    "README.md": (SUPPORT_MARK, support.versions),
    "docs/admin/requirements.md": (SUPPORT_MARK, support.runs),
    "roles/common/meta/argument_specs.yml": (f"      # {MARK}\n", parameters.options),
    "docs/admin/parameters.md": (f"<!-- {MARK} -->\n\n", parameters.page),
    "docs/user/keys.md": (KEYS_MARK, commands.keys_table),
    "docs/man/vsub.1.md": (KEYS_MARK, commands.keys),
    "docs/man/vmgr.1.md": (VERBS_MARK, commands.verbs),
    "docs/man/vtorque.yml.5.md": (f"<!-- {MARK} -->\n\n", parameters.manual),
    "docs/developer/wire-formats.md": (FORMATS_MARK, wire.page),
    "docs/developer/time-budget.md": (TIMES_MARK, time_budget.page),
    "docs/security/holes.md": (HOLES_MARK, holes.index),
    "docs/_static/job-report.svg": ("", drawings.job_report),
    **{f"docs/security/{name}.md": ("", functools.partial(holes.page, name)) for name in holes.areas()},
    # after those of which they are made
    **{
        f"docs/man/{name}": ("", functools.partial(man.page, name))
        for name in ("vsub.1", "vmgr.1", "vtorque.yml.5", "vtorque-sweep.8", "vtorque-cache.8")
    },
}
"""By path: the mark, and what makes the text below it; without a mark the whole file is made."""


def wanted(path: str) -> str:
    """The whole text that a file must have."""
    mark, make = FILES[path]
    if not mark:
        return make()
    own, found, below = (CHECKOUT / path).read_text(encoding="utf-8").partition(mark)
    if not found:
        raise SystemExit(f"{path} has lost its mark: {mark.strip()}")
    _made, end, rest = below.partition(END)
    return own + mark + make() + end + rest


def main() -> int:
    """Write what is stale."""
    for path in FILES:
        text = wanted(path)
        file = CHECKOUT / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(f"made {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
