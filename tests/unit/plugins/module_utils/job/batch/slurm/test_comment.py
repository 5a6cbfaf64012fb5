# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The request in a job's comment, whoever has written it."""

from __future__ import annotations

import base64
import contextlib
import random
import re
import zlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import UserFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import answers, comment
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request, RequestErrors
from hypothesis import given
from hypothesis import strategies as st

REQUEST = b'{"v":1,"k":{"img":"debian12","ram":"2g","vcpus":"4"},"s":""}'


def of_code(data: bytes) -> str:
    return comment.PREFIX + base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_pack_request_is_short_and_has_nothing_that_slurm_or_a_shell_would_read() -> None:
    packed = comment.pack(REQUEST)
    assert re.fullmatch(r"vtorque:[A-Za-z0-9_-]+", packed)
    assert len(packed) < 100
    assert comment.unpack(packed) == REQUEST


@given(st.binary(max_size=600))
def test_unpack_of_what_was_packed_is_the_same(request_: bytes) -> None:
    assert comment.unpack(comment.pack(request_)) == request_


def test_pack_long_request_that_compresses_fits() -> None:
    long = b'{"v":1,"k":{"data":"' + b"/scratch/project/inputs/" * 60 + b'"}}'
    assert len(base64.b64encode(long)) > comment.MAX_COMMENT
    assert comment.unpack(comment.pack(long)) == long


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (random.Random(1).randbytes(800), r"\d+ characters, compressed, of at most 1024"),
        (b"x" * (comment.MAX_REQUEST + 1), rf"{comment.MAX_REQUEST + 1} bytes of at most {comment.MAX_REQUEST}"),
    ],
)
def test_pack_request_that_does_not_fit_is_refused_with_the_reason(request_: bytes, why: str) -> None:
    with pytest.raises(UserFault, match=why):
        comment.pack(request_)


def test_pack_longest_comment_has_1024_characters() -> None:
    noise = random.Random(2).randbytes(800)
    lengths = set()
    for size in range(700, 800):
        try:
            lengths.add(len(comment.pack(noise[:size])))
        except UserFault:
            break
    assert 1020 <= max(lengths) <= comment.MAX_COMMENT


@pytest.mark.parametrize("text", ["", "a note of alice's", " vtorque:x", "VTORQUE:x", "vtorque", "note;vtorque:x"])
def test_unpack_comment_of_somebody_else_is_none(text: str) -> None:
    assert comment.unpack(text) is None
    assert not comment.wants_guests(text)


BOMB = zlib.compress(b"0" * 700_000, 9)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vtorque:", "base64url"),
        ("vtorque:a b", "base64url"),
        ("vtorque:abc=", "base64url"),
        ("vtorque:abc+/", "base64url"),
        ("vtorque:abc\nJobState=COMPLETED", "base64url"),
        ("vtorque:\u0663\u0663\u0663\u0663", "base64url"),
        ("vtorque:a", "not what vsub writes"),
        ("vtorque:abcd", "not what vsub writes"),
        (of_code(zlib.compress(REQUEST)[:-3]), "cut off"),
        (of_code(zlib.compress(REQUEST) + b"more"), "something stands behind it"),
        (of_code(b"\x78\xbb" + zlib.compress(REQUEST)[2:]), "not what vsub writes"),
        (of_code(zlib.compress(b"x" * (comment.MAX_REQUEST + 1), 9)), f"more than {comment.MAX_REQUEST} bytes"),
        (of_code(BOMB), f"more than {comment.MAX_REQUEST} bytes"),
        ("vtorque:" + "A" * 1017, "1025 characters"),
    ],
)
def test_unpack_comment_that_is_ours_and_no_request_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(UserFault, match=why) as caught:
        comment.unpack(text)
    assert str(caught.value).isprintable()


def test_unpack_bomb_takes_no_more_memory_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(of_code(BOMB)) <= comment.MAX_COMMENT
    taken: list[int] = []
    make = zlib.decompressobj

    class Watched:
        def __init__(self) -> None:
            self.real = make()

        def decompress(self, data: bytes, most: int = 0) -> bytes:
            got = self.real.decompress(data, most)
            taken.append(len(got))
            return got

    monkeypatch.setattr(comment.zlib, "decompressobj", Watched)
    with pytest.raises(UserFault, match="more than"):
        comment.unpack(of_code(BOMB))
    assert taken == [comment.MAX_REQUEST + 1]


@given(st.one_of(st.text(max_size=60), st.binary(max_size=60).map(of_code)))
def test_unpack_of_any_comment_gives_bytes_none_or_an_error_of_ours(text: str) -> None:
    for one in (text, comment.PREFIX + text):
        with contextlib.suppress(UserFault):
            found = comment.unpack(one)
            assert found is None or len(found) <= comment.MAX_REQUEST


@pytest.mark.parametrize(("more", "error"), [(0, RequestErrors), (1, UserFault)])
def test_longest_request_that_fits_a_comment_is_read_from_the_job(more: int, error: type[UserFault]) -> None:
    """Both bounds are the same, so that nothing is submitted which no node reads: only its key is objected to."""
    frame = len('{"k":{"odd":""},"s":"","v":1}')
    data = b'{"k":{"odd":"%s"},"s":"","v":1}' % (b"a" * (comment.MAX_REQUEST - frame + more))
    assert len(data) == comment.MAX_REQUEST + more
    with pytest.raises(UserFault) as caught:
        Request.decode(answers._request(comment.pack(data)))
    assert type(caught.value) is error


PLAIN = base64.urlsafe_b64encode(REQUEST).decode().rstrip("=")


@pytest.mark.parametrize("code", ["", "a b", PLAIN, f";{PLAIN}", "abc\nJobState=COMPLETED", "A" * 1017, "\udcff"])
def test_comment_that_nobody_can_unpack_is_neither_bare_nor_a_request(code: str) -> None:
    """Also where it holds a request as Torque's jobs carry it."""
    with pytest.raises(UserFault):
        Request.decode(answers._request(comment.PREFIX + code))
