#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# parts.sh CHAIN... [-- CHAIN...]: run the parts of `make test`.  A chain is a list of words ("check docs unit"): its parts
# run one after the other, chains side by side.  Those behind `--` give way to the others: what waits for hosts and guests
# shall not wait for a processor, too.  What a part says is kept in build/test/PART.log and shown when it has ended; a part
# that fails ends nothing, so that one run tells of every fault.  Last come the ends of what the failed ones said, and a table
# of how long each took, and of the processor time of its processes (without guests and others that it did not wait for).
set -euo pipefail
cd "$(dirname "$0")/.."
logs=build/test
mkdir -p "$logs"
way=()

run() {
    local part=$1 begin=$SECONDS outcome=passed
    local TIMEFORMAT='%U %S'
    { time "${way[@]}" "${MAKE:-make}" --no-print-directory "$part" >"$logs/$part.log" 2>&1 </dev/null; } \
        2>"$logs/$part.time" || outcome=FAILED
    # one writer at a time: two chains may end a part at once
    flock "$logs" cat "$logs/$part.log"
    printf '%-14s %s %5d s %6.0f s of a processor\n' "$part" "$outcome" $((SECONDS - begin)) \
        "$(awk '{ sum = $1 + $2 } END { print sum }' "$logs/$part.time")" | tee -a "$logs/table"
}

chain() {
    local part
    for part in "$@"; do
        run "$part"
    done
}

[ $# -gt 0 ] || { sed -n '6,10s/^# //p' "$0"; exit 2; }
: >"$logs/table"
expected=0
for parts in "$@"; do
    if [ "$parts" = -- ]; then
        way=(nice -n 10)
        continue
    fi
    expected=$((expected + $(wc -w <<<"$parts")))
    # shellcheck disable=SC2086  # names, one a word
    chain $parts &
done
wait
failed=$(awk '$2 == "FAILED" { print $1 }' "$logs/table")
for part in $failed; do
    printf '\n== %s failed; the end of %s:\n' "$part" "$logs/$part.log"
    tail -n 60 "$logs/$part.log"
done
printf '\n== parts\n'
cat "$logs/table"
# a part that was killed with its chain is in no line
[ -z "$failed" ] && [ "$(wc -l <"$logs/table")" -eq "$expected" ]
