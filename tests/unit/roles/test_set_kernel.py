# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules, huge pages and sysctl of a node: had as the site wants them, and back as they were, byte for byte."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

from .test_openpbs import play

ROLE = COLLECTION_DIR.parent / "roles/compute_node"
PROGRAM = ROLE / "files/set_kernel.py"
POOL = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
CELL = "sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages"
FILES = {
    POOL: "3\n",
    CELL: "0\n",
    "proc/sys/vm/swappiness": "60\n",
    "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
}
WANTED = {
    "modules": ["vhost_net", "vfio-pci", "none_such"],
    "sysctl": {"vm.swappiness": 1},
    "hugepages": [{"size": "2M", "count": 64}, {"size": "1G", "count": 2, "cell": 1}],
}
MODPROBE = """#!/bin/sh
echo "$*" >> "$0.calls"
case "$*" in *none_such) exit 1;; "-n -v vhost_net") [ -e "$0.loaded" ] || echo insmod /lib/vhost_net.ko;;
vhost_net) touch "$0.loaded";; esac
"""


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A host's files, and a modprobe that knows two modules, of which one is built in."""
    for name, text in {**FILES, "etc/modules-load.d/site.conf": "loop\n", "etc/sysctl.d/99-site.conf": "# x\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for place in ("etc/tmpfiles.d", "var/lib/vtorque", "bin"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "bin/modprobe").write_text(MODPROBE)
    (tmp_path / "bin/modprobe").chmod(0o755)
    return tmp_path


def options(root: pathlib.Path) -> list[str]:
    return ["--root", str(root), "--modprobe", str(root / "bin/modprobe")]


def run(root: pathlib.Path, wanted: dict[str, t.Any] | None, *more: str) -> dict[str, list[str]]:
    arguments = ["--undo"] if wanted is None else [json.dumps(wanted)]
    command = [sys.executable, "-I", str(PROGRAM), *arguments, *more, *options(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def tree(root: pathlib.Path) -> dict[str, tuple[int, str]]:
    """Everything below the host's own directories, with modes."""
    paths = (path for place in ("etc", "sys", "proc", "var") for path in sorted((root / place).rglob("*")))
    return {
        str(path.relative_to(root)): (path.stat().st_mode, path.read_text() if path.is_file() else "") for path in paths
    }


def test_kernel_is_as_wanted_now_and_at_each_boot_and_a_second_run_changes_nothing(root: pathlib.Path) -> None:
    first = run(root, WANTED)
    assert first["faults"] == []
    assert "module vhost_net" in first["changed"]
    assert (root / POOL).read_text().strip() == "64"
    assert (root / CELL).read_text().strip() == "2"
    assert (root / "proc/sys/vm/swappiness").read_text().strip() == "1"
    lines = {name: (root / name).read_text().splitlines() for name in (
        "etc/modules-load.d/vtorque.conf", "etc/sysctl.d/90-vtorque.conf", "etc/tmpfiles.d/vtorque-hugepages.conf",
    )}  # fmt: skip
    assert [found[1:] for found in lines.values()] == [
        ["vhost_net", "vfio-pci"],
        ["vm.swappiness = 1"],
        [f"w /{POOL} - - - - 64", f"w /{CELL} - - - - 2"],
    ]
    assert run(root, WANTED) == {"changed": [], "faults": []}


def test_undo_has_everything_as_it_was_byte_for_byte(root: pathlib.Path) -> None:
    before = tree(root)
    run(root, WANTED)
    assert tree(root) != before
    run(root, {**WANTED, "hugepages": [{"size": "2M", "count": 5}]})
    assert run(root, None)["faults"] == []
    assert tree(root) == before
    assert run(root, None) == {"changed": [], "faults": []}


def test_what_is_wanted_no_more_comes_back_at_the_next_run(root: pathlib.Path) -> None:
    before = tree(root)
    run(root, WANTED)
    run(root, {"modules": [], "sysctl": {}, "hugepages": []})
    assert tree(root) == before


def test_check_says_the_same_and_changes_nothing(root: pathlib.Path) -> None:
    before = tree(root)
    would = run(root, WANTED, "--check")
    assert tree(root) == before
    assert would == run(root, WANTED)
    during = tree(root)
    run(root, None, "--check")
    assert tree(root) == during
    calls = (root / "bin/modprobe.calls").read_text().splitlines()
    assert calls.count("vhost_net") == 1


def test_setting_of_several_figures_is_not_written_again_for_its_blanks(root: pathlib.Path) -> None:
    before = tree(root)
    assert run(root, {"sysctl": {"net.ipv4.tcp_rmem": "4096 131072 6291456"}})["changed"] == [
        "/etc/sysctl.d/90-vtorque.conf"
    ]
    run(root, None)
    assert tree(root) == before


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        ({"sysctl": {"vm.none": 1}}, "/proc/sys/vm/none: No such file or directory"),
        ({"sysctl": {"../../etc/passwd": 1}}, "sysctl ../../etc/passwd: not a name"),
        ({"hugepages": [{"size": "3X", "count": 1}]}, "huge pages of 3X: a size is 2M or 1G"),
        (
            {"hugepages": [{"size": "2M", "count": 1, "cell": 7}]},
            "node7/hugepages/hugepages-2048kB/nr_hugepages: No such",
        ),
    ],
)
def test_what_cannot_be_had_is_named(root: pathlib.Path, wanted: dict[str, t.Any], fault: str) -> None:
    assert fault in " ".join(run(root, wanted)["faults"])
    run(root, None)


def test_pages_that_come_short_are_named_and_given_back(root: pathlib.Path) -> None:
    """A pool that takes what is written and has less: a link to a device that keeps nothing."""
    (root / POOL).unlink()
    (root / POOL).symlink_to("/dev/null")
    found = run(root, {"hugepages": [{"size": "2M", "count": 8}]})
    assert "is  and not 8: memory is too scattered" in found["faults"][0]
    again = run(root, {"hugepages": [{"size": "2M", "count": 8}]})
    assert (again["changed"], again["faults"]) == ([], found["faults"])


@pytest.mark.parametrize(
    ("pool", "own"), [(POOL, {}), (POOL.replace("kernel/mm", "devices/system/node/node1"), {"cell": 1})]
)
def test_pages_of_jobs_that_run_are_theirs_to_give_back(root: pathlib.Path, pool: str, own: dict[str, int]) -> None:
    """A job lowers the pool by what it has raised: were it lowered here before, the site would lose as many."""
    raised = {"boot": "now", "due": [], "raised": [[1, 2048, 30], [1, 1048576, 1]]}
    place = root / "var/lib/vtorque/hugepages"
    place.mkdir()
    (place / "7.head.1").write_text(json.dumps(raised))
    (place / "6.head.1").write_text(json.dumps({**raised, "boot": "earlier"}))
    (place / ".8.head.1.77").write_text(json.dumps(raised))
    (place / "9.head.1").write_text("half")
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("now\n")
    (root / pool).parent.mkdir(parents=True, exist_ok=True)
    (root / pool).write_text("33\n")
    wanted = {"hugepages": [{"size": "2M", "count": 64, **own}]}
    assert run(root, wanted)["faults"] == []
    assert (root / pool).read_text().strip() == "94"
    assert run(root, wanted) == {"changed": [], "faults": []}
    assert f"w /{pool} - - - - 64" in (root / "etc/tmpfiles.d/vtorque-hugepages.conf").read_text()
    (place / "7.head.1").unlink()
    (root / pool).write_text("64\n")  # as the job's end leaves it
    assert run(root, wanted) == {"changed": [], "faults": []}
    run(root, None)
    assert (root / pool).read_text().strip() == "3"


def test_module_that_is_refused_is_a_fault_and_no_change(root: pathlib.Path) -> None:
    program = root / "bin/modprobe"
    program.write_text(
        "#!/bin/sh\ncase $1 in -n) echo insmod x;; *) echo 'Operation not permitted' >&2; exit 1;; esac\n"
    )
    run(root, {"modules": ["vhost_net"]})
    assert run(root, {"modules": ["vhost_net"]}) == {
        "changed": [], "faults": ["module vhost_net was not loaded: Operation not permitted"],
    }  # fmt: skip


def test_file_of_the_site_by_our_name_stays(root: pathlib.Path) -> None:
    own = root / "etc/sysctl.d/90-vtorque.conf"
    own.write_text("vm.swappiness = 10\n")
    assert "is the site's own" in run(root, WANTED)["faults"][0]
    run(root, None)
    assert own.read_text() == "vm.swappiness = 10\n"


def test_host_without_modprobe_gets_no_file_of_modules(root: pathlib.Path) -> None:
    (root / "bin/modprobe").unlink()
    assert run(root, {"modules": ["vhost_net"]}) == {"changed": [], "faults": []}


@pytest.mark.parametrize("devices", [[], ["gpu 0000:3b:00.0"]])
def test_role_has_the_kernel_as_the_site_says_and_back(root: pathlib.Path, devices: list[str]) -> None:
    """By the role's own tasks; the options are a fact, which alone is above the role's variables: no test may reach the
    kernel of the machine that it runs on."""
    before = tree(root)
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    own = {
        **{name: value for name, value in defaults.items() if "hugepages" in name or "sysctl" in name},
        "compute_node_sysctl": {"vm.swappiness": 1},
        "__common_python": sys.executable,
        "common_configuration": {"policy": {"pci_classes": devices, "prefix_nodes": "/x", "torque_home": "/x"}},
    }
    here = {"ansible.builtin.set_fact": {"__compute_node_kernel_options": options(root)}}
    stay = {"ansible.builtin.assert": {"that": f"'{root}' in __compute_node_kernel_options"}}

    def run_tasks(name: str) -> None:
        tasks = [here, stay, {"ansible.builtin.include_tasks": str(ROLE / f"tasks/{name}.yml")}]
        good, results = play(root, "compute_node", tasks, **own)
        assert good, results

    run_tasks("kernel")
    modules = (root / "etc/modules-load.d/vtorque.conf").read_text().splitlines()[1:]
    assert modules == (["vhost_net", "vfio-pci"] if devices else ["vhost_net"])
    assert (root / "proc/sys/vm/swappiness").read_text().strip() == "1"
    run_tasks("kernel_absent")
    assert tree(root) == before
