# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive of the collection that hosts are served with, by a process for each host."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tarfile

PROGRAM = pathlib.Path(__file__, "../../../../roles/common/files/pack_collection.py").resolve()
DAY_S = 86_400


def pack(root: pathlib.Path, cache: pathlib.Path) -> dict[str, str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([sys.executable, PROGRAM, root], env=environment, check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def collection(directory: pathlib.Path, text: str) -> pathlib.Path:
    (directory / "plugins" / "__pycache__").mkdir(parents=True)
    (directory / "plugins" / "a.py").write_text(text, "utf-8")
    (directory / "plugins" / "__pycache__" / "a.pyc").write_text("x", "utf-8")
    (directory / "tests").mkdir()
    return directory


def test_archive_has_what_hosts_need_and_is_the_same_for_the_same_files(tmp_path: pathlib.Path) -> None:
    first = pack(collection(tmp_path / "one", "1"), tmp_path / "cache")
    assert pack(collection(tmp_path / "two", "1"), tmp_path / "cache") == first
    assert pack(collection(tmp_path / "other", "2"), tmp_path / "cache")["digest"] != first["digest"]
    with tarfile.open(first["archive"]) as archive:
        assert archive.getnames() == ["plugins/a.py"]


def test_former_archives_that_another_process_takes_away_meanwhile_are_no_fault(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "cache" / "vtorque"
    place.mkdir(parents=True)
    gone, old, new = (place / f"vtorque-{name}.tar.gz" for name in ("gone", "old", "new"))
    gone.symlink_to(place / "nowhere")  # listed, and not there when it is looked at
    old.touch()
    os.utime(old, (old.stat().st_mtime - DAY_S - 60,) * 2)
    new.touch()
    found = pack(collection(tmp_path / "one", "1"), tmp_path / "cache")
    assert pathlib.Path(found["archive"]).is_file()
    assert (old.exists(), new.exists()) == (False, True)
