#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, as root, under any POSIX sh: the job's user and group exactly as on the node, whatever the image uses
# these names and ids for, and the places that are his.  useradd and groupadd refuse blanks, capitals and used ids.
# Says on its standard output what differs from the node, on standard error why it cannot be.
# shellcheck disable=SC2016 # the dollar signs in quotes are awk's
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
# shellcheck source=/dev/null
. /etc/vtorque/guest.env
# awk reads them from its environment: its own -v would take backslashes for escapes
export VTORQUE_USER VTORQUE_UID VTORQUE_GID VTORQUE_GROUP VTORQUE_HOME

die() { # why
    echo "$*" >&2
    exit 1
}

edit() { # file awk-program: in place, for a new file would lose its mode and its SELinux label
    [ -f "$1" ] || return 0
    edited=$(awk -F: -v OFS=: "$without$2" "$1") || die "$1 could not be changed"
    printf '%s\n' "$edited" >"$1" || die "$1 could not be written"
}
# function of the programs below: a list of members without the user
without='function without(list,    n, i, names, left) {
    n = split(list, names, ",")
    for (i = 1; i <= n; i++) if (names[i] != ENVIRON["VTORQUE_USER"]) left = left (left == "" ? "" : ",") names[i]
    return left
}
'

other() { # file id name: who else has this id there
    awk -F: -v id="$2" '$3 == id && $1 != ENVIRON["'"$3"'"] { print $1; exit }' "$1"
}

free() { # file: an id that nobody has
    awk -F: '{ used[$3] = 1 }
        END { for (n = 60999; n in used || n == ENVIRON["VTORQUE_UID"] || n == ENVIRON["VTORQUE_GID"]; n--); print n }' "$1"
}

move_group() { # the image's own group that has the job's group id; /dev is a file system of its own
    name=$(other /etc/group "$VTORQUE_GID" VTORQUE_GROUP)
    [ -n "$name" ] || return 0
    MOVED=$(free /etc/group)
    export MOVED
    edit /etc/group '$3 == ENVIRON["VTORQUE_GID"] && $1 != ENVIRON["VTORQUE_GROUP"] { $3 = ENVIRON["MOVED"] } { print }'
    edit /etc/passwd '$4 == ENVIRON["VTORQUE_GID"] { $4 = ENVIRON["MOVED"] } { print }'
    find / /dev -xdev -group "$VTORQUE_GID" -exec chgrp -h "$MOVED" {} +
    echo "group $name of the image has the id $MOVED here, as $VTORQUE_GID is the job's"
}

move_user() { # the image's own user that has the job's user id
    name=$(other /etc/passwd "$VTORQUE_UID" VTORQUE_USER)
    [ -n "$name" ] || return 0
    if stat -c %u /proc/[0-9]* 2>/dev/null | grep -qx "$VTORQUE_UID"; then
        die "user id $VTORQUE_UID is that of $name in this image, which runs processes"
    fi
    MOVED=$(free /etc/passwd)
    export MOVED
    edit /etc/passwd '$3 == ENVIRON["VTORQUE_UID"] && $1 != ENVIRON["VTORQUE_USER"] { $3 = ENVIRON["MOVED"] } { print }'
    find / /dev -xdev -user "$VTORQUE_UID" -exec chown -h "$MOVED" {} +
    echo "user $name of the image has the id $MOVED here, as $VTORQUE_UID is the job's"
}

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
    edit /etc/group '$1 != ENVIRON["VTORQUE_GROUP"] { $4 = without($4); print }
        END { print ENVIRON["VTORQUE_GROUP"], "x", ENVIRON["VTORQUE_GID"], "" }'
    edit /etc/gshadow '$1 != ENVIRON["VTORQUE_GROUP"] { $3 = without($3); $4 = without($4); print }
        END { print ENVIRON["VTORQUE_GROUP"], "*", "", "" }'
    edit /etc/passwd '$1 != ENVIRON["VTORQUE_USER"] { print }
        END { print ENVIRON["VTORQUE_USER"], "x", ENVIRON["VTORQUE_UID"], ENVIRON["VTORQUE_GID"], "",
                    ENVIRON["VTORQUE_HOME"], ENVIRON["VTORQUE_SHELL_HERE"] }'
    # no password can match "*"; an account locked with "!" would be refused even with a key
    edit /etc/shadow '$1 != ENVIRON["VTORQUE_USER"] { print }
        END { print ENVIRON["VTORQUE_USER"], "*", "", "", "", "", "", "", "" }'
}

refuse_power() {
    case $VTORQUE_GROUP in
        root | sudo | wheel | admin | adm | disk | docker | incus | kmem | lxd | shadow)
            ! grep -q "^$VTORQUE_GROUP:" /etc/group || die "group $VTORQUE_GROUP gives power in this image" ;;
    esac
}

check_power() {
    command -v sudo >/dev/null 2>&1 || return 0
    ! sudo -n -l -U "$VTORQUE_USER" 2>/dev/null | grep -q 'may run' || die "$VTORQUE_USER may use sudo in this image"
}

make_places() {
    umask 022
    if [ ! -e "$VTORQUE_HOME" ] && [ ! -L "$VTORQUE_HOME" ]; then
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
        mkdir -p "$VTORQUE_TORQUE_HOME/mom_priv/jobs" &&
            chown "$VTORQUE_UID:$VTORQUE_GID" "$VTORQUE_TORQUE_HOME/mom_priv/jobs" &&
            chmod 0700 "$VTORQUE_TORQUE_HOME/mom_priv/jobs"
    } || die "$VTORQUE_TORQUE_HOME/mom_priv/jobs could not be made"
    ! command -v restorecon >/dev/null 2>&1 || restorecon -R "$VTORQUE_HOME" "$VTORQUE_TORQUE_HOME"
}

refuse_power
move_group
move_user
choose_shell
write_accounts
check_power
make_places
