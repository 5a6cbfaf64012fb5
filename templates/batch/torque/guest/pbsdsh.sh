#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# pbsdsh for guests, under any POSIX sh: Torque's own asks a MOM, and here is none.  It goes over the job's ssh, one
# connection a guest, and ends with the greatest exit status.  What it says, it says in the words of Torque's.
set -u

usage() {
    echo "Usage: pbsdsh [-c copies][-o][-s][-u][-v] program [args]...
       pbsdsh [-n nodenumber][-o][-s][-u][-v] program [args]...
       pbsdsh [-h hostname][-o][-v] program [args]...
Where -c copies = run a copy of \"args\" on the first \"copies\" nodes,
      -n nodenumber = run a copy of \"args\" on the \"nodenumber\"-th node, from 0,
      -o = capture stdout of processes (here it always is),
      -s = forces synchronous execution,
      -u = run on unique hostnames,
      -h = run on this specific hostname,
      -v = forces verbose output.
A node is a line of \$PBS_NODEFILE: a virtual processor of a guest. A program starts in the job's own start directory,
with this environment and no input. The exit status is the greatest of the programs'."
}

fail() { # what
    echo "pbsdsh: $*" >&2
    exit 1
}

wrong() {
    usage >&2
    exit 1
}

[ "${1-}" != --help ] || { usage; exit 0; }
copies='' number='' host='' together=yes unique='' verbose=''
while getopts c:n:h:osuv option; do
    case $option in
        c) copies=$OPTARG ;;
        n) number=$OPTARG ;;
        h) host=$OPTARG ;;
        o) ;;
        s) together='' ;;
        u) unique=yes ;;
        v) verbose=yes ;;
        *) wrong ;;
    esac
done
shift $((OPTIND - 1))
case $copies$number in *[!0-9]*) wrong ;; esac
[ -z "$copies" ] || [ -z "$number" ] || wrong
[ "$copies" != 0 ] || wrong
[ $# -gt 0 ] || wrong
[ -n "${PBS_ENVIRONMENT-}" ] || fail "not executing under PBS"
[ -r "${PBS_NODEFILE-}" ] || fail "the job's node file ${PBS_NODEFILE-} cannot be read"

# a line a task: its number, the virtual node, the node, the host
tasks=$(awk -v unique="$unique" '
    NF {
        first = !($1 in number)
        if (first) number[$1] = nodes++
        if (first || !unique) print count++, lines + 0, number[$1], $1
        lines++
    }' "$PBS_NODEFILE")
available=$(printf '%s\n' "$tasks" | grep -c .)
from=0 to=$((available - 1))
if [ -n "$host" ]; then
    # HOST, or HOST/N for its N-th line
    number=$(printf '%s\n' "$tasks" | awk -v host="${host%%/*}" -v skip="${host##"${host%%/*}"}" '
        BEGIN { sub("/", "", skip) }
        $4 == host || index($4, host ".") == 1 { if (skip-- <= 0) { print $1; exit } }')
    [ -n "$number" ] || fail "$host not found"
fi
if [ "${number:-0}" -ge "$available" ] || [ "${copies:-0}" -gt "$available" ]; then
    fail "only $available nodes available"
fi
[ -z "$copies" ] || to=$((copies - 1))
[ -z "$number" ] || from=$number to=$number

# {% include "guest/command.sh" %}

# what the other side runs; when its input ends, which this program holds open, its programs are ended
# shellcheck disable=SC2016 # for the other side's shell
far_end='
cd "${PBS_O_INITDIR:-$HOME}" || exit 1
exec 3<&0 </dev/null
programs=
for task in $tasks; do
    rest=${task#*:}
    export PBS_VNODENUM="${rest%%:*}" PBS_NODENUM="${rest#*:}" PBS_TASKNUM="$((${task%%:*} + 2))"
    [ -z "$verbose" ] || echo "pbsdsh: spawned task ${task%%:*}" >&2
    setsid "$@" 3<&- &
    programs="$programs ${task%%:*}:$!"
done
{
    while read -r nothing; do :; done
    for program in $programs; do kill -TERM "-${program#*:}"; done
} <&3 3<&- >/dev/null 2>&1 &
watch=$!
exec 3<&-
greatest=0
for program in $programs; do
    wait "${program#*:}"
    status=$?
    [ -z "$verbose" ] && [ "$status" -eq 0 ] || echo "pbsdsh: task ${program%%:*} exit status $status" >&2
    [ "$status" -le "$greatest" ] || greatest=$status
done
kill "$watch" 2>/dev/null
exit "$greatest"
'

there() { # host task...: run them there
    there=$1
    shift
    # shellcheck disable=SC2154 # of command.sh
    text="$exports
set -- $command
verbose=$verbose tasks='$*'$far_end"
    here=$(uname -n)
    if [ "${there%%.*}" = "${here%%.*}" ]; then
        exec /bin/sh -c "$text" <&8 8<&- 9>&-
    fi
    # in letters that no login shell reads otherwise than another
    text=$(printf '%s' "$text" | base64 | tr -d '\n')
    # shellcheck disable=SC2016 # for the other side's shell
    exec ssh -T -o BatchMode=yes "$there" 'exec /bin/sh -c '\''eval "$(echo "$0" | base64 -d)"'\'" $text" <&8 8<&- 9>&-
}

# fd 8 comes to its end when this program, the only one that has fd 9, is gone
{ place=$(mktemp -d /tmp/pbsdsh.XXXXXX) && mkfifo "$place/held"; } || fail "no fifo could be made in /tmp"
# shellcheck disable=SC2094 # it is a fifo
exec 9<>"$place/held" 8<"$place/held"
rm -rf "$place"
trap 'exit 1' HUP INT TERM

calls=$(printf '%s\n' "$tasks" | awk -v from="$from" -v to="$to" -v together="$together" '
    $1 < from || $1 > to { next }
    {
        key = together ? $4 : $1
        if (!(key in call)) { order[calls++] = key; call[key] = $4 }
        call[key] = call[key] " " $1 ":" $2 ":" $3
    }
    END { for (i = 0; i < calls; i++) print call[order[i]] }')
greatest=0

collect() { # process
    wait "$1"
    status=$?
    [ "$status" -le "$greatest" ] || greatest=$status
}

running=
while read -r call; do
    # shellcheck disable=SC2086 # a host and its tasks
    there $call &
    if [ -n "$together" ]; then running="$running $!"; else collect $!; fi
done <<CALLS
$calls
CALLS
for process in $running; do
    collect "$process"
done
exit "$greatest"
