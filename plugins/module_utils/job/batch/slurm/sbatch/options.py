# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of sbatch as getopt_long(3) reads them: letters in one word, and long names that may be cut short."""

from __future__ import annotations

import typing as t

SHORT_FLAGS = frozenset("HhkOQsVvW")
"""Letters of options without a value, or with one that can only stand in the same word."""
_FLAGS = """
    contiguous exclusive get-user-env help hold ignore-pbs nice no-kill no-requeue overcommit oversubscribe
    parsable propagate quiet reboot requeue spread-job test-only usage use-min-nodes verbose version wait
"""
FLAGS = frozenset(_FLAGS.split())
"""The same by their long names."""
_WITH_VALUE = """
    account acctg-freq array batch bb bbf begin chdir cluster cluster-constraint clusters comment constraint
    container context core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot
    dependency distribution error exclude export export-file extra-node-info gid gpu-bind gpu-freq gpus
    gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses
    mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile nodelist nodes
    ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output
    partition power prefer priority profile qos reservation signal sockets-per-node switches tasks-per-node
    thread-spec threads-per-core time time-min tmp uid wait-all-nodes wckey wrap
"""
WITH_VALUE = frozenset(_WITH_VALUE.split())
"""Long names of options whose value may be the next word."""
COMMANDS = ("vsub", "vsbatch", "vsalloc")
LETTERS = ("-vm",)
OF_SALLOC = frozenset({"bell", "no-bell", "no-shell", "immediate", "I", "kill-command", "K"})
"""Options of salloc that sbatch has not: none takes the next word for its value."""
OWN = ("--dry-run", "--json", "--version")
"""Words of ours without a value; sbatch has the last one too, and its own is `-V`."""
QUERY = "--query"
OPTIONS = tuple(sorted({*OWN, QUERY, *(f"--{name}" for name in FLAGS | WITH_VALUE | OF_SALLOC if len(name) > 1)}))
"""For a shell that completes words: our commands, and what they take."""
LONG = {
    "J": "job-name",
    "n": "ntasks",
    "c": "cpus-per-task",
    "N": "nodes",
    "h": "help",
    "V": "version",
    "D": "chdir",
    "C": "constraint",
    "G": "gpus",
    "i": "input",
    "p": "partition",
    "w": "nodelist",
    "F": "nodefile",
    "O": "overcommit",
    "M": "clusters",
}
"""Long names of the letters that matter here."""
OF_DEVICES = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
"""Options that ask for devices, besides `gres`."""


def whole(name: str) -> str:
    """Return the long name that a name means, which may be its beginning where no other one begins so.

    Args:
        name: without the dashes; one that sbatch does not know, or that means several, is returned as it is.
    """
    names = FLAGS | WITH_VALUE
    found = [name] if name in names else [one for one in names if one.startswith(name)]
    return found[0] if len(found) == 1 else name


def take(rest: list[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Take the options of the first word.

    Args:
        rest: the first one is an option; it is removed, with the second one where that is its value.

    Returns:
        Their values by their long names ("": none; a letter that does not matter is its own name); the words.
    """
    word = rest.pop(0)
    found: dict[str, str] = {}
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        name = whole(name)
        found[name] = value
        needs = not equals and name not in FLAGS
    else:
        name, needs = "", False
        for place, letter in enumerate(word[1:], 2):
            name = LONG.get(letter, letter)
            found[name] = ""
            if letter not in SHORT_FLAGS:
                found[name] = word[place:]
                needs = not word[place:]
                break
    if not needs or not rest:
        return found, (word,)
    found[name] = rest.pop(0)
    return found, (word, found[name])


ENVIRONMENT: t.Final = {
    "BATCH": "batch",
    "CLUSTERS": "clusters",
    "CONSTRAINT": "constraint",
    "EXCLUSIVE": "exclusive",
    "GPUS": "gpus",
    "GPUS_PER_NODE": "gpus-per-node",
    "GPUS_PER_TASK": "gpus-per-task",
    "GRES": "gres",
    "INPUT": "input",
    "MEM_PER_CPU": "mem-per-cpu",
    "MEM_PER_GPU": "mem-per-gpu",
    "MEM_PER_NODE": "mem",
    "OVERCOMMIT": "overcommit",
    "OVERSUBSCRIBE": "oversubscribe",
    "PARTITION": "partition",
    "RESERVATION": "reservation",
}
"""What stands behind the command's name in variables that it reads as options, of those that matter here."""
NOT_OF_SALLOC = frozenset({"BATCH", "INPUT"})


def of_environment(variables: t.Mapping[str, str], command: str = "sbatch") -> dict[str, str]:
    """Return the options in an environment, by their long names; they count over the script's lines.

    Args:
        variables: of the user's environment.
        command: `sbatch` or `salloc`.
    """
    known = ENVIRONMENT.keys() - (NOT_OF_SALLOC if command == "salloc" else set())
    found = {ENVIRONMENT[name]: f"{command.upper()}_{name}" for name in known}
    return {option: variables[name] for option, name in found.items() if name in variables}
