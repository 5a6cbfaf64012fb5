# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules say when they cannot work, and what they keep to themselves."""

from __future__ import annotations

import importlib
import json
import pathlib
import typing as t

import pytest
from ansible.module_utils import basic
from ansible_collections.mikelangelo.vtorque.plugins.modules import (
    domain,
    domain_info,
    image,
    image_info,
    ip_discovery,
    seed,
)

from .running import run

SECRET = "9Zx-not-for-anybody"


@pytest.mark.parametrize(
    ("module", "library", "args"),
    [
        (domain, "libvirt", {"name": "guest", "state": "absent"}),
        (domain_info, "libvirt", {}),
        (seed, "pycdlib", {"dest": "/tmp/seed.iso", "user_data": "x"}),
        (ip_discovery, "netaddr", {"mac": "52:54:00:00:00:01"}),
        (ip_discovery, "inotify_simple", {"mac": "52:54:00:00:00:01", "leases": ["/tmp/leases"]}),
    ],
)
def test_library_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], module: t.Any, library: str, args: t.Any
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == library else real(name))
    result = run(module, capfd, **args)
    assert result["failed"]
    assert library in result["msg"]
    assert "Failed to import the required Python library" in result["msg"]


@pytest.mark.parametrize(
    "args",
    [
        {"state": "running"},
        {"state": "absent"},
        {"state": "running", "xml": "<domain/>", "name": "guest"},
        {"state": "running", "xml": "<domain><name>one</name></domain>", "name": "two"},
    ],
)
def test_domain_needs_one_name(capfd: pytest.CaptureFixture[str], args: dict[str, t.Any]) -> None:
    assert run(domain, capfd, uri="test:///default", **args)["failed"]


def test_user_data_stays_out_of_syslog_and_of_results(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "log", lambda _self, msg, log_args=None: logged.append(f"{msg}{log_args}"))
    args = {"dest": str(tmp_path / "seed.iso"), "user_data": {"password": SECRET, "n": 1}, "_ansible_diff": True}
    result = run(seed, capfd, **args)
    assert result["changed"]
    assert logged
    assert SECRET not in json.dumps(result) + "".join(logged)
    assert result["dest"] == str(tmp_path / "seed.iso")  # a word of the user data does not blank out the rest
    assert (tmp_path / "seed.iso").stat().st_mode & 0o777 == 0o600


def test_seed_has_its_mode_from_the_beginning(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = run(seed, capfd, dest=str(tmp_path / "seed.iso"), user_data="#cloud-config\n", mode="0440")
    assert result["changed"]
    assert (tmp_path / "seed.iso").stat().st_mode & 0o777 == 0o440
    assert [path.name for path in tmp_path.iterdir()] == ["seed.iso"]
    assert not run(seed, capfd, dest=str(tmp_path / "seed.iso"), user_data="#cloud-config\n", mode="0440")["changed"]


def test_directory_that_is_missing_is_said(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = run(seed, capfd, dest=str(tmp_path / "no" / "seed.iso"), user_data="x", _ansible_check_mode=True)
    assert "no directory that can be written to" in result["msg"]


@pytest.mark.parametrize("mac", [41135040063, "41135040063"])
def test_mac_address_that_yaml_made_a_number_of_is_refused_at_once(
    capfd: pytest.CaptureFixture[str], mac: object
) -> None:
    result = run(ip_discovery, capfd, mac=mac, timeout=0)
    assert result["failed"]
    assert (
        "41135040063: is a number, which YAML makes of digits and colons, as it reads 52:54:00:00:01:03"
        in result["msg"]
    )
    assert "write a MAC address in quotes" in result["msg"]


@pytest.mark.parametrize("mode", [644, 600, 400, 0o1777])
def test_mode_that_is_a_number_without_its_zero_is_refused(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], mode: int
) -> None:
    result = run(seed, capfd, dest=str(tmp_path / "seed.iso"), user_data="#cloud-config\n", mode=mode)
    assert f"mode={mode}: {mode} is a number to YAML" in result["msg"]
    assert "in quotes" in result["msg"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, "600", "0640", "u=rw,go="])
def test_mode_that_yaml_reads_as_it_is_meant_is_taken(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], mode: object
) -> None:
    assert run(seed, capfd, dest=str(tmp_path / "seed.iso"), user_data="#cloud-config\n", mode=mode)["changed"]


@pytest.mark.parametrize("empty", ["", None, {}])
def test_seed_of_what_is_empty_is_one_that_nocloud_takes(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str], empty: object
) -> None:
    args = {"dest": str(tmp_path / "seed.iso"), "user_data": empty, "meta_data": empty, "network_config": empty}
    result = run(seed, capfd, **args)
    assert result["files"] == ["meta-data", "user-data"]
    assert result["instance_id"].startswith("seed-")
    assert not run(seed, capfd, **args)["changed"]


def test_seed_that_cloud_init_would_ignore_is_not_written(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run(seed, capfd, dest=str(tmp_path / "seed.iso"), user_data="users: []\n")
    assert "user-data: the first line is no header that cloud-init knows" in result["msg"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [12.1, False])
@pytest.mark.parametrize(
    ("module", "args"),
    [
        (image, {"state": "absent"}), (image, {"src": "/none"}), (image_info, {}),
        (domain, {"state": "absent", "uri": "test:///default"}), (domain_info, {"uri": "test:///default"}),
    ],
)  # fmt: skip
def test_name_that_yaml_changed_is_refused(
    capfd: pytest.CaptureFixture[str], module: t.Any, args: dict[str, t.Any], name: object
) -> None:
    """`12.10` is 12.1 to YAML, and `no` is false."""
    result = run(module, capfd, name=name, **args)
    assert result["failed"]
    assert f"name={str(name).lower()}: YAML made this of a name without quotes" in result["msg"]
