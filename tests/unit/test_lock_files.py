# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts install is written down with digests (`make lock`), and the role's pip takes nothing else.

Seen to fail: without `--require-hashes` in the role's arguments a library without a digest is installed.
"""

from __future__ import annotations

import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAIRS = [("requirements.txt", "requirements.lock"), ("requirements-libvirt.txt", "requirements-libvirt.lock")]
PYTHONS = ("3.11", "3.12", "3.13")


def wanted(name: str) -> list[Requirement]:
    """The requirements of a file, without remarks."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-r")]


def locked(name: str, python: str) -> dict[str, tuple[Requirement, list[str]]]:
    """The requirements of a lock file that hold for a Python, with their digests, by name; none has two versions."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found: dict[str, tuple[Requirement, list[str]]] = {}
    for line in lines:
        requirement, *digests = re.split(r"\s+--hash=", line.strip())
        one = Requirement(requirement)
        if one.marker is None or one.marker.evaluate({"python_version": python, "python_full_version": f"{python}.0"}):
            assert canonicalize_name(one.name) not in found, line
            found[canonicalize_name(one.name)] = (one, digests)
    return found


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("wish", "lock"), PAIRS)
def test_lock_fulfils_the_wish(wish: str, lock: str, python: str) -> None:
    """Each library that we ask for is there, in a version that we can have."""
    there = locked(lock, python)
    for one in wanted(wish):
        versions = {spec.version for spec in there[canonicalize_name(one.name)][0].specifier}
        assert [version for version in versions if version in one.specifier], one


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", [lock for wish, lock in PAIRS])
def test_each_library_has_one_version_and_its_digests(lock: str, python: str) -> None:
    """And no package index is named: a site has its own."""
    for name, (one, digests) in locked(lock, python).items():
        assert [spec.operator for spec in one.specifier] == ["=="], name
        assert digests, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests), name
    assert "://" not in (ROOT / lock).read_text(encoding="utf-8")


@pytest.mark.parametrize(("python", "ansible"), [("3.11", "2.19"), ("3.12", "2.21"), ("3.13", "2.21")])
def test_each_python_has_its_newest_ansible_core(python: str, ansible: str) -> None:
    """ansible-core 2.20 and later want Python 3.12: one list serves hosts of both."""
    (version,) = locked("requirements.lock", python)["ansible-core"][0].specifier
    assert version.version.rpartition(".")[0] == ansible


def test_ansible_warns_of_versions_that_were_not_tried() -> None:
    """From the oldest of `make oldest` to the newest of the lock file none is warned of; none at all is refused."""
    (wish,) = [one.specifier for one in wanted("requirements.txt") if one.name == "ansible-core"]
    (oldest,) = [one.specifier for one in wanted("requirements-oldest.txt") if one.name == "ansible-core"]
    warned_not = SpecifierSet(
        yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))["requires_ansible"]
    )
    assert all(version in warned_not for version in ("2.18.0", "2.19.14", "2.20.0", "2.21.5"))
    assert "2.18.0" in oldest
    assert "2.17.14" not in wish
    assert "2.22.0" in wish
    assert "2.22.0" not in warned_not


def wheel(place: pathlib.Path, content: str) -> pathlib.Path:
    """A library of one module, as a wheel."""
    path = place / "shelf-1.0-py3-none-any.whl"
    files = {
        "shelf.py": content,
        "shelf-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n",
        "shelf-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text.encode())}")
    files["shelf-1.0.dist-info/RECORD"] = "\n".join([*rows, "shelf-1.0.dist-info/RECORD,,", ""])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def test_the_roles_pip_takes_no_other_file(tmp_path: pathlib.Path) -> None:
    """A wheel with another content is not installed, nor one of which the list has no digest; the right one is."""
    arguments = yaml.safe_load((ROOT / "roles/common/vars/main.yml").read_text(encoding="utf-8"))
    right = hashlib.sha256(wheel(tmp_path, "GOOD = True\n").read_bytes()).hexdigest()
    (tmp_path / "lock").write_text(f"shelf==1.0 --hash=sha256:{right}\n", encoding="utf-8")
    line = [
        sys.executable, *arguments["__common_pip"], *arguments["__common_locked"], "-r", tmp_path / "lock",
        "--no-index", "--find-links", tmp_path, "--target", tmp_path / "there",
    ]  # fmt: skip
    wheel(tmp_path, "GOOD = False\n")
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    (tmp_path / "lock").write_text("shelf==1.0\n", encoding="utf-8")
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode != 0
    assert not (tmp_path / "there/shelf.py").exists()
    digest = hashlib.sha256(wheel(tmp_path, "GOOD = True\n").read_bytes()).hexdigest()
    (tmp_path / "lock").write_text(f"shelf==1.0 --hash=sha256:{digest}\n", encoding="utf-8")
    subprocess.run(line, timeout=600, check=True)
    assert (tmp_path / "there/shelf.py").read_text(encoding="utf-8") == "GOOD = True\n"
