# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What vsub hands to qsub, byte for byte, and what it says when it does not."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import pwd
import threading
import types
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.request import Request
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vsub

from ....forked import run_forked

ROOT = str(pathlib.Path(vsub.__file__).parents[6])
HOME = pwd.getpwuid(os.getuid()).pw_dir
DRIVER = """
import functools, os, pathlib, sys
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.node.pool import images
from ansible_collections.mikelangelo.vtorque.plugins.plugin_utils.cli import vsub
vsub.load = functools.partial(vsub.load, owner_uid=os.getuid())
images.list_images = functools.partial(images.list_images, owner_uid=os.getuid())
sys.exit(vsub.submit(sys.argv[2:], dict(os.environb), pathlib.Path(sys.argv[1])))
"""
QSUB = """#!/usr/bin/python3 -I
import base64, json, os, pathlib, sys
here = pathlib.Path(sys.argv[0]).parent
operand = pathlib.Path(sys.argv[-1])
seen = {
    "argv": sys.argv[1:],
    "stdin": base64.b64encode(sys.stdin.buffer.read()).decode(),
    "environment": {k.decode("latin-1"): v.decode("latin-1") for k, v in os.environb.items()},
    "script": base64.b64encode(operand.read_bytes()).decode() if operand.is_file() else "",
    "open": sorted(os.listdir("/proc/self/fd")),
}
(here / "seen").write_text(json.dumps(seen))
print("4711.head")
print("a word of qsub", file=sys.stderr)
sys.exit(int(os.environ.get("QSUB_STATUS", "0")))
"""
PBSNODES = """#!/bin/sh
echo '<Data><Node><name>n1</name><state>free</state><np>32</np><status>physmem=100000000kb</status></Node></Data>'
"""


@dataclasses.dataclass
class Done:
    """One call of vsub, and what the recorder that stands in for qsub saw of it."""

    status: int
    out: str
    err: str
    seen: dict[str, t.Any] | None

    @property
    def argv(self) -> list[str]:
        """The arguments of qsub."""
        assert self.seen is not None, self.err
        return list(self.seen["argv"])

    @property
    def request(self) -> Request:
        """The request that qsub was given."""
        found = [word for word in self.argv if word.startswith("x=vtorque:")]
        assert len(found) == 1
        request = Request.decode(found[0][2:])
        assert request is not None
        return request

    def raw(self, name: str) -> bytes:
        """What the recorder kept of `stdin` or `script`."""
        import base64

        assert self.seen is not None, self.err
        return base64.b64decode(self.seen[name])


class Site:
    """A site with a front end, whose qsub writes down how it was called."""

    def __init__(self, here: pathlib.Path) -> None:
        self.here = here
        self.policy = here / "vtorque.yml"
        for name, text in (("qsub", QSUB), ("pbsnodes", PBSNODES)):
            (here / name).write_text(text)
            (here / name).chmod(0o755)
        (here / "pool").mkdir(mode=0o755)
        for image in ("tiny.qcow2", "debian12.qcow2"):
            self.image(image)
        self.configure()

    def image(self, name: str) -> pathlib.Path:
        """Put an image without a record into the pool."""
        path = self.here / "pool" / name
        path.write_bytes(b"")
        path.chmod(0o444)
        return path

    def configure(self, **changes: object) -> None:
        """Write the site's configuration."""
        values = {
            "pbs_qsub_on_fe": str(self.here / "qsub"), "img_default": "tiny", "distro_default": "debian",
            "vm_img_dir": str(self.here / "pool"), "vcpus_default": 2,
            "ram_default": 1024, "arch_default": os.uname().machine, **changes,
        }  # fmt: skip
        self.policy.write_text(json.dumps(values))
        self.policy.chmod(0o644)

    def script(self, data: bytes, name: str = "job.sh") -> str:
        """Write a job script."""
        (self.here / name).write_bytes(data)
        return name

    def vsub(self, *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None) -> Done:
        """Call vsub in the site's directory."""
        done = run_forked(
            DRIVER, str(self.policy), *arguments, input=stdin, capture_output=True, cwd=self.here,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": ROOT, "LC_ALL": "C.UTF-8", **(environment or {})},
        )  # fmt: skip
        record = self.here / "seen"
        seen = json.loads(record.read_text()) if record.exists() else None
        record.unlink(missing_ok=True)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode(), seen)


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Site:
    """A site of its own for each test."""
    tmp_path.chmod(0o755)
    return Site(tmp_path)


PLAIN = b"#!/bin/sh\n#PBS -l walltime=60\necho hello\n"
FRONT = ["-S", "/opt/vtorque/bin/vtorque-shell", "-W"]


def test_bare_submission_becomes_a_vm_job(site: Site) -> None:
    done = site.vsub(site.script(PLAIN))
    assert (done.status, done.out, done.err) == (0, "4711.head\n", "a word of qsub\n")
    assert done.argv[:3] == FRONT
    assert done.argv[4:] == ["-n", "-l", "other=vtorque", "-l", "mem=3072mb", "-l", "nodes=1:ppn=3", "job.sh"]
    assert done.request.values == {}
    assert done.raw("script") == PLAIN


@pytest.mark.parametrize(
    ("environment", "log"), [({}, {}), ({"SHOW_LOG": "true", "DEBUG": "no"}, {"show": True, "debug": False})]
)
def test_wishes_for_the_log_come_from_the_users_environment(
    site: Site, environment: dict[str, str], log: dict[str, bool]
) -> None:
    done = site.vsub(site.script(b"#!/bin/sh\n"), environment=environment)
    part = next(word for word in done.argv if word.startswith("x=vtorque:"))
    request = Request.decode(part.removeprefix("x="))
    assert request is not None
    assert request.log == log


@pytest.mark.parametrize("script", [PLAIN, b"#PBS -vm vcpus=1\n"])
def test_environment_and_descriptors_are_the_users(site: Site, script: bytes) -> None:
    done = site.vsub(
        "-V", site.script(script), environment={"LD_LIBRARY_PATH": "/x", "BASH_FUNC_f%%": "() {\n}", "E": ""}
    )
    assert done.seen is not None
    assert done.seen["environment"] == {
        "PATH": os.environ["PATH"], "PYTHONPATH": ROOT, "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": "/x",
        "BASH_FUNC_f%%": "() {\n}", "E": "",
    }  # fmt: skip
    assert done.seen["open"] == ["0", "1", "2", "3"]  # 3: the listing itself


def test_exit_status_is_that_of_qsub(site: Site) -> None:
    for script in (PLAIN, b"#PBS -vm vcpus=1\n"):
        assert site.vsub(site.script(script), environment={"QSUB_STATUS": "167"}).status == 167


USERS = [
    ["-F", "a  'b' \"c\" $d *", "job.sh"],
    ["-lwalltime=5:00", "-N", "-vm", "job.sh"],
    ["-W", "x=GRES:foo", "-W", "depend=afterok:1", "-zh", "job.sh"],
    ["-v", "A=1,B=x y", "-V", "-A", "an account", "-M", "a@b,c@d", "job.sh"],
    ["-q", "batch", "job.sh", "-j", "oe"],
    ["-w", "/scratch", "-d", HOME, "job.sh"],
    ["-C", "#XYZ", "job.sh"],
    ["-N", "naïve", "job.sh"],
]


@pytest.mark.parametrize("arguments", USERS)
def test_options_of_qsub_pass_unchanged_and_in_order(site: Site, arguments: list[str]) -> None:
    site.script(PLAIN)
    done = (
        site.vsub(arguments[0], "-vm", "vcpus=1", *arguments[1:]) if arguments[0] == "job.sh" else site.vsub(*arguments)
    )
    assert done.argv[-len(arguments) :] == arguments
    done = site.vsub("-vm", "vcpus=1", *arguments)
    assert done.argv[-len(arguments) :] == arguments
    assert done.request.values == {"vcpus": 1}


@pytest.mark.parametrize(
    ("arguments", "script", "expected"),
    [
        (["-lnodes=1:ppn=4:big,walltime=5"], b"", ["-lnodes=1:ppn=4:big,walltime=5"]),
        (["-l", "nodes=1:big"], b"", ["-l", "nodes=1:ppn=3:big"]),
        (["-l", "nodes=n7"], b"", ["-l", "nodes=n7:ppn=3"]),
        (["-l", "other=mine"], b"", ["-l", "other=mine+vtorque"]),
        (["-l", "other=a+vtorque"], b"", ["-l", "other=a+vtorque"]),
        ([], b"#PBS -l other=script\n", ["-l", "other=script+vtorque"]),
        ([], b"#PBS -l nodes=1:ppn=2:big\n", ["-l", "nodes=1:ppn=3:big"]),
        (["-l", "mem=8gb"], b"", ["-l", "mem=8gb"]),
        (["-l", "mem=1gb"], b"", ["-l", "mem=3072mb"]),
        (["-n"], b"", ["-n"]),
    ],
)
def test_resources_are_merged(site: Site, arguments: list[str], script: bytes, expected: list[str]) -> None:
    done = site.vsub(*arguments, site.script(script + PLAIN))
    assert " ".join(expected) in " ".join(done.argv)
    assert done.argv.count("-n") == 1
    assert sum("other=" in word for word in done.argv) == 1
    assert sum("mem=" in word for word in done.argv) == 1


def test_property_of_vm_nodes_is_asked_for(site: Site) -> None:
    site.configure(vm_node_property="vm")
    assert "nodes=1:ppn=3:vm" in site.vsub(site.script(PLAIN)).argv


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("cn1:ppn=2+cn2:ppn=8", "cn1:ppn=3:vm+cn2:ppn=8:vm"),
        ("2:ppn=8:vm+cn3", "2:ppn=8:vm+cn3:ppn=3:vm"),
        ("1:ppn=1+1:ppn=2:big", "1:ppn=3:vm+1:ppn=3:big:vm"),
    ],
)
def test_every_part_of_the_node_request_stays_and_is_large_enough(site: Site, asked: str, given: str) -> None:
    site.configure(vm_node_property="vm")
    assert f"nodes={given}" in site.vsub("-l", f"nodes={asked}", site.script(PLAIN)).argv


@pytest.mark.parametrize(
    ("arguments", "notice"),
    [
        (["-l", "nodes=1:ppn=2"], "vsub: ppn raised from 2 to 3 (2 vcpus + 1 core for the host)"),
        (["-l", "nodes=1:ppn=4", "-vm", "vcpus=6"], "vsub: ppn raised from 4 to 7 (6 vcpus + 1 core for the host)"),
        (["-l", "nodes=2:ppn=2+n3"], "vsub: ppn raised from 2 to 3 (2 vcpus + 1 core for the host)"),
        (
            ["-l", "mem=1gb", "-l", "nodes=2"],
            "vsub: mem raised from 1gb to 6144mb (1G of ram + 2G for the host, on each of 2 nodes)",
        ),
        (["-l", "mem=1gb"], "vsub: mem raised from 1gb to 3072mb (1G of ram + 2G for the host)"),
    ],
)
def test_raised_size_is_reported_in_one_line(site: Site, arguments: list[str], notice: str) -> None:
    done = site.vsub(*arguments, site.script(PLAIN))
    assert done.err.splitlines() == [notice, "a word of qsub"]


def test_every_part_of_a_node_request_stays_and_is_enough(site: Site) -> None:
    argv = site.vsub("-l", "nodes=2:ppn=2+n3:big+1:ppn=9", site.script(PLAIN)).argv
    assert "nodes=2:ppn=3+n3:ppn=3:big+1:ppn=9" in argv
    assert "mem=12288mb" in argv


def test_shell_of_the_user_travels_in_the_request(site: Site) -> None:
    script = site.script(b"#PBS -S /bin/ksh\n#PBS -vm vcpus=1\n")
    done = site.vsub("-zS", "/bin/zsh", script)
    assert done.request.shell == "/bin/zsh"
    assert [word for word in done.argv if "sh" in word and word.startswith("/bin")] == []
    assert "-z" in done.argv
    assert site.vsub(script).request.shell == "/bin/ksh"


def test_vm_lines_of_the_script_are_neutral_in_a_copy_of_the_same_name(site: Site) -> None:
    script = b"#!/bin/sh\n#PBS -N mine \xe9\n#PBS -vm vcpus=1 -j oe\necho 'a  b'\n#PBS -vm no=directive\n"
    done = site.vsub("-vm", "ram=512M", site.script(script))
    assert done.status == 0
    assert done.raw("script") == script.replace(b"-vm vcpus=1", b" " * 11)
    copy = pathlib.Path(done.argv[-1])
    assert copy.name == "job.sh"
    assert not copy.parent.exists()
    assert "-N" not in done.argv
    assert done.request.values == {"vcpus": 1, "ram": 512}
    assert (site.here / "job.sh").read_bytes() == script


@pytest.mark.parametrize("operand", [[], ["-"]])
@pytest.mark.parametrize("script", [b"printf '%s\\n' \"a  *\"\n", b"\xff\x00\n", b"", b"x" * 300_000])
def test_script_on_standard_input_passes_byte_for_byte(site: Site, operand: list[str], script: bytes) -> None:
    done = site.vsub(*operand, stdin=script)
    assert done.status == 0
    assert done.raw("stdin") == script
    assert done.argv[-1] == (operand or ["nodes=1:ppn=3"])[-1]


def test_vm_lines_on_standard_input(site: Site) -> None:
    done = site.vsub(stdin=b"#PBS -vm vcpus=1\necho\n")
    assert done.raw("stdin") == b"#PBS" + b" " * 12 + b"\necho\n"
    assert done.request.values == {"vcpus": 1}


def test_interactive_leaves_standard_input_alone(site: Site) -> None:
    done = site.vsub("-I", stdin=b"#PBS -vm vcpu=1\n")
    assert done.raw("stdin") == b"#PBS -vm vcpu=1\n"
    assert done.argv[-1] == "-I"
    done = site.vsub("-I", site.script(PLAIN), "a b")
    assert done.argv[-3:] == ["-I", "job.sh", "a b"]


def test_command_line_wins_over_script(site: Site) -> None:
    done = site.vsub("-vm", "vcpus=5", site.script(b"#PBS -vm vcpus=1,ram=2G\n"))
    assert done.request.values == {"vcpus": 5, "ram": 2048}


def test_directive_prefix(site: Site) -> None:
    script = site.script(b"#XYZ -vm vcpus=1\n#PBS -vm vcpus=5\n")
    assert site.vsub("-C", "#XYZ", script).request.values == {"vcpus": 1}
    done = site.vsub(script, environment={"PBS_DPREFIX": "#XYZ"})
    assert done.request.values == {"vcpus": 1}
    assert done.argv[:2] == ["-C", "#XYZ"]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["-vm", "vcpu=4"], ["vcpu=4", "no such key; did you mean vcpus?"]),
        (["-vm", "vcpus=many"], ["vcpus=many", "a whole number"]),
        (["-vm", "img=debain12"], ["img=debain12", "no such image in the pool; did you mean debian12.qcow2?"]),
        (["-vm", "img=debain12,vcpu=6,ram=lots"], ["img=debain12", "vcpu=6", "ram=lots"]),
        (["-l", "nodes=1:ppn=400"], ["ppn=400", "more than any node of this site has (32)"]),
        (["-vm", "vcpus=40"], ["ppn=41", "40 vcpus + 1 core for the host: more than any node of this site has (32)"]),
        (["-vm", "ram=200G"], ["mem=202G", "more than any node"]),
        (["-l", "mem=400gb"], ["mem=400gb", "more than any node of this site has"]),
        (["-T", "orig"], ["-T orig", "no job type"]),
        (["-vm", "vm_prologue=no such"], ["vm_prologue=no such", "no such cannot be read: No such file or directory"]),
        (["-vm", "vm_epilogue=/dev/null"], ["vm_epilogue=/dev/null", "is not a file"]),
        (["-l", "procs=8"], ["procs=8", "other numbers of slots", "-l nodes=1:ppn=8, or more nodes with fewer each"]),
        (["-l", "nodes=2,procs=all"], ["procs=all", "-l nodes=1:ppn=N, or"]),
        (["-l", "ncpus=4"], ["ncpus=4", "takes only without -l nodes", "-l nodes=1:ppn=4"]),
        (
            ["-d", HOME + "/a,b"],
            [f"-d {HOME}/a,b", f"would start the job in {HOME}/a,", "change to it in the script (cd)"],
        ),
        (["-d", HOME + "/a "], [f"-d {HOME}/a ", f"would start the job in {HOME}/a,"]),
        (["-v", f"PBS_O_INITDIR={HOME}/a\\b"], [f"PBS_O_INITDIR={HOME}/a\\b", f"would start the job in {HOME}/ab,"]),
        (["-d", "/scratch"], ["-d /scratch", "no such directory in the guest"]),
        (["-v", "A=1,PBS_O_INITDIR=/x"], ["PBS_O_INITDIR=/x", "no such directory in the guest"]),
        (["-W", "x=vtorque:abc"], ["-W x=vtorque:abc", "vsub itself"]),
        (["-S", "sh@a,ksh@b"], ["-S sh@a,ksh@b"]),
        (["-vm", "vcpus=1", "-vm", "vcpus=2"], ["vcpus=2", "given twice"]),
        (["-vm"], ["-vm", "key=value"]),
        (["-vm", "iocm=true"], ["iocm=true", "this site has switched it off (iocm_enabled)"]),
    ],
)
def test_wrong_request_is_refused_before_qsub(site: Site, arguments: list[str], lines: list[str]) -> None:
    done = (
        site.vsub(site.script(PLAIN), *arguments) if arguments == ["-vm"] else site.vsub(*arguments, site.script(PLAIN))
    )
    assert (done.status, done.out, done.seen) == (2, "", None)
    first, *rest = done.err.splitlines()
    assert first == "vsub: the request cannot run on this site (nothing was submitted):"
    for words_of_line in lines:
        assert any(words_of_line in line for line in rest), done.err
    assert all(line.startswith("  ") for line in rest)


def test_directory_that_is_cut_off_for_the_job_gets_a_word(site: Site) -> None:
    done = site.vsub("-w", "/scratch/a,b", site.script(PLAIN))
    content_text = (
        "vsub: PBS_O_WORKDIR will be /scratch/a: Torque keeps no more of /scratch/a,b in its list of variables"
    )
    assert (done.status, done.err.splitlines()) == (0, [content_text, "a word of qsub"])


REFUSAL = {"QSUB_STATUS": "1"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#!/bin/sh\n#PBS -N x\r\ntrue\n", "job 1.sh, line 2 ends with a carriage return: dos2unix 'job 1.sh' "),
        (b"\xef\xbb\xbf#!/bin/sh\r\n", "job 1.sh begins with a byte order mark (line 1, byte 1): dos2unix 'job 1.sh' "),
        ("#!/bin/sh\n\n# für\n".encode(), "job 1.sh, line 3, byte 4 is 0xc3, no ASCII: write it otherwise, or behind"),
        (b"\x7fELF\2\1", "job 1.sh, line 1, byte 1 is 0x7f, which no text has: if this is a program, write a script"),
    ],
)
@pytest.mark.parametrize("off", [False, True])
def test_script_that_qsub_does_not_take_is_explained_after_its_word(
    site: Site, content: bytes, message: str, off: bool
) -> None:
    script = site.script(content, "job 1.sh")
    site.configure(disable_mikelangelo_hpc_stack=off)
    done = site.vsub(script, environment=REFUSAL)
    first, second = done.err.splitlines()
    assert (done.status, first) == (1, "a word of qsub")
    assert second.startswith(f"vsub: {message}")
    # where another qsub takes it, nothing is to be said
    assert site.vsub(script).err == "a word of qsub\n"
    dry = site.vsub("--dry-run", script)
    assert dry.status == 0
    assert dry.err.splitlines()[0].startswith(f"vsub: qsub would not take the script: {message}")


def test_script_with_a_request_that_qsub_does_not_take_is_explained_by_its_own_name(site: Site) -> None:
    """qsub reads a copy without the -vm."""
    done = site.vsub(site.script(b"#!/bin/sh\n#PBS -vm vcpus=1\r\ntrue\n"), environment=REFUSAL)
    assert done.err.splitlines()[1].startswith(
        "vsub: job.sh, line 2 ends with a carriage return: dos2unix job.sh takes "
    )


def test_script_that_qsub_refuses_for_another_reason_is_not_explained(site: Site) -> None:
    assert site.vsub(site.script(PLAIN + b"#" * 50 + "ü\n".encode()), environment=REFUSAL).err == "a word of qsub\n"
    # the command of -x is no script of qsub's
    assert site.vsub("-I", "-x", site.script(b"\x7fELF"), environment=REFUSAL).err == "a word of qsub\n"


def test_standard_input_that_begins_with_a_mark_gets_a_word(site: Site) -> None:
    """qsub takes it, and its first line for a command: no `#PBS` line counts, -vm or other."""
    done = site.vsub(stdin=b"\xef\xbb\xbf#PBS -vm vcpus=1\ntrue\n")
    assert done.request.values == {}
    assert done.err.splitlines()[0].startswith("vsub: standard input begins with a byte order mark: its first line is ")
    # of carriage returns it takes those at the end of lines away
    done = site.vsub(stdin=b"#PBS -vm vcpus=1\r\ntrue\r\n")
    assert (done.request.values, done.err) == ({"vcpus": 1}, "a word of qsub\n")


def test_image_that_cannot_be_believed(site: Site) -> None:
    site.image("odd.qcow2").chmod(0o666)
    done = site.vsub("-vm", "img=odd.qcow2", site.script(PLAIN))
    assert (done.status, done.seen) == (2, None)
    assert "can be written by others than root" in done.err


def test_pool_that_this_host_does_not_see_leaves_the_image_to_the_nodes(site: Site) -> None:
    site.configure(vm_img_dir="/nowhere")
    assert site.vsub("-vm", "img=other@7", site.script(PLAIN)).request.values == {"img": "other@7"}


def test_every_fault_is_told_once_and_in_columns(site: Site) -> None:
    script = site.script(b"#PBS -vm vcpu=6\n#PBS -T orig\n")
    done = site.vsub("-l", "nodes=2:ppn=40", "-vm", "img=debain12", script)
    assert done.err == (
        "vsub: the request cannot run on this site (nothing was submitted):\n"
        "  vcpu=6           no such key; did you mean vcpus? (job.sh, line 1)\n"
        "  -T orig          a VM job has no job type: it would choose other hooks than those that start the guest"
        " (job.sh, line 2)\n"
        "  ppn=40           more than any node of this site has (32)\n"
        "  img=debain12     no such image in the pool; did you mean debian12.qcow2? (vmgr image list)\n"
    )


def test_array_is_qsubs_business(site: Site) -> None:
    done = site.vsub("-t", "1-4%2", site.script(PLAIN))
    assert done.argv[-3:-1] == ["-t", "1-4%2"]


def test_command_of_an_interactive_job_is_qsubs_business(site: Site) -> None:
    assert site.vsub("-I", "-x", site.script(PLAIN), "a b").argv[-4:] == ["-I", "-x", "job.sh", "a b"]


def test_command_with_a_request_of_its_own_is_refused(site: Site) -> None:
    """qsub runs the command where it lies: there is no neutral copy of it."""
    done = site.vsub("-I", "-x", site.script(b"#PBS -vm vcpus=1\n"))
    assert (done.status, done.seen) == (2, None)
    assert "command line" in done.err


def test_scripts_for_the_guest_travel_by_path_and_digest(site: Site) -> None:
    """A relative path is taken from where vsub was called, as qsub takes its own."""
    (site.here / "pre").write_text("#!/bin/sh\n")
    script = site.script(b"#PBS -vm vm_prologue=./pre\n")
    refused = site.vsub(script)
    assert (refused.status, refused.seen) == (2, None)
    assert "is not executable (chmod +x) (job.sh, line 1)" in refused.err
    (site.here / "pre").chmod(0o755)
    request = site.vsub(script).request
    assert request.values["vm_prologue"] == str(site.here / "pre")
    assert request.digests == {"vm_prologue": hashlib.sha256(b"#!/bin/sh\n").hexdigest()}


def test_metadata_file_is_read_at_submission_and_refused_by_line(site: Site) -> None:
    more = site.here / "more.yml"
    more.write_text("packages: [curl]\nuser: bob\nruncmd:\n- 1\n")
    refused = site.vsub("-vm", "metadata=more.yml,vcpu=1", site.script(PLAIN))
    assert (refused.status, refused.seen) == (2, None)
    lines = [line.split(None, 1) for line in refused.err.splitlines()[1:]]
    assert [line[0] for line in lines] == ["vcpu=1", "more.yml:1", "more.yml:2", "more.yml:4"]
    assert lines[1][1] == "packages[0]: curl is not allowed: this site lets users name no packages"
    more.write_text(f"write_files:\n- path: {HOME}/.made\nruncmd: [id]\n")
    done = site.vsub("-vm", "metadata=./more.yml", site.script(PLAIN))
    assert done.request.values["metadata"] == str(more)
    assert done.request.digests == {"metadata": hashlib.sha256(more.read_bytes()).hexdigest()}
    printed = site.vsub("--dry-run", "-vm", "metadata=more.yml", site.script(PLAIN))
    assert "(metadata adds to each guest: 1 file, 1 command)" in printed.out.splitlines()
    printed = site.vsub("--dry-run", "--query", "adds", "-vm", "metadata=more.yml", site.script(PLAIN))
    assert json.loads(printed.out) == "1 file, 1 command"


def test_disk_of_the_user_is_looked_at_where_vsub_is_called(site: Site) -> None:
    disk = site.here / "data.raw"
    refused = site.vsub("-vm", "disk=data.raw", site.script(PLAIN))
    assert (refused.status, refused.seen) == (2, None)
    assert "disk=data.raw" in refused.err
    assert "cannot be opened to read and write: No such file or directory" in refused.err
    with disk.open("wb") as stream:
        stream.truncate(16 << 20)
    request = site.vsub("-vm", "disk=data.raw", site.script(PLAIN)).request
    assert (request.values["disk"], request.digests) == (str(disk), {})


def test_script_that_is_too_long_for_a_guest(site: Site) -> None:
    (site.here / "pre").write_bytes(b"x" * ((1 << 20) + 1))
    done = site.vsub("-vm", "vm_prologue=pre", site.script(PLAIN))
    assert (done.status, done.seen) == (2, None)
    assert "is longer than 1 MiB" in done.err


@pytest.mark.parametrize("name", ["missing.sh", "."])
def test_script_that_cannot_be_read(site: Site, name: str) -> None:
    done = site.vsub(name)
    assert (done.status, done.seen) == (2, None)
    assert name in done.err


def test_dry_run_shows_origins_and_the_command(site: Site) -> None:
    script = site.script(b"#PBS -vm vcpus=1\n")
    done = site.vsub("--dry-run", "-vm", "ram=2G", "-F", "a b", script)
    assert (done.status, done.err, done.seen) == (0, "", None)
    rows = [line.split(None, 2) for line in done.out.splitlines()]
    assert ["vcpus", "1", "job.sh, line 1"] in rows
    assert ["ram", "2G", "command line"] in rows
    assert ["img", "tiny.qcow2", "site default (tiny)"] in rows
    command = done.out.splitlines()[-2]
    assert command.startswith(f"{site.here}/qsub -S /opt/vtorque/bin/vtorque-shell -W x=vtorque:")
    assert command.endswith("-F 'a b' job.sh")


def test_dry_run_says_how_many_nodes_are_asked_for_besides(site: Site) -> None:
    done = site.vsub("--dry-run", "-vm", "spare=1", "-l", "nodes=2:ppn=8", site.script(PLAIN))
    assert (done.status, done.err) == (0, "")
    assert "(spare: 1 node more than the job uses, to take the place of one that fails at the start)" in done.out
    assert "nodes=3:ppn=8" in done.out.splitlines()[-1]
    document = json.loads(site.vsub("--dry-run", "--json", "-vm", "spare=1", site.script(PLAIN)).out)
    assert document["hosts"] == {"vm": 1, "of": 1, "spare": 1}
    refused = site.vsub("-vm", "spare=1", "-l", "nodes=n1", site.script(PLAIN))
    assert (refused.status, refused.seen) == (2, None)
    assert "spare=1: a spare node takes the place of any other" in refused.err


def test_dry_run_for_programs(site: Site) -> None:
    done = site.vsub("--dry-run", "--json", "-vm", "vcpus=1", site.script(PLAIN))
    document = json.loads(done.out)
    assert document["request"]["vcpus"] == {"value": 1, "from": "command line"}
    assert document["qsub"][-1] == "job.sh"
    assert done.seen is None
    assert site.vsub("--json", "job.sh").status == 2


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--query", "request.vcpus.value"], 1),
        (["--query=request.vcpus"], {"value": 1, "from": "command line"}),
        (["--json", "--query", "qsub[-1]"], "job.sh"),
        (["--query", "request", "--query", "request.nothing"], None),
    ],
)
def test_dry_run_for_programs_shows_the_part_that_is_asked_for(site: Site, arguments: list[str], found: object) -> None:
    done = site.vsub("--dry-run", *arguments, "-vm", "vcpus=1", site.script(PLAIN))
    assert (done.status, done.err, json.loads(done.out), done.seen) == (0, "", found, None)


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["--query", "request", "job.sh"], "vsub: --query: goes with --dry-run"),
        (["--dry-run", "--query"], "vsub: --query: the expression is missing"),
        (["--dry-run", "--query", "[", "job.sh"], "vsub: --query '['"),
        (["--dry-run", "--query=", "job.sh"], "vsub: --query ''"),
        (["--dry-run", "--query", "length(`1`)", "job.sh"], "vsub: --query 'length(`1`)'"),
    ],
)
def test_question_that_cannot_be_answered(site: Site, arguments: list[str], output: str) -> None:
    site.script(PLAIN)
    done = site.vsub(*arguments)
    assert (done.status, done.out, done.seen) == (2, "", None)
    assert done.err.startswith(output)


def test_words_about_vsub_itself(site: Site) -> None:
    printed = site.vsub("--help").out
    assert "-vm img=debian12,vcpus=6" in printed
    assert "vms_per_node" in printed
    assert site.vsub("--version").out.startswith("vsub ")


@pytest.mark.parametrize(
    ("word", "hint"), [("--dryrun", "did you mean --dry-run?"), ("--vm", "did you mean -vm?"), ("--x", "--help")]
)
def test_long_word_that_is_nobodys(site: Site, word: str, hint: str) -> None:
    done = site.vsub(word, site.script(PLAIN))
    assert (done.status, done.seen) == (2, None)
    assert done.err.startswith(f"vsub: {word}: no such option")
    assert hint in done.err


def test_qsub_speaks_about_itself(site: Site) -> None:
    assert site.vsub("-z", "--about").argv == ["-z", "--about"]


def test_site_without_vms(site: Site) -> None:
    site.configure(disable_mikelangelo_hpc_stack=True)
    script = site.script(PLAIN)
    assert site.vsub("-l", "nodes=2", script).argv == ["-l", "nodes=2", script]
    assert site.vsub(stdin=PLAIN).raw("stdin") == PLAIN
    assert json.loads(site.vsub("--dry-run", "--query", "qsub[-1]", script).out) == script
    for arguments in (["-vm", "vcpus=1", script], [site.script(b"#PBS -vm vcpus=1\n", "vm.sh")]):
        done = site.vsub(*arguments)
        assert (done.status, done.seen) == (2, None)
        assert "switched off" in done.err


def test_host_from_which_no_vm_jobs_are_submitted(site: Site) -> None:
    host = os.uname().nodename
    site.configure(disabled_hosts_list=host[:-1])
    assert site.vsub(site.script(PLAIN)).status == 0
    site.configure(disabled_hosts_list="*")
    done = site.vsub(site.script(PLAIN))
    assert (done.status, done.seen) == (2, None)
    assert host in done.err


def test_broken_configuration_is_the_sites_fault(site: Site) -> None:
    site.configure(brigde="br0", img_defualt="x")
    done = site.vsub(site.script(PLAIN))
    assert (done.status, done.seen) == (3, None)
    assert "nothing was submitted" in done.err
    assert "brigde" in done.err
    assert "did you mean img_default?" in done.err


@pytest.mark.parametrize("script", [PLAIN, b"#PBS -vm vcpus=1\n"])
def test_missing_qsub_is_the_sites_fault(site: Site, script: bytes) -> None:
    (site.here / "qsub").unlink()
    done = site.vsub(site.script(script))
    assert done.status == 3
    assert "cannot be run" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("fast_start", [True, False])
def test_batch_server_that_does_not_answer_leaves_the_word_to_qsub(site: Site, fast_start: bool) -> None:
    site.configure(fast_start=fast_start)
    (site.here / "pbsnodes").write_text("#!/bin/sh\nexit 111\n")
    assert site.vsub("-vm", "vcpus=40", site.script(PLAIN)).status == 0


@pytest.mark.parametrize("fast_start", [True, False])
def test_batch_server_is_asked_before_its_answer_is_needed_where_the_site_wants_it(
    monkeypatch: pytest.MonkeyPatch, fast_start: bool
) -> None:
    asked = threading.Event()

    def node_sizes(*_words: object) -> tuple[()]:
        asked.set()
        return ()

    monkeypatch.setattr(vsub, "open_batch", lambda *_words, **_more: types.SimpleNamespace(node_sizes=node_sizes))
    nothing = t.cast(t.Any, None)
    answer = vsub._size_question(vsub.Call(nothing, nothing, {}, Policy(fast_start=fast_start), False), "batch")
    assert asked.wait(60 if fast_start else 0) == fast_start
    assert answer() == ()
    assert asked.is_set()


@pytest.mark.parametrize("fast_start", [True, False])
def test_request_is_too_large_whenever_the_batch_server_was_asked(site: Site, fast_start: bool) -> None:
    site.configure(fast_start=fast_start)
    done = site.vsub("-vm", "vcpus=4000", site.script(PLAIN))
    assert (done.status, done.seen) == (2, None)
    assert "more than any node of this site has (32)" in done.err


@pytest.mark.parametrize(
    ("settings", "arguments", "expected"),
    [
        ({}, (), "its guests are paused, and stay in memory"),
        ({"suspend_guests": "session"}, (), "its guests run on, and its script alone stops"),
        ({"suspend_guests": "save"}, (), "its guests are saved to disk"),
        (
            {"suspend_guests": "save", "home_via": "virtiofs"},
            (),
            "its guests are paused, and not saved: it mounts a directory of its node by virtiofs",
        ),
        (
            {"suspend_guests": "save", "mounts": ["/data /data 9p"]},
            (),
            "its guests are paused, and not saved: it mounts a directory of its node by 9p",
        ),
    ],
)
def test_dry_run_says_what_a_suspension_does(
    site: Site, settings: dict[str, t.Any], arguments: tuple[str, ...], expected: str
) -> None:
    site.configure(**settings)
    printed = site.vsub("--dry-run", *arguments, site.script(PLAIN))
    assert f"(suspended: {expected})" in printed.out.splitlines()
    found = site.vsub("--dry-run", "--query", "suspended", *arguments, site.script(PLAIN))
    assert json.loads(found.out) == expected


def test_dry_run_says_why_there_is_no_checkpoint_and_no_move(site: Site) -> None:
    site.configure(home_via="virtiofs")
    printed = site.vsub("--dry-run", "-l", "nodes=2", "-vm", "vcpus=1,nodes=1", site.script(PLAIN)).out.splitlines()
    reasons = "it mounts a directory of its node by virtiofs; some of its hosts stay bare, and their processes cannot"
    assert [line for line in printed if line.startswith(f"(checkpoint: no, because {reasons}")]
    assert [line for line in printed if line.startswith("(moved: no, because this site has no spare nodes")]
    found = json.loads(site.vsub("--dry-run", "--json", site.script(PLAIN)).out)
    assert found["checkpoint"].startswith("no, because it mounts a directory of its node by virtiofs; this site has no")
    assert found["moved"].startswith("no, because this site has no spare nodes (spare_nodes); it mounts a directory")


@pytest.mark.parametrize("word", ["checkpoint=on", "checkpoint_every=30m"])
def test_checkpoint_that_is_asked_for_is_refused_with_the_reasons(site: Site, word: str) -> None:
    site.configure(home_via="virtiofs")
    done = site.vsub("-vm", word, site.script(PLAIN))
    assert done.status == 2
    assert "it mounts a directory of its node by virtiofs; this site has no directory for checkpoints" in done.err


@pytest.mark.parametrize(
    ("settings", "arguments", "expected"),
    [
        ({}, (), "its guests start warm where their node has a template"),
        ({"home_via": "virtiofs"}, (), "its guests start warm where their node has a template"),
        ({}, ("-vm", "warm=false"), "its guests boot: the job asked for a cold start (warm=false)"),
        (
            {"home_via": "virtiofs"},
            ("-vm", "vcpu_pinning=true"),
            "its guests boot: it shows the sockets, NUMA cells or pages of the cores that it asked for",
        ),
        (
            {"allow_emulation": True},
            ("-vm", "vcpu_pinning=true,numa=off,hypervisor=qemu"),
            "its guests start warm where their node has a template",
        ),
        ({"mounts": ["/data /data 9p"]}, (), "its guests boot: it mounts a directory of its node by 9p"),
    ],
)
def test_dry_run_says_why_guests_would_boot(
    site: Site, settings: dict[str, t.Any], arguments: tuple[str, ...], expected: str
) -> None:
    site.configure(warm_start=True, **settings)
    printed = site.vsub("--dry-run", *arguments, site.script(PLAIN))
    assert f"(start: {expected})" in printed.out.splitlines()
    found = site.vsub("--dry-run", "--query", "warm", *arguments, site.script(PLAIN))
    assert json.loads(found.out) == expected


def test_site_without_warm_starts_refuses_one_and_says_nothing_of_them(site: Site) -> None:
    assert "(start:" not in site.vsub("--dry-run", site.script(PLAIN)).out
    done = site.vsub("--dry-run", "-vm", "warm=true", site.script(PLAIN))
    assert done.status != 0
    assert "this site has no warm starts (warm_start)" in done.err


def test_dry_run_says_which_hosts_are_vm_nodes(site: Site) -> None:
    printed = site.vsub("--dry-run", "-l", "nodes=3", "-vm", "vcpus=1,nodes=2", site.script(PLAIN))
    assert ["nodes", "2", "command line"] in [line.split(None, 2) for line in printed.out.splitlines()]
    assert "(VM nodes: the first 2 of 3 hosts; the others stay bare)" in printed.out
    arguments = site.vsub("--dry-run", "--json", "-l", "nodes=3", "-vm", "vcpus=1,nodes=2", site.script(PLAIN)).out
    assert json.loads(arguments)["hosts"] == {"vm": 2, "of": 3, "spare": 0}
    for silent in ("vcpus=1", "vcpus=1,nodes=3"):
        assert "bare" not in site.vsub("--dry-run", "-l", "nodes=3", "-vm", silent, site.script(PLAIN)).out


@pytest.mark.parametrize(
    ("nodes", "hosts"), [((), "1 host"), (("-l", "nodes=2:ppn=4"), "2 hosts"), (("-l", "nodes=n1+n2+n1"), "2 hosts")]
)
def test_more_vm_nodes_than_hosts_are_refused(site: Site, nodes: tuple[str, ...], hosts: str) -> None:
    done = site.vsub(*nodes, "-vm", "vcpus=1,nodes=3", site.script(PLAIN))
    assert (done.status, done.seen) == (2, None)
    assert f"more VM nodes than the job has hosts ({hosts}); ask by -l nodes=3:ppn=N" in done.err


def test_nodes_may_be_of_another_architecture_than_the_front_end(site: Site) -> None:
    """A site has images for the machines that it has; what has none of its own is refused."""
    other = "aarch64" if os.uname().machine != "aarch64" else "x86_64"
    place = site.here / "pool/other@1"
    place.mkdir(mode=0o755)
    (place / "disk.qcow2").write_bytes(bytes(4096))
    record = {
        "version": 1, "name": "other", "revision": 1, "distro": "debian", "arch": other, "format": "qcow2",
        "disk": "disk.qcow2", "disk_sha256": "0f" * 32, "disk_bytes": 4096, "virtual_bytes": 1 << 20,
        "boot": {"mode": "uefi"}, "description": "", "created": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    (place / "record.json").write_text(json.dumps(record))
    done = site.vsub("-vm", f"img=other,arch={other}", site.script(PLAIN))
    assert done.status == 0, done.err
    assert f"the nodes offer {os.uname().machine}, {other}" in site.vsub("-vm", "arch=riscv64", site.script(PLAIN)).err
