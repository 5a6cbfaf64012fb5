#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, as root, as early as cloud-init runs anything: systemd-networkd asks for an address by the machine-id, so
# that guests of an image that brings one would share their address.  network-config says otherwise, which netplan is the
# only one to know; cloud-init's own files for networkd are told here.
# The card has the name that the guest's kernel or udev gave it, and the file is named by that.
changed=
for file in /etc/systemd/network/10-cloud-init-*.network; do
    [ -f "$file" ] || continue
    [ ! -e "$file.d/vtorque.conf" ] || continue
    mkdir -p "$file.d"
    printf '[DHCPv4]\nClientIdentifier=mac\n' >"$file.d/vtorque.conf"
    card=${file##*/10-cloud-init-}
    changed="$changed ${card%.network}"
done
[ "$changed" ] || exit 0
# where the network comes after this stage, that was in time; networkctl needs D-Bus, which comes later still
systemctl --quiet is-active systemd-networkd.service || exit 0
# who is restarted keeps an address that he has
for card in $changed; do
    ip -4 address flush dev "$card"
done
systemctl restart systemd-networkd.service
