# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every number that bounds a part of a job's start or end on its nodes, in seconds.

Torque kills a hook, and takes a prologue that it killed for a success: what a hook waits for must end before.  The
table in docs/developer/time-budget.md is made of this module, and tests/unit/plugins/module_utils/test_time_budget.py
adds it up.  What the site decides (`prologue_timeout`, `timeout`, ...) is in its policy; what the job's shell waits
for while the job runs is no part of this.
"""

from __future__ import annotations

# Torque

TORQUE_ALARM_S = 300
"""Bounds: a hook, where the MOM's configuration has no `$prologalarm`.
Waits: the MOM.
Why: Torque's PBS_PROLOG_TIME."""
ALARM_MARGIN_S = 10
"""Bounds: nothing; the MOM kills a hook so long before the alarm, when the alarm is longer.
Waits: the MOM.
Why: recorded on TORQUE 6.1.3."""
LONGEST_START_S = 600.0
"""Bounds: the age of a node file that is trusted for the time when the job arrived at the MOM.
Waits: nobody.
Why: an older one belongs to another start."""

# A hook

HOOK_RESERVE_S = 20.0
"""Bounds: what a hook does after its deadline: verdict, removal, messages.
Waits: the MOM.
Why: it is reserved of Torque's time; the sum of what follows a killed playbook fits in it."""
EPILOGUE_REMOVAL_S = 30.0
"""Bounds: the playbook that ends the guests of all nodes, in an epilogue whose vm_epilogue was late.
Waits: the epilogue.
Why: it is reserved of an epilogue's time; HOOK_RESERVE_S is for guests of this node alone."""
SYSLOG_S = 0.5
"""Bounds: the line for the administrator in the system log.
Waits: the hook.
Why: a datagram of this host; a daemon that hangs must not have the hook killed after its verdict."""
LOG_PROGRAM_S = 10.0
"""Bounds: the site's program that is called for a line of the log (`log_program`).
Waits: nobody.
Why: it passes a line on; it has a session of its own, and outlives the hook that called it."""
LOG_PROGRAM_GRACE_S = 2.0
"""Bounds: how long that program may still be at work after it was asked to end.
Waits: nobody.
Why: it is killed then."""
HOOK_WRITING_S = 1.0
"""Bounds: what a hook still writes after the last program that it ran.
Waits: the hook.
Why: a few small files."""
EARLY_NODE_END_S = 0.5
"""Bounds: the end of a `vtorque-node` that was started early and is not needed.
Waits: the hook.
Why: it notices the end of its standard input at once."""
HOOK_END_S = EARLY_NODE_END_S + SYSLOG_S + HOOK_WRITING_S
"""Bounds: what a hook does after the removal.
Waits: the MOM.
Why: the sum of the three before; a prologue that is killed there loses its verdict."""

SERVER_PATIENCE_S = 30.0
"""Bounds: how long a server whose answer is a fault is asked again; one that does not answer, half of the time left.
Waits: the prologue of a job with the marker.
Why: it may be busy, and without it a VM job can only end."""
SERVER_UNMARKED_S = 3.0
"""Bounds: the same for a job that most probably has no guests.
Waits: the prologue of a job without the marker.
Why: a fault of vTorque must not delay bare jobs."""
SERVER_LEAST_S = 2.0
"""Bounds: the same where no time is left.
Waits: the prologue.
Why: one call must have been tried before the server is blamed."""
SERVER_CALL_S = 10.0
"""Bounds: one call of the batch system before there is a verdict.
Waits: the prologue.
Why: a busy server answers later than an idle one, which takes 15 ms."""

PLAYBOOK_SLACK_S = 3.0
"""Bounds: a playbook after its deadline, until it is ended.
Waits: the hook.
Why: the nodes end their work at the deadline themselves, and their answers must still be recorded."""
PROGRAM_GRACE_S = 3.0
"""Bounds: a program of a hook between the request to end and the end by force.
Waits: the hook.
Why: Ansible ends its workers and their ssh meanwhile."""
PROGRAM_ORPHANS_S = 1.0
"""Bounds: the end of orphans of a program.
Waits: the hook.
Why: they are killed; the kernel needs milliseconds."""
PROGRAM_ENDING_S = PROGRAM_GRACE_S + PROGRAM_ORPHANS_S
"""Bounds: how long after its deadline a program may still be at work.
Waits: the hook.
Why: the sum of the two before."""
UNWANTED_ASK_S = 2.0
"""Bounds: how often the batch system is asked whether it has given a start up.
Waits: nobody.
Why: guests of a job that was cancelled while they boot are gone within ten seconds."""
POOL_PROBE_S = 1.0
"""Bounds: the probe whether the pool of images answers, after a delay.
Waits: the hook, and a worker.
Why: the wait is over already."""
LIVE_LOG_END_S = 1.0
"""Bounds: the last lines of a log that is printed in the job's error file.
Waits: the prologue.
Why: that file may be a pipe of its owner's, who need not read it."""

VERDICT_S = 15.0
"""Bounds: the calls of the batch system for a verdict, when there is time.
Waits: the prologue.
Why: eight calls (job; nodes; offline: nodes, order, nodes; hold: order, job; comment) of 15 ms each if it is idle."""
VERDICT_CALL_S = 2.0
"""Bounds: one of these calls.
Waits: the prologue.
Why: one that hangs must leave time for the others."""
HOOK_REMOVAL_S = 12.0
"""Bounds: the removal of this node's guests without Ansible, when there is time.
Waits: the hook.
Why: a guest that is ended by force takes a second."""
HOOK_REMOVAL_LEAST_S = 2.0
"""Bounds: what a verdict leaves for this removal.
Waits: the hook.
Why: the node needs a second to find and end its guests, and one for its answer; the epilogue does the rest."""
REMOVAL_ANSWER_S = 1.0
"""Bounds: the transport of the node's answer: the node must be done so much sooner.
Waits: the hook.
Why: the program ends by itself, and its answer is read."""
SISTER_REMOVAL_S = 60.0
"""Bounds: the removal on a sister.
Waits: no process, as it runs in its own session; where its node waits for its hook, the hook.
Why: the sister's MOM is blocked while its hook runs."""

USER_SCRIPT_LEAST_S = 1.0
"""Bounds: the least time for vm_prologue or vm_epilogue.
Waits: the hook.
Why: a script with less would be ended and blamed as slow."""
USER_FILE_READ_S = 4.0
"""Bounds: the reading of a file of the user's, as the user.
Waits: root's plan.
Why: the home may be on a file server that is down."""
EARLY_SSH_END_S = 1.0
"""Bounds: the end of the ssh that was begun for the job's shell, once it was killed.
Waits: the hook.
Why: only a process that hangs in the kernel takes longer."""
LEFTOVER_PROCESSES_END_S = 6.0
"""Bounds: the end of leftover processes of a job on the node itself.
Waits: the epilogue.
Why: they are asked to end, then killed, in a few rounds."""
LEFTOVER_PROCESSES_GRACE_S = 1.0
"""Bounds: those processes between the request to end and the end by force, within this.
Waits: the epilogue.
Why: the batch system has signalled the job before."""
LEFTOVER_PROCESSES_ROUND_S = 0.5
"""Bounds: the end of those that were killed, before the search for what they started meanwhile, within this.
Waits: the epilogue.
Why: the kernel needs milliseconds."""
EXCLUSIVE_ASK_S = 10.0
"""Bounds: the query whether a job has a node alone.
Waits: the epilogue, and `vtorque-node`.
Why: as one call of the batch system."""

# What the hook begins before Ansible

EARLY_PLAN_S = 5.0
"""Bounds: the plan that is made before the playbook.
Waits: the prologue.
Why: it takes a tenth of a second; the pool may be on a file server that hangs."""
EARLY_ANSWER_MARGIN_S = 4.0
"""Bounds: what Ansible needs of the time after the answer of a node that was asked early.
Waits: the playbook.
Why: it loads meanwhile, and writes down the answer."""

# Ansible and the nodes

NODE_ANSWER_MARGIN_S = 2.0
"""Bounds: the transport of a node's answer: the node must be done so much sooner.
Waits: `job_guests`.
Why: it must cross the connection and be recorded."""
OTHER_NODES_S = 10.0
"""Bounds: the other nodes once one has failed.
Waits: `job_guests`.
Why: if all fail alike, the image is at fault and not a node."""
NODE_CALL_END_S = 2.0
"""Bounds: the end of a program that speaks with a node and is not needed any more.
Waits: `job_guests`.
Why: ssh ends when its connection does."""

# A node that makes guests

WORKER_ANSWER_S = 2.0
"""Bounds: the worker after its deadline, until it is given up.
Waits: `vtorque-node`.
Why: the worker ends its work at the deadline by itself."""
CANCEL_UNDO_S = 10.0
"""Bounds: the removal of what was cancelled.
Waits: `vtorque-node`; its caller has gone.
Why: guests are ended by force, their disks removed."""
BUILDER_LATE_S = 5.0
"""Bounds: nothing; so long before its deadline a builder that has not ended is ended from outside.
Waits: the worker.
Why: it must be undone by the deadline."""
BUILDER_GRACE_S = 2.0
"""Bounds: the builder between the request to end and the end by force.
Waits: the worker.
Why: a call of libvirt's returns meanwhile, or does not."""
GUESTS_RESERVE_S = 8.0
"""Bounds: nothing; so long before the deadline guests that are not ready have failed.
Waits: the builder.
Why: what was begun is removed, and what was seen is reported, before the worker ends it."""
LOCK_SHARE_S = 5.0
"""Bounds: the wait for the lock of a start, shared, once its guests are ready.
Waits: the worker.
Why: a reader of the guests owns it for milliseconds."""
EARLIER_START_S = 30.0
"""Bounds: the removal of what is left of an earlier start of the job, within the deadline.
Waits: `vtorque-node`.
Why: the guests of the new start need the rest."""
LIBVIRT_CONNECT_S = 10.0
"""Bounds: a connection to libvirt, within the deadline of the caller.
Waits: the builder, and a removal.
Why: a daemon that is started on demand takes a second."""
LIBVIRT_RETURN_S = 10.0
"""Bounds: the wait for a libvirt that was lost while guests were starting, within the deadline of the start.
Waits: the builder.
Why: a daemon is restarted within seconds, and its guests live on; one that stays away is the node's fault."""
DISK_SERVER_START_S = 20.0
"""Bounds: the user's way to the file of the job's disk, within the deadline.
Waits: the builder.
Why: a home server that is silent must not use up the time of the start."""
VIRTIOFSD_START_S = 20.0
"""Bounds: the user's way to a shared directory, within the deadline.
Waits: the builder.
Why: a home server that is silent must not use up the time of the start."""
DEVICE_ATTACH_S = 20.0
"""Bounds: the change of drivers of all host devices of a start, within the deadline.
Waits: the builder.
Why: a driver may end its work first; one that hangs must not use up the time of the start."""
DEVICE_RETURN_S = 10.0
"""Bounds: reset and change of drivers of all host devices of a start, when its guests have ended.
Waits: whoever removes the start; one without host devices does not.
Why: a device is reset in a second or two; one that is not goes into quarantine."""
ADDRESSES_ANSWER_S = 5.0
"""Bounds: the answer of `ip` about a bridge's addresses and neighbours, within the deadline of the caller.
Waits: the builder, and a removal.
Why: the kernel answers at once; this is for one that does not."""
PACKET_FILTER_S = 10.0
"""Bounds: one call of `nft`.
Waits: the builder, and a removal.
Why: the kernel answers at once, but for another program that changes its own rules meanwhile."""
STATIC_MAP_S = 10.0
"""Bounds: the site's script that prints the address of a guest, within the deadline.
Waits: the builder.
Why: it may ask a database."""
NUMAD_S = 3.0
"""Bounds: numad's advice on NUMA cells, within the deadline.
Waits: the builder.
Why: it prints what it has read, and ends; without it cells are chosen all the same."""
SERVER_NAMES_S = 5.0
"""Bounds: the names of the servers that a confined guest may reach, within the deadline.
Waits: the builder.
Why: a resolver tries several servers."""
BARE_KEYS_S = 10.0
"""Bounds: the wait for the lock on the files that sshd of a bare host reads.
Waits: `vtorque-node`.
Why: it is locked for milliseconds."""
CONNECTION_S = 10
"""Bounds: the opening of an ssh connection to a node, where Ansible does not set it.
Waits: the playbook.
Why: `templates/ansible.cfg.j2` sets it, from the site's `ssh_timeout`; this is Ansible's own default."""
SSHD_SETTINGS_S = 10.0
"""Bounds: `sshd -T`, which prints the settings of a bare host, within the deadline.
Waits: `vtorque-node`.
Why: it queries the site's directory of users."""
SSHD_GREETING_S = 5.0
"""Bounds: the greeting of a bare host's sshd, within the deadline.
Waits: `vtorque-node`.
Why: a busy host forks late."""

# A node that informs its guests of their job

JOB_MAP_S = 300.0
"""Bounds: the wait for the JobMap of the whole job, after the deadline of the guests themselves.
Waits: `vtorque-node`.
Why: other nodes of the job may be asked after this one."""
JOIN_S = 60.0
"""Bounds: the JobMap on all nodes, where no hook sets a deadline.
Waits: `job_guests` in a playbook that runs by hand.
Why: a guest takes a second, and no alarm is near."""
UPDATES_RESERVE_S = 20
"""Bounds: nothing; so much of a prologue is reserved after updates.
Waits: `vtorque-node`.
Why: what comes after them needs it: the user's additions, the login, the user's own prologue."""
UPDATES_ANSWER_S = 5
"""Bounds: the report of a guest on its updates.
Waits: `vtorque-node`.
Why: it ends late steps itself."""
UPDATES_LEAST_S = 5
"""Bounds: the least time for updates.
Waits: `vtorque-node`.
Why: with less they are not begun."""
ADDITIONS_RESERVE_S = 5
"""Bounds: the report of a guest on the user's additions.
Waits: `vtorque-node`.
Why: it ends late steps itself."""

# A node that removes guests

LEFTOVERS_CHECK_S = 2.0
"""Bounds: the connection to libvirt that tells what is left.
Waits: `vtorque-node`.
Why: what failed may be libvirt's silence, which has used up the time."""
LOCK_HOLDER_END_S = 2.0
"""Bounds: the end of a process that was killed because it held the lock of a start for too long.
Waits: a removal.
Why: only a process that hangs in the kernel takes longer."""
KILLED_END_S = 10.0
"""Bounds: the end of a process of a start, such as qemu, that was killed.
Waits: a removal.
Why: qemu gives back its memory first."""
SITE_EPILOGUE_S = 10.0
"""Bounds: the site's epilogues in the guests.
Waits: the worker.
Why: nothing of it may keep the guests."""
DISK_UNMOUNT_S = 10.0
"""Bounds: the giving back of the user's disk by the guest.
Waits: the worker.
Why: what the guest has not written yet goes to the user's file."""
SESSION_END_S = 2.0
"""Bounds: an ssh session on a bare host between the request to end and the end by force.
Waits: a removal.
Why: programs write down what they have."""
SESSION_KILLED_S = 5.0
"""Bounds: the end of such a session that was killed.
Waits: a removal.
Why: only a process that hangs in the kernel takes longer."""

# While the job runs

LOST_GUEST_CONNECTION_S = 20
"""Bounds: the opening of an ssh connection to the mother superior of a job that has lost a guest.
Waits: the worker.
Why: it tries again until she has heard of it; a busy host accepts late."""

SUSPENSION_PATIENCE_S = 20.0
"""Bounds: how long the batch server is asked whether it has suspended a job whose shell was stopped or goes on.
Waits: nobody.
Why: Torque's server says so when the MOM has answered, which takes her 5 s and more."""
SUSPENSION_CONNECTION_S = 10
"""Bounds: the opening of an ssh connection to another node of a job that was suspended or resumed.
Waits: nobody.
Why: it is tried again."""
SUSPENSION_ANSWER_S = 30.0
"""Bounds: the answer of another node, which asks the batch server itself.
Waits: nobody.
Why: it is tried again."""
SAVING_LOOK_S = 0.3
"""Bounds: the time between two looks of a start whether guests of a suspended job have left.
Waits: nobody.
Why: a look reads a few small files; the start of a guest takes longer."""
SAVING_WAIT_S = 60.0
"""Bounds: the wait of a start for guests of a suspended job that leave this node's memory.
Waits: the start of the job, and the next step of the guests.
Why: a disk writes several GiB in that time; a start that waited in vain fails as it would have."""
ADDRESS_PROBE_S = 0.5
"""Bounds: the answers of a host that has got the address of a guest which is to return from the disk, to two requests.
Waits: the resume of the job.
Why: a host of the guests' own network answers ARP in milliseconds; the second request is for one that was lost."""
SAVING_END_S = 15.0
"""Bounds: the end of the saving or the return of guests whose start is over.
Waits: the worker, and who asked for the removal.
Why: it ends with its domain; a libvirt that is silent so long has lost us."""
RETURN_LOCK_S = 10.0
"""Bounds: the wait of a guest that is saved, or comes back, for the lock of a node's cores or disk.
Waits: the worker.
Why: another start takes cores in milliseconds; later it is tried again."""
FIRST_ORDER_S = 10.0
"""Bounds: the answer of a guest to its first order after a warm start.
Waits: the start of the job, whose guest boots cold then.
Why: it takes a second under emulation on a busy machine."""
WARM_READY_S = 40.0
"""Bounds: the wait until guests of a warm start are ready.
Waits: the start of the job, whose guests boot cold then.
Why: they take seconds; at most a third of the time that is left is spent, so that a cold boot has its own."""
OVERLAY_S = 30.0
"""Bounds: the overlay of a template's guest, and the wait for who counts the space of the disk.
Waits: who makes a template.
Why: both take milliseconds where the disk and the pool answer."""


def least_alarm_s(prologue_timeout: int, vm_epilogue_timeout: int) -> int:
    """Return the `$prologalarm` in seconds that a policy needs.

    Args:
        prologue_timeout: of the policy, in seconds.
        vm_epilogue_timeout: of the policy, in seconds.
    """
    longest_s = max(prologue_timeout, vm_epilogue_timeout + int(EPILOGUE_REMOVAL_S))
    return longest_s + int(HOOK_RESERVE_S) + ALARM_MARGIN_S
