# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's network card in a tree like sysfs, and its interrupts in one like /proc/irq."""

from __future__ import annotations

import json
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.io_cores import interrupts
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings

KEY = "7.head.1"


class Tree:
    """A bridge over a bond of two cards, with a tap of a guest; the first card has three interrupts."""

    def __init__(self, root: pathlib.Path) -> None:
        self.net, self.irqs = root / "net", root / "irq"
        for name in ("br0", "bond0", "eth0", "eth1", "vtq1"):
            (self.net / name).mkdir(parents=True)
        for upper, lower in (("br0", "bond0"), ("br0", "vtq1"), ("bond0", "eth0"), ("bond0", "eth1")):
            (self.net / upper / f"lower_{lower}").symlink_to(self.net / lower)
        for name, cell in (("eth0", "1"), ("eth1", "0")):
            card = root / "devices" / name
            card.mkdir(parents=True)
            (card / "numa_node").write_text(f"{cell}\n")
            (self.net / name / "device").symlink_to(card)
        for number in (24, 25, 31):
            (root / "devices/eth0/msi_irqs").mkdir(exist_ok=True)
            (root / "devices/eth0/msi_irqs" / str(number)).touch()
            (self.irqs / str(number)).mkdir(parents=True)
            self.put(number, "0-3")

    def put(self, number: int, cores: str) -> None:
        (self.irqs / str(number) / "smp_affinity_list").write_text(f"{cores}\n")

    def cores(self) -> dict[int, str]:
        return {int(path.name): (path / "smp_affinity_list").read_text().strip() for path in self.irqs.iterdir()}


@pytest.fixture
def tree(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    made = Tree(tmp_path)
    monkeypatch.setattr(interrupts, "SYS_NET", made.net)
    monkeypatch.setattr(interrupts, "IRQS", made.irqs)
    return made


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    return NodeSettings("cn1", 1, state_dir=tmp_path / "state")


def test_cards_of_a_bridge_are_those_below_it_and_no_guests(tree: Tree) -> None:
    assert [card.name for card in interrupts.find_cards("br0")] == ["eth0", "eth1"]
    assert interrupts.cell_of_uplink("br0") == 1
    assert interrupts.find_interrupts("br0") == (24, 25, 31)


def test_bridge_without_a_card_has_no_cell_and_no_interrupts(tree: Tree) -> None:
    (tree.net / "br1").mkdir()
    assert (interrupts.cell_of_uplink("br1"), interrupts.find_interrupts("br1")) == (None, ())
    assert (interrupts.cell_of_uplink("br2"), interrupts.find_interrupts("br2")) == (None, ())


def test_card_whose_cell_the_kernel_does_not_know_has_none(tree: Tree, tmp_path: pathlib.Path) -> None:
    (tmp_path / "devices/eth0/numa_node").write_text("-1\n")
    assert interrupts.cell_of_uplink("br0") is None


def test_moved_interrupts_go_back_to_where_they_were_before_the_first_move(tree: Tree, settings: NodeSettings) -> None:
    tree.put(31, "2")
    assert interrupts.move((24, 25, 31), (5,), KEY, settings) == (24, 25, 31)
    assert interrupts.move((24, 25, 31), (5, 6), KEY, settings) == (24, 25, 31)
    assert tree.cores() == {24: "5-6", 25: "5-6", 31: "5-6"}
    assert interrupts.put_back(KEY, settings) == ("interrupts 24-25,31 from cores for virtual I/O",)
    assert tree.cores() == {24: "0-3", 25: "0-3", 31: "2"}
    assert interrupts.put_back(KEY, settings) == ()
    assert list(settings.interrupts_dir.iterdir()) == []


def test_move_writes_down_where_they_were_before_it_moves_one(
    tree: Tree, settings: NodeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is killed between the two has lost nothing."""

    def killed(_number: int, _text: str) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(interrupts, "_set", killed)
        with pytest.raises(KeyboardInterrupt):
            interrupts.move((24,), (5,), KEY, settings)
    tree.put(24, "5")  # as if it had been killed just after
    interrupts.put_back(KEY, settings)
    assert tree.cores()[24] == "0-3"


def test_interrupts_that_the_kernel_does_not_move_are_named_by_nobody(tree: Tree, settings: NodeSettings) -> None:
    """Managed ones: writing fails; here since it is a directory."""
    (tree.irqs / "25/smp_affinity_list").unlink()
    (tree.irqs / "25/smp_affinity_list").mkdir()
    assert interrupts.move((24, 25, 99), (5,), KEY, settings) == (24,)
    assert interrupts.put_back(KEY, settings) == ("interrupts 24 from cores for virtual I/O",)


def test_put_back_of_an_earlier_boot_changes_nothing(tree: Tree, settings: NodeSettings) -> None:
    interrupts.move((24,), (5,), KEY, settings)
    path = settings.interrupts_dir / KEY
    content = json.loads(path.read_text())
    path.chmod(0o600)
    path.write_text(json.dumps({**content, "boot": "another"}))
    assert interrupts.put_back(KEY, settings) == ()
    assert tree.cores()[24] == "5"
    assert not path.exists()


def test_put_back_of_an_interrupt_that_cannot_go_back_says_so_and_ends(tree: Tree, settings: NodeSettings) -> None:
    interrupts.move((24, 31), (5,), KEY, settings)
    (tree.irqs / "24/smp_affinity_list").unlink()  # its card was removed
    assert interrupts.put_back(KEY, settings) == ("interrupts 31 from cores for virtual I/O",)
    assert not (settings.interrupts_dir / KEY).exists()
