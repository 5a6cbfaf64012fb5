#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# srun for guests, under any POSIX sh: Slurm's own asks slurmd with the cluster's key, and no guest has either.  It
# starts tasks over the job's ssh, one connection a guest, and ends with the greatest of their exit statuses.
# Programs of MPI are started by the image's own mpiexec, which does the same.
set -u

usage() {
    echo "Usage: srun [options] program [arguments]
  -n, --ntasks=N          tasks (without: SLURM_NTASKS, else one a guest)
  -N, --nodes=N           guests
  --ntasks-per-node=N     tasks in a guest, at most
  -c, --cpus-per-task=N   processors of a task
  -w, --nodelist=LIST     in these guests alone
  -m, --distribution=block|cyclic
  -O, --overcommit        more tasks than processors
  -D, --chdir=DIR         where they start
  -i, --input=all|none|N|FILE     who reads the input: everyone, nobody, task N; or a file
  -o, --output=FILE, -e, --error=FILE
  -l, --label             the number of its task before each line
  --mpi=none|TYPE         start a program of MPI by mpiexec, or do not
  --pty                   one task, on this terminal
  -Q, --quiet
In a guest srun starts tasks of this job; it makes no jobs, and its steps do not wait for each other's processors."
}

fail() { # what
    echo "srun: error: $*" >&2
    exit 1
}

number() { # option value
    case $2 in '' | 0 | *[!0-9]*) fail "$1: '$2' is no number of that kind" ;; esac
}

tasks='' guests='' per_guest='' cpus='' label='' input=all wanted='' distribution=block overcommit='' directory=''
out='' err='' mpi='' pty='' quiet=''

flag() { # option: true when it has no value
    case $1 in
        -l | --label) label=yes ;;
        -O | --overcommit) overcommit=yes ;;
        -Q | --quiet) quiet=yes ;;
        --pty) pty=yes ;;
        -u | --unbuffered | -v | --verbose | -s | --oversubscribe | --overlap) ;;
        -h | --help | --usage) usage; exit 0 ;;
        -V | --version) echo "srun of vTorque's guests"; exit 0 ;;
        *) return 1 ;;
    esac
}

unknown() { # option
    fail "$1 is not possible in a guest (srun --help says what is)"
}

option() { # option value
    case $1 in
        -n | --ntasks) number "$1" "$2" && tasks=$2 ;;
        # a range's least
        -N | --nodes) number "$1" "${2%%-*}" && guests=${2%%-*} ;;
        --ntasks-per-node | --tasks-per-node) number "$1" "$2" && per_guest=$2 ;;
        -c | --cpus-per-task) number "$1" "$2" && cpus=$2 ;;
        -w | --nodelist) wanted=$2 ;;
        -D | --chdir) directory=$2 ;;
        -i | --input) input=$2 ;;
        -o | --output) out=$2 ;;
        -e | --error) err=$2 ;;
        -J | --job-name) ;;
        --mpi) mpi=$2 ;;
        --export) [ "$2" = ALL ] || fail "--export: in a guest it can be ALL alone; env(1) sets and unsets variables" ;;
        -m | --distribution)
            case $2 in block | cyclic) distribution=$2 ;; *) fail "$1: block or cyclic, not '$2'" ;; esac ;;
        *) unknown "$1" ;;
    esac
}

while [ $# -gt 0 ]; do
    case $1 in
        --) shift; break ;;
        --?*=*) option "${1%%=*}" "${1#*=}" ;;
        --?*)
            if ! flag "$1"; then
                case $1 in
                    --ntasks | --nodes | --ntasks-per-node | --tasks-per-node | --cpus-per-task | --nodelist | --chdir | \
                        --input | --output | --error | --job-name | --mpi | --export | --distribution) ;;
                    *) unknown "$1" ;;
                esac
                [ $# -gt 1 ] || fail "$1 needs a value"
                option "$1" "$2"
                shift
            fi ;;
        -?*)
            letters=${1#-}
            while [ -n "$letters" ]; do
                rest=${letters#?}
                letter=-${letters%"$rest"}
                letters=$rest
                if flag "$letter"; then continue; fi
                case $letter in -[nNcwDioeJm]) ;; *) unknown "$letter" ;; esac
                if [ -n "$rest" ]; then
                    option "$letter" "$rest"
                else
                    [ $# -gt 1 ] || fail "$letter needs a value"
                    option "$letter" "$2"
                    shift
                fi
                break
            done ;;
        *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || fail "no program is given (srun --help)"
job=${SLURM_JOB_ID-}
[ -n "$job" ] || fail "this is no job: SLURM_JOB_ID is not set"
hosts=${VTORQUE_HOSTS-}
[ -r "$hosts" ] || fail "the job's list of hosts '$hosts' cannot be read"

if [ -n "$wanted" ]; then
    scontrol=/usr/lib/vtorque/bin/scontrol
    [ -x "$scontrol" ] || scontrol=${0%/*}/scontrol
    wanted=$("$scontrol" show hostnames "$wanted") || exit 1
fi

# how many tasks are wanted; a number that only the job has gives way to what the guests have
given=$tasks
if [ -z "$tasks" ] && [ -z "$per_guest" ]; then
    case ${SLURM_NTASKS-} in *[!0-9]* | 0) ;; *) tasks=${SLURM_NTASKS-} ;; esac
fi

# a line a task: its number, that of its guest, that in its guest, the guest; before them: tasks, guests, and how many
# tasks each guest has
layout=$(wanted=$wanted awk -v tasks="$tasks" -v given="$given" -v guests="$guests" -v most="$per_guest" -v cpus="${cpus:-1}" \
    -v overcommit="$overcommit" -v distribution="$distribution" '
    function refuse(why) { print "error " why; failed = 1; exit }
    BEGIN { n = split(ENVIRON["wanted"], list, "\n"); for (i = 1; i <= n; i++) chosen[list[i]] = 1; some = n }
    NF && (!some || $1 in chosen) { if (!($1 in slots)) { name[count++] = $1; found[$1] } slots[$1]++ }
    END {
        if (failed) exit
        for (host in chosen) if (!(host in found)) refuse(host " is no guest of this job")
        if (!count) refuse("the job has no hosts")
        if (guests > count) refuse("more guests are asked for (" guests ") than there are (" count ")")
        if (guests) count = guests
        if (!tasks) tasks = count * (most ? most : 1)
        if (tasks < count) count = tasks
        for (i = 0; i < count; i++) {
            room[i] = int(slots[name[i]] / cpus)
            if (most && (room[i] > most || overcommit)) room[i] = most
            if (overcommit && !most) room[i] = tasks
            all += room[i]
        }
        if (all < tasks && !given && !most && all >= count) tasks = all
        for (i = 0; i < count; i++) if (!room[i]) all = -1
        if (all < tasks)
            refuse("more processors are asked for than there are in " count " guest" (count > 1 ? "s" : "") " (-O takes them all the same)")
        if (overcommit && !most) for (i = 0; i < count; i++) room[i] = int((tasks + count - 1 - i) / count)
        # each guest has one, and the first are filled; or in turn
        left = tasks
        for (i = 0; i < count; i++) { has[i] = 1; left-- }
        while (left > 0)
            for (i = 0; i < count && left > 0; i++) {
                extra = room[i] - has[i]
                if (extra > left) extra = left
                if (distribution == "cyclic" && extra > 1) extra = 1
                has[i] += extra
                left -= extra
            }
        line = tasks " " count " "
        for (i = 0; i < count; i++) line = line (i ? "," : "") has[i]
        print line
        if (distribution == "block") {
            for (i = 0; i < count; i++) for (k = 0; k < has[i]; k++) print task++, i, k, name[i]
        } else
            for (k = 0; task < tasks; k++) for (i = 0; i < count; i++) if (k < has[i]) print task++, i, k, name[i]
    }' "$hosts")
case $layout in error*) fail "${layout#error }" ;; esac
read -r tasks guests counts <<FIRST
$layout
FIRST
layout=$(printf '%s\n' "$layout" | sed 1d)
case $input in
    all | none) ;;
    *[!0-9]* | '') [ -r "$input" ] || fail "--input: $input cannot be read"; exec <"$input"; input=all ;;
    *) [ "$input" -lt "$tasks" ] || fail "--input: there is no task $input" ;;
esac
for name in "$out" "$err"; do
    case $name in *%*) fail "'$name': in a guest a name of a file has no %" ;; esac
done
[ "$out" != none ] || out=/dev/null
[ "$err" != none ] || err=/dev/null
if [ -n "$out" ]; then
    exec >"$out" || exit 1
    [ -n "$err" ] || exec 2>&1
fi
if [ -n "$err" ]; then
    exec 2>"$err" || exit 1
fi
if [ -n "$directory" ]; then
    cd "$directory" || exit 1
fi

# the step's number; starts at the same time get different ones
steps=/tmp/.srun.$(id -u).$job
[ -d "$steps" ] || mkdir -m 0700 "$steps" 2>/dev/null
step=0
[ ! -r "$steps/last" ] || read -r step <"$steps/last"
until mkdir "$steps/$step" 2>/dev/null; do
    [ -d "$steps" ] || fail "$steps could not be made"
    step=$((step + 1))
done
echo "$step" >"$steps/last"
names=$(printf '%s\n' "$layout" | awk '!($4 in seen) { printf "%s%s", comma, $4; comma = ","; seen[$4] }')
SLURM_STEP_ID=$step SLURM_STEPID=$step SLURM_NTASKS=$tasks SLURM_NPROCS=$tasks SLURM_STEP_NUM_TASKS=$tasks
SLURM_STEP_NUM_NODES=$guests SLURM_NNODES=$guests SLURM_STEP_NODELIST=$names SLURM_STEP_TASKS_PER_NODE=$counts
SLURM_TASKS_PER_NODE=$counts
export SLURM_STEP_ID SLURM_STEPID SLURM_NTASKS SLURM_NPROCS SLURM_STEP_NUM_TASKS SLURM_STEP_NUM_NODES SLURM_NNODES \
    SLURM_STEP_NODELIST SLURM_STEP_TASKS_PER_NODE SLURM_TASKS_PER_NODE
if [ -n "$cpus" ]; then
    SLURM_CPUS_PER_TASK=$cpus
    export SLURM_CPUS_PER_TASK
fi

wants_mpi() { # program: is it one of MPI?
    program=$(command -v "$1") && [ -f "$program" ] || return 1
    ldd "$program" 2>/dev/null | grep -Eq '^[[:space:]]*lib(mpi|mpich|mpifort|pmi2?|pmix)[a-z_0-9]*\.so'
}

[ -n "$mpi" ] || mpi=${SLURM_MPI_TYPE-}
if [ "$mpi" = list ]; then
    echo "srun: in a guest: none, or any other for the image's mpiexec" >&2
    exit 0
fi
if [ "$mpi" != none ] && { [ -n "$mpi" ] || wants_mpi "$1"; }; then
    launcher=$(command -v mpiexec || command -v mpirun) ||
        fail "$1 wants MPI${mpi:+ ($mpi)}, and this image has no mpiexec (--mpi=none starts it without)"
    [ -z "$label$pty" ] || fail "--label and --pty do not go with a program of MPI: they are mpiexec's to do"
    list=$steps/$step/hosts
    printf '%s\n' "$layout" | cut -d ' ' -f 4 >"$list" || exit 1
    HYDRA_HOST_FILE=$list I_MPI_HYDRA_HOST_FILE=$list OMPI_MCA_orte_default_hostfile=$list
    PRTE_MCA_prte_default_hostfile=$list
    export HYDRA_HOST_FILE I_MPI_HYDRA_HOST_FILE OMPI_MCA_orte_default_hostfile PRTE_MCA_prte_default_hostfile
    [ "$input" != none ] || exec </dev/null
    exec "$launcher" -n "$tasks" "$@"
fi

if [ -n "$pty" ]; then
    read -r _task _guest _local host <<FIRST
$layout
FIRST
    here=$(uname -n)
    [ "${host%%.*}" = "${here%%.*}" ] || fail "--pty: only in this guest; ssh -t $host"
    SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0
    export SLURM_PROCID SLURM_LOCALID SLURM_NODEID
    exec "$@"
fi

# {% include "guest/command.sh" %}
start=$(quote "$(pwd)")
mask=$(umask)

# What the other side runs.  Its input is the tasks' input, which has `length` bytes, and then the line of control: a
# signal a line for all tasks; at its end, where srun is gone, they are ended.
# shellcheck disable=SC2016 # for the other side's shell
far_end='
place=$(mktemp -d /tmp/srun.XXXXXX) || exit 1
exec 3<&0 </dev/null
[ "$length" = 0 ] || dd bs=65536 iflag=fullblock,count_bytes count="$length" <&3 >"$place/input" 2>/dev/null
umask "$mask"
cd "$start" 2>/dev/null || {
    echo "srun: error: $host: $start is not there: going to /tmp instead" >&2
    cd /tmp
}
labelled() { # label
    while IFS= read -r line || [ -n "$line" ]; do printf "%s: %s\n" "$1" "$line"; done
}
begin() { # task, its number here, its input, words: in the place of this shell
    SLURM_PROCID=$1 SLURM_LOCALID=$2
    export SLURM_PROCID SLURM_LOCALID
    case $3 in
        direct) exec <&7 ;;
        *) exec <"$3" ;;
    esac
    shift 3
    exec setsid "$@" 3<&- 7<&-
}
export SLURM_NODEID="$node" SLURMD_NODENAME="$host" SLURM_GTIDS="$numbers"
programs= labels=
for task in $tasks; do
    number=${task%%:*} from=/dev/null
    [ "$reader" != all ] && [ "$reader" != "$number" ] || from=$from_there
    [ "$from" = /dev/null ] || [ "$from" = direct ] || from=$place/input
    if [ -n "$width" ]; then
        mkfifo "$place/out.$number" "$place/err.$number"
        text=$(printf "%${width}d" "$number")
        labelled "$text" <"$place/out.$number" 3<&- 7<&- &
        labels="$labels $!"
        labelled "$text" <"$place/err.$number" >&2 3<&- 7<&- &
        labels="$labels $!"
        begin "$number" "${task#*:}" "$from" "$@" >"$place/out.$number" 2>"$place/err.$number" &
    else
        begin "$number" "${task#*:}" "$from" "$@" &
    fi
    programs="$programs $number:$!"
done
pass() { # signal
    # one that has not come to its own session yet has no group
    for program in $programs; do kill "-$1" "-${program#*:}" || kill "-$1" "${program#*:}"; done
}
{
    while read -r signal; do pass "$signal"; done
    pass CONT
    pass TERM
    sleep 5
    pass KILL
} <&3 3<&- 7<&- >/dev/null 2>&1 &
watch=$!
exec 3<&- 7<&-
greatest=0
for program in $programs; do
    wait "${program#*:}"
    status=$?
    [ "$status" -eq 0 ] || [ -n "$quiet" ] ||
        echo "srun: error: $host: task ${program%%:*}: Exited with exit code $status" >&2
    [ "$status" -le "$greatest" ] || greatest=$status
done
for one in $labels; do wait "$one"; done
kill "$watch" 2>/dev/null
rm -rf "$place"
exit "$greatest"
'

there() { # number of the guest, host, tasks with commas, their numbers here: run them there
    how="node=$1 host=$2 numbers=$3 tasks='$4' reader=$input from_there=$from_there length=$length width=$width
quiet=$quiet mask=$mask start=$start"
    # shellcheck disable=SC2154 # of command.sh
    text="$exports
set -- $command
$how$far_end"
    here=$(uname -n)
    if [ "${2%%.*}" = "${here%%.*}" ]; then
        /bin/sh -c "$text"
    else
        # in letters that no login shell reads otherwise than another
        text=$(printf '%s' "$text" | base64 | tr -d '\n')
        # shellcheck disable=SC2016 # for the other side's shell
        ssh -T -o BatchMode=yes "$2" 'exec /bin/sh -c '\''eval "$(echo "$0" | base64 -d)"'\'" $text" 7<&-
    fi
    echo $? >"$place/end.$1"
}

# WINCH calls it: it ends nobody who has no trap yet, and what came before is in the file
hand_on() { # the signals that came since the last time, each once
    more=yes
    [ -z "$busy" ] || return 0
    busy=yes
    while [ -n "$more" ]; do
        more=
        while [ "$handed" -lt "$(wc -l <"$place/signals")" ]; do
            handed=$((handed + 1))
            sed -n "${handed}p" "$place/signals"
        done
    done
    busy=
    [ -z "$more" ] || hand_on
}

feed() { # the line to one guest, until this program, the only one that has fd 9, is gone
    handed=0 busy=yes more=''
    trap hand_on WINCH
    [ "$length" = 0 ] || cat "$place/input"
    busy=
    hand_on
    cat <&8 >/dev/null &
    held=$!
    while kill -0 "$held" 2>/dev/null; do wait "$held"; done
}

# shellcheck disable=SC2317 # by a trap
forward() { # signal
    echo "$1" >>"$place/signals"
    # shellcheck disable=SC2086 # a list of numbers
    [ -z "$feeders" ] || kill -WINCH $feeders 2>/dev/null
}

{ place=$(mktemp -d /tmp/srun.XXXXXX) && mkfifo "$place/held" && : >"$place/signals"; } || fail "no fifo could be made in /tmp"
feeders='' running='' length=0 from_there=/dev/null width=''
# shellcheck disable=SC2064 # now
for signal in HUP INT QUIT TERM USR1 USR2 ALRM; do trap "forward $signal" "$signal"; done
trap 'rm -rf "$place"' EXIT
# shellcheck disable=SC2094 # it is a fifo
exec 9<>"$place/held" 8<"$place/held"

# one task that is here reads this program's own input; else all of it is read before any starts
exec 7<&0 </dev/null
[ "$tasks" != 1 ] || [ "$input" = none ] || input=0
if [ "$input" != none ]; then
    reader=$(printf '%s\n' "$layout" | awk -v task="$input" '$1 == task { print $4 }')
    here=$(uname -n)
    if [ -n "$reader" ] && [ "${reader%%.*}" = "${here%%.*}" ]; then
        from_there=direct
    elif [ ! -t 7 ]; then
        cat <&7 >"$place/input"
        length=$(($(wc -c <"$place/input")))
        from_there=input
        [ "$length" -gt 0 ] || from_there=/dev/null
    fi
fi
if [ -n "$label" ]; then
    width=$((tasks - 1))
    width=$(printf '%s' "$width" | wc -c)
    width=$((width))
fi

while read -r guest host numbers own; do
    mkfifo "$place/line.$guest"
    echo 1 >"$place/end.$guest"
    # closed by exec: behind the name of a function a shell keeps copies of them, to open them again.  What a feeder has
    # begun when the last task ends finds no place any more, and nobody wants to hear of that
    { exec 7<&- 9>&- 2>/dev/null && feed; } >"$place/line.$guest" &
    feeders="$feeders $!"
    { exec 8<&- 9>&- && there "$guest" "$host" "$numbers" "$own"; } <"$place/line.$guest" &
    running="$running $!"
done <<CALLS
$(printf '%s\n' "$layout" | awk '
    {
        if (!($2 in host)) { order[calls++] = $2; host[$2] = $4 }
        numbers[$2] = numbers[$2] (numbers[$2] == "" ? "" : ",") $1
        own[$2] = own[$2] (own[$2] == "" ? "" : " ") $1 ":" $3
    }
    END { for (i = 0; i < calls; i++) print order[i], host[order[i]], numbers[order[i]], own[order[i]] }')
CALLS
exec 7<&-
greatest=0
for process in $running; do
    # a signal ends one wait, and not the process
    while kill -0 "$process" 2>/dev/null; do wait "$process"; done
done
for end in "$place"/end.*; do
    read -r status <"$end"
    [ "$status" -le "$greatest" ] || greatest=$status
done
# shellcheck disable=SC2086 # a list of numbers
kill $feeders 2>/dev/null
exit "$greatest"
