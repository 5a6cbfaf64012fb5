# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a suite is made of, and how much it tried.

    tried.py names PAGES WHERE    the tests below WHERE that the pages in this directory name, as pytest takes them
    tried.py count WHAT REPORT...    one line: how many of WHAT the tests of these reports (pytest --junitxml) tried

A test that says what it tries (the property `tried`) counts as often as it says so, any other once.
"""

from __future__ import annotations

import pathlib
import re
import sys
import xml.etree.ElementTree as ET

A_TEST = re.compile(r"`((?:tests|lab)/\S+\.py::[^`\s]+)`")


def names(page: str, where: str) -> list[str]:
    """Return each test of the text once, in its order."""
    return list(dict.fromkeys(name for name in A_TEST.findall(page) if name.startswith(where)))


def count(what: str, reports: list[str]) -> tuple[str, bool]:
    """The line, and whether all that was tried came to nothing."""
    tests = tried = failed = skipped = 0
    for report in reports:
        for case in ET.fromstring(report).iter("testcase"):
            if case.find("skipped") is not None:
                skipped += 1
                continue
            tests += 1
            tried += sum(one.get("name") == "tried" for one in case.iter("property")) or 1
            failed += case.find("failure") is not None or case.find("error") is not None
    line = f"{tried} {what} tried by {tests} tests, of which {failed} failed"
    return line + (f"; {skipped} were skipped" if skipped else ""), tests > 0 and not failed


def main(arguments: list[str]) -> int:
    """The command; its status."""
    if arguments[:1] == ["names"] and len(arguments) == 3:
        pages = sorted(pathlib.Path(arguments[1]).glob("*.md"))
        found = names("".join(page.read_text(encoding="utf-8") for page in pages), arguments[2])
        print("\n".join(found))
        return 0 if found else 1
    if arguments[:1] == ["count"] and len(arguments) > 2:
        line, well = count(arguments[1], [pathlib.Path(path).read_text(encoding="utf-8") for path in arguments[2:]])
        print(line)
        return 0 if well else 1
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
