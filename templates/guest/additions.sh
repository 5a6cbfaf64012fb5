#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, under any POSIX sh: make what the user adds to it (/etc/vtorque/additions).
#
#   additions SECONDS      as root: the packages; then, as the user, the rest
#   additions as-user END  as the user: files and commands, from standard input, until END (seconds of uptime)
#
# The last line of output says what went wrong.  Status 90: the user can mend it; 91: the site.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
# shellcheck source=/dev/null
. /etc/vtorque/guest.env
LIST=/etc/vtorque/additions
SAID=/run/vtorque-additions
LOG=/tmp/vtorque-metadata.log
USERS=90
SITES=91
# what is fetched may not come: a word in time is worth more than a last try
APT="-q -y --no-install-recommends -o APT::Update::Error-Mode=any -o DPkg::Lock::Timeout=60
    -o Acquire::Retries=1 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10"

exec 3>&1
told=

fail() { # status words
    {
        [ -z "$told" ] || tail -n 5 "$told"
        printf '\n%s\n' "$2"
    } >&3
    exit "$1"
}

left_s() {
    read -r up _idle </proc/uptime
    echo "$((end - ${up%%.*}))"
}

within() { # command...: ended when the time is over, by force where need be
    left=$(left_s)
    [ "$left" -gt 0 ] || return 124
    timeout -k 2 "$left" "$@"
}

last() { # of what a package manager said: the first error of apt's, else the last line
    grep '^E:' "$SAID" | head -n 1 | grep . || grep . "$SAID" | tail -n 1
}

has() { # package
    if command -v dpkg-query >/dev/null; then
        # shellcheck disable=SC2016
        dpkg-query -W -f '${db:Status-Abbrev}\n' "$1" 2>/dev/null | grep -q '^.i'
    else
        command -v rpm >/dev/null && rpm -q --whatprovides "$1" >/dev/null 2>&1
    fi
}

# the words that follow are lists of words without blanks
# shellcheck disable=SC2086
by_apt() { # packages
    export DEBIAN_FRONTEND=noninteractive
    # apt itself tells only of sources whose lists are there already
    grep -rqsE '^[[:space:]]*(deb[[:space:]]|URIs:)' /etc/apt/sources.list /etc/apt/sources.list.d ||
        fail $USERS "packages: $1: this image has no package sources, so that only what it holds can be had"
    within apt-get $APT update >"$SAID" 2>&1 || fail $SITES "packages: $1: their lists cannot be fetched: $(last)"
    for name in $1; do
        apt-cache show "$name" >/dev/null 2>&1 || fail $USERS "packages: $name: the image's package sources have none"
    done
    within apt-get $APT install $1 >"$SAID" 2>&1 || fail $SITES "packages: $1: not installed: $(last)"
}

# shellcheck disable=SC2086
by_dnf() { # program packages
    within "$1" -q -y --setopt=install_weak_deps=False install $2 >"$SAID" 2>&1 && return
    if grep -qE 'No match for argument|Unable to find a match|no enabled repo' "$SAID"; then
        fail $USERS "packages: $2: $(last)"
    fi
    fail $SITES "packages: $2: not installed: $(last)"
}

packages() {
    wanted=
    while read -r kind name; do
        [ "$kind" != package ] || has "$name" || wanted="${wanted:+$wanted }$name"
    done <"$LIST"
    [ -n "$wanted" ] || return 0
    for manager in apt-get dnf yum; do
        command -v $manager >/dev/null || continue
        case $manager in apt-get) by_apt "$wanted" ;; *) by_dnf $manager "$wanted" ;; esac
        rm -f "$SAID"
        return
    done
    fail $USERS "packages: $wanted: this image can install none"
}

become_the_user() { # standard input: what there is for him to do
    set --
    for name in $VTORQUE_PASSED_ON; do # what of the job its node told, by the batch system's names
        eval "set -- \"\$@\" \"$name=\$$name\""
    done
    env -i HOME="$VTORQUE_HOME" "$@" PATH="$PATH" su -s /bin/sh -c "exec /usr/lib/vtorque/additions as-user $end" "$VTORQUE_USER"
}

put() { # mode path content: whole or not at all; guests that share a home do it at the same time
    directory=${2%/*}
    new=$directory/.vtorque-$VTORQUE_NAME.$$
    [ ! -d "$2" ] || fail $USERS "file $2: a directory is there"
    words=$({
        mkdir -p "$directory" && (umask 077 && printf %s "$3" | base64 -d >"$new") &&
            chmod "$1" "$new" && mv -f "$new" "$2"
    } 2>&1) && return
    rm -f "$new"
    fail $USERS "file $2: ${words##*
}"
}

run() { # number line
    within sh -c "$2" </dev/null 3>&-
    status=$?
    [ $status -ne 0 ] || return 0
    [ "$(left_s)" -gt 0 ] || fail $USERS "command $1 was not done in time"
    fail $USERS "command $1 ended with status $status"
}

as_user() {
    umask 022
    # a file of his own: /dev/stderr opens what it stands for once more
    exec >"$LOG" 2>&1
    told=$LOG
    PATH=/usr/local/bin:/usr/bin:/bin
    USER=$VTORQUE_USER
    LOGNAME=$VTORQUE_USER
    SHELL=$VTORQUE_SHELL
    export PATH USER LOGNAME SHELL
    unset LC_ALL
    cd "$HOME" || fail $USERS "there is no home to begin in"
    number=0
    while read -r kind one two three; do
        case $kind in
            file) put "$one" "$(printf %s "$two" | base64 -d)" "$three" ;;
            command)
                number=$((number + 1))
                run $number "$(printf %s "$one" | base64 -d)"
                ;;
        esac
    done
}

if [ "$1" = as-user ]; then
    end=$2
    as_user
    exit 0
fi
# who waits on the channel keeps what he makes to himself; packages and those who fetch them must not
umask 022
end=0
end=$(($1 - $(left_s)))
packages
grep -qE '^(file|command) ' "$LIST" || exit 0
grep -E '^(file|command) ' "$LIST" | become_the_user || exit $USERS
