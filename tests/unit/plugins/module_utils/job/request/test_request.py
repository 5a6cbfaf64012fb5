# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of `-vm`: read, merged, sent in the job, and read back by root."""

from __future__ import annotations

import base64
import dataclasses
import json
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.keys import KEYS
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import (
    FROM_JOB,
    MAX_PART,
    PREFIX,
    Request,
    RequestErrors,
    files_of,
    log_wishes,
    parse,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.value_types import encode_value
from hypothesis import given, settings
from hypothesis import strategies as st


def one(text: str) -> Request:
    return parse([(text, "command line")])


def faults_of(text: str) -> dict[str, str]:
    with pytest.raises(RequestErrors) as caught:
        one(text)
    return {fault.key: fault.message for fault in caught.value.faults}


def part(wire: object) -> str:
    return PREFIX + base64.urlsafe_b64encode(json.dumps(wire).encode()).decode().rstrip("=")


def test_wishes_for_the_log_travel_and_change_nothing_else() -> None:
    request = one("vcpus=2")
    assert "l" not in json.loads(base64.urlsafe_b64decode(request.encode().removeprefix(PREFIX) + "=="))
    report = request.with_log({"show": True, "debug": False})
    back = Request.decode(report.encode())
    assert back is not None
    assert back.log == {"show": True, "debug": False}
    assert (back.values, back.shell) == (request.values, request.shell)


@pytest.mark.parametrize(
    "log", [[], "show", 1, None, {"trace": "true"}, {"show": "true"}, {"show": 1}, {"show": True, "more": False}]
)
def test_other_wishes_for_the_log_are_garbage(log: object) -> None:
    with pytest.raises(UserFault, match="of the log"):
        Request.decode(part({"v": 1, "k": {}, "s": "", "l": log}))


@pytest.mark.parametrize(
    ("environment", "log"),
    [
        ({}, {}),
        ({"SHOW_LOG": "true", "DEBUG": "Yes"}, {"show": True, "debug": True}),
        ({"SHOW_LOG": "1", "DEBUG": "0"}, {"show": True, "debug": False}),
        ({"SHOW_LOG": "FALSE"}, {"show": False}),
        ({"TRACE": "true"}, {"trace": True}),
        ({"SHOW_LOG": "", "DEBUG": "express:*"}, {}),
        ({"show_log": "true"}, {}),
    ],
)
def test_wishes_for_the_log_in_an_environment(environment: dict[str, str], log: dict[str, bool]) -> None:
    assert log_wishes(environment) == log


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("img=debian12", "debian12"),
        ("img=debian12@3", "debian12@3"),
        ("img=Tiny.qcow2", "Tiny.qcow2"),
        ("img=/home/alice/own.img", "/home/alice/own.img"),
        ("distro=OSv", "osv"),
        ("distro=RedHat", "redhat"),
        ("arch=X86_64", "x86_64"),
        ("ram=512", 512),
        ("ram=4G", 4096),
        ("ram=4gb", 4096),
        ("ram=4GiB", 4096),
        ("ram=1.5G", 1536),
        ("ram=32768K", 32),
        ("ram=1T", 1024 * 1024),
        ("vcpus=1", 1),
        ("vcpus = 8", 8),
        ("vms_per_node=2", 2),
        ("vcpu_pinning=Yes", True),
        ("vcpu_pinning=disabled", False),
        ("vcpu_pinning=/home/alice/map", "/home/alice/map"),
        ("fs_type=RAMDISK", "ramdisk"),
        ("disk=/home/alice/d=1.img", "/home/alice/d=1.img"),
        ("metadata=/home/alice/m d.yml", "/home/alice/m d.yml"),
        ("vm_prologue=/home/alice/pre", "/home/alice/pre"),
        ("vm_epilogue=/home/alice/post", "/home/alice/post"),
        ("vrdma=0", True),
        ("vrdma=1", False),
        ("iocm=ENABLED", True),
        ("unclot=no", False),
        ("iocm_min_cores=1", 1),
        ("iocm_max_cores=4", 4),
        ("unclot_shmem=64M", 64),
        ("hypervisor=QEMU", "qemu"),
        ("nodes=2", 2),
        ("pci=GPU:1", ("gpu:1",)),
        ("pci=0000:3B:00.0+gpu:2", ("0000:3b:00.0", "gpu:2")),
    ],
)
def test_value_is_read_into_its_typed_form(text: str, value: object) -> None:
    request = one(text)
    assert list(request.values.values()) == [value]
    assert list(request.origins.values()) == ["command line"]


@pytest.mark.parametrize(
    "text",
    [
        "img=a/b", "img=../debian12", "img=/a/../b", "img=debian12@0", "img=-x", "distro=arch", "ram=0", "ram=4X",
        "ram=-1", "ram=0.1G", "ram=1e3", "ram=99999T", "vcpus=0", "vcpus=1.0", "vcpus=4097", "vcpus=\u0664",
        "vms_per_node=x", "vcpu_pinning=1", "vcpu_pinning=map", "fs_type=nfs", "disk=/a\nb", "disk=/a;b",
        "vrdma=2", "vrdma=on", "iocm=maybe", "hypervisor=xen", "nodes=0", "pci=gpu", "pci=gpu:0", "pci=gpu:1+gpu:1",
        "vcpus=", "vcpus", "arch=x86-64",
    ],
)  # fmt: skip
def test_value_that_is_not_allowed_is_refused_with_what_is(text: str) -> None:
    (message,) = faults_of(text).values()
    assert "allowed: " in message


def test_every_fault_is_told_at_once_with_its_place_and_the_rest_is_kept() -> None:
    with pytest.raises(RequestErrors) as caught:
        parse([("img=debian12,vcpu=4,ram=4X", "job.sh, line 4"), ("hypervisor=kvmm,,vcpus=2", "job.sh, line 5")])
    report = [(fault.key, fault.value, fault.origin) for fault in caught.value.faults]
    assert report == [
        ("vcpu", "4", "job.sh, line 4"),
        ("ram", "4X", "job.sh, line 4"),
        ("hypervisor", "kvmm", "job.sh, line 5"),
        ("-vm", "", "job.sh, line 5"),
    ]
    assert caught.value.good.values == {"img": "debian12", "vcpus": 2}
    assert "ram=4X" in str(caught.value)
    assert "vcpu=4" in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("vcpu", "vcpus"), ("VCPUS", "vcpus"), ("image", "img"), ("mem", None), ("vm_prolog", "vm_prologue"), ("q", None)],
)
def test_unknown_key_names_the_nearest_one_when_there_is_one(typed: str, meant: str | None) -> None:
    message = faults_of(f"{typed}=1")[typed]
    assert message == (f"no such key; did you mean {meant}?" if meant else "no such key")


def test_key_that_says_two_things_in_one_source_is_refused() -> None:
    with pytest.raises(RequestErrors, match="given twice, and 2 before") as caught:
        parse([("vcpus=2", "job.sh, line 2"), ("vcpus=3", "job.sh, line 9")])
    assert caught.value.faults[0].origin == "job.sh, line 9"


@pytest.mark.parametrize("before", ["\u202e", "\ufffe", "\u200f"])
def test_earlier_values_in_a_fault_are_printable(before: str) -> None:
    message = faults_of(f"disk={before}a,disk=b")["disk"]
    assert message == "given twice, and ?a before (command line)"


def test_key_that_says_the_same_twice_is_no_fault() -> None:
    assert parse([("ram=1G", "job.sh, line 2"), ("ram=1024", "job.sh, line 3")]).origins == {"ram": "job.sh, line 2"}


def test_command_line_wins_over_script_and_origins_go_along() -> None:
    script = parse([("vcpus=2,ram=1G", "job.sh, line 4")]).with_shell("/bin/zsh")
    merged = one("vcpus=4").merged_over(script)
    assert merged.values == {"vcpus": 4, "ram": 1024}
    assert merged.origins == {"vcpus": "command line", "ram": "job.sh, line 4"}
    assert merged.shell == "/bin/zsh"
    assert script.merged_over(one("img=a").with_shell("/bin/sh")).shell == "/bin/zsh"


@pytest.mark.parametrize("shell", ["bash", "", "/bin/bash@n1", "/bin/bash,/bin/sh@n1", "/bin/\nsh", "/bin/../sh"])
def test_shell_that_is_not_one_absolute_path_is_refused(shell: str) -> None:
    with pytest.raises(UserFault, match="not a shell that a guest can be given"):
        Request().with_shell(shell)


def test_request_comes_back_from_among_other_parts() -> None:
    request = one("img=debian12,iocm=0,pci=gpu:1+gpu:2,ram=2G").with_shell("/usr/bin/fish")
    back = Request.decode(f"GRES:foo;{request.encode()};novtorque:x")
    assert back is not None
    assert back.values == request.values
    assert back.shell == "/usr/bin/fish"
    assert set(back.origins.values()) == {FROM_JOB}


@pytest.mark.parametrize("attribute", ["", "GRES:foo", "a;b", "xvtorque:e30", "VTORQUE:e30"])
def test_attribute_without_our_part_is_no_request(attribute: str) -> None:
    assert Request.decode(attribute) is None


GOOD = Request({"vcpus": 2}, {"vcpus": "command line"}).encode()


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        (f"{GOOD};{GOOD}", "2 requests"),
        (f"{GOOD};GRES:x;vtorque:", "2 requests"),
        ("vtorque:", "garbage"),
        ("vtorque:a", "garbage"),
        ("vtorque:%%%", "garbage"),
        ("vtorque:e30=", "garbage"),
        ("vtorque:\xe9\u0663", "garbage"),
        ("vtorque:bm8", "garbage"),
        ("vtorque:_____w", "garbage"),
        (part([]), "garbage: not a JSON object"),
        (PREFIX + base64.urlsafe_b64encode(b"[" * 3000).decode(), "garbage"),
        (PREFIX + base64.urlsafe_b64encode(b'{"v":1,"v":1,"k":{},"s":""}').decode(), "is given twice"),
        (part({"v": 1}), "parts are not those of version 1"),
        (part({"v": 1, "k": {}, "s": "", "z": 1}), "parts are not those of version 1"),
        (part({"v": 1, "k": [], "s": ""}), "parts are not those of version 1"),
        (part({"v": 2, "k": {}, "s": ""}), "of version 2, and this site reads version 1"),
        (part({"v": True, "k": {}, "s": ""}), "no version"),
        (part({"k": {}, "s": ""}), "no version"),
        (part({"v": 1, "k": {"vcpu": "2"}, "s": ""}), "no such key; did you mean vcpus?"),
        (part({"v": 1, "k": {"vcpus": 2}, "s": ""}), "a text was expected, not int"),
        (part({"v": 1, "k": {"vcpus": "0"}, "s": ""}), "a whole number from 1 to 4096"),
        (part({"v": 1, "k": {"disk": "/a\ud800"}, "s": ""}), "the path of a file"),
        (part({"v": 1, "k": {"disk": "d"}, "s": ""}), "without an absolute path"),
        (part({"v": 1, "k": {"img": "a; rm -rf /"}, "s": ""}), "a name in the image pool"),
        (part({"v": 1, "k": {}, "s": "sh"}), "a shell by its absolute path"),
        (PREFIX + "A" * MAX_PART, "at most 4096 are allowed"),
        (PREFIX + "A" * 10_000_000, "at most 131072 are read"),
        (";" * 10_000_000, "at most 131072 are read"),
    ],
)
def test_what_root_cannot_read_is_the_users_fault_and_says_why(attribute: str, why: str) -> None:
    with pytest.raises(UserFault) as caught:
        Request.decode(attribute)
    assert why in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("keys", "digests"),
    [
        ({"vm_prologue": "/p"}, {}),
        ({"vm_prologue": "p"}, {"vm_prologue": "0f" * 32}),
        ({"vm_prologue": "/p"}, {"vm_prologue": "0F" * 32}),
        ({"vm_prologue": "/p"}, {"vm_prologue": 7}),
        ({"vm_prologue": "/p"}, {"vm_epilogue": "0f" * 32}),
        ({"metadata": "/p"}, {}),
        ({"disk": "/p"}, {"disk": "0f" * 32}),
        ({"img": "/p"}, {}),
        ({"img": "/p"}, {"img": "0f"}),
        ({"img": "tiny"}, {"img": "0f" * 32}),
    ],
)
def test_script_without_its_digest_is_refused(keys: dict[str, str], digests: dict[str, t.Any]) -> None:
    with pytest.raises(UserFault, match="without an absolute path and the digest of its file"):
        Request.decode(part({"v": 1, "k": keys, "s": "", "d": digests}))


def test_all_faults_on_the_wire_are_told_at_once() -> None:
    with pytest.raises(RequestErrors) as caught:
        Request.decode(part({"v": 1, "k": {"vcpus": "0", "ram": "x", "img": "tiny"}, "s": "/bin/sh"}))
    assert [fault.key for fault in caught.value.faults] == ["vcpus", "ram"]
    assert caught.value.good.values == {"img": "tiny"}


def test_request_that_would_be_too_long_is_refused_before_it_travels() -> None:
    long = one(",".join(f"{key}=/{'x' * 900}" for key in ("disk", "metadata", "vm_prologue", "vm_epilogue")))
    with pytest.raises(UserFault, match="too long to travel"):
        long.encode()


_PATHS = st.text(st.characters(exclude_characters=",;", exclude_categories=["C", "Z"]), min_size=1, max_size=40).map(
    lambda text: "/" + text
)
_SIZES = st.builds("{}{}".format, st.integers(16, 4000), st.sampled_from(["", "M", "g", "MiB"]))
_COMPONENTS = st.sampled_from(["true", "No", "ENABLED", "disabled", "0", "1"])
_WORDS: dict[str, st.SearchStrategy[str]] = {
    "img": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}(@[1-9][0-9]?)?", fullmatch=True),
    "distro": st.sampled_from(["debian", "OSv", "RedHat"]),
    "arch": st.sampled_from(["x86_64", "aarch64"]),
    "vcpu_pinning": st.one_of(st.sampled_from(["yes", "false"]), _PATHS.filter(lambda path: ".." not in path)),
    "numa": st.sampled_from(["auto", "1", "OFF"]),
    "hugepages": st.sampled_from(["none", "2M", "1g", "AUTO"]),
    "fs_type": st.sampled_from(["sharedfs", "LOCAL", "ramdisk"]),
    "hypervisor": st.sampled_from(["kvm", "skvm", "Qemu"]),
    "checkpoint": st.sampled_from(["on", "OFF"]),
    "checkpoint_every": st.sampled_from(["30m", "2H", "1d", "45"]),
    "network": st.sampled_from(["fast", "Fast+store"]),
    "pci": st.sampled_from(["gpu:1", "0000:3b:00.0+gpu:2"]),
    **dict.fromkeys(("ram", "unclot_shmem"), _SIZES),
    **dict.fromkeys(("vrdma", "iocm", "unclot"), _COMPONENTS),
    "warm": st.sampled_from(["yes", "FALSE"]),
    **dict.fromkeys(
        ("vcpus", "vms_per_node", "iocm_min_cores", "iocm_max_cores", "nodes", "spare"), st.integers(1, 999).map(str)
    ),
    **dict.fromkeys(("disk", "metadata", "vm_prologue", "vm_epilogue"), _PATHS.filter(lambda path: ".." not in path)),
}


def test_round_trip_knows_every_key() -> None:
    assert set(_WORDS) == set(KEYS)


@settings(deadline=None)
@given(st.fixed_dictionaries({}, optional=_WORDS))
def test_encoded_request_is_decoded_as_it_was(arguments: dict[str, str]) -> None:
    texts = [(f"{key}={word}", "command line") for key, word in arguments.items()]
    request = parse(texts)
    request = dataclasses.replace(request, digests=dict.fromkeys(files_of(request.values), "0f" * 32))
    back = Request.decode(request.encode())
    assert back is not None
    assert back.digests == request.digests
    assert back.values == request.values
    assert back.encode() == request.encode()
    assert set(request.values) == set(arguments)
    again = parse([(f"{key}={encode_value(value)}", "") for key, value in request.values.items()])
    assert again.values == request.values


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_WIRES = st.fixed_dictionaries(
    {"v": st.just(1) | _JSON, "k": st.dictionaries(st.sampled_from(list(KEYS)) | st.text(), _JSON) | _JSON, "s": _JSON}
)


def _decode(attribute: str) -> Request | UserFault | None:
    try:
        return Request.decode(attribute)
    except UserFault as error:
        return error


@settings(deadline=None)
@given(
    st.text()
    | st.text(alphabet="abcdefgh0123_-=;:").map(PREFIX.__add__)
    | st.binary().map(lambda data: PREFIX + base64.urlsafe_b64encode(data).decode().rstrip("="))
)
def test_decode_raises_nothing_but_our_errors_on_any_text(attribute: str) -> None:
    assert isinstance(_decode(attribute), UserFault) or PREFIX not in attribute


@settings(deadline=None)
@given(_JSON | _WIRES)
def test_decode_raises_nothing_but_our_errors_on_any_json(wire: object) -> None:
    result = _decode(part(wire))
    assert isinstance(result, (Request, UserFault))
    assert str(result).isprintable()
