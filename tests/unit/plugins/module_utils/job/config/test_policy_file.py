# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of a configuration that nobody can believe or read, and what of it is usable all the same."""

from __future__ import annotations

import contextlib
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config import policy_file
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import PARAMETERS
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.policy_file import (
    PolicyErrors,
    load,
    load_usable,
    parse,
    read,
)
from hypothesis import given, settings
from hypothesis import strategies as st

MINE = os.getuid()


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where a configuration may lie."""
    tmp_path.chmod(0o755)
    path = tmp_path / "vtorque.yml"
    path.write_text("bridge: br7\n")
    path.chmod(0o644)
    return path


def refusal_of(place: pathlib.Path, owner_uid: int = MINE) -> str:
    with pytest.raises(SiteFault) as caught:
        load(place, owner_uid=owner_uid)
    assert str(place) in str(caught.value)
    return str(caught.value)


# who may have written it


@pytest.mark.parametrize(("mode", "who"), [(0o664, "its group"), (0o646, "everybody"), (0o666, "its group and everyb")])
def test_file_that_others_can_write_names_them_and_the_remedy(place: pathlib.Path, mode: int, who: str) -> None:
    place.chmod(mode)
    assert f"can be written by {who}" in refusal_of(place)
    assert f"chmod go-w {place}" in refusal_of(place)


def test_file_of_somebody_else_names_him_and_the_remedy(place: pathlib.Path) -> None:
    assert f"{place} belongs to uid {MINE}" in refusal_of(place, MINE + 1)
    assert f"chown {MINE + 1} {place}" in refusal_of(place, MINE + 1)


def test_directory_that_others_can_write_is_named(place: pathlib.Path) -> None:
    place.parent.chmod(0o777)
    assert f"{place.parent} can be written by" in refusal_of(place)


def test_link_leads_to_a_directory_that_others_can_write(place: pathlib.Path) -> None:
    shared = place.parent / "shared"
    shared.mkdir()
    place.rename(shared / "vtorque.yml")
    place.symlink_to(shared / "vtorque.yml")
    shared.chmod(0o755)
    assert load(place, owner_uid=MINE).bridge == "br7"
    shared.chmod(0o777)
    assert f"{shared} can be written by" in refusal_of(place)


def test_draft_may_be_anybodys(place: pathlib.Path) -> None:
    place.chmod(0o666)
    place.parent.chmod(0o777)
    assert read(place, owner_uid=None).policy.bridge == "br7"


# what it is


def test_link_without_an_end(place: pathlib.Path) -> None:
    place.unlink()
    place.symlink_to("elsewhere.yml")
    assert "is a link to elsewhere.yml, which is not there" in refusal_of(place)


def test_link_to_itself(place: pathlib.Path) -> None:
    place.unlink()
    place.symlink_to(place)
    assert "is a link that leads to itself" in refusal_of(place)


def test_pipe_does_not_hold_us_up(place: pathlib.Path) -> None:
    place.unlink()
    os.mkfifo(place, 0o644)
    assert "is not a regular file" in refusal_of(place)


def test_directory(place: pathlib.Path) -> None:
    place.unlink()
    place.mkdir()
    assert "is not a regular file" in refusal_of(place)


def test_huge_file_is_not_cut_and_believed(place: pathlib.Path) -> None:
    place.write_text("bridge: br7\n" + "# \n" * (policy_file.MAX_FILE // 3))
    assert "is longer than 1 MiB" in refusal_of(place)


def test_text_of_another_coding(place: pathlib.Path) -> None:
    place.write_bytes(b"bridge: br\xe9\n")
    assert "is not text in UTF-8: byte 10 is 0xe9" in refusal_of(place)


# what stands in it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bridge: br0\n  domain: x\n", "not YAML: line 2, column 9: mapping values are not allowed"),
        ("a: [\n", "not YAML: line 2, column 1"),
        ("- a\n", "not a list of `name: value` lines"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: but found another document"),
        ("bridge: br\ud800\n", "not YAML: '\\ud800' is no character of a text"),
    ],
)
def test_file_without_a_configuration_names_the_place(text: str, message: str) -> None:
    with pytest.raises(SiteFault) as caught:
        parse(text, "x.yml")
    assert message in str(caught.value)


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("bridge: [br0]\n", "bridge=['br0']: a list is given, and one value is due: the name of an"),
        ("mounts: nfs\n", "mounts=nfs: one value is given, and a list is due ([nfs])"),
        ("bridge: {a: b}\n", "bridge: one value is due, or a list of values; there is more depth than that (line 1)"),
        (BOMB, "c: no such parameter"),
        (
            "bridge: !!python/object:os.system x\n",
            "bridge=x: a value has no tag of its own here (tag:yaml.org,2002:pyth",
        ),
        ("timeout: !!timestamp\n", "timeout: a value has no tag of its own here (tag:yaml.org,2002:timestamp)"),
        ("mounts: [!!bool maybe]\n", "mounts=maybe: a value has no tag of its own here"),
        ("domain: 2026-99-99\n", "domain=2026-99-99: not a value of YAML: month must be in 1..12 (line 1)"),
        ("[a, b]: c\n", "?: the name of a parameter is due before the colon (line 1)"),
        ("<<: {bridge: br1}\n", "<<: no such parameter"),
        ("mac_prefix: 52:54:00\n", "mac_prefix=52:54:00: allowed: three bytes in quotes"),
        ("domain: no\n", "a host or domain name, or an address; YAML takes it for something else than a text: put it"),
        ("img_default: 12.10\n", "YAML takes it for something else than a text: put it in quotes"),
        ("timeout: 010\n", "timeout=010: YAML reads a number that begins with 0 as octal, here 8; write it without"),
        ("timeout: 1:30\n", "timeout=1:30: YAML makes 90 of digits with colons; write the number that is meant"),
        ("ram_max: 24:00\n", "ram_max=24:00: YAML makes 1440 of digits with colons"),
        ("cache_max: 0100\n", "cache_max=0100: YAML reads a number that begins with 0 as octal, here 64"),
        ("offline_brake: 012\n", "offline_brake=012: YAML reads a number that begins with 0 as octal, here 10"),
        ("node_number: 0o17\n", "node_number=0o17: allowed"),
        ("ram_max: 1e3\n", "ram_max=1e3: allowed"),
        (
            "vms_per_node_min: 9\nmax_vms_per_node: 8\n",
            "vms_per_node_min=9: is more than max_vms_per_node (8) (line 1)",
        ),
        ("ram_max: 1G\n", "ram_default=24576: at most 1G on this site (default)"),
        ("home_via: nsf\n", "home_via=nsf: allowed: nfs or virtiofs; did you mean nfs? (line 1)"),
        ("Bridge: br1\n", "Bridge=br1: no such parameter; it is called bridge (line 1)"),
    ],
)
def test_fault_says_line_name_value_and_what_is_allowed(text: str, fault: str) -> None:
    with pytest.raises(PolicyErrors) as caught:
        parse(text, "x.yml")
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("timeout: 1_0", 10), ("timeout: 07", 7), ("timeout: 0x10", 16), ("timeout: +10", 10), ("timeout: '010'", 10)],
)
def test_number_that_yaml_reads_as_people_do_is_taken(text: str, value: int) -> None:
    assert parse(text, "x.yml").policy.timeout == value


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "a: " + "{b: " * 100_000])
def test_depth_does_not_end_the_process(text: str) -> None:
    with pytest.raises(SiteFault, match=r"line [12]"):
        parse(f"bridge: {text}\n", "x.yml")


ODD = [
    "1e400", "0x", "-.inf", ".nan", "!!int x", "!!int ''", "!!float ''", "!!bool maybe", "!!binary x", "!!set {a}",
    "0o9", "1:99", "2001-13-01", "2001-01-01T99:00:00Z", "&a *a", "~", "_1", "<<", "!x y", "? a", "!!null 3",
]  # fmt: skip
WORDS = st.one_of(st.text(max_size=20), st.sampled_from(ODD))


@given(st.lists(st.tuples(st.one_of(st.sampled_from(list(PARAMETERS)), st.text(max_size=8)), WORDS), max_size=6))
@settings(max_examples=300, deadline=None)
def test_configuration_of_any_content_is_read_or_refused(lines: list[tuple[str, str]]) -> None:
    with contextlib.suppress(SiteFault):
        policy = parse("\n".join(f"{name}: {value}" for name, value in lines), "x.yml").policy
        assert set(vars(policy)) == set(PARAMETERS)


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("name", ["bridge", "timeout", "parallel", "ram_max", "mounts", "regex_fe"])
def test_odd_value_is_good_or_is_told(name: str, value: str) -> None:
    with contextlib.suppress(SiteFault):
        policy = parse(f"{name}: {value}", "x.yml").policy
        assert isinstance(getattr(policy, name), (str, int, tuple, type(None)))


def test_bounds_that_cross_are_told_once() -> None:
    with pytest.raises(PolicyErrors) as caught:
        parse("vcpus_min: 9\nvcpus_max: 8\n", "x.yml")
    assert [fault.key for fault in caught.value.faults] == ["vcpus_min"]


def test_lines_of_what_is_set() -> None:
    found = parse("# x\nbridge: br1\n\ndomain:\ntimeout: 120\n", "x.yml")
    assert found.lines == {"bridge": 2, "domain": 4, "timeout": 5}


# what is usable of it


def test_good_values_of_a_broken_file_are_usable() -> None:
    policy, fault = load_usable(lambda: parse("brigde: br9\ntorque_home: /t\nbridge: [x]\ntimeout: 300\n", "x").policy)
    assert (policy.torque_home, policy.bridge, policy.timeout) == ("/t", "br0", 300)
    assert isinstance(fault, PolicyErrors)
    assert [one.key for one in fault.faults] == ["brigde", "bridge", "timeout"]


@pytest.mark.parametrize("broken", ["bridge: [br0", "- a list", "domain: *nothing", "torque_home: /a: /b\n\t"])
def test_lines_of_a_text_that_is_no_yaml_are_usable_one_by_one(broken: str) -> None:
    """The sweep would ask another batch system for the jobs of this one."""
    lines = ["batch_system: slurm", "slurm_bin: /opt/slurm/bin", broken, "timeout: 77  # s", "timeout: 78", "mounts:"]
    policy, fault = load_usable(lambda: parse("\n".join(lines), "x").policy)
    assert (policy.batch_system, policy.slurm_bin, policy.timeout) == ("slurm", "/opt/slurm/bin", 77)
    assert (policy.bridge, policy.domain, policy.torque_home, policy.mounts) == ("br0", None, "/var/spool/torque", ())
    assert "not YAML" in str(fault)


def test_file_that_is_not_trusted_has_no_usable_value(place: pathlib.Path) -> None:
    place.chmod(0o666)
    policy, fault = load_usable(lambda: load(place, owner_uid=MINE))
    assert policy.bridge == "br0"
    assert "not believed" in str(fault)


def test_good_file_has_no_fault(place: pathlib.Path) -> None:
    policy, fault = load_usable(lambda: load(place, owner_uid=MINE))
    assert (policy.bridge, fault) == ("br7", None)
