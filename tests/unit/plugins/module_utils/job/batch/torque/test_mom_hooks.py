# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site's hooks give way to ours, and come back as they were."""

from __future__ import annotations

import os
import pathlib
import stat
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import mom_hooks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque.mom_hooks import HOOKS, Places
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

TEXT = templates.render("batch/torque/hook.sh.j2", site_dir=None, prefix="/opt/v", site_hooks="/etc/v").encode()
NEWER = TEXT + b"# newer\n"


@pytest.fixture
def places(tmp_path: pathlib.Path) -> Places:
    mom_priv = tmp_path / "mom_priv"
    (mom_priv / "jobs").mkdir(parents=True)
    mom_priv.chmod(0o751)
    return Places(mom_priv, tmp_path / "site-hooks", os.getuid())


def hook(path: pathlib.Path, text: str = "#!/bin/sh\nexit 0\n", mode: int = 0o755) -> None:
    path.write_text(text)
    path.chmod(mode)
    os.utime(path, (1_000_000_000, 1_000_000_000))


def tree(directory: pathlib.Path) -> dict[str, tuple[t.Any, ...]]:
    """Everything about what is there that could be put back wrongly."""
    found: dict[str, tuple[t.Any, ...]] = {}
    for path in sorted(directory.rglob("*")):
        facts = path.lstat()
        if path.is_symlink():
            found[path.name] = ("link", os.readlink(path))
        elif path.is_file():
            mode = stat.S_IMODE(facts.st_mode)
            found[path.name] = (path.read_bytes(), mode, facts.st_uid, facts.st_gid, int(facts.st_mtime))
    return found


def furnish(places: Places) -> None:
    """A site with every kind of hook."""
    hook(places.mom_priv / "prologue", "#!/bin/sh\necho the site\n", 0o544)
    hook(places.mom_priv.parent / "of-all", "#!/bin/sh\necho shared\n")
    (places.mom_priv / "epilogue").symlink_to("../of-all")
    (places.mom_priv / "prologue.parallel").symlink_to("prologue")
    (places.mom_priv / "epilogue.parallel").symlink_to("nowhere")
    hook(places.mom_priv / "prologue.user")
    (places.mom_priv / "config").write_text("$logevent 255")


def test_ours_is_under_all_names_and_root_s_alone(places: Places) -> None:
    outcome = mom_hooks.present(places, TEXT)
    assert outcome.changed
    assert set(outcome.before.values()) == {"missing"}
    for name in HOOKS:
        path = places.mom_priv / name
        assert path.read_bytes() == TEXT
        assert stat.S_IMODE(path.lstat().st_mode) == 0o500
    assert sorted(path.name for path in places.mom_priv.iterdir()) == sorted([*HOOKS, "jobs"])


def test_the_second_time_nothing_changes(places: Places) -> None:
    furnish(places)
    mom_hooks.present(places, TEXT)
    was = tree(places.mom_priv.parent)
    outcome = mom_hooks.present(places, TEXT)
    assert not outcome.changed
    assert outcome.before == outcome.after
    assert tree(places.mom_priv.parent) == was


def test_what_would_be_done_is_what_is_done(places: Places) -> None:
    furnish(places)
    was = tree(places.mom_priv.parent)
    report = mom_hooks.present(places, TEXT, check=True)
    assert tree(places.mom_priv.parent) == was
    assert mom_hooks.present(places, TEXT) == report
    assert mom_hooks.present(places, TEXT).before == report.after
    report = mom_hooks.absent(places, check=True)
    assert mom_hooks.absent(places) == report
    assert mom_hooks.absent(places).before == report.after


@pytest.mark.parametrize("times", [1, 2])
def test_all_comes_back_as_it_was(places: Places, times: int) -> None:
    furnish(places)
    was = tree(places.mom_priv.parent)
    for _turn in range(times):
        mom_hooks.present(places, TEXT)
        mom_hooks.present(places, NEWER)
        assert mom_hooks.absent(places).changed
        assert tree(places.mom_priv.parent) == was
        assert not places.chained_dir.exists()
        assert not mom_hooks.absent(places).changed


def test_the_site_s_hooks_can_be_run_from_where_they_are_kept(places: Places) -> None:
    furnish(places)
    mom_hooks.present(places, TEXT)
    assert (places.chained_dir / "prologue").read_text() == "#!/bin/sh\necho the site\n"
    assert stat.S_IMODE((places.chained_dir / "prologue").stat().st_mode) == 0o544
    assert (places.chained_dir / "epilogue").read_text() == "#!/bin/sh\necho shared\n"
    # a link to what is ours now would run in a circle
    assert (places.chained_dir / "prologue.parallel").read_text() == "#!/bin/sh\necho the site\n"
    assert not (places.chained_dir / "epilogue.parallel").exists()
    assert not (places.chained_dir / "prologue.user").exists()
    assert (places.mom_priv / "prologue.user").exists()


@pytest.mark.parametrize("way", ["epilogue", "../elsewhere", "../mom_priv/epilogue"])
def test_links_by_way_of_a_hook_that_is_a_link_itself_do_not_come_back_to_us(places: Places, way: str) -> None:
    hook(places.mom_priv.parent / "of-all", "#!/bin/sh\necho shared\n")
    (places.mom_priv.parent / "elsewhere").symlink_to(places.mom_priv / "epilogue")
    (places.mom_priv / "epilogue").symlink_to("../of-all")
    (places.mom_priv / "epilogue.parallel").symlink_to(way)
    was = tree(places.mom_priv.parent)
    mom_hooks.present(places, TEXT)
    assert (places.mom_priv / "epilogue").read_bytes() == TEXT
    assert (places.chained_dir / "epilogue.parallel").read_text() == "#!/bin/sh\necho shared\n"
    mom_hooks.absent(places)
    assert tree(places.mom_priv.parent) == was


def test_a_newer_one_of_ours_is_not_taken_for_the_site_s(places: Places) -> None:
    mom_hooks.present(places, TEXT)
    assert mom_hooks.present(places, NEWER).changed
    assert (places.mom_priv / "prologue").read_bytes() == NEWER
    assert list(places.chained_dir.iterdir()) == []


def test_wrong_modes_of_ours_are_mended(places: Places) -> None:
    mom_hooks.present(places, TEXT)
    (places.mom_priv / "epilogue").chmod(0o777)
    assert mom_hooks.present(places, TEXT).changed
    assert stat.S_IMODE((places.mom_priv / "epilogue").stat().st_mode) == 0o500


def test_a_run_that_ended_between_keeping_and_putting_is_finished(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(places)
    was = tree(places.mom_priv.parent)
    put, count = mom_hooks._put, iter(range(9))

    def full(*arguments: t.Any) -> None:
        if next(count) == 2:
            raise OSError(28, "No space left on device")
        put(*arguments)

    monkeypatch.setattr(mom_hooks, "_put", full)
    with pytest.raises(SiteFault, match="No space left"):
        mom_hooks.present(places, TEXT)
    monkeypatch.undo()
    assert mom_hooks.present(places, TEXT).changed
    assert all((places.mom_priv / name).read_bytes() == TEXT for name in HOOKS)
    mom_hooks.absent(places)
    assert tree(places.mom_priv.parent) == was


def test_a_hook_that_was_changed_where_it_is_kept_comes_back_changed(places: Places) -> None:
    furnish(places)
    mom_hooks.present(places, TEXT)
    (places.chained_dir / "prologue").write_text("#!/bin/sh\necho newer\n")
    (places.chained_dir / "epilogue").unlink()
    hook(places.chained_dir / "epilogue", "#!/bin/sh\necho no link any more\n")
    mom_hooks.absent(places)
    assert (places.mom_priv / "prologue").read_text() == "#!/bin/sh\necho newer\n"
    assert (places.mom_priv / "epilogue").read_text() == "#!/bin/sh\necho no link any more\n"
    assert not (places.mom_priv / "epilogue").is_symlink()


def test_a_hook_that_the_site_put_over_ours_stays(places: Places) -> None:
    furnish(places)
    mom_hooks.present(places, TEXT)
    (places.mom_priv / "prologue").unlink()
    hook(places.mom_priv / "prologue", "#!/bin/sh\necho another\n")
    with pytest.raises(SiteFault, match="is another hook than"):
        mom_hooks.present(places, TEXT)
    outcome = mom_hooks.absent(places)
    assert outcome.left == ("prologue",)
    assert (places.mom_priv / "prologue").read_text() == "#!/bin/sh\necho another\n"
    assert (places.chained_dir / "prologue").read_text() == "#!/bin/sh\necho the site\n"


@pytest.mark.parametrize("job", ["4711.head.SC", "72-1.head.JB", "9.head.TK"])
def test_nothing_is_changed_while_a_job_is_here(places: Places, job: str) -> None:
    furnish(places)
    (places.mom_priv / "jobs" / job).touch()
    was = tree(places.mom_priv.parent)
    for check in (True, False):
        with pytest.raises(SiteFault, match="a job is on this node"):
            mom_hooks.present(places, TEXT, check=check)
    assert tree(places.mom_priv.parent) == was
    (places.mom_priv / "jobs" / job).unlink()
    mom_hooks.present(places, TEXT)
    (places.mom_priv / "jobs" / job).touch()
    assert not mom_hooks.present(places, TEXT).changed  # nothing to do is done at any time
    with pytest.raises(SiteFault, match="a job is on this node"):
        mom_hooks.absent(places)


def test_all_hooks_that_torque_would_not_run_are_named_at_once(places: Places) -> None:
    hook(places.mom_priv / "prologue", mode=0o775)
    (places.mom_priv / "epilogue").mkdir()
    was = tree(places.mom_priv.parent)
    with pytest.raises(SiteFault) as report:
        mom_hooks.present(places, TEXT, check=True)
    assert "/prologue: Torque does not run such a hook" in str(report.value)
    assert "/epilogue: is no file" in str(report.value)
    assert tree(places.mom_priv.parent) == was


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: p.chmod(0o775), "Torque does not run such a hook"),
        (lambda p: p.chmod(0o644), "Torque does not run such a hook"),
        (lambda p: (p.unlink(), p.mkdir()), "is no file"),
    ],
)
def test_a_hook_that_torque_would_not_run_is_refused(
    places: Places, spoil: t.Callable[[pathlib.Path], t.Any], message: str
) -> None:
    hook(places.mom_priv / "epilogue")
    hook(places.mom_priv / "prologue")
    spoil(places.mom_priv / "epilogue")
    was = tree(places.mom_priv.parent)
    with pytest.raises(SiteFault, match=message):
        mom_hooks.present(places, TEXT)
    assert tree(places.mom_priv.parent) == was


def test_a_directory_that_others_may_write_or_that_is_a_link_is_refused(places: Places) -> None:
    places.mom_priv.chmod(0o777)
    with pytest.raises(SiteFault, match="could be changed by others"):
        mom_hooks.present(places, TEXT)
    places.mom_priv.chmod(0o751)
    link = places.mom_priv.with_name("link")
    link.symlink_to("mom_priv")
    with pytest.raises(SiteFault, match="is a link to mom_priv"):
        mom_hooks.present(Places(link, places.chained_dir, places.owner_uid), TEXT)
    with pytest.raises(SiteFault, match="no MOM of Torque is here"):
        mom_hooks.present(Places(places.chained_dir, places.chained_dir, places.owner_uid), TEXT)


def test_strays_are_named_and_left(places: Places) -> None:
    hook(places.mom_priv / "prologue.orig")
    hook(places.mom_priv / "epilogue.precancel")
    assert mom_hooks.present(places, TEXT).others == ("prologue.orig",)
    assert (places.mom_priv / "prologue.orig").exists()


def test_nothing_to_take_away_is_no_change(tmp_path: pathlib.Path) -> None:
    assert not mom_hooks.absent(Places(tmp_path / "none", tmp_path / "kept", os.getuid())).changed
