# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vmgr: what there is, for people and programs.  Each subject has a module of its own, loaded when it is asked for."""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys
import typing as t

from ....module_utils.installed import version
from ....module_utils.job.config.parameters import PARAMETERS, Policy
from ....module_utils.job.config.policy_file import PATH, load, load_once
from ..output import messages

PROGRAM = "vmgr"


class Subject(t.Protocol):
    """What a subject's module, `vmgr_<subject>.py`, offers.

    `call.config` is the path of the site's configuration, for who wants more of it than its values.
    """

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the verbs and options of the subject."""

    def run(self, call: argparse.Namespace, load: t.Callable[[], Policy]) -> int:
        """Do what was asked for; the exit status."""


SUBJECTS = ("image", "job", "suspended", "disk", "config", "doctor", "node", "site", "selftest")
"""In the order of the help."""

OLD_WORDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("show", "images"), ("image", "list")),
    (("show", "image"), ("image", "show")),
    (("show", "config"), ("config", "show")),
    (("add",), ("image", "add")),
    (("update",), ("image", "update")),
    (("delete",), ("image", "delete")),
)
"""As the original had them, and what they are called now."""


class _Version(argparse.Action):
    """Print the version, and end: it is read from a file only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_others: object) -> t.NoReturn:
        print(f"{PROGRAM} {version()}")
        parser.exit()


def main() -> int:
    """The program; returns its exit status."""
    return messages.run(PROGRAM, lambda: run_subject(sys.argv[1:]))


def run_subject(argv: t.Sequence[str], policy_path: pathlib.Path = PATH) -> int:
    """Do what was asked for.

    Args:
        argv: the arguments.
        policy_path: the site's configuration.

    Returns:
        The exit status.
    """
    argv = _of_today(argv)
    asked = [name for name in SUBJECTS if name in argv[:1]] or SUBJECTS
    modules = {name: _module(name) for name in asked}
    call = _parser(modules).parse_args(argv)
    call.config = policy_path
    return modules[call.subject].run(call, load_once(lambda: load(policy_path)))


def _of_today(argv: t.Sequence[str]) -> t.Sequence[str]:
    for old, new in OLD_WORDS:
        if tuple(argv[: len(old)]) == old:
            return [*new, *argv[len(old) :]]
    return argv


def completion_values(vm_img_dir: str, records_dir: str) -> dict[str, t.Any]:
    """What `templates/completion/vmgr.bash.j2` is rendered with, as the program itself takes it.

    Args:
        vm_img_dir: the image pool.
        records_dir: of the records of jobs.
    """
    verbs: dict[str, tuple[str, ...]] = {}
    options: dict[str, tuple[str, ...]] = {}
    choices: dict[str, tuple[str, ...]] = {}
    for subject, own in _below(_parser({name: _module(name) for name in SUBJECTS})).items():
        verbs[subject] = tuple(_below(own)) or _options(own)
        for verb, parser in _below(own).items():
            options[f"{subject} {verb}"] = _options(parser)
            choices.update(_choices(parser))
    return {
        "subjects": SUBJECTS,
        "verbs": verbs,
        "options": options,
        "vm_img_dir": vm_img_dir,
        "records_dir": records_dir,
        "parameters": tuple(PARAMETERS),
        "choices": choices,
    }


def _below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def _options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    options = (word for action in parser._actions for word in action.option_strings)
    return tuple(word for word in options if word.startswith("--"))


def _choices(parser: argparse.ArgumentParser) -> dict[str, tuple[str, ...]]:
    taking = (action for action in parser._actions if action.choices and action.option_strings)
    return {action.option_strings[-1]: tuple(map(str, action.choices or ())) for action in taking}


def _parser(modules: t.Mapping[str, Subject]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Look at the site's images, jobs, nodes and settings.")
    parser.add_argument("--version", action=_Version, nargs=0, help="vmgr's version")
    subjects = parser.add_subparsers(dest="subject", required=True, metavar=" | ".join(SUBJECTS))
    for name, module in modules.items():
        own = subjects.add_parser(name, help=module.HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
        module.add_arguments(own)
    return parser


def _module(name: str) -> Subject:
    return t.cast("Subject", importlib.import_module(f"{__package__}.{'images.image' if name == 'image' else name}"))


if __name__ == "__main__":
    sys.exit(main())
