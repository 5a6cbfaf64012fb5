# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have the kernel of this host as it is wanted, now and after each boot: modules, huge pages and sysctl.

    set_kernel.py WANTED [--check]    have what a JSON object asks for: modules, hugepages, sysctl
    set_kernel.py --undo [--check]    have what was there before

What a setting was before its first change is written down, so that it comes back when nobody wants it any more.
Modules that are loaded stay until the next boot: another program may use them by then.

Runs on the host, with whatever Python is there.  Writes one line of JSON: `changed`, what was or would be done, and
`faults`, what could not be had.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import typing as t

HEAD = "# written by mikelangelo.vtorque.install; taken away again by mikelangelo.vtorque.uninstall\n"
MODULES = "etc/modules-load.d/vtorque.conf"
SYSCTL = "etc/sysctl.d/90-vtorque.conf"
PAGES = "etc/tmpfiles.d/vtorque-hugepages.conf"
FORMER = "var/lib/vtorque/kernel.json"
RAISED = "var/lib/vtorque/hugepages"
"""By how much jobs that run have raised pools, which they lower again (plugins/module_utils/node/placement)."""
BOOT = "proc/sys/kernel/random/boot_id"
POOL = re.compile(r"(?:/node([0-9]+)/hugepages|mm/hugepages)/hugepages-([0-9]+)kB/nr_hugepages")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
SIZE = re.compile(r"([1-9][0-9]{0,6})([KMG])")
KIB = {"K": 1, "M": 1024, "G": 1024 * 1024}
MODPROBE_S = 60


class Kernel:
    """The kernel's settings of a host, and the files that have them set at each boot.

    Args:
        root: where the host's files are.
        check: say what would be done, and do nothing.
        modprobe: the program.
    """

    def __init__(self, root: pathlib.Path, check: bool, modprobe: str) -> None:
        self.root, self.check, self.modprobe = root, check, modprobe
        self.changed: list[str] = []
        self.faults: list[str] = []
        self.former: dict[str, str] = self._read_former()

    def have(self, wanted: dict[str, t.Any]) -> None:
        """Have what is wanted, and no more of what was wanted earlier."""
        modules = [name for name in wanted.get("modules", []) if self._is_there(name)]
        sysctl = {str(name): str(value) for name, value in wanted.get("sysctl", {}).items()}
        pages = wanted.get("hugepages", [])
        settings = {}
        for name, value in sysctl.items():
            if NAME.fullmatch(name):
                settings[f"proc/sys/{name.replace('.', '/')}"] = value
            else:
                self.faults.append(f"sysctl {name}: not a name")
        for one in pages:
            path = self._pages_at(one)
            if path:
                settings[path] = str(one["count"])
        for path in [path for path in self.former if path not in settings]:
            self._put_back(path)
        for path, value in settings.items():
            self._set(path, value)
        self._file(MODULES, "".join(f"{name}\n" for name in modules))
        self._file(SYSCTL, "".join(f"{name} = {value}\n" for name, value in sysctl.items()))
        at_boot = [(path, value) for path, value in settings.items() if path.startswith("sys/")]
        self._file(PAGES, "".join(f"w /{path} - - - - {value}\n" for path, value in at_boot))
        for name in modules:
            self._load(name)

    def undo(self) -> None:
        """Have what was there before."""
        for path in list(self.former):
            self._put_back(path)
        for name in (MODULES, SYSCTL, PAGES):
            self._file(name, "")

    def _read_former(self) -> dict[str, str]:
        try:
            found = json.loads((self.root / FORMER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(path): str(value) for path, value in found.items()} if isinstance(found, dict) else {}

    def _write_former(self) -> None:
        if self.check:
            return
        path = self.root / FORMER
        if self.former:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, json.dumps(self.former, sort_keys=True) + "\n", 0o600)
        elif path.exists():
            path.unlink()

    def _pages_at(self, one: dict[str, t.Any]) -> str:
        size = SIZE.fullmatch(str(one.get("size", "")))
        if not size:
            self.faults.append(f"huge pages of {one.get('size')}: a size is 2M or 1G")
            return ""
        name = f"hugepages/hugepages-{int(size[1]) * KIB[size[2]]}kB/nr_hugepages"
        cell = one.get("cell")
        return f"sys/kernel/mm/{name}" if cell is None else f"sys/devices/system/node/node{int(cell)}/{name}"

    def _set(self, path: str, value: str) -> None:
        """Have a setting, of which the former value is written down before it is changed."""
        try:
            now = (self.root / path).read_text(encoding="utf-8")
        except OSError as error:
            self.faults.append(f"/{path}: {error.strerror}")
            return
        raised = self._raised(path)
        full = add(value, raised)
        if now.split() == full.split():
            return
        if path not in self.former:
            self.former[path] = add(now.strip(), -raised)
            self._write_former()
        # what comes short at each run is a change at the first one alone
        if self._write(path, full) != now.split():
            self.changed.append(f"/{path} = {full}")

    def _raised(self, path: str) -> int:
        """How many pages of a pool are those of jobs that run."""
        pool = POOL.search(path)
        if not pool or not (self.root / RAISED).is_dir():
            return 0
        cell, kib = pool[1] and int(pool[1]), int(pool[2])
        count = 0
        for file in (self.root / RAISED).glob("[!.]*"):
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
                if content["boot"] == (self.root / BOOT).read_text(encoding="ascii").strip():
                    count += sum(
                        more for where, size, more in content["raised"] if size == kib and cell in (None, where)
                    )
            except (OSError, ValueError, KeyError, TypeError):  # it ends at this moment, or is none
                continue
        return count

    def _put_back(self, path: str) -> None:
        value = add(self.former.pop(path), self._raised(path))
        self.changed.append(f"/{path} = {value}")
        if (self.root / path).exists():
            self._write(path, value)
        self._write_former()

    def _write(self, path: str, value: str) -> list[str]:
        """Write a value, and return what the kernel made of it."""
        if self.check:
            return value.split()
        now: list[str] = []
        try:
            (self.root / path).write_text(f"{value}\n", encoding="utf-8")
            now = (self.root / path).read_text(encoding="utf-8").split()
        except OSError as error:
            self.faults.append(f"/{path}: {error.strerror}")
            return now
        if now != value.split():
            short = "" if "hugepages" not in path else ": memory is too scattered; reserve them on the kernel's line"
            self.faults.append(f"/{path} is {' '.join(now)} and not {value}{short}")
        return now

    def _file(self, name: str, content: str) -> None:
        """Have a file of ours with this content, or no such file."""
        path = self.root / name
        text = HEAD + content if content else ""
        try:
            now = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            now = ""
        if now and not now.startswith(HEAD):
            if content:
                self.faults.append(f"/{name} is the site's own: give it another name")
            return
        if now == text:
            return
        self.changed.append(f"/{name}")
        if self.check:
            return
        if text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, text, 0o644)
        else:
            path.unlink()

    def _ask(self, *arguments: str) -> subprocess.CompletedProcess[str] | None:
        try:
            return subprocess.run(
                [self.modprobe, *arguments], capture_output=True, text=True, timeout=MODPROBE_S, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None

    def _is_there(self, module: str) -> bool:
        """Has this kernel such a module, built in or not?  One that has none says so in the doctor."""
        asked = self._ask("-n", "-q", module)
        return asked is not None and asked.returncode == 0

    def _load(self, module: str) -> None:
        asked = self._ask("-n", "-v", module)
        if asked is None or not asked.stdout.strip():  # built in, or loaded
            return
        done = None if self.check else self._ask(module)
        if self.check or (done is not None and not done.returncode):
            self.changed.append(f"module {module}")
            return
        why = done.stderr.strip()[-200:] if done else "modprobe gave no answer"
        self.faults.append(f"module {module} was not loaded: {why}")


def add(figure: str, more: int) -> str:
    """Return the text of a figure that is larger by so many."""
    return str(max(0, int(figure) + more)) if more and figure.strip().isdecimal() else figure


def write(path: pathlib.Path, text: str, mode: int) -> None:
    """Write a file that appears whole, with its mode."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.chmod(mode)
    part.rename(path)


def main() -> int:
    """Do what was asked for, and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("wanted", nargs="?", type=json.loads, default={}, help="JSON: modules, hugepages, sysctl")
    parser.add_argument("--undo", action="store_true", help="have what was there before")
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"), help="where the host's files are")
    parser.add_argument("--modprobe", default="modprobe")
    call = parser.parse_args()
    kernel = Kernel(call.root, call.check, call.modprobe)
    if call.undo:
        kernel.undo()
    else:
        kernel.have(call.wanted)
    print(json.dumps({"changed": kernel.changed, "faults": kernel.faults}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
