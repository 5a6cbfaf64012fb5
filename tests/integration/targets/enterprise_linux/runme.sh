#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The roles in check mode, on a host that says it is of Enterprise Linux: what they choose and render for it.
set -eux
where=$(mktemp -d)
trap 'rm -rf "$where"' EXIT
export DNF_ASKED=$where/asked ANSIBLE_LOCALHOST_WARNING=false
# an empty /run: whether this machine has an sshd that could be told of its files must not matter
for release in 8.10 9.6 10.0; do
  unshare --mount sh -c 'mount -t tmpfs run /run && exec "$@"' sh ansible-playbook -i localhost, --connection local -e "ansible_python_interpreter=$(command -v python)" -e "where=$where" \
    -e "release='$release'" --check --diff "release_${release%%.*}.yml"
done
