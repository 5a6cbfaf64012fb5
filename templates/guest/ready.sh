#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, as root, under any POSIX sh: make it the job's, prove it, and say so on the serial console:
# `vtorque-ready TOKEN ADDRESS`, or `vtorque-failed TOKEN WHAT`.  It touches nothing that the user could have written.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
# shellcheck source=/dev/null
. /etc/vtorque/guest.env
said=

say() { # words: one whole line on the serial console, kept clear of the kernel's own messages
    read -r level rest </proc/sys/kernel/printk
    echo 1 >/proc/sys/kernel/printk
    for tty in ttyS0 ttyAMA0 hvc0; do
        [ -c "/dev/$tty" ] && printf '\r\n%s\r\n' "$*" >"/dev/$tty" && break
    done 2>/dev/null
    echo "$level $rest" >/proc/sys/kernel/printk
}

fail() { # what
    said=failed
    say "vtorque-failed $VTORQUE_TOKEN $*"
    exit 1
}

trap '[ -n "$said" ] || say "vtorque-failed $VTORQUE_TOKEN the contextualisation ended early"' EXIT

greet() { # the node learns the guest's address from the question for its own
    ping -c 5 -W 1 "$VTORQUE_NODE_ADDRESS" </dev/null >/dev/null 2>&1 &
}

be_the_users() {
    # what the first time had to say, where there was one; a program of its own would only be begun once more
    # shellcheck source=/dev/null
    words=$({
        [ ! -e /run/vtorque-identity ] || cat /run/vtorque-identity
        . /usr/lib/vtorque/identity 2>&1
    } 2>/dev/null) || fail "identity: ${words##*
}"
    [ -z "$words" ] || say "vtorque: $words"
    case $(id "$VTORQUE_USER") in
        "uid=$VTORQUE_UID("*") gid=$VTORQUE_GID($VTORQUE_GROUP) "*) ;;
        "uid=$VTORQUE_UID("*) fail "identity: group $VTORQUE_GID has another name, or $VTORQUE_USER another group" ;;
        *) fail "identity: $VTORQUE_USER has not the user id $VTORQUE_UID" ;;
    esac
    # in no other groups than the job's, those he was given, and in all of them
    has=$(id -G "$VTORQUE_USER") && wanted=$VTORQUE_GID
    while IFS='	' read -r id _; do
        case $id in '' | *[!0-9]*) ;; *) wanted="$wanted $id" ;; esac
    done </etc/vtorque/groups
    { are_among "$has" "$wanted" && are_among "$wanted" "$has"; } ||
        fail "identity: $VTORQUE_USER is not in the groups that he was given"
}

are_among() { # words words
    for word in $1; do
        case " $2 " in *" $word "*) ;; *) return 1 ;; esac
    done
}

share() {
    if [ -n "$VTORQUE_MOUNTS" ]; then
        words=$(/usr/lib/vtorque/mounts 2>&1) || fail "mount: ${words##*
}"
    fi
    # its group is the owner's to choose
    [ "$(stat -c %u "$VTORQUE_HOME")" = "$VTORQUE_UID" ] || fail "identity: the home is another's"
}

share_memory() { # with guests of the job on the same host
    [ -e /usr/lib/vtorque/region ] || return 0
    words=$(/usr/lib/vtorque/region 2>&1) || fail "unclot: ${words##*
}"
}

have_verbs() { # over its network card, or over a device of its own
    [ -e /usr/lib/vtorque/rdma ] || return 0
    words=$(/usr/lib/vtorque/rdma 2>&1) || fail "vrdma: ${words##*
}"
}

await() { # unit...: of systemd, on its way at boot anyhow; other guests have the thing done before this program starts
    [ ! -d /run/systemd/system ] || systemctl start "$@"
}

open_the_door() {
    await systemd-user-sessions.service "$VTORQUE_SSHD" || fail "sshd: $VTORQUE_SSHD did not start"
    for file in /run/nologin /etc/nologin; do
        [ ! -e "$file" ] || fail "sshd: $file keeps users out"
    done
    # port 22, listening
    grep -qs ':0016 [0-9A-F]*:0000 0A ' /proc/net/tcp /proc/net/tcp6 || fail "sshd: nothing listens on port 22"
}

know_thyself() {
    route=$(ip route get "$VTORQUE_NODE_ADDRESS" 2>/dev/null) || fail "network: no route to $VTORQUE_NODE_ADDRESS"
    address=${route#* src }
    address=${address%%[!0-9a-fA-F.:]*}
    [ -n "$address" ] || fail "network: no address towards $VTORQUE_NODE_ADDRESS"
    names=$VTORQUE_FQDN
    [ "$VTORQUE_FQDN" = "$VTORQUE_NAME" ] || names="$VTORQUE_FQDN $VTORQUE_NAME"
    while read -r line; do
        [ "$line" != "$address $names" ] || return 0
    done </etc/hosts
    echo "$address $names" >>/etc/hosts
}

die_in_the_open() { # a kernel that panics would hang, and its job with it: not every guest has what tells the host (pvpanic)
    echo 1 >/proc/sys/kernel/panic # it restarts after 1 s, which libvirt makes the guest's end (on_reboot)
} 2>/dev/null

be_the_users
# the program of a warm image has waited for it before the guest was saved
[ "${VTORQUE_ONLINE-}" = yes ] || await network-online.target || fail "network: not online"
greet
share
share_memory
have_verbs
open_the_door
know_thyself
die_in_the_open
said=ready
say "vtorque-ready $VTORQUE_TOKEN $address"
exec /usr/lib/vtorque/agent
