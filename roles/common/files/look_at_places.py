# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the places of an installation are good: local, writable, roomy and root's alone.  Nothing is changed.

Runs on the host, with the Python that Ansible found.  Writes one line of JSON: `faults`, sentences of what is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import select
import signal
import stat
import typing as t

TIMEOUT_S = 15
"""For a look at one place: whoever asks a file server that is away waits for ever."""
SHARED = re.compile(
    r"(9p|acfs|afs|beegfs.*|ceph|cifs|coda|fuse\..*|fuse|fhgfs|gfs2?|glusterfs|gpfs|lustre|ncpfs|nfs.*|ocfs2|orangefs"
    r"|panfs|pvfs2|smb.*|wekafs)"
)
"""File systems that wait for a server, or that more than one host sees."""

Place = t.Dict[str, t.Any]


def mount_of(directory: pathlib.Path) -> tuple[str, str]:
    """Where the file system of a directory is mounted, and its kind; proc(5) tells it by the mount's number."""
    held = os.open(directory, os.O_PATH)
    try:
        facts = pathlib.Path(f"/proc/self/fdinfo/{held}").read_text(encoding="ascii")
    finally:
        os.close(held)
    number = re.search(r"(?m)^mnt_id:\s*(\d+)", facts)
    for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        left, _dash, right = line.partition(" - ")
        fields = left.split()
        if number and fields[0] == number[1]:
            return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]), right.split()[0]
    return str(directory), "unknown"


def deepest(path: pathlib.Path) -> pathlib.Path:
    """The directory in which something would have to be made first.

    Raises:
        OSError: it cannot be told, as below a mount whose server has gone, which is not what is not there.
    """
    while True:
        try:
            path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            path = path.parent
        else:
            return path


def could_change(path: pathlib.Path, facts: os.stat_result) -> str:
    """Who but root could change what is here, in words; "" when nobody can."""
    if facts.st_uid == 0 and not facts.st_mode & 0o022:
        return ""
    return f"{path} could be changed by others than root (owner {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o})"


def look(place: Place) -> dict[str, t.Any]:
    """What is wrong with a place, and what it would take of which file system."""
    path = pathlib.Path(place["path"])
    change = f"choose another place in {place['variable']}" if place.get("variable") else ""
    try:
        above = deepest(path)
    except OSError as error:
        remedy = f": see to what is mounted there{', or ' + change if change else ''}"
        return {"faults": [f"{path} cannot be looked at ({error.strerror}){remedy}"]}
    if not above.is_dir():
        return {"faults": [f"{path}: {above} is no directory"]}
    above = above.resolve()
    target, kind = mount_of(above)
    if place.get("local") and SHARED.fullmatch(kind):
        return {
            "faults": [
                f"{path} lies on {kind} ({target}), and hooks must not wait for a file server: choose a local place,"
                f" such as {place['variable']}=/usr/local/lib/vtorque"
            ]
        }
    if place.get("beside") and SHARED.fullmatch(kind):
        others = ", ".join(place["beside"])
        return {
            "faults": [
                f"{path} lies on {kind} ({target}), and {others} in this run may see it too, so that they would write"
                " the same files at once: play one after the other (-e install_serial=1)"
            ]
        }
    room = os.statvfs(above)
    faults = []
    if room.f_flag & os.ST_RDONLY:
        faults.append(f"{path}: {target} is mounted read-only: mount it writable{', or ' + change if change else ''}")
    if place.get("trusted"):
        # whoever may rename a directory above may put another in its place; in one like /tmp they may not
        chain = [(each, each.stat()) for each in (above, *above.parents)]
        bad = [could_change(each, facts) for each, facts in chain if each == above or not facts.st_mode & stat.S_ISVTX]
        fault = "; ".join(filter(None, bad))
        if fault:
            faults.append(f"{path}: {fault}, and root runs programs from there: give it to root alone, or {change}")
    need = {"bytes": int(place.get("room_bytes", 0)), "left": room.f_bavail * room.f_frsize, "mount": target}
    return {"faults": faults, "need": need, "path": str(path)}


def look_at_pool(place: Place) -> dict[str, t.Any]:
    """A pool of images is root's alone, or not there yet."""
    path, variable = pathlib.Path(place["path"]), place["variable"]
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return look({"path": str(path), "variable": variable})
    if not stat.S_ISDIR(facts.st_mode):
        kind = f"is a link to {path.readlink()}" if stat.S_ISLNK(facts.st_mode) else "is no directory"
        return {"faults": [f"{path} {kind}: {variable} must name the image pool itself"]}
    fault = could_change(path, facts)
    advice = (
        f"who may write images is root in every guest. It is not taken over: look at what is in it, then "
        f"chown root:root {path} and chmod go-w {path} yourself, or name another one in {variable}"
    )
    return {"faults": [f"{fault}: {advice}"] if fault else []}


def look_at_removal(place: Place) -> dict[str, t.Any]:
    """A pool whose images are to be removed is this host's own, or not there."""
    path = pathlib.Path(place["path"])
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return {"faults": []}
    if not stat.S_ISDIR(facts.st_mode):
        return {"faults": [f"{path} is no directory: {place['variable']} must name the image pool itself"]}
    target, kind = mount_of(path)
    if SHARED.fullmatch(kind):
        why = f"lies on {kind} ({target})"
    elif pathlib.Path(target) == path.resolve():
        why = f"is a file system of its own ({kind})"
    else:
        return {"faults": []}
    return {
        "faults": [
            f"{path} {why}, and other hosts may have guests of its images: play it without vtorque_remove_images,"
            " and remove them yourself when no host needs them"
        ]
    }


def look_at_program(place: Place) -> dict[str, t.Any]:
    """The site's qsub is there, can be run, and is not ours."""
    path, variable = pathlib.Path(place["path"]), place["variable"]
    if path.resolve().name == place["never"]:
        fault = f"leads to {place['never']} itself"
    elif not path.exists():
        fault = "is not there"
    elif not os.access(path, os.X_OK) or path.is_dir():
        fault = "cannot be run"
    else:
        return {"faults": []}
    return {"faults": [f"{path} {fault}: {variable} must name the site's own qsub"]}


def asked(place: Place) -> dict[str, t.Any]:
    """The answer of a process of its own, which can be ended when it waits."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(answer_of(place)))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as answer:
        if not select.select([answer], [], [], TIMEOUT_S)[0]:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, os.WNOHANG)  # one that waits for a file server is not gone yet
            return {"faults": [f"{place['path']}: no answer in {TIMEOUT_S} s: is a file server away?"]}
        text = answer.read()
    _pid, status = os.waitpid(process, 0)
    if status != 0:
        return {"faults": [f"{place['path']}: the process that looked at it was ended ({status})"]}
    found: dict[str, t.Any] = json.loads(text)
    return found


def answer_of(place: Place) -> dict[str, t.Any]:
    """What is to be said of a place."""
    kinds = {"pool": look_at_pool, "removal": look_at_removal, "never": look_at_program}
    how = [how for kind, how in kinds.items() if place.get(kind)] or [look]
    try:
        return how[0](place)
    except Exception as error:  # whatever it is, it belongs to this place
        return {"faults": [f"{place['path']}: {type(error).__name__}: {error}"]}


def short_of_room(needs: t.Iterable[tuple[str, dict[str, t.Any]]]) -> list[str]:
    """Which file systems have less left than all places on them need."""
    wanted: dict[str, list[tuple[str, int]]] = {}
    left: dict[str, int] = {}
    for path, need in needs:
        wanted.setdefault(need["mount"], []).append((path, need["bytes"]))
        left[need["mount"]] = need["left"]
    faults = []
    for mount, parts in wanted.items():
        total = sum(size for _path, size in parts)
        if left[mount] < total:
            needed = ", ".join(f"{path} {megabytes(size)}" for path, size in parts if size)
            faults.append(
                f"{mount} has {megabytes(left[mount])} left, and {megabytes(total)} are needed ({needed}): make room"
            )
    return faults


def megabytes(size: int) -> str:
    """A size for people."""
    return f"{size / 1e6:.0f} MB"


def main() -> None:
    """Look at all places, and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("places", type=json.loads)
    arguments = parser.parse_args()
    answers = [asked(place) for place in arguments.places]
    faults = [fault for answer in answers for fault in answer["faults"]]
    faults += short_of_room((answer["path"], answer["need"]) for answer in answers if "need" in answer)
    print(json.dumps({"faults": faults}))


if __name__ == "__main__":
    main()
