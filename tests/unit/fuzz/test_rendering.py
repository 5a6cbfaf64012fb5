# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes into a seed or a domain comes out once, as data: a reader of YAML or XML finds it where it belongs.

Seen to fail: with a template of XML that is not escaped.
"""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import re
import shlex
import typing as t
import xml.etree.ElementTree as ET

import hypothesis.strategies as st
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils import errors
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.guest_kinds import OSV, SLG
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.domain import domain_xml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed import nocloud
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed.seed import Seed, render
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages
from hypothesis import given

from .inputs import ODD, TEXTS, check_message, tried

BODY = "A" * 68
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "b3BlbnNzaC1rZXk\n" * 20 + "-----END OPENSSH PRIVATE KEY-----\n"
OWNER = messages.Owner(user="alice", uid=1001, gid=1002, group="chem", home="/home/alice", shell="/bin/bash")
SEED = Seed(
    name="vcn1-1", instance_id="4711.head.1.vcn1-1", mac="52:54:00:0a:00:01", distro="debian", job_id="4711.head",
    token="0123456789abcdef", node_address="10.77.0.11", torque_home="/var/spool/torque", owner=OWNER,
    host_key=messages.KeyPair(private=PRIVATE, public=f"ssh-ed25519 {BODY} guest"),
    authorized_key=f"ssh-ed25519 {BODY} job",
)  # fmt: skip
FIELDS = [f.name for f in dataclasses.fields(Seed) if "pattern" in f.metadata]
OWNER_FIELDS = ["user", "group", "home", "shell"]
SOMETIMES = {"ntp"}
PLAIN_KEYS = {
    family: set(yaml.safe_load(render(dataclasses.replace(SEED, distro=distro), None)["user-data"])) - SOMETIMES
    for distro, family in (("debian", "debian"), ("rocky", "redhat"))
}
VALUES = st.one_of(TEXTS, TEXTS.map("/".__add__), ODD.map("a".__add__))
GUEST = pathlib.Path("/var/lib/vtorque/guests/7.head.1/vcn1-1")
SPEC = domain_xml.DomainSpec(
    name="vcn1-1", uuid="3b33ef89-55f0-47d0-bcf7-e06aa1dd1806", job_id="7.head", start=1, owner="alice", rank=0,
    node="cn1", hypervisor="kvm", arch="x86_64", ram_mib=256, vcpus=2, disk=GUEST / "disk.qcow2",
    image=pathlib.Path("/opt/vm-images/tiny@1/disk.qcow2"), image_format="qcow2", seed=GUEST / "seed.iso",
    console=GUEST / "console.log", agent=pathlib.Path("/run/vtorque/agents/1"), bridge="br0", tap="vtq1",
    mac="52:54:00:00:01:01", kernel=pathlib.Path("/k"), boot_mode="kernel", cmdline="quiet",
    virtiofs=(("tag", GUEST / "s.sock"),), plan9=(("tag9", "/srv"),),
)  # fmt: skip
PLAIN = [element.tag for element in domain_xml.parse(domain_xml.render_xml(SPEC, site_dir=None)).iter()]
WORDS = ["name", "job_id", "owner", "node", "bridge", "tap", "cmdline", "image_format"]
PATHS = ["disk", "image", "seed", "console", "agent", "kernel"]
NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def environment(files: dict[str, str]) -> dict[str, str]:
    """What a shell makes of guest.env: assignments of one word each."""
    fields = shlex.split(files["/etc/vtorque/guest.env"], comments=True)
    return dict(word.split("=", 1) for word in fields)


@tried
@given(
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=2),
    st.dictionaries(st.sampled_from(OWNER_FIELDS), VALUES, max_size=2),
)
def test_seed_says_what_it_was_told_once_or_is_refused(output: dict[str, t.Any], of_owner: dict[str, str]) -> None:
    output = {name: (value,) if isinstance(getattr(SEED, name), tuple) else value for name, value in output.items()}
    try:
        seed = dataclasses.replace(SEED, owner=dataclasses.replace(OWNER, **of_owner), **output)
        texts = render(seed, None)
    except errors.VTorqueError as error:
        check_message(error)
        return
    documents = {name: yaml.safe_load(text) for name, text in texts.items()}
    user = documents["user-data"]
    assert set(user) - SOMETIMES == PLAIN_KEYS[seed.family]
    assert documents["meta-data"] == {"instance-id": seed.instance_id, "local-hostname": seed.name}
    (card,) = documents["network-config"]["ethernets"].values()
    assert card["match"] == {"macaddress": seed.mac}
    if seed.family == "debian":
        files = {entry["path"]: base64.b64decode(entry["content"]).decode() for entry in user["write_files"]}
        found = environment(files)
        assert (found["VTORQUE_HOME"], found["VTORQUE_SHELL"], found["VTORQUE_TOKEN"]) == (
            seed.owner.home, seed.owner.shell, seed.token
        )  # fmt: skip
        assert (found["VTORQUE_USER"], found["VTORQUE_GROUP"]) == (seed.owner.user, seed.owner.group)
        assert found["VTORQUE_TORQUE_HOME"] == seed.torque_home


@tried
@given(
    st.dictionaries(st.sampled_from(WORDS), TEXTS.filter(bool), max_size=3),
    st.dictionaries(st.sampled_from(PATHS), TEXTS, max_size=2),
    st.sampled_from([SLG.domain, OSV.domain]),
)
def test_domain_says_what_it_was_told_once_or_is_refused(
    arguments: dict[str, str], paths: dict[str, str], template: str
) -> None:
    spec = dataclasses.replace(
        SPEC, **arguments, **{name: GUEST / f"x{text}" for name, text in paths.items()}, template=template
    )
    texts = [*arguments.values(), *paths.values()]
    try:
        text = domain_xml.render_xml(spec, site_dir=None)
    except SiteFault:
        assert any(NO_XML.search(text) or "<!" in text for text in texts)
        return
    root = domain_xml.parse(text)
    if template == SLG.domain:
        assert [element.tag for element in root.iter()] == PLAIN
    if any("\r" in text or "\n" in text or "\t" in text for text in texts):
        return
    facts = domain_xml.read_facts(text, "running", False)
    assert facts.name == spec.name
    assert facts.mark == domain_xml.GuestMark(spec.job_id, 1, spec.owner, 0, spec.node)
    if template == SLG.domain:
        assert [found.get("file") for found in root.findall("devices/disk/source")][:1] == [str(spec.disk)]
        assert root.findtext("os/cmdline") == spec.cmdline
        assert root.findtext("os/kernel") == str(spec.kernel)


@tried
@given(
    st.one_of(
        TEXTS,
        st.lists(st.sampled_from(["<domain>", "</domain>", "<name>", "<metadata>", "<!--", "&", "<disk/>"])).map(
            "".join
        ),
    )
)
def test_any_xml_of_libvirts_is_facts_or_refused(text: str) -> None:
    for xml in (text, f"<domain>{text}</domain>"):
        try:
            found = domain_xml.read_facts(xml, "running", False)
        except SiteFault:
            continue
        assert ET.fromstring(xml) is not None
        assert found.mark is None


UTF8 = TEXTS.filter(lambda text: not re.search("[\ud800-\udfff]", text))


@tried
@given(st.dictionaries(UTF8, st.one_of(UTF8, st.integers(), st.none()), max_size=4))
def test_data_of_a_playbook_is_that_data_for_a_reader_of_yaml(data: dict[str, t.Any]) -> None:
    files = nocloud.files_of(data, data, None)
    assert yaml.load(files["user-data"], yaml.CSafeLoader) == data
    assert {"instance-id", *data} == set(yaml.load(files["meta-data"], yaml.CSafeLoader))
    nocloud.masked(files["user-data"], "salt")
