# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the verbs of `vmgr job` print below their options."""

LIST_EPILOG = """\
You see the jobs whose records you may read: your own, and root all.  A record is made when the job starts, on the
job's first node; where the site has a front end for records it is handed over there when the job ends.

examples:
  vmgr job list                 the jobs of late
  vmgr job list 72[]            every start of every member of array 72
  vmgr job list --last 0        all there are
  vmgr job list --query "[?state=='refused'].job_id"
"""
SHOW_EPILOG = """\
JOB is the number that was printed when it was submitted (4711), the whole id (4711.head), or a member of an array
(72[1], on Slurm 33_1).  A job that was started several times has a record for each start; the newest is shown.

examples:
  vmgr job show 4711            guests, what they used, where the time went, and what to ask for next time
  vmgr job show 4711 --start 1  the first of several starts
  vmgr job show 4711 --json     the record as it is
"""
LOG_EPILOG = """\
The log tells what vTorque did for the job, step by step.  What the job itself wrote is in its own files.
A line is: time, host, program[process], level, component, text.  With --json it is an object of these fields; lines
that other programs wrote have a message alone.

examples:
  vmgr job log 4711             of the newest start
  vmgr job log 4711 --level warning
                                only lines of this level or a graver one
  SHOW_LOG=true vsub job.sh     the same lines in the job's error file, while they happen
"""
CONSOLE_EPILOG = """\
What a guest wrote on its serial console: the kernel's words, and those of whatever started in it.  It is kept on the
node where the guest was, at most the last MiB of it.

examples:
  vmgr job console 4711                   of all guests of this host, one after the other
  vmgr job console 4711 --node cn2        of the guests of one node
  vmgr job console 4711 --guest vcn2-1    of one guest
"""
REPORT_EPILOG = """\
A picture of where the time went: a row for each guest, a colour for each phase.  A job that is much longer than its
beginning and end is drawn shorter, and says how long it was.

examples:
  vmgr job report 4711 --svg report.svg
  vmgr job report 4711 --html report.html
  vmgr job report 4711 --svg - | display     on standard output
"""
