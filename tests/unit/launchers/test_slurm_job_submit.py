# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module for a site's job_submit.lua, in the Lua that Slurm's plugin loads (5.1), on tables in place of jobs."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import multiprocessing
import pathlib
import resource
import typing as t

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm import comment
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.request.keys import DISK, FILES, KEYS
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.rendering import templates

TEMPLATE = "batch/slurm/vtorque_job_submit.lua.j2"
HARNESS = """
slurm = {SUCCESS = 0, ERROR = -1, messages = {}}
function slurm.log_user(...) table.insert(slurm.messages, string.format(...)) end
local vtorque = dofile(arg_module)
local job = dofile(arg_job)
local status = vtorque(job)
local out = io.open(arg_out, "w")
for _, text in ipairs({tostring(status), rawget(job, "script") or "nil", rawget(job, "comment") or "nil",
                       rawget(job, "features") or "nil",
                       table.concat(slurm.messages, "|")}) do
    out:write(text, "\\0")
end
out:close()
"""
Submit = t.Callable[..., tuple[int, str, str, str, str]]


def run_lua(text: str) -> None:
    """Run a text in a Lua of its own; an error in it fails the test."""
    lua = ctypes.CDLL("liblua5.1.so.0")
    lua.luaL_newstate.restype = ctypes.c_void_p
    lua.lua_tolstring.restype = ctypes.c_char_p
    state = ctypes.c_void_p(lua.luaL_newstate())
    lua.luaL_openlibs(state)
    failed = lua.luaL_loadstring(state, text.encode()) or lua.lua_pcall(state, 0, -1, 0)
    message = lua.lua_tolstring(state, -1, None) if failed else b""
    lua.lua_close(state)
    assert not failed, message


@pytest.fixture
def submit(tmp_path: pathlib.Path) -> Submit:
    """A submission: what the module says, and what it made of script, comment and features; the user's messages."""
    (tmp_path / "module.lua").write_text(
        templates.render(TEMPLATE, site_dir=None, prefix="/opt/vtorque", feature="vtorque")
    )

    def call(job: str) -> tuple[int, str, str, str, str]:
        (tmp_path / "job.lua").write_text(f"return {job}")
        names = {"module": "module.lua", "job": "job.lua", "out": "out"}
        head = "".join(f"arg_{name} = {json.dumps(str(tmp_path / file))}\n" for name, file in names.items())
        run_lua(head + HARNESS)
        status, script, note, features, output, _end = (tmp_path / "out").read_text().split("\0")
        return int(status), script, note, features, output

    return call


def job_of(script: str, **fields: str) -> str:
    """A job's description in Lua."""
    items = {"script": script, **fields}.items()
    return "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in items) + "}"


def test_script_with_our_lines_gets_interpreter_comment_and_feature(submit: Submit) -> None:
    script = "#!/bin/bash\n#SBATCH -n2\n#VM img=debian12, vcpus=2\n\n#VM\tram=2G \necho\n#VM vcpus=9\n"
    status, made, note, features, output = submit(job_of(script))
    assert (status, output, features) == (0, "", "vtorque")
    assert made == f"#!/opt/vtorque/bin/vtorque-shell\n{script}"
    assert note == "vtorque:=img=debian12,vcpus=2,ram=2G"
    data = comment.unpack(note)
    assert data is not None
    assert json.loads(data)["k"] == {"img": "debian12", "vcpus": "2", "ram": "2G"}


@pytest.mark.parametrize(
    "job",
    [
        "{}",
        job_of("#!/bin/sh\necho\n", comment="mine"),
        job_of("#!/bin/sh\necho\n#VM vcpus=2\n"),
        job_of("#!/bin/sh\n# VM vcpus=2 #VM\n#VMS x=1\necho #VM\n"),
        job_of("#!/opt/vtorque/bin/vtorque-shell\n#!/bin/sh\n#VM vcpus=2\n", comment="vtorque:abc"),
        "{script = 7}",
    ],
)
def test_other_job_is_left_as_it_is(submit: Submit, tmp_path: pathlib.Path, job: str) -> None:
    status, made, note, features, output = submit(job)
    assert (status, features, output) == (0, "nil", "")
    assert "vtorque:=" not in note
    assert made.count("vtorque-shell") == job.count("vtorque-shell")


def test_error_of_the_module_lets_a_bare_job_pass_and_no_other(submit: Submit) -> None:
    broken = "setmetatable({{}}, {{__index = function(_, name) if name == 'script' and {}; error('broken') end}})"
    assert submit(broken.format("false then return end"))[0] == 0
    asks = "true then return '#!/bin/sh\\n#VM vcpus=1\\n' end"
    status, _script, _note, _features, output = submit(
        f"setmetatable({{}}, {{__index = function(_, name) if name == 'script' and {asks};"
        " if name == 'comment' then error('broken') end end})"
    )
    assert status == -1
    assert "broken" in output


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("vcpu=2", "vcpu=: no such key"),
        ("vcpus", "write key=value"),
        ("img=/home/a/x.img", "submit with vsbatch"),
        ("metadata=x.yml", "metadata=: no such key"),
        ("img=a b", "submit with vsbatch"),
        ("img='a'", "submit with vsbatch"),
        ("vcpus=2,vcpus=3", "given twice"),
        ("img=" + "a" * 1200, "too long"),
        (" ,\n#VM ".join(f"img{number}=1" for number in range(300)), "too long"),
    ],
)
def test_wrong_line_is_refused_by_its_reason(submit: Submit, line: str, text: str) -> None:
    status, made, note, _features, output = submit(job_of(f"#!/bin/sh\n#VM {line}\necho\n"))
    assert (status, note) == (-1, "nil")
    assert output.startswith("vtorque: ")
    assert text in output
    assert "vtorque-shell" not in made


@pytest.mark.parametrize("word", ["hetjob", "packjob"])
def test_heterogeneous_job_is_refused_with_our_lines_and_passes_without(submit: Submit, word: str) -> None:
    script = f"#!/bin/sh\n#SBATCH -n1\n#SBATCH {word}\n#SBATCH -n2\n%secho\n"
    status, made, note, _features, output = submit(job_of(script % "#VM vcpus=2\n"))
    assert (status, note) == (-1, "nil")
    assert "heterogeneous" in output
    assert "vtorque-shell" not in made
    assert submit(job_of(script % ""))[:2] == (0, script % "")


PROCESSOR_S = 20
"""Seconds; what takes the square of a script's length takes hours for a script of megabytes."""
MANY = 3_000_000
LONG = {
    "blanks": f"#!/bin/sh\n#VM vcpus=2{' ' * MANY}x\necho\n",
    "blanks alone": f"#!/bin/sh\n#VM {' ' * MANY}\necho\n",
    "blanks before": f"#!/bin/sh\n#VM vcpus=1{' ' * 60_000}x\necho\n",
    "blanks of a value": f"#!/bin/sh\n#VM vcpus{' ' * 30_000}={' ' * 30_000}x=\necho\n",
    "empty lines": "\n" * MANY + "#VM vcpus=2\n",
    "comments": "#\n" * MANY + "#VM vcpus=2\necho\n",
    "our lines": "#VM vcpus=2\n" * (MANY // 12) + "echo\n",
    "commas": f"#!/bin/sh\n#VM {',' * MANY}\necho\n",
}


@pytest.mark.parametrize("script", LONG.values(), ids=list(LONG))
def test_script_of_megabytes_is_refused_before_the_controller_loses_time(submit: Submit, script: str) -> None:
    """Every other submission and every node waits for the controller meanwhile."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
        status, made, note, _features, output = submit(job_of(script))
        assert (status, note) == (-1, "nil")
        assert len(output) < 2000
        assert not made.startswith("#!/opt")

    one = multiprocessing.get_context("fork").Process(target=bounded)
    one.start()
    one.join()
    assert one.exitcode == 0


def test_script_with_a_long_head_and_no_lines_of_ours_is_a_bare_job(submit: Submit) -> None:
    script = "#\n" * 50_000 + "echo '#VM vcpus=2'\n"
    assert submit(job_of(script))[:2] == (0, script)


def test_comment_of_the_users_own_is_refused(submit: Submit) -> None:
    assert submit(job_of("#!/bin/sh\n#VM vcpus=2\n", comment="mine"))[0] == -1


def test_constraint_of_the_users_own_is_joined_with_the_feature_of_nodes_with_machines(submit: Submit) -> None:
    assert submit(job_of("#!/bin/sh\n#VM vcpus=2\n", features="fast"))[3] == "fast&vtorque"


def test_constraint_that_counts_nodes_is_refused(submit: Submit) -> None:
    status, *_fields = submit(job_of("#!/bin/sh\n#VM vcpus=2\n", features="[a*2&b]"))
    assert status != submit(job_of("#!/bin/sh\n#VM vcpus=2\n"))[0]


def test_keys_are_those_of_requests_but_for_files() -> None:
    text = (templates.COLLECTION_DIR / TEMPLATE).read_text(encoding="utf-8")
    listed = text.partition("for key in ([[")[2].partition("]]")[0].split()
    assert set(listed) == set(KEYS) - {DISK, "spare", *FILES}


def test_spare_nodes_are_refused_with_the_command_that_asks_for_them(submit: Submit) -> None:
    status, *_fields, message = submit(job_of("#!/bin/sh\n#VM img=debian12,spare=1\n"))
    assert (status, message) == (-1, "vtorque: spare=: submit with vsbatch, which asks Slurm for these nodes, too")


@pytest.mark.parametrize("text", ["", "x", "a=", "=b", "a=1,", "a=1,a=2", "A=1", "a=b c", "a=$(x)", "a=" + "1" * 300])
def test_plain_comment_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(comment.UserFault, match="cannot be read"):
        comment.unpack(f"vtorque:={text}")


def test_plain_comment_is_a_request_that_is_checked_as_any() -> None:
    data = comment.unpack("vtorque:=vcpus=2,ram=1G")
    assert data is not None
    assert json.loads(data) == {"v": 1, "k": {"vcpus": "2", "ram": "1G"}, "s": ""}
