# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What similar tools use and stumble over, and the product does without: none of its files speaks of it.

Seen to fail: with a word of each among the files (the last test here).
"""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PRODUCT = ("plugins", "roles", "templates", "playbooks")
WITHOUT = {
    "a hook of libvirt's": r"libvirt/hooks",
    "pools and volumes of libvirt's": r"storage(Pool|Vol)|\b(pool|vol)-(create|define|start|refresh|upload|list)\b|"
    r"<source pool=|\.storage_pool\b|community\.libvirt\.virt_pool",
    "qemu's guest agent": r"qemu[-_](guest[-_]agent|ga)\b|guest-exec|org\.qemu\.guest_agent",
    "a data base of measurements": r"influx|grafana",
    "a user of a known password": r"admin:admin|admin/admin",
}
"""What it is, and how one would see it."""


def found(place: pathlib.Path, pattern: str) -> list[str]:
    """The files below a place that hold this, in any case of letters."""
    wanted = re.compile(pattern, re.IGNORECASE)
    files = [file for top in PRODUCT for file in sorted((place / top).rglob("*")) if file.is_file()]
    texts = ((file, file.read_text(encoding="utf-8", errors="replace")) for file in files if file.suffix != ".pyc")
    return [str(file.relative_to(place)) for file, text in texts if wanted.search(text)]


@pytest.mark.parametrize("what", WITHOUT)
def test_the_product_does_without(what: str) -> None:
    assert found(ROOT, WITHOUT[what]) == []


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a hook of libvirt's", "dest: /etc/libvirt/hooks/qemu"),
        ("pools and volumes of libvirt's", "conn.storagePoolLookupByName('default')"),
        ("pools and volumes of libvirt's", "virsh vol-create-as default x 1G"),
        ("qemu's guest agent", 'virsh qemu-agent-command x \'{"execute": "guest-exec"}\''),
        ("a data base of measurements", "InfluxDBClient(host)"),
        ("a user of a known password", "curl -u admin:admin"),
    ],
)
def test_forbidden_tool_would_be_found(tmp_path: pathlib.Path, what: str, text: str) -> None:
    for top in PRODUCT:
        (tmp_path / top).mkdir()
    (tmp_path / "plugins/one.py").write_text(text, encoding="utf-8")
    assert found(tmp_path, WITHOUT[what]) == ["plugins/one.py"]
