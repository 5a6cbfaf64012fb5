# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have a compute node do less beside its jobs: units that it does without, a bounded journal, transparent huge pages.

    set_profile.py WANTED [--check]    have what a JSON object asks for: units, journald, transparent_hugepages
    set_profile.py --undo [--check]    have what was there before, unit by unit

What was there is written down before it is changed.  A unit that the site has masked itself is never touched.

Runs on the host, with whatever Python is there.  Writes one line of JSON: `changed`, what was or would be done;
`faults`, what could not be had; `before` and `after`, figures of the host before the first change and after the last;
`report`, all of that as lines.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import typing as t

HEAD = "# written by the role mikelangelo.vtorque.host_profile; taken away again by its tasks_from: absent\n"
JOURNALD = "etc/systemd/journald.conf.d/90-vtorque-host-profile.conf"
TMPFILES = "etc/tmpfiles.d/vtorque-host-profile.conf"
HUGEPAGES = "sys/kernel/mm/transparent_hugepage/enabled"
STATE = "var/lib/vtorque-host-profile/state.json"
UNIT = re.compile(r"[A-Za-z0-9@:_.\\-]{1,240}\.(service|timer|socket|path|mount)")
NEEDED = re.compile(
    r"(lib)?virt|ssh|systemd-|dbus|vtorque|pbs|torque|trqauthd|slurm|munge|network|NetworkManager|dnsmasq|nfs|rpc|chrony|ntp"
    r"|nftables|firewalld|sssd|nslcd|polkit|multipath|iscsi|lvm"
)
"""What a node of jobs cannot be without, by the beginning of its name."""
OWN_UNITS = "/etc/systemd/system"
OPTION = re.compile(r"[A-Z][A-Za-z]{1,40}")
VALUE = re.compile(r"[A-Za-z0-9.]{1,20}")
FIGURES = {
    "running_services": ("running services", "{}"),
    "memory_used_mib": ("memory in use", "{} MiB"),
    "noise_percent": ("time lost to others", "{:.2f} %"),
    "switches_per_s": ("context switches", "{} /s"),
    "interrupts_per_s": ("interrupts", "{} /s"),
}
"""What is measured: its name, and its form."""
CALL_S = 120
WORK = 20_000


class Host:
    """A host's units and settings.

    Args:
        root: where its files are.
        check: say what would be done, and do nothing.
        systemctl: the program.
        seconds: of a measurement; 0: none.
    """

    def __init__(self, root: pathlib.Path, check: bool, systemctl: str, seconds: float) -> None:
        self.root, self.check, self.systemctl, self.seconds = root, check, systemctl, seconds
        self.changed: list[str] = []
        self.faults: list[str] = []
        state = self._read_state()
        self.units: dict[str, bool] = state.get("units", {})
        self.settings: dict[str, str] = state.get("settings", {})
        self.before: dict[str, t.Any] = state.get("before", {})
        self.after: dict[str, t.Any] = state.get("after", {})

    def have(self, wanted: dict[str, t.Any]) -> None:
        """Have what is wanted, and no more of what was wanted earlier."""
        units = [unit for unit in wanted.get("units", []) if self._is_good(str(unit))]
        if not self.before and not self.check:
            self.before = self.measure()
        for unit in [unit for unit in self.units if unit not in units]:
            self._give_back(unit)
        for unit in units:
            self._mask(unit)
        options = wanted.get("journald", {})
        for name in [name for name, value in options.items() if not _is_option(name, value)]:
            self.faults.append(f"journald {name}: no option with a plain value")
            options = {key: value for key, value in options.items() if key != name}
        lines = "".join(f"{name}={value}\n" for name, value in sorted(options.items()))
        self._have_journald(f"[Journal]\n{lines}" if lines else "")
        self._have_hugepages(str(wanted.get("transparent_hugepages") or ""))
        if self.changed and not self.check:
            self.after = self.measure()
        self._write_state()

    def undo(self) -> None:
        """Have what was there before; what cannot be given back is tried again at the next call."""
        for unit in list(self.units):
            self._give_back(unit)
        self._have_journald("")
        self._have_hugepages("")
        if not self.units and not self.settings:
            self.before, self.after = {}, {}
        self._write_state()

    def _is_good(self, unit: str) -> bool:
        if not UNIT.fullmatch(unit):
            self.faults.append(f"{unit[:80]!a} is not the name of a unit")
        elif NEEDED.match(unit):
            self.faults.append(f"{unit} is needed on a node of jobs, and stays")
        else:
            return True
        return False

    def _mask(self, unit: str) -> None:
        facts = self._facts(unit)
        if facts is None:
            self.faults.append(f"{unit}: systemctl does not answer")
            return
        if facts.get("LoadState") in ("not-found", "masked", ""):
            return  # it is not installed, or masked: by us, or by the site itself
        if facts.get("FragmentPath", "").startswith(f"{OWN_UNITS}/"):
            # where the link of a masked unit would be is its file (systemctl mask: "File ... already exists")
            self.faults.append(f"{unit}: its file is the site's own, in {OWN_UNITS}, and stays: disable it there")
            return
        is_active = facts.get("ActiveState") in ("active", "activating", "reloading")
        if unit not in self.units:
            self.units[unit] = is_active
            self._write_state()
        # a timer that runs while it is masked has failed for systemd, and the host is degraded
        if self.check or (
            (not is_active or self._call("stop", "--", unit)) and self._call("mask", "--now", "--", unit)
        ):
            self.changed.append(f"masked {unit}")
            return
        if is_active:
            self._call("start", "--", unit)
        del self.units[unit]

    def _give_back(self, unit: str) -> None:
        facts = self._facts(unit)
        if facts is None or (not self.check and not self._call("unmask", "--", unit)):
            if facts is None:
                self.faults.append(f"{unit}: systemctl does not answer")
            return
        self.changed.append(f"unmasked {unit}")
        if self.units[unit] and not self.check:
            self._call("start", "--", unit)
        del self.units[unit]
        self._write_state()

    def _facts(self, unit: str) -> dict[str, str] | None:
        done = self._run("show", "-p", "LoadState,ActiveState,FragmentPath", "--", unit)
        if done is None or done.returncode:
            return None
        return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)

    def _call(self, *arguments: str) -> bool:
        done = self._run(*arguments)
        if done is not None and not done.returncode:
            return True
        why = " ".join(done.stderr.split())[-200:] if done else "no answer"
        self.faults.append(f"systemctl {' '.join(word for word in arguments if word != '--')}: {why}")
        return False

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str] | None:
        try:
            return subprocess.run(
                [self.systemctl, *arguments], capture_output=True, text=True, timeout=CALL_S, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None

    def _have_journald(self, content: str) -> None:
        if self._have_file(JOURNALD, content) and not self.check:
            self._call("restart", "--", "systemd-journald.service")

    def _have_hugepages(self, value: str) -> None:
        """Have transparent huge pages by a word of the kernel's own, or as they were."""
        former = self.settings.get(HUGEPAGES, "")
        wanted = value or former
        self._have_file(TMPFILES, f"w /{HUGEPAGES} - - - - {value}\n" if value else "")
        if not wanted:
            return
        try:
            text = (self.root / HUGEPAGES).read_text(encoding="ascii")
            now = text[text.index("[") + 1 : text.index("]")] if "[" in text else text.strip()
            if wanted not in text.replace("[", "").replace("]", "").split() and "[" in text:
                self.faults.append(f"/{HUGEPAGES}: {wanted[:40]!a} is none of {text.strip()}")
                return
            if now != wanted:
                if value and not former:
                    self.settings[HUGEPAGES] = now
                    self._write_state()
                self.changed.append(f"/{HUGEPAGES} = {wanted}")
                if not self.check:
                    (self.root / HUGEPAGES).write_text(wanted, encoding="ascii")
        except (OSError, ValueError) as error:
            self.faults.append(f"/{HUGEPAGES}: {error}")
            return
        if not value and not self.check:
            self.settings.pop(HUGEPAGES, None)

    def _have_file(self, name: str, content: str) -> bool:
        """Have a file of this content, or none; was it changed?"""
        path = self.root / name
        text = HEAD + content if content else ""
        try:
            now = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            now = ""
        if now and not now.startswith(HEAD):
            if content:
                self.faults.append(f"/{name} is the site's own: give it another name")
            return False
        if now == text:
            return False
        self.changed.append(f"/{name}")
        if self.check:
            return True
        if text:
            self._make_directory(path.parent)
            write(path, text, 0o644)
        else:
            path.unlink()
            self._drop_directory(path.parent)
        return True

    def _make_directory(self, path: pathlib.Path) -> None:
        if not path.exists():
            path.mkdir(parents=True, mode=0o755)
            self.settings[f"directory {path.relative_to(self.root)}"] = ""
            self._write_state()

    def _drop_directory(self, path: pathlib.Path) -> None:
        """One that was made here goes when nobody else uses it."""
        key = f"directory {path.relative_to(self.root)}"
        if key in self.settings:
            del self.settings[key]
            if not any(path.iterdir()):
                path.rmdir()

    def _read_state(self) -> dict[str, t.Any]:
        try:
            found = json.loads((self.root / STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write_state(self) -> None:
        if self.check:
            return
        path = self.root / STATE
        if self.units or self.settings or self.before:
            path.parent.mkdir(parents=True, exist_ok=True)
            state = {"units": self.units, "settings": self.settings, "before": self.before, "after": self.after}
            write(path, json.dumps(state, sort_keys=True) + "\n", 0o600)
        elif path.exists():
            path.unlink()
            path.parent.rmdir()

    def measure(self) -> dict[str, t.Any]:
        """Return figures of the host as it is: each is missing where it cannot be read."""
        found: dict[str, t.Any] = {}
        running = self._run("list-units", "--type=service", "--state=running", "--no-legend", "--plain")
        if running is not None and not running.returncode:
            found["running_services"] = len(running.stdout.splitlines())
        memory = dict(re.findall(r"^(\w+): +([0-9]+) kB", self._read("proc/meminfo"), re.MULTILINE))
        if {"MemTotal", "MemAvailable"} <= set(memory):
            found["memory_used_mib"] = (int(memory["MemTotal"]) - int(memory["MemAvailable"])) // 1024
        if self.seconds > 0:
            before = self._read("proc/stat")
            found["noise_percent"], seconds = work(self.seconds)
            after = self._read("proc/stat")
            for key, name in (("ctxt", "switches_per_s"), ("intr", "interrupts_per_s")):
                counts = [re.search(rf"^{key} ([0-9]+)", text, re.MULTILINE) for text in (before, after)]
                if counts[0] and counts[1]:
                    found[name] = round((int(counts[1][1]) - int(counts[0][1])) / seconds)
        return found

    def _read(self, name: str) -> str:
        try:
            return (self.root / name).read_text(encoding="ascii", errors="replace")
        except OSError:
            return ""


def _is_option(name: object, value: object) -> bool:
    return OPTION.fullmatch(str(name)) is not None and VALUE.fullmatch(str(value)) is not None


def work(seconds: float) -> tuple[float, float]:
    """Do the same work again and again; return what of the time was lost to others, in percent, and the seconds."""
    rounds: list[float] = []
    begin = time.perf_counter()
    while (now := time.perf_counter()) - begin < seconds:
        total = 0
        for number in range(WORK):
            total += number
        rounds.append(time.perf_counter() - now)
    # the median round is what the processor needs; the fastest may have had a higher clock
    usual = sorted(rounds)[len(rounds) // 2]
    lost = sum(duration - usual for duration in rounds if duration > usual)
    return round(100 * lost / sum(rounds), 2), time.perf_counter() - begin


def format_report(host: Host, figures: tuple[dict[str, t.Any], dict[str, t.Any]]) -> list[str]:
    """Return what was done, figures before and after, and what could not be had, as lines."""
    rows = [("", "before", "after")]
    for key, (name, form) in FIGURES.items():
        cells = [form.format(found[key]) if isinstance(found.get(key), (int, float)) else "-" for found in figures]
        if cells != ["-", "-"]:
            rows.append((name, *cells))
    table = [f"{name:20}{before:>12}{after:>12}" for name, before, after in rows] if len(rows) > 1 else []
    return [*host.changed, *table, *(f"not done: {fault}" for fault in host.faults)]


def write(path: pathlib.Path, text: str, mode: int) -> None:
    """Write a file that appears whole, with its mode."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.chmod(mode)
    part.rename(path)


def main() -> int:
    """Do what was asked for, and report it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("wanted", nargs="?", type=json.loads, default={}, help="JSON: see above")
    parser.add_argument("--undo", action="store_true", help="have what was there before")
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"), help="where the host's files are")
    parser.add_argument("--systemctl", default="systemctl")
    parser.add_argument("--measure-s", type=float, default=10.0, help="seconds of each measurement")
    call = parser.parse_args()
    host = Host(call.root, call.check, call.systemctl, call.measure_s)
    if call.undo:
        figures = host.before, host.after  # which go with the rest
        host.undo()
    else:
        host.have(call.wanted)
        figures = host.before, host.after
    found = {"changed": host.changed, "faults": host.faults, "before": figures[0], "after": figures[1]}
    print(json.dumps({**found, "report": format_report(host, figures)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
