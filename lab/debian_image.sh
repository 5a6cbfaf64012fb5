#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# debian_image.sh [POOL]: put the Debian guest into the lab's pool (build/pool), as a site would: by the installed
# collection's playbook.  Does nothing when it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
pool=$(realpath -m "${1:-build/pool}")
export LC_ALL=C.UTF-8
exec build/runtime/bin/python -m ansible playbook --inventory localhost, --connection local \
    --extra-vars "guest_image_pool=$pool" --extra-vars '{"ansible_python_interpreter": "{{ ansible_playbook_python }}"}' \
    mikelangelo.vtorque.guest_image
