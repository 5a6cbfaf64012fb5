# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds of jobs: what each gives in a guest is what it gives on bare metal.  Few jobs, each of which looks at much."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import re
import shlex
import types
import typing as t

import pytest

from .conftest import Ended, Site
from .terminal import Terminal
from .trouble import NODES, WAITS, changed, end_by_term, guest_on, wait_in_guest

ODD = 'it\'s "q" $HOME `x` * \\ \u00fc\tand\nmore, a=b; {{ 7*7 }}\n'
LOOK = r"""#!/bin/sh
printf '<%s>' "$#" "$@"; echo
echo "dir $(pwd) umask $(umask) zero ${0##*[./]}"
echo "read $(wc -c)"
printf '[%s]' "$ODD" "$A" "$B" "$PYTHONHOME" "$LD_LIBRARY_PATH" "$PYTHONPATH"; echo
echo "$PBS_ENVIRONMENT $PBS_JOBNAME $PBS_O_WORKDIR $PBS_O_LOGNAME $PBS_QUEUE"
echo "$SLURM_JOB_NAME $SLURM_SUBMIT_DIR $SLURM_JOB_USER $SLURM_JOB_PARTITION $SLURM_CLUSTER_NAME $SLURM_JOB_NUM_NODES"
for n in 1 2 3; do echo "out $n"; echo "err $n" >&2; done
printf '\377\000\001' | od -An -tx1
sleep 600 &
(trap '' HUP TERM; sleep 600) &
{ sh -c 'kill -KILL $$'; } 2>/dev/null; echo "killed $?"
printf 'no line end'
exit 255
"""
NOTHING: t.Mapping[str, str] = types.MappingProxyType({})
ARGUMENTS = "'a  b' \\* \"it's\" ''"
MUCH = 100_000_000
PRINTS = f"head -c {MUCH} /dev/zero | tr '\\0' x\n"
HIGH_WATER = """
for status in /proc/[0-9]*/status; do
    tr '\\0' ' ' <${status%/*}/cmdline | grep -q 'cli[.]vtorque_shell' && sed -n 's/VmHWM:[^0-9]*//p' $status
done 2>/dev/null
true
"""


def both(
    site: Site, *arguments: str, script: str, behind: t.Sequence[str] = (), environment: t.Mapping[str, str] = NOTHING
) -> tuple[Ended, Ended]:
    """The same job in a guest and bare, at the same time."""
    set_to = [f"{name}={value}" for name, value in environment.items()]
    line = ("/bin/sh", "-c", 'umask 027; exec "$@"', "sh", "env", *set_to)
    ended = []
    for command in (site.batch.vm, site.batch.bare):
        done = site.on("fe", *line, command, *site.batch.apart, *arguments, script, *behind, user="alice")
        assert done.returncode == 0, done.stderr
        ended.append(done.stdout.split()[-1])
    guest, bare = (site.end(job_id) for job_id in ended)
    return guest, bare


@pytest.mark.both("slurm")
def test_batch_job_is_as_on_bare_metal(site: Site) -> None:
    """Arguments, directory, umask, an empty standard input, odd values, streams, background processes, status 255."""
    script = site.write("/home/alice/look.sh", LOOK)
    environment = {"ODD": ODD, "PYTHONHOME": "/nope", "PYTHONPATH": "/nope", "LD_LIBRARY_PATH": "/nope"}
    environment |= {"A": '"q"', "B": "it's"}
    place = "/home/alice/a b"
    site.root("fe", f"mkdir '{place}' && chown alice: '{place}'")
    try:
        if site.batch.name == "torque":
            options = ("-V", "-v", 'A="q",B=it\'s', "-F", ARGUMENTS, "-d", place, "-W", "umask=027")
            guest, bare = both(site, *options, environment=environment, script=script)
        else:
            behind = shlex.split(ARGUMENTS)
            guest, bare = both(site, "-D", place, environment=environment, script=script, behind=behind)
    finally:
        site.root("fe", f"rm -r '{place}'")
    assert "<4><a  b><*><it's><>" in bare.out
    assert f"dir {place} umask 0027 zero {site.batch.script}" in bare.out
    assert ODD in bare.out
    assert guest == dataclasses.replace(bare, job_id=guest.job_id, node=guest.node)
    assert guest.exit_status == 255


ORDER = """#!/bin/sh
n=0
while [ $n -lt 3000 ]; do n=$((n+1)); echo "out $n"; echo "err $n" >&2; done
{ echo a; echo b >&2; } >$HOME/only-out.$PBS_JOBID 2>$HOME/only-err.$PBS_JOBID
cat $HOME/only-out.$PBS_JOBID; echo; cat $HOME/only-err.$PBS_JOBID >&2
"""


@pytest.mark.full
def test_streams_that_are_one_file_keep_their_order(site: Site) -> None:
    """`-j oe`, `-j eo`: one file has both in order, the other nothing; what the script keeps apart stays apart."""
    script = site.write("/home/alice/order.sh", ORDER)
    order = "".join(f"{name} {n}\n" for n in range(1, 3001) for name in ("out", "err")) + "a\n\nb\n"
    with concurrent.futures.ThreadPoolExecutor() as pool:  # all four jobs at the same time
        pairs = [(pool.submit(both, site, "-j", join, script=script), join) for join in ("oe", "eo")]
    for pair, join in pairs:
        for ended in pair.result():
            assert ended.exit_status == 0
            assert (ended.out, ended.err) == ((order, "") if join == "oe" else ("", order))


THE_SAME = [
    "PBS_ENVIRONMENT", "PBS_JOBNAME", "PBS_MOMPORT", "PBS_NODENUM", "PBS_O_HOME", "PBS_O_HOST", "PBS_O_LANG",
    "PBS_O_LOGNAME", "PBS_O_MAIL", "PBS_O_PATH", "PBS_O_QUEUE", "PBS_O_SERVER", "PBS_O_SHELL", "PBS_O_WORKDIR",
    "PBS_QUEUE", "PBS_TASKNUM", "PBS_VERSION", "PBS_VNODENUM", "PBS_WALLTIME",
]  # fmt: skip
OF_THE_JOB = ["PBS_JOBCOOKIE", "PBS_JOBID", "PBS_NODEFILE"]
COUNTS = ["PBS_NP", "PBS_NUM_NODES", "PBS_NUM_PPN"]
DROPPED = ["DISPLAY", "PBS_GPUFILE", "PBS_MICFILE", "TMPDIR"]
"""Every variable of a job (recorded on TORQUE 6.1.3) but PBS_ARRAYID: as it is bare, another for each job, replaced by
what describes the guests, dropped."""
TOLD = ("DISTRO", "HYDRA_", "I_MPI_", "OMPI_", "PRTE_")
"""What a guest adds, by its beginning."""
LIMITS = """
echo ==
ulimit -S -a; ulimit -H -a
"""


@pytest.mark.full
def test_environment_and_limits_are_those_of_a_bare_job(site: Site) -> None:
    """The whole of `env`, and every limit that is carried; the job's log has what was dropped or replaced of it."""
    script = site.write("/home/alice/all.sh", f"#!/bin/bash\nenv -0{LIMITS}")
    environment = {"MAIL": "/var/mail/alice", "LANG": "C.UTF-8"}
    guest, bare = both(site, "-v", "TMPDIR=/tmp/mine,DISPLAY=:7,OWN=kept", environment=environment, script=script)
    (here, limits), (there, expected) = (_taken_apart(ended.out) for ended in (guest, bare))
    assert {name for name in there if name.startswith("PBS_")} | {"TMPDIR", "DISPLAY"} == {
        *THE_SAME, *OF_THE_JOB, *COUNTS, *DROPPED,
    }  # fmt: skip
    added = {name for name in here if name.startswith(TOLD)}
    assert set(here) - added == set(there) - set(DROPPED)
    assert here["DISTRO"] == "SLG"
    different = {name for name in here if here[name] != there.get(name)} - added
    # PATH is what the profile makes it, which is the guest's own
    assert different <= {*OF_THE_JOB, *COUNTS, "PATH"}, [(name, here[name], there[name]) for name in different]
    assert here["PBS_JOBID"] == guest.job_id
    assert here["PBS_NODEFILE"].replace(guest.job_id, bare.job_id) == there["PBS_NODEFILE"]
    assert len(here["PBS_JOBCOOKIE"]) == len(there["PBS_JOBCOOKIE"]) > 0
    assert [here[name] for name in COUNTS] == ["1", "1", "1"]
    assert limits == expected
    log = site.stored(guest.node, guest.job_id, name="vtorque.log")
    (output,) = re.findall(r"the job's shell: of the job's variables dropped, [^:]*: ([^;\n]*)", log)
    assert sorted(output.split()) == DROPPED


def _taken_apart(out: str) -> tuple[dict[str, str], list[str]]:
    """Variables and limits of a job; not those that are no limits of a process's, or that Linux no longer knows."""
    variables, limits = out.split("==\n")
    found = dict(entry.split("=", 1) for entry in variables.split("\0")[:-1])
    other = ("pipe size", "file locks", "real-time non-blocking")
    return found, [" ".join(line.split()) for line in limits.splitlines() if not line.startswith(other)]


@pytest.mark.full
def test_standard_input_of_any_bytes_and_a_library_that_is_not_there(site: Site) -> None:
    """A piped script with bytes that are no text; LD_PRELOAD of the user's breaks nothing of ours."""
    script = b"printf '%s' '\xff\xfe\x01\xc3\xa9' | od -An -tx1 | tr -d ' '; echo \"<$LD_PRELOAD>\"\n"
    done = site.on("fe", "env", "LD_PRELOAD=/nope.so", "vsub", "-V", user="alice", stdin=script)
    assert done.returncode == 0, done.stderr
    ended = site.end(done.stdout.split()[-1])
    assert (ended.exit_status, ended.out) == (0, "fffe01c3a9\n</nope.so>\n")


@pytest.mark.both
@pytest.mark.full
def test_a_hundred_megabytes_arrive_whole(site: Site) -> None:
    """And neither the node nor the guest keeps them in memory on their way."""
    job_id = site.submit(stdin=PRINTS + "echo; " + WAITS)
    node = site.runs(job_id)
    host, written = site.output_place(job_id)
    site.wait_for("the output", lambda: "up" in site.on(host, "tail", "-c", "5", written).stdout)
    peaks = site.root(node, HIGH_WATER).splitlines()  # of the shell, and on Slurm of its child that hears signals
    assert peaks
    assert all(int(peak.split()[0]) < 65_536 for peak in peaks), peaks
    assert site.on("fe", *site.batch.signal, "URG", job_id, user="alice").returncode == 0
    facts = site.wait_state(job_id, "C")
    path = facts["Output_Path"].partition(":")[2]
    count, rest = site.root(
        "fe", f"head -c {MUCH} {path} | tr -d x | wc -c; tail -c +{MUCH + 1} {path}; rm {path}"
    ).split("\n", 1)
    assert (count.strip(), rest, facts["exit_status"]) == ("0", "\nup\non\n", "0")


def test_members_of_an_array_have_guests_of_their_own(site: Site, start_way: str) -> None:
    """Two at once, on two nodes and on one."""
    started = set()
    for exclusive in (True, False):
        with changed(site, ("fe",), pbs_exclusive_node_alloc=exclusive, kill_user_processes_after_job=False):
            if not exclusive:
                site.root("fe", "pbsnodes -o cn2")
            try:
                started |= _check_array(site, nodes={*NODES} if exclusive else {"cn1"})
            finally:
                site.root("fe", "pbsnodes -c cn2")
    # where one was slow on a busy machine, it booted after all
    assert ("yes" in started) == (start_way == "warm"), started


def _check_array(site: Site, nodes: set[str]) -> set[str]:
    """Have an array of two run on these nodes; returns what its records say of warm starts."""
    array = site.submit("-t", "1-2", stdin=f'hostname; echo "$PBS_ARRAYID $PBS_JOBID"\n{WAITS}')
    assert array.partition(".")[0].endswith("[]")
    members = [array.replace("[]", f"[{n}]") for n in (1, 2)]
    ran_on = {wait_in_guest(site, member) for member in members}
    assert ran_on == nodes
    names, started = set(), set()
    for member in members:
        assert site.on("fe", "qsig", "-s", "URG", member, user="alice").returncode == 0
    for number, member in enumerate(members, 1):
        ended = site.end(member)
        name, ids, *rest = ended.out.splitlines()
        assert (ids, rest, ended.exit_status) == (f"{number} {member}", ["up", "on"], 0)
        names.add(name)
        (guest,) = json.loads(site.stored(ended.node, member))["guests"]
        started.add(guest.get("warm", ""))
    assert len(names) == 2
    return started


@pytest.mark.full
def test_interactive_job(site: Site) -> None:
    """The window's size, Ctrl-C, and the session's status; then a command with arguments."""
    terminal = Terminal(site, "vsub", "-I", "-v", "ODD=it's $HOME; a  b", "-W", "umask=027", size=(33, 99))
    terminal.expect("ready")
    terminal.type('echo "name=$(hostname)"; stty size; umask; echo "<$PBS_ENVIRONMENT $PBS_NP $PBS_JOBID $ODD>"')
    terminal.type('echo "file $(cat "$PBS_NODEFILE")"; PS1="ne""xt "; echo "en""ter"; cat')
    terminal.expect("enter\r\n")  # all of it: what is typed before its end comes between
    terminal.type("again")
    terminal.expect("again\r\nagain\r\n")  # cat is there, and not only on its way
    terminal.interrupt()
    terminal.expect("next ")  # what is typed before the prompt may be lost with what the key throws away
    terminal.type('echo "aft""er"; exit 9')
    terminal.expect("after")
    terminal.close()
    assert "name=vcn" in terminal.seen
    assert "\r\n33 99\r\n0027\r\n" in terminal.seen
    assert f"<PBS_INTERACTIVE 1 {terminal.job_id} it's $HOME; a  b>" in terminal.seen
    assert "file vcn" in terminal.seen
    assert site.wait_state(terminal.job_id, "C")["exit_status"] == "9"

    terminal = Terminal(site, "vsub", "-I", "-x", "/usr/bin/printf", "'<%s>'", "'a  b'", "c", ";", "uname", "-n")
    terminal.close()
    assert "<a  b><c>vcn" in terminal.seen
    assert site.wait_state(terminal.job_id, "C")["exit_status"] == "0"


@pytest.mark.full
def test_start_directory_that_no_guest_has_is_refused(site: Site) -> None:
    """At submission, with what there is; `-w` is a variable and nothing else, as Torque has it."""
    done = site.vsub("-d", "/usr", stdin="pwd\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "-d /usr" in done.stderr
    assert "/home/alice" in done.stderr
    ended = site.job("-d", "/home/alice", "-w", "/usr/share", stdin='pwd; echo "$PBS_O_WORKDIR $PBS_O_INITDIR"\n')
    assert ended.out == "/home/alice\n/usr/share /home/alice\n"


PRO = """#!/bin/sh
echo "pro $(hostname) $(id -un) $PBS_JOBID $PBS_ENVIRONMENT"
echo complaint >&2
echo kept >$HOME/pro
"""
POST = '#!/bin/sh\necho "post $(hostname) $(cat $HOME/pro) $(cat $HOME/job 2>/dev/null)"\n'
NODE = '#!/bin/sh\necho "{} $(hostname) $(id -un)"\n'


@pytest.mark.full
def test_scripts_of_the_user_around_the_job(site: Site) -> None:
    """In the guest by `-vm`, on the node by `-l`: all run as the user, in this order, their output the job's."""
    site.write("/home/alice/pro.sh", PRO)
    site.write("/home/alice/post.sh", POST)
    for name in ("node-pro", "node-epi"):
        site.write(f"/home/alice/{name}", NODE.format(name))
    ended = site.job(
        "-vm", "vm_prologue=pro.sh,vm_epilogue=/home/alice/post.sh", "-l", "prologue=node-pro,epilogue=node-epi",
        stdin='echo "job $(cat $HOME/pro)"; echo done >$HOME/job; exit 7\n',
    )  # fmt: skip
    assert ended.exit_status == 7
    assert ended.err == "complaint\n"
    first, on_node, job, on_node_too, last = ended.out.splitlines()
    guest = first.split()[1]
    assert first == f"pro {guest} alice {ended.job_id} PBS_BATCH"
    assert guest.startswith("vcn")
    assert (on_node, on_node_too) == (f"node-pro {ended.node} alice", f"node-epi {ended.node} alice")
    assert (job, last) == ("job kept", f"post {guest} kept done")


ADDS = """
write_files:
- {path: /tmp/conf, permissions: '0600', content: "it's $HOME\\n"}
runcmd:
- echo "$(id -un) $(hostname) $VTORQUE_RANK $(cat /tmp/conf)" >$HOME/added.$VTORQUE_RANK; echo word
- [touch, /tmp/a b]
"""
SEES = r"""
for host in $(uniq $HOSTS); do
    ssh $host 'stat -c "%a %U %n" /tmp/conf "/tmp/a b"; cat $HOME/added.* /tmp/vtorque-metadata.log' </dev/null
done
"""


@pytest.mark.full
@pytest.mark.both
def test_additions_of_the_user_are_in_every_guest_before_his_prologue(site: Site) -> None:
    """Also on a sister; files and commands are his own.  (Where he may have no prologue, before his script.)"""
    site.write("/home/alice/more.yml", ADDS)
    site.write("/home/alice/pro.sh", "#!/bin/sh\ncat $HOME/added.0\n")
    prologue = ",vm_prologue=pro.sh" if site.batch.users_scripts else ""
    script = SEES.replace("HOSTS", site.batch.hosts)
    ended = site.job(*site.batch.two, "-vm", f"metadata=more.yml{prologue}", stdin=script)
    others = ended.out.splitlines()
    first = others.pop(0) if prologue else others[2]
    assert (ended.exit_status, ended.err) == (0, "")
    guests = [line.split()[1] for line in (first, others[3])]
    seen = ["600 alice /tmp/conf", "644 alice /tmp/a b"]
    seen += [f"alice {name} {rank} it's $HOME" for rank, name in enumerate(guests)]
    assert others == [*seen, "word"] * 2
    assert first == seen[2]
    assert guests[0] != guests[1]


@pytest.mark.both
@pytest.mark.full
def test_additions_that_fail_or_are_others_end_the_job_at_once(site: Site) -> None:
    """The user's fault, in words; nothing of the job runs, nothing is tried again."""
    path = site.write("/home/alice/more.yml", "runcmd: ['true', 'echo no licence; exit 3']\n")
    held = site.submit(*site.batch.held, "-vm", "metadata=more.yml", stdin="echo RAN\n")
    failed = site.job("-vm", "metadata=more.yml", stdin="echo RAN\n")
    assert (failed.exit_status, failed.out) == (1, "")
    assert "command 2 ended with status 3" in failed.err
    assert "its last lines: no licence" in failed.err
    site.write(path, "runcmd: ['touch /home/alice/other']\n")
    assert site.on("fe", *site.batch.release, held, user="alice").returncode == 0
    changed = site.end(held)
    assert (changed.exit_status, changed.out) == (1, "")
    assert "metadata /home/alice/more.yml: was changed after the job was submitted" in changed.err
    assert site.read("/home/alice/other") == ""
    assert [site.facts(one.job_id)["start_count"] for one in (failed, changed)] == ["1", "1"]


FIRST = """
case $(grep ' /data ' /proc/mounts) in *nosuid,nodev*) stat -c '%U %a' /data ;; esac
echo kept >/data/file
sleep 600 >/data/open &
exit 3
"""


@pytest.mark.full
@pytest.mark.both
def test_disk_of_the_user_goes_from_job_to_job(site: Site) -> None:
    """Made in the first, given back whole under whoever still writes; one job at a time has it, however one ends."""
    made = site.on("fe", "vmgr", "disk", "create", "data.qcow2", "64M", user="alice")
    assert (made.returncode, made.stderr) == (0, "")
    asks = ("-vm", "disk=data.qcow2")
    first = site.job(*asks, stdin=FIRST)
    assert (first.exit_status, first.out.split()) == (3, ["alice", "700"])
    assert "disk in guest" not in site.stored(first.node, first.job_id, name="vtorque.log")
    holds = site.submit(*asks, stdin="cat /data/file; echo up; sleep 600\n")
    node = wait_in_guest(site, holds)
    other = site.job(*asks, stdin="echo RAN\n")
    assert (other.exit_status, other.out) == (1, "")
    assert "disk /home/alice/data.qcow2: is in use, by another job or by a program of yours" in other.err
    site.root(node, f"virsh destroy {guest_on(site, node)}")
    assert site.end(holds).exit_status == 69
    assert site.job(*asks, stdin="cat /data/file\n").out == "kept\n"


SHOWS = '#!/bin/sh\nprintf \'%s|\' "$PBS_JOBID" "$WORDS" "$NOTHING" "$PBS_O_WORKDIR" "$PBS_NP"; echo\n'


TICKS = """#!/bin/sh
setsid sh -c 'echo tick; touch ticked; while echo tick; do sleep 1; done' &
until [ -e ticked ]; do sleep 0.1; done
rm ticked
exit {}
"""


@pytest.mark.full
def test_daemons_that_go_on_printing_hold_neither_the_job_nor_the_scripts_around_it(site: Site) -> None:
    """As on bare metal, where nobody waits for what has left the job's session."""
    for name in ("pro.sh", "post.sh"):
        site.write(f"/home/alice/{name}", TICKS.format(0))
    ended = site.job("-vm", "vm_prologue=pro.sh,vm_epilogue=post.sh", stdin=f"echo job\n{TICKS.format(7)}")
    assert ended.exit_status == 7
    assert set(ended.out.split()) == {"job", "tick"}
    assert '"ended": "status 0"' in site.stored(ended.node, ended.job_id)


@pytest.mark.full
def test_scripts_of_the_user_have_the_variables_of_the_job(site: Site) -> None:
    """What was passed with `-v` is the same in all three, byte for byte."""
    for name in ("pro.sh", "post.sh", "job.sh"):
        site.write(f"/home/alice/{name}", SHOWS)
    message = """it's "one"  & \\ $HOME; *"""
    ended = site.job(
        "-v", f"NOTHING=,PBS_O_WORKDIR=/else where,WORDS={message}", "-vm", "vm_prologue=pro.sh,vm_epilogue=post.sh",
        "job.sh",
    )  # fmt: skip
    first, *others = ended.out.splitlines()
    assert others == [first, first]
    assert first.startswith(f'{ended.job_id}|it\'s "one"  & \\')
    assert first.endswith(" $HOME; *||/else where|1|")
    assert (ended.exit_status, ended.err) == (0, "")


@pytest.mark.full
def test_epilogue_of_the_user_runs_after_a_cancel_and_its_failure_is_noted(site: Site) -> None:
    """Bounded and harmless: the job ends as it ended."""
    site.write("/home/alice/post.sh", "#!/bin/sh\necho post; exit 4\n")
    job_id = site.submit("-vm", "vm_epilogue=post.sh", stdin="echo up; sleep 600\n")
    node = wait_in_guest(site, job_id)
    ended = end_by_term(site, job_id)
    assert (ended.exit_status, ended.out) == (271, "up\npost\n")
    assert "vm_epilogue /home/alice/post.sh: ended with status 4" in site.stored(node, job_id, name="vtorque.log")
    assert '"ended": "status 4"' in site.stored(node, job_id)


@pytest.mark.full
def test_epilogue_of_the_user_that_does_not_end_is_ended(site: Site) -> None:
    """In the time that the site gives it; the job keeps its status, and nothing of it is left."""
    site.write("/home/alice/post.sh", "#!/bin/sh\necho post\nsleep 600\necho NEVER\n")
    with changed(site, vm_epilogue_timeout=2):
        ended = site.job("-vm", "vm_epilogue=post.sh", stdin="echo job; exit 5\n")
    assert ended.exit_status == 5
    assert ended.out in ("job\n", "job\npost\n")  # a slow guest may need all of the time to begin it
    log = site.stored(ended.node, ended.job_id, name="vtorque.log")
    assert "vm_epilogue /home/alice/post.sh: was not done in 2 s" in log
    assert '"ended": "not done in time"' in site.stored(ended.node, ended.job_id)


@pytest.mark.full
def test_prologue_of_the_user_that_fails_is_his_fault(site: Site) -> None:
    """The job ends, with the script's status and its last words; it runs nothing, and nothing is tried again."""
    site.write("/home/alice/pro.sh", "#!/bin/sh\necho no licence; exit 3\n")
    ended = site.job("-vm", "vm_prologue=pro.sh", stdin="echo RAN\n")
    assert ended.exit_status == 1
    assert ended.out == "no licence\n"
    assert "vm_prologue /home/alice/pro.sh: ended with status 3" in ended.err
    assert "no licence" in ended.err
    assert site.facts(ended.job_id)["start_count"] == "1"
