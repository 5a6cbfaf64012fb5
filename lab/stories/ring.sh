#!/bin/bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# ring.sh [RANK HOST...]: a message goes round the guests of a job over TCP, and each checks what it gets.  Without
# arguments it is the job's script: it starts the others, prints a line for each round, and ends when ~/go is there.
port=7100 others=()

checksum() { echo "round $1 from $2" | md5sum | cut -d ' ' -f 1; }
broken() { echo "ring broken: $1"; exit 1; }

if [ $# = 0 ]; then
    mapfile -t hosts <<<"$(uniq "$PBS_NODEFILE")"
    for ((rank = 1; rank < ${#hosts[@]}; rank++)); do
        # shellcheck disable=SC2029  # the arguments are known here
        ssh "${hosts[rank]}" "bash ~/ring.sh $rank ${hosts[*]}" </dev/null &
        others+=($!)
    done
    set -- 0 "${hosts[@]}"
fi
rank=$1 && shift
hosts=("$@") size=$#
heard=/tmp/ring.$$  # not every guest has /dev/fd
mkfifo "$heard"
nc -l -p $port </dev/null >"$heard" &
exec 5<"$heard"
until exec 4>"/dev/tcp/${hosts[$(((rank + 1) % size))]}/$port"; do sleep 0.2; done 2>/dev/null

if [ "$rank" != 0 ]; then
    while read -r round from check <&5; do
        [ "$round" = end ] && { echo end >&4; exit 0; }
        [ "$from $check" = "$((rank - 1)) $(checksum "$round" $((rank - 1)))" ] || broken "guest $rank, round $round"
        echo "$round $rank $(checksum "$round" "$rank")" >&4
    done
    broken "guest $rank hears nothing"
fi
round=0
until [ -e ~/go ]; do
    round=$((round + 1))
    echo "$round 0 $(checksum $round 0)" >&4
    read -r got from check <&5 || broken "nothing comes back"
    [ "$got $from $check" = "$round $((size - 1)) $(checksum $round $((size - 1)))" ] || broken "round $round"
    echo "line $round: past $size guests"
    sleep 0.5
done
echo end >&4
for other in "${others[@]}"; do wait "$other" || broken "one of them has failed"; done
echo "the ring ended well"
