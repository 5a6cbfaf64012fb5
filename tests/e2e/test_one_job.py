# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One job in one guest: what its user sees.  Every test also ends with nothing left (conftest.py)."""

from __future__ import annotations

import re

import pytest

from .conftest import WAYS, Site, cases
from .trouble import end_by_term, wait_in_guest

START_WAYS = cases(WAYS, "fast")


@pytest.mark.both  # slurm/test_one_job.py has one of its own, and test_kinds.py the streams
def test_script_runs_in_a_guest_and_streams_stay_apart(site: Site) -> None:
    """Batch job with the site's defaults alone: another host name, the user's ids, stdout and stderr apart."""
    script = site.write("/home/alice/where.sh", "#!/bin/sh\nhostname; uname -s; id -u; id -g; echo complaint >&2\n")
    ended = site.job(script)
    name, kernel, uid, gid = ended.out.split()
    assert re.fullmatch(r"vcn[12]-[0-9]+", name)
    assert (kernel, uid, gid) == ("Linux", "1001", "1001")
    assert ended.err == "complaint\n"
    assert ended.exit_status == 0


@pytest.mark.full  # test_kinds.py and test_endings.py have 255 and 3, with each batch system
@pytest.mark.both
@pytest.mark.parametrize("status", [1, 37, 255])
def test_exit_status_is_the_scripts(site: Site, status: int) -> None:
    """255 too, which ssh uses for its own troubles."""
    ended = site.job(site.batch.named, "fails", stdin=f"echo out; exit {status}\n")
    assert (ended.exit_status, ended.out, ended.err) == (status, "out\n", "")


@pytest.mark.both
@pytest.mark.full
def test_script_killed_by_a_signal(site: Site) -> None:
    """The shell, or Slurm of the script itself, reports 128 + 9, as on bare metal."""
    assert site.job(stdin="kill -KILL $$\n").exit_status == 137


@pytest.mark.full
@pytest.mark.both
def test_piped_job_is_called_stdin(site: Site) -> None:
    """`echo ... | vsub`: its bytes arrive as they are."""
    job_id = site.submit(stdin="printf '%s|' 'a  b' '*' \"it's\"\n")
    facts = site.wait_state(job_id, "C")
    assert facts["Job_Name"] == site.batch.piped_name
    assert site.end(job_id).out == "a  b|*|it's|"


@pytest.mark.full
def test_arguments_and_path_are_those_of_the_node(site: Site) -> None:
    """`-F` with quoting, and $0 where Torque keeps the script."""
    script = site.write("/home/alice/args.sh", '#!/bin/sh\necho "$0"; echo "$#:$1:$2"\n')
    ended = site.job("-F", "'a b' c", script)
    path, arguments = ended.out.splitlines()
    assert path == f"/var/spool/torque/mom_priv/jobs/{ended.job_id}.SC"
    assert arguments == "2:a b:c"


@pytest.mark.full  # `test_environment_of_the_job` and test_kinds.py have such values, too
@pytest.mark.both
def test_values_of_the_user_arrive_with_any_character(site: Site) -> None:
    """What the job's environment had at its submission."""
    script = site.write("/home/alice/odd.sh", '#!/bin/sh\necho "$DISTRO"; printf "%s" "$ODD"\n')
    odd = 'it\'s "q" $HOME `x` \u00fc\tand\nmore, a=b; {{ 7*7 }}'
    carried = ("-V",) if site.batch.name == "torque" else ()  # sbatch does so without a word
    done = site.on("fe", "env", f"ODD={odd}", site.batch.vm, *site.batch.apart, *carried, script, user="alice")
    assert done.returncode == 0, done.stderr
    assert site.end(done.stdout.split()[-1]).out == f"SLG\n{odd}"


def test_environment_of_the_job(site: Site) -> None:
    """PBS_* of the job, counts of the guests, and values with any character."""
    script = site.write(
        "/home/alice/env.sh",
        '#!/bin/sh\necho "$PBS_JOBID"; echo "$PBS_NP/$PBS_NUM_NODES/$PBS_NUM_PPN"; cat "$PBS_NODEFILE"; hostname\n'
        'echo "$DISTRO"; printf "%s" "$ODD"\n',
    )
    odd = 'it\'s "q" $HOME `x` \u00fc\tand\nmore, a=b; {{ 7*7 }}'
    done = site.on("fe", "env", f"ODD={odd}", "vsub", "-V", "-vm", "vcpus=2", script, user="alice")
    assert done.returncode == 0, done.stderr
    ended = site.end(done.stdout.strip())
    job_id, counts, *rest = ended.out.split("\n")
    assert job_id == ended.job_id
    assert counts == "2/1/2"
    assert rest[0] == rest[1] == rest[2]
    assert rest[3] == "SLG"
    assert "\n".join(rest[4:]) == odd


@pytest.mark.full
def test_directives_of_the_script_count(site: Site) -> None:
    """`#PBS -vm` in the script, of any prefix, and on standard input; the command line wins; the job keeps its name.

    qsub's own reading of such a line (`-v m`) leaves no variable.
    """
    script = site.write(
        "/home/alice/direct.sh", "#!/bin/sh\n#PBS -vm vcpus=2\n#PBS -l walltime=600\ngrep -c . $PBS_NODEFILE\n"
    )
    from_script = site.job(script)
    assert from_script.out == "2\n"
    assert site.job("-vm", "vcpus=1", script).out == "1\n"
    assert site.facts(from_script.job_id)["Job_Name"] == "direct.sh"
    piped = "#PBS -vm vcpus=2\n#X -vm vcpus=3\ngrep -c . $PBS_NODEFILE; env | grep '^m=' || echo none\n"
    assert site.job(stdin=piped).out == "2\nnone\n"
    assert site.job("-C", "#X", stdin=piped).out == "3\nnone\n"
    assert site.job("-C", "#X", site.write("/home/alice/other.sh", piped)).out == "3\nnone\n"


@pytest.mark.full
def test_own_shell_is_honoured_in_the_guest(site: Site) -> None:
    """`-S` of the user: a script without `#!` is run by it."""
    script = site.write("/home/alice/plain.sh", "readlink /proc/$$/exe\n")
    assert "bash" not in site.job("-S", "/bin/sh", script).out
    assert "bash" in site.job("-S", "/bin/bash", script).out


@pytest.mark.full
@pytest.mark.both
def test_a_hundred_thousand_lines(site: Site) -> None:
    """Nothing is lost of a long output."""
    assert site.job(stdin="seq 1 100000\n").out == "".join(f"{n}\n" for n in range(1, 100001))


@pytest.mark.full
@pytest.mark.both
def test_standard_input_is_at_its_end(site: Site) -> None:
    """A script that reads gets nothing, and does not hang."""
    assert site.job(stdin="wc -c\n").out.strip() == "0"


@pytest.mark.full
@pytest.mark.both
def test_signals_of_the_batch_system_reach_the_script(site: Site) -> None:
    """URG, which a login shell that leads the session survives: the script's own trap decides."""
    script = "trap 'echo caught; exit 7' URG; echo up; while :; do sleep 1 & wait $!; done\n"
    job_id = site.submit(stdin=script)
    wait_in_guest(site, job_id)
    assert site.on("fe", *site.batch.signal, "URG", job_id, user="alice").returncode == 0
    ended = site.end(job_id)
    assert (ended.exit_status, ended.out) == (7, "up\ncaught\n")


@pytest.mark.full
def test_qsig_ends_a_job_as_on_bare_metal(site: Site) -> None:
    """USR1 kills the login shell that leads the session (256 + 10), and then the rest."""
    job_id = site.submit(stdin="echo up; sleep 600\n")
    wait_in_guest(site, job_id)
    assert site.on("fe", "qsig", "-s", "USR1", job_id, user="alice").returncode == 0
    assert site.end(job_id).exit_status == 266


@pytest.mark.both("slurm", elsewhere="torque")  # test_endings.py deletes one with guests on two nodes
def test_cancel_ends_the_job_in_its_guest(site: Site) -> None:
    """TERM reaches the guest before a KILL ends the job's shell: ended by TERM, as on bare metal."""
    job_id = site.submit(stdin="echo up; sleep 600\n")
    wait_in_guest(site, job_id)
    ended = end_by_term(site, job_id)
    assert (ended.exit_status, ended.out) == (site.batch.cancelled, "up\n")


@pytest.mark.both("slurm")
def test_bare_job_knows_nothing_of_it(site: Site) -> None:
    """A plain job runs on the node; no record, no log, no link is made for it."""
    before = {node: trace(site, node) for node in ("cn1", "cn2")}
    done = site.qsub(stdin="hostname\n")
    assert done.returncode == 0, done.stderr
    ended = site.end(done.stdout.strip())
    assert ended.out.strip() in ("cn1", "cn2")
    assert ended.err == ""
    assert {node: trace(site, node) for node in ("cn1", "cn2")} == before


def trace(site: Site, node: str) -> str:
    """Names of all that the product keeps on a node."""
    return site.root(node, "find /run/vtorque /var/lib/vtorque | sort")
