#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, as root, under any POSIX sh: do what the node says over the channel that its hypervisor gives it.
#
#   we        vtorque-agent TOKEN          when somebody begins to listen
#   the node  hello WORD
#   we        vtorque-agent TOKEN WORD
#   the node  SECONDS BYTES, then that many bytes of a script for sh
#   we        STATUS OUTPUT                its exit status, and what it wrote last, in base64
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
# shellcheck source=/dev/null
. /etc/vtorque/guest.env
KEPT=8192
order=/run/vtorque-order

port=
for name in /sys/class/virtio-ports/*/name; do
    called=
    read -r called <"$name" 2>/dev/null
    [ "$called" = org.vtorque.0 ] || continue
    port=${name%/name}
    port=/dev/${port##*/}
done
if [ -z "$port" ]; then
    echo "no channel to the node: is virtio_console in this image's kernel?" >&2
    exit 1
fi
umask 077

answer() { # status: with what the order wrote
    printf '%s %s\n' "$1" "$(tail -c "$KEPT" "$order.out" | base64 | tr -d '\n')" >&3
}

obey() { # until the node listens no more
    while read -r seconds bytes <&3; do
        # a node that hangs up and is there again at once is one to us
        if [ "$seconds" = hello ]; then
            printf 'vtorque-agent %s %s\n' "$VTORQUE_TOKEN" "$bytes" >&3
            continue
        fi
        dd bs=65536 iflag=fullblock,count_bytes count="$bytes" <&3 >"$order" 2>/dev/null
        timeout "$seconds" sh "$order" </dev/null >"$order.out" 2>&1 3>&-
        answer $?
        rm -f "$order" "$order.out"
    done
}

exec 3<>"$port" || exit 1
while :; do
    # a write waits until the node listens (a read does not: the driver tells an end of file instead); a child of the
    # program before us that ends interrupts it
    if printf 'vtorque-agent %s\n' "$VTORQUE_TOKEN" >&3; then obey; else sleep 1; fi
done 2>/dev/null
