#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What stands in for a guest of OSv, until it reads its seed: that and all else is osv_stand_in.c.
PATH=/usr/bin
export PATH
umask 022

mount -t devtmpfs devtmpfs /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
exec </dev/null >/dev/console 2>&1
echo "OSv stand-in (Linux)"

while read -r module; do
    insmod "/lib/modules/$module"
done </lib/modules/order

ip link set lo up
ip link set eth0 up
udhcpc -i eth0 -s /etc/udhcpc -t 40 -T 1 -n >/dev/null 2>&1 || exec echo "OSv stand-in: no address"
# as OSv's kernel prints it
ip -4 -o addr show dev eth0 | sed 's/^.* inet \([0-9.]*\).*$/eth0: \1/'

# OSv takes the first disk on which there is a /user-data, whatever its label says
mkdir -p /mnt/seed
tries=0
until mount -t iso9660 -o ro /dev/vdb /mnt/seed 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || exec echo "OSv stand-in: no seed"
    usleep 50000
done
cp /mnt/seed/user-data /tmp/user-data
umount /mnt/seed
# in an environment of its own, as OSv's is empty
exec env -i /usr/bin/osv-stand-in /tmp/user-data
