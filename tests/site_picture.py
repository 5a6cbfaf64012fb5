# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw the pictures of docs/admin/site-report.md anew: the page of a made-up week, in Chromium.

usage: PYTHONPATH=build/import build/venv/bin/python tests/site_picture.py [--digest]

Each picture has the digest of the page of which it was drawn; tests/unit/test_pictures.py compares it with that of the
page as the product writes it now, which `--digest` prints.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import struct
import sys
import tempfile
import time
import zlib

os.environ["TZ"] = "UTC"  # the page has moments in the time of its host
time.tzset()

# pylint: disable=wrong-import-position
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr.site_report import facts, page  # noqa: E402
from ansible_collections.mikelangelo.vtorque.tests import made_up_week  # noqa: E402
from ansible_collections.mikelangelo.vtorque.tests.browser import browser  # noqa: E402

PICTURES = {
    "site-report": (1000, False, 0, 1180),
    "site-report-jobs": (1000, False, 1255, 960),
    "site-report-phone": (400, True, 0, 1100),
}
"""Width, darkness, top and height of each."""
STATIC = pathlib.Path(__file__).resolve().parents[1] / "docs/_static"
KEYWORD = b"Source"
HEADER = 8 + 25
"""Bytes of a PNG before its second chunk: the signature, and IHDR."""


def render() -> str:
    """Return the page of the week."""
    return page.render_page(facts.collect(made_up_week.sources()), None)


def digest_of(text: str) -> str:
    """Return the digest of a page."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_digest(picture: pathlib.Path, digest: str) -> None:
    """Put the digest of its page into a picture (https://www.w3.org/TR/png-3/#11tEXt)."""
    data = picture.read_bytes()
    chunk = b"tEXt" + KEYWORD + b"\0" + digest.encode()
    whole = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    picture.write_bytes(data[:HEADER] + whole + data[HEADER:])


def read_digest(picture: pathlib.Path) -> str:
    """Return the digest in a picture; "": it has none."""
    data = picture.read_bytes()[HEADER:]
    (length,) = struct.unpack(">I", data[:4])
    name = b"tEXt" + KEYWORD + b"\0"
    return data[4 + len(name) : 8 + length].decode() if data[4:].startswith(name) else ""


def main() -> None:
    """Draw them."""
    text = render()
    if sys.argv[1:] == ["--digest"]:
        print(digest_of(text))
        return
    with tempfile.TemporaryDirectory() as place, browser() as opened:
        path = pathlib.Path(place) / "index.html"
        path.write_text(text, encoding="utf-8")
        for name, (width, dark, top, height) in PICTURES.items():
            picture = STATIC / f"{name}.png"
            opened.open(path, width=width, dark=dark, picture=picture, top=top, height=height)
            write_digest(picture, digest_of(text))


if __name__ == "__main__":
    main()
