#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What udhcpc runs when it has an address, in the variables that it sets.
# shellcheck disable=SC2154
PATH=/usr/bin
case $1 in
    deconfig) ip addr flush dev "$interface" ;;
    bound | renew)
        ip addr replace "$ip/${mask:-24}" broadcast + dev "$interface"
        [ -z "$router" ] || ip route replace default via "${router%% *}"
        : >/etc/resolv.conf
        [ -z "$domain" ] || echo "search $domain" >>/etc/resolv.conf
        for server in $dns; do echo "nameserver $server" >>/etc/resolv.conf; done
        # everybody on the network learns the address at once
        [ "$1" = renew ] || arping -q -U -c 1 -I "$interface" "$ip" &
        ;;
esac
