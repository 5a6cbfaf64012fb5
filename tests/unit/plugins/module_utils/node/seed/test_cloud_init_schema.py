# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What guests are told is what cloud-init's own schema allows, for every family, also for one that is not booted."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import jsonschema
import pytest
import yaml
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.guest_kinds import SLG, kind_of
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.admission import metadata
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.plan.ssh_keys import make_key
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.seed.seed import FAMILIES, Seed, render
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.trial import boot
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering.templates import COLLECTION_DIR
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.site_lists.mounts import Mount
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.wire import messages
from hypothesis import given, settings
from hypothesis import strategies as st

SCHEMA = COLLECTION_DIR.parent / "build/cloud-init/schema-cloud-config-v1.json"
"""Of the distribution's cloud-init; `make prepare-test` brings it."""
LEAST = Seed(
    name="vcn1-1", instance_id="4711.head.1.vcn1-1", mac="52:54:00:0a:00:01", distro="debian", job_id="4711.head",
    token="0123456789abcdef", node_address="10.77.0.11", torque_home="/var/spool/torque",
    owner=messages.Owner(user="alice", uid=1001, gid=1002, group="chem", home="/home/alice", shell="/bin/bash"),
    host_key=make_key("guest-0@test"),
    authorized_key="ssh-ed25519 " + "A" * 68,
)  # fmt: skip
MOST: dict[str, t.Any] = {
    "owner": dataclasses.replace(LEAST.owner, groups=(messages.Group(gid=77, name="domain users"),)),
    "domain": "hpc.example", "name_servers": ("10.77.0.1",), "search_domains": ("hpc.example",),
    "ntp_servers": ("10.77.0.1", "ntp.example"), "mounts": (Mount("nfs", "nas:/home", "/home"),),
    "additions": messages.Additions(
        (messages.Package("make"),), (messages.AddedFile("/tmp/x", "644", ""),), (messages.Command("it's $HOME\n"),)
    ),
    "data_disk": True, "rdma": "rxe",
}  # fmt: skip


@pytest.fixture(scope="module")
def faults() -> t.Callable[[str], list[str]]:
    """Says what the schema does not allow in user-data."""
    validator = jsonschema.Draft4Validator(json.loads(SCHEMA.read_text("utf-8")))
    return lambda text: [error.message for error in validator.iter_errors(yaml.safe_load(text))]


@pytest.mark.parametrize("distro", [distro for distro in FAMILIES if kind_of(distro) is SLG])
@pytest.mark.parametrize("more", [{}, MOST], ids=["least", "most"])
def test_seed_of_a_job_is_of_cloud_inits_schema(
    faults: t.Callable[[str], list[str]], distro: str, more: dict[str, t.Any]
) -> None:  # fmt: skip
    files = render(dataclasses.replace(LEAST, distro=distro, **more), None)
    assert files["user-data"].startswith("#cloud-config\n")
    assert faults(files["user-data"]) == []
    # no schema of this version has these
    assert yaml.safe_load(files["meta-data"])["local-hostname"] == "vcn1-1"
    assert yaml.safe_load(files["network-config"])["version"] == 2


def test_seed_of_a_trial_is_of_cloud_inits_schema(faults: t.Callable[[str], list[str]]) -> None:
    assert faults(boot._seed("0123456789abcdef")["user-data"]) == []


@pytest.mark.parametrize("wrong", ["users: 5", "bootcmd: true", "write_files: [{content: x}]", "ssh_deletekeys: often"])
def test_schema_would_notice(faults: t.Callable[[str], list[str]], wrong: str) -> None:
    assert faults(f"#cloud-config\n{wrong}\n")


_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5)
    | st.sampled_from(["make", "/tmp/x", "/tmp/y", "0644", "600", "b64", "text/plain", "QQ==", "id"])
)  # fmt: skip
_FILE_KEYS = st.sampled_from(["path", "content", "permissions", "encoding", "owner"])
_ENTRIES = _SCALARS | st.lists(_SCALARS, max_size=3) | st.dictionaries(_FILE_KEYS, _SCALARS, max_size=4)
_WILD = st.dictionaries(
    st.sampled_from(["packages", "write_files", "runcmd", "users"]), st.lists(_ENTRIES, max_size=3), max_size=3
)
_LIKELY = st.fixed_dictionaries(
    {"runcmd": st.lists(st.text(min_size=1, max_size=5) | st.lists(st.text(max_size=4), max_size=3), max_size=2)},
    optional={
        "packages": st.lists(st.sampled_from(["make", "cmake"]), max_size=3),
        "write_files": st.lists(
            st.fixed_dictionaries(
                {"path": st.sampled_from(["/tmp/x", "/tmp/y"])},
                optional={
                    "content": st.text(max_size=5),
                    "permissions": st.sampled_from(["0644", "600"]),
                    "encoding": st.sampled_from(["text/plain", "b64", "gz"]),
                },
            ),
            max_size=2,
        ),
    },
)


@settings(max_examples=300)
@given(_WILD | _LIKELY)
def test_allowed_additions_are_of_cloud_inits_schema(
    faults: t.Callable[[str], list[str]], document: dict[str, t.Any]
) -> None:
    """Whatever passes our reader; the schema allows much more."""
    text = yaml.safe_dump(document)
    policy = Policy(metadata_packages=("make", "cmake"))
    try:
        metadata.read(text.encode(), "more.yml", policy, "/home/alice")
    except metadata.AdditionsErrors:
        return
    assert faults(text) == []


def test_additions_of_a_user_are_read() -> None:
    """Else the test before would look at nothing."""
    text = "packages: [make]\nwrite_files: [{path: /tmp/x, content: a}]\nruncmd: [id, [id, '-u']]\n"
    assert metadata.read(text.encode(), "m", Policy(metadata_packages=("make",)), "/home/alice").any
