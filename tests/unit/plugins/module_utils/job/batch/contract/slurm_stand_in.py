# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`squeue` and `scontrol -d show job` out of an answer that `squeue --json` gave: also a program for stand-ins.

What they write is compared with what both wrote at that moment (test_one_job.py).
"""

from __future__ import annotations

import datetime
import json
import pathlib
import re
import sys
import typing as t

NO_JOB = "slurm_load_jobs error: Invalid job id specified\n"
Form = t.Dict[str, t.Any]


def hosts_of(text: str) -> list[str]:
    """The names in a list of hosts with one range."""
    parts = re.fullmatch(r"(\w+)\[(\d+)-(\d+)\]", text)
    return [f"{parts[1]}{n}" for n in range(int(parts[2]), int(parts[3]) + 1)] if parts else text.split(",")


def limit(minutes: int | None) -> str:
    """A limit of time as squeue writes it."""
    if minutes is None or minutes == 0xFFFFFFFF:
        return "UNLIMITED"
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days}-{hours:02}:{rest:02}:00"
    return f"{hours}:{rest:02}:00" if hours else f"{rest}:00"


def column(job: Form, field: str) -> str:
    """What squeue writes of a field."""
    member = job["array_task_id"]
    held = job["state_description"]
    facts = {
        "JobID": job["job_id"],
        "ArrayJobID": job["array_job_id"] or job["job_id"],
        "ArrayTaskID": "N/A" if member is None else member,
        "HetJobID": job["het_job_id"] or "N/A",
        "HetJobOffset": job["het_job_offset"] if job["het_job_id"] else "N/A",
        "Cluster": job["cluster"],
        "State": job["job_state"],
        "RestartCnt": job["restart_cnt"],
        "Reason": held or job["state_reason"],
        "PriorityLong": job["priority"],
        "UserName": job["user_name"],
        "GroupName": job["group_name"],
        "Partition": job["partition"],
        "TimeLimit": limit(job["time_limit"]),
        "exit_code": job["exit_code"],
        "OverSubscribe": "NO" if job["shared"] == "none" else "OK",
        "BatchFlag": int(job["batch_flag"]),
        "BatchHost": job["batch_host"] or "n/a",
        "NumCPUs": job["cpus"],
        "NodeList": job["nodes"] or "",
        "Account": job["account"] or "(null)",
        "Name": job["name"],
        "WorkDir": job["current_working_directory"],
        "STDOUT": job["standard_output"] or f"{job['current_working_directory']}/slurm-{job['job_id']}.out",
        "Comment": job["comment"] or "(null)",
    }
    if field == "StartTime":
        began = datetime.datetime.fromtimestamp(job["start_time"])
        return began.isoformat() if job["start_time"] else "N/A"
    return str(facts[field])


def chosen(jobs: list[Form], name: str) -> list[Form]:
    """The jobs that a name of Slurm's means."""
    first, _plus, offset = name.partition("+")
    if offset:
        return [job for job in jobs if (str(job["het_job_id"]), str(job["het_job_offset"])) == (first, offset)]
    number, _bar, member = name.partition("_")
    found = [
        job
        for job in jobs
        if (member and (job["array_job_id"], job["array_task_id"]) == (int(number), int(member)))
        or (not member and int(number) in (job["job_id"], job["array_job_id"], job["het_job_id"]))
    ]
    return sorted(found, key=lambda job: str(job["job_id"]) != number)


def on_node(jobs: list[Form], node: str) -> list[Form]:
    """The jobs that have, or had, processors of a node."""
    return [job for job in jobs if node in hosts_of(job["nodes"] or "")]


def squeue(jobs: list[Form], fields: str) -> bytes:
    """What `squeue -h -a -t all -O FIELDS` writes of jobs."""
    found = b""
    for job in jobs:
        for one in fields.split(","):
            field, _colon, width = one.partition(":")
            text = column(job, field).encode(errors="surrogateescape")[: int(width)]
            found += text.ljust(int(width))
        found += b"\n"
    return found


def given(job: Form) -> str:
    """The lines with what a job was given on each node."""
    nodes = {node["nodename"]: node for node in job.get("job_resources", {}).get("allocated_nodes", ())}
    lines = ""
    gres = [*(job.get("gres_detail") or ()), *[""] * len(nodes)]
    for number, host in enumerate(hosts_of(job["nodes"]) if nodes else ()):
        cores = sum(
            state == "allocated" for socket in nodes[host]["sockets"].values() for state in socket["cores"].values()
        )
        total = sum(
            state == "allocated"
            for node in nodes.values() for socket in node["sockets"].values() for state in socket["cores"].values()
        )  # fmt: skip
        processors = cores * max(1, job["cpus"] // total)
        ids = "0" if processors == 1 else f"0-{processors - 1}"
        lines += f"     Nodes={host} CPU_IDs={ids} Mem={nodes[host]['memory_allocated']} GRES={gres[number]}\n"
    return f"   JOB_GRES=(null)\n{lines}" if lines else ""


def show(job: Form) -> str:
    """What `scontrol -d show job` writes of a job, as far as it is read."""
    which = ""
    if job["array_task_id"] is not None:
        which = f" ArrayJobId={job['array_job_id']} ArrayTaskId={job['array_task_id']}"
    if job["het_job_id"]:
        which = f" HetJobId={job['het_job_id']} HetJobOffset={job['het_job_offset']}"
    asked = "".join(
        f"   TresPer{what}={job[key]} \n"
        for what in ("Job", "Node", "Socket", "Task")
        if job.get(key := f"tres_per_{what.lower()}")
    )
    note = f"   AdminComment={job['admin_comment']} \n" if job["admin_comment"] else ""
    return (
        f"JobId={job['job_id']}{which} JobName={job['name']}\n   UserId=alice(1001) GroupId=alice(1001)\n"
        f"   Priority={job['priority']} Nice=0 Account={job['account'] or '(null)'} QOS=(null)\n"
        f"{given(job)}   MinCPUsNode=1 MinMemoryCPU=1G MinTmpDiskNode=0\n"
        f"   WorkDir={job['current_working_directory']}\n{note}   Comment={job['comment']} \n   Power=\n{asked}   \n\n"
    )


def answer(data: bytes, command: t.Sequence[str]) -> bytes | None:
    """Return what a command writes; None: the controller knows no such job."""
    if "--json" in command:
        return data
    jobs = json.loads(data.decode(errors="surrogateescape"))["jobs"]
    if command[0] == "squeue":
        if command[5] == "-w":
            return squeue(on_node(jobs, command[6]), command[8])
        return squeue(chosen(jobs, command[6]), command[8]) or None
    return "".join(map(show, chosen(jobs, command[4]))).encode(errors="surrogateescape") or None


def main() -> None:
    """Be a command: the answer with all jobs, the command's name and arguments."""
    found = answer(pathlib.Path(sys.argv[1]).read_bytes(), sys.argv[2:])
    if found is None:
        sys.exit(NO_JOB.strip())
    sys.stdout.buffer.write(found)


if __name__ == "__main__":
    main()
