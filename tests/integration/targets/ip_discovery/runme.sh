#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# An address that comes to light in the neighbour table or in a lease, on a network of the test's own.
set -euxo pipefail
if [ "${1:-}" != inside ]; then
  exec unshare --net --mount "$0" inside
fi
mount -t sysfs sysfs /sys # shows the interfaces of the network in which it was mounted
where=$(mktemp -d)
trap 'rm -rf "$where"' EXIT
ip link set lo up
ip link add brtest type bridge
ip addr add 192.0.2.1/24 dev brtest
ip link set brtest up
echo "0 52:54:00:00:01:04 192.0.2.18 guest *" >"$where/leases"

find_it() {
  ansible localhost --connection local -e "ansible_python_interpreter=$(command -v python)" \
    -m mikelangelo.vtorque.ip_discovery -a "$1" "${@:2}" | tee "$where/said"
}

ip neigh add 192.0.2.17 lladdr 52:54:00:00:01:03 dev brtest nud permanent
find_it "mac=52-54-00-00-01-03 bridge=brtest timeout=30"
grep -q '"address": "192.0.2.17"' "$where/said"
grep -q '"source": "neighbour"' "$where/said"
grep -q '"mac": "52:54:00:00:01:03"' "$where/said"

find_it "mac=52:54:00:00:01:04 bridge=brtest leases=$where/leases timeout=30" --check
grep -q '"address": "192.0.2.18"' "$where/said"
grep -q '"source": "lease"' "$where/said"

# one that comes to light while it is waited for
ip neigh del 192.0.2.17 dev brtest
find_it "mac=52:54:00:00:01:05 bridge=brtest timeout=60" &
waiting=$!
ip neigh add 192.0.2.19 lladdr 52:54:00:00:01:05 dev brtest nud permanent
wait "$waiting"

# what was not found, and what is wrong, is said
if find_it "mac=52:54:00:00:01:06 bridge=brtest timeout=0.2"; then exit 1; fi
grep -q "no address of 52:54:00:00:01:06 came to light" "$where/said"
if find_it "mac=52:54:00:00:01:06 bridge=nowhere"; then exit 1; fi
grep -q "bridge nowhere: is missing" "$where/said"
if find_it "mac=thing"; then exit 1; fi
grep -q "is none" "$where/said"
