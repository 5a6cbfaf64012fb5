# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guests that start from a template of their node: each is its own, and whatever fails, the job runs.

Guests have no home of the node's here: one that mounts it by virtiofs cannot be saved.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
import time
import typing as t

import pytest

from .conftest import Site
from .trouble import NODES, changed, check_nobody_blamed, image, restart_libvirt, sweep_all

START_WAYS = ("fast",)  # it sets for itself how they start

PROGRAM = pathlib.Path(__file__).with_name("warm_clones.py")
NODE = "cn1"
PAIR = ("-l", f"nodes={NODE}:ppn=2", "-vm", "vms_per_node=2")
WARM = "/var/lib/vtorque/warm"
OWN = ("uuid", "random", "boot_id", "machine_id", "temporary", "mac", "name")
LOOK = r"""
# a-canary-of-this-job
for guest in $(sort -u "$PBS_NODEFILE"); do
    ssh "$guest" 'echo begin
        echo uuid $(cat /proc/sys/kernel/random/uuid)
        echo random $(head -c 16 /dev/urandom | od -An -tx1 | tr -d " ")
        echo boot_id $(cat /proc/sys/kernel/random/boot_id)
        echo machine_id $(cat /etc/machine-id)
        echo temporary $(mktemp -u)
        echo mac $(cat /sys/class/net/eth0/address)
        echo name $(hostname)
        echo now $(date +%s)
        numbers=$(/usr/lib/vtorque-image/sequence 2>/dev/null | tr " \n" "+,")
        echo sequence ${numbers:-unknown}'
done </dev/null
"""


@contextlib.contextmanager
def warm(site: Site) -> t.Iterator[None]:
    """The site has warm starts, and before and afterwards no template."""
    for node in NODES:
        site.root(node, f"rm -rf {WARM}")
    try:
        with changed(site, ("fe", "cn1", "cn2"), warm_start=True, home_via="nfs"):
            yield
    finally:
        for node in NODES:  # a maker that is at work ends by itself, and so does its guest
            site.root(node, f"rm -rf {WARM}")


def make(site: Site, name: str = "tiny") -> dict[str, t.Any]:
    made = site.on(NODE, "vmgr", "image", "warm", "make", name, "--json")
    assert made.returncode == 0, made.stderr
    return t.cast("dict[str, t.Any]", json.loads(made.stdout))


def starts(site: Site, job_id: str) -> list[str]:
    """What the job's record says of the start of each guest."""
    record = json.loads(site.root(NODE, f"cat /var/lib/vtorque/records/{job_id}.1/record.json"))
    return [guest.get("warm", "") for guest in record["guests"]]


def check_own(output: str) -> list[dict[str, str]]:
    """Return what the two guests of a job have written (`LOOK`), each of which has its own."""
    found = [dict(line.split() for line in part.splitlines()[:9]) for part in output.split("begin\n")[1:]]
    assert len(found) == 2
    for what in OWN:
        assert found[0][what] != found[1][what], what
    return found


def share_secret(one: str, other: str) -> bool:
    """Do two kernels have the same secret of TCP's first sequence numbers?

    Args:
        one: what `lab/guests/sequence.c` prints in one guest, in one line.
        other: in the other guest.
    """
    pairs = zip(one.strip(",").split(","), other.strip(",").split(","), strict=True)
    found = []
    for mine, its in pairs:
        (low, width), (its_low, its_width) = (map(int, text.split("+")) for text in (mine, its))
        found.append((its_low - low) % 2**32 <= width or (low - its_low) % 2**32 <= its_width)
    assert len(found) == 8
    return all(found)


def test_guests_of_a_template_are_each_their_own(site: Site) -> None:
    with warm(site):
        place = f"{WARM}/{make(site)['key']}"
        began = time.time()
        ended = site.job(*PAIR, stdin=LOOK)
        assert ended.exit_status == 0, ended.err
        assert starts(site, ended.job_id) == ["yes", "yes"]
        found = check_own(ended.out)
        assert not share_secret(found[0]["sequence"], found[1]["sequence"])
        assert all(began - 1 <= int(one["now"]) <= time.time() + 1 for one in found)
        # the template is root's, and knows nothing of a job
        modes = site.root(NODE, f"stat -c '%a %U' {place} {place}/mem {place}/disk.qcow2")
        assert modes == "700 root\n600 root\n600 root\n"
        # what its kernel has freed is zeros, and takes no room: of 192 MiB 81 are used, and the boot wrote 118
        assert int(site.root(NODE, f"stat -c %s {place}/mem")) < 100 << 20
        message = "a-canary-of-this-job|PRIVATE KEY-----.b3BlbnNzaC"
        assert site.root(NODE, f"grep -aclE '{message}' {place}/mem {place}/disk.qcow2 || :") == ""


@pytest.mark.full
def test_template_that_a_job_lacked_is_made_when_it_has_gone(site: Site) -> None:
    with warm(site):
        first = site.job("-l", f"nodes={NODE}", stdin="hostname\n")
        assert starts(site, first.job_id) == ["no, because this node has no template of this shape"]
        sweep_all(site)

        def made() -> list[t.Any]:
            listed = json.loads(site.root(NODE, "vmgr image warm list --json"))
            return t.cast("list[t.Any]", listed["templates"])

        site.wait_for("the template to be made", lambda: bool(made()), seen=made)
        second = site.job("-l", f"nodes={NODE}", stdin="hostname\n")
        assert (second.exit_status, second.out) == (0, "vcn1-1\n"), second.err
        assert starts(site, second.job_id) == ["yes"]


NO_GENID = "initcall_blacklist=vmgenid_plaform_driver_init"
"""Of the kernel's command line: else Debian 13's (6.12) has new randomness by itself, since libvirt gives each restored
domain another generation id.  Debian 12's has no such driver.  The name is misspelled in Linux."""
CLONES_S = 3600
"""For twenty guests where other work has nearly all of two processors."""
END_CLONES = """
for name in $(virsh list --name | grep '^vtorque-warm-clone-'); do virsh destroy "$name"; done
rm -rf /var/lib/vtorque/warm-clones
"""


@contextlib.contextmanager
def clones(site: Site, fault: str) -> t.Iterator[t.Callable[[int], list[dict[str, str]]]]:
    """Yield what makes guests of a template at the same time, and returns what each printed after its first order."""
    program = PROGRAM.read_text()
    environment = ("/opt/vtorque-lab/venv/bin/python", "-")
    with warm(site), image(f"clones-{fault}", fault=f"{fault} {NO_GENID}") as place:
        name = place.name.partition("@")[0]
        make(site, name)

        def run(count: int) -> list[dict[str, str]]:
            line = ("on", NODE, "--", *environment, name, str(count))
            done = site.run(*line, stdin=program, timeout_s=CLONES_S)
            assert done.returncode == 0, done.stderr
            return t.cast("list[dict[str, str]]", json.loads(done.stdout))

        try:
            yield run
        finally:  # it ends them itself, unless it was killed
            site.root(NODE, END_CLONES)


@pytest.mark.full
def test_twenty_guests_of_a_template_have_generators_of_their_own(site: Site) -> None:
    with clones(site, "warm-tell") as run:
        found = run(20)
    assert len(found) == 20
    for what in ("random", "temporary"):
        assert len({one[what] for one in found}) == 20, what
    for one, other in itertools.combinations(found, 2):
        assert not share_secret(one["sequence"], other["sequence"])


@pytest.mark.full
def test_generators_of_guests_are_equal_without_new_randomness(site: Site) -> None:
    """What the first order is for: each row above fails where it is left out."""
    with clones(site, "warm-same") as run:
        one, other = run(2)
    assert one["random"] == other["random"]
    assert one["temporary"] == other["temporary"]
    assert share_secret(one["sequence"], other["sequence"])


@pytest.mark.full
def test_job_runs_in_a_guest_that_boots_when_its_template_is_silent(site: Site) -> None:
    with warm(site), image("silent", fault="warm-mute") as place:
        name = place.name.partition("@")[0]
        make(site, name)
        for _number in range(2):
            ended = site.job("-l", f"nodes={NODE}", "-vm", f"img={name}", stdin="hostname\n")
            assert (ended.exit_status, ended.out) == (0, "vcn1-1\n"), ended.err
            (how,) = starts(site, ended.job_id)
            assert how.startswith("no, because guest vcn1-1 was not ready within")
        assert site.root(NODE, f"ls {WARM}") == "", "a template that failed twice is thrown away"


@pytest.mark.full
def test_no_node_is_blamed_when_libvirt_is_restarted_between_restore_and_first_order(site: Site) -> None:
    """Its guest answers no first order, so that there is time for that; then it boots."""
    with warm(site), image("silent-restart", fault="warm-mute") as place:
        name = place.name.partition("@")[0]
        make(site, name)
        job_id = site.submit("-l", f"nodes={NODE}", "-vm", f"img={name}", stdin="hostname\n")
        site.wait_for("the restored guest", lambda: "vcn1-1" in site.root(NODE, "virsh list --state-running --name"))
        restart_libvirt(site, NODE)
        ended = site.end(job_id)
        assert (ended.exit_status, ended.out) == (0, "vcn1-1\n"), ended.err
        (how,) = starts(site, job_id)
        assert how.startswith("no, because ")
        check_nobody_blamed(site)


@pytest.mark.full
def test_image_that_cannot_be_saved_makes_no_template(site: Site) -> None:
    with warm(site), image("dead", fault="warm-dead") as place:
        made = site.on(NODE, "vmgr", "image", "warm", "make", place.name)
        assert made.returncode != 0
        assert "did not answer" in made.stderr or "channel" in made.stderr
        assert site.root(NODE, f"ls -A {WARM}") == ""


@pytest.mark.full
@pytest.mark.parametrize("reached", ["console.log", "mem", "record.json"])
def test_maker_that_is_killed_leaves_nothing_that_the_sweep_does_not_find(site: Site, reached: str) -> None:
    script = f"""
        rm -rf {WARM}
        vmgr image warm make tiny >/dev/null 2>&1 & maker=$!
        until ls {WARM}/*/{reached} >/dev/null 2>&1; do
            kill -0 $maker || exit 1
            sleep 0.05
        done
        kill -9 $maker
        wait $maker
        :
    """
    with warm(site):
        site.root(NODE, script)
        sweep_all(site)
        assert "vtorque-warm" not in site.root(NODE, "virsh list --all --name")
        assert [name for name in site.root(NODE, f"ls -A {WARM}").split() if "." in name] == []
        ended = site.job("-l", f"nodes={NODE}", stdin="hostname\n")
        assert (ended.exit_status, ended.out) == (0, "vcn1-1\n"), ended.err


@pytest.mark.full
@pytest.mark.parametrize("spoil", ["printf x | dd of={} bs=1 seek=90000000 conv=notrunc", "truncate -s -4096 {}"])
def test_job_runs_when_the_memory_of_its_template_was_changed(site: Site, spoil: str) -> None:
    with warm(site):
        make(site)
        site.root(NODE, f"for f in {WARM}/*/mem; do {spoil.format('$f')}; done")
        ended = site.job("-l", f"nodes={NODE}", stdin="hostname\n")
        assert (ended.exit_status, ended.out) == (0, "vcn1-1\n"), ended.err
        (how,) = starts(site, ended.job_id)
        assert "its record says" in how
