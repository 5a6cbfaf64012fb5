#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The example playbook, outside any batch system: check mode, run, run again, remove, remove again.
set -eux
where=$(mktemp -d)
chmod 0711 "$where"
python=$(command -v python)
server=../setup_libvirt_test/files/libvirt_test_server.py
trap '"$python" "$server" stop "$where"; rm -rf "$where"' EXIT
uri=$("$python" "$server" start "$where")
mkdir -m 0755 "$where/pool"
qemu-img create -q -f qcow2 "$where/pool/tiny.qcow2" 8M
chmod 0444 "$where/pool/tiny.qcow2"

# play WHAT IT SHALL HAVE CHANGED, ARGUMENT...
play() {
  local wanted=$1
  shift
  ANSIBLE_LOCALHOST_WARNING=false ansible-playbook mikelangelo.vtorque.example_guest --connection local \
    -e "ansible_python_interpreter=$python" -e "example_uri=$uri" -e example_hypervisor=test -e example_arch=i686 \
    -e example_image=tiny -e "example_pool=$where/pool" -e "example_dir=$where/guests" -e example_wait_s=0 \
    -e example_bridge=br0 "$@" >"$where/said" || { cat "$where/said"; return 1; }
  cat "$where/said"
  grep -qE "changed=$wanted +unreachable=0 +failed=0" "$where/said"
}
domains() { virsh --connect "$uri" list --name | grep -c '^example$' || true; }

play 3 --check --diff -e example_dir="$where" # its directory is there already
[ "$(domains)" = 0 ] && [ ! -e "$where/example-seed.iso" ]
play 4
[ "$(domains)" = 1 ]
isoinfo -J -i "$where/guests/example-seed.iso" -x /meta-data | grep '"local-hostname": "example"'
play 0
play 0 --check
play 2 -e example_state=absent
[ "$(domains)" = 0 ] && [ -z "$(ls "$where/guests")" ]
play 0 -e example_state=absent
