#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, as root, under any POSIX sh: the job's user and groups exactly as on the node, whatever the image uses
# these names and ids for, and the places that are his.  useradd and groupadd refuse blanks, capitals and used ids.
# It is run before services start, where the image lets it be, and again when they have: what they then still made under
# an id that is the job's now is moved too.
# Says on its standard output what differs from the node, on standard error why it cannot be.
# shellcheck disable=SC2016 # the dollar signs in quotes are awk's
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
# shellcheck source=/dev/null
. /etc/vtorque/guest.env
# awk reads them from its environment: its own -v would take backslashes for escapes
export VTORQUE_USER VTORQUE_UID VTORQUE_GID VTORQUE_GROUP VTORQUE_GROUPS VTORQUE_HOME
# who is in them has power over the system where it has them: where the image has one, and where root makes one in the
# guest later (a package, the site's prologue), which would take a group of that name for its own
STRONG="root adm admin backup disk docker incus incus-admin kmem libvirt lxd mem operator shadow staff sudo \
systemd-journal wheel"
export STRONG
# the groups that the user gets, decided once: later the image's own groups are no longer told from them
decided=/etc/vtorque/groups
# a line for each id of the image's that is the job's now: `group` or `user`, the id, the one that took its place
moved=/etc/vtorque/moved
made=/run/vtorque/identity
newline='
'
# each program that is begun takes an emulated processor longer than all that the shell does itself

die() { # why
    echo "$*" >&2
    exit 1
}

edit() { # file awk-program: in place, for a new file would lose its mode and its SELinux label
    [ -f "$1" ] || return 0
    edited=$(awk -F: -v OFS=: "$without$2" "$1") || die "$1 could not be changed"
    printf '%s\n' "$edited" >"$1" || die "$1 could not be written"
}
# functions of the programs below: a list of members without the user; the groups that he gets, their ids by name
without='function without(list,    n, i, names, left) {
    n = split(list, names, ",")
    for (i = 1; i <= n; i++) if (names[i] != ENVIRON["VTORQUE_USER"]) left = left (left == "" ? "" : ",") names[i]
    return left
}
function given(ids,    n, i, lines, tab) {
    n = split(ENVIRON["GIVEN"], lines, "\n")
    for (i = 1; i <= n; i++)
        if ((tab = index(lines[i], "\t"))) ids[substr(lines[i], tab + 1)] = substr(lines[i], 1, tab - 1)
}
'

report_groups() { # which the user does not get by their names
    while IFS= read -r line; do
        case $line in
            "without "*) echo "group ${line#without } gives power in this image, and is left out" ;;
            "renamed "*)
                line=${line#renamed }
                echo "group ${line%% *} would give power to its members if it were made here: it is ${line#* }"
                ;;
        esac
    done
}

choose_groups() { # all of the user's that give no power here
    if [ ! -e "$decided" ]; then
        awk -F: '{ here[$1] }
            END {
                n = split(ENVIRON["STRONG"], words, " ")
                for (i = 1; i <= n; i++) strong[words[i]]
                n = split(ENVIRON["VTORQUE_GROUPS"], lines, "\n")
                for (i = 1; i <= n; i++) taken[substr(lines[i], index(lines[i], "\t") + 1)]
                for (i = 1; i <= n; i++) {
                    tab = index(lines[i], "\t")
                    id = substr(lines[i], 1, tab - 1)
                    name = substr(lines[i], tab + 1)
                    if (!tab) continue
                    if (id == "0" || (name in strong) && (name in here)) print "without " name
                    else if (name in strong) {
                        for (other = "g" id; (other in taken) || (other in here); other = other "_");
                        print "renamed " name " " other
                        print id "\t" other
                    } else print lines[i]
                }
            }' /etc/group >"$decided" || die "$decided could not be written"
        report_groups <"$decided"
    fi
    GIVEN=
    while IFS= read -r line; do
        case $line in *'	'*) GIVEN=$GIVEN$line$newline ;; esac
    done <"$decided"
    export GIVEN
}

other() { # file id name: who else has this id there
    NAME=$3 awk -F: -v id="$2" '$3 == id && $1 != ENVIRON["NAME"] { print $1; exit }' "$1"
}

free() { # file: an id that nobody has
    awk -F: "$without"'BEGIN { given(ids); for (name in ids) used[ids[name]] = 1 }
        { used[$3] = 1 }
        END { for (n = 60999; n in used || n == ENVIRON["VTORQUE_UID"] || n == ENVIRON["VTORQUE_GID"]; n--); print n }' "$1"
}

in_the_way() { # has somebody else an id that is the job's?
    awk -F: "$without"'BEGIN { given(ids); for (name in ids) names[ids[name]] = name }
        FILENAME == "/etc/passwd" { if ($3 == ENVIRON["VTORQUE_UID"] && $1 != ENVIRON["VTORQUE_USER"]) found = 1; next }
        $3 == ENVIRON["VTORQUE_GID"] && $1 != ENVIRON["VTORQUE_GROUP"] { found = 1 }
        ($3 in names) && $1 != names[$3] { found = 1 }
        END { exit !found }' /etc/passwd /etc/group
}

move_group() { # id name: the image's own group that has the id of this one
    name=$(other /etc/group "$1" "$2")
    [ -n "$name" ] || return 0
    MOVED=$(free /etc/group) ID=$1 NAME=$2
    export MOVED ID NAME
    edit /etc/group '$3 == ENVIRON["ID"] && $1 != ENVIRON["NAME"] { $3 = ENVIRON["MOVED"] } { print }'
    edit /etc/passwd '$4 == ENVIRON["ID"] { $4 = ENVIRON["MOVED"] } { print }'
    echo "group $1 $MOVED" >>"$moved"
    echo "group $name of the image has the id $MOVED here, as $1 is the job's"
}

move_groups() {
    move_group "$VTORQUE_GID" "$VTORQUE_GROUP"
    others=$(awk -F: "$without"'BEGIN { given(ids); for (name in ids) names[ids[name]] = name }
        $3 in names && $1 != names[$3] { print $3 "\t" names[$3] }' /etc/group)
    [ -z "$others" ] || printf '%s\n' "$others" |
        while IFS='	' read -r id name; do move_group "$id" "$name" || exit; done || exit 1
}

move_user() { # the image's own user that has the job's user id
    name=$(other /etc/passwd "$VTORQUE_UID" "$VTORQUE_USER")
    [ -n "$name" ] || return 0
    if stat -c %u /proc/[0-9]* 2>/dev/null | grep -qx "$VTORQUE_UID"; then
        die "user id $VTORQUE_UID is that of $name in this image, which runs processes"
    fi
    MOVED=$(free /etc/passwd)
    export MOVED
    edit /etc/passwd '$3 == ENVIRON["VTORQUE_UID"] && $1 != ENVIRON["VTORQUE_USER"] { $3 = ENVIRON["MOVED"] } { print }'
    echo "user $VTORQUE_UID $MOVED" >>"$moved"
    echo "user $name of the image has the id $MOVED here, as $VTORQUE_UID is the job's"
}

own_places() { # where file systems of this guest's own are mounted, to be written: the cluster's are not ours to change
    awk 'FILENAME == "/proc/filesystems" { if ($1 != "nodev") own[$1]; next } # what needs a block device, and these:
        FNR == 1 { split("devtmpfs overlay ramfs tmpfs zfs", more, " "); for (n in more) own[more[n]] }
        ($3 in own) && "," $4 "," !~ /,ro,/ && $2 != "/" { print $2 }' /proc/filesystems /proc/self/mounts
}

move_files() { # of all ids that were moved, but for what is the user's own; one walk for each kind
    [ -s "$moved" ] || return 0
    { echo / && own_places; } | while read -r place; do
        place=$(printf %b "$place") # a blank is \040 there
        for kind in user group; do
            change='chgrp'
            [ "$kind" = group ] || change='chown'
            set --
            while read -r what id new; do
                [ "$what" = "$kind" ] || continue
                [ $# -eq 0 ] || set -- "$@" -o
                set -- "$@" "-$kind" "$id" -exec "$change" -h "$new" {} +
            done <"$moved"
            [ $# -eq 0 ] || find "$place" -xdev \( -path "$VTORQUE_HOME" -o -path /run/vtorque \
                -o -path "$VTORQUE_JOB_SCRIPTS" \) -prune -o "$@" # busybox forgets an -exec within brackets
        done
    done
}

tell_daemons() { # who looks a group up once, and goes on to use its number
    [ -s "$moved" ] || return 0
    udevadm control --reload
    busctl call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus ReloadConfig
} >/dev/null 2>&1

choose_shell() {
    for VTORQUE_SHELL_HERE in "$VTORQUE_SHELL" /bin/bash /bin/sh; do
        [ -x "$VTORQUE_SHELL_HERE" ] && [ ! -d "$VTORQUE_SHELL_HERE" ] && break
    done
    export VTORQUE_SHELL_HERE
    [ "$VTORQUE_SHELL_HERE" = "$VTORQUE_SHELL" ] ||
        echo "the shell $VTORQUE_SHELL is not in this image, $VTORQUE_SHELL_HERE takes its place"
    [ ! -e /etc/shells ] || while read -r line || [ -n "$line" ]; do
        [ "$line" != "$VTORQUE_SHELL_HERE" ] || return 0
    done </etc/shells
    echo "$VTORQUE_SHELL_HERE" >>/etc/shells
}

write_accounts() { # in place, as `edit` does; one program for all
    set --
    for file in /etc/group /etc/gshadow /etc/passwd /etc/shadow; do
        [ ! -f "$file" ] || set -- "$@" "$file"
    done
    # no password can match "*"; an account locked with "!" would be refused even with a key
    awk -F: -v OFS=: "$without"'
        function is(file) { return FILENAME == "/etc/" file }
        function add(file, line) { text["/etc/" file] = text["/etc/" file] line "\n" }
        BEGIN {
            given(ids)
            user = ENVIRON["VTORQUE_USER"]
            group = ENVIRON["VTORQUE_GROUP"]
        }
        is("group") || is("gshadow") {
            if ($1 == group || ($1 in ids)) next
            if (is("gshadow")) $3 = without($3)
            $4 = without($4)
        }
        (is("passwd") || is("shadow")) && $1 == user { next }
        { text[FILENAME] = text[FILENAME] $0 "\n" }
        END {
            add("group", group OFS "x" OFS ENVIRON["VTORQUE_GID"] OFS)
            add("gshadow", group OFS "*" OFS OFS)
            for (name in ids) {
                add("group", name OFS "x" OFS ids[name] OFS user)
                add("gshadow", name OFS "*" OFS OFS user)
            }
            add("passwd", user OFS "x" OFS ENVIRON["VTORQUE_UID"] OFS ENVIRON["VTORQUE_GID"] OFS OFS \
                ENVIRON["VTORQUE_HOME"] OFS ENVIRON["VTORQUE_SHELL_HERE"])
            add("shadow", user OFS "*" OFS OFS OFS OFS OFS OFS OFS)
            for (at = 1; at < ARGC; at++) printf "%s", text[ARGV[at]] >ARGV[at]
        }' "$@" || die "the accounts could not be written"
}

refuse_power() {
    [ ! -e "$decided" ] || return 0
    case " $STRONG " in
        *" $VTORQUE_GROUP "*)
            ! grep -q "^$VTORQUE_GROUP:" /etc/group || die "group $VTORQUE_GROUP gives power in this image" ;;
    esac
}

check_power() {
    command -v sudo >/dev/null 2>&1 || return 0
    case $(sudo -n -l -U "$VTORQUE_USER" 2>/dev/null) in
        *'may run'*) die "$VTORQUE_USER may use sudo in this image" ;;
    esac
}

home_is_mounted() {
    while IFS='	' read -r _kind _source target _options; do
        [ "$target" != "$VTORQUE_HOME" ] || return 0
    done <<MOUNTS
$VTORQUE_MOUNTS
MOUNTS
    return 1
}

make_places() {
    umask 022
    # a home that is the cluster's own is never touched: neither its owner nor its mode is ours to decide
    if home_is_mounted; then
        [ -d "$VTORQUE_HOME" ] || mkdir -p "$VTORQUE_HOME"
    elif [ ! -e "$VTORQUE_HOME" ] && [ ! -L "$VTORQUE_HOME" ]; then
        { [ -d "${VTORQUE_HOME%/*}/" ] || mkdir -p "${VTORQUE_HOME%/*}/"; } && mkdir -m 0700 "$VTORQUE_HOME" && chown "$VTORQUE_UID:$VTORQUE_GID" "$VTORQUE_HOME"
    elif [ "$(stat -c %u:%g "$VTORQUE_HOME")" != "$VTORQUE_UID:$VTORQUE_GID" ]; then
        case $VTORQUE_HOME in
            */. | */.. | */./* | */../* | /home/ | /home//) die "the home $VTORQUE_HOME is no place of one user" ;;
            /home/*) [ -d "$VTORQUE_HOME" ] && [ ! -L "$VTORQUE_HOME" ] ;;
            *) die "the home $VTORQUE_HOME is in this image already, and is another's" ;;
        esac && chown -R -h "$VTORQUE_UID:$VTORQUE_GID" "$VTORQUE_HOME" && chmod 0700 "$VTORQUE_HOME"
    fi || die "the home $VTORQUE_HOME could not be made"
    if [ ! -e "/home/$VTORQUE_USER" ] && [ ! -L "/home/$VTORQUE_USER" ]; then
        mkdir -p /home && ln -s "$VTORQUE_HOME" "/home/$VTORQUE_USER"
    fi
    # the second is where sshd leaves the cookie of a forwarded display (xauth.sh)
    set -- "$VTORQUE_JOB_SCRIPTS" /run/vtorque/x11
    { mkdir -p "$@" && chown "$VTORQUE_UID:$VTORQUE_GID" "$@" && chmod 0700 "$@"; } || die "$1 or $2 could not be made"
    command -v restorecon >/dev/null 2>&1 || return 0
    home_is_mounted || restorecon -R "$VTORQUE_HOME"
    restorecon -R "$VTORQUE_TORQUE_HOME"
}

allow_limits() { # what the node's job may have, its shell in the guest must be able to take: it only goes down from here
    [ -d /etc/security/limits.d ] || return 0
    {
        for limit in core data fsize memlock rss stack cpu nproc as sigpending msgqueue; do
            echo ":$VTORQUE_UID hard $limit unlimited"
        done
        # verbs lock what they register, also in programs that other guests start by ssh
        [ ! -e /etc/vtorque/rdma ] || echo ":$VTORQUE_UID soft memlock unlimited"
        # more than that the kernel refuses, and pam_limits then the login
        # not by `read`, which asks the kernel for a byte at a time and gets the first alone
        echo ":$VTORQUE_UID hard nofile $(cat /proc/sys/fs/nr_open)"
    } >/etc/security/limits.d/vtorque.conf
}

offer_programs() { # where login shells look first: the batch system's own ask what no guest has; an image's own stay
    set --
    for ours in /usr/lib/vtorque/bin/*; do
        place=/usr/local/bin/${ours##*/}
        if [ ! -e "$place" ] && [ ! -L "$place" ]; then
            set -- "$@" "$ours"
        elif ! grep -qsF "${ours##*/} for guests" "$place"; then
            echo "the image has its own $place, which stays; the one for guests is $ours"
        fi
    done
    [ $# -gt 0 ] || return 0
    { [ -d /usr/local/bin ] || mkdir -p /usr/local/bin; } 2>/dev/null && ln -s "$@" /usr/local/bin/ 2>/dev/null && return
    for ours; do
        [ -L "/usr/local/bin/${ours##*/}" ] || echo "/usr/local/bin/${ours##*/} could not be made; it is $ours"
    done
}

if [ -e "$made" ]; then
    move_files
    exit 0
fi
refuse_power
choose_groups
if in_the_way; then
    move_groups
    move_user
fi
choose_shell
write_accounts
tell_daemons
move_files
check_power
make_places
allow_limits
offer_programs
: >"$made"
