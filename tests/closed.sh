#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# closed.sh COMMAND...: run a command in this checkout, at a place that only root may enter, as root's home is where people
# clone to: what a test does as another user then finds nothing of the checkout that it has not loaded, or been shown.
# The place is the same in each run: pytest stores compiled tests with the path that its reports later read the source from.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" -eq 0 ] || exec "$@"
place=$PWD/build/closed
mkdir -p "$place/vtorque"
chmod 700 "$place"
# the mount ends with the command
# shellcheck disable=SC2016 # for the inner shell
exec unshare --mount --propagation private bash -euc '
    place=$1
    shift
    mount --rbind . "$place/vtorque"
    cd "$place/vtorque"
    exec "$@"' closed "$place" "$@"
