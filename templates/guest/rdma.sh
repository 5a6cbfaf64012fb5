#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, as root, under any POSIX sh: the guest has an RDMA device whose port is active, and the job's user may
# use it.  Says on standard error why it cannot be.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
# shellcheck source=/dev/null
. /etc/vtorque/guest.env
CLASS=/sys/class/infiniband DEVICES=/dev/infiniband

die() { # why
    echo "$*" >&2
    exit 1
}

load() { # module...: one that is built in, or in the kernel already, needs nothing
    for module in "$@"; do modprobe -q "$module"; done
} >/dev/null 2>&1

find_first() { # the network card by which the guest knows its node
    route=$(ip route get "$VTORQUE_NODE_ADDRESS" 2>/dev/null) || die "no route to $VTORQUE_NODE_ADDRESS"
    card=${route#* dev }
    card=${card%% *}
    [ -d "/sys/class/net/$card" ] || die "no network card towards $VTORQUE_NODE_ADDRESS"
}

find_card() { # MAC: the card that has it, which is up
    tries=0
    until place=$(grep -lix -e "$1" /sys/class/net/*/address 2>/dev/null); do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || die "there is no network card of the address $1"
        sleep 0.1 2>/dev/null || sleep 1
    done
    card=${place%/address}
    card=${card##*/}
    ip link set dev "$card" up || die "its network card $card does not come up"
}

has_rxe() { # what makes a device of a card; without it the card alone is the guest's
    load rdma_rxe
    command -v rdma >/dev/null 2>&1 && [ -d /sys/module/rdma_rxe ]
}

add_rxe() { # rxe0, of a network card
    [ ! -e "$CLASS/rxe0" ] || return 0
    load rdma_rxe
    command -v rdma >/dev/null 2>&1 || die "the image lacks the program rdma (package iproute2)"
    words=$(rdma link add rxe0 type rxe netdev "$card" 2>&1) ||
        die "the kernel of the image makes no device of $card, as without its module rdma_rxe: ${words:-no reason}"
}

find_function() { # the device of a card's virtual function, which the kernel's own driver makes; and its network card is up
    tries=0
    until ls -d "$CLASS"/* >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 150 ] || die "the kernel of the image has no driver that makes an RDMA device of the card's function"
        sleep 0.1 2>/dev/null || sleep 1
    done
    for card in "$CLASS"/*/device/net/*; do
        [ ! -d "$card" ] || ip link set dev "${card##*/}" up || die "its network card ${card##*/} does not come up"
    done
}

await_port() { # a port that is active
    tries=0
    until grep -qs ACTIVE "$CLASS"/*/ports/*/state; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || die "no port of an RDMA device is active"
        sleep 0.1 2>/dev/null || sleep 1
    done
}

open_devices() { # the guest is the job's alone; distributions do the same by a rule of udev
    tries=0
    until [ -c "$DEVICES/rdma_cm" ] && ls "$DEVICES"/uverbs* >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 50 ] || die "the kernel of the image gives programs no verbs (modules ib_uverbs and rdma_ucm)"
        sleep 0.1 2>/dev/null || sleep 1
    done
    chmod 0666 "$DEVICES/rdma_cm" "$DEVICES"/uverbs* || die "the user cannot be given $DEVICES"
}

read -r kind card_mac </etc/vtorque/rdma || die "which kind of device it is to be is not known"
load ib_uverbs rdma_ucm
case $kind in
    rxe)
        find_first
        add_rxe
        ;;
    vhostuser)
        find_card "$card_mac"
        has_rxe || exit 0
        add_rxe
        ;;
    sriov) find_function ;;
    *) die "the kind $kind is not known" ;;
esac
await_port
open_devices
