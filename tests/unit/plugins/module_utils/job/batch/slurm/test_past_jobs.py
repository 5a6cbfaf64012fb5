# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm wrote down of a job that its controller has forgotten: its user and nodes, or nothing."""

from __future__ import annotations

import datetime
import os
import pathlib

import pytest
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.errors import SiteFault
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.api import PastJob, UnknownJob
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.batch.slurm.questions import past_jobs
from ansible_collections.mikelangelo.vtorque.plugins.module_utils.job.config.parameters import Policy

DAYS = 180
# as slurmctld 22.05.8 has written it
LINE = (
    "JobId={number} UserId={user}(1001) GroupId=alice(1001) Name={name} JobState=FAILED Partition=batch"
    " TimeLimit=UNLIMITED StartTime=2026-11-26T05:33:33 EndTime={end} NodeList={nodes} NodeCnt=1 ProcCnt=2"
    " WorkDir=/home/alice ReservationName= Tres=cpu=2,mem=2G,node=1,billing=2 Account= QOS= WcKey= Cluster=unknown"
    " SubmitTime=2026-11-26T05:33:32 EligibleTime=2026-11-26T05:33:32 DerivedExitCode=0:0 ExitCode=4:0 \n"
)
SCONTROL = """#!/bin/sh
cat <<END
AccountingStorageType   = {accounting}
JobCompType             = {completion}
JobCompLoc              = {place}/jobcomp.log
SlurmUser               = slurm({uid})
END
"""


class Controller:
    """Slurm's commands, and its file."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.file = place / "jobcomp.log"
        self.set()

    def set(self, accounting: str = "accounting_storage/none", completion: str = "jobcomp/filetxt") -> None:
        text = SCONTROL.format(accounting=accounting, completion=completion, place=self.place, uid=os.getuid())
        self.program("scontrol", text)

    def program(self, name: str, text: str) -> None:
        (self.place / name).write_text(text)
        (self.place / name).chmod(0o755)

    def write(
        self, number: str = "7", user: str = "alice", nodes: str = "cn[1-2]", name: str = "a", ago: int = 0
    ) -> None:
        end = datetime.datetime.now() - datetime.timedelta(days=ago)
        with self.file.open("a") as file:
            text = LINE.format(number=number, user=user, nodes=nodes, name=name, end=f"{end:%Y-%m-%dT%H:%M:%S}")
            file.write(text)

    def past(self, job_id: str = "7.lab", start: int = 1) -> PastJob:
        policy = Policy(batch_system="slurm", pbs_qsub_on_fe=str(self.place / "qsub"))
        return past_jobs.past_job(job_id, start, policy, days=DAYS)


@pytest.fixture
def controller(tmp_path: pathlib.Path) -> Controller:
    return Controller(tmp_path)


def test_start_of_the_completion_file_has_its_user_and_nodes(controller: Controller) -> None:
    controller.write("17", "bob", "cn9")
    controller.write(name="two words")
    controller.write("70", "bob", "cn9")
    assert controller.past() == PastJob("7.lab", "alice", ("cn1", "cn2"), 1)


def test_starts_of_a_job_that_was_queued_again_are_told_apart(controller: Controller) -> None:
    controller.write(nodes="cn1", ago=1)
    controller.write(nodes="(null)")
    controller.write(nodes="cn2")
    assert [controller.past(start=start).nodes for start in (1, 2, 0)] == [("cn1",), ("cn2",), ("cn2",)]
    # a start that the file lacks is at the last one's nodes, or is not proved
    assert controller.past(start=3) == PastJob("7.lab", "alice", ("cn2",), 3)


@pytest.mark.parametrize("setting", ["jobcomp/none", "jobcomp/filetxt"])
def test_job_that_is_written_down_nowhere_is_unknown_and_the_settings_are_named(
    controller: Controller, setting: str
) -> None:
    controller.set(completion=setting)
    with pytest.raises(UnknownJob, match="JobCompType=jobcomp/filetxt"):
        controller.past()
    controller.write(ago=DAYS + past_jobs.RUN_DAYS + 1)
    with pytest.raises(UnknownJob):
        controller.past()


@pytest.mark.parametrize(
    "name",
    [
        "a NodeList=cn9 NodeCnt=1 ",
        "a EndTime=2026-11-26T05:33:33 ",
        "a\nJobId=7 UserId=bob(1002) GroupId=bob(1002) Name=b EndTime=2126-11-26T05:33:33 NodeList=cn9 NodeCnt=1 ",
        "a\nJobId=7 UserId=bob(1002) nothing",
    ],
)
def test_words_of_a_user_that_look_like_slurms_prove_nothing(controller: Controller, name: str) -> None:
    controller.write()
    controller.write(name=name)
    with pytest.raises(SiteFault):
        controller.past()


def test_file_that_others_can_write_is_not_believed(controller: Controller) -> None:
    controller.write()
    controller.file.chmod(0o666)
    with pytest.raises(SiteFault, match="not believed"):
        controller.past()


def test_database_is_asked_where_there_is_one(controller: Controller) -> None:
    controller.set(accounting="accounting_storage/slurmdbd")
    answer = "7|alice|cn[1-2]\n7|alice|None assigned\n7|alice|cn2\n8|bob|cn9\n"
    controller.program("sacct", f"#!/bin/sh\necho \"$*\" >{controller.place}/asked\nprintf '{answer}'\n")
    assert controller.past() == PastJob("7.lab", "alice", ("cn1", "cn2"), 2)
    assert controller.past(start=2).nodes == ("cn2",)
    assert (controller.place / "asked").read_text().startswith("-n -P -X -D -j 7 -o JobIDRaw,User,NodeList -S 20")
    controller.program("sacct", "#!/bin/sh\nprintf '7|alice\\n'\n")
    with pytest.raises(SiteFault, match="of another form"):
        controller.past()
