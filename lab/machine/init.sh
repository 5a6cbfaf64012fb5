#!/usr/bin/env bash
# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Process 1 of the machine: mount what a system has, load what a node of the lab needs of the kernel, and answer by ssh.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
exec </dev/null >/dev/console 2>&1
own=/run/lab-machine
# shellcheck source=/dev/null  # MODULES (where they lie), KERNEL_MODULES, CGROUPS (1 or 2): written by `up`
. "$own/settings"

mkdir -p /run/lock /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
if [ "$CGROUPS" = 2 ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for controller in cpu cpuacct cpuset memory devices freezer blkio pids; do
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" || echo "lab machine: no cgroup $controller"
    done
    mkdir /sys/fs/cgroup/systemd /sys/fs/cgroup/unified
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
    mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
fi
mkdir -p /lib/modules
mount --bind "$MODULES" /lib/modules
for module in $KERNEL_MODULES; do
    modprobe "$module" || echo "lab machine: no module $module"
done
# as Debian's udev rules have them: libvirt asks qemu for its abilities again at every call where qemu's user may not open /dev/kvm
[ -e /dev/kvm ] || echo "lab machine: no /dev/kvm"
[ ! -e /dev/kvm ] || { chown root:kvm /dev/kvm && chmod 660 /dev/kvm; }
mkdir -p /dev/hugepages
mount -t hugetlbfs hugetlbfs /dev/hugepages
hostname machine
ip link set lo up
for card in /sys/class/net/*; do
    card=${card##*/}
    # the card by which the machine below comes; shellcheck knows no CARD, which is in the settings
    # shellcheck disable=SC2153
    [ "$(cat "/sys/class/net/$card/address")" = "$CARD" ] || continue
    ip address add 10.0.2.15/24 dev "$card" && ip link set "$card" up
done
# bash reads root's ~/.bashrc for whatever comes by ssh, which costs an emulated processor seconds a command
sed -i 's,^\(root:.*\):[^:]*$,\1:/bin/sh,' /etc/passwd
mkdir -p /run/sshd
/usr/sbin/sshd -f "$own/sshd_config" -E "$own/sshd.log" || echo "lab machine: no sshd"
echo "lab machine: ready after $(cut -d' ' -f1 /proc/uptime) s"
# bash reaps what others leave behind
while :; do
    sleep 3600 &
    wait $!
done
