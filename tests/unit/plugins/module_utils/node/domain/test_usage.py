# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests used, from libvirt's figures and the kernel's."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain import usage
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.system import process_figures
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.state import layout
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.form import FormError, from_dict, to_dict
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.node_answers import GuestUse

TOLD = {
    "cpu.process": 1_234_567_890, "block.count": 2, "block.0.rd.reqs": 9, "block.0.rd.bytes": 100,
    "block.0.wr.bytes": 20, "block.1.rd.bytes": 11, "block.1.wr.bytes": 0, "net.count": 1, "net.0.rx.bytes": 1000,
    "net.0.tx.bytes": 2000, "net.0.rx.pkts": 5,
}  # fmt: skip

PROCESS = process_figures.ProcessFigures(cpu_s=9.0, wait_s=0.5, memory_bytes=1024, peak_bytes=4096)


def test_figures_of_all_disks_and_interfaces_are_added_up() -> None:
    assert usage.use_of("vcn1-1", TOLD, PROCESS) == GuestUse("vcn1-1", 1.235, 4096, 111, 20, 1000, 2000, 0.5)


def test_usage_that_libvirt_lacks_is_unknown() -> None:
    nothing = usage.use_of("vcn1-1", {})
    assert nothing.known() == {}
    assert from_dict(GuestUse, to_dict(nothing)) == nothing


@pytest.mark.parametrize(
    "change",
    [{"name": "a/b"}, {"cpu_s": "1"}, {"cpu_s": float("inf")}, {"read_bytes": -2}, {"read_bytes": 2**63},
     {"sent_bytes": 1.5}, {"sent_bytes": True}, {"more": 1}],
)  # fmt: skip
def test_form_is_strict(change: dict[str, object]) -> None:
    good = to_dict(usage.use_of("vcn1-1", TOLD, PROCESS))
    with pytest.raises(FormError):
        from_dict(GuestUse, {**good, **change})


def test_garbage_that_was_kept_is_nothing(tmp_path: pathlib.Path) -> None:
    good = to_dict(dataclasses.replace(usage.use_of("vcn1-1", TOLD, PROCESS)))
    for text in ("", "[]", '{"used": 3}', '{"used": [{}]}', '{"used": [' + str(good).replace("'", '"') + ", 3]}"):
        (tmp_path / layout.USED).write_text(text)
        assert usage.read_use(tmp_path) == ()


def test_use_of_guests_with_cores_for_virtual_io_says_how_many_they_used(tmp_path: pathlib.Path) -> None:
    class Domains:
        @staticmethod
        def figures(names: object, _within_s: object) -> dict[str, dict[str, int]]:
            return {"vcn1-1": TOLD}

    usage.save_use(Domains(), ["vcn1-1"], tmp_path, None, io_cores=(3, 7))  # type: ignore[arg-type]
    (used,) = usage.read_use(tmp_path)
    assert {key: used.known()[key] for key in ("io_cores_most", "io_changes")} == {"io_cores_most": 3, "io_changes": 7}
    usage.save_use(Domains(), ["vcn1-1"], tmp_path / "other", None)  # type: ignore[arg-type]
    assert "io_cores_most" not in usage.read_use(tmp_path / "other")[0].known()
