# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What bash proposes after `vsub -vm` and `vmgr`."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch import registry
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vsub
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli.vmgr import main


@pytest.mark.parametrize(
    ("before", "word", "proposed"),
    [
        ("-vm", "vc", ["vcpus=", "vcpu_pinning="]),
        ("-vm", "img=deb", ["img=debian12@3"]),
        ("-vm", "img=/etc/hostna", ["img=/etc/hostname"]),
        ("-vm", "vcpus=2,hyp", ["vcpus=2,hypervisor="]),
        ("-vm", "vcpus=2,hypervisor=q", ["vcpus=2,hypervisor=qemu"]),
        ("-vm", "vcpus=", []),
        ("-vm", "vcpus=2,metadata=/etc/hostna", ["vcpus=2,metadata=/etc/hostname"]),
        ("-vm", "vm_epilogue=/etc/hostna", ["vm_epilogue=/etc/hostname"]),
        ("vsub", "--d", ["--dry-run"]),
        ("vsub", "-v", ["-vm", "-v"]),
    ],
)
def test_proposals(tmp_path: pathlib.Path, before: str, word: str, proposed: list[str]) -> None:
    for image in ("debian12@3", "tiny@1"):
        (tmp_path / image).mkdir()
    text = templates.render("completion/vsub.bash.j2", site_dir=None, **vsub.completion_values(str(tmp_path)))
    script = f'compopt() {{ :; }}\n{text}\n_vsub vsub "$2" "$1"\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
    done = subprocess.run(["bash", "-c", script, "bash", before, word], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(proposed)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("before", "word", "proposed"),
    [
        ("-vm", "vc", ["vcpus=", "vcpu_pinning="]),
        ("vsbatch", "--nodel", ["--nodelist"]),
        ("vsbatch", "--dry", ["--dry-run"]),
        ("vsalloc", "--no-sh", ["--no-shell"]),
        ("vsbatch", "-v", ["-vm"]),
    ],
)
def test_proposals_of_vsbatch_are_options_of_sbatch(
    tmp_path: pathlib.Path, before: str, word: str, proposed: list[str]
) -> None:
    arguments = {**vsub.completion_values(str(tmp_path)), **registry.completion_values("slurm")}
    text = templates.render("completion/vsub.bash.j2", site_dir=None, **arguments)
    script = f'compopt() {{ :; }}\n{text}\n_vsub vsbatch "$2" "$1"\nprintf "%s\\n" "${{COMPREPLY[@]}}"; complete -p\n'
    done = subprocess.run(["bash", "-c", script, "bash", before, word], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert sorted(line for line in lines if line and not line.startswith("complete")) == sorted(proposed)
    assert {line.split()[-1] for line in lines if line.startswith("complete")} >= {"vsub", "vsbatch", "vsalloc"}


@pytest.mark.parametrize(
    ("arguments", "proposed"),
    [
        (["j"], ["job"]),
        (["job", "l"], ["list", "log"]),
        (["job", "console", "--"], ["--help", "--start", "--guest", "--node", "--json", "--query"]),
        (["job", "show", "4"], ["4711"]),
        (["job", "show", "7"], ["72[1]"]),
        (["job", "show", "3"], ["33_1", "35"]),
        (["image", "show", "t"], ["tiny@1"]),
        (["image", "add", "x", "--boot", ""], ["bios", "uefi"]),
        (["image", "add", "x", "--distro", "r"], ["redhat", "rocky"]),
        (["image", "delete", "--f"], ["--force"]),
        (["image", "add", "x", "/etc/hostna"], ["/etc/hostname"]),
        (["image", "c"], ["compose"]),
        (["image", "compose", "x", "--package", "/etc/hostna"], ["/etc/hostname"]),
        (["image", "add", "x", "--osv-base", "/etc/hostna"], ["/etc/hostname"]),
        (["image", "compose", "x", "--base", "t"], ["tiny@1"]),
        (["image", "compose", "x", "--c"], ["--config"]),
        (["config", ""], ["show", "check", "convert"]),
        (["config", "show", "--"], ["--help", "--origin", "--json", "--query"]),
        (["config", "show", "ssh"], ["ssh_timeout"]),
        (["config", "convert", "--"], ["--help", "--output", "--variables"]),
        (["nonsense", ""], []),
    ],
)
def test_vmgr_proposals(tmp_path: pathlib.Path, arguments: list[str], proposed: list[str]) -> None:
    pool, stored = tmp_path / "pool", tmp_path / "records"
    for path in (pool / "debian12@3", pool / "tiny@1", stored / "4711.head.1", stored / "72-1.head.1"):
        path.mkdir(parents=True)
    (stored / "35.lab.1").mkdir()
    (stored / "35.lab.1/record.json").write_text(json.dumps({"job_id": "35.lab", "alias": "33_1", "start": 1}))
    report = main.completion_values(str(pool), str(stored))
    text = templates.render("completion/vmgr.bash.j2", site_dir=None, **report)
    script = (
        f'compopt() {{ :; }}\n{text}\nCOMP_WORDS=(vmgr "$@")\nCOMP_CWORD=$#\n'
        '_vmgr vmgr "${!#}" "${COMP_WORDS[COMP_CWORD-1]}"\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", script, "bash", *arguments], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(proposed)
    assert done.stderr == ""
