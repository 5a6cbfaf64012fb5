#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, as root, under any POSIX sh: mount what the site's guests share, the user's own home first.
# It may be run again: what it has mounted it leaves alone.  Says on standard error why something is not there.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
# shellcheck source=/dev/null
. /etc/vtorque/guest.env
mounted=/run/vtorque-mounted

die() { # why
    echo "$*" >&2
    exit 1
}

address_of() { # host: for a kernel that is asked without mount.nfs, which would find it out
    case $1 in
        \[*\]) host=${1#?} && echo "${host%?}" ;;
        *[!0-9.]*)
            found=$(getent ahostsv4 "$1" 2>/dev/null) && echo "${found%% *}" && return
            ping -c 1 -W 1 "$1" 2>/dev/null | sed -n '1s/^[^(]*(\([0-9.]*\)).*/\1/p'
            ;;
        *) echo "$1" ;;
    esac
}

seconds_up() { # a clock that nobody sets
    read -r up _ </proc/uptime && echo "${up%%.*}"
}

mount_once() { # kind source target options: in a time that is bounded, whatever the server does
    case $1 in
        nfs)
            if command -v mount.nfs >/dev/null 2>&1; then
                set -- nfs "$2" "$3" "$4"
            else
                set -- nfs4 "$2" "$3" "vers=4.2,$4,addr=$(address_of "${2%%:/*}")"
            fi
            ;;
        9p) set -- 9p "$2" "$3" "$4,trans=virtio,version=9p2000.L" ;;
    esac
    timeout -s KILL 10 mount -t "$1" -o "$4" "$2" "$3"
}

attach() { # kind source target options
    ! grep -qsxF "$3" "$mounted" || return 0
    mkdir -p "$3" || die "$3: no such directory could be made"
    until_s=$(($(seconds_up) + VTORQUE_MOUNT_SECONDS))
    until words=$(mount_once "$@" 2>&1); do
        [ "$(seconds_up)" -lt "$until_s" ] || die "$2 on $3 ($1), tried for $VTORQUE_MOUNT_SECONDS s: ${words:-no answer}"
        # a device that is plugged into a guest of a warm start comes within moments
        pause_s=1
        [ "$1" != virtiofs ] || pause_s=0.1
        sleep $pause_s 2>/dev/null || sleep 1
    done
    echo "$3" >>"$mounted"
}

[ -n "$VTORQUE_MOUNTS" ] || exit 0
printf '%s' "$VTORQUE_MOUNTS" | while IFS='	' read -r kind source target options; do
    attach "$kind" "$source" "$target" "$options" </dev/null
done || exit 1
# the name that clusters know it by
if grep -qsxF /workspace "$mounted" && ! grep -qsxF /scratch "$mounted" && [ ! -L /scratch ]; then
    if [ ! -e /scratch ] || rmdir /scratch 2>/dev/null; then ln -s /workspace /scratch; fi
fi
if grep -qsxF "$VTORQUE_HOME" "$mounted"; then
    owner=$(stat -c %u "$VTORQUE_HOME") || die "the home $VTORQUE_HOME is not readable"
    [ "$owner" = "$VTORQUE_UID" ] || die "the home $VTORQUE_HOME belongs to $owner, and not to $VTORQUE_UID: are ids mapped?"
fi
