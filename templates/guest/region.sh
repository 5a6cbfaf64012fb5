#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, as root, under any POSIX sh: the memory that it shares with others of its job becomes the user's, as
# /dev/vtorque-shm.  Says on standard error why it cannot be.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
# shellcheck source=/dev/null
. /etc/vtorque/guest.env
DEVICES=/sys/bus/pci/devices LINK=/dev/vtorque-shm LOCKDOWN=/sys/kernel/security/lockdown

die() { # why
    echo "$*" >&2
    exit 1
}

id_of() { # device
    read -r vendor <"$1/vendor" && read -r number <"$1/device" && echo "$vendor:$number"
} 2>/dev/null

for device in "$DEVICES"/*; do
    [ "$(id_of "$device")" = 0x1af4:0x1110 ] || continue # ivshmem (docs/specs/ivshmem-spec.txt of qemu)
    case $(cat "$LOCKDOWN" 2>/dev/null) in
        '' | *'[none]'*) ;;
        *) die "the kernel is locked down, as after a secure boot, and maps no memory of devices" ;;
    esac
    memory=$(readlink -f "$device")/resource2
    [ -f "$memory" ] || die "this kernel gives no program the memory of devices"
    # firmware may leave it off, as nothing boots from it
    echo 1 >"$device/enable" || die "the device cannot be switched on"
    { chown "$VTORQUE_UID:$VTORQUE_GID" "$memory" && chmod 0600 "$memory" && ln -sfn "$memory" "$LINK"; } ||
        die "it cannot be given to the user"
    exit 0
done
die "the device has not come to the guest"
