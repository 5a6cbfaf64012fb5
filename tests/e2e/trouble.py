# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Troubles made on purpose, each taken back by its end, and what a user must be told of them."""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import typing as t

from .conftest import CHECKOUT, Ended, Node, Result, Site

POOL = CHECKOUT / "build/pool"
SUPERIOR, SISTER = NODES = ("cn1", "cn2")
PAIR = ("-l", f"nodes={SUPERIOR}:ppn=2+{SISTER}:ppn=2")
"""A job of both nodes, of which the first leads."""
WELL = Node(frozenset({"free"}), "")
CONFIG = "/etc/vtorque/vtorque.yml"
MOM_CONFIG = "/var/spool/torque/mom_priv/config"
WAITS = "trap 'echo on; exit 0' URG; echo up; while :; do sleep 1 & wait $!; done\n"
"""Ends well when the signal comes."""
GATE = "/run/lab/gate"
PRESETUP = f"""#!/bin/sh
# every job waits here, before the hooks, until somebody reads
echo waiting >{GATE}
"""
REREAD = "kill -HUP $(cat /var/spool/torque/mom_priv/mom.lock) && momctl -d 0 >/dev/null"
"""The MOM reads its configuration again, and has when it answers."""
HIDE_KVM = "[ ! -e /dev/kvm ] || mv /dev/kvm /dev/kvm.away"
SHOW_KVM = "[ ! -e /dev/kvm.away ] || mv /dev/kvm.away /dev/kvm"
HOOK = "pgrep -f '[c]li.hook prologue'"
PLAYBOOK = "pgrep -o -f '[c]li.run_playbook|-m [a]nsible playbook'"
"""Lines of shell that find a program on a node: the hook, and Ansible."""
OVER = "#!/bin/sh\necho $1 >>/run/lab/over\n"


def request(**keys: str) -> str:
    """A request in the form of today (request.py), as somebody would make it without vsub."""
    return encoded({"v": 1, "k": keys, "s": ""})


def encoded(data: object) -> str:
    """Whatever, in the request's clothes."""
    return "vtorque:" + base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


def forge(site: Site, x: str, *arguments: str) -> str:
    """Submit a VM job past vsub; its id."""
    return site.submit_past_vsub(x, *arguments, stdin="echo RAN; hostname\n")


def check_message(text: str, *arguments: str) -> None:
    """A few lines that say what happened, and nothing of our insides."""
    assert text.startswith("vtorque: ")
    for word in arguments:
        assert word in text
    assert len(text.splitlines()) <= 8
    assert "Traceback" not in text


def check_refused(ended: Ended, *arguments: str) -> None:
    """The job ran nothing, failed, and its error file says why."""
    assert ended.exit_status not in (0, -999)
    assert "RAN" not in ended.out
    check_message(ended.err, *arguments)


def check_held(site: Site, job_id: str, *arguments: str) -> dict[str, str]:
    """The job is held so that its owner can release it; its error file, where it has one, and its comment say why."""
    facts = site.wait_state(job_id, "HC")
    assert (facts["job_state"], facts["Hold_Types"]) == ("H", "u")
    text = site.reported(facts)
    if text or site.batch.name == "torque":
        check_message(text, *arguments, site.batch.release_line.format(job_id))
    else:  # a job of Slurm that never ran has no file, and a comment has the reason alone, in plain characters
        check_message(facts["comment"], *re.findall(r"[\w./]+", arguments[0] if arguments else ""))
    assert facts["comment"].startswith("vtorque: held: ")
    return facts


def check_queued_again(site: Site, job_id: str) -> dict[str, str]:
    """The job waits in the queue after one start."""
    seen: list[tuple[str | None, str | None]] = []

    def started_once() -> dict[str, str] | None:
        facts = site.facts(job_id)
        seen[:] = [(facts.get("job_state"), facts.get("start_count"))]
        # Slurm starts nothing at once: a job that waits may have had no start yet
        return facts if seen[0][0] in ("Q", "H", "C") and seen[0][1] not in (None, "0") else None

    facts: dict[str, str] = site.wait_for("the end of the first start", started_once, seen=lambda: seen)
    assert (facts["job_state"], facts["start_count"]) == ("Q", "1")
    return facts


def check_offline(node: Node, cause: str, job_id: str, *arguments: str) -> None:
    """It takes no jobs, and its note says in our words why and since which job."""
    assert "offline" in node.states
    assert node.note.startswith(f"vtorque: {cause}: ")
    assert re.search(rf"\(job {re.escape(job_id)}(\.lab)?\)$", node.note)  # Slurm's own name of a job has no cluster
    for word in arguments:
        assert word in node.note


def check_well(site: Site, node: str) -> None:
    """A node takes jobs, and bears no note; Slurm wants an answer of it first, after its return."""
    site.wait_for(f"{node} to take jobs", lambda: site.nodes()[node] == WELL, timeout_s=60, seen=site.nodes)


def check_nobody_blamed(site: Site) -> None:
    """No node is offline, and none bears a note."""
    assert {name: node for name, node in site.nodes().items() if node.note or not node.usable} == {}


def drop(site: Site, *job_ids: str, patient: bool = False) -> None:
    """The owner takes back jobs that wait or are held.

    Args:
        patient: a busy machine may be slower to end a script that runs than the batch system's KILL would be.
    """
    cancel = site.batch.cancel_slowly if patient else site.batch.cancel
    done = site.on("fe", *cancel, *job_ids, user="alice")
    assert done.returncode == 0, done.stderr


def delete_booting(site: Site, job_id: str, node: str) -> None:
    """A job is deleted whose guests boot; the one on this node ends, with it the prologue, and nothing is tried again.

    `qdel` returns when the prologue has ended, and then there is nothing of the job.
    """
    with deleting(site, job_id):
        if site.batch.cancel_waits:  # else a guest of a job that is cancelled goes within seconds
            site.root(node, f"virsh destroy {guest_on(site, node)}")
    facts = site.wait_state(job_id, "CQH")
    assert site.left_on_nodes() == []
    assert (facts["job_state"], facts["start_count"]) == ("C", "1")


def end_killed(site: Site, job_id: str, victim: str) -> None:
    """A job of which a program was killed before it ran: without its hook it ends, else it is held and taken back."""
    if victim is HOOK and site.batch.hook_lost == "held":
        facts = site.wait_state(job_id, "HC")
        assert facts["job_state"] == "H"
        drop(site, job_id)
        (blamed,) = [name for name, node in site.nodes().items() if node.note == "Prolog error"]
        site.root("fe", site.batch.clear.format(blamed))
        site.wait_for(f"{blamed} to take jobs", lambda: site.nodes()[blamed].usable, seen=site.nodes)
    elif victim is HOOK:
        ended = site.end(job_id)
        # the launcher's shell has a word of its own for it: Killed
        check_refused(dataclasses.replace(ended, err=ended.err.removeprefix("Killed\n")), "nothing was run")
    else:
        check_held(site, job_id)
        drop(site, job_id)


def end_by_term(site: Site, job_id: str) -> Ended:
    """The owner takes back a job that runs; TERM alone ends it."""
    done = site.on("fe", *site.batch.cancel_slowly, job_id, user="alice")
    assert done.returncode == 0, done.stderr
    return site.end(job_id)


@contextlib.contextmanager
def deleting(site: Site, *job_ids: str, patient: bool = False) -> t.Iterator[None]:
    """`qdel` that waits: Torque answers when the prologue that runs has ended.  Inside, the server has heard of it.

    Slurm answers at once, and tells a Prolog nothing.
    """
    if not site.batch.cancel_waits:
        drop(site, *job_ids, patient=patient)
        yield
        return
    heard = "{};Job deleted at request of alice@fe"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [pool.submit(drop, site, job_id, patient=patient) for job_id in job_ids]
        for arguments in map(heard.format, job_ids):
            site.wait_for(
                arguments,
                lambda arguments=arguments: arguments in site.root("fe", "cat /var/spool/torque/server_logs/*"),
            )
        yield
        for one in asked:
            one.result()


@contextlib.contextmanager
def changed(site: Site, nodes: t.Sequence[str] = NODES, **settings: object) -> t.Iterator[None]:
    """These parameters of the configuration have other values on these nodes."""
    former = {node: site.root(node, f"cat {CONFIG}") for node in nodes}
    try:
        for node, text in former.items():
            stored = [line for line in text.splitlines() if line.partition(":")[0] not in settings]
            lines = [*(f"{name}: {json.dumps(value)}" for name, value in settings.items()), *stored]
            write_config(site, node, "\n".join(lines) + "\n")
        yield
    finally:
        for node, text in former.items():
            write_config(site, node, text)


def write_config(site: Site, node: str, text: str) -> None:
    """Replace a node's configuration, in place: its owner and mode stay."""
    done = site.on(node, "/bin/sh", "-c", f"cat >{CONFIG}", stdin=text)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def image(name: str, *, fault: str = "", of: str = "tiny") -> t.Iterator[pathlib.Path]:
    """A copy of an image under another name, to be spoiled.

    The labs of a run share the pool: who wants a name that another test has waits for its end.

    Args:
        fault: what goes wrong in it while it boots (lab/guests/rc.sh).
        of: the image.
    """
    with (POOL.parent / f"image-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _image(name, fault, of) as place:
            yield place


@contextlib.contextmanager
def _image(name: str, fault: str, of: str) -> t.Iterator[pathlib.Path]:
    newest = max(POOL.glob(f"{of}@*"), key=lambda path: int(path.name.partition("@")[2]))
    place = POOL / f"{name}@1"
    shutil.rmtree(place, ignore_errors=True)  # of a run that was interrupted
    shutil.copytree(newest, place, symlinks=True)
    try:
        record = json.loads((place / "record.json").read_text())
        record = {**record, "name": name, "revision": 1}
        if fault:
            record["boot"]["cmdline"] += f" lab.fault={fault}"
        replace(place / "record.json", json.dumps(record).encode())
        yield place
    finally:
        shutil.rmtree(place)


def replace(path: pathlib.Path, content: bytes) -> None:
    """Other content in a file of an image."""
    path.chmod(0o644)
    path.write_bytes(content)
    path.chmod(0o444)


@contextlib.contextmanager
def _raw(place: pathlib.Path) -> t.Iterator[str]:
    """The disk of an image as a file of its own that debugfs can read."""
    with tempfile.TemporaryDirectory(dir=place.parent.parent) as directory:
        raw = f"{directory}/raw"
        subprocess.run(["qemu-img", "convert", "-O", "raw", str(place / "disk.qcow2"), raw], check=True)
        yield raw


def file_of(place: pathlib.Path, path: str) -> str:
    """A text in the disk of an image."""
    with _raw(place) as raw:
        done = subprocess.run(
            ["/usr/sbin/debugfs", "-R", f"cat {path}", raw], capture_output=True, text=True, check=True
        )
    return done.stdout


def edit_disk(place: pathlib.Path, orders: t.Iterable[str]) -> None:
    """Change the file system in the disk of an image's copy, and its record with it.

    Args:
        place: of the image.
        orders: for debugfs, which knows nothing of accounts and owners but numbers.
    """
    disk, record = place / "disk.qcow2", place / "record.json"
    with _raw(place) as raw:
        subprocess.run(["/usr/sbin/debugfs", "-w", "-f", "-", raw], input="\n".join(orders), text=True, check=True)
        subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, f"{raw}.qcow2"], check=True)
        pathlib.Path(f"{raw}.qcow2").replace(disk)
        disk.chmod(0o444)
    with disk.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    report = json.loads(record.read_text()) | {"disk_sha256": digest, "disk_bytes": disk.stat().st_size}
    replace(record, json.dumps(report).encode())


def revive(daemon: str) -> str:
    """The line of shell that starts a daemon of the lab again: `libvirt`, `batch`, `nfs` or `switch`."""
    return f"env PYTHONPATH=/opt/vtorque-lab /opt/vtorque-lab/venv/bin/python -m lab.revive {daemon}"


@contextlib.contextmanager
def home_server(site: Site) -> t.Iterator[None]:
    """NFS of the front end's /home, in user space."""
    site.root("fe", revive("nfs"))
    try:
        yield
    finally:
        site.root("fe", "kill $(cat /run/ganesha.pid)")


def restart_libvirt(site: Site, node: str) -> None:
    """It dies without a word, and is there again."""
    with libvirt_away(site, node):
        pass


@contextlib.contextmanager
def libvirt_away(site: Site, node: str) -> t.Iterator[None]:
    """It has died without a word; afterwards it is there again."""
    site.root(node, "kill -9 $(cat /run/libvirtd.pid)")
    try:
        yield
    finally:
        site.root(node, revive("libvirt"))


def restart_mom(site: Site, node: str, *options: str) -> None:
    """She is ended, missed, and there again."""
    site.root(node, "kill $(cat /run/lab/mom.pid)")
    site.wait_for(f"the server to miss {node}", lambda: "down" in site.nodes()[node].states)
    site.root(node, revive(" ".join(("batch", *options))))
    site.wait_for(f"the server to have {node}", lambda: "down" not in site.nodes()[node].states)


@contextlib.contextmanager
def mounted(site: Site, node: str, place: str, *, options: str, then: str = "true") -> t.Iterator[None]:
    """An empty file system lies over a directory of a node.

    Args:
        options: of the tmpfs, as mount takes them.
        then: a line of shell that is run when it is there.
    """
    site.root(node, f"mount -t tmpfs -o {options} trouble {place} && {{ {then}; }}")
    try:
        yield
    finally:
        site.root(node, unmount(place))


def unmount(place: str) -> str:
    """The line of shell that takes a file system away, once the end of a job has closed its last file there."""
    return f"for try in $(seq 150); do umount {place} && exit 0; sleep 0.2; done; exit 1"


@contextlib.contextmanager
def pool_served(site: Site, node: str) -> t.Iterator[str]:
    """The pool lies on a file system whose server can hang, as that of NFS can: here a program (FUSE).

    Yields:
        The line of shell that knows the server's process: `kill -STOP $(...)`.
    """
    place, behind, server = "/opt/vm-images", "/run/lab/images", "$(pgrep -f '^bindfs .*/run/lab/images')"
    site.root(node, f"mkdir {behind} && mount --bind {place} {behind} && bindfs -o nonempty {behind} {place}")
    try:
        yield server
    finally:
        # it ends after its umount, and holds until then what lies behind
        gone = f"while kill -0 {server} 2>/dev/null; do sleep 0.1; done"
        site.root(node, f"kill -CONT {server}; umount {place} && {gone}; umount {behind} && rmdir {behind}")


def feed(site: Site, node: str, script: str, text: str) -> None:
    """Run a line of shell on a node as root, with a text on its standard input."""
    done = site.on(node, "/bin/sh", "-c", script, stdin=text)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def done_on(site: Site, nodes: t.Iterable[str], undo: str, do: str = "") -> t.Iterator[None]:
    """Root's lines of shell have been run on these nodes, and what undoes them is run at the end."""
    names = tuple(nodes)
    for node in names if do else ():
        site.root(node, do)
    try:
        yield
    finally:
        for node in names:
            site.root(node, undo)


@contextlib.contextmanager
def gates(site: Site, *nodes: str) -> t.Iterator[None]:
    """Jobs wait at a gate of these nodes before their first hook, and the site's own epilogue notes their end."""
    config, hook = "/var/spool/torque/mom_priv/config", "/etc/vtorque/site-hooks/epilogue"
    for node in nodes:
        for path, text in (("/run/lab/presetup", PRESETUP), (hook, OVER)):
            feed(site, node, f"cat >{path} && chmod 755 {path}", text)
    do = f"mkfifo {GATE}; echo '$presetup_prologue /run/lab/presetup' >{config}; {REREAD}"
    with done_on(site, nodes, f"rm -f {GATE} {config} {hook} /run/lab/presetup /run/lab/over; {REREAD}", do):
        yield


def open_gate(site: Site, node: str) -> None:
    """Let the job pass that waits at the gate; returns when it is there."""
    assert site.root(node, f"cat {GATE}") == "waiting\n"


def sweep(site: Site, node: str, *options: str) -> Result[str]:
    """What the timer of a node does every few minutes."""
    return site.on(node, "vtorque-sweep", *options)


def sweep_all(site: Site) -> None:
    """What a hook that died with its MOM or its node has left is nobody's: it goes at the second look."""
    site.wait_for(
        "the second look",
        lambda: all([sweep(site, node).returncode == 0 for node in NODES]) and not site.left_on_nodes(),
        seen=site.left_on_nodes,
    )


def left_on(site: Site, *nodes: str) -> list[str]:
    """What there is of jobs on these nodes at this moment."""
    return [thing for thing in site.left_on_nodes() if thing.partition(": ")[0] in nodes]


def wait_in_guest(site: Site, job_id: str) -> str:
    """Wait until the script of a job has written its first line, `up`; the job's node."""
    node = site.runs(job_id)
    site.wait_for("the script's first line", lambda: "up" in site.output_so_far(job_id))
    return node


def finish(site: Site, job_id: str, user: str = "alice") -> Ended:
    """Let a script end that waits for it; what comes before it listens is lost on it."""

    def ended() -> bool:
        site.on("fe", *site.batch.signal, "URG", job_id, user=user)
        return site.facts(job_id)["job_state"] == "C"

    site.wait_for("the end of the script", ended)
    return site.end(job_id)


def guest_on(site: Site, node: str) -> str:
    """The one guest that a node has; "" when it has none."""
    return site.root(node, "virsh list --name").strip()


@contextlib.contextmanager
def never_ready(site: Site, *, timeout: int = 100, node_fault_retries: int = 1) -> t.Iterator[str]:
    """An image whose guests are being waited for as long as a test needs; one try a job."""
    with image("idle", fault="idle"), changed(site, node_fault_retries=node_fault_retries, timeout=timeout):
        yield "img=idle"


def kill(site: Site, node: str, finder: str) -> None:
    """kill -9 of what a line of shell finds on a node: one process, and one that has not ended meanwhile."""
    strike = f"set -- $({finder}); [ $# = 1 ] && kill -9 $1"
    site.wait_for(f"one process by {finder!r}", lambda: site.on(node, "/bin/sh", "-c", strike).returncode == 0)


LOGINS = 64
"""As many as a launcher without a tree, or `xargs -P`, begins at once."""


def logins(*targets: str) -> str:
    """Lines of shell with which the job's second and third guest log in at each target, all at once.

    Args:
        targets: hosts, as words of a shell; "$1" is the job's first guest.
    """
    return f"""set -- $(uniq "$PBS_NODEFILE")
for to in {" ".join(targets)}; do
    for from in "$2" "$3"; do
        call="ssh $to \\"echo $from \\$one\\""
        ssh "$from" "for one in \\$(seq {LOGINS}); do $call </dev/null & done; wait" </dev/null &
    done
    wait
    echo "to $to"
done
"""


def check_logins(out: str, *sources: str) -> None:
    """Every one of them came in, from each guest."""
    wanted = {f"{source} {number}" for source in sources for number in range(1, LOGINS + 1)}
    *rounds, rest = re.split(r"^to \S+\n", out, flags=re.MULTILINE)
    assert rest == ""
    for lines in rounds:
        assert wanted - set(lines.splitlines()) == set(), f"{len(lines.splitlines())} of {len(wanted)}"
