#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# init of the initramfs: drivers, the root file system, and on.
PATH=/bin
b=/bin/busybox
$b mount -t devtmpfs devtmpfs /dev
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
while read -r module; do
    $b insmod "/modules/$module"
done </modules/order
# a disk may appear a moment after its driver
tries=0
until [ -b /dev/vda ] || [ "$tries" -ge 1000 ]; do
    tries=$((tries + 1))
    $b usleep 10000
done
if ! $b mount -t ext4 -o rw,noatime /dev/vda /new; then
    echo "vtorque: the root file system on /dev/vda cannot be mounted" >/dev/console
    exec $b poweroff -f
fi
for directory in dev proc sys; do
    $b mount --move "/$directory" "/new/$directory"
done
exec $b switch_root /new /sbin/init
