# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a batch system's package has besides its `BatchSystem`: one module for each part of the product that asks.

Type checkers and tests read this file, and no program loads it: a module of `job/batch/<system>/` is the implementation
of a protocol by itself, so that a hook or the job's shell loads the one part that it needs.
"""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    import pathlib

    from ...wire.health_report import Finding
    from ..config.parameters import Policy
    from ..request.command_call import CommandCall
    from ..request.demand import Demand, NodeSize
    from ..request.request import Request
    from ..request.value_types import KeyFault
    from .api import BatchJob, BatchSystem, PastJob
    from .hook_call import HookCall, HookEnd, HookLimits
    from .own_job import JobScript, OwnJob


class HookAdapter(t.Protocol):
    """How the batch system calls a hook, how long it waits, and what it takes for the hook's end.

    `END_HOLDS_NODE`: whether a node's next job waits for its own hook, not only for that of the job's first node.
    """

    END_HOLDS_NODE: bool

    def read_call(self, arguments: t.Sequence[str], environment: t.Mapping[str, str]) -> HookCall:
        """Return the call that the launcher hands on, whose job id and user are of their forms.

        Args:
            arguments: of the hooks' program.
            environment: its environment; what a user can set in it is not believed.

        Raises:
            VTorqueError: the job's id or the user's name is of another form.
        """

    def exit_status(self, end: HookEnd) -> int:
        """Return the status with which the hooks' program ends, as the system's launcher understands it."""

    def hook_limits(self, policy: Policy) -> HookLimits:
        """Return the batch system's own bound of a hook's time on this node."""

    def hook_ends(self, call: HookCall, policy: Policy, began: float) -> float:
        """Return when the batch system ends this hook, or gives the start up.

        Args:
            call: of the hook.
            policy: the site's.
            began: when the hook was started, in seconds of the monotonic clock.

        Returns:
            Seconds of the monotonic clock; infinity: it waits as long as it takes.
        """


class NodeAdapter(t.Protocol):
    """What the batch system has of jobs on this node, whatever its server says."""

    def is_node(self, policy: Policy) -> bool:
        """Return whether the batch system may run jobs on this host; a front end may look like a node."""

    def alive_here(self, policy: Policy) -> t.Callable[[str], bool]:
        """Return a function that says whether the batch system has anything of a job here; it takes the job's id.

        Raises:
            SiteFault: by the function: what the batch system has here cannot be read.
        """

    def remove_notes(self, is_over: t.Callable[[str, int], bool]) -> None:
        """Remove what our hook noted here of starts that are over; a system whose hook notes nothing does nothing.

        Args:
            is_over: whether a start of a job is over, from its id and number; raises SiteFault if that is not known.

        Raises:
            OSError: they cannot be read or removed.
        """

    def runs_users_programs_first(self, job: BatchJob, policy: Policy) -> bool:
        """Return whether the batch system runs anything as the user here between our hook and the job's shell."""

    def start_directory(self, job: BatchJob) -> str:
        """Return the directory that a guest must have for a job to start in, by the batch server's word; "": none."""

    def node_file(self, policy: Policy, job_id: str) -> pathlib.Path | None:
        """Return the file in which the batch system tells a job of its nodes; None: it writes none.

        Args:
            policy: the site's.
            job_id: a job that runs here.
        """

    def check_node_file(self, content: str, hosts: t.Sequence[str]) -> None:
        """Compare such a file with what the batch server says.

        Args:
            content: of the file.
            hosts: the server's word, a name a slot, the mother superior first.

        Raises:
            UserFault: they disagree: in hosts, in their slots, or in the first host.
        """

    def others_here(self, policy: Policy, job_id: str) -> tuple[str, ...]:
        """Return what the batch system has here of other jobs than this one, in a few words each.

        Raises:
            SiteFault: what the batch system has here cannot be read.
        """

    def cpusets(self, policy: Policy, job_id: str) -> tuple[str, ...]:
        """Return where below a hierarchy of cgroups a job (`*`: any) gets a cpuset after its hook, as patterns.

        A system that gives none, or has it before (`node.system.cpus.of_mom`), answers ().
        """


class DoctorAdapter(t.Protocol):
    """What of the batch system only its own checks can tell; the names are among `CHECKS` (wire/health_report.py)."""

    def node_checks(
        self, policy: Policy, node: str, *, owner_uid: int, thorough: bool
    ) -> dict[str, t.Callable[[], Finding]]:
        """Return checks of this node, by their names: its hooks, and what root of it may do.

        Args:
            policy: the site's.
            node: this node.
            owner_uid: whose the hooks must be.
            thorough: also what asks more of the server than each node should every few minutes.
        """

    def check_server(self, batch: BatchSystem, nodes: t.Sequence[str], preface: str = "") -> Finding:
        """Return whether the batch server is set as vTorque needs it.

        Args:
            batch: is asked.
            nodes: compute nodes of the site.
            preface: text that its commands write before their answers, or "".
        """


class TrialAdapter(t.Protocol):
    """How a job of `vmgr selftest` is submitted, and by what it knows its nodes.

    `COUNTS` are words of a shell, for the slots and the hosts of a job; `NODE_FILE` is one for the file that names a
    host for each slot.  `DELETE` and `NODES` are the commands that people call to delete a job and to look at nodes.
    """

    COUNTS: str
    NODE_FILE: str
    DELETE: str
    NODES: str

    def options(self, name: str, directory: str, where: str, queue: str | None) -> tuple[str, ...]:
        """Return the options of the command that takes jobs.

        Args:
            name: of the job.
            directory: for the files `out` and `err`, which all hosts see.
            where: a number of nodes, or a node's name.
            queue: of the batch system; None: its default.
        """

    def job_id(self, output: str, batch: BatchSystem) -> str:
        """Return the id (`JobId`) of a job that was submitted; "": none was.

        Args:
            output: of the command.
            batch: where the job is.

        Raises:
            SiteFault: the batch system does not tell.
        """


class ShellAdapter(t.Protocol):
    """How the batch system starts the job's shell, and what of the job's environment is the system's.

    `NODE_PATHS` are variables that name what only the node has: they are dropped on the way to a guest.
    """

    NODE_PATHS: tuple[bytes, ...]

    def job_id_of(self, variables: t.Mapping[bytes, bytes]) -> str:
        """Return the job's id (`JobId`) as its environment has it; "" where no job is."""

    def own_job(self, variables: t.Mapping[bytes, bytes]) -> OwnJob | None:
        """Return the start that this process is the shell of, by what its user cannot forge; None: of none.

        Args:
            variables: of the job, which a user can set in part.
        """

    def read_script(self, arguments: t.Sequence[str]) -> JobScript:
        """Return the script of a batch job.

        Args:
            arguments: with which the batch system started the shell.

        Raises:
            VTorqueError: there is none, or it cannot be read.
        """

    def read_command(self, arguments: t.Sequence[str]) -> bytes:
        """Return the command of an interactive job; empty: it has none, and a login shell runs.

        Args:
            arguments: with which the batch system started the shell.

        Raises:
            VTorqueError: they are not those of such a job.
        """

    def start_directory(self, variables: t.Mapping[bytes, bytes], known: str) -> bytes:
        """Return where the job starts, empty: in the user's home; `known` is the server's `BatchJob.init_work_dir`."""

    def rename_directories(self, variables: t.Mapping[bytes, bytes], directory: bytes) -> dict[bytes, bytes]:
        """Return variables that name the start directory by a path of the node, each with the one that guests have."""

    def display_of(self, variables: t.Mapping[bytes, bytes]) -> str:
        """Return the display that the batch system forwards, as it is on the node; "": it forwards none."""

    def counts(
        self, *, processors: int, hosts: int, first: int, names: t.Sequence[str] = (), each: t.Sequence[int] = ()
    ) -> dict[bytes, bytes]:
        """Return the variables that count a job's processors and hosts, and that name the hosts.

        Args:
            processors: of all guests and bare hosts.
            hosts: how many of both there are.
            first: processors of the first guest.
            names: of the hosts, the first guest first.
            each: processors of each host, in that order; empty: the same everywhere.
        """

    def gpu_variables(self, variables: t.Mapping[bytes, bytes], gpus: int) -> dict[bytes, bytes]:
        """Return the variables that tell a job of the processors of graphics that its first guest has of its host.

        CUDA_VISIBLE_DEVICES is set besides.  The node file's name with `gpu` at its end names those of all guests.

        Args:
            variables: of the job in its guest.
            gpus: how many there are, at least one.
        """

    def launcher_variables(self, variables: t.Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Return what launchers of MPI need in a guest besides the job's environment; what a user has set is theirs."""

    def variables_of_root(self, job: BatchJob, policy: Policy) -> dict[str, str]:
        """Return the variables of a job as far as root knows them, for a script that a hook starts."""

    def is_submitted(self, name: str) -> bool:
        """Return whether a variable of root's is one of the submission, so that the user's own value counts over it."""

    def script_path(self, policy: Policy, name: str) -> str:
        """Return where a script of this name lies in a guest, as the job's own script does on its node."""


class GuestTable(t.Protocol):
    """What guests have of the batch system: names and places alone, which a node's side gets with its settings.

    Attributes:
        GUEST_PROGRAMS: templates of the programs that guests have in their PATH, by their names without `.sh`.
        GUEST_VARIABLES: what a script of the site's or of the user's finds in a guest before the job, by name;
            `{job_id}`, `{number}` and `{cluster}` (before and behind its first dot) and `{node_file}` stand in values.
        GUEST_HOME: the directory that guests have for the batch system, with the job's node file and scripts; "": that
            of the node (`torque_home`).
        GUEST_SCRIPTS: where the job's scripts lie, below it.
    """

    GUEST_PROGRAMS: tuple[str, ...]
    GUEST_VARIABLES: t.Mapping[str, str]
    GUEST_HOME: str
    GUEST_SCRIPTS: str


class HistoryAdapter(t.Protocol):
    """What a batch system wrote down of jobs that its server has forgotten."""

    def past_job(self, job_id: str, start: int, policy: Policy, *, days: int) -> PastJob:
        """Return a start of a job; see `registry.find_past_job`."""


class GuestPlaces(t.Protocol):
    """Which directories of the cluster the guests of a user have, and whether devices of their hosts."""

    @property
    def devices(self) -> bool:
        """Whether the request gives devices of hosts to guests."""

    def objection(self, directory: str) -> str:
        """Return why a job cannot start in a directory, which is absolute, or ""."""

    def lacks(self, path: str) -> bool:
        """Return whether a path is in the user's home, and the guest's is an empty one."""


class SubmitCall(t.Protocol):
    """A call of `vsub`, read as the batch system's command would read it."""

    @property
    def own(self) -> t.Mapping[str, str | None]:
        """The words of vsub's own (`--dry-run`), which the command must not get, and their values."""

    @property
    def question(self) -> bool:
        """Whether the command answers by itself, and submits nothing."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments without those of vsub itself."""

    def read_script(self, read_input: t.Callable[[], bytes]) -> FrontJob:
        """Read the script, where it stands there by reading standard input to its end, with the options in it.

        Raises:
            UserFault: there is none, or it cannot be one.
        """


class FrontJob(t.Protocol):
    """What a user asks for: the call and the script together, as the batch system's command takes them."""

    @property
    def layers(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """The texts of `-vm` with where each stands, for `request.parse`; a later layer wins over an earlier one."""

    @property
    def vm_lines(self) -> tuple[int, ...]:
        """Numbers of the script's lines that ask for a virtual machine."""

    @property
    def shell(self) -> tuple[str, str] | None:
        """The shell that the user names for the job, and where."""

    @property
    def interactive(self) -> bool:
        """Whether it is a job with a terminal."""

    @property
    def directory(self) -> tuple[str, str] | None:
        """The directory that the user names for the job to start in, and where."""

    @property
    def queue(self) -> str:
        """The queue that the user names, where only its nodes are for the job; "": the default one, or any."""

    @property
    def hosts(self) -> int | None:
        """How many hosts the job gets; None: the batch system decides."""

    @property
    def source(self) -> tuple[bytes, str]:
        """The script, and how messages call it."""

    @property
    def warning(self) -> str:
        """What the command does with the script without a word, and its user would not expect; or ""."""

    def objections(self, places: GuestPlaces) -> t.Iterator[KeyFault]:
        """Options that no job in virtual machines can have, or not yet."""

    def object_to_sizes(self, known: t.Sequence[NodeSize]) -> t.Iterator[KeyFault]:
        """Sizes that the user gave and no node has; nothing is known of nodes where there are none."""

    def as_it_is(self) -> CommandCall:
        """Return what the command gets of a job without virtual machines."""

    def submission(self, request: Request, need: Demand, policy: Policy) -> tuple[CommandCall, tuple[str, ...]]:
        """Return what the command gets of a job in virtual machines, and what was raised for it, a line each.

        Args:
            request: goes along with the job.
            need: of its machines, on each node.
            policy: the site's.

        Raises:
            UserFault: the request is longer than what takes it along.
        """


class FrontAdapter(t.Protocol):
    """What stands before the command that takes jobs (`COMMAND`): our name for it, and what `--help` begins with."""

    PROGRAM: str
    COMMAND: str
    USAGE: str

    def command_path(self, qsub: str) -> str:
        """Return the path of the command, beside what the site says for its qsub (`pbs_qsub_on_fe`)."""

    def read_call(self, argv: t.Sequence[str], environment: t.Mapping[str, str]) -> SubmitCall:
        """Read the arguments of a call, and the user's environment.

        Raises:
            UserFault: no command could be called so.
        """
