# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs in OSv, or rather in a guest that speaks as much of its API as a job needs (lab/guests/osv_stand_in.c)."""

from __future__ import annotations

import io
import json
import os
import pathlib
import platform
import re
import tarfile
import typing as t

import pytest

from lab.guests import osv

from .conftest import Site
from .trouble import drop, end_by_term

PROGRAM = "/usr/lib/osv-program.so"
OSV = ("-vm", "img=tiny-osv")
PLACE = "/srv/osv-packages"
BASES = {"tiny-osv-base": True, "tiny-osv-bare": False}
"""By their names: has it the launcher?"""
REAL = os.environ.get("VTORQUE_OSV_BASE", "")
"""A base of a real OSv: its kernel, or a directory as `vmgr image add --osv-base` takes it.  Then it has its tests."""
REAL_KERNEL = pathlib.Path(REAL) if pathlib.Path(REAL).is_file() else pathlib.Path(REAL) / "loader-stripped.elf"
OF_TINY = "$(ls -d /opt/vm-images/tiny-osv@* | sort -V | tail -n 1)"


@pytest.fixture(scope="module")
def bases(site: Site, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[None]:
    """Bases of the stand-in, added as an administrator adds them, and the package of a user's program."""
    compiled = tmp_path_factory.mktemp("osv") / "compiled"
    osv.compile_all(compiled)
    description = {"name": "program", "title": "For tests", "author": "vTorque", "require": ["greeting >= 1.2"]}
    files = {
        "program/meta/package.yaml": json.dumps(description).encode(),
        "program/usr/bin/program": (compiled / "osv-program.so").read_bytes(),
        "program/empty": b"",
    }
    for name, has_launcher in BASES.items():
        files |= {f"{name}/{path}": content for path, content in base_files(compiled, has_launcher).items()}
    done = site.on("fe", "sh", "-c", f"mkdir -p {PLACE} && tar -xf - -C {PLACE}", stdin=packed(files))
    assert done.returncode == 0, done.stderr
    for name in BASES:
        site.root(
            "fe",
            f"cd {OF_TINY} && vmgr image add {name} --osv-base {PLACE}/{name} --kernel vmlinuz --initrd initrd "
            f"--arch {platform.machine()} --cmdline 'console=ttyS0 quiet cryptomgr.notests --rootfs=rofs'",
        )
    yield
    names = " ".join((*BASES, "composed-1", "composed-0"))
    site.root("fe", f"rm -rf {PLACE}; for image in {names}; do vmgr image delete $image --all --force; done || true")


def base_files(compiled: pathlib.Path, has_launcher: bool) -> dict[str, bytes]:
    """What an export of OSv's build has; the stand-in's own is all that is run of it."""
    here = {"usr/lib/vtorque-launcher.so": (compiled / "vtorque-launcher.so").read_bytes()} if has_launcher else {}
    names = ("libhttpserver-api.so", "usr/mgmt/cloud-init.so", "usr/bin/iso-read.so", "init/00-cmdline")
    root = {**dict.fromkeys(names, b"of the stand-in"), **here}
    package = {"meta/package.yaml": b"{name: greeting, title: G, author: A, version: 1.10}", "etc/greeting": b"hello\n"}
    return {
        **{f"root/{path}": content for path, content in root.items()},
        **{f"packages/greeting/{path}": content for path, content in package.items()},
    }


def packed(files: t.Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for path, content in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def composed(site: Site, base: str) -> str:
    """The name of an image of the program on this base."""
    name = f"composed-{int(BASES[base])}"
    output = site.root("fe", f"vmgr image compose {name} --package {PLACE}/program --base {base} --set KIND=new --json")
    found = json.loads(output)
    assert [one["name"] for one in found["packages"]] == ["greeting", "program"]
    assert found["launcher"] == BASES[base]
    return name


@pytest.mark.parametrize(
    "base", [pytest.param(base, marks=() if has_launcher else pytest.mark.full) for base, has_launcher in BASES.items()]
)
def test_job_in_a_composed_image_has_its_files_environment_and_status(site: Site, bases: None, base: str) -> None:
    """The stand-in has nothing but what its own reader finds on the disk; without the launcher its kernel reports."""
    name = composed(site, base)
    line = "/usr/bin/program file=/etc/greeting file=/empty variable=KIND variable=PBS_JOBID file=PBS_NODEFILE return="
    ended = site.job("-vm", f"img={name}", stdin=f"{line}7\n")
    assert (ended.exit_status, ended.err) == (7, "")
    lines = ended.out.splitlines()
    assert lines[:3] == ["hello", "new", ended.job_id]
    assert re.fullmatch(r"vcn[12]-[0-9]+", lines[3].partition(".")[0])
    assert len(lines) == 4
    good = site.job("-vm", f"img={name}", stdin="/usr/bin/program say=done\n")
    assert (good.exit_status, good.out, good.err) == (0, "done\n", "")


@pytest.mark.full
def test_base_is_no_image_of_a_job(site: Site, bases: None) -> None:
    done = site.vsub("-vm", "img=tiny-osv-base", stdin="/usr/bin/program\n")
    assert done.returncode != 0
    assert "no job runs in it" in done.stderr


@pytest.mark.full
def test_output_environment_and_status_of_the_one_program_reach_the_job(site: Site) -> None:
    """The variables with any character, the node file, the host's name, `-F`, and the status that main returned."""
    odd = 'it\'s "q" `x` \u00fc\tand; {{ 7*7 }} \\ % & + $HOME'
    names = ("DISTRO", "PBS_JOBID", "PBS_NP", "PBS_NUM_NODES", "ODD", "LD_LIBRARY_PATH")
    script = site.write(
        "/home/alice/osv.sh",
        "#!/bin/sh\n#PBS -vm img=tiny-osv,vcpus=2\n\n# nobody makes anything of this: $(reboot)\n"
        f"{PROGRAM} \\\n  'say=a  \"b\" \\ c' {' '.join(f'variable={name}' for name in names)} \\\n"
        "  file=PBS_NODEFILE host=\n",
    )
    report = ["env", f"ODD={odd}", "LD_LIBRARY_PATH=/nope"]
    done = site.on("fe", *report, "vsub", "-v", "ODD,LD_LIBRARY_PATH", "-F", "say=more return=37", script, user="alice")
    assert done.returncode == 0, done.stderr
    ended = site.end(done.stdout.strip())
    assert (ended.exit_status, ended.err) == (37, "")
    lines = ended.out.splitlines()
    assert lines[:7] == ['a  "b" \\ c', "OSV", ended.job_id, "2", "1", odd, "(none)"]
    assert lines[7] == lines[8]
    assert re.fullmatch(r"vcn[12]-[0-9]+(\..*)?", lines[9])
    assert lines[9].partition(".")[0] == lines[8]
    assert lines[10:] == ["more"]
    assert "LD_LIBRARY_PATH" in site.stored(ended.node, ended.job_id, name="vtorque.log")


@pytest.mark.both
@pytest.mark.full
def test_long_output_is_whole_and_in_order(site: Site) -> None:
    """More than any buffer on its way holds; the last line has no end of its own."""
    ended = site.job(*OSV, stdin=f"{PROGRAM} lines=20000\n")
    assert (ended.exit_status, ended.out) == (0, "".join(f"{n}\n" for n in range(1, 20001)))


@pytest.mark.both
@pytest.mark.full
def test_program_that_cannot_be_run_is_said(site: Site) -> None:
    ended = site.job(*OSV, stdin="/usr/lib/nothing.so\n")
    assert (ended.exit_status, ended.out) == (1, "")
    assert "nothing was run: /usr/lib/nothing.so: " in ended.err


@pytest.mark.both
@pytest.mark.full
def test_exit_of_the_program_ends_the_guest_and_is_no_success(site: Site) -> None:
    """What exit() does in OSv: nobody is left to tell the status, and the job says so."""
    ended = site.job(*OSV, stdin=f"{PROGRAM} say=before exit=0\n")
    assert ended.exit_status == 69
    assert ended.out.startswith("before\n"), "the guest's own last words follow"
    assert "was lost" in ended.err


@pytest.mark.both
@pytest.mark.full
def test_cancel_ends_it(site: Site) -> None:
    job_id = site.submit(*OSV, stdin=f"{PROGRAM} say=up wait=600\n")
    node = site.runs(job_id)
    site.wait_for(
        "the program", lambda: "up" in site.on(node, "sh", "-c", "cat /var/lib/vtorque/guests/*/*/console.log").stdout
    )
    ended = end_by_term(site, job_id)
    assert (ended.exit_status, ended.out) == (site.batch.cancelled, "up\n")


@pytest.mark.both
@pytest.mark.full
def test_another_user_does_not_hear_the_console(site: Site) -> None:
    """The way to it is the job's user's alone."""
    job_id = site.submit(*OSV, stdin=f"{PROGRAM} wait=600\n")
    node = site.runs(job_id)
    console = f"/run/vtorque/jobs/{site.full_id(job_id)}.1/console"
    ready = f"/run/vtorque/jobs/{site.full_id(job_id)}.1/ready.json"
    site.wait_for("the ready record", lambda: site.on(node, "test", "-e", ready).returncode == 0)
    socket = site.root(node, f"readlink {console}").strip()
    assert [site.on(node, "test", "-w", socket, user=user).returncode for user in ("alice", "bob")] == [0, 1]
    drop(site, job_id)
    site.end(job_id)


@pytest.mark.full
def test_what_osv_cannot_have_is_refused_at_submission(site: Site) -> None:
    """Everything at once, with its reasons."""
    prologue = site.write("/home/alice/before.sh", "#!/bin/sh\n")
    refused = {
        ("-vm", "vms_per_node=2"): "vms_per_node=2",
        ("-l", "nodes=2"): "one process in one guest",
        ("-vm", f"vm_prologue={prologue}"): "OSv has no shell",
        ("-S", "/bin/bash"): "OSv has no shell",
        ("-d", "/home/alice"): "a program in OSv starts in /",
    }
    options = [word for pair in refused for word in pair]
    done = site.vsub(*OSV, *options, stdin="cd /tmp; echo x | wc\n")
    assert done.returncode != 0
    assert done.stdout == ""
    for arguments in (*refused.values(), "is for a shell, and OSv has none"):
        assert arguments in done.stderr
    interactive = site.vsub(*OSV, "-I")
    assert interactive.returncode != 0
    assert "OSv has no shell and no terminal" in interactive.stderr


@pytest.mark.skipif(not REAL, reason="VTORQUE_OSV_BASE names no kernel of OSv")
def test_composed_disk_boots_a_real_osv_at_once(site: Site, tmp_path: pathlib.Path) -> None:
    """Output, environment and status of an unmodified program, by the kernel's own console."""
    compiled = tmp_path / "compiled"
    osv.compile_all(compiled)
    run = {"runtime": "native", "main": "/usr/bin/program say=hello variable=KIND file=/etc/greeting return=7"}
    files = {
        "program/meta/package.yaml": b"{name: program, title: T, author: A}",
        "program/meta/run.yaml": json.dumps(run).encode(),
        "program/usr/bin/program": (compiled / "osv-program.so").read_bytes(),
        "program/etc/greeting": b"from the disk\n",
        "kernel/loader-stripped.elf": REAL_KERNEL.read_bytes(),
    }
    done = site.on("fe", "sh", "-c", f"mkdir -p {PLACE} && tar -xf - -C {PLACE}", stdin=packed(files))
    assert done.returncode == 0, done.stderr
    site.root("fe", f"vmgr image add real-kernel --osv-base {PLACE}/kernel")
    try:
        composing = f"vmgr image compose program --package {PLACE}/program --base real-kernel --set KIND=new"
        found = json.loads(site.root("fe", f"{composing} --output {PLACE}/disk.img --json"))
        qemu = (
            f"qemu-system-{platform.machine()} -m 128 -cpu max -display none -serial stdio -monitor none -nic none "
            f"-no-reboot -kernel {PLACE}/kernel/loader-stripped.elf -append '{found['cmdline']}' "
            f"-drive file={PLACE}/disk.img,if=none,id=disk,format=raw,snapshot=on -device virtio-blk-pci,drive=disk"
        )
        done = site.on("fe", "bash", "-c", f"TIMEFORMAT='%U %S'; time timeout 60 {qemu} </dev/null")
    finally:
        site.root("fe", f"vmgr image delete real-kernel --all --force; rm -rf {PLACE}")
    lines = done.stdout.replace("\r", "").splitlines()
    begin = lines.index("hello")
    assert lines[begin : begin + 4] == ["hello", "new", "from the disk", "program /usr/bin/program returned 7"]
    assert sum(map(float, done.stderr.split()[-2:])) < 2, "seconds of a processor, from qemu's start to its end"


@pytest.mark.skipif(
    not (REAL and (pathlib.Path(REAL) / "root/libhttpserver-api.so").exists()),
    reason="VTORQUE_OSV_BASE names no tree of OSv with its REST server",
)
@pytest.mark.parametrize("has_launcher", [True, False])
def test_job_runs_in_an_image_that_is_composed_on_a_real_osv(
    site: Site, tmp_path: pathlib.Path, has_launcher: bool
) -> None:
    compiled = tmp_path / "compiled"
    osv.compile_all(compiled)
    launcher = {"usr/lib/vtorque-launcher.so": (compiled / "vtorque-launcher.so").read_bytes()} if has_launcher else {}
    package = {"usr/bin/program": (compiled / "osv-program.so").read_bytes(), **launcher}
    package["meta/package.yaml"] = b"{name: program, title: T, author: A}"
    files = {f"program/{path}": content for path, content in package.items()}
    done = site.on("fe", "sh", "-c", f"mkdir -p {PLACE} && tar -xf - -C {PLACE}", stdin=packed(files))
    assert done.returncode == 0, done.stderr
    site.root("fe", f"vmgr image add real-osv --osv-base {REAL}")
    try:
        site.root("fe", f"vmgr image compose real-program --package {PLACE}/program --base real-osv")
        line = "/usr/bin/program variable=PBS_JOBID return=7\n"
        ended = site.job("-vm", "img=real-program,ram=512M", stdin=line)
    finally:
        images = "for image in real-osv real-program; do vmgr image delete $image --all --force; done || true"
        site.root("fe", f"{images}; rm -rf {PLACE}")
    assert (ended.exit_status, ended.err) == (7, "")
    assert ended.job_id in ended.out.splitlines()
