# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proves that an installed collection is whole: its templates are found, from any directory, by the one resolver.

usage: python -I installed.py DIRECTORY   (which holds ansible_collections/)
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, sys.argv[1])

from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates


def main() -> None:
    """Render one template, and compile them all."""
    here = pathlib.Path(sys.argv[1]).resolve() / "ansible_collections" / "mikelangelo" / "vtorque"
    if here / "templates" != templates.COLLECTION_DIR:
        sys.exit(f"templates are taken from {templates.COLLECTION_DIR}, not from {here}")
    text = templates.render("ansible.cfg.j2", site_dir=None, prefix="/opt/somewhere")
    if "/opt/somewhere/venv/bin/python" not in text:
        sys.exit("ansible.cfg.j2 does not use what it was given")
    try:
        templates.render("no-such.j2", site_dir=None)
    except SiteFault:
        pass
    else:
        sys.exit("a template that is missing is no error")
    import jinja2

    names = sorted(path.relative_to(templates.COLLECTION_DIR) for path in templates.COLLECTION_DIR.rglob("*.j2"))
    environment = jinja2.Environment(autoescape=True)
    for name in names:
        environment.parse((templates.COLLECTION_DIR / name).read_text(encoding="utf-8"), str(name))
    print(f"{len(names)} templates in {templates.COLLECTION_DIR}")


if __name__ == "__main__":
    main()
