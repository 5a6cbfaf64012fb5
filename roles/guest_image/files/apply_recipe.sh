#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# apply_recipe.sh ROOT PLACE: put the files of the recipe in PLACE into the system in ROOT, and run its commands there.
# recipe.tar holds the files, recipe.commands the commands, with a zero byte behind each.  As root.  What fails is told
# in PLACE/recipe.failed.
set -euo pipefail
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
root=$1
place=$2
last_lines=20

# nothing that a command starts outlives it, and neither the builder's mounts nor its name are what it changes
inside() {
    unshare --mount --uts --ipc --pid --fork --kill-child --mount-proc="$root/proc" \
        env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive chroot "$root" "$@" >"$place/recipe.said" 2>&1
}

failed() {
    { echo "$1"; echo "its last lines:"; tail -n "$last_lines" "$place/recipe.said"; } >"$place/recipe.failed"
    exit 1
}

# by the system's own tar: a link in it leads to where it leads there
inside tar --extract --directory=/ --preserve-permissions <"$place/recipe.tar" ||
    failed "the files of the recipe could not be put into the image"
count=$(tr -dc '\0' <"$place/recipe.commands" | wc -c)
number=0
while IFS= read -r -d '' -u 3 command; do
    number=$((number + 1))
    status=0
    inside /bin/bash -e -o pipefail -c "$command" </dev/null || status=$?
    [ "$status" -eq 0 ] || failed "command $number of $count of the recipe ended with status $status: $command"
done 3<"$place/recipe.commands"
