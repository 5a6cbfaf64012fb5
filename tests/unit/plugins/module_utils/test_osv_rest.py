# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OSv's API as it is documented, and whatever else a guest may answer in its place."""

from __future__ import annotations

import contextlib
import socket
import threading
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.osv_rest import (
    ANSWER,
    OsvFault,
    Rest,
    command_line,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from .osv_server import OsvServer


@pytest.fixture
def server() -> t.Iterator[OsvServer]:
    with OsvServer() as one:
        yield one
        one.shutdown()


@pytest.fixture
def rest(server: OsvServer) -> Rest:
    return Rest("127.0.0.1", port=server.port)


def test_rest_calls_are_those_of_the_documentation(rest: Rest, server: OsvServer) -> None:
    assert rest.version() == "v0.57.0"
    assert rest.variable("PBS_JOBID") is None
    rest.set_variable("PBS_JOBID", "4711.head")
    assert rest.variable("PBS_JOBID") == "4711.head"
    thread = rest.start(["/app.so", "a b"])
    assert server.commands == ['"/app.so" "a b"']
    assert not rest.finished(thread)
    server.threads[thread] = True
    assert rest.finished(thread)
    assert rest.finished("9999"), "of a thread that never was OSv says the same"


VALUE = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=40)


def test_any_value_arrives_as_it_is(rest: Rest, server: OsvServer) -> None:
    @settings(deadline=None, max_examples=50)
    @given(VALUE)
    def arrives(value: str) -> None:
        rest.set_variable(b"V", value.encode())
        assert server.environ["V"] == value

    arrives()
    rest.set_variable(b"V", b"\xff\xfe/?&=%\n")
    assert server.environ["V"].encode("utf-8", "surrogateescape") == b"\xff\xfe/?&=%\n"


@given(st.lists(st.text(st.characters(blacklist_characters="$\0", blacklist_categories=("Cs",))), min_size=1))
def test_command_line_is_read_as_its_words(arguments: list[str]) -> None:
    """By the grammar of OSv's core/commands.cc: words in quotes, in which a backslash keeps what follows."""
    line, read, at = command_line(arguments), [], 0
    while at < len(line):
        assert line[at] == '"'
        word, at = "", at + 1
        while line[at] != '"':
            at += line[at] == "\\"
            word += line[at]
            at += 1
        read.append(word)
        at += 1
        assert line[at : at + 1] in ("", " ")
        at += 1
    assert read == arguments


def test_refusal_of_the_api_is_a_fault_with_its_text(rest: Rest) -> None:
    with pytest.raises(OsvFault, match=r"status 400.*val"):
        rest.set_variable("EMPTY", "")
    with pytest.raises(OsvFault, match="status 400"):
        rest.set_variable("A..B", "x")


def serve(answer: bytes, *, drip: bool = False) -> tuple[int, t.Callable[[], None]]:
    """A peer that says this to whatever it is asked; by drips: a byte now and then, for ever."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def talk() -> None:
        with contextlib.suppress(OSError):
            peer = listening.accept()[0]
            with peer:
                peer.recv(65536)
                peer.sendall(answer)
                while drip and not over.wait(0.02):
                    peer.sendall(b"x")

    threading.Thread(target=talk, daemon=True).start()

    def end() -> None:
        over.set()
        listening.close()

    return listening.getsockname()[1], end


def http_of(body: bytes, status: str = "200 OK", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status.encode(), len(body), headers, body)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "no answer"),
        (b"SSH-2.0-OpenSSH\r\n", "no answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf", "no answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "no answer"),
        (http_of(b"v0.57"), "not a string of JSON"),
        (http_of(b"[" * 50_000), "not a string of JSON"),
        (http_of(b"12"), "not a string of JSON"),
        (http_of(b'"' + b"x" * (ANSWER + 1) + b'"'), "more than"),
        (http_of(b"", "302 Found", b"Location: http://127.0.0.1:1/\r\n"), "status 302"),
        (http_of(b'{"message": "\\u001b[2J"}', "500 Internal"), "status 500"),
    ],
)
def test_answer_of_another_form_is_a_fault(answer: bytes, message: str) -> None:
    port, end = serve(answer)
    with contextlib.ExitStack() as stack:
        stack.callback(end)
        with pytest.raises(OsvFault, match=message) as caught:
            Rest("127.0.0.1", port=port).version()
    assert str(caught.value).isprintable()


def test_peer_that_never_ends_is_left() -> None:
    """Each byte comes in time, and the whole never does."""
    port, end = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", drip=True)
    with contextlib.ExitStack() as stack:
        stack.callback(end)
        with pytest.raises(OsvFault, match="no answer"):
            Rest("127.0.0.1", port=port, call_s=0.3).version()


@pytest.mark.parametrize("body", [b'"1 2"', b'"-1"', b'""', b'"0x7"', b'"7\\n"'])
def test_thread_is_one_number(body: bytes) -> None:
    port, end = serve(http_of(body))
    with contextlib.ExitStack() as stack:
        stack.callback(end)
        with pytest.raises(OsvFault, match="not the number of one thread"):
            Rest("127.0.0.1", port=port).start(["/app.so"])
