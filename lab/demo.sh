#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# demo.sh [--stay]: install what is needed, raise the lab, tell the story of a few jobs, end the lab (or let it stay).
# GUEST=tiny (default) or debian chooses the image; BATCH=torque (default) or slurm the batch system.
# STORY=survive: a job that outlives its nodes instead, on Torque and tiny guests alone.
# STORY=devices: a job with cores, cells, huge pages and cards of its node, by KVM in an emulated machine.
set -euo pipefail
cd "$(dirname "$0")/.."
export STEP_LOG=build/log/demo.log
mkdir -p build/log && : >"$STEP_LOG"
. lab/step.sh

. lab/debian.sh
require_debian # before anything is printed of what this machine will do

GUEST=${GUEST:-tiny}
LAB=(build/runtime/bin/python -m lab)
case $GUEST in
    tiny) image=tiny takes="about 2 minutes, half of it installing" ;;
    debian) image=debian12 takes="about 4 minutes, half of it making the Debian image" ;;
    *) echo "demo: GUEST=$GUEST: tiny or debian" >&2; exit 2 ;;
esac

# The demo ends what it has raised: with what is up already, work of others would go.
# refuse_if_up WHAT COMMAND...: refuse if that command of the lab finds it up.
refuse_if_up() {
    local what=$1
    shift
    if [ -x build/runtime/bin/python ] && "${LAB[@]}" "$@" </dev/null >/dev/null 2>&1; then
        echo "demo: the $what is up, and the demo would end it: end it first (\`make down\`)" >&2
        exit 2
    fi
}

BATCH=${BATCH:-torque}
case $BATCH in
    torque) packages=demo cluster="a Torque cluster" system="a small batch system
that acts like Torque" ;;
    slurm) packages=slurm cluster="a Slurm cluster" system="the distribution's Slurm" ;;
    *) echo "demo: BATCH=$BATCH: torque or slurm" >&2; exit 2 ;;
esac

STORY=${STORY:-jobs} nodes=fe,cn1,cn2
case $STORY in
    jobs) ;;
    survive)
        [ "$GUEST$BATCH${1:-}" = tinytorque ] || { echo "demo: STORY=survive has tiny guests on Torque alone" >&2; exit 2; }
        nodes=fe,cn1,cn2,cn3,cn4 takes="about 5 minutes, half of it waiting for nodes that are lost" ;;
    devices)
        refuse_if_up "machine of \`lab machine up\`" machine on -- true
        cat <<TEXT
This boots an emulated machine that has a real /dev/kvm, two NUMA cells and cards to hand on, raises the cluster in it,
and runs a job with two guests by KVM: each with a core of its own, huge pages of its cell, and a network card of the node.
It takes about 6 minutes, and 6 GiB of memory.
  installs   packages of the distribution (libvirt, qemu, numactl, pciutils, ...), Python packages into build/
  makes      build/ in this folder, and while it runs one qemu; its machine sees these files, and changes none
  log        $STEP_LOG

TEXT
        lab/prepare.sh devices
        step "the collection, built and installed" "${LAB[@]}" runtime
        step "the tiny guest" build/runtime/bin/python -m lab.guests tiny --pool build/pool
        trap '"${LAB[@]}" machine down >>"$STEP_LOG" 2>&1' EXIT
        step "the machine with KVM" "${LAB[@]}" machine up
        build/runtime/bin/python -m lab.stories.devices
        exit
        ;;
    *) echo "demo: STORY=$STORY: jobs, survive or devices" >&2; exit 2 ;;
esac

[ "${1:-}" = --stay ] || refuse_if_up "cluster of \`make lab\`" status

cat <<TEXT
vTorque runs the jobs of $cluster in virtual machines that exist for one job.
This shows it on this one machine: a front end and compute nodes made of namespaces, $system,
and real guests under libvirt. It takes $takes.
  installs   packages of the distribution (libvirt, qemu, dnsmasq, openssh, ...), Python packages into build/
  makes      build/ in this folder, and while it runs namespaces and bridges of its own; the network is not touched
  log        $STEP_LOG

TEXT

lab/prepare.sh "$packages"
step "the collection, built and installed" "${LAB[@]}" runtime
step "the tiny guest" build/runtime/bin/python -m lab.guests tiny --pool build/pool
if [ "$GUEST" = debian ]; then
    step "the Debian guest image (role guest_image)" lab/debian_image.sh
fi
[ "${1:-}" = --stay ] || trap '"${LAB[@]}" down >>"$STEP_LOG" 2>&1' EXIT
step "the lab: front end and nodes, $nodes" "${LAB[@]}" up --pool build/pool --batch "$BATCH" --nodes "$nodes"

if [ "${1:-}" = --stay ]; then
    step "sweeps on the nodes, as by a site's timer" "${LAB[@]}" sweeps
    build/runtime/bin/python -m lab.stories.demo --image "$image" --batch "$BATCH" --next
    exit 0
fi
if [ "$STORY" = survive ]; then
    build/runtime/bin/python -m lab.stories.survive
else
    build/runtime/bin/python -m lab.stories.demo --image "$image" --batch "$BATCH"
    [ "$GUEST" != tiny ] || build/runtime/bin/python tests/support.py record --batch "$BATCH" \
        "make demo$([ "$BATCH" = torque ] || echo " BATCH=$BATCH")"
fi
