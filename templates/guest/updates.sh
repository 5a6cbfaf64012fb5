#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# In the guest, as root, under any POSIX sh, before the job: install security updates within so many seconds ($1).
#
# The last line of output: vtorque-updates, the outcome (done, timed out, failed), how many packages, after how many
# seconds, and why.  Whatever comes of it, the job runs.
set -uf
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
DEBIAN_FRONTEND=noninteractive
NEEDRESTART_SUSPEND=1
export PATH LC_ALL DEBIAN_FRONTEND NEEDRESTART_SUSPEND
SAID=/run/vtorque-updates
PINS=/run/vtorque-updates.pins
KEPT=/run/vtorque-updates.kept
# a kernel is not booted any more in this guest
NOT="kernel*"
AT_ONCE=8
# security alone counts as newer than what is there; what an update needs besides may come from anywhere
APT="-q -y --no-install-recommends -o Dir::Etc::Preferences=$PINS -o APT::Update::Error-Mode=any
    -o DPkg::Lock::Timeout=20 -o Acquire::Retries=1 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10
    -o DPkg::Options::=--force-confdef -o DPkg::Options::=--force-confold"
DNF="-q -y --setopt=timeout=10 --setopt=retries=1 --exclude=$NOT upgrade --security"
count=0

up_s() {
    read -r up _idle </proc/uptime
    echo "${up%%.*}"
}

began=$(up_s)
# behind it nothing is fetched and nothing begun; what is at work then has until the end; the rest is to mend in
stop=$((began + $1 * 5 / 8))
end=$((began + $1 * 7 / 8))
mend_s=$(($1 / 8 + 1))

tell() { # outcome words
    printf '\nvtorque-updates %s %s %s %s\n' "$1" "$count" "$(($(up_s) - began))" "$2"
    rm -f "$SAID" "$PINS" "$KEPT"
    exit 0
}

last() { # of what a package manager said: the first error of apt's, else the last line
    grep '^E:' "$SAID" | head -n 1 | grep . || grep . "$SAID" | tail -n 1
}

step() { # moment words command...: ended then, by force where need be; what does not go well is told
    left=$(($1 - $(up_s)))
    what=$2
    shift 2
    [ "$left" -gt 0 ] || tell "timed out" "$what: there was no time left"
    timeout -k 2 "$left" "$@" >"$SAID" 2>&1 </dev/null && return
    status=$?
    words=$(last)
    mend
    case $status in 124 | 137 | 143) tell "timed out" "$what took too long" ;; esac
    tell failed "$what: ${words:-ended with status $status}"
}

mend() { # what was ended in the middle
    ! command -v dpkg >/dev/null || timeout -k 2 "$mend_s" dpkg --configure -a --force-confold >/dev/null 2>&1 </dev/null
}

# lists of words without blanks
# shellcheck disable=SC2086
by_apt() {
    grep -rqsE '^[[:space:]]*(deb[[:space:]]|URIs:)' /etc/apt/sources.list /etc/apt/sources.list.d ||
        tell failed "this image has no package sources"
    printf 'Package: *\nPin: release a=%s\nPin-Priority: %s\n\n' '*-security' 500 now 100 '*' 50 >"$PINS"
    step "$stop" "the lists of packages" apt-get $APT update
    apt-cache policy | grep -qE '(^|[ ,])a=[^,]*-security(,|$)' ||
        tell failed "none of this image's package sources is one of security updates"
    step "$stop" "the choice of packages" apt-get $APT -s --with-new-pkgs upgrade
    # what stands there already has its version in brackets
    names=$(sed -n 's/^Inst \([^ ]*\) \[.*/\1/p' "$SAID" | grep -v '^linux-')
    [ -n "$names" ] || tell "done" ""
    step "$stop" "the packages" apt-get $APT --download-only install --only-upgrade $names
    # some at a time: one that is interrupted leaves half of a package
    set -- $names
    while [ $# -gt 0 ]; do
        some=
        number=0
        while [ $# -gt 0 ] && [ $number -lt $AT_ONCE ]; do
            some="$some $1"
            number=$((number + 1))
            shift
        done
        [ "$(up_s)" -lt "$stop" ] || tell "timed out" "$(($# + number)) more were not begun"
        step "$end" "the installation" apt-get $APT install --only-upgrade $some
        count=$((count + number))
    done
    tell "done" ""
}

# shellcheck disable=SC2086
by_dnf() { # program
    # its lists and packages first: those can be ended
    step "$stop" "the packages" "$1" $DNF --downloadonly
    rpm -qa >"$KEPT"
    step "$end" "the installation" "$1" -C $DNF
    count=$(rpm -qa | grep -vcxF -f "$KEPT")
    tell "done" ""
}

umask 022
for manager in apt-get dnf yum; do
    command -v $manager >/dev/null || continue
    case $manager in apt-get) by_apt ;; *) by_dnf $manager ;; esac
done
tell failed "this image has no package manager that is known"
