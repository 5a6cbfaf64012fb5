#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# debian_image.sh [POOL [stock|trixie]]: the Debian guest image by the collection's own playbook, as a site makes it, with
# Open MPI, sudo and xauth; with "stock" the image debian12-stock, which is Debian as its own cloud image has it; with "trixie"
# the image debian13, which has MPICH besides. The release of this machine does not matter.
# Done again, it does nothing as long as nothing that goes into the image has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
pool=$(realpath -m "${1:-build/pool}")
what=(-e '{"guest_image_extra_packages": ["openmpi-bin", "sudo", "xauth"]}')
case ${2:-fast} in
    fast) ;;
    stock) what=(-e guest_image_name=debian12-stock -e guest_image_profile=stock) ;;
    trixie) what=(-e '{"guest_image_name": "debian13", "guest_image_suite": "trixie", "guest_image_extra_packages": ["openmpi-bin", "mpich", "sudo", "xauth"]}') ;;
    *) echo "debian_image.sh: $2: stock, trixie, or nothing" >&2; exit 2 ;;
esac
export LC_ALL=C.UTF-8 ANSIBLE_LOCALHOST_WARNING=False ANSIBLE_INVENTORY_UNPARSED_WARNING=False
exec build/runtime/bin/python -m ansible playbook mikelangelo.vtorque.guest_image \
    -e guest_image_pool="$pool" -e ansible_python_interpreter=/usr/bin/python3 "${what[@]}"
