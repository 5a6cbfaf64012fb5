# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host profile: off by default, the same after a second run, and undone unit by unit, byte for byte."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR

ROLE = COLLECTION_DIR.parent / "roles/host_profile"
PROGRAM = ROLE / "files/set_profile.py"
HUGEPAGES = "sys/kernel/mm/transparent_hugepage/enabled"
JOURNALD = "etc/systemd/journald.conf.d/90-vtorque-host-profile.conf"
TMPFILES = "etc/tmpfiles.d/vtorque-host-profile.conf"
STATE = "var/lib/vtorque-host-profile/state.json"
WANTED = {
    "units": ["apt-daily.timer", "idle.service", "none.service", "site.service"],
    "journald": {"SystemMaxUse": "200M", "SyncIntervalSec": "5m"},
    "transparent_hugepages": "madvise",
}
SYSTEMCTL = """#!/bin/sh
# systemctl(1), as far as the role calls it: units/NAME holds its states, masked ones have their link
here=$(dirname "$0")/.. && echo "$*" >>"$here/calls"
for unit; do :; done
state=$here/units/$unit link=$here/etc/systemd/system/$unit
case $1 in
    show)
        [ -e "$state" ] || { echo LoadState=not-found; exit 0; }
        read -r load active file <"$state"
        [ -L "$link" ] && load=masked
        printf 'ActiveState=%s\\nLoadState=%s\\nFragmentPath=%s\\n' "$active" "$load" "$file" ;;
    mask)
        [ ! -e "$here/refused" ] || { echo "Access denied" >&2; exit 1; }
        ln -s /dev/null "$link" && echo "loaded inactive" >"$state" ;;
    unmask)
        [ ! -e "$here/refused" ] || { echo "Access denied" >&2; exit 1; }
        rm "$link" ;;
    start) echo "loaded active" >"$state" ;;
    stop) echo "loaded inactive" >"$state" ;;
    restart) ;;
    list-units) cat "$here"/units/* | grep -w active ;;
esac
"""


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A host: three units, one of which the site has masked."""
    files = {
        HUGEPAGES: "[always] madvise never\n", "proc/meminfo": "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n",
        "proc/stat": "intr 100 1 2\nctxt 500\n", "units/apt-daily.timer": "loaded active\n",
        "units/idle.service": "loaded inactive\n", "units/site.service": "loaded active\n", "bin/systemctl": SYSTEMCTL,
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for place in ("etc/systemd/system", "etc/tmpfiles.d", "var/lib"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "etc/systemd/system/site.service").symlink_to("/dev/null")
    (tmp_path / "bin/systemctl").chmod(0o755)
    return tmp_path


def run(root: pathlib.Path, wanted: t.Any, *options: str) -> dict[str, t.Any]:
    arguments = ["--undo"] if wanted is None else [json.dumps(wanted)]
    command = [
        sys.executable,
        "-I",
        PROGRAM,
        *arguments,
        "--root",
        root,
        "--systemctl",
        root / "bin/systemctl",
        *options,
    ]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    found: dict[str, t.Any] = json.loads(done.stdout)
    return found


def have(root: pathlib.Path, wanted: t.Any, *options: str) -> dict[str, t.Any]:
    return run(root, wanted, "--measure-s", "0", *options)


def tree(root: pathlib.Path) -> dict[str, tuple[int, str]]:
    """The host's own files, links and directories, with modes."""
    paths = [path for place in ("etc", "sys", "var", "units") for path in sorted((root / place).rglob("*"))]
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else "",
        )
        for path in paths
    }


def test_profile_masks_what_is_there_and_a_second_run_changes_nothing(root: pathlib.Path) -> None:
    first = have(root, WANTED)
    assert first["faults"] == []
    assert first["changed"] == [
        "masked apt-daily.timer", "masked idle.service", f"/{JOURNALD}", f"/{TMPFILES}", f"/{HUGEPAGES} = madvise",
    ]  # fmt: skip
    assert (root / "etc/systemd/system/apt-daily.timer").is_symlink()
    assert (root / JOURNALD).read_text().splitlines()[1:] == ["[Journal]", "SyncIntervalSec=5m", "SystemMaxUse=200M"]
    assert "restart -- systemd-journald.service" in (root / "calls").read_text()
    assert (root / TMPFILES).read_text().splitlines()[1:] == [f"w /{HUGEPAGES} - - - - madvise"]
    assert (root / HUGEPAGES).read_text() == "madvise"
    (root / HUGEPAGES).write_text("always [madvise] never\n")  # as the kernel shows it
    second = have(root, WANTED)
    assert (second["changed"], second["faults"]) == ([], [])
    assert (second["before"], second["after"]) == (first["before"], first["after"])


def test_unit_whose_file_is_the_sites_own_stays_and_is_reported_by_check_mode_too(root: pathlib.Path) -> None:
    """systemd masks none there: `systemctl mask` says that the file exists already."""
    (root / "units/own.service").write_text("loaded active /etc/systemd/system/own.service\n")
    for options in (("--check",), (), ()):
        found = have(root, {"units": ["own.service"]}, *options)
        assert found["changed"] == []
        assert found["faults"] == [
            "own.service: its file is the site's own, in /etc/systemd/system, and stays: disable it there"
        ]
    assert "mask" not in (root / "calls").read_text()
    assert (root / "units/own.service").read_text().startswith("loaded active")


def test_unit_that_runs_is_stopped_before_it_is_masked_and_runs_on_where_it_cannot_be(root: pathlib.Path) -> None:
    """systemd takes a timer that is masked while it runs for failed."""
    (root / "refused").touch()
    refused = have(root, {"units": ["apt-daily.timer", "idle.service"]})
    assert (refused["changed"], len(refused["faults"])) == ([], 2)
    assert (root / "units/apt-daily.timer").read_text() == "loaded active\n"
    assert (root / "units/idle.service").read_text() == "loaded inactive\n"
    (root / "refused").unlink()
    (root / "calls").unlink()
    have(root, {"units": ["apt-daily.timer", "idle.service"]})
    calls = [line for line in (root / "calls").read_text().splitlines() if line.split()[0] in ("stop", "mask")]
    assert calls == ["stop -- apt-daily.timer", "mask --now -- apt-daily.timer", "mask --now -- idle.service"]


def test_figures_are_of_the_host_before_and_after(root: pathlib.Path) -> None:
    found = run(root, WANTED, "--measure-s", "0.05")
    assert found["before"]["running_services"] == 2
    assert found["after"]["running_services"] == 1, "the timer is stopped"
    for figures in (found["before"], found["after"]):
        assert figures["memory_used_mib"] == 1024
        assert 0 <= figures["noise_percent"] <= 100
        assert (figures["switches_per_s"], figures["interrupts_per_s"]) == (0, 0)
    assert json.loads((root / STATE).read_text())["before"] == found["before"], "the report stays"


def test_report_has_a_line_for_each_figure_and_each_change(root: pathlib.Path) -> None:
    found = run(root, {"units": ["apt-daily.timer", "sshd.service"]}, "--measure-s", "0")
    assert found["report"] == [
        "masked apt-daily.timer",
        "                          before       after",
        "running services               2           1",
        "memory in use           1024 MiB    1024 MiB",
        "not done: sshd.service is needed on a node of jobs, and stays",
    ]
    assert run(root, {}, "--measure-s", "0", "--check")["report"][0] == "unmasked apt-daily.timer"


def test_undo_has_everything_as_it_was_byte_for_byte(root: pathlib.Path) -> None:
    before = tree(root)
    have(root, WANTED)
    (root / HUGEPAGES).write_text("always [madvise] never\n")
    found = have(root, None)
    assert found["faults"] == []
    assert (root / HUGEPAGES).read_text() == "always"
    (root / HUGEPAGES).write_text("[always] madvise never\n")
    assert tree(root) == before
    assert "start -- apt-daily.timer" in (root / "calls").read_text().splitlines()
    assert "start -- idle.service" not in (root / "calls").read_text().splitlines(), "it did not run"
    assert have(root, None)["changed"] == []


def test_unit_that_is_wanted_no_more_comes_back_alone(root: pathlib.Path) -> None:
    have(root, WANTED)
    assert have(root, {**WANTED, "units": ["idle.service"]})["changed"][0] == "unmasked apt-daily.timer"
    assert not (root / "etc/systemd/system/apt-daily.timer").is_symlink()
    assert (root / "etc/systemd/system/idle.service").is_symlink()


def test_unit_that_cannot_be_given_back_is_tried_again(root: pathlib.Path) -> None:
    before = tree(root)
    have(root, {"units": WANTED["units"]})
    (root / "refused").touch()
    assert len(have(root, None)["faults"]) == 2
    (root / "refused").unlink()
    assert have(root, None)["changed"] == ["unmasked apt-daily.timer", "unmasked idle.service"]
    assert tree(root) == before


def test_unit_that_the_host_does_not_let_be_masked_is_a_fault_and_not_ours(root: pathlib.Path) -> None:
    (root / "refused").touch()
    found = have(root, {"units": ["apt-daily.timer"]})
    assert (found["changed"], found["faults"]) == ([], ["systemctl mask --now apt-daily.timer: Access denied"])
    (root / "refused").unlink()
    assert have(root, None)["changed"] == []


def test_check_reports_the_same_and_changes_nothing(root: pathlib.Path) -> None:
    before = tree(root)
    would = have(root, WANTED, "--check")
    assert tree(root) == before
    assert would["changed"] == have(root, WANTED)["changed"]
    during = tree(root)
    assert have(root, None, "--check")["changed"][0] == "unmasked apt-daily.timer"
    assert tree(root) == during


@pytest.mark.parametrize("unit", ["libvirtd.service", "virtlogd.socket", "ssh.service", "pbs_mom.service",
                                  "slurmd.service", "systemd-journald.service", "chrony.service"])  # fmt: skip
def test_unit_that_jobs_need_is_refused(root: pathlib.Path, unit: str) -> None:
    (root / "units" / unit).write_text("loaded active\n")
    found = have(root, {"units": [unit, "-f", "../x.service"]})
    assert found["changed"] == []
    assert f"{unit} is needed on a node of jobs, and stays" in found["faults"]
    assert len(found["faults"]) == 3


def test_words_that_the_kernel_or_journald_do_not_have_are_faults(root: pathlib.Path) -> None:
    found = have(root, {"transparent_hugepages": "sometimes", "journald": {"Storage\nx": "none"}})
    assert any("'sometimes' is none of [always] madvise never" in fault for fault in found["faults"])
    assert any("no option with a plain value" in fault for fault in found["faults"])
    assert (root / HUGEPAGES).read_text() == "[always] madvise never\n"


def test_file_of_the_site_by_our_name_stays(root: pathlib.Path) -> None:
    (root / JOURNALD).parent.mkdir()
    (root / JOURNALD).write_text("[Journal]\n")
    assert "is the site's own" in have(root, WANTED)["faults"][0]
    have(root, None)
    assert (root / JOURNALD).read_text() == "[Journal]\n"


def play(root: pathlib.Path, tasks_from: str = "main", **variables: t.Any) -> str:
    """Play the role on this host, over the files of another."""
    program = ["--root", str(root), "--systemctl", str(root / "bin/systemctl"), "--measure-s", "0"]
    role = {"name": str(ROLE), "tasks_from": tasks_from}
    given = {**variables, "__host_profile_options": program}
    one = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.include_role": role, "vars": given}]}
    (root / "play.json").write_text(json.dumps([one]))
    host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (root / "inventory.json").write_text(json.dumps({"all": {"hosts": {"p1": host}}}))
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "-i", root / "inventory.json", root / "play.json"],
        check=False, capture_output=True, text=True, timeout=300,
        env={**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_NOCOLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_role_is_off_by_default_prints_figures_and_takes_all_back(root: pathlib.Path) -> None:
    before = tree(root)
    assert "changed=0" in play(root)
    assert tree(root) == before
    on = {"host_profile_enabled": True, "host_profile_transparent_hugepages": ""}
    output = play(root, **on)
    assert "changed=1" in output
    assert re.search(r'"running services +2 +1"', output), output
    assert (root / "etc/systemd/system/apt-daily.timer").is_symlink()
    assert "changed=1" in play(root, "absent")
    assert tree(root) == before


def test_defaults_are_names_that_the_program_takes(root: pathlib.Path) -> None:
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    assert defaults["host_profile_enabled"] is False
    for unit in defaults["host_profile_masked_units"]:
        (root / "units" / unit).write_text("loaded active\n")
    wanted = {
        "units": defaults["host_profile_masked_units"], "journald": defaults["host_profile_journald"],
        "transparent_hugepages": defaults["host_profile_transparent_hugepages"],
    }  # fmt: skip
    found = have(root, wanted)
    assert found["faults"] == []
    assert len(found["changed"]) == len(wanted["units"]) + 3
