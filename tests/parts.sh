#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# parts.sh CHAIN... [-- PART...]: run the parts of `make test`.  A chain is a list of words ("check docs unit"): its parts
# run one after the other, chains side by side.  The parts behind `--` run one after the other beside them, and give way to
# them: what waits for hosts and guests shall not wait for a processor, too.  A chain that has ended takes part in them,
# from the last on.  What a part says is kept in build/test/PART.log and shown when it has ended; a part that fails ends
# nothing, so that one run tells of every fault.  Last come the ends of what the failed ones said, and a table of how long
# each took, and of the processor time of its processes (without guests and others that it did not wait for).
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

# the parts that nobody has taken before
take() {
    local part
    for part in "$@"; do
        if mkdir "$taken/$part" 2>/dev/null; then run "$part"; fi
    done
}

[ $# -gt 0 ] || { sed -n '6,11s/^# //p' "$0"; exit 2; }
: >"$logs/table"
taken=$logs/taken
rm -rf "$taken" && mkdir "$taken"
chains=() beside=() backwards=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    chains+=("$1")
    shift
done
for part in "${@:2}"; do
    beside+=("$part")
    backwards=("$part" "${backwards[@]}")
done
read -ra parts <<<"${chains[*]} ${beside[*]}"
for chain in "${chains[@]}"; do
    # shellcheck disable=SC2086  # names, one a word
    { for part in $chain; do run "$part"; done; way=(nice -n 10); take "${backwards[@]}"; } &
done
{ way=(nice -n 10); take "${beside[@]}"; } &
wait
failed=$(awk '$2 == "FAILED" { print $1 }' "$logs/table")
for part in $failed; do
    printf '\n== %s failed; the end of %s:\n' "$part" "$logs/$part.log"
    tail -n 60 "$logs/$part.log"
done
printf '\n== parts\n'
cat "$logs/table"
# a part that was killed with its chain is in no line
[ -z "$failed" ] && [ "$(wc -l <"$logs/table")" -eq "${#parts[@]}" ]
