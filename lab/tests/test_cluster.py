# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster as machines: namespaces, users, ssh, libvirt, DHCP; its loss, its end, and its interruption."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import typing as t

import pytest

from lab.cluster import lifecycle, on_nodes
from lab.system import cgroups, network, places
from lab.system.places import OWN_VENV
from lab.system.state import LabError, Process, State
from lab.tests.commands import on, out

PLAN = lifecycle.Plan(nodes=("fe", "cn1", "cn2"), runtime=pathlib.Path(sys.prefix), bare=True)


def living(space: str) -> set[int]:
    """The processes of a process namespace, as the machine numbers them, without those that have ended."""
    found = set()
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        # gone meanwhile, or one of the machine's that nobody may look into
        with contextlib.suppress(OSError):
            if str((path / "ns/pid").readlink()) == space:
                found.add(Process.of(int(path.name)).pid)
    return found


def space_of(state: State, node: str) -> str:
    """The name of a node's process namespace."""
    return str(pathlib.Path(f"/proc/{state.running().init(node).pid}/ns/pid").readlink())


def traces(state: State) -> list[str]:
    """Whatever the machine shows of a lab."""
    mounts = [
        line for line in pathlib.Path("/proc/self/mounts").read_text().splitlines() if str(state.directory) in line
    ]
    directory = [str(state.directory)] if state.directory.exists() else []
    return [*network.present(state), *map(str, cgroups.present(state)), *mounts, *directory]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[State]:
    state = State(tmp_path_factory.mktemp("lab") / "state")
    lifecycle.up(state, PLAN)
    yield state
    lifecycle.down(state)


def test_every_node_has_its_own_name_files_and_identity(lab: State) -> None:
    nodes = ("fe", "cn1", "cn2")
    assert [out(lab, node, "hostname") for node in nodes] == list(nodes)
    assert [out(lab, node, "cat", "/etc/hostname") for node in nodes] == list(nodes)
    assert len({out(lab, node, "cat", "/etc/machine-id") for node in nodes}) == 3
    out(lab, "cn1", "sh", "-c", "mkdir /opt/mine && echo cn1 >/etc/mine && echo cn1 >/var/lib/mine")
    for place in ("/opt/mine", "/etc/mine", "/var/lib/mine"):
        assert on(lab, "cn2", "test", "-e", place).returncode == 1
        assert not pathlib.Path(place).exists()


def test_node_begins_without_what_the_machine_has_installed(tmp_path: pathlib.Path) -> None:
    """Of a machine's own MOM a front end would have the directory, and a node the jobs."""
    machine = tmp_path / "machine"
    for place in ("var/spool/torque/mom_priv/jobs", "etc/vtorque", "etc/skel"):
        (machine / place).mkdir(parents=True)
    script = (
        "import pathlib, sys\nfrom lab.cluster import node\nfrom lab.system import namespaces\n"
        "namespaces.unshare(mounts=True)\n"
        "node.mount(None, '/', None, node.MS_REC | node.MS_PRIVATE)\n"
        "root = node._root(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))\n"
        "print(sorted(str(path.relative_to(root)) for path in root.rglob('*')))\n(root / 'etc/vtorque/mine').touch()\n"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path / "node"), str(machine)]
    here = places.CHECKOUT
    printed = [
        subprocess.run(arguments, cwd=here, capture_output=True, text=True, check=True).stdout for _boot in range(2)
    ]
    begun = ["etc", "etc/skel", "etc/vtorque", "var", "var/spool", "var/spool/torque"]
    # what it wrote is there when it boots again
    assert printed == [f"{begun}\n", f"{sorted([*begun, 'etc/vtorque/mine'])}\n"]


def test_users_are_the_same_on_every_node_and_share_their_homes(lab: State) -> None:
    assert {out(lab, node, "id", user="alice") for node in ("fe", "cn1", "cn2")} == {
        "uid=1001(alice) gid=1001(alice) groups=1001(alice),2000(HPC Users)"
    }
    assert out(lab, "cn2", "id", user="bob") == "uid=1002(bob) gid=2000(HPC Users) groups=2000(HPC Users)"
    out(lab, "cn1", "sh", "-c", "echo from cn1 >note", user="alice")
    assert out(lab, "fe", "cat", "/home/alice/note") == "from cn1"


def test_a_command_by_ssh_runs_nothing_of_what_the_machine_s_root_has_for_his_shells(lab: State) -> None:
    output = out(
        lab, "cn1", "ssh", "cn2", "cat ~/.bashrc ~/.profile ~/.bash_profile ~/.bash_login; echo $HOME; type ls"
    )
    assert output.splitlines() == ["/root", "ls is /usr/bin/ls"]


def test_a_node_s_address_on_the_wire_is_its_own_and_less_than_any_guest_s(lab: State) -> None:
    """Else its bridge takes a tap's, and the others ask a guest that is gone for the node."""
    addresses = [out(lab, node, "cat", f"/sys/class/net/{face}/address") for node, face in
                 (("fe", "eth0"), ("cn1", "br0"), ("cn1", "eth0"), ("cn2", "br0"))]  # fmt: skip
    assert addresses == ["02:00:0a:4d:00:01", "02:00:0a:4d:00:0b", "02:00:0a:4d:00:0b", "02:00:0a:4d:00:0c"]
    out(lab, "cn1", "ip", "tuntap", "add", "tap7", "mode", "tap")
    try:
        out(lab, "cn1", "ip", "link", "set", "tap7", "address", "fe:54:00:00:01:01", "master", "br0", "up")
        assert out(lab, "cn1", "cat", "/sys/class/net/br0/address") == addresses[1]
    finally:
        out(lab, "cn1", "ip", "link", "del", "tap7")


def test_the_runtime_and_the_pool_cannot_be_written_on_a_node(lab: State) -> None:
    for place in ("/opt/vtorque/venv/x", "/opt/vm-images/x", "/opt/vtorque-lab/lab/x"):
        assert "Read-only file system" in on(lab, "cn1", "touch", place).stderr


def test_programs_of_the_runtime_run_the_runtime_s_python(lab: State) -> None:
    first = out(lab, "cn1", "head", "-n", "1", "/opt/vtorque/venv/bin/ansible-playbook")
    assert first.startswith("#!/opt/vtorque/venv/bin/python")
    assert (
        out(lab, "cn1", "/opt/vtorque/venv/bin/python", "-I", "-c", "import sys; print(sys.prefix)")
        == "/opt/vtorque/venv"
    )


def test_each_compute_node_has_a_libvirt_of_its_own(lab: State) -> None:
    hosts = []
    for node in ("cn1", "cn2"):
        assert out(lab, node, "virsh", "hostname") == node
        assert out(lab, node, "virsh", "list", "--all", "--name") == ""
        assert out(lab, node, "virsh", "net-list", "--name", "--autostart") == ""
        hosts.append([line for line in out(lab, node, "virsh", "capabilities").splitlines() if "<uuid>" in line])
    assert hosts[0]
    assert hosts[0] != hosts[1]


DOMAIN = """<domain type='qemu'><name>probe</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><disk type='file' device='disk'><driver name='qemu' type='raw'/>
<source file='/var/lib/probe/disk'/><target dev='vda' bus='virtio'/></disk>
<interface type='bridge'><source bridge='br0'/></interface></devices></domain>"""


def test_qemu_is_not_root_and_gets_its_disk_by_ownership(lab: State) -> None:
    out(lab, "cn1", "sh", "-c", "mkdir -m 711 /var/lib/probe && truncate -s 1M /var/lib/probe/disk")
    done = on(lab, "cn1", "virsh", "create", "/dev/stdin", stdin=DOMAIN)
    assert done.returncode == 0, done.stderr
    try:
        assert out(lab, "cn1", "ps", "-C", "qemu-system-x86_64", "-o", "user:20=") == "libvirt-qemu"
        assert out(lab, "cn1", "stat", "-c", "%U", "/var/lib/probe/disk") == "libvirt-qemu"
        assert out(lab, "cn2", "virsh", "list", "--all", "--name") == ""
        done = subprocess.run(
            [sys.executable, "-m", "lab", "left", "--json"], capture_output=True, text=True, cwd=places.CHECKOUT,
            env={**os.environ, "VTORQUE_LAB": str(lab.directory)}, check=False,
        )  # fmt: skip
        left = json.loads(done.stdout)
        assert done.returncode == 1
        assert {thing.split()[0] for thing in left["cn1"]} == {"cgroup", "domain", "domain's", "process", "tap"}
        assert left["fe"] == left["cn2"] == []
    finally:
        out(lab, "cn1", "virsh", "destroy", "probe")
    assert out(lab, "cn1", "stat", "-c", "%U", "/var/lib/probe/disk") == "root"


CLIENT = """ip netns add client && ip link add v0 type veth peer name v1 netns client &&
ip link set v0 master br0 up && ip -n client link set v1 up &&
ip netns exec client busybox udhcpc -i v1 -n -q -f -t 20 -s /bin/true
status=$?; ip netns del client; exit $status"""


def test_a_machine_on_a_node_s_bridge_gets_an_address(lab: State) -> None:
    done = on(lab, "cn2", "sh", "-c", CLIENT)
    assert done.returncode == 0, done.stdout + done.stderr
    lease = re.search(r"lease of 10\.77\.0\.(\d+) obtained from 10\.77\.0\.1\b", done.stdout + done.stderr)
    assert lease
    assert 100 <= int(lease[1]) <= 250
    assert f" 10.77.0.{lease[1]} " in out(lab, "fe", "cat", "/var/lib/misc/dnsmasq.leases")


def test_root_goes_from_node_to_node_with_known_host_keys(lab: State) -> None:
    assert out(lab, "cn1", "ssh", "cn2", "hostname") == "cn2"
    assert "stricthostkeychecking true" in out(lab, "cn1", "ssh", "-G", "cn2")
    refused = on(lab, "cn1", "ssh", "-o", "GlobalKnownHostsFile=/tmp/empty", "cn2", "hostname")
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr


def test_on_hands_back_the_status_and_keeps_a_terminal(lab: State) -> None:
    line = [sys.executable, "-m", "lab", "on", "cn1", "--user", "alice", "--cwd", "/etc", "--"]
    environment = {**os.environ, "VTORQUE_LAB": str(lab.directory)}
    done = subprocess.run(
        [*line, "sh", "-c", "pwd; exit 37"], capture_output=True, text=True, cwd=places.CHECKOUT, env=environment
    )
    assert (done.returncode, done.stdout) == (37, "/etc\n")
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0), os.fdopen(slave, "rb", buffering=0):
        printed = subprocess.run(
            [*line, "sh", "-c", "test -t 0 && test -t 1"], stdin=slave, stdout=slave, stderr=slave,
            cwd=places.CHECKOUT, env=environment,
        )  # fmt: skip
    assert printed.returncode == 0


def test_up_again_changes_nothing_and_another_shape_is_refused(lab: State) -> None:
    before = lab.running()
    assert lifecycle.up(lab, PLAN) is False
    assert lab.running() == before
    with pytest.raises(LabError, match="another lab is up"):
        lifecycle.up(lab, lifecycle.Plan(nodes=("fe", "cn1"), runtime=PLAN.runtime, bare=True))


def test_two_labs_stand_side_by_side(lab: State, other: State) -> None:
    lifecycle.up(other, lifecycle.Plan(nodes=("fe", "cn1"), runtime=PLAN.runtime, bare=True))
    out(other, "cn1", "touch", "/etc/other")
    assert on(lab, "cn1", "test", "-e", "/etc/other").returncode == 1
    lifecycle.down(other)
    assert traces(other) == []
    assert out(lab, "cn1", "hostname") == "cn1"


def test_the_loss_of_a_node_takes_everything_of_it_and_nothing_else(other: State) -> None:
    lifecycle.up(other, PLAN)
    facts = other.running()
    space = space_of(other, "cn1")
    assert len(living(space)) > 3
    sleeper = subprocess.Popen(on_nodes.command(facts, "cn1", ["setsid", "sleep", "600"]))
    init = os.pidfd_open(facts.inits["cn1"].pid)
    signal.pidfd_send_signal(init, signal.SIGKILL)
    # a namespace's first process ends after all others of it did (pid_namespaces(7))
    assert select.select([init], [], [], 60)[0] == [init]
    os.close(init)
    assert sleeper.wait(timeout=600) != 0
    assert living(space) == set()
    with pytest.raises(LabError, match="cn1 is lost"):
        out(other, "cn1", "true")
    assert out(other, "cn2", "hostname") == "cn2"


def test_a_lost_node_comes_back_with_its_disk_and_a_boot_of_its_own(other: State) -> None:
    lifecycle.up(other, PLAN)
    out(other, "cn1", "touch", "/var/kept", "/run/gone")
    boots = [out(other, node, "cat", "/proc/sys/kernel/random/boot_id") for node in ("fe", "cn1", "cn2")]
    with pytest.raises(LabError, match="cn1 is not lost"):
        lifecycle.bring_back(other, "cn1")
    arguments = ["ssh", "-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=1", "cn1", "echo up; exec sleep 600"]
    line = on_nodes.command(other.running(), "cn2", arguments)
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == "up\n"
        lifecycle.lose(other, "cn1")
        _rest, output = session.communicate(timeout=600)
    assert "Timeout, server cn1 not responding" in output
    with pytest.raises(LabError, match="cn1 is lost"):
        lifecycle.lose(other, "cn1")
    lifecycle.bring_back(other, "cn1")
    boots.append(out(other, "cn1", "cat", "/proc/sys/kernel/random/boot_id"))
    assert len(set(boots)) == 4
    assert out(other, "cn1", "find", "/var/kept", "/run", "-maxdepth", "0") == "/var/kept\n/run"
    assert on(other, "cn1", "test", "-e", "/run/gone").returncode == 1
    assert out(other, "cn2", "ssh", "cn1", "hostname") == "cn1"
    assert out(other, "cn1", "virsh", "list", "--name") == ""


def test_a_node_without_its_cable_lives_on_and_nothing_reaches_it(other: State) -> None:
    lifecycle.up(other, PLAN)
    ssh = ("ssh", "-o", "ConnectTimeout=5", "cn1", "hostname")
    lifecycle.plug(other, "cn1", plugged=False)
    assert on(other, "cn2", *ssh).returncode == 255
    assert out(other, "cn1", "hostname") == "cn1"
    lifecycle.plug(other, "cn1", plugged=True)
    assert out(other, "cn2", *ssh) == "cn1"


def test_daemons_of_a_node_block_no_signals(lab: State) -> None:
    for daemon in ("libvirtd", "sshd"):
        blocked = out(lab, "cn1", "sh", "-c", f"grep SigBlk /proc/$(cat /run/{daemon}.pid)/status")
        assert blocked.split() == ["SigBlk:", "0" * 16]


def test_libvirt_is_started_again_among_the_node_s_own_processes(lab: State) -> None:
    arguments = ("/usr/bin/env", "PYTHONPATH=/opt/vtorque-lab", sys.executable, "-m", "lab.revive")
    former = out(lab, "cn1", "cat", "/run/libvirtd.pid")
    out(lab, "cn1", "sh", "-c", f"kill -9 {former}; while kill -0 {former}; do sleep 0.1; done 2>/dev/null")
    out(lab, "cn1", *arguments, "libvirt")
    new = out(lab, "cn1", "cat", "/run/libvirtd.pid")
    assert new != former
    assert out(lab, "cn1", "cat", f"/proc/{new}/cgroup") == out(lab, "cn1", "cat", "/proc/1/cgroup")
    assert out(lab, "cn1", "virsh", "uri") == "qemu:///system"
    assert on(lab, "cn1", *arguments, "nothing").returncode == 2


def test_down_leaves_no_namespace_mount_process_cgroup_or_file(other: State) -> None:
    lifecycle.up(other, PLAN)
    spaces = [space_of(other, node) for node in ("fe", "cn1", "cn2")]
    assert all(living(space) for space in spaces)
    assert traces(other) != []
    assert lifecycle.down(other) is True
    assert traces(other) == []
    assert [living(space) for space in spaces] == [set(), set(), set()]
    assert lifecycle.down(other) is False


@pytest.mark.parametrize("where", ["network.make", "_start", "_wait"])
def test_up_after_an_up_that_was_killed(other: State, where: str) -> None:
    """It dies in the middle of that step: after the first namespaces, the first node, or all nodes."""
    killed = f"""
import os, pathlib, signal, sys
from lab.cluster import lifecycle
from lab.system.state import State
owner, _, name = {where!r}.rpartition(".")
owner = getattr(lifecycle, owner) if owner else lifecycle
step = getattr(owner, name)
def die(*arguments):
    if name != "_wait":
        step(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, die)
lifecycle.up(State(pathlib.Path(sys.argv[1])), lifecycle.Plan(runtime=pathlib.Path(sys.prefix), bare=True))
"""
    done = subprocess.run([sys.executable, "-c", killed, str(other.directory)], cwd=places.CHECKOUT, check=False)
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(LabError, match="no lab is up"):
        other.running()
    assert lifecycle.up(other, PLAN) is True
    assert out(other, "cn2", "hostname") == "cn2"


def test_a_node_that_cannot_start_is_named_and_leaves_nothing(
    other: State, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mounts = lifecycle._mounts

    def without_venv(state: State, facts: t.Any, name: str) -> t.Any:
        there = mounts(state, facts, name)
        return tuple(one for one in there if name != "cn1" or one.target != str(OWN_VENV))

    monkeypatch.setattr(lifecycle, "_mounts", without_venv)
    with pytest.raises(LabError, match=r"node cn1 did not come up"):
        lifecycle.up(other, PLAN)
    assert traces(other) == []
    assert "cn1" not in capfd.readouterr().out


def test_a_directory_that_is_not_a_lab_s_is_left_alone(other: State) -> None:
    other.directory.mkdir()
    (other.directory / "thesis.tex").write_text("years of work")
    with pytest.raises(LabError, match="not empty"):
        lifecycle.up(other, PLAN)
    assert lifecycle.down(other) is False
    assert (other.directory / "thesis.tex").read_text() == "years of work"
