# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=bash
# step TEXT COMMAND [ARGUMENT...]: one line for one piece of long work; the command's own output goes to the log.
# On a terminal the line counts the seconds while the work goes on.

STEP_LOG=${STEP_LOG:-build/log/steps.log}

step() {
    local text=$1 begin=$SECONDS status=0
    shift
    mkdir -p "${STEP_LOG%/*}"
    printf '== %s: %s\n' "$(date +%T)" "$*" >>"$STEP_LOG"
    "$@" >>"$STEP_LOG" 2>&1 </dev/null &
    local pid=$!
    if [ -t 1 ]; then
        # wait by the clock of the terminal's reader: a person; nothing is decided by it
        while kill -0 "$pid" 2>/dev/null; do
            printf '\r  %-58s %4d s' "$text" $((SECONDS - begin))
            read -r -t 1 -N 1 <> <(:) || true
        done
        printf '\r'
    fi
    wait "$pid" || status=$? # the caller may run with -e, and is to read why
    if [ "$status" -eq 0 ]; then
        printf '  %-58s %4d s\n' "$text" $((SECONDS - begin))
    else
        printf '  %-58s failed (status %d)\n' "$text" "$status"
        printf '  the last lines of %s:\n' "$STEP_LOG"
        tail -n 25 "$STEP_LOG" | sed 's/^/    /'
    fi
    return "$status"
}
