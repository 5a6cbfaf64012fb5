# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of the documentation, each where its page says that it runs, page by page."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.tests.texts.blocks import PAGES, Block, blocks, missing

from .conftest import CHECKOUT, Site, cases
from .test_shared_memory import EXAMPLES, built

START_WAYS = ("fast",)  # its pages describe a host as the roles leave it

PAGES_TO_RUN = [page for page in PAGES if any(block.place for block in blocks(page))]
IMAGE = "debian12@1"
"""The documentation speaks of a Debian; here the tiny guest has its name, which boots in seconds."""
NODES = ("cn1", "cn2")
FILES = {
    "job.sh": "#!/bin/sh\n#PBS -l nodes=1:ppn=2,walltime=10:00\nhostname\n",
    "setup.sh": "#!/bin/sh\nexit 0\n",
    "save.sh": "#!/bin/sh\nexit 0\n",
    "pins": "0: 1\nemulator: 0\n",
    "wrong-pins": "0: 1\n1: 1\n<vcpupin vcpu='2' cpuset='2'/>\n",
    "more.yml": "write_files: [{path: /tmp/solver.conf}]\nruncmd: [id, id]\n",
    "wrong.yml": "packages: [curl]\nusers: []\nwrite_files:\n- path: /etc/motd\n",
}
"""The user's."""
ROOTS_FILES = {
    "new.yml": "brigde: br1\nmac_prefix: 52:54:00\ntimeout: 300\n",
    "config.sh": "VM_IMG_DIR=/opt/vm-images\nPROLOGUE_TIMEOUT=600\nSERVER_HOSTNAME=head\nVCPU_PINNING_DEFAULT=true\n"
    "RAM_DEFAULT=$((24 * 1024))\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Site]:
    """A lab of this module's own: its pool has the image of which the documentation speaks."""
    pool = tmp_path_factory.mktemp("pool")
    pool.chmod(0o755)  # qemu is a user of its own
    newest = max((CHECKOUT / "build/pool").glob("tiny@*"), key=lambda path: int(path.name.partition("@")[2]))
    rename(newest, pool / IMAGE)
    here = Site(os.environ.get("VTORQUE_LAB", "/run/vtorque-lab") + "-pages")
    here.up("--pool", str(pool))
    try:
        furnish(here, tmp_path_factory.mktemp("programs"))
        yield here
    finally:
        if not os.environ.get("VTORQUE_KEEP_LAB"):
            here.run("down")


def rename(image: pathlib.Path, copy: pathlib.Path) -> None:
    """The same image under another name."""
    shutil.copytree(image, copy)
    record = json.loads((copy / "record.json").read_text(encoding="utf-8"))
    name, _at, revision = copy.name.partition("@")
    record.update(name=name, revision=int(revision), description="Debian 12")
    (copy / "record.json").chmod(0o644)
    (copy / "record.json").write_text(json.dumps(record), encoding="utf-8")
    (copy / "record.json").chmod(0o444)


def furnish(site: Site, directory: pathlib.Path) -> None:
    """What the pages take for granted: files, the site's default image, nodes that were swept."""
    for name, content in FILES.items():
        site.write(f"/home/alice/{name}", content)
    site.write("/home/alice/pingpong.sh", (EXAMPLES / "pingpong.sh").read_text(encoding="utf-8"))
    site.write("/home/alice/pingpong", built(EXAMPLES / "pingpong.c", directory))
    for name, content in ROOTS_FILES.items():
        done = site.on("fe", "/bin/sh", "-c", f"cat >{name}", stdin=content)
        assert done.returncode == 0, done.stderr
    for node in ("fe", *NODES):
        site.root(node, f"sed -i 's/^img_default:.*/img_default: {IMAGE[:-2]}/' /etc/vtorque/vtorque.yml")
    for node in NODES:
        site.root(node, "vtorque-sweep")


@pytest.fixture(scope="module")
def job_id(site: Site) -> str:
    """The job that is called 4711: over, and its record is on the front end."""
    ended = site.job("-vm", "vcpus=1", "/home/alice/job.sh")
    assert ended.exit_status == 0, ended.err
    site.wait_for(
        "its record on the front end",
        lambda: site.stored("fe", ended.job_id),
        seen=lambda: site.stored(ended.node, ended.job_id, name="vtorque.log")[-500:],
    )
    return ended.job_id


@pytest.mark.parametrize("page", cases(PAGES_TO_RUN, "README.md", "docs/quick-start.md"))
def test_commands_of_a_page(site: Site, job_id: str, page: str) -> None:
    for block in blocks(page):
        if block.place.endswith("@job"):
            run_as_job(site, block)
        elif block.place:
            run(site, block, job_id)


def run(site: Site, block: Block, job_id: str) -> None:
    """Each command of a block, as who it says and where; jobs that are submitted end well."""
    user, _at, node = block.place.partition("@")
    for command in block.commands:
        line = command.text.replace("4711", job_id.partition(".")[0])
        done = site.on(node, "/bin/sh", "-c", line, user=None if user == "root" else user)
        output = done.stdout + done.stderr
        assert done.returncode == block.status, f"{block}: {line}: {output}"
        assert missing(command.printed, output) == "", f"{block}: {line}: {output}"
        for submitted in re.findall(r"^\d+\.fe$", done.stdout, re.MULTILINE):
            ended = site.end(submitted)
            assert ended.exit_status == 0, f"{block}: {line}: {ended.err}"


def run_as_job(site: Site, block: Block) -> None:
    """The commands of a block as the script of a job of two guests with two processors each."""
    script = "".join(f"{command.text}\n" for command in block.commands)
    ended = site.job("-l", "nodes=2:ppn=3", "-vm", "vcpus=2", stdin=f"set -e\n{script}")
    assert ended.exit_status == 0, f"{block}: {ended.err}"
    printed = tuple(line for command in block.commands for line in command.printed)
    assert missing(printed, ended.out + ended.err) == "", f"{block}: {ended.out}"
