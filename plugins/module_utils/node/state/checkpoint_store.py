# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints of jobs, in a directory of the site's that all nodes share (`checkpoint_dir`).

    <store>/<job>/                root 0700; the job is spelled as in the keys of starts, without the start
        <generation>.new/         what is being written; nobody ever begins from it
        <generation>/             committed, by its name
            manifest.json         root 0400: whose it is, of what, with the keys of the start
            <guest>/              its directory on its node, its memory as `memory`, and `files.json`: size and SHA-256

A guest of a committed checkpoint keeps its name and its MAC address, wherever the job begins again: while it is here,
its node gives neither to anybody else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import time
import typing as t

from ...errors import CheckpointFault, SiteFault, VTorqueError
from ...state.layout import job_key
from ...system import files
from ...system.clock import Deadline
from ...system.process.environment import ROOT_ENVIRONMENT
from . import saved_memory
from .settings import NodeSettings

MANIFEST, FILES, MEMORY, PROCESSOR = "manifest.json", "files.json", "memory", "processor"
NEW = ".new"
PARKED = "parked"
"""In the directory of a job that its owner has suspended: which start that was, whose it is, and since when."""
RETURNED = "returned"
"""In the directory of a guest that has returned from a checkpoint: what is done before a job was done then."""
NAMES = "checkpoint-names.json"
"""In `state_dir` of a node: names of the guests of checkpoints, as they were when `checkpoint_dir` was there."""
VERSION = 1
GENERATIONS = 2
"""So many are there at most; the older one is what a start begins from where the newer one cannot be read."""
LIMIT = 1 << 23
"""Bytes of a manifest."""
CP = "/bin/cp"
LEFT_OUT = ("console.log", "domain.xml", "told", "cores.json", RETURNED)
"""Files of a guest's directory that its return does not need, or that were true of its former node alone: which
cores it had there (`placement/claims.py`)."""


def job_dir(store: pathlib.Path, job_id: str) -> pathlib.Path:
    """Return where the checkpoints of a job are.

    Args:
        store: the site's `checkpoint_dir`.
        job_id: of the job.
    """
    return store / job_key(job_id, 0).removesuffix(".0")


def generations(store: pathlib.Path, job_id: str) -> tuple[int, ...]:
    """Return the committed checkpoints of a job, the newest first.

    Raises:
        SiteFault: the store cannot be read.
    """
    place = job_dir(store, job_id)
    try:
        names = [path.name for path in place.iterdir()]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise SiteFault(f"the checkpoints of job {job_id} in {store}", str(error), "see checkpoint_dir") from error
    return tuple(sorted((int(name) for name in names if re.fullmatch(r"[1-9][0-9]{0,8}", name)), reverse=True))


def used_names(store: pathlib.Path, job_id: str = "") -> frozenset[str]:
    """Return the names of the guests of all checkpoints, which no other guest may have.

    Args:
        store: the site's `checkpoint_dir`.
        job_id: of a job whose own do not count.

    Raises:
        SiteFault: the store cannot be read, so that nobody knows which names are free.
    """
    own = job_dir(store, job_id) if job_id else None
    try:
        generations_of = [path for job in store.iterdir() if job != own for path in _directories(job)]
        return frozenset(guest.name for generation in generations_of for guest in _directories(generation))
    except FileNotFoundError:  # of the store alone
        return frozenset()
    except OSError as error:
        raise SiteFault(f"the checkpoints in {store}", str(error), "see checkpoint_dir") from error


def find_used_names(settings: NodeSettings) -> frozenset[str]:
    """Return the names that a new guest of this node must not have, because guests of checkpoints have them.

    A store that is not mounted holds no checkpoint: the names that were there before are used as well then.

    Args:
        settings: NodeSettings of this node.

    Raises:
        SiteFault: see `used_names`.
    """
    store = settings.checkpoint_dir
    if store is None:
        return frozenset()
    known = settings.state_dir / NAMES
    before: frozenset[str] = frozenset()
    with contextlib.suppress(OSError, VTorqueError, KeyError, TypeError):
        before = frozenset(map(str, files.read_json(known)["names"]))
    names = used_names(store)
    if why_unsafe(store):
        return names | before
    if names != before:
        with contextlib.suppress(OSError, VTorqueError):  # those that were known before are better than none
            files.write(known, json.dumps({"names": sorted(names)}))
    return names


def _directories(place: pathlib.Path) -> list[pathlib.Path]:
    """The directories in a directory; what a node removes meanwhile has none, and beside them are marks."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [path for path in place.iterdir() if path.is_dir()]
    return []


def save_guest(guest: pathlib.Path, place: pathlib.Path, deadline: Deadline) -> None:
    """Copy a guest that is on this node's disk into a checkpoint that is being written.

    Args:
        guest: its directory, with all of its memory.
        place: the checkpoint's directory of the guest; it is made.
        deadline: when it must be done.

    Raises:
        VTorqueError: it was not copied.
    """
    if not saved_memory.is_complete(guest):
        raise VTorqueError(f"the checkpoint of guest {guest.name}", "its memory is not on the disk")
    try:
        for directory in (place.parent.parent, place.parent):
            directory.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700)
        own = [path for path in guest.iterdir() if path.is_file() and path.name not in LEFT_OUT]
        found: dict[str, tuple[int, str]] = {}
        for path, name in [*((path, path.name) for path in own), (saved_memory.memory_file(guest), MEMORY)]:
            copy_file(path, place / name, deadline)
            found[name] = ((place / name).stat().st_size, digest_of(place / name))
        files.write(place / PROCESSOR, read_processor())
        found[PROCESSOR] = ((place / PROCESSOR).stat().st_size, digest_of(place / PROCESSOR))
        files.write(place / FILES, json.dumps(found))
    except OSError as error:
        raise VTorqueError(f"the checkpoint of guest {guest.name}", str(error)) from error


def bring_guest(place: pathlib.Path, digest: str, guest: pathlib.Path, deadline: Deadline) -> None:
    """Copy a guest of a checkpoint to its directory on this node, and its memory to where `saved_memory` has it.

    Args:
        place: the checkpoint's directory of the guest.
        digest: of its `files.json`, as the manifest has it.
        guest: its directory here, which is there and empty.
        deadline: when it must be done.

    Raises:
        CheckpointFault: it is not what was saved.
        VTorqueError: it was not copied.
    """
    what = f"the checkpoint of guest {place.name}"
    try:
        if digest_of(place / FILES) != digest:
            raise CheckpointFault(what, f"{place / FILES} is not what was saved")
        (guest / saved_memory.DIRECTORY).mkdir(mode=0o700)
        for name, (size, wanted) in files.read_json(place / FILES).items():
            target = saved_memory.memory_file(guest) if name == MEMORY else guest / pathlib.PurePath(name).name
            copy_file(place / name, target, deadline)
            if target.stat().st_size != size or digest_of(target) != wanted:
                raise CheckpointFault(what, f"{place / name} is not what was saved")
    except OSError as error:
        raise VTorqueError(what, str(error)) from error


def check_files(place: pathlib.Path, digest: str, names: t.Iterable[str]) -> None:
    """Check that these files of a guest of a checkpoint are what was saved, before they are read.

    Args:
        place: the checkpoint's directory of the guest.
        digest: of its `files.json`, as the manifest has it.
        names: of the files.

    Raises:
        CheckpointFault: they are not.
        OSError: one is not there.
    """
    what = f"the checkpoint of guest {place.name}"
    if digest_of(place / FILES) != digest:
        raise CheckpointFault(what, f"{place / FILES} is not what was saved")
    known = files.read_json(place / FILES)
    for name in names:
        if name not in known or digest_of(place / name) != known[name][1]:
            raise CheckpointFault(what, f"{place / name} is not what was saved")


def read_processor(cpuinfo: pathlib.Path = pathlib.Path("/proc/cpuinfo")) -> str:
    """Return which processor this node has, and what it can do: a guest under KVM has the same, or cannot go on.

    Args:
        cpuinfo: of the kernel.
    """
    facts = dict(line.split(":", 1) for line in cpuinfo.read_text("utf-8").splitlines() if ":" in line)
    wanted = {name.strip(): value for name, value in facts.items()}
    return "".join(f"{name}:{wanted.get(name, '')}\n" for name in ("model name", "flags", "CPU part", "Features"))


def copy_file(source: pathlib.Path, target: pathlib.Path, deadline: Deadline) -> None:
    """Copy a file, in no time where the file system shares blocks, and as sparse as it is.

    Raises:
        VTorqueError: it was not copied.
    """
    call = [CP, "--reflink=auto", "--sparse=always", "--", str(source), str(target)]
    try:
        done = subprocess.run(
            call,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=ROOT_ENVIRONMENT,
            timeout=deadline.left_s(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise VTorqueError(f"the copy of {source}", "was not done in time") from None
    if done.returncode != 0:
        raise VTorqueError(f"the copy of {source}", done.stderr.decode(errors="replace").strip()[-200:])
    target.chmod(0o600)


def digest_of(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def commit(store: pathlib.Path, job_id: str, generation: int, manifest: t.Mapping[str, t.Any]) -> None:
    """Make a checkpoint that is written whole the newest of its job; the oldest goes.

    Args:
        store: the site's `checkpoint_dir`.
        job_id: of the job.
        generation: its number.
        manifest: what a start begins from; its digest is added.

    Raises:
        OSError: it is not committed.
        VTorqueError: it is not committed.
    """
    place = job_dir(store, job_id)
    new = place / f"{generation}{NEW}"
    text = json.dumps(dict(manifest), sort_keys=True)
    files.write(new / MANIFEST, json.dumps({"digest": hashlib.sha256(text.encode()).hexdigest(), "manifest": text}))
    os.sync()
    new.rename(place / str(generation))
    for old in generations(store, job_id)[GENERATIONS:]:
        shutil.rmtree(place / str(old), ignore_errors=True)


def read_manifest(store: pathlib.Path, job_id: str, generation: int) -> dict[str, t.Any]:
    """Return the manifest of a checkpoint.

    Raises:
        VTorqueError: it is not what was committed, or of another job.
    """
    what = f"checkpoint {generation} of job {job_id}"
    try:
        data = files.read_json(job_dir(store, job_id) / str(generation) / MANIFEST, limit=LIMIT)
        text = data["manifest"]
        if hashlib.sha256(text.encode()).hexdigest() != data["digest"]:
            raise VTorqueError(what, "its manifest is not what was committed")
        manifest: dict[str, t.Any] = json.loads(text)
    except (OSError, KeyError, AttributeError, ValueError) as error:
        raise VTorqueError(what, f"its manifest cannot be read: {error}") from error
    if manifest.get("version") != VERSION or manifest.get("job_id") != job_id:
        raise VTorqueError(what, f"its manifest is of job {str(manifest.get('job_id'))[:80]}")
    return manifest


def mark_parked(store: pathlib.Path, job_id: str, start: int, user: str, *, failed: bool = False) -> None:
    """Note that a job rests in its newest checkpoint from now on, or that it could not be ended for that.

    Args:
        store: the site's `checkpoint_dir`.
        job_id: of the job.
        start: which ends with it.
        user: whose job it is.
        failed: it goes on.

    Raises:
        VTorqueError: it was not noted.
    """
    note = {"start": start, "user": user, "since": round(time.time(), 3), "failed": failed}
    files.write(job_dir(store, job_id) / PARKED, json.dumps(note))


def read_parked(store: pathlib.Path, job_id: str) -> dict[str, t.Any]:
    """Return what `mark_parked` noted last; {}: nothing that can be read."""
    with contextlib.suppress(OSError, VTorqueError):
        return files.read_json(job_dir(store, job_id) / PARKED)
    return {}


def forget_parked(store: pathlib.Path, job_id: str) -> None:
    """The job begins again: it does not rest any more.  That is for people, and no reason to begin nothing."""
    with contextlib.suppress(OSError):
        (job_dir(store, job_id) / PARKED).unlink(missing_ok=True)


def drop_new(store: pathlib.Path, job_id: str) -> None:
    """Remove what was begun and not committed."""
    for path in job_dir(store, job_id).glob(f"*{NEW}"):
        shutil.rmtree(path, ignore_errors=True)


def forget(store: pathlib.Path, job_id: str) -> bool:
    """Remove all checkpoints of a job; returns whether there were any.

    Raises:
        OSError: they cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(job_dir(store, job_id))
        return True
    return False


def why_unsafe(store: pathlib.Path) -> str:
    """Return why nothing may be saved in a directory, or begun from there: it holds the memory of users; "": it may."""
    try:
        facts = store.lstat()
    except OSError as error:
        return f"{store}: {error.strerror}"
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        return f"{store} is no directory of root's with mode 0700"
    return ""
