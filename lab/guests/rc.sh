#!/bin/sh
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Everything that the tiny guest does at boot.  Of the seed it reads the host name and the files, which the seed's
# templates write one a line.
PATH=/usr/bin
export PATH
umask 022

mount -t devtmpfs devtmpfs /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts -o mode=0620,gid=5,ptmxmode=0666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
exec </dev/console >/dev/console 2>&1
echo "tiny guest: starting"

# what an image's command line wants to go wrong (README.md of the lab)
read -r line </proc/cmdline
fault=
for word in $line; do
    case $word in lab.fault=*) fault=${word#*=} ;; esac
done
case $fault in
    panic) echo c >/proc/sysrq-trigger ;;
    off) poweroff -f ;;
    restart) reboot -f ;;
    mute) exec sleep 1000000 ;;
    # alive, and never ready
    idle) while :; do echo "tiny guest: still starting" && sleep 1; done ;;
    impatient) lease_tries=3 ;;
esac

while read -r module; do
    insmod "/lib/modules/$module"
done </lib/modules/order

ask_for_address() {
    ip link set eth0 up
    # stays in the foreground until it has a lease, and renews it from the background
    udhcpc -i eth0 -s /etc/udhcpc -t "${lease_tries:-40}" -T 1 -n >/dev/null 2>&1 &
    lease=$!
}
ip link set lo up
ask_for_address

lost() { # what
    # the seed tells the token: without one nobody waits for this line
    echo "vtorque-failed ${VTORQUE_TOKEN:--} $*"
    exit 1
}

load() { # kind: its modules, once
    [ -e "/lib/modules/order-$1" ] || return 0
    while read -r module; do
        insmod "/lib/modules/$module"
    done <"/lib/modules/order-$1"
    rm "/lib/modules/order-$1"
}

await_lease() { # whoever has waited for a process is not told its status again
    [ -z "$lease" ] || wait "$lease" || lost "network: no answer from a DHCP server"
    lease=
}

# a disk may appear a moment after its driver
tries=0
until seed=$(findfs LABEL=cidata 2>/dev/null); do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || lost "no disk is labelled cidata"
    usleep 50000
done
mkdir -p /mnt/seed
mount -t iso9660 -o ro "$seed" /mnt/seed || lost "the seed cannot be mounted"

name=$(sed -n 's/^local-hostname: "\(.*\)"$/\1/p' /mnt/seed/meta-data)
hostname "$name"
echo "$name" >/etc/hostname

put() { # mode path file
    [ -d "${2%/*}" ] || mkdir -p "${2%/*}"
    umask 077
    base64 -d "$3" >"$2"
    umask 022
    case $1 in
        0644) texts="$texts$2$newline" ;;
        0755) programs="$programs$2$newline" ;;
        *) chmod "$1" "$2" ;;
    esac
}

# each process that is begun, each character that the shell reads, and a regular expression over these long lines takes an
# emulated processor long: awk only cuts them at their quotes, and the contents pass the shell by
newline='
'
texts=
programs=
mkdir -m 0700 /run/seed
eval "$(awk -F'"' '
    /^- [{]path: "/ && NF == 9 && $3 == ", owner: " && $4 == "root:root" && $7 == ", encoding: b64, content: " {
        file = "/run/seed/" NR
        print $8 >file
        close(file)
        printf "put %s \047%s\047 %s\n", $6, $2, file
    }' /mnt/seed/user-data)"
rm -r /run/seed
# cards on further networks, which the seed has one below the other, each with its MAC address first
awk -F'"' '
    /^    match: [{]macaddress: "/ { mac = $2 }
    /^    addresses: \["/ { address[mac] = $2 }
    /^    mtu: / { split($0, words, " "); mtu[mac] = words[2] }
    END { for (mac in address) print mac, address[mac], mtu[mac] }' /mnt/seed/network-config |
    while read -r mac address mtu; do
        for card in /sys/class/net/*; do
            [ "$(cat "$card/address")" = "$mac" ] || continue
            [ -z "$mtu" ] || ip link set "${card##*/}" mtu "$mtu"
            ip addr add "$address" broadcast + dev "${card##*/}"
            ip link set "${card##*/}" up
        done
    done
IFS=$newline
# shellcheck disable=SC2086  # names, one a line
[ -z "$texts" ] || chmod 0644 $texts
# shellcheck disable=SC2086
[ -z "$programs" ] || chmod 0755 $programs
unset IFS
umount /mnt/seed
if [ -e /etc/vtorque/warm.env ]; then
    # a template of a warm start: it has no network and no job yet, and goes on as whichever guest it becomes
    kill "$lease"
    ip link set eth0 down
    # shellcheck source=/dev/null
    . /etc/vtorque/warm.env
    for port in /sys/class/virtio-ports/*/name; do
        [ "$(cat "$port")" != org.vtorque.0 ] || channel=/dev/$(basename "${port%/name}")
    done
    # what any of its guests may need: before it is saved it costs no job anything
    for kind in virtiofs nfs disk; do load $kind; done
    case $fault in
        warm-dead) echo "vtorque-warm $VTORQUE_TOKEN" && exec sleep 1000000 ;;
    esac
    /usr/lib/vtorque-image/warm "$channel" "$VTORQUE_TOKEN" "$fault" || lost "the first order of a warm start"
    case $fault in
        warm-mute) exec sleep 1000000 ;;
        warm-same | warm-tell)
            echo "tiny guest: random $(cat /proc/sys/kernel/random/uuid)"
            echo "tiny guest: temporary $(mktemp -u)"
            echo "tiny guest: sequence $(/usr/lib/vtorque-image/sequence | tr ' \n' '+,')"
            ;;
    esac
    ask_for_address
fi
# shellcheck source=/dev/null
. /etc/vtorque/guest.env || lost "the seed holds no guest.env"

ssh=/etc/dropbear
mkdir -p $ssh/authorized
dropbearconvert openssh dropbear /etc/ssh/ssh_host_ed25519_key $ssh/host_key >/dev/null 2>&1 || lost "sshd: no host key"
/usr/lib/vtorque/identity >/dev/null 2>&1 || lost "identity: $(/usr/lib/vtorque/identity 2>&1 | tail -n 1)"
for kind in virtiofs nfs 9p; do
    case $VTORQUE_MOUNTS in
        *"$kind	"*)
            load $kind
            [ $kind != nfs ] || await_lease
            ;;
    esac
done
[ ! -e /usr/lib/vtorque/data ] || load disk
[ ! -e /usr/lib/vtorque/rdma ] || load rdma
# what is not there is told by the same program again
/usr/lib/vtorque/mounts >/dev/null 2>&1 || exec /usr/lib/vtorque/ready
# dropbear looks for keys in the home alone: what it finds there is root's, and no user can move a mount
cp "/etc/ssh/authorized_keys/$VTORQUE_USER" $ssh/authorized/authorized_keys
grep -qsxF "$VTORQUE_HOME" /run/vtorque-mounted || mkdir "$VTORQUE_HOME/.ssh"
mount -o bind $ssh/authorized "$VTORQUE_HOME/.ssh" || lost "sshd: the home has no .ssh"
set -- -r $ssh/host_key
# one that dropbear makes for itself
[ "$fault" != host-key ] || set -- -R
# as PAM lets a session have them elsewhere (identity.sh)
# shellcheck disable=SC3045
for limit in c d f i l m q s t u v; do ulimit -H -$limit unlimited; done
# shellcheck disable=SC3045
[ ! -e /etc/vtorque/rdma ] || ulimit -S -l unlimited
# shellcheck disable=SC3045
ulimit -H -n "$(cat /proc/sys/fs/nr_open)"
syslogd -O /var/log/dropbear
# by itself it takes five logins at once from an address, and no setting says otherwise: so it is called for each.  Who
# calls it lets so many wait as it is told to listen
backlog=-llllllll
for _double in 1 2 3 4; do backlog=$backlog${backlog#-}; done
while :; do nc "$backlog" -p 22 -e dropbear -i -s -w -m "$@"; usleep 100000; done 2>/dev/null &
tries=0
until grep -qs ':0016 [0-9A-F]*:0000 0A ' /proc/net/tcp /proc/net/tcp6; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || lost "sshd: nothing listens on port 22"
    usleep 20000
done

await_lease
exec /usr/lib/vtorque/ready
