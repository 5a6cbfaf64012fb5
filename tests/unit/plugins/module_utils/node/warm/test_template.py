# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates of a node: published whole, void when they are old, and few."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import time
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.state.settings import NodeSettings
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.warm import key, template, tidying

DAY_S = 86_400.0


@pytest.fixture
def settings(tmp_path: pathlib.Path) -> NodeSettings:
    return NodeSettings(node_name="cn1", node_number=1, state_dir=tmp_path / "state", run_dir=tmp_path / "run")


def key_of(number: int) -> str:
    return f"{number:032x}"


def record_of(number: int, **changes: t.Any) -> template.Record:
    known = template.Record(
        form=key.FORM, key=key_of(number), image="tiny@1", vcpus=1, ram_mib=64, token="0" * 32, made=time.time(),
        seconds=1.0, memory_bytes=3, memory_sha256="", disk_sha256="", files={},
    )  # fmt: skip
    return dataclasses.replace(known, **changes)


def put(settings: NodeSettings, number: int, used_before_s: float = 0.0, **changes: t.Any) -> template.Template:
    with template.workplace(settings) as place:
        for name in (template.MEMORY, template.DISK, template.SEED):
            (place / name).write_bytes(b"abc")
        made = template.publish(place, record_of(number, **changes), settings)
    template.note_use(made)
    moment = time.time() - used_before_s
    os.utime(made.place / template.USED, (moment, moment))
    return made


def keys_of(settings: NodeSettings) -> list[str]:
    return sorted(path.name for path in settings.warm_dir.iterdir())


def test_template_is_roots_alone_and_found_by_its_key(settings: NodeSettings) -> None:
    made = put(settings, 1)
    assert template.find(key_of(1), settings) == made
    assert made.place.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in made.place.iterdir()} == {
        "record.json": 0o400, "mem": 0o600, "disk.qcow2": 0o600, "seed.iso": 0o600, "used": 0o600,
    }  # fmt: skip
    with pytest.raises(template.NoTemplate, match="no template of this shape"):
        template.find(key_of(2), settings)


@pytest.mark.parametrize(("age_days", "good"), [(0, True), (6.9, True), (7.1, False), (-2, False)])
def test_template_is_void_after_its_days(settings: NodeSettings, age_days: float, good: bool) -> None:
    made = put(settings, 1, made=time.time() - age_days * DAY_S)
    assert template.is_old(made, settings) == (not good)
    if good:
        assert template.find(key_of(1), settings) == made
    else:
        with pytest.raises(template.NoTemplate, match=r"is older|no template of this shape"):
            template.find(key_of(1), settings)


@pytest.mark.parametrize("spoil", ["no record", "another key", "another form", "no JSON", "short memory", "no memory"])
def test_template_that_is_spoilt_is_not_used_and_goes(settings: NodeSettings, spoil: str) -> None:
    made = put(settings, 1)
    file = made.place / "record.json"
    text = file.read_text()
    if spoil == "short memory":
        made.memory.write_bytes(b"ab")
    elif spoil == "no memory":
        made.memory.unlink()
    else:
        file.unlink()
        changes = {"another key": (key_of(1), key_of(2)), "another form": (f'"form": {key.FORM}', '"form": 9')}
        if spoil in changes:
            file.write_text(text.replace(*changes[spoil]))
        elif spoil == "no JSON":
            file.write_text("{")
    with pytest.raises(template.NoTemplate):
        template.find(key_of(1), settings)
    if "memory" not in spoil:
        assert template.make_room(settings) == (key_of(1),)


def test_of_too_many_templates_those_go_that_were_not_used_longest(settings: NodeSettings) -> None:
    settings = dataclasses.replace(settings, warm_max=2)
    put(settings, 1, used_before_s=10)
    put(settings, 2, used_before_s=30)
    put(settings, 3)
    assert keys_of(settings) == [key_of(1), key_of(3)]


def test_new_template_replaces_the_one_of_its_key(settings: NodeSettings) -> None:
    put(settings, 1, seconds=1.0)
    put(settings, 1, seconds=2.0)
    assert keys_of(settings) == [key_of(1)]
    assert template.find(key_of(1), settings).record.seconds == 2.0


def test_template_that_failed_twice_in_a_row_is_thrown_away(settings: NodeSettings) -> None:
    made = put(settings, 1)
    assert not template.note_failure(made, settings)
    template.note_success(made)
    assert not template.note_failure(made, settings)
    assert template.note_failure(made, settings)
    assert keys_of(settings) == []


def test_half_a_template_of_a_killed_maker_goes_and_that_of_a_living_one_stays(settings: NodeSettings) -> None:
    pid = os.fork()
    if pid == 0:
        with template.workplace(settings) as place:
            (place / "mem").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    (half,) = settings.warm_dir.iterdir()
    with template.workplace(settings) as place:
        assert template.tidy(settings) == (f"half a template {half.name}",)
        assert list(settings.warm_dir.iterdir()) == [place]
    assert keys_of(settings) == []


def test_tidy_leaves_all_to_who_makes_one(settings: NodeSettings) -> None:
    put(settings, 1, made=0.0)
    lock = tidying.start_lock.Lock(settings.run_dir / "locks" / tidying.LOCK)
    assert lock.take_now()
    assert tidying.tidy(settings) == ()
    lock.close()
    assert tidying.tidy(settings) == (f"template {key_of(1)}",)
