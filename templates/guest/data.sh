#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, as root, under any POSIX sh: the user's own disk on /data (`data mount`), and off it (`data unmount`).
# The last line of output says what went wrong.  Status 90: the user can mend it.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
# shellcheck source=/dev/null
. /etc/vtorque/guest.env
PLACE=/data
USERS=90

fail() { # status words
    printf '\n%s\n' "$2"
    exit "$1"
}

find_device() {
    for file in /sys/block/vd*/serial; do
        serial=
        read -r serial <"$file" 2>/dev/null
        [ "$serial" = vtorque-data ] || continue
        device=${file%/serial}
        device=/dev/${device##*/}
        return
    done
    fail 1 "the disk has not come to the guest"
}

is_new() { # every file system that anybody uses begins within it
    [ "$(head -c 1048576 "$device" | tr -d '\000' | head -c 1 | wc -c)" -eq 0 ]
}

make_file_system() {
    for program in mkfs.ext4 mke2fs; do
        command -v $program >/dev/null || continue
        words=$($program -q -F -m 0 -L vtorque-data "$device" 2>&1 || $program -F -m 0 -L vtorque-data "$device" 2>&1) ||
            fail $USERS "a file system cannot be made on it: $words"
        return
    done
    fail $USERS "it is new, and this image has no mkfs.ext4"
}

is_mounted() { # the disk, and nothing else
    grep -q "^$device $PLACE " /proc/mounts
}

let_go() { # of what the user has begun and not ended
    for process in /proc/[0-9]*; do
        [ "$(stat -c %u "$process" 2>/dev/null)" != "$VTORQUE_UID" ] || kill -KILL "${process#/proc/}"
    done 2>/dev/null
}

find_device
case $1 in
    mount)
        is_mounted && exit 0
        new=
        is_new && new=yes && make_file_system
        mkdir -p $PLACE
        words=$(mount -o nosuid,nodev "$device" $PLACE 2>&1) ||
            fail $USERS "what is on it cannot be mounted: ${words##*
}"
        [ -z "$new" ] || { chown "$VTORQUE_UID:$VTORQUE_GID" $PLACE && chmod 0700 $PLACE; }
        ;;
    unmount)
        is_mounted || exit 0
        cd /
        umount $PLACE 2>/dev/null && exit 0
        let_go
        for _try in 1 2 3 4 5; do
            umount $PLACE 2>/dev/null && exit 0
            sleep 1
        done
        sync
        mount -o remount,ro $PLACE || fail 1 "is still in use; what was written is on it"
        ;;
esac
