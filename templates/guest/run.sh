#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The far end of vtorque-shell: in the guest, as the job's user, under any POSIX sh (dash, busybox, bash).
#
#   run batch TOKEN    take a job from standard input and run it as a batch system would; standard input is
#                      then the line of control: `signal NUMBER`, for what an executed script has started
#                      `others NUMBER`, and its end means that the job is to end
#   run bring TOKEN    take a job and keep it, for `session`
#   run session DIR    run it on this terminal
#   run status DIR     how the session ended
#   run attach TOKEN   print all that a detached job has printed, until it ends; standard input as for batch
#   run keeper DIR     (for itself) stay with a detached job
#   run leader DIR     (for itself) become the job's login shell
#
# What it says to vtorque-shell is marked with TOKEN, so that nothing a profile or a job prints is mistaken for it.
set -u
vt_directory='' vt_umask='' vt_limits='' vt_shell='' vt_script='' vt_line='' vt_command='' vt_x11='' vt_joined='' vt_whole=''
vt_execute='' vt_arguments='' vt_detached=''
detached=/tmp/vtorque.job # there is one in a guest
PATH=/usr/bin:/bin:/usr/sbin:/sbin
shell_of_user=${SHELL:-/bin/sh}
unset TMOUT # of a bash, it ends every read, and with the line of control the job

say() { # word...: on both streams of the connection, as each keeps its order: what the job wrote there is before it
    mark "$@"
    mark "$@" >&4
}

mark() { # word...: in one write; a job may have left the pipe non-blocking, and full
    for _try in 1 2 3 4 5 6 7 8 9 10; do
        printf 'vtorque-%s-%s\n' "$token" "$*" && return
        sleep 1
    done
}

give_up() { # what
    [ -z "${place-}" ] || rm -rf "$place"
    say end broken "$1"
    exit 1
}

take() { # bytes file: exactly that many of standard input
    [ "$1" -eq 0 ] || dd bs=65536 iflag=fullblock,count_bytes count="$1" 2>/dev/null
} >"$2"

receive() { # the job: two lengths, the settings, the script, a last word
    exec 4>&2
    umask 077
    say begin
    read -r settings script || exit 1
    place=$(mktemp -d /tmp/vtorque.XXXXXX) || give_up "no directory could be made in the guest's /tmp"
    take "$settings" "$place/job"
    # shellcheck source=/dev/null
    . "$place/job"
    [ "$vt_whole" = yes ] || give_up "the job did not arrive whole"
    settle_script
    [ -n "$vt_script" ] || return 0
    [ ! -e "$vt_script" ] || rm -f "$vt_script"
    if ! { take "$script" "$vt_script" && chmod 0700 "$vt_script"; } 2>/dev/null; then
        give_up "the job's script could not be written to $vt_script in the guest"
    fi
    whole=
    read -r whole
    [ "$whole" = whole ] || give_up "the job's script did not arrive whole"
}

settle_script() { # one that is executed itself lies in no place that the batch system has in guests
    [ -z "$vt_execute" ] || vt_script=$place/${vt_script##*/}
}

signal_session() { # number: to every process of $session, as Torque does it; its own group at once
    kill "-$1" "-$session" 2>/dev/null
    signal_rest "$1" group
}

signal_rest() { # number pid|group: to every process of $session but its leader, or its leader's group
    rest='' which=$2
    for entry in /proc/[0-9]*; do
        line=
        { read -r line <"$entry/stat"; } 2>/dev/null
        # after the name, which may hold anything: state, parent, group, session
        # shellcheck disable=SC2086 # to be split into fields
        set -- "$1" ${line##*) }
        own=${entry#/proc/}
        [ "$which" = pid ] || own=${4-}
        [ "${5-}" = "$session" ] && [ "$own" != "$session" ] && rest="$rest ${entry#/proc/}"
    done
    # shellcheck disable=SC2086 # a list of numbers
    [ -z "$rest" ] || kill "-$1" $rest 2>/dev/null
}

control() { # the line of control, until its end
    read -r session <"$place/leader" || exit 1
    stopper=
    while read -r word number; do
        case $word:$number in
            signal:20) # suspend: a session without a terminal does not stop on TSTP; Torque stops it 4 s later
                signal_session 20
                { sleep 4 && signal_session 19; } </dev/null >/dev/null 2>&1 3<&- 4>&- &
                stopper=$!
                ;;
            signal:18)
                [ -z "$stopper" ] || kill "$stopper" 2>/dev/null
                signal_session 18
                ;;
            *:*[!0-9]* | *:) ;;
            others:*) signal_rest "$number" pid ;; # the script itself has been told alone
            signal:9) signal_session 9 ;;
            # a script that is executed gets what it is sent alone, TERM of a cancel, too: so does it on the node, where
            # Slurm's proctrack/cgroup passes over what is no task of its own
            signal:*) if [ -n "$vt_execute" ]; then kill "-$number" "$session" 2>/dev/null; else signal_session "$number"; fi ;;
        esac
    done
    # nobody listens any more; twice, for what was born during the first
    signal_session 9
    signal_session 9
}

detach() { # the job goes on without this connection, and prints into files
    if [ -e "$detached" ] || ! mv "$place" "$detached"; then give_up "a job is in this guest already"; fi
    place=$detached
    mkfifo "$place/leader" "$place/control" || give_up "no fifo could be made in the guest's /tmp"
    : >"$place/out"
    : >"$place/err"
    setsid "$0" keeper "$place" </dev/null >/dev/null 2>&1 3<&- 4>&- &
    attach
}

attach() { # all that the job has printed from its beginning, and control for it, until it has ended
    {
        while read -r word number; do
            printf '%s %s\n' "$word" "$number" >"$place/control"
        done
        kill -9 0 # the connection has ended; the job has a session of its own
    } <&3 &
    forwarder=$!
    copy_spool "$place/err" >&4 &
    other=$!
    copy_spool "$place/out"
    wait "$other"
    kill -9 "$forwarder"
    read -r how <"$place/end"
    say end "$how"
    exit 0
}

copy_spool() { # file: until the job has ended
    position=0
    while :; do
        over=
        [ ! -e "$place/end" ] || over=yes
        size=$(stat -c %s "$1")
        if [ "$size" -gt "$position" ]; then
            dd if="$1" bs=65536 iflag=skip_bytes,count_bytes skip="$position" count=$((size - position)) 2>/dev/null || exit
            position=$size
        elif [ -n "$over" ]; then
            return
        else
            sleep 0.2 2>/dev/null || sleep 1
        fi
    done
}

end_leader() { # status: the leader has ended with it: `how` says how, and nothing that it started is left
    status=$1 how="exit $1"
    [ "$status" -gt 128 ] && [ -s "$place/killed" ] && how="signal $((status - 128))"
    exec 2>/dev/null
    kill -9 "$controller"
    read -r session <"$place/session" && signal_session 9
}

keep() { # the job, whoever listens
    exec 3<>"$place/control" # with a writer of its own it has no end
    control <&3 &
    controller=$!
    exec 2>"$place/killed"
    exec 5>>"$place/err"
    [ -z "$vt_joined" ] || exec 5>>"$place/out"
    printf '%s' "$vt_line" | setsid "$0" leader "$place" >>"$place/out" 2>&5 3<&- 5>&-
    end_leader $?
    echo "$how" >"$place/end.new" && mv "$place/end.new" "$place/end"
}

batch() {
    exec 3<&0
    receive
    [ -z "$vt_detached" ] || detach
    mkfifo "$place/leader" || give_up "no fifo could be made in the guest's /tmp"
    control <&3 &
    controller=$!
    # this shell itself speaks only when a signal killed the job: that tells `exit 143` from a death by TERM
    exec 2>"$place/killed"
    exec 5>&4
    [ -z "$vt_joined" ] || exec 5>&1 # one pipe keeps the order of what is written to both
    printf '%s' "$vt_line" | setsid "$0" leader "$place" 2>&5 3<&- 4>&- 5>&-
    end_leader $?
    rm -rf "$place"
    say end "$how"
    exit "$status"
}

limit() { # as on the node, as far as the guest lets its user: `n=1024:4096`, `nproc=512:1024`, soft and hard
    rest=
    for entry in $vt_limits; do
        both=${entry#*=}
        case ${entry%%=*} in
            # bash and busybox know these letters, dash has another one for nproc and none for the others
            nproc) set_limit u "$both" || set_limit p "$both" ;;
            nice) set_limit e "$both" ;;
            rtprio) set_limit r "$both" ;;
            msgqueue) set_limit q "$both" ;;
            sigpending) set_limit i "$both" ;;
            *) set_limit "${entry%%=*}" "$both" || : ;;
        esac || rest="$rest --$entry"
    done
    # shellcheck disable=SC2086 # a list of words
    [ -z "$rest" ] || prlimit --pid "$$" $rest >/dev/null 2>&1
}

set_limit() { # letter soft:hard: false where this shell does not know the letter
    # shellcheck disable=SC3045
    ulimit -S "-$1" >/dev/null 2>&1 || return 1
    # shellcheck disable=SC3045
    ulimit -S "-$1" "${2%%:*}" 2>/dev/null
    # shellcheck disable=SC3045
    ulimit -H "-$1" "${2#*:}" 2>/dev/null
    return 0
}

become() { # VARIABLE=value...: where, how and with what the user's shell starts, but for its last words
    cd "${vt_directory:-$HOME}" || {
        echo "vtorque: the start directory ${vt_directory:-$HOME} is not there in the guest; nothing was run" >&2
        exit 1
    }
    umask "$vt_umask"
    limit
    shell=${vt_shell:-$shell_of_user}
    login=
    case ${shell##*/}:${vt_command:+command} in
        csh:command | tcsh:command) ;;
        sh:* | ash:* | dash:* | bash:* | zsh:* | ksh*:* | mksh:* | yash:* | fish:* | csh:* | tcsh:*) login=-l ;;
    esac
}

case ${1-} in
    batch)
        token=$2
        batch
        ;;
    attach)
        token=$2
        exec 3<&0 4>&2
        say begin
        [ -p "$detached/control" ] || give_up "there is no job in this guest that could be attached"
        place=$detached
        attach
        ;;
    keeper)
        place=$2
        # shellcheck source=/dev/null
        . "$place/job"
        keep
        ;;
    bring)
        token=$2
        receive
        say end place "$place"
        ;;
    leader)
        place=$2
        # shellcheck source=/dev/null
        . "$place/job" # its last line makes the job's variables the arguments
        echo "$$" >"$place/session"
        echo "$$" >"$place/leader"
        become
        set -- "$@" HOME="$HOME" USER="$USER" LOGNAME="$LOGNAME" SHELL="$shell"
        if [ -n "$vt_execute" ]; then
            settle_script
            exec </dev/null
            eval "exec env -i \"\$@\" \"\$vt_script\" $vt_arguments"
        fi
        # shellcheck disable=SC2086 # no word when empty
        exec env -i "$@" "$shell" $login
        ;;
    session)
        place=$2
        # shellcheck source=/dev/null
        . "$place/job"
        rm -f "$place/job"
        become
        trap : INT QUIT # the keyboard's signals are for the user's shell
        authority=/run/vtorque/x11/authority # xauth.sh
        if [ -n "$vt_x11" ] && [ -n "${DISPLAY-}" ] && [ -s "$authority" ]; then
            # -V may have brought the name of another file
            set -- "$@" DISPLAY="$DISPLAY" XAUTHORITY="$authority"
        elif [ -n "$vt_x11" ]; then
            echo "vtorque: no display in the guest (qsub -X): its image has no xauth, or its sshd forwards none" >&2
        fi
        set -- "$@" HOME="$HOME" USER="$USER" LOGNAME="$LOGNAME" SHELL="$shell" "$shell"
        [ -z "$login" ] || set -- "$@" "$login"
        [ -z "$vt_command" ] || set -- "$@" -c "$vt_command"
        env -i "$@"
        status=$?
        echo "exit $status" >"$place/status.new" && mv "$place/status.new" "$place/status"
        exit "$status"
        ;;
    status)
        cat "$2/status"
        ;;
    *)
        echo "vtorque: this program is started by vtorque-shell" >&2
        exit 64
        ;;
esac
