#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# run.sh: say what is measured and how long it takes, make what is missing, measure.
# GUEST=tiny (default) or debian chooses the image; PART=job, guests, warm, survive, nodes, cache, boot, slurm or page a part of it (default all;
# BATCH=slurm: slurm). PART=devices is of no other.
set -euo pipefail
cd "$(dirname "$0")/../.."
export STEP_LOG=build/log/bench.log
mkdir -p build/log && : >"$STEP_LOG"
. lab/step.sh

GUEST=${GUEST:-tiny}
PART=${PART:-all}
[ "${BATCH:-}:$PART" != slurm:all ] || PART=slurm
case $GUEST:$PART in
    tiny:all) takes="about 25 minutes" ;;
    *:cache | *:page) takes="half a minute" ;;
    tiny:slurm) takes="about 6 minutes" ;;
    tiny:devices) takes="about 30 minutes" ;;
    *:boot) takes="about 8 minutes" ;;
    tiny:nodes | debian:nodes) takes="about 5 minutes" ;;
    tiny:*) takes="about 3 minutes" ;;
    debian:all) takes="about 42 minutes" ;;
    debian:*) takes="about 8 minutes" ;;
    *) echo "bench: GUEST=$GUEST: tiny or debian" >&2; exit 2 ;;
esac
case $PART in
    all | job | guests | warm | survive | nodes | cache | boot | slurm | page | devices) ;;
    *) echo "bench: PART=$PART: job, guests, warm, survive, nodes, cache, boot, slurm, page, devices or all" >&2; exit 2 ;;
esac

cat <<TEXT
This measures what a job in a virtual machine costs, against what it adds to, in one run on small clusters of its
own on this machine. It takes $takes, and longer the first time, when it makes what it needs.
  job        in turn the guest booted by libvirt alone, and a job in such a guest; vsub, and qsub; besides them the
             hooks of a job without a guest, the epilogue, the memory of a job's programs
  guests     in turn one, two and four guests booted by libvirt alone, and a job in as many on one node
  warm       in turn a job whose guest boots and one whose guest starts from a template; four of these at once
  survive    in turn virsh save, restore and migrate of a bare guest, and a job that is suspended to disk, saved and moved
  slurm      the same as job on the distribution's Slurm and on what acts like Torque in turn: a job beside a bare boot,
             vsbatch and sbatch, Prolog and Epilog of a job without a guest, the Epilog; jobs over 2, 4 and 8 nodes
  cache      disks of guests on a copy of their image and on the pool's own file, in turn
  boot       in turn a Debian guest of the fast profile and one as Debian makes it, until ready; where the seconds go
  page       the page of a site with 10,000 records
  nodes      jobs over up to 32 nodes, whose guests boot nothing
  devices    (by its name alone) in a machine of the lab with KVM: in one guest disks and cards of each setting in turn;
             then a job without switches, and one with each (pinning, cells, huge pages, I/O cores), of two guests
  makes      build/bench.json (figures), build/bench*timeline.svg (the phases of one job); log $STEP_LOG
  ends       with the clusters gone, also when it is interrupted

TEXT

case $PART in
    all | slurm) lab/prepare.sh slurm ;;
    devices) lab/prepare.sh test ;;
    *) lab/prepare.sh demo ;;
esac
step "the collection, built and installed" build/runtime/bin/python -m lab runtime
case $GUEST:$PART in
    debian:* | *:all | *:boot) step "the Debian guest image (role guest_image)" lab/debian_image.sh ;;
esac
case $PART in
    all | boot) step "Debian as it is by itself (its stock profile)" lab/debian_image.sh build/pool stock ;;
esac
if [ "$GUEST" = tiny ] && [ "$PART" != boot ] && [ "$PART" != page ] || [ "$PART" = devices ]; then
    step "the tiny guest" build/runtime/bin/python -m lab.guests tiny --pool build/pool
fi
exec build/runtime/bin/python -m tests.bench --guest "$GUEST" --part "$PART"
