#!/bin/busybox sh
# shellcheck shell=dash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The first program of the machine: the root of the machine below is read over 9p and written over in memory.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev

# what ends here is powered off (panic=-1), and `up` shows these lines
fail() {
    echo "lab machine: $*" >/dev/console
    exit 1
}

while read -r module; do
    insmod "/modules/$module" || fail "the kernel does not take $module"
done </modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,msize=512000,ro below /below || fail "no file system of the machine below"
mount -t tmpfs -o size=90%,mode=755 over /over
mkdir /over/upper /over/work /over/root
mount -t overlay -o lowerdir=/below,upperdir=/over/upper,workdir=/over/work root /over/root || fail "no root"
for place in proc sys dev; do
    mount --move "/$place" "/over/root/$place"
done
state=$(sed -n 's/.* lab.state=\([^ ]*\).*/\1/p' /over/root/proc/cmdline)
# by a file system of memory: what follows covers /run, where the state lies
mount -t tmpfs -o mode=755 run /over/root/run
mkdir -p /over/root/run/lab-machine
cp -a "/below$state/machine/." /over/root/run/lab-machine/ || fail "no files of the lab's in $state"
exec switch_root /over/root /bin/bash /run/lab-machine/init.sh
