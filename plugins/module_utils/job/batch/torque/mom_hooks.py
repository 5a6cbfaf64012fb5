# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hooks in a MOM's `mom_priv`: ours put in the place of the site's, and the site's put back.

What Torque demands of a hook is in torque.md, "Exit codes": a regular file, root's, which root may read and run, not
writable by others; a link is followed, and what is missing or a dangling link is passed over.  Nothing of ours may be
called `prologue.X` there, since any user can have such a file run by root (`qsub -T X`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import shutil
import stat
import typing as t

from ....errors import SiteFault
from ..shared.mom_traces import SUFFIXES

HOOKS = ("prologue", "prologue.parallel", "epilogue", "epilogue.parallel")
OTHERS = frozenset(
    {*HOOKS, "prologue.user", "prologue.user.parallel", "epilogue.user", "epilogue.user.parallel", "epilogue.precancel"}
)
"""Names that Torque itself looks for; each other `prologue.X` is root's program for whoever says `qsub -T X`."""
OURS = b"plugin_utils.cli.hook"
MODE = 0o500
LINKS = ".links"
"""Within the kept hooks: links of the site as they were, to be put back as they were."""
LONGEST_WAY = 40
"""Links one after the other, of which the kernel follows no more (path_resolution(7))."""
AGAIN = "play it again when no job is on the node; pbsnodes -o keeps new ones away"


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Where hooks are.

    Attributes:
        mom_priv: Torque's directory of the MOM.
        chained_dir: where the site's own hooks are kept, and run from.
        owner_uid: whose everything must be.
    """

    mom_priv: pathlib.Path
    chained_dir: pathlib.Path
    owner_uid: int = 0

    def link(self, name: str) -> pathlib.Path:
        """Where a link of the site's is kept as it was."""
        return self.chained_dir / LINKS / name


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What was done, or would be.

    Attributes:
        before: for each hook what it was, in words.
        after: the same afterwards.
        others: files that any user can have run by root.
        left: hooks of the site that were kept and not put back, because another one has come into their place.
    """

    before: dict[str, str]
    after: dict[str, str]
    others: tuple[str, ...]
    left: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything is different."""
        return self.before != self.after


def present(places: Places, text: bytes, *, check: bool = False) -> Outcome:
    """Put our hook under all four names; the site's own are kept first, byte for byte and mode for mode.

    At every moment each name has a whole hook, the site's or ours; a run that was interrupted is finished by the next.

    Args:
        places: where.
        text: our hook.
        check: only say what would be done.

    Raises:
        SiteFault: something is not as Torque or we need it; nothing was changed then.
    """
    _check_directory(places.mom_priv, places.owner_uid)
    before = {name: _describe_hook(places, name) for name in HOOKS}
    ours = f"vTorque's, {MODE:04o}, {_digest(text)}"
    after: dict[str, str] = {}
    to_keep = [name for name in HOOKS if os.path.lexists(path := places.mom_priv / name) and not is_vtorque_hook(path)]
    _check_hooks(places, to_keep)
    for name in HOOKS:
        path = places.mom_priv / name
        before_words = _describe_chained(places, name)
        if name in to_keep:
            before_words = before_words or _describe_content(path)
        after[name] = f"{ours}; the site's is kept: {before_words}" if before_words else ours
    outcome = Outcome(before, after, others(places.mom_priv))
    if outcome.changed:
        _check_idle(places.mom_priv)
    if check or not outcome.changed:
        return outcome
    with _report_errors(places.chained_dir):
        _make_directory(places.chained_dir, places.owner_uid)
        for name in to_keep:
            _save_site_hook(places, name)
        for name in HOOKS:
            if before[name] != after[name]:
                _put(places.mom_priv / name, text, MODE, places.owner_uid)
        _flush(places.mom_priv)
    return outcome


def absent(places: Places, *, check: bool = False) -> Outcome:
    """Take our hooks away, and put the site's own back: content, mode, owner and time, links as links.

    A hook that was put in our place since is the site's newest word, and stays.

    Args:
        places: where.
        check: only say what would be done.

    Raises:
        SiteFault: a job is on the node, or a directory is not as it must be; nothing was changed then.
    """
    if not os.path.lexists(places.mom_priv) and not any(_describe_chained(places, name) for name in HOOKS):
        return Outcome({}, {}, ())
    _check_directory(places.mom_priv, places.owner_uid)
    before = {name: _describe_hook(places, name) for name in HOOKS}
    after: dict[str, str] = {}
    left: list[str] = []
    for name in HOOKS:
        path = places.mom_priv / name
        before_words = _describe_chained(places, name)
        if is_vtorque_hook(path) or not os.path.lexists(path):
            after[name] = before_words or "missing"
        else:
            after[name] = now = _describe_content(path)
            if before_words not in ("", now):
                left.append(name)
                after[name] += f"; the site's is kept: {before_words}"
    outcome = Outcome(before, after, others(places.mom_priv), tuple(left))
    if outcome.changed:
        _check_idle(places.mom_priv)
    if check or not outcome.changed:
        return outcome
    with _report_errors(places.mom_priv):
        for name in HOOKS:
            if name not in left:
                _put_back(places, name)
        _flush(places.mom_priv)
        for directory in (places.chained_dir / LINKS, places.chained_dir):
            with contextlib.suppress(OSError):
                directory.rmdir()  # what is in it is not ours to remove
    return outcome


def others(mom_priv: pathlib.Path) -> tuple[str, ...]:
    """Files that root runs for any user who says `qsub -T` and the end of their name."""
    found = [path.name for pattern in ("prologue.*", "epilogue.*") for path in mom_priv.glob(pattern)]
    return tuple(sorted(name for name in found if name not in OTHERS))


def jobs(mom_priv: pathlib.Path) -> tuple[str, ...]:
    """Job files of the MOM: what it has on this node.

    Raises:
        SiteFault: the directory cannot be read.
    """
    directory = mom_priv / "jobs"
    try:
        return tuple(sorted(path.name for path in directory.iterdir() if path.name.endswith(SUFFIXES)))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise SiteFault(f"{directory}", f"what the MOM has here is not known: {error.strerror}") from error


def is_vtorque_hook(path: pathlib.Path) -> bool:
    """Return whether this is a hook of ours, of whatever version."""
    try:
        return stat.S_ISREG(path.lstat().st_mode) and OURS in path.read_bytes()[:65_536]
    except OSError:
        return False


def _check_directory(path: pathlib.Path, owner_uid: int) -> None:
    hint = "vtorque_torque_home (torque_home in vtorque.yml) names where Torque is"
    try:
        facts = path.lstat()
    except OSError as error:
        raise SiteFault(f"{path}", f"no MOM of Torque is here: {error.strerror}", hint) from error
    if stat.S_ISLNK(facts.st_mode):
        raise SiteFault(f"{path}", f"is a link to {path.readlink()}: hooks are not placed through it", hint)
    if not stat.S_ISDIR(facts.st_mode):
        raise SiteFault(f"{path}", "is no directory", hint)
    if facts.st_uid != owner_uid or facts.st_mode & 0o022:
        mode = stat.S_IMODE(facts.st_mode)
        why = f"could be changed by others than root (owner {facts.st_uid}, mode {mode:04o})"
        raise SiteFault(f"{path}", why, "give it to root alone, with mode 0751 or 0755")


def _check_idle(mom_priv: pathlib.Path) -> None:
    there = jobs(mom_priv)
    if there:
        raise SiteFault(f"a job is on this node ({there[0]})", "hooks are not changed under it", AGAIN)


def _check_hooks(places: Places, names: t.Sequence[str]) -> None:
    faults: list[SiteFault] = []
    for name in names:
        try:
            _check_hook(places, name)
        except SiteFault as fault:
            faults.append(fault)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise SiteFault("hooks of the site", "; ".join(map(str, faults)))


def _check_hook(places: Places, name: str) -> None:
    """Check that a hook of the site's may be kept and chained.

    What Torque itself would not run, we shall not either.
    """
    path = places.mom_priv / name
    chained = places.chained_dir / name
    if os.path.lexists(chained) and _as_found(places, name) != _describe_content(path):
        raise SiteFault(f"{path}", f"is another hook than {chained}, which was kept before", "remove one of them")
    try:
        facts = path.stat()
    except OSError:
        return  # a dangling link, which Torque passes over
    if not stat.S_ISREG(facts.st_mode):
        raise SiteFault(f"{path}", "is no file: Torque cannot run it", "move it away")
    mode = stat.S_IMODE(facts.st_mode)
    if facts.st_uid != places.owner_uid or mode & 0o022 or mode & 0o500 != 0o500:
        why = f"Torque does not run such a hook (owner {facts.st_uid}, mode {mode:04o}), and neither would vTorque"
        raise SiteFault(f"{path}", why, "give it to root with mode 0500, or move it away")


def _save_site_hook(places: Places, name: str) -> None:
    path, chained = places.mom_priv / name, places.chained_dir / name
    if os.path.lexists(chained):
        return  # an earlier run got this far
    if not path.is_symlink():
        _copy(path, chained)
        return
    _make_directory(places.chained_dir / LINKS, places.owner_uid)
    _relink(places.link(name), os.fspath(path.readlink()))
    # where it leads, seen from another directory; a hook that is ours now is called where it is kept: else ours would
    # call itself for ever
    _relink(chained, _hook_behind(path, places.mom_priv) or os.fspath(places.mom_priv / path.readlink()))


def _hook_behind(path: pathlib.Path, mom_priv: pathlib.Path) -> str:
    """Which hook of `mom_priv` a link leads to, at its end or on the way; "" when it leads elsewhere."""
    home = os.path.realpath(mom_priv)
    for _hop in range(LONGEST_WAY):
        if not path.is_symlink():
            break
        target = path.parent / path.readlink()
        path = pathlib.Path(os.path.realpath(target.parent), target.name)
        if os.fspath(path.parent) == home and path.name in HOOKS:
            return path.name
    return ""


def _put_back(places: Places, name: str) -> None:
    path, chained, link = places.mom_priv / name, places.chained_dir / name, places.link(name)
    if is_vtorque_hook(path) or not os.path.lexists(path):
        if chained.is_symlink():
            was_link = link.is_symlink()  # else it is one that the site made since
            _relink(path, os.fspath(link.readlink() if was_link else places.chained_dir / chained.readlink()))
        elif os.path.lexists(chained):
            _copy(chained, path)
        else:
            path.unlink(missing_ok=True)
    _flush(places.mom_priv)
    for done in (chained, link):
        done.unlink(missing_ok=True)


def _describe_hook(places: Places, name: str) -> str:
    path = places.mom_priv / name
    chained = _describe_chained(places, name)
    if is_vtorque_hook(path):
        facts = path.stat()
        # a hook that is not root's, or may be changed by others, is put anew
        whose = "" if facts.st_uid == places.owner_uid else f" of {facts.st_uid}"
        description = f"vTorque's{whose}, {stat.S_IMODE(facts.st_mode):04o}, {_digest(path.read_bytes())}"
    else:
        description = _describe_content(path)
    return f"{description}; the site's is kept: {chained}" if chained else description


def _describe_chained(places: Places, name: str) -> str:
    return _as_found(places, name) if os.path.lexists(places.chained_dir / name) else ""


def _as_found(places: Places, name: str) -> str:
    as_link = (places.chained_dir / name).is_symlink() and places.link(name).is_symlink()
    return _describe_content(places.link(name) if as_link else places.chained_dir / name)


def _describe_content(path: pathlib.Path) -> str:
    try:
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            return f"a link to {path.readlink()}"
        if not stat.S_ISREG(facts.st_mode):
            return "no file"
        return f"the site's, {stat.S_IMODE(facts.st_mode):04o}, {_digest(path.read_bytes())}"
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        raise SiteFault(f"{path}", f"cannot be read: {error.strerror}") from error


def _digest(content: bytes) -> str:
    return f"sha256 {hashlib.sha256(content).hexdigest()[:16]}"


def _make_directory(path: pathlib.Path, owner_uid: int) -> None:
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    _check_directory(path, owner_uid)


def _beside(path: pathlib.Path) -> pathlib.Path:
    """A name that Torque never runs, whatever a user says."""
    new = path.with_name(f".vtorque-{path.name}")
    new.unlink(missing_ok=True)
    return new


def _put(path: pathlib.Path, content: bytes, mode: int, owner_uid: int) -> None:
    new = _beside(path)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)
        os.fchown(file.fileno(), owner_uid, -1)
        os.fchmod(file.fileno(), mode)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _copy(source: pathlib.Path, path: pathlib.Path) -> None:
    """A file as it is: content, mode, owner, time and extended attributes; or a link of the site's, as it is."""
    new = _beside(path)
    shutil.copy2(source, new, follow_symlinks=False)
    facts = source.lstat()
    os.chown(new, facts.st_uid, facts.st_gid, follow_symlinks=False)
    if not new.is_symlink():
        new.chmod(stat.S_IMODE(facts.st_mode))
        with new.open("rb") as file:
            os.fsync(file.fileno())
    new.replace(path)
    _flush(path.parent)


def _relink(path: pathlib.Path, target: str) -> None:
    new = _beside(path)
    new.symlink_to(target)
    new.replace(path)


def _flush(directory: pathlib.Path) -> None:
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(held)
    finally:
        os.close(held)


@contextlib.contextmanager
def _report_errors(place: pathlib.Path) -> t.Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SiteFault(f"hooks at {place}", f"{error}", "what was done so far is whole; play it again") from error
