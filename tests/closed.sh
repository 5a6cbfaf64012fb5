#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# closed.sh COMMAND...: run a command in this checkout, at a place that only root may enter, as root's home is where people
# clone to: what a test does as another user then finds nothing of the checkout that it has not loaded, or been shown.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || exec "$@"
place=$(mktemp -d /tmp/closed.XXXXXX)
trap 'rmdir "$place"' EXIT
# the mounts end with the command
# shellcheck disable=SC2016 # for the inner shell
unshare --mount --propagation private bash -euc '
    place=$1
    shift
    mount -t tmpfs -o mode=700 closed "$place"
    mkdir "$place/vtorque"
    mount --rbind . "$place/vtorque"
    cd "$place/vtorque"
    exec "$@"' closed "$place" "$@"
