# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The seed says what it was told, to YAML readers and to the tiny guest's shell alike."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pathlib
import re
import shlex
import stat
import subprocess

import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault, UserFault, VTorqueError
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.registry import open_guest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed.seed import (
    Seed,
    read_iso,
    render,
    write_iso,
)
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import render as render_template
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire.messages import (
    GROUP_NAME,
    AddedFile,
    Additions,
    Command,
    Group,
    KeyPair,
    Owner,
    Package,
)
from hypothesis import given, settings
from hypothesis import strategies as st

BODY = "A" * 68
HOST_KEY = KeyPair(
    private="-----BEGIN OPENSSH PRIVATE KEY-----\n" + "b3BlbnNzaC1rZXk\n" * 20 + "-----END OPENSSH PRIVATE KEY-----\n",
    public=f"ssh-ed25519 {BODY} guest-0@4711.head.1",
)
OWNER = Owner(user="alice", uid=1001, gid=1002, group="chem", home="/home/alice", shell="/bin/bash")
SEED = Seed(
    name="vcn1-1",
    instance_id="4711.head.1.vcn1-1",
    mac="52:54:00:0a:00:01",
    distro="debian",
    job_id="4711.head",
    token="0123456789abcdef",
    node_address="10.77.0.11",
    torque_home="/var/spool/torque",
    owner=OWNER,
    host_key=HOST_KEY,
    authorized_key=f"ssh-ed25519 {BODY} job@4711.head.1",
)
ONE_LINE_FILE = re.compile(
    r'- \{path: "([^"]*)", owner: "root:root", permissions: "([0-7]{4})", encoding: b64, content: "([A-Za-z0-9+/=]*)"\}'
)


def _documents(seed: Seed) -> dict[str, dict]:
    return {name: yaml.safe_load(text) for name, text in render(seed, None).items()}


def _files(seed: Seed) -> dict[str, str]:
    entries = _documents(seed)["user-data"]["write_files"]
    assert all(entry["encoding"] == "b64" for entry in entries)
    return {entry["path"]: base64.b64decode(entry["content"]).decode() for entry in entries}


def _modes(seed: Seed) -> dict[str, str]:
    return {entry["path"]: entry["permissions"] for entry in _documents(seed)["user-data"]["write_files"]}


def _environment(seed: Seed) -> dict[str, str]:
    """What a POSIX shell makes of guest.env."""
    script = _files(seed)["/etc/vtorque/guest.env"] + "\nexport " + " ".join(
        f"VTORQUE_{name}"
        for name in ("TOKEN", "NODE_ADDRESS", "USER", "UID", "GID", "GROUP", "GROUPS", "HOME", "SHELL", "TORQUE_HOME",
                     "SSHD")
    )  # fmt: skip
    done = subprocess.run(["/bin/sh", "-c", script + "\nexec env -0"], capture_output=True, env={}, check=True)
    pairs = (entry.partition("=") for entry in done.stdout.decode().split("\0"))
    return {name: value for name, _equals, value in pairs if name.startswith("VTORQUE_")}


def test_meta_data_names_the_guest_and_its_instance() -> None:
    assert _documents(SEED)["meta-data"] == {"instance-id": "4711.head.1.vcn1-1", "local-hostname": "vcn1-1"}


def test_the_network_card_is_found_by_its_address() -> None:
    (card,) = _documents(SEED)["network-config"]["ethernets"].values()
    assert card["match"] == {"macaddress": "52:54:00:0a:00:01"}
    assert card["dhcp4"] is True
    assert "nameservers" not in card


def test_user_data_is_cloud_config_without_any_user_of_the_images() -> None:
    text = render(SEED, None)["user-data"]
    assert text.startswith("#cloud-config\n")
    data = yaml.safe_load(text)
    assert data["users"] == ["root"]
    assert data["ssh_deletekeys"] is False
    assert data["package_update"] is False


def test_no_guest_fetches_packages_while_it_boots() -> None:
    """What the site or a user wants of them is installed when the guest is ready, in a time that is bounded."""
    data = _documents(SEED)["user-data"]
    assert (data["package_update"], data["package_upgrade"]) == (False, False)
    assert not {"packages", "apt", "yum_repos", "snap"} & set(data)


def test_the_address_is_asked_for_by_mac_address() -> None:
    """networkd asks by the machine-id else, which clones of an image may share: one address for all (systemd 9609)."""
    (card,) = _documents(SEED)["network-config"]["ethernets"].values()
    assert card["dhcp-identifier"] == "mac"
    first = _documents(SEED)["user-data"]["bootcmd"][0]
    assert first == ["sh", "-c", (COLLECTION_DIR / "guest/client_id.sh").read_text("utf-8")]


def test_card_is_found_by_its_mac_and_keeps_its_name() -> None:
    """To rename one fails or comes late where the initramfs or a DHCP client has it up already."""
    (card,) = _documents(SEED)["network-config"]["ethernets"].values()
    assert card["match"] == {"macaddress": SEED.mac}
    assert "set-name" not in card


CLIENT_ID = COLLECTION_DIR / "guest/client_id.sh"


def _run_client_id(tmp_path: pathlib.Path, *, active: bool) -> list[str]:
    """Run the guest's program on a directory of our own, and return what it asked `ip` and `systemctl` for."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    calls = tmp_path / "calls"
    calls.write_text("")
    for name, status in (("ip", 0), ("systemctl", 0 if active else 3)):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >>{calls}\nexit {status}\n')
        (programs / name).chmod(0o755)
    text = CLIENT_ID.read_text("utf-8").replace("/etc/systemd/network", str(tmp_path / "network"))
    path = f"{programs}:/usr/bin:/bin"
    subprocess.run(["sh", "-eu", "-c", text], check=True, env={"PATH": path})
    return calls.read_text().splitlines()


@pytest.mark.parametrize("card", ["eth0", "enp1s0"])
def test_networkd_asks_by_the_mac_whatever_name_the_card_has(tmp_path: pathlib.Path, card: str) -> None:
    network = tmp_path / "network"
    network.mkdir()
    (network / f"10-cloud-init-{card}.network").write_text("[Match]\n")
    calls = _run_client_id(tmp_path, active=True)
    assert (network / f"10-cloud-init-{card}.network.d/vtorque.conf").read_text().endswith("ClientIdentifier=mac\n")
    assert calls == [
        "systemctl --quiet is-active systemd-networkd.service", f"ip -4 address flush dev {card}",
        "systemctl restart systemd-networkd.service",
    ]  # fmt: skip
    assert _run_client_id(tmp_path, active=True) == []


def test_networkd_that_runs_later_is_not_restarted(tmp_path: pathlib.Path) -> None:
    (tmp_path / "network").mkdir()
    (tmp_path / "network/10-cloud-init-enp1s0.network").write_text("[Match]\n")
    assert _run_client_id(tmp_path, active=False) == ["systemctl --quiet is-active systemd-networkd.service"]


def test_guest_without_files_of_networkd_stays_as_it_is(tmp_path: pathlib.Path) -> None:
    (tmp_path / "network").mkdir()
    assert _run_client_id(tmp_path, active=True) == []


def test_nobody_gets_a_password_or_more_power() -> None:
    """Neither by a word of cloud-init's nor by a file."""
    data = _documents(SEED)["user-data"]
    giving = {
        "chpasswd", "password", "ssh_pwauth", "system_info", "user", "groups", "ssh_authorized_keys", "ssh_import_id",
    }  # fmt: skip
    assert not giving & set(data)
    assert data["disable_root"] is True
    places = ("/etc/sudoers", "/etc/passwd", "/etc/shadow", "/etc/group", "/etc/pam.d", "/etc/polkit-1", "/root/")
    assert [path for path in _files(SEED) if path.startswith(places)] == []
    assert [mode for mode in _modes(SEED).values() if not re.fullmatch(r"0[0-7][0145][0145]", mode)] == []


def test_readiness_is_a_unit_of_its_own_and_the_guest_speaks_to_its_node_early() -> None:
    commands = _documents(SEED)["user-data"]["bootcmd"][1:]
    assert [command[-1].split()[0] for command in commands] == [
        "/usr/lib/vtorque/identity", "/usr/lib/vtorque/ready", "10.77.0.11",
    ]  # fmt: skip
    assert [command[:2] for command in commands[:2]] == [["systemd-run", "--no-block"]] * 2
    assert "--property=Before=sysinit.target" in commands[0]
    assert [word.endswith(" vtorque-identity.service") for word in commands[1] if "After=" in word] == [True]


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("/etc/vtorque/guest.env", "0644"),
        ("/etc/ssh/ssh_host_ed25519_key", "0600"),
        ("/etc/ssh/authorized_keys/alice", "0644"),
        ("/usr/lib/vtorque/identity", "0755"),
        ("/usr/lib/vtorque/ready", "0755"),
        ("/usr/lib/vtorque/run", "0755"),
        ("/usr/lib/vtorque/agent", "0755"),
    ],
)
def test_files_are_roots_with_these_modes(path: str, mode: str) -> None:
    assert _modes(SEED)[path] == mode


@pytest.mark.parametrize(("system", "names"), [("torque", ["pbsdsh"]), ("slurm", ["srun", "scontrol"])])
def test_programs_of_the_batch_system_reach_the_guest_by_their_names(system: str, names: list[str]) -> None:
    seed = dataclasses.replace(SEED, programs=open_guest(system).GUEST_PROGRAMS)
    for name in names:
        path = f"/usr/lib/vtorque/bin/{name}"
        assert _files(seed)[path] == render_template(f"batch/{system}/guest/{name}.sh", site_dir=None)
        assert _modes(seed)[path] == "0755"
        assert path not in _files(SEED)
    assert tuple(f"batch/{system}/guest/{name}.sh" for name in names) == open_guest(system).GUEST_PROGRAMS


def test_every_file_is_one_line_that_a_shell_can_read() -> None:
    text = render(SEED, None)["user-data"]
    lines = [line for line in text.splitlines() if line.startswith("- {path")]
    assert len(lines) == len(_files(SEED))
    assert {m[1]: m[2] for m in map(ONE_LINE_FILE.fullmatch, lines) if m} == _modes(SEED)


@pytest.mark.parametrize("name", ["identity", "ready", "run", "agent"])
def test_programs_of_the_guest_reach_it_byte_for_byte(name: str) -> None:
    assert _files(SEED)[f"/usr/lib/vtorque/{name}"] == (COLLECTION_DIR / f"guest/{name}.sh").read_text("utf-8")


def test_program_for_shared_memory_reaches_a_guest_that_shares_some() -> None:
    place = "/usr/lib/vtorque/region"
    assert place not in _files(SEED)
    sharing = dataclasses.replace(SEED, shares_region=True)
    assert _files(sharing)[place] == (COLLECTION_DIR / "guest/region.sh").read_text("utf-8")
    assert _modes(sharing)[place] == "0755"
    lines = [line for line in render(sharing, None)["user-data"].splitlines() if "/region" in line]
    assert [bool(ONE_LINE_FILE.fullmatch(line)) for line in lines] == [True]


def test_program_for_rdma_reaches_a_guest_that_has_it_with_its_kind() -> None:
    place = "/usr/lib/vtorque/rdma"
    assert place not in _files(SEED)
    assert "/etc/vtorque/rdma" not in _files(SEED)
    files = _files(having := dataclasses.replace(SEED, rdma="rxe"))
    assert files[place] == (COLLECTION_DIR / "guest/rdma.sh").read_text("utf-8")
    assert files["/etc/vtorque/rdma"] == "rxe\n"
    lines = [line for line in render(having, None)["user-data"].splitlines() if "/rdma" in line]
    assert [bool(ONE_LINE_FILE.fullmatch(line)) for line in lines] == [True, True]


def test_keys_are_whole() -> None:
    files = _files(SEED)
    assert files["/etc/ssh/ssh_host_ed25519_key"] == HOST_KEY.private
    assert files["/etc/ssh/ssh_host_ed25519_key.pub"] == HOST_KEY.public + "\n"
    assert files["/etc/ssh/authorized_keys/alice"] == SEED.authorized_key + "\n"


def test_sshd_trusts_the_seed_alone() -> None:
    fields = [line.split(None, 1) for line in _files(SEED)["/etc/ssh/sshd_config.d/00-vtorque.conf"].splitlines()]
    settings_ = {word: value for word, value in fields if not word.startswith("#")}
    assert settings_["HostKey"] == "/etc/ssh/ssh_host_ed25519_key"
    assert settings_["AuthorizedKeysFile"] == "/etc/ssh/authorized_keys/%u"
    assert settings_["AllowUsers"] == "alice"
    for closed in ("PermitRootLogin", "PasswordAuthentication", "KbdInteractiveAuthentication", "PermitUserRC"):
        assert settings_[closed] == "no"
    assert (settings_["X11Forwarding"], settings_["X11UseLocalhost"]) == ("yes", "yes")


def test_logins_may_wait_for_a_job_that_keeps_the_processors_busy() -> None:
    """By itself sshd ends those that are not through within 120 s: under load most of 128."""
    assert "\nLoginGraceTime 600\n" in _files(SEED)["/etc/ssh/sshd_config.d/00-vtorque.conf"]


@pytest.mark.parametrize(
    ("distro", "unit"),
    [("debian", "ssh.service"), ("ubuntu", "ssh.service"), ("rocky", "sshd.service"), ("centos", "sshd.service")],
)
def test_family_has_its_own_name_for_sshd(distro: str, unit: str) -> None:
    assert _environment(dataclasses.replace(SEED, distro=distro))["VTORQUE_SSHD"] == unit


def test_distribution_that_cannot_be_told_is_the_users_fault() -> None:
    with pytest.raises(UserFault, match="distro=plan"):
        render(dataclasses.replace(SEED, distro="plan"), None)


def test_settings_of_the_site_are_in_the_seed() -> None:
    seed = dataclasses.replace(
        SEED,
        domain="hpc.example",
        name_servers=("10.77.0.1",),
        search_domains=("hpc.example",),
        ntp_servers=("10.77.0.1", "ntp.example"),
    )
    documents = _documents(seed)
    assert documents["user-data"]["fqdn"] == "vcn1-1.hpc.example"
    assert documents["network-config"]["ethernets"]["eth0"]["nameservers"] == {
        "addresses": ["10.77.0.1"],
        "search": ["hpc.example"],
    }
    assert "NTP=10.77.0.1 ntp.example\n" in _files(seed)["/etc/systemd/timesyncd.conf.d/vtorque.conf"]
    redhat = _files(dataclasses.replace(seed, distro="rocky"))
    assert redhat["/etc/chrony.d/vtorque.conf"] == "server 10.77.0.1 iburst\nserver ntp.example iburst\n"


def test_sites_template_wins(tmp_path) -> None:
    (tmp_path / "cloud-init").mkdir()
    (tmp_path / "cloud-init/meta-data.j2").write_text("local-hostname: site-{{ seed.name }}\n")
    assert render(SEED, tmp_path)["meta-data"] == "local-hostname: site-vcn1-1\n"


def test_sites_template_that_cloud_init_would_ignore_is_the_sites_fault(tmp_path: pathlib.Path) -> None:
    """The guest would come up without its job's user, and never be ready."""
    (tmp_path / "cloud-init").mkdir()
    (tmp_path / "cloud-init/user-data.j2").write_text("# ours\n#cloud-config\nhostname: {{ seed.name | yaml }}\n")
    with pytest.raises(SiteFault, match=r"template cloud-init/user-data\.j2: the first line is a comment"):
        render(SEED, tmp_path)


@settings(deadline=None, max_examples=60)
@given(
    group=st.from_regex(GROUP_NAME, fullmatch=True).filter(lambda text: not re.search("[\ud800-\udfff]", text)),
    home=st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=60).map(lambda text: "/" + text),
    uid=st.integers(1, 2**32 - 2),
)
def test_any_owner_reaches_the_guests_shell_unchanged(group: str, home: str, uid: int) -> None:
    owner = dataclasses.replace(OWNER, group=group, home=home, shell=home, uid=uid)
    seen = _environment(dataclasses.replace(SEED, owner=owner))
    assert (seen["VTORQUE_GROUP"], seen["VTORQUE_HOME"], seen["VTORQUE_SHELL"]) == (group, home, home)
    assert seen["VTORQUE_UID"] == str(uid)


def test_supplementary_groups_are_told_a_line_each() -> None:
    groups = (Group("HPC Users", 2000), Group("it's `here`", 2001))
    seen = _environment(dataclasses.replace(SEED, owner=dataclasses.replace(OWNER, groups=groups)))
    assert seen["VTORQUE_GROUPS"] == "2000\tHPC Users\n2001\tit's `here`\n"
    assert _environment(SEED)["VTORQUE_GROUPS"] == ""


def test_group_that_no_guest_can_have_is_the_sites_fault() -> None:
    with pytest.raises(SiteFault, match="name"):
        dataclasses.replace(SEED, owner=dataclasses.replace(OWNER, groups=(Group("a:b", 7),)))


@settings(deadline=None, max_examples=30)
@given(place=st.text(st.characters(exclude_categories=("Cs", "Cc"), max_codepoint=0xFFFF), max_size=40))
def test_any_torque_home_is_one_path_in_yaml(place: str) -> None:
    home = "/" + place
    report = _files(dataclasses.replace(SEED, torque_home=home))["/etc/vtorque/guest.env"]
    assert f"VTORQUE_TORQUE_HOME={shlex.quote(home)}\n" in report
    assert f"VTORQUE_JOB_SCRIPTS={shlex.quote(home + '/jobs')}\n" in report


_ANYTHING = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)
_ADDED = st.builds(
    Additions,
    packages=st.lists(st.builds(Package, st.from_regex("[a-z0-9][a-z0-9.+-]{0,9}", fullmatch=True))).map(tuple),
    files=st.lists(
        st.builds(
            AddedFile,
            path=st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=40).map(lambda text: f"/{text}"),
            mode=st.from_regex("[0-7]{3}", fullmatch=True),
            content=st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode()),
        ),
        max_size=3,
    ).map(tuple),
    commands=st.lists(st.builds(Command, _ANYTHING), max_size=3).map(tuple),
)


@settings(deadline=None, max_examples=40)
@given(_ADDED)
def test_what_a_user_adds_comes_out_once_as_data_and_leaves_the_rest_alone(added: Additions) -> None:
    before, after = _documents(SEED), _documents(dataclasses.replace(SEED, additions=added))
    entries = after["user-data"].pop("write_files")
    others = [entry for entry in entries if not entry["path"].endswith("/additions")]
    assert others == before["user-data"].pop("write_files")
    assert after == before
    files = {entry["path"]: (entry["permissions"], base64.b64decode(entry["content"])) for entry in entries}
    assert bool(added.any) == (len(entries) == len(others) + 2) == ("/etc/vtorque/additions" in files)
    mode, text = files.get("/etc/vtorque/additions", ("0600", b""))
    assert mode == "0600"
    lines = [line.split(" ") for line in text.decode("ascii").splitlines()]
    assert [line[1] for line in lines if line[0] == "package"] == [package.name for package in added.packages]
    assert [
        (base64.b64decode(path).decode(), mode, content)
        for _kind, mode, path, content in (line for line in lines if line[0] == "file")
    ] == [(file.path, file.mode, file.content) for file in added.files]
    assert [base64.b64decode(line[1]).decode() for line in lines if line[0] == "command"] == [
        command.line for command in added.commands
    ]
    assert len(lines) == len(added.packages) + len(added.files) + len(added.commands)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "v cn1"}, "name"),
        ({"mac": "52:54:00"}, "mac"),
        ({"instance_id": "a\nb"}, "instance_id"),
        ({"token": "$(id)"}, "token"),
        ({"node_address": "10.0.0.1; id"}, "node_address"),
        ({"torque_home": "spool"}, "torque_home"),
        ({"owner": dataclasses.replace(OWNER, user="al ice")}, "user"),
        ({"owner": dataclasses.replace(OWNER, group="a:b")}, "group"),
        ({"owner": dataclasses.replace(OWNER, group="caf\udce9")}, "group.*UTF-8"),
        ({"ntp_servers": ("a\n[Install]",)}, "ntp_servers"),
    ],
)
def test_values_out_of_form_are_named(change: dict, named: str) -> None:
    with pytest.raises(SiteFault, match=named):
        dataclasses.replace(SEED, **change)


def test_private_key_is_never_repeated() -> None:
    secret = "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary"
    with pytest.raises(SiteFault) as caught:
        dataclasses.replace(SEED, host_key=KeyPair(private=secret, public=HOST_KEY.public))
    assert "canary" not in json.dumps(caught.value.to_dict()) + repr(caught.value)


def test_disk_gives_back_what_was_written(tmp_path) -> None:
    files = render(SEED, None)
    write_iso(files, tmp_path / "seed.iso")
    assert read_iso(tmp_path / "seed.iso") == files
    assert (tmp_path / "seed.iso").read_bytes()[32808:32814] == b"cidata"


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o644])
def test_the_disk_has_the_mode_it_was_given_whatever_the_umask(tmp_path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        write_iso({"meta-data": "a: b\n"}, tmp_path / "seed.iso", mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "seed.iso").stat().st_mode) == mode


def test_writing_again_replaces_the_disk_and_leaves_nothing_else(tmp_path) -> None:
    for text in ("a: 1\n", "a: 2\n"):
        write_iso({"meta-data": text}, tmp_path / "seed.iso")
    assert read_iso(tmp_path / "seed.iso") == {"meta-data": "a: 2\n"}
    assert [path.name for path in tmp_path.iterdir()] == ["seed.iso"]


def test_no_disk_reads_as_none(tmp_path) -> None:
    assert read_iso(tmp_path / "seed.iso") is None


def test_disk_that_is_no_seed_is_an_error(tmp_path) -> None:
    (tmp_path / "seed.iso").write_bytes(b"\0" * 70000)
    with pytest.raises(VTorqueError, match="cannot be read"):
        read_iso(tmp_path / "seed.iso")


def test_disk_that_cannot_be_written_says_why(tmp_path) -> None:
    with pytest.raises(VTorqueError, match="No such file"):
        write_iso({"meta-data": ""}, tmp_path / "missing/seed.iso")
