# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the batch system's side of a node tells: each check good and bad."""

from __future__ import annotations

import os
import pathlib
import resource
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import BatchNode
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.torque import (
    doctor_checks,
    hook_calls,
    mom_hooks,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.doctor import node_checks
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.health_report import CHECKS, Finding


class Server:
    """A batch server that knows nodes and notes."""

    def __init__(self, *names: str, note: str = "", silent: bool = False) -> None:
        self.names = names
        self.stored = note
        self.silent = silent

    def nodes(self) -> tuple[BatchNode, ...]:
        self._answer()
        return tuple(node(name) for name in self.names)

    def note(self, _node: str) -> str:
        self._answer()
        return self.stored

    def _answer(self) -> None:
        if self.silent:
            raise SiteFault("pbsnodes", "did not answer within 8 s")


def node(name: str) -> BatchNode:
    """A node in use, or one whose name begins with its state: `down!cn3`."""
    state, mark, rest = name.partition("!")
    return BatchNode(rest if mark else name, frozenset({state if mark else "free"}), 4, 0, frozenset(), "")


def any_batch(**facts: t.Any) -> t.Any:
    return Server(*facts.pop("names", ()), **facts)


@pytest.mark.parametrize(
    ("config", "timeout", "state", "message"),
    [
        ("", 270, "ok", ""),
        ("$prologalarm 300\n", 270, "ok", ""),
        ("$prologalarm 600\n", 270, "ok", ""),
        ("$prologalarm 299\n", 270, "bad", "write $prologalarm 300 into"),
        ("$prologalarm 20\n", 270, "bad", "leaves 0 s for guests to start"),
        ("$prologalarm 300\n", 271, "bad", "write $prologalarm 301 into"),
        ("$prologalarm 120\n", 90, "ok", ""),
        ("$prologalarm 89\n", 30, "warn", "leaves 29 s for a user's vm_epilogue, vm_epilogue_timeout is 30"),
        ("$prologalarm 89\n", 30, "warn", "write $prologalarm 90 into"),
        ("$prologalarm 90\n", 30, "ok", ""),
    ],
)
def test_alarm(tmp_path: pathlib.Path, config: str, timeout: int, state: str, message: str) -> None:
    """The prologue's own reserve and Torque's ten seconds are needed besides."""
    (tmp_path / "mom_priv").mkdir()
    (tmp_path / "mom_priv/config").write_text(config)
    policy = Policy(prologue_timeout=timeout, torque_home=str(tmp_path))
    finding = node_checks.check_alarm(policy, hook_calls.hook_limits(policy))
    assert finding.state == state
    assert message in finding.explanation
    assert bool(finding.problem) == bool(message)


@pytest.fixture
def mom_priv(tmp_path: pathlib.Path) -> pathlib.Path:
    """Our hooks, as they are installed."""
    text = templates.render("batch/torque/hook.sh.j2", site_dir=None, prefix="/opt/vtorque", site_hooks="/etc/vtorque")
    for name in mom_hooks.HOOKS:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o500)
    return tmp_path


def hooks(mom_priv: pathlib.Path, uid: int | None = None) -> Finding:
    return doctor_checks.check_hooks(mom_priv, os.getuid() if uid is None else uid)


def test_hooks_in_place(mom_priv: pathlib.Path) -> None:
    for name in ("prologue.user", "epilogue.precancel", "config"):
        (mom_priv / name).write_text("the site's")
    assert hooks(mom_priv) == Finding("hooks")


CONFIG = """\
# of this cluster
$pbsserver          node06
$logevent           255
$restricted         *.mycluster.org
"""
"""As the manual of Torque 4.0.2 has it in "Job preemption", where its last line is `$checkpoint_script`."""


@pytest.mark.parametrize(
    ("line", "directive"),
    [
        ("$checkpoint_script  /opt/moab/tools/mom-checkpoint.sh", "$checkpoint_script"),
        ("   $Checkpoint_Script /opt/c.sh  # for preemption", "$checkpoint_script"),
        ("$restart_script /opt/r.sh", "$restart_script"),
        ("$restart_script /r\n$checkpoint_script /c", "$checkpoint_script and $restart_script"),
        ("$checkpoint_script /opt/c.sh\n$logevent 511", "$checkpoint_script"),
    ],
)
def test_check_hooks_with_a_checkpoint_script_of_the_mom_warns_with_the_remedy(
    mom_priv: pathlib.Path, line: str, directive: str
) -> None:
    (mom_priv / "config").write_text(f"{CONFIG}{line}\n")
    finding = hooks(mom_priv)
    assert (finding.state, finding.cell) == ("warn", "ok")
    assert finding.problem.startswith(f"{directive} in {mom_priv}/config: any user can have text of theirs run by root")
    assert finding.remedy == f"remove it, then kill -HUP $(cat {mom_priv}/mom.lock)"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "#$checkpoint_script /opt/c.sh",
        "$loglevel 7 # $checkpoint_script /opt/c.sh",
        "checkpoint_script /opt/c.sh",
        "$checkpoint_scripts /opt/c.sh",
        "$checkpoint_script",
        "$checkpoint_interval 10\n$checkpoint_run_exe /usr/bin/cr_run",
    ],
)
def test_check_hooks_with_a_configuration_that_sets_no_such_script_is_well(mom_priv: pathlib.Path, line: str) -> None:
    (mom_priv / "config").write_text(f"{CONFIG}{line}\n")
    assert hooks(mom_priv) == Finding("hooks")


def test_check_hooks_with_two_ways_to_root_names_both(mom_priv: pathlib.Path) -> None:
    (mom_priv / "config").write_text(f"{CONFIG}$checkpoint_script /opt/c.sh\n")
    (mom_priv / "prologue.night").touch()
    finding = hooks(mom_priv)
    assert "prologue.night in " in finding.problem
    assert "$checkpoint_script in " in finding.problem
    assert finding.remedy.startswith("keep it elsewhere; remove it")


@pytest.mark.parametrize(
    ("name", "mode", "message"),
    [
        ("prologue", 0o520, "prologue could be changed by others"),
        ("epilogue", 0o502, "epilogue could be changed by others"),
        ("epilogue.parallel", 0o400, "epilogue.parallel cannot be run (mode 0400)"),
        ("prologue.parallel", 0, "prologue.parallel is missing"),
    ],
)
def test_hook_that_the_mom_would_not_run(mom_priv: pathlib.Path, name: str, mode: int, message: str) -> None:
    if mode:
        (mom_priv / name).chmod(mode)
    else:
        (mom_priv / name).unlink()
    finding = hooks(mom_priv)
    assert finding.state == "bad"
    assert message in finding.problem
    assert finding.remedy == "play mikelangelo.vtorque.install"


def test_hook_of_somebody_else(mom_priv: pathlib.Path) -> None:
    assert "owner" in hooks(mom_priv, uid=os.getuid() + 1).problem
    (mom_priv / "prologue").chmod(0o700)
    (mom_priv / "prologue").write_text("#!/bin/sh\nexit 0\n")
    assert "prologue is not vTorque's" in hooks(mom_priv).problem
    (mom_priv / "epilogue").unlink()
    (mom_priv / "epilogue").mkdir()
    assert "epilogue is no file" in hooks(mom_priv).problem


def test_hook_of_another_version_is_told(mom_priv: pathlib.Path) -> None:
    text = (mom_priv / "prologue").read_text()
    assert doctor_checks.check_hooks(mom_priv, os.getuid(), f"\n{text}\n") == Finding("hooks")
    (mom_priv / "epilogue").chmod(0o700)
    (mom_priv / "epilogue").write_text(f"{text}exit 0\n")
    finding = doctor_checks.check_hooks(mom_priv, os.getuid(), text)
    assert (finding.state, finding.cell) == ("warn", "other")
    assert finding.problem.startswith("epilogue in ")


def test_hook_is_expected_as_it_is_installed() -> None:
    assert "/opt/here/venv/bin/python" in doctor_checks.expected_hook("/opt/here")
    assert mom_hooks.OURS in doctor_checks.expected_hook("/opt/here").encode()


NODES = r"""
case $1 in
    -x)
        [ "${2-cn1}" = cn1 ] || { echo "pbsnodes: Unknown node" >&2; exit 1; }
        printf '<Data><Node><name>cn1</name><note>load \016 9</note></Node></Data>\n'
        ;;
    *) echo "Error setting note attribute for $3 - Unknown node" >&2; exit 1 ;;
esac"""
"""One node, with a `<` in its note."""


def tools_that(directory: pathlib.Path, **scripts: str) -> pathlib.Path:
    """Torque's commands."""
    good = {
        "qstat": "echo 'qstat: Unknown Job Id Error 99999999.fe' >&2; exit 153",
        "pbsnodes": NODES,
        "qhold": "echo 'qhold: Unknown Job Id 99999999.fe' >&2; exit 153",
    }
    for name, script in {**good, **scripts}.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("scripts", "state", "message"),
    [
        ({}, "ok", ""),
        ({"qstat": "echo no >&2; exit 2"}, "bad", "qstat -f: qstat -f of a job that is not there should say so, "),
        ({"qstat": "echo all of the queue"}, "bad", "qstat -f: qstat -f of a job that is not there should say so, "),
        (
            {"pbsnodes": NODES.replace("Unknown node", "Unauthorized Request")},
            "bad",
            "pbsnodes -N: pbsnodes -N: Error setting note attribute for nowhere.invalid - Unauthorized Request",
        ),
        ({"pbsnodes": "echo '<Data/>'"}, "bad", "pbsnodes -N: the batch server has no node cn1"),
        ({"qhold": "echo Unauthorized >&2; exit 159"}, "bad", "qhold: qhold -h u of a job that is not there"),
        ({"qstat": "echo gone >&2; exit 111"}, "warn", "the batch server does not tell: qstat -f: "),
        ({"qstat": "exit 111", "qhold": "exit 1"}, "bad", "qhold: "),
    ],
)
def test_rights_at_the_batch_server(tmp_path: pathlib.Path, scripts: dict[str, str], state: str, message: str) -> None:
    """A server that is silent says nothing of a node's rights."""
    finding = doctor_checks.check_rights(tools_that(tmp_path, **scripts), "cn1")
    assert finding.state == state
    assert finding.problem.startswith(message)
    assert ("operators += root@cn1" in finding.remedy) is (state == "bad")


@pytest.mark.parametrize(
    ("node", "asked"), [("cn1", "[-x][cn1]"), ("CN1.site", "[-x][CN1.site][-x]")], ids=["its name", "another form"]
)
def test_trial_of_rights_changes_and_lists_nothing(tmp_path: pathlib.Path, node: str, asked: str) -> None:
    """What anybody wrote about the node stays, whenever they did, and nobody asks for all jobs."""
    tools = tools_that(tmp_path)
    for name in ("pbsnodes", "qstat"):
        script = (tools / name).read_text()
        tell = f'printf "[%s]" "$@" >>{tmp_path}/{name}.told'
        (tools / name).write_text(script.replace("#!/bin/sh\n", f"#!/bin/sh\n{tell}\n"))
    assert doctor_checks.check_rights(tools, node).state == "ok"
    assert (tmp_path / "pbsnodes.told").read_text() == f"{asked}[-N][][nowhere.invalid]"
    assert (tmp_path / "qstat.told").read_text() == "[-f][99999999]"


@pytest.mark.parametrize(
    ("known", "state", "message"),
    [
        ({"cn2": "10.0.0.2", "fe": "10.0.0.9"}, "ok", ""),
        ({"cn2": "10.0.0.2"}, "bad", "fe is not known"),
        ({"cn2": "127.0.1.1", "fe": "10.0.0.9"}, "bad", "cn2 is this host itself"),
    ],
)
def test_names_of_others(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, str], state: str, message: str
) -> None:  # fmt: skip
    def resolve(name: str, *_more: object, **_how: object) -> list[t.Any]:
        if name not in known:
            raise OSError(-2, "Name or service not known")
        return [(2, 1, 6, "", (known[name], 0))]

    monkeypatch.setattr(node_checks.socket, "getaddrinfo", resolve)
    finding = node_checks.check_names(any_batch(names=("cn1", "cn2")), "cn1", "fe")
    assert finding.state == state
    assert finding.problem.startswith(message)


def test_program_that_a_user_could_choose_is_told(mom_priv: pathlib.Path) -> None:
    (mom_priv / "prologue.orig").write_text("")
    finding = hooks(mom_priv)
    assert finding.state == "warn"
    assert finding.problem.startswith("prologue.orig in ")


@pytest.mark.parametrize(
    ("server", "state", "message"),
    [
        ({}, "ok", ""),
        ({"note": "fan is loud"}, "warn", "fan is loud"),
        ({"note": "vtorque: disk: full (job 1.th)"}, "bad", "vtorque: disk: full (job 1.th)"),
        ({"silent": True}, "warn", "the batch server does not tell: pbsnodes"),
    ],
)
def test_note(server: dict[str, t.Any], state: str, message: str) -> None:
    """A server that is silent, which is no fault of the node's, must not make a health check fail everywhere."""
    finding = node_checks.check_note(any_batch(**server), "cn1")
    assert finding.state == state
    assert finding.problem.startswith(message)


@pytest.mark.parametrize(
    ("names", "here", "peers"),
    [
        (("cn1", "cn2", "cn3"), "cn1", ("cn2", "cn3")),
        (("cn1", "cn2", "cn3"), "cn2", ("cn3", "cn1")),
        (("cn3", "cn2", "cn1"), "cn3", ("cn1", "cn2")),
        (("cn1.site", "cn2.site"), "cn1", ("cn2.site",)),
        (("cn1", "down!cn2", "offline!cn3", "cn4"), "cn1", ("cn4",)),
        (("cn1",), "cn1", ()),
        (tuple(f"cn{number}" for number in range(1, 9)), "cn7", ("cn8", "cn1", "cn2")),
    ],
)
def test_nodes_stand_in_a_ring(names: tuple[str, ...], here: str, peers: tuple[str, ...]) -> None:
    assert node_checks.next_nodes([node(name) for name in names], here) == peers


def ssh_that(directory: pathlib.Path, script: str) -> str:
    """A program in ssh's place; the node it is called for is $node."""
    path = directory / "ssh"
    path.write_text(f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nnode=$2\n{script}\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("names", "script", "state", "message"),
    [
        (("cn1", "cn2"), "exit 0", "ok", ""),
        (("cn1", "cn2"), "echo 'Connection refused' >&2; exit 255", "bad", "cn2 is not reached (Connection refused)"),
        (("cn1", "cn2", "cn3"), '[ "$node" = cn3 ] || exit 255', "warn", "cn2 is not reached (status 255)"),
        (("cn1",), "exit 255", "none", ""),
    ],
)
def test_ways_to_other_nodes(
    tmp_path: pathlib.Path, names: tuple[str, ...], script: str, state: str, message: str
) -> None:
    """One that is not reached may itself be the one that is ill."""
    finding = node_checks.check_ssh(any_batch(names=names), "cn1", 5, ssh_that(tmp_path, script))
    assert finding.state == state
    assert finding.problem.startswith(message)
    assert bool(finding.problem) == bool(message)


def test_ways_that_nobody_names() -> None:
    finding = node_checks.check_ssh(any_batch(silent=True), "cn1", 5)
    assert (finding.state, finding.cell) == ("warn", "?")


def test_ssh_that_hangs_or_is_missing(tmp_path: pathlib.Path) -> None:
    assert node_checks.reach("cn2", -0.9, ssh_that(tmp_path, "exec sleep 60")).startswith("no answer in ")
    assert "No such file" in node_checks.reach("cn2", 5, str(tmp_path / "gone"))


@pytest.mark.parametrize("stream", [1, 2])
def test_ssh_that_talks_without_end_is_kept_nowhere(tmp_path: pathlib.Path, stream: int) -> None:
    ssh = ssh_that(tmp_path, f"exec head -c 300000000 /dev/zero >&{stream}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert node_checks.reach("cn2", 60, ssh) == ("its standard error has no end" if stream == 2 else "")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "in KiB"


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a b", "", "a;b", "a@b"])
def test_only_a_host_name_reaches_ssh(name: str) -> None:
    with pytest.raises(VTorqueError, match="not of the form"):
        node_checks.ssh_call(name, 5)


def test_each_check_is_known(tmp_path: pathlib.Path) -> None:
    policy = Policy(torque_home=str(tmp_path))
    made = node_checks.checks(policy, any_batch(), "cn1", ssh_timeout_s=1)
    assert list(made) == ["alarm", "hooks", "ssh", "note"]
    assert set(made) < set(CHECKS)
    assert [made[name]().state for name in made] == ["ok", "bad", "none", "ok"]
