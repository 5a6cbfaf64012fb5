#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# scontrol for guests, under any POSIX sh: lists of hosts, as scripts and launchers ask for them.  Slurm's own needs the
# cluster's key, which no guest has; this one asks nobody.
# shellcheck disable=SC2016 # the dollar signs in quotes are awk's
set -u

fail() { # what
    echo "scontrol: error: $*" >&2
    exit 1
}

usage() {
    echo "Usage: scontrol show hostnames [LIST]
       scontrol show hostlist LIST
hostnames writes a host a line, without a LIST the guests of this job (\$SLURM_JOB_NODELIST).
hostlist makes one LIST of names with commas between them, or of the names in the file /PATH.
A scontrol in a guest can do nothing else: ask on a front end."
}

expand() { # LIST: a host a line; it ends with 1 where the list cannot be read
    printf '%s\n' "$1" | awk '
        function bad() { failed = 1; exit 1 }
        # every name that begins so and goes on so
        function names(head, rest,    open, shut, parts, n, i, range, at, width) {
            open = index(rest, "[")
            if (!open) {
                if (rest ~ /\]/ || head rest == "" || ++count > 65536) bad()
                print head rest
                return
            }
            shut = index(rest, "]")
            if (shut < open + 2) bad()
            n = split(substr(rest, open + 1, shut - open - 1), parts, ",")
            for (i = 1; i <= n; i++) {
                if (parts[i] !~ /^[0-9]+$/ && parts[i] !~ /^[0-9]+-[0-9]+$/) bad()
                split(parts[i] "-" parts[i], range, "-")
                width = length(range[1])
                for (at = range[1] + 0; at <= range[2] + 0; at++)
                    names(head substr(rest, 1, open - 1) sprintf("%0" width "d", at), substr(rest, shut + 1))
            }
        }
        {
            while (length($0)) {
                # up to the comma that stands in no brackets
                inside = 0
                for (i = 1; i <= length($0); i++) {
                    letter = substr($0, i, 1)
                    if (letter == "[") inside++
                    if (letter == "]") inside--
                    if (inside < 0 || inside > 1) bad()
                    if (letter == "," && !inside) break
                }
                if (inside) bad()
                item = substr($0, 1, i - 1)
                $0 = substr($0, i + 1)
                if (item != "") names("", item)
            }
        }
        END { exit failed }'
}

compress() { # a host a line: as one list, in their order
    awk '
        function close_range() {
            if (first == "") return
            text = text (text == "" ? "" : ",") first (first == last ? "" : "-" last)
            many += 1 + (first != last)
            first = ""
        }
        function close_group() {
            close_range()
            if (text != "") list = list (list == "" ? "" : ",") head (many > 1 ? "[" text "]" : text)
            text = ""
            many = 0
        }
        NF {
            match($1, /[0-9]*$/)
            digits = substr($1, RSTART)
            name = substr($1, 1, RSTART - 1)
            if (digits == "") {
                close_group()
                list = list (list == "" ? "" : ",") $1
                head = ""
                next
            }
            if (name != head) { close_group(); head = name }
            if (first != "" && digits == sprintf("%0" length(last) "d", last + 1)) { last = digits; next }
            close_range()
            first = last = digits
        }
        END { close_group(); print list }'
}

case ${1-} in
    --help | -h) usage; exit 0 ;;
esac
case "${1-} ${2-}" in
    'show hostnames' | 'show hostname')
        [ $# -le 3 ] || fail "too many words: show hostnames [LIST]"
        list=${3-${SLURM_JOB_NODELIST-${SLURM_NODELIST-}}}
        [ -n "$list" ] || fail "hostnames: no list is given, and SLURM_JOB_NODELIST is not set"
        expand "$list" || fail "hostnames: $list is no list of hosts"
        ;;
    'show hostlist')
        [ $# -eq 3 ] || fail "a list is needed: show hostlist LIST"
        case $3 in
            /*) names=$(tr ',' '\n' <"$3") || exit 1 ;;
            *) names=$(expand "$3") || fail "hostlist: $3 is no list of hosts" ;;
        esac
        printf '%s\n' "$names" | compress
        ;;
    *)
        echo "scontrol: error: '$*' is not possible in a guest" >&2
        usage >&2
        exit 1
        ;;
esac
