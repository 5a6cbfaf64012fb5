# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`qstat` and `pbsnodes` as a node runs them: their words go to the server, which words the answer (`server/look.py`).

Torque's own are small programs in C, and a job asks often.  This one loads next to nothing: `json` (for its regular
expressions) and `socket` (for its enumerations) would each take longer than all that is done here.
"""

import _socket
import sys


def main(arguments: list[str], site: tuple[str, str, str, str]) -> int:
    """Ask, write what comes, and return the exit status.

    Args:
        arguments: the command line.
        site: as `install.build_look` has it: the archive, which knows the words of a command whose server is gone,
            the directory of the sockets, this host or "", the server's host.
    """
    archive, sockets, host, server = site
    if not host:
        import os

        host = os.uname().nodename.partition(".")[0]
    command = arguments[0].rpartition("/")[2]
    report = " ".join(word.encode(errors="surrogateescape").hex() for word in (command, *arguments[1:]))
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(f"{sockets}/{host}.sock")
        connection.sendall(f'{{"op": "look", "words": "{report}"}}\n'.encode("ascii"))
        answer = b""
        while data := connection.recv(1 << 20):
            answer += data
    except (FileNotFoundError, ConnectionError):
        answer = b""
    if not answer:
        sys.path.insert(0, archive)
        from lab.torque.shared.options import no_server

        no_server(command, server)
    head, _newline, text = answer.partition(b"\n")
    status, length = map(int, head.split())
    sys.stdout.buffer.write(text[:length])
    sys.stdout.flush()
    sys.stderr.buffer.write(text[length:])
    return status
