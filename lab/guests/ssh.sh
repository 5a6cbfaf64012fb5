#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# ssh of the tiny guest: dropbear's client, with the words of OpenSSH's that launchers use.  It goes to the job's guests
# alone, with the job's key and the host keys that are known of them; it asks nobody anything.
PATH=/usr/bin:/bin
key=/etc/vtorque/job_key
known=/etc/ssh/ssh_known_hosts

input=
while getopts 46AaCTXYfknqtxyb:c:e:F:i:l:m:o:p: option; do
    case $option in
        n) input=none ;;
        t) echo "ssh: no terminals in the tiny guest" >&2 && exit 255 ;;
        [46AaCTXYfkqxybceFilmop]) ;;
        *) exit 255 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "usage: ssh [options] host [command]" >&2; exit 255; }
if [ ! -r "$key" ] || [ ! -r "$known" ]; then
    echo "ssh: this guest does not know the others of its job" >&2
    exit 255
fi

# dropbear reads keys of its own form, and known hosts by one name a line, in the home
place=$(mktemp -d /tmp/ssh.XXXXXX) || exit 255
trap 'rm -rf "$place"' EXIT
trap 'exit 255' HUP INT TERM
mkdir -m 0700 "$place/.ssh"
while read -r names rest; do
    for name in $(echo "$names" | tr , ' '); do echo "$name $rest"; done
done <"$known" >"$place/.ssh/known_hosts"
dropbearconvert openssh dropbear "$key" "$place/key" >/dev/null 2>&1 || { echo "ssh: $key is no key" >&2; exit 255; }
# it would ask on standard input about a host that it does not know
grep -q "^${1#*@} " "$place/.ssh/known_hosts" || { echo "Host key verification failed." >&2; exit 255; }
[ -z "$input" ] || exec </dev/null
HOME=$place dbclient -T -i "$place/key" "$@"
