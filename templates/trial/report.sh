#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# report TOKEN begun|up: in a guest in which an image is tried, as root: say on the serial console what it is, each line
# behind `vtorque-trial TOKEN`.  It is included in a template of Jinja's, whose openings of tags it must not hold.
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
token=$1
most=12

say() { # standard input, on the serial console, kept clear of the kernel's own messages
    words=$(sed "s/^/vtorque-trial $token /")
    read -r level rest </proc/sys/kernel/printk
    echo 1 >/proc/sys/kernel/printk
    for tty in ttyS0 ttyAMA0 hvc0; do
        [ -c "/dev/$tty" ] && printf '\n%s\n' "$words" >"/dev/$tty" && break
    done 2>/dev/null
    echo "$level $rest" >/proc/sys/kernel/printk
}

uptime_s() {
    read -r seconds rest </proc/uptime
    echo "$seconds"
}

facts() {
    uptime=$(uptime_s)
    echo "cloud-init $(cloud-init --version 2>&1 | head -n 1)"
    # the last one counts; a list of several lines is not told
    cat /etc/cloud/cloud.cfg /etc/cloud/cloud.cfg.d/*.cfg 2>/dev/null | sed -n 's/^datasource_list: */sources /p' | tail -n 1
    command -v sshd | sed 's/^/sshd /'
    for file in /etc/machine-id /etc/ssh/ssh_host_*_key; do
        # older than this boot, and with something in it: the image has brought it
        [ -s "$file" ] && [ "$(($(date +%s) - $(stat -c %Y "$file")))" -gt "$((${uptime%.*} + 2))" ] && echo "identity $file"
    done
    awk -F: '$3 >= 1000 && $3 < 60000 { print "user " $1 }' /etc/passwd | head -n "$most"
}

durations() {
    # not before everything has been started
    timeout 60 systemctl is-system-running --wait >/dev/null 2>&1
    systemd-analyze time 2>/dev/null | sed -n 's/^Startup finished in/startup/p'
    systemd-analyze blame --no-pager 2>/dev/null | head -n "$most" | sed 's/^ */unit /'
    cloud-init analyze blame 2>/dev/null | sed -n 's/^ *\([0-9.]*s\) (\(.*\))$/module \1 \2/p' | head -n "$most"
}

spans() {
    # what the kernel does before systemd, and when each unit was begun and done; seconds of the kernel's clock
    dmesg 2>/dev/null | sed -n 's/^\[ *\([0-9.]*\)\] Run \/init as init process.*/mark initramfs \1/p' | head -n 1
    systemctl show --property=UserspaceTimestampMonotonic 2>/dev/null |
        awk -F= '$2 > 0 { printf "mark userspace %.3f\n", $2 / 1000000 }'
    systemctl show --property=Id,InactiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic,InactiveEnterTimestampMonotonic '*.service' '*.socket' 2>/dev/null |
        awk -F= '
            function tell() {
                done = entered >= begun ? entered : left
                if (begun > 0 && done - begun >= 50000) printf "span %s %.3f %.3f\n", id, begun / 1000000, done / 1000000
                begun = entered = left = 0
            }
            /^$/ { tell() }
            $1 == "Id" { id = $2 }
            $1 == "InactiveExitTimestampMonotonic" { begun = $2 }
            $1 == "ActiveEnterTimestampMonotonic" { entered = $2 }
            $1 == "InactiveEnterTimestampMonotonic" { left = $2 }
            END { tell() }' | sort -k 3,3n | head -n 80
}

case $2 in
    begun) echo "begun $(uptime_s)" | say ;;
    up)
        echo "up $(uptime_s)" | say
        { facts; durations; spans; } | say
        echo end | say
        ;;
esac
