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
        sed -n -e 's/^without \(.*\)/group \1 gives power in this image, and is left out/p' \
            -e 's/^renamed \([^ ]*\) \(.*\)/group \1 would give power to its members if it were made here: it is \2/p' "$decided"
    fi
    GIVEN=$(grep '	' "$decided")
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
    grep -qsxF "$VTORQUE_SHELL_HERE" /etc/shells || echo "$VTORQUE_SHELL_HERE" >>/etc/shells
}

write_accounts() {
    edit /etc/group 'BEGIN { given(ids) }
        $1 != ENVIRON["VTORQUE_GROUP"] && !($1 in ids) { $4 = without($4); print }
        END { print ENVIRON["VTORQUE_GROUP"], "x", ENVIRON["VTORQUE_GID"], ""
              for (name in ids) print name, "x", ids[name], ENVIRON["VTORQUE_USER"] }'
    edit /etc/gshadow 'BEGIN { given(ids) }
        $1 != ENVIRON["VTORQUE_GROUP"] && !($1 in ids) { $3 = without($3); $4 = without($4); print }
        END { print ENVIRON["VTORQUE_GROUP"], "*", "", ""
              for (name in ids) print name, "*", "", ENVIRON["VTORQUE_USER"] }'
    edit /etc/passwd '$1 != ENVIRON["VTORQUE_USER"] { print }
        END { print ENVIRON["VTORQUE_USER"], "x", ENVIRON["VTORQUE_UID"], ENVIRON["VTORQUE_GID"], "",
                    ENVIRON["VTORQUE_HOME"], ENVIRON["VTORQUE_SHELL_HERE"] }'
    # no password can match "*"; an account locked with "!" would be refused even with a key
    edit /etc/shadow '$1 != ENVIRON["VTORQUE_USER"] { print }
        END { print ENVIRON["VTORQUE_USER"], "*", "", "", "", "", "", "", "" }'
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
    ! sudo -n -l -U "$VTORQUE_USER" 2>/dev/null | grep -q 'may run' || die "$VTORQUE_USER may use sudo in this image"
}

home_is_mounted() {
    printf '%s' "$VTORQUE_MOUNTS" | awk -F'\t' '$3 == ENVIRON["VTORQUE_HOME"] { found = 1 } END { exit !found }'
}

make_places() {
    umask 022
    # a home that is the cluster's own is never touched: neither its owner nor its mode is ours to decide
    if home_is_mounted; then
        [ -d "$VTORQUE_HOME" ] || mkdir -p "$VTORQUE_HOME"
    elif [ ! -e "$VTORQUE_HOME" ] && [ ! -L "$VTORQUE_HOME" ]; then
        mkdir -p "${VTORQUE_HOME%/*}/" && mkdir -m 0700 "$VTORQUE_HOME" && chown "$VTORQUE_UID:$VTORQUE_GID" "$VTORQUE_HOME"
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
    {
        mkdir -p "$VTORQUE_JOB_SCRIPTS" &&
            chown "$VTORQUE_UID:$VTORQUE_GID" "$VTORQUE_JOB_SCRIPTS" &&
            chmod 0700 "$VTORQUE_JOB_SCRIPTS"
    } || die "$VTORQUE_JOB_SCRIPTS could not be made"
    # where sshd leaves the cookie of a forwarded display (xauth.sh)
    {
        mkdir -p /run/vtorque/x11 && chown "$VTORQUE_UID:$VTORQUE_GID" /run/vtorque/x11 && chmod 0700 /run/vtorque/x11
    } || die "/run/vtorque/x11 could not be made"
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
        echo ":$VTORQUE_UID hard nofile $(cat /proc/sys/fs/nr_open)"
    } >/etc/security/limits.d/vtorque.conf
}

offer_programs() { # where login shells look first: the batch system's own ask what no guest has; an image's own stay
    for ours in /usr/lib/vtorque/bin/*; do
        place=/usr/local/bin/${ours##*/}
        if [ ! -e "$place" ] && [ ! -L "$place" ]; then
            { mkdir -p "${place%/*}" && ln -s "$ours" "$place"; } 2>/dev/null || echo "$place could not be made; it is $ours"
        elif ! grep -qsF "${ours##*/} for guests" "$place"; then
            echo "the image has its own $place, which stays; the one for guests is $ours"
        fi
    done
}

if [ -e "$made" ]; then
    move_files
    exit 0
fi
refuse_power
choose_groups
move_groups
move_user
choose_shell
write_accounts
tell_daemons
move_files
check_power
make_places
allow_limits
offer_programs
: >"$made"
