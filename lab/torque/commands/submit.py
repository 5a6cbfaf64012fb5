# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`qsub`."""

from __future__ import annotations

import os
import pwd
import stat
import sys

from ..shared.options import UsageError, ask, parse, site
from . import directives

TYPE_CHECKING = False
if TYPE_CHECKING:  # the commands start without typing
    import typing as t

LETTERS = "A:C:d:e:F:hIj:k:l:m:M:nN:o:p:q:r:S:t:T:v:Vw:W:xXz"
VERSION = "Version: 6.1.3\nCommit: ccdab3b43f4578573b166587f2f327a2ce9605e9\n"
SEPARATE = {
    "A": "account",
    "F": "arguments",
    "d": "init_work_dir",
    "j": "join",
    "k": "keep",
    "m": "mail_points",
    "M": "mail_users",
    "N": "name",
    "q": "queue",
    "S": "shell",
    "t": "array",
    "T": "jobtype",
}
VERIFIED_BYTES = 50
"""MMAX_VERIFY_BYTES: so many of a script's first bytes must be ASCII that prints, or blanks."""
LINE_PART = 2047
"""MAXBUF, less the byte that ends it."""
LAWFUL = {
    "j": ("n", "oe", "eo"),
    "k": ("n", "o", "e", "oe", "eo"),
    "r": ("y", "n"),
}


class Submission:
    """What is asked for so far: the script's directives first, the command line over them."""

    def __init__(self, environment: t.Mapping[str, str], cwd: str, host: str) -> None:
        self._environment = environment
        self._host = host
        self.cwd = cwd
        self.quiet = False
        self.prefix: str | None = None
        self.interactive = False
        self.direct_command = False
        self.display = ""
        self.variables: dict[str, str] = {}
        self.exported: dict[str, str] = {}
        self.job: dict[str, t.Any] = {
            **dict.fromkeys(("account", "arguments", "array", "queue", "shell", "jobtype", "mail_users", "name"), ""),
            "additional": {},
            "exclusive": False,
            "forward_x11": "",
            "hold": False,
            "init_work_dir": "",
            "interactive": None,
            "join": "n",
            "keep": "n",
            "mail_points": "a",
            "paths": {},
            "priority": 0,
            "rerunable": True,
            "resources": {},
            "script": "",
        }

    def take(self, arguments: t.Sequence[str]) -> list[str]:
        """Apply options; returns the operands.

        Raises:
            UsageError: an option or its value is refused.
        """
        options, operands = parse(arguments, LETTERS)
        for letter, value in options:
            self._take(letter, value)
        return operands

    def _take(self, letter: str, value: str) -> None:
        if letter in LAWFUL and value not in LAWFUL[letter]:
            raise UsageError(f"illegal -{letter} value")
        if letter == "N" and (not value or any(not " " < character < "\x7f" for character in value)):
            raise UsageError("illegal -N value")
        if letter in SEPARATE:
            self.job[SEPARATE[letter]] = value
        else:
            getattr(self, f"_option_{letter}")(value)

    def _option_C(self, value: str) -> None:
        self.prefix = value

    def _option_e(self, value: str) -> None:
        self._path("e", value)

    def _option_o(self, value: str) -> None:
        self._path("o", value)

    def _path(self, stream: str, value: str) -> None:
        host, colon, path = value.partition(":")
        if not colon:
            host, path = self._host, value
        path = os.path.join(self.cwd, path)  # noqa: PTH118 - the commands start without pathlib
        if os.path.isdir(path) and not path.endswith("/"):  # noqa: PTH112
            path += "/"
        self.job["paths"][stream] = f"{host}:{path}"

    def _option_h(self, _value: str) -> None:
        self.job["hold"] = True

    def _option_I(self, _value: str) -> None:
        self.interactive = True

    def _option_l(self, value: str) -> None:
        for part in value.split(","):
            name, equals, text = part.partition("=")
            if not name.strip() or not equals:
                raise UsageError("illegal -l value")
            self.job["resources"][name.strip()] = text

    def _option_n(self, _value: str) -> None:
        self.job["exclusive"] = True

    def _option_p(self, value: str) -> None:
        try:
            self.job["priority"] = int(value)
        except ValueError:
            raise UsageError("illegal -p value") from None
        if not -1024 <= self.job["priority"] <= 1023:
            raise UsageError("illegal -p value")

    def _option_r(self, value: str) -> None:
        self.job["rerunable"] = value == "y"

    def _option_v(self, value: str) -> None:
        for part in split_list(value):
            name, equals, text = part.partition("=")
            if equals:
                self.variables[name] = text
            elif name in self._environment:
                self.variables[name] = self._environment[name]

    def _option_V(self, _value: str) -> None:
        self.exported = dict(self._environment)

    def _option_w(self, value: str) -> None:
        self.cwd = value

    def _option_W(self, value: str) -> None:
        additional = self.job["additional"]
        for name, text in split_additional(value):
            if name in additional and name == "x":
                text = f"{additional[name]};{text}"
            additional[name] = text

    def _option_x(self, _value: str) -> None:
        self.direct_command = True

    def _option_X(self, _value: str) -> None:
        if "DISPLAY" not in self._environment:
            raise UsageError("DISPLAY not set")
        self.display = self._environment["DISPLAY"]

    def _option_z(self, _value: str) -> None:
        self.quiet = True

    def all_variables(self, account: pwd.struct_passwd) -> dict[str, str]:
        """Variable_List in its recorded order, without the server's own."""
        result = {}
        for name in ("HOME", "LANG", "LOGNAME", "PATH", "MAIL", "SHELL"):
            value = self._environment.get(name)
            if name in ("HOME", "LOGNAME") and value is None:
                value = account.pw_dir if name == "HOME" else account.pw_name
            if value is not None:
                result[f"PBS_O_{name}"] = value
        if self.job["init_work_dir"]:
            # a relative one is taken from where qsub is called, whatever -w says
            path = os.path.join(os.getcwd(), self.job["init_work_dir"])  # noqa: PTH109, PTH118
            result["PBS_O_INITDIR"] = as_listed(path)
        result.update(self.exported)
        result.update(self.variables)
        if "PBS_O_WORKDIR" not in self.variables:
            result.pop("PBS_O_WORKDIR", None)
            result["PBS_O_WORKDIR"] = as_listed(self.cwd)
        return result


def as_listed(path: str) -> str:
    """What is left of a directory's name in the list of variables, which qsub joins by commas without a look at it.

    A comma or a line end is its end, a backslash protects what follows and goes, blanks at the end go
    (build_var_list, decode_arst_direct, parse_comma_string).
    """
    result = ""
    characters = iter(path)
    for character in characters:
        if character in ",\n":
            break
        result += next(characters, ",") if character == "\\" else character
    return result.rstrip(" \t\n\v\f\r")


def split_list(text: str) -> list[str]:
    """Parts of `-v` between commas; quotes are letters like others, and two backslashes are one.

    Tried on TORQUE 6.1.3: `A="q",B=a\\\\b` gives the job `"q"` and `a\\b`; neither quotes nor a backslash
    protect a comma: what follows is no name, and qsub says `invalid -v syntax`.
    """
    parts = [part.replace("\\\\", "\\") for part in text.split(",") if part]
    for part in parts:
        if not part.partition("=")[0].replace("_", "a").isalnum():
            raise UsageError("invalid -v syntax")
    return parts


def split_additional(text: str) -> list[tuple[str, str]]:
    """`-W name=value,name=value`; a comma belongs to the value unless a name and `=` follow it."""
    result: list[tuple[str, str]] = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip().replace("_", "a").isalnum():
            result.append((name.strip(), value))
        elif result:
            result[-1] = (result[-1][0], f"{result[-1][1]},{part}")
        else:
            raise UsageError("illegal -W value")
    return result


def submit_filter(home: str) -> str:
    """The filter that torque.cfg names, "" without one."""
    try:
        with open(f"{home}/torque.cfg") as file:  # noqa: PTH123
            fields = [line.split() for line in file]
    except FileNotFoundError:
        return ""
    return next((line[1] for line in fields if line[:1] == ["SUBMITFILTER"] and len(line) == 2), "")


def filtered(program: str, arguments: t.Sequence[str], script: str) -> str:
    """The script as the submit filter returns it; the filter runs as the user, with qsub's arguments."""
    import subprocess

    text = script.encode(errors="surrogateescape")
    done = subprocess.run([program, *arguments], input=text, stdout=subprocess.PIPE, check=False)
    if done.returncode == 255:
        sys.stderr.write("qsub: Your job has been administratively rejected by the queueing system.\n")
        raise SystemExit(1)
    if done.returncode:
        raise UsageError(f"submit filter returned an error code, aborting job submission: {done.returncode}")
    return done.stdout.decode(errors="surrogateescape")


class ScriptError(UsageError):
    """qsub does not take the script; its exit status is 1, where that of a wrong command line is 2."""


def _read_script(operands: list[str]) -> tuple[str, str]:
    """The script and its name; what comes on standard input is not looked at (get_script, istext, isWindowsFormat)."""
    if not operands or operands[0] == "-":
        return sys.stdin.buffer.read().decode(errors="surrogateescape"), "STDIN"
    try:
        is_file = stat.S_ISREG(os.stat(operands[0]).st_mode)  # noqa: PTH116 - the commands start without pathlib
    except OSError as error:
        raise ScriptError(f"script file '{operands[0]}' cannot be loaded - {error.strerror}") from None
    if not is_file:
        raise ScriptError("script not a file")
    try:
        with open(operands[0], "rb") as file:  # noqa: PTH123
            data = file.read()
    except OSError as error:
        raise UsageError(f"opening script file: {error.strerror}") from None
    if not is_ascii_script(data):
        raise ScriptError(" file must be an ascii script")
    if is_windows_format(data):
        raise ScriptError(" script is written in DOS/Windows text format")
    return data.decode(errors="surrogateescape"), os.path.basename(operands[0])  # noqa: PTH119


def is_ascii_script(data: bytes) -> bool:
    """Return whether the first bytes are all ASCII that prints, or blanks."""
    return all(0x20 <= byte < 0x7F or byte in b"\t\n\v\f\r" for byte in data[:VERIFIED_BYTES])


def is_windows_format(data: bytes) -> bool:
    """Return whether a line has a carriage return for its last character but one, read in parts of 2047 bytes."""
    *whole, rest = data.split(b"\n")
    for line in [*(line + b"\n" for line in whole), rest]:
        parts = [line[at : at + LINE_PART].partition(b"\0")[0] for at in range(0, len(line), LINE_PART)]
        if any(part[-2:-1] == b"\r" for part in parts):
            return True
    return False


def _may_use(display: str) -> str:
    from ..shared import x11

    found = x11.authority(display)
    if not found:
        raise UsageError("Failed to get xauth data (check $DISPLAY variable)")
    return found


def prepare(arguments: list[str]) -> tuple[Submission, str]:
    """Read the command line, the script and its directives, in the order in which the later wins."""
    here = site()
    environment = dict(os.environ)
    cwd = os.getcwd()  # noqa: PTH109
    peek = Submission(environment, cwd, here.host)
    operands = peek.take(arguments)
    result = Submission(environment, cwd, here.host)
    command = ""
    if peek.interactive:
        if operands and not peek.direct_command:
            raise UsageError("a script is not taken by -I without -x")
        command = " ".join(operands)
        name = "STDIN"
    else:
        script, name = _read_script(operands)
        program = submit_filter(here.home)
        if program:
            script = filtered(program, arguments, script)
        prefix = environment.get("PBS_DPREFIX", "#PBS") if peek.prefix is None else peek.prefix
        for parts in directives.read(script.replace("\r\n", "\n"), prefix):
            result.take(parts)
        result.job["script"] = script.replace("\r\n", "\n")
    result.take(arguments)
    result.job["name"] = result.job["name"] or name
    result.job["submit_args"] = " ".join(arguments)
    result.job["submit_dir"] = cwd
    if result.display:
        result.job["forward_x11"] = _may_use(result.display)
    return result, command


def main(arguments: list[str]) -> int:
    """Submit a job and print its id."""
    if arguments == ["--version"]:
        sys.stderr.write(VERSION)
        return 0
    try:
        submission, command = prepare(arguments)
    except UsageError as error:
        sys.stderr.write(f"qsub: {error}\n")
        return 1 if isinstance(error, ScriptError) else 2
    submission.job["variables"] = submission.all_variables(pwd.getpwuid(os.getuid()))
    submission.job["init_work_dir"] = submission.job["init_work_dir"] or submission.cwd
    if submission.interactive:
        from . import interactive

        return interactive.main(submission.job, command, submission.display)
    answer = ask("qsub", {"op": "submit", "job": submission.job})
    if answer["code"]:
        sys.stderr.write(f"qsub: submit error ({answer['text']})\n")
        return int(answer["code"]) & 0xFF
    if not submission.quiet:
        sys.stdout.write(f"{answer['job']}\n")
    return 0
